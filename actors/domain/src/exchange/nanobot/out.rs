//! Transcript of ours → nanobot file.
//!
//! The conversation as it stands, from its root or from the last `reset` on: nanobot knows no branches, and its `/new`
//! forgets. Messages that came from nanobot go back word for word.

use std::collections::HashSet;

use jiff::tz::TimeZone;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value, json};

use super::row::{plain, time_text};
use super::{FIELD, MESSAGE, SESSION};
use crate::exchange::json::python_line;
use crate::exchange::{Remark, push_line};
use crate::ids::SessionKey;
use crate::text::counted;
use crate::transcript::{Entry, EntryKind, Kind, Position, Transcript, read_lines};

/// Metadata about a turn that was under way; it says nothing any more when others followed.
const TURN_KEYS: [&str; 2] = ["runtime_checkpoint", "pending_user_turn"];

/// A file for nanobot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exported {
    /// The whole file.
    pub bytes: Vec<u8>,
    /// How many messages are in it.
    pub messages: usize,
    /// How many of them nanobot takes for consolidated.
    pub consolidated: usize,
    /// What stays behind.
    pub remarks: Vec<Remark>,
}

/// Makes the file of `key` of the bytes of its transcript. nanobot's times are those of `zone`.
pub fn export(bytes: &[u8], key: &SessionKey, zone: &TimeZone) -> Exported {
    let transcript = read_lines(bytes);
    let conversation = Conversation::of(&transcript, bytes, zone);
    let rows = &conversation.rows;
    let mut out = Vec::new();
    push_line(&mut out, &python_line(&conversation.head(key)));
    if let Some(state) = conversation.session.get("state").filter(|_| conversation.as_imported) {
        push_line(&mut out, &python_line(&json!({"_type": "provider_state", "state": state})));
    }
    rows.iter().for_each(|row| push_line(&mut out, &row.text));
    Exported {
        bytes: out,
        messages: rows.len(),
        consolidated: conversation.consolidated,
        remarks: conversation.remarks,
    }
}

/// What is exported of a session.
struct Conversation<'a> {
    transcript: &'a Transcript,
    zone: &'a TimeZone,
    rows: Vec<Row>,
    /// `nanobot.session`, empty in a session that did not come from there.
    session: Map<String, Value>,
    /// Whether nothing was said or summed up since.
    as_imported: bool,
    /// The summary of the last compaction and when it was made.
    summary: Option<(String, u64)>,
    consolidated: usize,
    remarks: Vec<Remark>,
}

struct Row {
    /// Its place in the conversation.
    place: usize,
    text: String,
}

/// What a line of ours says that a [`Transcript`] does not.
#[derive(Deserialize)]
struct Line<'a> {
    #[serde(borrow, rename = "nanobot")]
    original: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    details: Option<Value>,
    #[serde(borrow, rename = "customType")]
    custom_type: Option<std::borrow::Cow<'a, str>>,
}

// === impl Conversation ===

impl<'a> Conversation<'a> {
    fn of(transcript: &'a Transcript, bytes: &[u8], zone: &'a TimeZone) -> Self {
        let tree = transcript.tree();
        let path = tree.path();
        let (mut rows, mut session, mut session_at) = (Vec::new(), Map::new(), 0);
        let begins = path.iter().rposition(|at| tree.kind(*at) == Kind::Reset);
        let place_of = |at: Option<Position>| at.and_then(|at| path.iter().position(|on| *on == at));
        let first = begins.map_or(0, |reset| {
            let kept = path.get(reset).and_then(|at| tree.first_kept(*at));
            place_of(kept).unwrap_or(reset)
        });
        for (place, at) in path.iter().enumerate() {
            let Some(entry) = transcript.entries().get(at.0 as usize) else { continue };
            let line = line_of(bytes, tree.place(*at));
            match &line {
                Some(Line { custom_type: Some(kind), data: Some(data), .. }) if kind == SESSION => {
                    session = serde_json::from_str(data.get()).unwrap_or_default();
                    session_at = place;
                }
                Some(_) | None => {
                    let text = row_text(entry, line.as_ref(), zone);
                    rows.extend(text.map(|text| Row { place, text }));
                }
            }
        }
        let before = rows.len();
        rows.retain(|row| row.place >= first);
        let compaction = path.iter().rposition(|at| tree.kind(*at) == Kind::Compaction);
        let compaction = compaction.filter(|place| begins.is_none_or(|reset| *place > reset));
        let last_row = rows.last().map_or(0, |row| row.place);
        let as_imported = !session.is_empty()
            && begins.is_none()
            && last_row <= session_at
            && compaction.is_none_or(|place| place <= session_at);
        let remarks = left_behind(transcript, &path, before - rows.len());
        let mut conversation =
            Self { transcript, zone, rows, session, as_imported, summary: None, consolidated: 0, remarks };
        if let Some((place, at)) = compaction.and_then(|place| Some((place, *path.get(place)?))) {
            let kept = place_of(tree.first_kept(at)).unwrap_or(place);
            let details = line_of(bytes, tree.place(at)).and_then(|line| line.details).filter(|_| begins.is_none());
            conversation.compacted(at, kept, details.as_ref());
        }
        conversation
    }

    /// Takes over the compaction at `at`, which keeps what stands from the place `kept` on. One that was made of
    /// nanobot's numbers says what they were.
    fn compacted(&mut self, at: Position, kept: usize, details: Option<&Value>) {
        let said = details.and_then(|details| details.get(FIELD)?.get("lastConsolidated")?.as_u64());
        let said = said.and_then(|said| usize::try_from(said).ok()).filter(|said| *said <= self.rows.len());
        self.consolidated = said.unwrap_or_else(|| self.rows.iter().filter(|row| row.place < kept).count());
        let entry = self.transcript.entries().get(at.0 as usize);
        if let Some((EntryKind::Compaction { summary, .. }, at)) = entry.map(|entry| (&entry.kind, entry.timestamp_ms))
        {
            self.summary = Some((summary.clone(), at));
        }
    }

    /// The metadata line.
    fn head(&self, key: &SessionKey) -> Map<String, Value> {
        let original = self.session.get("line").and_then(Value::as_object);
        let mut head = original.cloned().unwrap_or_default();
        let named = head.get("key").and_then(Value::as_str) == Some(key.as_str());
        if self.as_imported && named {
            return head;
        }
        let begun_ms = self.transcript.header.as_ref().map_or(0, |header| header.timestamp_ms);
        let mut metadata = head.get("metadata").and_then(Value::as_object).cloned().unwrap_or_default();
        if !self.as_imported {
            TURN_KEYS.iter().for_each(|key| drop(metadata.shift_remove(*key)));
            match self.summary.as_ref().filter(|(text, _)| !text.is_empty()) {
                Some((text, at)) => {
                    let last_active = time_text(*at, self.zone);
                    metadata.insert("_last_summary".into(), json!({"text": text, "last_active": last_active}));
                }
                None => drop(metadata.shift_remove("_last_summary")),
            }
        }
        if let Some(name) = self.transcript.tree().name() {
            metadata.insert("title".into(), json!(&**name));
        }
        let mut set = |name: &str, value: Value| drop(head.insert(name.to_owned(), value));
        set("_type", json!("metadata"));
        set("key", json!(key));
        if original.and_then(|head| head.get("created_at")).is_none() {
            set("created_at", json!(time_text(begun_ms, self.zone)));
        }
        set("updated_at", json!(time_text(self.transcript.last_ms(), self.zone)));
        set("metadata", json!(metadata));
        set("last_archived", json!(self.consolidated));
        set("last_consolidated", json!(self.consolidated));
        head
    }
}

fn line_of(bytes: &[u8], place: std::ops::Range<u64>) -> Option<Line<'_>> {
    let place = usize::try_from(place.start).ok()?..usize::try_from(place.end).ok()?;
    serde_json::from_slice(bytes.get(place)?).ok()
}

/// The message that an entry is to nanobot: the original, if it came from there.
fn row_text(entry: &Entry, line: Option<&Line<'_>>, zone: &TimeZone) -> Option<String> {
    let is_kept = |line: &&Line<'_>| line.custom_type.as_deref() == Some(MESSAGE);
    let original = line.and_then(|line| line.original);
    let original = original.or_else(|| line.filter(is_kept).and_then(|line| line.data));
    match original {
        // One that had to be mended is kept as text.
        Some(original) => Some(serde_json::from_str(original.get()).unwrap_or_else(|_| original.get().to_owned())),
        None => plain(&entry.kind, &time_text(entry.timestamp_ms, zone)).map(|row| python_line(&row)),
    }
}

fn left_behind(transcript: &Transcript, path: &[Position], forgotten: usize) -> Vec<Remark> {
    let on_path: HashSet<Position> = path.iter().copied().collect();
    let tree = transcript.tree();
    let is_message = |at: &Position| tree.kind(*at).role().is_some();
    let elsewhere = tree.positions().filter(|at| !on_path.contains(at) && is_message(at)).count();
    let mut remarks = Vec::new();
    if forgotten > 0 {
        let what =
            format!("{} before the last reset stay behind: nanobot's /new forgets", counted(forgotten, "message"));
        remarks.push(Remark::of(what));
    }
    if elsewhere > 0 {
        let what = format!("{} of other branches stay behind: nanobot has none", counted(elsewhere, "message"));
        remarks.push(Remark::of(what));
    }
    remarks
}
