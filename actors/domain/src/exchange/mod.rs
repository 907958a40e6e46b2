//! Moving in from other systems, and out to them.
//!
//! Everything here is pure: bytes of a foreign file in, lines and a report out, and the other way round. Reading
//! directories, writing files and deciding what to do with what is there already is the commands' part.
//!
//! **Invariant:** nothing is lost. What has no place in a transcript of ours stands beside it, word for word: in a
//! field of the entry that bears the other program's name, or in a `custom` entry. The same input gives the same bytes,
//! ids included, so that whoever imports a second time finds what is there already.

pub mod json;
pub mod nanobot;
pub mod openclaw;
pub mod single;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use uuid::{Builder, Uuid};

use crate::ids::{EntryId, SessionId};

/// The header's field with a digest of the files that a transcript was made of, where the same files may give another one.
const SOURCE: &str = "source";

/// Something in a foreign file that could not be taken as it is. The file's name is the caller's to add.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Remark {
    /// Line number, from 1, where there is one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// What is odd, and what became of it. No content of messages.
    pub what: String,
}

/// A transcript of ours, made of a foreign one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Transcribed {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// How many messages are in it.
    pub messages: usize,
    /// What was odd.
    pub remarks: Vec<Remark>,
}

/// Ids that depend on nothing but a seed: the same file gets the same ones each time.
#[derive(Debug, Clone)]
pub struct SeededIds {
    seed: String,
    drawn: u64,
}

// === impl Remark ===

impl Remark {
    /// About a line.
    pub fn at(line: usize, what: impl Into<String>) -> Self {
        Self { line: Some(line), what: what.into() }
    }

    /// About the whole.
    pub fn of(what: impl Into<String>) -> Self {
        Self { line: None, what: what.into() }
    }
}

// === impl SeededIds ===

impl SeededIds {
    /// Ids of what is called `name` in the system `system`.
    pub fn new(system: &str, name: &str) -> Self {
        Self { seed: format!("{system}\0{name}"), drawn: 0 }
    }

    /// The id of the whole session.
    pub fn session(&self) -> SessionId {
        let digest = Sha256::digest(format!("{}\0session", self.seed));
        let mut bytes = Uuid::nil().into_bytes();
        bytes.iter_mut().zip(digest).for_each(|(to, from)| *to = from);
        SessionId(Builder::from_custom_bytes(bytes).into_uuid())
    }

    /// The next entry's id.
    pub fn entry(&mut self) -> EntryId {
        self.drawn += 1;
        let digest = Sha256::digest(format!("{}\0{}", self.seed, self.drawn));
        EntryId(digest.iter().take(8).fold(0, |id, byte| id << 8 | u64::from(*byte)))
    }
}

/// Whether two transcripts are the same session, by the ids in their headers.
pub fn is_one_session(one: &[u8], other: &[u8]) -> bool {
    let id = |bytes: &[u8]| header(bytes).and_then(|header| Some(header.get("id")?.as_str()?.to_owned()));
    id(one).is_some_and(|one| Some(one) == id(other))
}

/// Whether a transcript holds all of `came`, which was made of a foreign one: it begins with it, or was made of the same
/// files, under other circumstances.
pub fn holds(here: &[u8], came: &[u8]) -> bool {
    let body = |bytes: &[u8]| bytes.iter().position(|byte| *byte == b'\n').map_or(bytes.len(), |end| end + 1);
    let [here_body, came_body] = [here, came].map(|bytes| bytes.get(body(bytes)..).unwrap_or_default());
    let source = |bytes: &[u8]| header(bytes).and_then(|header| header.get(SOURCE).cloned());
    here.starts_with(came)
        || is_one_session(here, came)
            && (here_body.starts_with(came_body) || source(came).is_some_and(|came| Some(came) == source(here)))
}

fn header(bytes: &[u8]) -> Option<Map<String, Value>> {
    let line = bytes.split(|byte| *byte == b'\n').next()?;
    serde_json::from_slice(line).ok()
}

/// Appends a line and its end.
fn push_line(to: &mut Vec<u8>, line: &str) {
    to.extend_from_slice(line.as_bytes());
    to.push(b'\n');
}
