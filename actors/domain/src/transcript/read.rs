//! Reads transcript files as they are, not as they should be.
//!
//! A line that is no JSON is counted and skipped. Raw control characters, halves of surrogate pairs and bytes that are
//! no UTF-8 are mended for reading. Records that were written without a line end between them are all read. A record
//! of an unknown kind is opaque.

mod message;

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::tree::RawParent;
use super::{Entry, EntryKind, Header, ProblemKind, Transcript};
use crate::ids::TurnId;
use crate::{text, time};

/// How many messages [`recent_ids`] gives.
pub const RECENT_MAX: usize = 1000;

/// One user message of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentMessage {
    /// `<source>:<message id>`.
    pub idempotency_key: String,
    /// Its turn.
    pub turn: TurnId,
    /// Hash of its body.
    pub body_hash: u64,
}

/// Reads a whole file.
pub fn read_lines(bytes: &[u8]) -> Transcript {
    let mut transcript = Transcript::default();
    let (mut start, mut first_record) = (0, true);
    for (at, line) in bytes.split(|byte| *byte == b'\n').enumerate() {
        let place = start..start + line.len();
        start += line.len() + 1;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let read = read_line(line, &place);
        if !read.complete {
            transcript.problem(at + 1, ProblemKind::NotJson);
        }
        for record in read.records {
            let is_header = matches!(record, Record::Header { .. });
            if first_record && !is_header {
                transcript.problem(at + 1, ProblemKind::HeaderMissing);
            }
            first_record = false;
            match record {
                Record::Header { header, .. } if transcript.header.is_none() => transcript.header = Some(header),
                Record::Header { place, .. } => transcript.insert(opaque(None, 0, place), RawParent::Absent),
                Record::Entry { entry, parent } => transcript.insert(entry, parent),
            }
        }
    }
    transcript
}

/// The last [`RECENT_MAX`] marked user messages in the end of a file, oldest first. Unless it is the whole file, the
/// first line is taken for cut and left out.
pub fn recent_ids(tail: &[u8], is_whole_file: bool) -> Vec<RecentMessage> {
    let mut recent = Vec::new();
    let whole_lines = match tail.iter().position(|byte| *byte == b'\n') {
        _ if is_whole_file => tail,
        Some(end) => tail.get(end + 1..).unwrap_or(&[]),
        None => &[],
    };
    for line in whole_lines.rsplit(|byte| *byte == b'\n') {
        if recent.len() >= RECENT_MAX {
            break;
        }
        if !String::from_utf8_lossy(line).contains("\"idempotencyKey\"") {
            continue;
        }
        for record in read_line(line, &(0..line.len())).records.into_iter().rev() {
            if let Record::Entry { entry: Entry { kind: EntryKind::User(user), .. }, .. } = record
                && let Some(mark) = user.mark
            {
                let idempotency_key = mark.idempotency_key.as_ref().to_owned();
                recent.push(RecentMessage { idempotency_key, turn: mark.turn, body_hash: mark.body_hash });
            }
        }
    }
    recent.truncate(RECENT_MAX);
    recent.reverse();
    recent
}

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

enum Record {
    Header { header: Header, place: Range<usize> },
    Entry { entry: Entry, parent: RawParent },
}

struct ReadLine {
    records: Vec<Record>,
    /// Whether all of the line was understood as JSON.
    complete: bool,
}

fn read_line(line: &[u8], place: &Range<usize>) -> ReadLine {
    let (line, place) = match line.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (rest, place.start + BYTE_ORDER_MARK.len()..place.end),
        None => (line, place.clone()),
    };
    let as_it_is = String::from_utf8_lossy(line);
    let exact = matches!(as_it_is, Cow::Borrowed(_));
    let read =
        records(
            &as_it_is,
            |within| {
                if exact { place.start + within.start..place.start + within.end } else { place.clone() }
            },
        );
    if read.complete {
        return read;
    }
    let escaped = escape_controls(&as_it_is);
    let mended = text::without_lone_surrogates(&escaped);
    if mended == as_it_is {
        return read;
    }
    let second = records(&mended, |_| place.clone());
    if second.records.len() >= read.records.len() { second } else { read }
}

fn records(line: &str, place: impl Fn(Range<usize>) -> Range<usize>) -> ReadLine {
    let mut read = ReadLine { records: Vec::new(), complete: true };
    let mut values = serde_json::Deserializer::from_str(line).into_iter::<&RawValue>();
    let mut start = 0;
    while let Some(value) = values.next() {
        let end = values.byte_offset();
        let record = value.ok().and_then(|value| record(value.get(), place(start..end)));
        start = end;
        match record {
            Some(record) => read.records.push(record),
            None => read.complete = false,
        }
    }
    read
}

/// Fields of all kinds of line together. Those that others may fill differently stay raw and are looked at one by one,
/// so that an odd one does not make a whole message unreadable.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawLine<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(default, borrow, deserialize_with = "present")]
    parent_id: Option<Option<Cow<'a, str>>>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    append_mode: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
    #[serde(borrow)]
    first_kept_entry_id: Option<&'a RawValue>,
    #[serde(default, borrow, deserialize_with = "present")]
    target_id: Option<Option<&'a RawValue>>,
    #[serde(default, borrow, deserialize_with = "present")]
    append_parent_id: Option<Option<&'a RawValue>>,
    #[serde(borrow)]
    version: Option<&'a RawValue>,
    #[serde(borrow)]
    cwd: Option<&'a RawValue>,
    #[serde(borrow)]
    parent_session: Option<&'a RawValue>,
    #[serde(borrow)]
    session_key: Option<&'a RawValue>,
}

/// Tells an absent field (`None`) from one that is null (`Some(None)`).
fn present<'de, D: Deserializer<'de>, T: Deserialize<'de>>(from: D) -> Result<Option<T>, D::Error> {
    T::deserialize(from).map(Some)
}

fn record(json: &str, place: Range<usize>) -> Option<Record> {
    match serde_json::from_str::<RawLine<'_>>(json) {
        Ok(line) => Some(line.record(place)),
        Err(_) => {
            let value: Value = serde_json::from_str(json).ok()?;
            let id = value.get("id").and_then(Value::as_str);
            let parent = match value.get("parentId") {
                Some(Value::String(parent)) => RawParent::Id(parent.as_str().into()),
                Some(Value::Null) => RawParent::Root,
                Some(_) | None => RawParent::Absent,
            };
            Some(Record::Entry { entry: opaque(id, 0, place), parent })
        }
    }
}

fn opaque(id: Option<&str>, timestamp_ms: u64, bytes: Range<usize>) -> Entry {
    let id = id.unwrap_or("").into();
    Entry { id, parent: None, timestamp_ms, side: false, kind: EntryKind::Opaque { bytes } }
}

// === impl RawLine ===

impl RawLine<'_> {
    fn record(self, place: Range<usize>) -> Record {
        let timestamp_ms = self.timestamp.map_or(0, timestamp);
        if self.r#type == "session" {
            return Record::Header { header: self.header(timestamp_ms), place };
        }
        let parent = match &self.parent_id {
            None => RawParent::Absent,
            Some(None) => RawParent::Root,
            Some(Some(parent)) => RawParent::Id(parent.as_ref().into()),
        };
        let entry = match (self.id.as_deref().filter(|id| !id.is_empty()), self.kind()) {
            (Some(id), Some(kind)) => {
                let side = string(self.append_mode).as_deref() == Some("side");
                Entry { id: id.into(), parent: None, timestamp_ms, side, kind }
            }
            (id, _) => opaque(id, timestamp_ms, place),
        };
        Record::Entry { entry, parent }
    }

    fn header(&self, timestamp_ms: u64) -> Header {
        Header {
            version: self.version.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or(1),
            id: self.id.as_deref().unwrap_or("").to_owned(),
            timestamp_ms,
            cwd: string(self.cwd).unwrap_or_default(),
            parent_session: string(self.parent_session),
            session_key: string(self.session_key),
        }
    }

    /// `None` for kinds that are not known.
    fn kind(&self) -> Option<EntryKind> {
        let first_kept = || string(self.first_kept_entry_id).map(Arc::from);
        Some(match self.r#type.as_ref() {
            "message" => message::kind(self.message?)?,
            "custom_message" => EntryKind::Shown(message::content(self.content).into()),
            "compaction" => {
                EntryKind::Compaction { summary: string(self.summary).unwrap_or_default(), first_kept: first_kept() }
            }
            "branch_summary" => EntryKind::BranchSummary(string(self.summary).unwrap_or_default()),
            "reset" => EntryKind::Reset { first_kept: first_kept() },
            "thinking_level_change" | "model_change" | "custom" | "label" | "session_info" => EntryKind::Silent,
            "leaf" => {
                let (target, target_fits) = link(self.target_id);
                let (append_parent, append_fits) = link(self.append_parent_id);
                let valid = self.target_id.is_some() && target_fits && append_fits;
                EntryKind::Leaf { target, append_parent, valid }
            }
            _ => return None,
        })
    }
}

/// The id in a field of a leaf row, and whether the field has a legal form.
fn link(field: Option<Option<&RawValue>>) -> (Option<Arc<str>>, bool) {
    match field {
        None | Some(None) => (None, true),
        Some(Some(raw)) => {
            let id = string(Some(raw)).map(Arc::from);
            let fits = id.is_some() || raw.get() == "null";
            (id, fits)
        }
    }
}

/// A field that is text; `None` if it is absent or something else.
fn string(raw: Option<&RawValue>) -> Option<String> {
    serde_json::from_str(raw?.get()).ok()
}

/// ISO text, or milliseconds as other programs write at times.
fn timestamp(raw: &RawValue) -> u64 {
    match serde_json::from_str(raw.get()) {
        Ok(Value::String(iso)) => time::parse_iso_ms(&iso).unwrap_or(0),
        Ok(Value::Number(ms)) => ms.as_u64().unwrap_or(0),
        Ok(Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_)) | Err(_) => 0,
    }
}

/// Escapes raw control characters inside of JSON strings.
fn escape_controls(json: &str) -> String {
    let mut out = String::with_capacity(json.len());
    let (mut in_string, mut escaped) = (false, false);
    for letter in json.chars() {
        if in_string && letter < ' ' {
            let escape = if escaped { "u" } else { "\\u" };
            write!(out, "{escape}{:04x}", u32::from(letter)).expect("writing to a string cannot fail");
            escaped = false;
            continue;
        }
        in_string ^= letter == '"' && !escaped;
        escaped = letter == '\\' && in_string && !escaped;
        out.push(letter);
    }
    out
}

#[cfg(test)]
mod tests;
