//! Settings from environment variables: `${NAME}` inside the file, and `PREFIX_SECTION__KEY` beside it. Pure.

use std::collections::BTreeMap;

use serde_json::Value;

use super::check::{Checked, Place, coerce};
use super::error::{Origin, Problem, Warning};
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

/// Replaces `${NAME}` in every text below `value`.
pub fn fill(value: &mut Value, env: &BTreeMap<String, String>) -> Vec<Missing> {
    let mut missing = Vec::new();
    fill_at(value, env, &Place::default(), &mut missing);
    missing
}

fn fill_at(value: &mut Value, env: &BTreeMap<String, String>, place: &Place, missing: &mut Vec<Missing>) {
    match value {
        Value::String(text) => {
            if let Some(filled) = fill_text(text, env, place, missing) {
                *text = filled;
            }
        }
        Value::Array(items) => {
            for (index, item) in items.iter_mut().enumerate() {
                fill_at(item, env, &place.item(index), missing);
            }
        }
        Value::Object(object) => {
            for (name, inner) in object.iter_mut() {
                fill_at(inner, env, &place.child(name, name), missing);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

fn fill_text(text: &str, env: &BTreeMap<String, String>, place: &Place, missing: &mut Vec<Missing>) -> Option<String> {
    let mut parts = text.split("${");
    let mut out = parts.next()?.to_string();
    for part in parts {
        match part.split_once('}').filter(|(name, _)| is_name(name)) {
            Some((name, rest)) => {
                match env.get(name) {
                    Some(value) => out.push_str(value),
                    None => missing.push(Missing { place: place.clone(), name: name.into() }),
                }
                out.push_str(rest);
            }
            None => {
                out.push_str("${");
                out.push_str(part);
            }
        }
    }
    Some(out)
}

fn is_name(name: &str) -> bool {
    name.starts_with(|first: char| first.is_ascii_alphabetic() || first == '_')
        && name.chars().all(|letter| letter.is_ascii_alphanumeric() || letter == '_')
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
        self.warnings.extend(unused.map(|(section, keys)| Warning::Unused { origin: origin(), section, keys }));
    }
}

/// The value as JSON when it is JSON of the right kind, else as text.
fn parse(raw: &str, kind: Kind) -> Value {
    match serde_json::from_str::<Value>(raw) {
        Ok(Value::Null) | Err(_) => Value::String(raw.into()),
        Ok(Value::Object(object)) => {
            let takes_objects = kind.section().is_some() || matches!(kind, Kind::TextMap | Kind::FreeObject);
            if takes_objects { Value::Object(object) } else { Value::String(raw.into()) }
        }
        Ok(value) => {
            if coerce(kind, &value).is_ok() {
                value
            } else {
                Value::String(raw.into())
            }
        }
    }
}
