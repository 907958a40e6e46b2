//! Puts the layers together: file, environment, defaults. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::check::{self, Leaf, Place};
use super::environment::{self, OVER, UNDER};
use super::error::{ConfigError, Origin, Problem, Warning};
use super::json;
use super::position;
use super::rules;
use super::schema::Config;

/// The settings and what to say about them.
#[derive(Debug)]
pub struct Assembled {
    /// The settings.
    pub config: Config,
    /// What the user should hear about.
    pub warnings: Vec<Warning>,
}

/// From the text of `file` (`None`: there is no file) and the environment to checked settings.
pub fn assemble(file: &Path, text: Option<&str>, env: &BTreeMap<String, String>) -> Result<Assembled, ConfigError> {
    let source = Source { file, text };
    let mut layers = Layers::default();
    let under = environment::overlay(UNDER, env);
    let over = environment::overlay(OVER, env);
    layers.lay_variables(under);
    if let Some(text) = text {
        let checked = check::file(&source.parse(text, env)?);
        layers.problems.extend(checked.problems.into_iter().map(|(place, what)| source.problem(place, what)));
        layers.warnings.extend(checked.unknown.into_iter().map(|(place, nearest)| Warning::Unknown {
            origin: source.origin(&place.steps),
            path: place.shown,
            nearest,
        }));
        layers.warnings.extend(checked.unused.into_iter().map(|(section, keys)| Warning::Unused {
            origin: source.whole(),
            section,
            keys,
        }));
        for leaf in checked.leaves {
            let origin = source.origin(&leaf.steps);
            layers.lay(leaf, origin);
        }
    }
    layers.lay_variables(over);
    layers.finish(&source)
}

/// The file, for messages.
struct Source<'a> {
    file: &'a Path,
    text: Option<&'a str>,
}

impl Source<'_> {
    fn whole(&self) -> Origin {
        Origin::File { file: self.file.into(), at: None }
    }

    fn origin(&self, steps: &[String]) -> Origin {
        Origin::File { file: self.file.into(), at: self.text.and_then(|text| position::find(text, steps)) }
    }

    fn problem(&self, place: Place, what: String) -> Problem {
        Problem { origin: self.origin(&place.steps), path: place.shown, what }
    }

    /// The file as an object with every `${NAME}` filled in.
    fn parse(&self, text: &str, env: &BTreeMap<String, String>) -> Result<Map<String, Value>, ConfigError> {
        let mut root = json::parse(self.file, text)?;
        let missing = environment::fill(&mut root, env);
        if !missing.is_empty() {
            let problems = missing.into_iter().map(|missing| {
                let what = format!("needs the environment variable {}, which is not set", missing.name);
                self.problem(missing.place, what)
            });
            return Err(ConfigError::Invalid(problems.collect()));
        }
        if let Value::Object(object) = root {
            return Ok(object);
        }
        let what = format!("the top level must be an object, found {}", check::found(&root));
        Err(ConfigError::Invalid(vec![self.problem(Place::default(), what)]))
    }
}

/// The layers so far, and who set what last.
#[derive(Default)]
struct Layers {
    tree: Value,
    origins: BTreeMap<Vec<String>, Origin>,
    problems: Vec<Problem>,
    warnings: Vec<Warning>,
}

impl Layers {
    fn lay(&mut self, leaf: Leaf, origin: Origin) {
        self.origins.insert(leaf.steps.clone(), origin);
        check::lay(&mut self.tree, leaf);
    }

    fn lay_variables(&mut self, overlay: environment::Overlay) {
        self.problems.extend(overlay.problems);
        self.warnings.extend(overlay.warnings);
        for (variable, leaf) in overlay.settings {
            self.lay(leaf, Origin::Variable(variable));
        }
    }

    fn finish(mut self, source: &Source<'_>) -> Result<Assembled, ConfigError> {
        if !self.problems.is_empty() {
            return Err(ConfigError::Invalid(self.problems));
        }
        if self.tree.is_null() {
            self.tree = Value::Object(Map::new());
        }
        // The key table and the structs are one list, so this fails only when a range and a type disagree.
        let config: Config = serde_path_to_error::deserialize(self.tree).map_err(|bad| {
            let what = "has a value that does not fit".to_string();
            ConfigError::Invalid(vec![Problem { origin: source.whole(), path: bad.path().to_string(), what }])
        })?;
        let broken = rules::broken(&config);
        if !broken.is_empty() {
            let problem = |rule: rules::Broken| {
                let place = rule.place();
                let origin = self.origins.get(&place.steps).cloned().unwrap_or_else(|| source.whole());
                Problem { origin, path: place.shown, what: rule.what }
            };
            return Err(ConfigError::Invalid(broken.into_iter().map(problem).collect()));
        }
        self.warnings.extend(rules::doubtful(&config));
        Ok(Assembled { config, warnings: self.warnings })
    }
}
