//! One line of a file: which records are on it.

use std::borrow::Cow;
use std::fmt::Write;
use std::ops::Range;
use std::sync::Arc;

use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

use super::{Record, message};
use crate::transcript::{Entry, EntryKind, Header, Kind, Note, RawParent, told};
use crate::{text, time};

const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// One value of a line.
pub(super) enum Found {
    Header(Header, Range<u64>),
    Entry(Record, Quirks),
}

/// What an entry has in old files in place of what is usual.
#[derive(Default)]
pub(super) struct Quirks {
    /// It is a node or an unknown object, but has no id.
    pub lacks_id: bool,
    /// A compaction that says by the number of a record which is the first that it keeps.
    pub first_kept: Option<u64>,
}

pub(super) struct ReadLine {
    pub found: Vec<Found>,
    /// Whether all of the line was understood as JSON.
    pub complete: bool,
}

/// Reads what stands in a line that begins at `start`.
pub(super) fn read_line(line: &[u8], start: u64) -> ReadLine {
    let (line, start) = match line.strip_prefix(BYTE_ORDER_MARK) {
        Some(rest) => (rest, start + BYTE_ORDER_MARK.len() as u64),
        None => (line, start),
    };
    let (text, whole) = text_of(line);
    let origin = |at: usize| start + whole.origin(at) as u64;
    let read = records(&text, |within| origin(within.start)..origin(within.end));
    if read.complete {
        return read;
    }
    let (escaped, escapes) = escape_controls(&text);
    if escaped == text {
        return read;
    }
    let second = records(&escaped, |within| origin(escapes.origin(within.start))..origin(escapes.origin(within.end)));
    if second.found.len() >= read.found.len() { second } else { read }
}

/// One value that [`read_line`] found, from the bytes at its place, mended as for reading, as JSON text.
pub(in crate::transcript) fn value(bytes: &[u8]) -> Option<Box<RawValue>> {
    let (text, _) = text_of(bytes);
    let value = |text: &str| serde_json::from_str(text).ok();
    value(&text).or_else(|| value(&escape_controls(&text).0))
}

/// Where a text that was mended differs in length from what it was: ends of what was replaced, there and here.
#[derive(Default)]
struct Jumps(Vec<(usize, usize)>);

impl Jumps {
    /// Where a place in the mended text was before.
    fn origin(&self, at: usize) -> usize {
        let behind = self.0.partition_point(|(mended, _)| *mended <= at);
        let last = behind.checked_sub(1).and_then(|last| self.0.get(last));
        last.map_or(at, |(mended, before)| before + (at - mended))
    }
}

/// A line as text that has only whole characters.
fn text_of(line: &[u8]) -> (Cow<'_, str>, Jumps) {
    if let Ok(text) = std::str::from_utf8(line) {
        // What takes the place of half a pair is as long as that.
        return (text::without_lone_surrogates(text), Jumps::default());
    }
    let (mut text, mut jumps, mut before) = (String::with_capacity(line.len()), Jumps::default(), 0);
    for chunk in line.utf8_chunks() {
        text.push_str(chunk.valid());
        before += chunk.valid().len() + chunk.invalid().len();
        if !chunk.invalid().is_empty() {
            text.push(char::REPLACEMENT_CHARACTER);
            jumps.0.push((text.len(), before));
        }
    }
    (Cow::Owned(text::without_lone_surrogates(&text).into_owned()), jumps)
}

fn records(line: &str, place: impl Fn(Range<usize>) -> Range<u64>) -> ReadLine {
    let mut read = ReadLine { found: Vec::new(), complete: true };
    let mut values = serde_json::Deserializer::from_str(line).into_iter::<&RawValue>();
    let mut start = 0;
    while let Some(value) = values.next() {
        let end = values.byte_offset();
        let blanks = line.get(start..end).map_or(0, |value| value.len() - value.trim_start().len());
        let found = value.ok().and_then(|value| found(value.get(), place(start + blanks..end)));
        start = end;
        match found {
            Some(found) => read.found.push(found),
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
    first_kept_entry_index: Option<&'a RawValue>,
    #[serde(borrow)]
    label: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    provider: Option<&'a RawValue>,
    #[serde(borrow)]
    model_id: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking_level: Option<&'a RawValue>,
    #[serde(borrow)]
    custom_type: Option<&'a RawValue>,
    #[serde(borrow)]
    details: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
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

fn found(json: &str, place: Range<u64>) -> Option<Found> {
    match serde_json::from_str::<RawLine<'_>>(json) {
        Ok(line) => Some(line.found(place)),
        Err(_) => {
            let value: Value = serde_json::from_str(json).ok()?;
            let id = value.get("id").and_then(Value::as_str);
            let parent = match value.get("parentId") {
                Some(Value::String(parent)) => RawParent::Id(parent.as_str().into()),
                Some(Value::Null) => RawParent::Root,
                Some(_) | None => RawParent::Absent,
            };
            let quirks =
                Quirks { lacks_id: value.is_object() && value.get("id").is_none_or(Value::is_null), first_kept: None };
            Some(Found::Entry(opaque(id, 0, parent, place), quirks))
        }
    }
}

/// A record that nobody knows.
pub(super) fn opaque(id: Option<&str>, timestamp_ms: u64, parent: RawParent, place: Range<u64>) -> Record {
    let id = id.unwrap_or("").into();
    let entry = Entry { id, parent: None, timestamp_ms, side: false, kind: EntryKind::Opaque };
    Record { entry, parent, kind: Kind::Opaque, place }
}

// === impl RawLine ===

impl RawLine<'_> {
    fn found(self, place: Range<u64>) -> Found {
        let timestamp_ms = self.timestamp.map_or(0, timestamp);
        if self.r#type == "session" {
            return Found::Header(self.header(timestamp_ms), place);
        }
        let parent = match &self.parent_id {
            None => RawParent::Absent,
            Some(None) => RawParent::Root,
            Some(Some(parent)) => RawParent::Id(parent.as_ref().into()),
        };
        let id = self.id.as_deref().filter(|id| !id.is_empty());
        let first_kept = match self.first_kept_entry_id {
            None => self.first_kept_entry_index.and_then(|raw| serde_json::from_str(raw.get()).ok()),
            Some(_) => None,
        };
        let quirks = Quirks { lacks_id: self.id.is_none(), first_kept };
        let record = match self.kind() {
            Some((what, kind)) if id.is_some() || self.id.is_none() => {
                let side = string(self.append_mode).as_deref() == Some("side");
                let entry = Entry { id: id.unwrap_or("").into(), parent: None, timestamp_ms, side, kind };
                Record { entry, parent, kind: what, place }
            }
            Some(_) | None => opaque(id, timestamp_ms, parent, place),
        };
        Found::Entry(record, quirks)
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
    fn kind(&self) -> Option<(Kind, EntryKind)> {
        let first_kept = || string(self.first_kept_entry_id).map(Arc::from);
        let text = |raw| string(raw).unwrap_or_default();
        let shared = |raw| Arc::from(text(raw));
        let kind = match self.r#type.as_ref() {
            "message" => return Some(message::kind(self.message)),
            "custom_message" => {
                let content = message::content(self.content);
                match told::event(string(self.custom_type).as_deref(), self.details, &content) {
                    Some(event) => EntryKind::User(event),
                    None => EntryKind::Shown(content.into()),
                }
            }
            "compaction" => EntryKind::Compaction { summary: text(self.summary), first_kept: first_kept() },
            "branch_summary" => EntryKind::BranchSummary(text(self.summary)),
            "reset" => EntryKind::Reset { first_kept: first_kept() },
            "label" => EntryKind::Silent(Note::Label {
                target: shared(self.target_id.flatten()),
                label: string(self.label).filter(|label| !label.is_empty()).map(Arc::from),
            }),
            "session_info" => {
                let name = text(self.name);
                EntryKind::Silent(Note::Name(Some(name.trim()).filter(|name| !name.is_empty()).map(Arc::from)))
            }
            "model_change" => {
                EntryKind::Silent(Note::Model { provider: shared(self.provider), model: shared(self.model_id) })
            }
            "thinking_level_change" => EntryKind::Silent(Note::Thinking(shared(self.thinking_level))),
            "custom" => EntryKind::Silent(Note::Custom {
                kind: shared(self.custom_type),
                data: self.data.map(|data| Arc::from(data.get())),
            }),
            "leaf" => {
                let (target, target_fits) = link(self.target_id);
                let (append_parent, append_fits) = link(self.append_parent_id);
                let mode_fits = self.append_mode.is_none() || string(self.append_mode).as_deref() == Some("side");
                let valid = self.target_id.is_some() && target_fits && append_fits && mode_fits;
                EntryKind::Leaf { target, append_parent, valid }
            }
            _ => return None,
        };
        Some((Kind::of(&kind), kind))
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
pub(super) fn string(raw: Option<&RawValue>) -> Option<String> {
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
fn escape_controls(json: &str) -> (String, Jumps) {
    let (mut out, mut jumps) = (String::with_capacity(json.len()), Jumps::default());
    let (mut in_string, mut escaped) = (false, false);
    for (at, letter) in json.char_indices() {
        if in_string && letter < ' ' {
            let escape = if escaped { "u" } else { "\\u" };
            write!(out, "{escape}{:04x}", u32::from(letter)).expect("writing to a string cannot fail");
            jumps.0.push((out.len(), at + 1));
            escaped = false;
            continue;
        }
        in_string ^= letter == '"' && !escaped;
        escaped = letter == '\\' && in_string && !escaped;
        out.push(letter);
    }
    (out, jumps)
}
