//! The session store, and what lies beside it.

use serde_json::{Map, Value};

use super::{OWN_KEY, place_of};
use crate::exchange::Remark;
use crate::ids::SessionKey;
use crate::time::parse_iso_ms;

/// `sessions.json`: which key has which transcript.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Store {
    /// In the order of the file.
    pub entries: Vec<StoreEntry>,
    /// Entries that cannot be used, and why.
    pub remarks: Vec<Remark>,
}

/// One session.
#[derive(Debug, Clone, PartialEq)]
pub struct StoreEntry {
    /// Its key.
    pub key: SessionKey,
    /// All that the store says of it.
    pub fields: Map<String, Value>,
}

/// What a file in the sessions directory is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileKind {
    /// The store.
    Store,
    /// A session's transcript.
    Transcript,
    /// Something that is kept as it is: transcripts of before a reset or a deletion, backups, records of runs.
    Archive,
    /// Nothing to keep: why.
    Passing(&'static str),
}

/// What a file name says.
pub fn file_kind(name: &str) -> FileKind {
    if name == "sessions.json" {
        FileKind::Store
    } else if name.ends_with(".lock") {
        FileKind::Passing("a lock")
    } else if name.ends_with(".tmp") {
        FileKind::Passing("a temporary file")
    } else if name.ends_with(".jsonl") && !name.contains(".checkpoint.") && !name.ends_with(".trajectory.jsonl") {
        FileKind::Transcript
    } else {
        FileKind::Archive
    }
}

/// Of a transcript from before a reset or a deletion: what it was named after, and when it ended, ms since 1970.
pub fn ended_name(name: &str) -> Option<(&str, u64)> {
    let (stem, rest) = name.rsplit_once(".jsonl.")?;
    let (kind, time) = rest.split_once('.')?;
    let (day, clock) = time.split_once('T')?;
    let at_ms = parse_iso_ms(&format!("{day}T{}", clock.replace('-', ":")))?;
    matches!(kind, "reset" | "deleted").then_some((stem, at_ms))
}

/// The key of a transcript that no entry of the store names.
pub fn orphan_key(agent: &str, stem: &str) -> Option<SessionKey> {
    SessionKey::new(&format!("agent:{agent}:orphan:{stem}")).ok()
}

// === impl Store ===

impl Store {
    /// Reads `sessions.json`. The error says where it is no store.
    pub fn read(bytes: &[u8]) -> Result<Self, Remark> {
        let entries: Map<String, Value> = serde_json::from_slice(bytes).map_err(|error| {
            Remark::at(error.line(), format!("not a JSON object of sessions (column {})", error.column()))
        })?;
        let mut store = Self::default();
        for (key, entry) in entries {
            store.add(&key, entry);
        }
        Ok(store)
    }

    fn add(&mut self, key: &str, entry: Value) {
        // A key may hold what a person wrote; the position names it well enough.
        let place = self.entries.len() + self.remarks.len() + 1;
        let mut refuse = |why: &str| self.remarks.push(Remark::of(format!("entry {place} is left out: {why}")));
        let Value::Object(fields) = entry else { return refuse("it is no object") };
        let Ok(key) = SessionKey::new(key.trim()) else { return refuse("its key cannot be a session key") };
        let entry = StoreEntry { key: own_key(&key, &fields).unwrap_or(key), fields };
        let same = |other: &&mut StoreEntry| other.key.as_str().eq_ignore_ascii_case(entry.key.as_str());
        let Some(other) = self.entries.iter_mut().find(same) else { return self.entries.push(entry) };
        refuse("another entry has the same key in another spelling; the newer one counts");
        if entry.updated_ms() > other.updated_ms() {
            *other = entry;
        }
    }
}

// === impl StoreEntry ===

impl StoreEntry {
    /// The session's id, if it is one that can be part of a file name.
    pub fn session_id(&self) -> Option<&str> {
        let id = self.fields.get("sessionId").and_then(Value::as_str)?;
        is_file_id(id).then_some(id)
    }

    /// Which files may be its transcript, the likeliest first. Only names: it lies in the sessions directory.
    pub fn file_names(&self) -> Vec<String> {
        let named = self.fields.get("sessionFile").and_then(Value::as_str);
        let named = named.and_then(|path| path.rsplit(['/', '\\']).next()).filter(|name| name.ends_with(".jsonl"));
        let topic = self.key.as_str().rsplit_once(":topic:").map(|(_, topic)| topic).filter(|topic| is_file_id(topic));
        let mut names: Vec<String> = named.map(str::to_owned).into_iter().collect();
        if let Some(id) = self.session_id() {
            names.extend(topic.map(|topic| format!("{id}-topic-{topic}.jsonl")));
            names.push(format!("{id}.jsonl"));
        }
        names
    }

    fn updated_ms(&self) -> u64 {
        self.fields.get("updatedAt").and_then(Value::as_u64).unwrap_or(0)
    }
}

/// The key of ours that was exported under `key`.
fn own_key(key: &SessionKey, fields: &Map<String, Value>) -> Option<SessionKey> {
    let own = SessionKey::new(fields.get(OWN_KEY)?.as_str()?).ok()?;
    (place_of(&own).1 == key.as_str()).then_some(own)
}

/// Whether an id can be part of a file name: letters, digits, `.`, `_`, `-`, at most 128.
pub(super) fn is_file_id(id: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    let starts = id.bytes().next().is_some_and(|byte| byte.is_ascii_alphanumeric());
    starts && id.len() <= 128 && id.bytes().all(legal) && !id.contains(".checkpoint.")
}
