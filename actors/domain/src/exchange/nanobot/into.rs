//! nanobot file → transcript of ours.

use std::sync::Arc;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use super::file::{Row, SessionFile};
use super::row::{entry_kind, time_ms};
use super::{FIELD, MESSAGE, SESSION};
use crate::exchange::{Remark, SOURCE, SeededIds, Transcribed, push_line};
use crate::ids::SessionKey;
use crate::text::counted;
use crate::time::later;
use crate::transcript::{
    Addition, CompactionFields, Entry, EntryKind, Head, HeaderFields, Note, Pen, Transcript, assistant_line,
    custom_line, header_line, tool_result_line, user_line,
};

/// What a session is made of.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its file.
    pub file: &'a SessionFile,
    /// Its key.
    pub key: &'a SessionKey,
    /// `<stem>.checkpoint.json`, if one lies beside it: the turn that was under way.
    pub checkpoint: Option<&'a [u8]>,
    /// The zone that nanobot ran in: its times have no offset.
    pub zone: &'a TimeZone,
    /// The workspace, for the header.
    pub cwd: &'a str,
}

/// Makes a transcript.
pub fn transcribe(source: &Source<'_>) -> Transcribed {
    let mut work = Work::begin(source);
    let ids: Vec<Arc<str>> = source.file.rows.iter().map(|row| work.row(row)).collect();
    let now_ms = time_ms(source.file.head.get("updated_at").and_then(Value::as_str), source.zone).unwrap_or(0);
    work.compaction(&ids, now_ms);
    let metadata = source.file.metadata();
    if let Some(title) = metadata.get("title").and_then(Value::as_str).filter(|title| !title.trim().is_empty()) {
        work.add(now_ms, |pen| Some(pen.rename(title)));
    }
    let rest = rest(source);
    work.add(now_ms, |pen| Some(pen.custom(SESSION, Some(&rest))));
    let mut remarks = source.file.remarks.clone();
    let hidden = source.file.rows.len() - work.shown;
    if hidden > 0 {
        let what =
            format!("{} kept beside the conversation: commands, or of no known role", counted(hidden, "message"));
        remarks.push(Remark::of(what));
    }
    Transcribed { bytes: work.bytes, messages: source.file.rows.len(), remarks }
}

/// Everything that is no message.
fn rest(source: &Source<'_>) -> Value {
    let mut rest = json!({"line": source.file.head, "messages": source.file.rows.len()});
    if let Some(state) = &source.file.state {
        rest["state"] = state.clone();
    }
    if let Some(checkpoint) = source.checkpoint {
        let text = String::from_utf8_lossy(checkpoint);
        rest["checkpoint"] = serde_json::from_slice(checkpoint).unwrap_or_else(|_| json!(text));
    }
    if !source.file.kept.is_empty() {
        rest["kept"] = json!(source.file.kept);
    }
    rest
}

/// What tells the same files of nanobot's again, in whatever zone and for whatever directory they are read.
fn digest(source: &Source<'_>) -> String {
    let digest = Sha256::new_with_prefix(source.file.digest).chain_update(source.checkpoint.unwrap_or_default());
    digest.finalize().iter().map(|byte| format!("{byte:02x}")).collect()
}

/// A file that is being written.
struct Work<'a> {
    source: &'a Source<'a>,
    ids: SeededIds,
    transcript: Transcript,
    bytes: Vec<u8>,
    last_ms: u64,
    shown: usize,
}

// === impl Work ===

impl<'a> Work<'a> {
    fn begin(source: &'a Source<'a>) -> Self {
        let ids = SeededIds::new("nanobot", source.key.as_str());
        let field = |of: &serde_json::Map<String, Value>, name: &str| {
            time_ms(of.get(name).and_then(Value::as_str), source.zone)
        };
        let first = || source.file.rows.iter().find_map(|row| field(&row.fields, "timestamp"));
        let begun_ms = field(&source.file.head, "created_at").or_else(first).unwrap_or(0);
        let header = HeaderFields {
            session: ids.session(),
            key: source.key,
            timestamp_ms: begun_ms,
            cwd: source.cwd,
            parent_session: None,
        };
        let mut bytes = Vec::new();
        push_line(&mut bytes, &with_field(&header_line(&header), SOURCE, &json!(digest(source)).to_string()));
        Self { source, ids, transcript: Transcript::default(), bytes, last_ms: begun_ms, shown: 0 }
    }

    /// Writes a message; gives its id.
    fn row(&mut self, row: &Row) -> Arc<str> {
        let said_ms = time_ms(row.text_of("timestamp"), self.source.zone).unwrap_or(0);
        self.last_ms = later(self.last_ms, said_ms);
        let head = Head {
            id: self.ids.entry().to_string().into(),
            parent: self.transcript.append_parent().map(Arc::from),
            timestamp_ms: self.last_ms,
        };
        let original = if row.exact { row.text.clone() } else { json!(row.text).to_string() };
        let note = || EntryKind::Silent(Note::Custom { kind: MESSAGE.into(), data: None });
        let kind = entry_kind(row);
        self.shown += usize::from(kind.is_some());
        let line = kind.as_ref().and_then(|kind| message_line(&head, kind));
        let line = match line {
            Some(line) => with_field(&line, FIELD, &original),
            None => with_field(&custom_line(&head, MESSAGE, None), "data", &original),
        };
        push_line(&mut self.bytes, &line);
        let id = Arc::clone(&head.id);
        self.transcript.push(Entry::new(head, kind.unwrap_or_else(note)));
        id
    }

    /// What nanobot has consolidated is a compaction that keeps what nanobot replays.
    fn compaction(&mut self, ids: &[Arc<str>], now_ms: u64) {
        let file = self.source.file;
        let metadata = file.metadata();
        let summary = metadata.get("_last_summary").and_then(|last| last.get("text")).and_then(Value::as_str);
        if file.consolidated() == 0 && summary.is_none() {
            return;
        }
        let details = json!({"nanobot": {"lastConsolidated": file.consolidated()}});
        let compaction = CompactionFields {
            summary: summary.unwrap_or_default(),
            first_kept: ids.get(file.replayed_from()).map(|id| &**id),
            details: Some(&details),
            ..CompactionFields::default()
        };
        self.add(now_ms, |pen| pen.compact(&compaction).ok());
    }

    fn add(&mut self, now_ms: u64, write: impl FnOnce(&mut Pen<'_>) -> Option<Addition>) {
        let ids = &mut self.ids;
        let mut next = || ids.entry();
        let written = write(&mut Pen::new(self.transcript.tree(), &mut next, later(self.last_ms, now_ms)));
        if let Some(Addition { line, entry }) = written {
            push_line(&mut self.bytes, &line);
            self.transcript.push(entry);
        }
    }
}

fn message_line(head: &Head, kind: &EntryKind) -> Option<String> {
    match kind {
        EntryKind::User(user) => Some(user_line(head, user)),
        EntryKind::Assistant(assistant) => Some(assistant_line(head, assistant)),
        EntryKind::ToolResult(result) => Some(tool_result_line(head, result)),
        EntryKind::Shown(_)
        | EntryKind::Compaction { .. }
        | EntryKind::BranchSummary(_)
        | EntryKind::Reset { .. }
        | EntryKind::Silent(_)
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => None,
    }
}

/// The line of an object with one field more, whose value is JSON as it stands.
fn with_field(line: &str, name: &str, json: &str) -> String {
    let fields = line.strip_suffix('}').unwrap_or(line);
    format!("{fields},\"{name}\":{json}}}")
}
