//! New files made of old ones: a fork has all that its source has; an extract has one branch of it.
//!
//! Both are plans: which pieces of the source go into the new file, in which order, and what changes in them. Entries
//! keep their ids and, but for their links, their bytes; old forms are written as the present one. The source is not
//! touched, so what could not be read of it is still there.

use std::collections::HashMap;
use std::ops::Range;
use std::sync::Arc;

use serde_json::Value;

use super::object::Object;
use super::pen::{EditError, NewIds, unused};
use super::read::value;
use super::write::label_line;
use super::{Head, Kind, Position, TreeIndex};

/// The `customType` of the entry that ends what a fork was copied from: `data` names the session, and the last entry if
/// it was one branch. Message ids before it belong to that session.
pub const FORKED: &str = "greenroom.fork";

/// One line of a new file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// A piece of the source.
    Copy {
        /// Where it lies there.
        place: Range<u64>,
        /// The id of the record there; empty if it has none.
        id: Arc<str>,
        /// What changes in it.
        change: Change,
    },
    /// A new line, without its end.
    Line(String),
}

/// What changes in a record that is copied. The default is nothing.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Change {
    /// It gets an id and a parent.
    links: Links,
    /// A compaction or a reset keeps from this entry on.
    first_kept: Option<Arc<str>>,
    /// It belongs to the conversation now.
    unside: bool,
    /// Its form is older than version 3.
    migrate: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Default)]
enum Links {
    #[default]
    Stay,
    /// The parent is `None` for a root.
    Become(Option<Arc<str>>),
    /// Unless it has an id: in version 1 there is none.
    Lack(Option<Arc<str>>),
}

/// All lines of a fork but its header: everything that `tree` has. `version` is that of the source's header.
pub fn fork(tree: &TreeIndex, version: u64) -> Result<Vec<Step>, EditError> {
    if tree.is_empty() {
        return Err(EditError::Empty);
    }
    let copy = |at| {
        let mut change = Change { migrate: version < 3, ..Change::default() };
        if version < 2 && !tree.id(at).is_empty() {
            change.links = Links::Lack(tree.raw_parent(at).map(Arc::from));
            change.first_kept = tree.kept_id(at).map(Arc::from);
        }
        Step::Copy { place: tree.place(at), id: tree.id(at).into(), change }
    };
    Ok(tree.positions().map(copy).collect())
}

/// All lines but the header of a file that has only the branch which ends in `leaf`. Unknown records stay where the
/// branch runs through them. Labels are left out and written again at the end: those of entries that are there, with
/// the times that they had.
pub fn extract(tree: &TreeIndex, leaf: &str, version: u64, ids: NewIds<'_>) -> Result<Vec<Step>, EditError> {
    let end = tree.node_of(leaf).ok_or(EditError::UnknownEntry)?;
    let path = tree.path_to(end);
    let stays = |at: &&Position| tree.kind(**at) != Kind::Label;
    // Of a label that is left out, the entry behind it takes the place where something is kept from.
    let mut instead: HashMap<Position, Position> = HashMap::new();
    let mut behind = None;
    for at in path.iter().rev() {
        behind = if stays(&at) { Some(*at) } else { behind };
        instead.extend(behind.map(|behind| (*at, behind)));
    }
    let mut steps = Vec::new();
    let mut last: Option<Arc<str>> = None;
    for at in path.iter().filter(stays) {
        for at in unknown_before(tree, *at).into_iter().chain([*at]) {
            let kept = tree.kind(at).is_boundary().then(|| tree.first_kept(at)).flatten();
            let kept = kept.and_then(|kept| instead.get(&kept).copied());
            let id: Arc<str> = tree.id(at).into();
            let change = Change {
                links: Links::Become(last.replace(Arc::clone(&id))),
                first_kept: kept.map(|kept| tree.id(kept).into()),
                unside: tree.is_side(at),
                migrate: version < 3,
            };
            steps.push(Step::Copy { place: tree.place(at), id, change });
        }
    }
    for (target, label) in tree.labels() {
        if instead.get(&target) == Some(&target) {
            let id = unused(tree, ids);
            let head = Head { parent: last.replace(Arc::clone(&id)), id, timestamp_ms: label.timestamp_ms };
            steps.push(Step::Line(label_line(&head, tree.id(target), Some(&label.text))));
        }
    }
    if steps.is_empty() { Err(EditError::Empty) } else { Ok(steps) }
}

/// The unknown records between `at` and the node that it follows.
fn unknown_before(tree: &TreeIndex, at: Position) -> Vec<Position> {
    let mut between = Vec::new();
    let mut next = tree.raw_parent(at).and_then(|parent| tree.position(parent));
    while let Some(at) = next.filter(|at| tree.kind(*at) == Kind::Opaque && !between.contains(at)) {
        between.push(at);
        next = tree.raw_parent(at).and_then(|parent| tree.position(parent));
    }
    between.reverse();
    between
}

// === impl Step ===

impl Step {
    /// The line, without its end; `read` gives a piece of the source. `None` if there is no such record any more.
    pub fn line<E>(&self, read: impl FnOnce(&Range<u64>) -> Result<Vec<u8>, E>) -> Result<Option<String>, E> {
        match self {
            Self::Line(line) => Ok(Some(line.clone())),
            Self::Copy { place, id, change } => Ok(changed(&read(place)?, id, change)),
        }
    }
}

fn changed(bytes: &[u8], id: &str, change: &Change) -> Option<String> {
    let value = value(bytes)?;
    if *change == Change::default() {
        return Some(value.get().replace(['\n', '\r'], " "));
    }
    let Ok(mut object) = serde_json::from_str::<Object<'_>>(value.get()) else {
        return Some(value.get().to_owned());
    };
    match &change.links {
        Links::Become(parent) => {
            object.set("id", &id);
            object.set("parentId", parent);
        }
        Links::Lack(parent) if object.get("id").is_none_or(|id| id.get() == "null") => {
            object.set("id", &id);
            object.set("parentId", parent);
        }
        Links::Lack(_) | Links::Stay => {}
    }
    if let Some(kept) = &change.first_kept {
        object.set("firstKeptEntryId", kept);
    }
    if change.unside {
        object.remove("appendMode");
    }
    if change.migrate {
        object.remove("firstKeptEntryIndex");
        if let Some(message) = object.get("message").and_then(migrated_message) {
            object.set("message", &message);
        }
    }
    Some(object.line())
}

/// What version 2 called a hook's message is a custom one.
fn migrated_message(message: &serde_json::value::RawValue) -> Option<Box<serde_json::value::RawValue>> {
    let mut message: Object<'_> = serde_json::from_str(message.get()).ok()?;
    if text(message.get("role")?)? != "hookMessage" {
        return None;
    }
    message.set("role", &"custom");
    serde_json::value::RawValue::from_string(message.line()).ok()
}

fn text(raw: &serde_json::value::RawValue) -> Option<String> {
    match serde_json::from_str(raw.get()) {
        Ok(Value::String(text)) => Some(text),
        Ok(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) | Err(_) => None,
    }
}

#[cfg(test)]
mod tests;
