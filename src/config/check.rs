//! Checks a JSON value against the key table: names, types and ranges, all findings in one pass.
//! What comes out is a flat list of settings with canonical paths, so that layers can be laid over each other.

use std::collections::{BTreeMap, BTreeSet};

use domain::policy::Pattern;
use serde_json::{Map, Value};

use super::found::{Texts, bare, found, kind_of};
use super::key::{Kind, Section, camel, canonical, nearest};
use super::schema::Config;

/// A place in the configuration.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Place {
    /// Canonical names from the top; unknown and free names as they are written.
    pub steps: Vec<String>,
    /// As people are shown it: `api.port`.
    pub shown: String,
}

impl Place {
    /// One level down.
    pub fn child(&self, step: &str, shown: &str) -> Self {
        let mut steps = self.steps.clone();
        steps.push(step.into());
        let dot = if self.shown.is_empty() { "" } else { "." };
        Self { steps, shown: format!("{}{dot}{}", self.shown, printable(shown)) }
    }

    /// The item of a list.
    pub fn item(&self, index: usize) -> Self {
        let mut steps = self.steps.clone();
        steps.push(index.to_string());
        Self { steps, shown: format!("{}[{index}]", self.shown) }
    }

    /// The steps, each in its canonical spelling.
    pub fn canonical(&self) -> Vec<String> {
        self.steps.iter().map(|step| canonical(step)).collect()
    }

    /// Whether it is the key of this canonical path.
    pub fn is(&self, steps: &[&str]) -> bool {
        self.steps.iter().map(String::as_str).eq(steps.iter().copied())
    }
}

/// Longest name that is repeated in a message; somebody may have pasted a key in place of a name.
const NAME_CHARS_MAX: usize = 48;

/// The name, unless it may be something else than one.
pub fn printable(name: &str) -> &str {
    let plain = |letter: char| letter.is_alphanumeric() || "-_.:@/".contains(letter);
    if name.chars().count() <= NAME_CHARS_MAX && name.chars().all(plain) { name } else { "…" }
}

/// One setting; no value means only that the entry is there.
#[derive(Debug, Clone, PartialEq)]
pub struct Leaf {
    /// Canonical path.
    pub steps: Vec<String>,
    /// The value in its proper type.
    pub value: Option<Value>,
}

/// What a pass found.
#[derive(Debug, Default)]
pub struct Checked {
    /// Settings, later ones over earlier ones.
    pub leaves: Vec<Leaf>,
    /// What cannot be used, and why.
    pub problems: Vec<(Place, String)>,
    /// Unknown keys, each with the key that was probably meant.
    pub unknown: Vec<(Place, Option<String>)>,
    /// Legal keys without effect, by section.
    pub unused: BTreeMap<String, Unused>,
    texts: Texts,
    filled: BTreeSet<Vec<String>>,
}

/// Legal keys without effect.
#[derive(Debug)]
pub struct Unused {
    /// Where the first one is.
    pub first: Place,
    /// Their names, in camelCase.
    pub keys: Vec<String>,
}

/// A key that older files hold in another place, or by another name.
struct Moved {
    from: &'static [&'static str],
    to: &'static [&'static str],
    kind: Kind,
}

const MOVED: &[Moved] = &[
    Moved {
        from: &["tools", "exec", "restrict_to_workspace"],
        to: &["tools", "restrict_to_workspace"],
        kind: Kind::Flag,
    },
    Moved {
        from: &["agents", "defaults", "session_ttl_minutes"],
        to: &["agents", "defaults", "idle_compact_after_minutes"],
        kind: Kind::Whole(0, 525_600),
    },
    Moved {
        from: &["agents", "defaults", "dream", "model"],
        to: &["agents", "defaults", "dream", "model_override"],
        kind: Kind::OptionalText,
    },
];

/// Checks a whole file. Texts at the places `filled` came from the environment, which is never repeated.
pub fn file(root: &Map<String, Value>, filled: BTreeSet<Vec<String>>) -> Checked {
    let mut checked = Checked { filled, texts: Texts::Shown, ..Checked::default() };
    checked.section(root, Config::SECTION, &Place::default());
    checked
}

impl Checked {
    fn texts_at(&self, place: &Place) -> Texts {
        if self.filled.contains(&place.canonical()) { Texts::Hidden } else { self.texts }
    }

    /// Checks one value at `place`.
    pub fn value(&mut self, value: &Value, kind: Kind, place: &Place) {
        match (kind, value) {
            (_, Value::Null) => {}
            (Kind::Section(section), Value::Object(object)) => self.section(object, section, place),
            (Kind::Named(section), Value::Object(object)) => self.named(object, section, place),
            (Kind::Sections(section), Value::Array(items)) => self.sections(items, section, place),
            (kind, value) => match coerce(kind, value, self.texts_at(place)) {
                Ok(value) => self.leaves.push(Leaf { steps: place.steps.clone(), value: Some(value) }),
                Err(what) => self.problems.push((place.clone(), what)),
            },
        }
    }

    fn section(&mut self, object: &Map<String, Value>, section: &Section, place: &Place) {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for (written, value) in object {
            let name = canonical(written);
            let known = section.key(&name);
            let here = match known {
                Some(key) => place.child(key.name, &camel(key.name)),
                None => place.child(written, written),
            };
            if let Some(earlier) = seen.insert(name.clone(), written) {
                self.twice(here, earlier, written);
                continue;
            }
            if let Some(key) = known {
                self.value(value, key.kind, &here);
            } else if let Some(moved) = MOVED.iter().find(|moved| place.child(&name, &name).is(moved.from)) {
                self.moved(value, moved, &here);
            } else if section.unused.contains(&name.as_str()) {
                let unused = self.unused.entry(place.shown.clone());
                unused.or_insert_with(|| Unused { first: here, keys: Vec::new() }).keys.push(camel(&name));
            } else {
                self.unknown.push((here, nearest(section, written)));
            }
        }
    }

    fn named(&mut self, object: &Map<String, Value>, section: &'static Section, place: &Place) {
        let mut seen: BTreeMap<String, &str> = BTreeMap::new();
        for (written, value) in object {
            let name = canonical(written);
            let here = place.child(&name, written);
            if let Some(earlier) = seen.insert(name, written) {
                self.twice(here, earlier, written);
            } else if !value.is_null() {
                self.leaves.push(Leaf { steps: here.steps.clone(), value: None });
                self.value(value, Kind::Section(section), &here);
            }
        }
    }

    /// A list is one setting: a layer above replaces it as a whole.
    fn sections(&mut self, items: &[Value], section: &'static Section, place: &Place) {
        let mut list = Vec::with_capacity(items.len());
        for (index, item) in items.iter().enumerate() {
            let here = place.item(index);
            let Value::Object(object) = item else {
                self.problems.push((here, format!("must be an object, found {}", kind_of(item))));
                continue;
            };
            let outer = std::mem::take(&mut self.leaves);
            self.section(object, section, &here);
            let mut tree = Value::Object(Map::new());
            for leaf in std::mem::replace(&mut self.leaves, outer) {
                let steps = leaf.steps.into_iter().skip(here.steps.len()).collect();
                lay(&mut tree, Leaf { steps, value: leaf.value });
            }
            list.push(tree);
        }
        self.leaves.push(Leaf { steps: place.steps.clone(), value: Some(Value::Array(list)) });
    }

    fn twice(&mut self, place: Place, earlier: &str, later: &str) {
        let (earlier, later) = (printable(earlier), printable(later));
        self.problems.push((place, format!("is given twice, as {earlier} and as {later}; keep one of them")));
    }

    /// The new place wins when both are given, so the moved value goes below everything else.
    fn moved(&mut self, value: &Value, moved: &Moved, here: &Place) {
        match coerce(moved.kind, value, self.texts_at(here)) {
            Ok(value) => {
                let steps = moved.to.iter().map(ToString::to_string).collect();
                self.leaves.insert(0, Leaf { steps, value: Some(value) });
            }
            Err(what) => self.problems.push((here.clone(), what)),
        }
    }
}

/// The value in its proper type, or what was expected. A number or flag may stand in quotes, as `"${PORT}"` does.
pub fn coerce(kind: Kind, value: &Value, texts: Texts) -> Result<Value, String> {
    let wrong = |expected: &str| Err(format!("must be {expected}, found {}", found(value, texts)));
    // What stands in place of a key, or of a whole section, may be a key.
    let wrong_kind = |expected: &str| Err(format!("must be {expected}, found {}", kind_of(value)));
    match (kind, value) {
        (Kind::Flag, Value::Bool(_)) => Ok(value.clone()),
        (Kind::Flag, Value::String(text)) if matches!(text.trim(), "true" | "false") => {
            Ok(Value::Bool(text.trim() == "true"))
        }
        (Kind::Flag, _) => wrong("true or false"),
        (Kind::Whole(low, high), _) => match whole(value) {
            Some(number) if (low..=high).contains(&number) => Ok(number.into()),
            Some(_) | None => wrong(&format!("a whole number from {low} to {high}")),
        },
        (Kind::Number(low, high), _) => match number(value) {
            Some(number) if (low..=high).contains(&number) => Ok(number.into()),
            Some(_) | None => wrong(&format!("a number from {low} to {high}")),
        },
        (Kind::Text, Value::String(text)) if text.trim().is_empty() => Err("must not be empty".into()),
        (Kind::OptionalText | Kind::Secret, Value::String(text)) if text.trim().is_empty() => Ok(Value::Null),
        (Kind::Text | Kind::OptionalText | Kind::Secret, Value::String(_)) => Ok(value.clone()),
        (Kind::Text | Kind::OptionalText, _) => wrong("text"),
        (Kind::Secret, _) => wrong_kind("text"),
        (Kind::Choice(words), Value::String(text)) if words.contains(&text.as_str()) => Ok(value.clone()),
        (Kind::Choice(words), _) => {
            let words: Vec<_> = words.iter().copied().filter(|word| !word.is_empty()).collect();
            wrong(&format!("one of {}", words.join(", ")))
        }
        (Kind::TextList, Value::String(_)) => Ok(Value::Array(vec![value.clone()])),
        (Kind::TextList, Value::Array(items)) => match items.iter().position(|item| !item.is_string()) {
            Some(at) => Err(format!("must be a list of texts; item {} is {}", at + 1, bare(&items[at]))),
            None => Ok(value.clone()),
        },
        (Kind::TextList, _) => wrong("a list of texts"),
        (Kind::ToolPatterns, _) => patterns(coerce(Kind::TextList, value, texts)?),
        (Kind::TextLists, Value::Object(object)) => {
            let lists = object.iter().map(|(name, inner)| {
                let list = coerce(Kind::TextList, inner, texts);
                Ok((name.clone(), list.map_err(|what| format!("{}: {what}", printable(name)))?))
            });
            Ok(Value::Object(lists.collect::<Result<_, String>>()?))
        }
        (Kind::TextLists, _) => wrong_kind("an object whose values are all lists of texts"),
        (Kind::Sections(_), _) => wrong_kind("a list of objects"),
        (Kind::TextMap, Value::Object(object)) => match object.iter().find(|(_, inner)| !inner.is_string()) {
            Some((name, inner)) => {
                let name = printable(name);
                Err(format!("must be an object whose values are all texts; {name} is {}", kind_of(inner)))
            }
            None => Ok(value.clone()),
        },
        (Kind::TextMap, _) => wrong_kind("an object whose values are all texts"),
        (Kind::FreeObject, Value::Object(_)) => Ok(value.clone()),
        (Kind::FreeObject | Kind::Section(_) | Kind::Named(_), _) => wrong_kind("an object"),
    }
}

/// A list of texts that all name tools.
fn patterns(list: Value) -> Result<Value, String> {
    let texts = list.as_array().into_iter().flatten().filter_map(Value::as_str);
    for (at, text) in texts.enumerate() {
        Pattern::parse(text).map_err(|what| format!("item {} {what}", at + 1))?;
    }
    Ok(list)
}

fn whole(value: &Value) -> Option<u64> {
    match value {
        Value::String(text) => text.trim().parse().ok(),
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64()?;
            // 2^53: beyond it a float no longer names one whole number.
            ((0.0..=9_007_199_254_740_992.0).contains(&float) && float.fract() == 0.0).then_some(float as u64)
        }),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn number(value: &Value) -> Option<f64> {
    match value {
        Value::String(text) => text.trim().parse().ok().filter(|number: &f64| number.is_finite()),
        Value::Number(number) => number.as_f64(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

/// Lays one setting into the tree, over whatever is there.
pub fn lay(root: &mut Value, leaf: Leaf) {
    let mut at = root;
    for step in leaf.steps {
        if !at.is_object() {
            *at = Value::Object(Map::new());
        }
        let Value::Object(object) = at else { return };
        at = object.entry(step).or_insert(Value::Null);
    }
    match leaf.value {
        Some(value) => *at = value,
        None if at.is_null() => *at = Value::Object(Map::new()),
        None => {}
    }
}
