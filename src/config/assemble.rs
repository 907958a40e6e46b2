//! Puts the layers together: file, environment, defaults. Pure.

use std::collections::BTreeMap;
use std::path::Path;

use serde_json::{Map, Value};

use super::check::{self, Leaf, Place};
use super::environment::{self, OVER, UNDER};
use super::error::{Origin, Problem, Warning};
use super::found::kind_of;
use super::json;
use super::position;
use super::presets::{self, PresetChoice, choose_presets};
use super::providers::{ProviderChoice, choose_provider};
use super::rules;
use super::schema::Config;

/// The settings and what to say about them.
#[derive(Debug)]
pub struct Assembled {
    /// The settings; what cannot be used has its default.
    pub config: Config,
    /// Who answers, where the settings say so.
    pub provider: ProviderChoice,
    /// What of `modelPresets` it can serve.
    pub presets: BTreeMap<String, PresetChoice>,
    /// What cannot be used.
    pub problems: Vec<Problem>,
    /// What the user should hear about.
    pub warnings: Vec<Warning>,
    /// Whether the file, if there is one, is a configuration at all.
    pub readable: bool,
    /// Who set `agents.defaults.workspace`.
    pub workspace: Origin,
}

/// The key of the workspace.
const WORKSPACE: [&str; 3] = ["agents", "defaults", "workspace"];
/// The key of the provider.
const PROVIDER: [&str; 3] = ["agents", "defaults", "provider"];

/// From the text of `file` (`None`: there is no file) and the environment to checked settings.
pub fn assemble(file: &Path, text: Option<&str>, env: &BTreeMap<String, String>) -> Assembled {
    let source = Source { file, text };
    let mut layers = Layers::default();
    layers.lay_variables(environment::overlay(UNDER, env));
    let mut readable = true;
    if let Some(text) = text {
        match source.parse(text) {
            Ok(object) => layers.lay_file(&source, object, env),
            Err(problem) => {
                readable = false;
                layers.problems.push(problem);
            }
        }
    }
    layers.lay_variables(environment::overlay(OVER, env));
    layers.finish(&source, env, readable)
}

/// The file, for messages.
struct Source<'a> {
    file: &'a Path,
    text: Option<&'a str>,
}

impl Source<'_> {
    fn origin(&self, steps: &[String]) -> Origin {
        Origin::File { file: self.file.into(), at: self.text.and_then(|text| position::find(text, steps)) }
    }

    fn problem(&self, place: Place, what: String) -> Problem {
        Problem { origin: self.origin(&place.steps), path: place.shown, what }
    }

    /// The file as an object.
    fn parse(&self, text: &str) -> Result<Map<String, Value>, Problem> {
        match json::parse(self.file, text)? {
            Value::Object(object) => Ok(object),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                let what = format!("the top level must be an object, found {}", kind_of(&other));
                Err(self.problem(Place::default(), what))
            }
        }
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

    fn lay_file(&mut self, source: &Source<'_>, object: Map<String, Value>, env: &BTreeMap<String, String>) {
        let mut root = Value::Object(object);
        let environment::Filled { places, missing, unclosed } = environment::fill(&mut root, env);
        let Value::Object(object) = root else { return };
        let checked = check::file(&object, places);
        let null_at = missing.iter().map(|missing| &missing.place).chain(&unclosed);
        let null_at: Vec<_> = null_at.map(Place::canonical).collect();
        self.problems.extend(missing.into_iter().map(|missing| {
            let what = format!("needs the environment variable {}, which is not set", missing.name);
            source.problem(missing.place, what)
        }));
        // Not even the name is shown: it may be a piece of a key.
        let what = "has a `${` with a name behind it, but no `}`: the value of a variable is written ${NAME}";
        self.problems.extend(unclosed.into_iter().map(|place| source.problem(place, what.to_owned())));
        // What is wrong only because something is missing in it was told.
        let own = |place: &Place| !null_at.iter().any(|null| null.starts_with(&place.canonical()));
        let problems = checked.problems.into_iter().filter(|(place, _)| own(place));
        self.problems.extend(problems.map(|(place, what)| source.problem(place, what)));
        self.warnings.extend(checked.unknown.into_iter().map(|(place, nearest)| Warning::Unknown {
            origin: source.origin(&place.steps),
            path: place.shown,
            nearest,
        }));
        self.warnings.extend(checked.unused.into_iter().map(|(section, unused)| Warning::Unused {
            origin: source.origin(&unused.first.steps),
            section,
            keys: unused.keys,
        }));
        for leaf in checked.leaves {
            let origin = source.origin(&leaf.steps);
            self.lay(leaf, origin);
        }
    }

    /// Who is to blame: whoever set the key, else whoever set the other one, else the section of the file.
    fn origin(&self, source: &Source<'_>, path: &[String], or: Option<&[&str]>) -> Origin {
        let or: Option<Vec<String>> = or.map(|or| or.iter().map(ToString::to_string).collect());
        let set = self.origins.get(path).or_else(|| self.origins.get(&or?));
        set.cloned().unwrap_or_else(|| source.origin(path))
    }

    fn finish(mut self, source: &Source<'_>, env: &BTreeMap<String, String>, readable: bool) -> Assembled {
        if self.tree.is_null() {
            self.tree = Value::Object(Map::new());
        }
        let tree = std::mem::take(&mut self.tree);
        // The key table and the structs are one list, so this fails only when a range and a type disagree.
        let config: Config = serde_path_to_error::deserialize(tree).unwrap_or_else(|bad| {
            let path = bad.path().to_string();
            let steps: Vec<String> = path.split('.').map(str::to_owned).collect();
            let origin = self.origin(source, &steps, None);
            self.problems.push(Problem { origin, path, what: "has a value that does not fit".into() });
            Config::default()
        });
        self.add_broken(source, &config);
        for doubt in rules::doubtful(&config) {
            let place = doubt.place();
            let origin = self.origin(source, &place.steps, doubt.or);
            self.warnings.push(Warning::Doubtful { origin, path: place.shown, what: doubt.what });
        }
        let used = presets::with_default(&config);
        let provider = choose_provider(&used, env).unwrap_or_else(|error| {
            let place = error.place();
            let by_preset = presets::default_provider(&config).filter(|_| place.is(&PROVIDER));
            let place = by_preset.unwrap_or(place);
            let origin = self.origin(source, &place.steps, Some(&PROVIDER));
            self.add_unless_follows(Problem { origin, path: place.shown, what: error.to_string() });
            ProviderChoice::Offline { why: "the configured provider cannot be used".into() }
        });
        let workspace = self.origin(source, &WORKSPACE.map(str::to_owned), None);
        let presets = choose_presets(&config, env, &provider);
        for name in presets.iter().filter(|(_, preset)| preset.elsewhere.is_some()).map(|(name, _)| name) {
            let place = Place::default().child("model_presets", "modelPresets").child(name, name);
            let origin = self.origin(source, &place.steps, None);
            let what = "needs another provider than the configured one, so it cannot be selected".into();
            self.warnings.push(Warning::Doubtful { origin, path: place.shown, what });
        }
        Assembled {
            config: used,
            provider,
            presets,
            problems: self.problems,
            warnings: self.warnings,
            readable,
            workspace,
        }
    }

    fn add_broken(&mut self, source: &Source<'_>, config: &Config) {
        for rule in rules::broken(config) {
            let place = rule.place();
            let origin = self.origin(source, &place.steps, rule.or);
            self.add_unless_follows(Problem { origin, path: place.shown, what: rule.what });
        }
    }

    /// A rule that speaks of a key which cannot be used may be broken by that alone, which was told.
    fn add_unless_follows(&mut self, problem: Problem) {
        let follows =
            |earlier: &Problem| problem.path.starts_with(&earlier.path) || problem.what.contains(&earlier.path);
        if !self.problems.iter().any(|earlier| !earlier.path.is_empty() && follows(earlier)) {
            self.problems.push(problem);
        }
    }
}
