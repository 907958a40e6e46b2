//! Settings from environment variables: `${NAME}` inside the file, and `PREFIX_SECTION__KEY` beside it. Pure.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use super::check::{Checked, Place, coerce};
use super::error::{Origin, Problem, Warning};
use super::found::Texts;
use super::key::{Kind, camel, nearest};
use super::schema::Config;

/// Variables over the file.
pub const OVER: &str = "GREENROOM_";
/// Variables where the file is silent.
pub const UNDER: &str = "NANOBOT_";
/// Variables with our prefix that are no settings of the file; the last marks the processes of a tool call.
const NOT_SETTINGS: &[&str] = &["HOME", "CONFIG", "WORKSPACE", "LOG", "CALL"];

/// A `${NAME}` whose variable is not set.
#[derive(Debug, PartialEq, Eq)]
pub struct Missing {
    /// Where.
    pub place: Place,
    /// The variable.
    pub name: String,
}

/// What [`fill`] did.
#[derive(Debug, Default)]
pub struct Filled {
    /// Where something was filled in: canonical places.
    pub places: BTreeSet<Vec<String>>,
    /// What could not be. Such a text becomes null, so that the setting counts as not given.
    pub missing: Vec<Missing>,
    /// Texts with a `${NAME` that nothing closes: what was meant was to be filled in, so it is no value. They become null, too.
    pub unclosed: Vec<Place>,
}

/// Replaces `${NAME}` in every text below `value`.
pub fn fill(value: &mut Value, env: &BTreeMap<String, String>) -> Filled {
    let mut filled = Filled::default();
    filled.fill(value, env, &Place::default());
    filled
}

impl Filled {
    fn fill(&mut self, value: &mut Value, env: &BTreeMap<String, String>, place: &Place) {
        match value {
            Value::String(text) => {
                if is_unclosed(text) {
                    self.places.insert(place.canonical());
                    self.unclosed.push(place.clone());
                    *value = Value::Null;
                    return;
                }
                let Some(names) = names(text) else { return };
                self.places.insert(place.canonical());
                let missing = names.filter(|name| !env.contains_key(*name));
                let missing: Vec<_> =
                    missing.map(|name| Missing { place: place.clone(), name: name.to_owned() }).collect();
                *value = if missing.is_empty() { Value::String(fill_text(text, env)) } else { Value::Null };
                self.missing.extend(missing);
            }
            Value::Array(items) => {
                for (index, item) in items.iter_mut().enumerate() {
                    self.fill(item, env, &place.item(index));
                }
            }
            Value::Object(object) => {
                for (name, inner) in object.iter_mut() {
                    self.fill(inner, env, &place.child(name, name));
                }
            }
            Value::Null | Value::Bool(_) | Value::Number(_) => {}
        }
    }
}

/// Whether a name begins behind a `${`, and no `}` follows.
fn is_unclosed(text: &str) -> bool {
    text.split("${").skip(1).any(|part| !part.contains('}') && part.starts_with(begins_name))
}

/// One piece of a text after a `${`: the name and what follows it, unless that is no name.
fn named(part: &str) -> Option<(&str, &str)> {
    part.split_once('}').filter(|(name, _)| is_name(name))
}

/// The names in a text; `None` when there is none.
fn names(text: &str) -> Option<impl Iterator<Item = &str>> {
    let mut names = text.split("${").skip(1).filter_map(|part| named(part).map(|(name, _)| name)).peekable();
    names.peek()?;
    Some(names)
}

fn fill_text(text: &str, env: &BTreeMap<String, String>) -> String {
    let mut parts = text.split("${");
    let mut out = parts.next().unwrap_or_default().to_string();
    for part in parts {
        match named(part) {
            Some((name, rest)) => {
                out.push_str(env.get(name).map(String::as_str).unwrap_or_default());
                out.push_str(rest);
            }
            None => {
                out.push_str("${");
                out.push_str(part);
            }
        }
    }
    out
}

fn begins_name(letter: char) -> bool {
    letter.is_ascii_alphabetic() || letter == '_'
}

fn is_name(name: &str) -> bool {
    name.starts_with(begins_name) && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
}

/// What the variables with one prefix say.
#[derive(Debug, Default)]
pub struct Overlay {
    /// Settings, each with the variable that it came from.
    pub settings: Vec<(String, super::check::Leaf)>,
    /// Values that cannot be used.
    pub problems: Vec<Problem>,
    /// Variables that name nothing.
    pub warnings: Vec<Warning>,
}

/// Reads all variables that start with `prefix`.
pub fn overlay(prefix: &str, env: &BTreeMap<String, String>) -> Overlay {
    let mut overlay = Overlay::default();
    for (variable, raw) in env {
        let Some(rest) = variable.strip_prefix(prefix).filter(|rest| !NOT_SETTINGS.contains(rest)) else { continue };
        match resolve(rest) {
            Target::Setting(place, kind) => overlay.read(variable, raw, kind, &place),
            Target::Unused(section, key) if prefix == OVER => overlay.warnings.push(Warning::Unused {
                origin: Origin::Variable(variable.clone()),
                section,
                keys: vec![key],
            }),
            Target::Unknown(path, nearest) if prefix == OVER => {
                overlay.warnings.push(Warning::Unknown { origin: Origin::Variable(variable.clone()), path, nearest })
            }
            // Other programs' variables may share the foreign prefix.
            Target::Unused(..) | Target::Unknown(..) => {}
        }
    }
    overlay
}

enum Target {
    Setting(Place, Kind),
    Unused(String, String),
    Unknown(String, Option<String>),
}

/// From `API__API_KEY` to its key. Letter case and single underscores do not count.
fn resolve(rest: &str) -> Target {
    let mut place = Place::default();
    let mut kind = Kind::Section(Config::SECTION);
    for part in rest.split("__") {
        let part = part.to_ascii_lowercase();
        let same = |name: &str| name.replace('_', "") == part.replace('_', "");
        let Some(section) = kind.section() else {
            return Target::Unknown(place.child(&part, &camel(&part)).shown, None);
        };
        if matches!(kind, Kind::Named(_)) {
            place = place.child(&part, &camel(&part));
            kind = Kind::Section(section);
        } else if let Some(key) = section.keys.iter().find(|key| same(key.name)) {
            place = place.child(key.name, &camel(key.name));
            kind = key.kind;
        } else if let Some(name) = section.unused.iter().find(|name| same(name)) {
            return Target::Unused(place.shown, camel(name));
        } else {
            return Target::Unknown(place.child(&part, &camel(&part)).shown, nearest(section, &part));
        }
    }
    Target::Setting(place, kind)
}

impl Overlay {
    fn read(&mut self, variable: &str, raw: &str, kind: Kind, place: &Place) {
        let origin = || Origin::Variable(variable.into());
        let value = parse(raw, kind);
        let clears = matches!(kind, Kind::OptionalText | Kind::Secret);
        if raw.trim().is_empty() && !clears {
            return;
        }
        let mut checked = Checked::default();
        checked.value(&value, kind, place);
        self.settings.extend(checked.leaves.into_iter().map(|leaf| (variable.to_string(), leaf)));
        self.problems.extend(checked.problems.into_iter().map(|(place, what)| Problem {
            origin: origin(),
            path: place.shown,
            what,
        }));
        let unknown = checked.unknown.into_iter();
        self.warnings.extend(unknown.map(|(place, nearest)| Warning::Unknown {
            origin: origin(),
            path: place.shown,
            nearest,
        }));
        let unused = checked.unused.into_iter();
        self.warnings.extend(unused.map(|(section, unused)| Warning::Unused {
            origin: origin(),
            section,
            keys: unused.keys,
        }));
    }
}

/// The value as JSON when it is JSON of the right kind, else as text.
fn parse(raw: &str, kind: Kind) -> Value {
    match serde_json::from_str::<Value>(raw) {
        Ok(Value::Null) | Err(_) => Value::String(raw.into()),
        Ok(Value::Object(object)) => {
            let takes_objects =
                kind.section().is_some() || matches!(kind, Kind::TextMap | Kind::TextLists | Kind::FreeObject);
            if takes_objects { Value::Object(object) } else { Value::String(raw.into()) }
        }
        Ok(value) => {
            if coerce(kind, &value, Texts::Hidden).is_ok() {
                value
            } else {
                Value::String(raw.into())
            }
        }
    }
}
