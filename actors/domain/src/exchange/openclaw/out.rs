//! Transcript of ours → OpenClaw transcript and its entry in `sessions.json`.

use serde_json::{Map, Value, json};

use super::SESSION;
use super::store::is_file_id;
use crate::exchange::{SeededIds, push_line};
use crate::ids::SessionKey;
use crate::time::iso_ms;
use crate::transcript::copy::{Step, fork};
use crate::transcript::object::Object;
use crate::transcript::{EntryKind, Kind, Note, Transcript, read_lines};

/// What the model is told in place of what a reset cut off, where there are no resets.
const RESET_SUMMARY: &str = "The conversation was begun anew here.";

/// A session for OpenClaw.
#[derive(Debug, Clone, PartialEq)]
pub struct Exported {
    /// Its id: the header's, and the stem of its file.
    pub id: String,
    /// The whole transcript.
    pub bytes: Vec<u8>,
    /// Its entry in `sessions.json`.
    pub entry: Map<String, Value>,
    /// How many messages are in it.
    pub messages: usize,
}

/// Which agent a session belongs to, and its key there. Keys that have no agent are the main one's.
pub fn place_of(key: &SessionKey) -> (String, String) {
    let key = key.as_str();
    let mut parts = key.splitn(3, ':');
    let agent = match (parts.next(), parts.next(), parts.next()) {
        (Some("agent"), Some(agent), Some(_)) if is_agent(agent) => agent,
        _ if key.starts_with("hook:") || key == "global" || key == "unknown" => "main",
        _ => return ("main".to_owned(), format!("agent:main:{}", key.to_lowercase())),
    };
    (agent.to_owned(), key.to_owned())
}

fn is_agent(id: &str) -> bool {
    let legal = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"_-".contains(&byte);
    !id.is_empty() && id.len() <= 64 && id.bytes().all(legal) && !id.starts_with(['_', '-'])
}

/// The id that a session has, if it can be part of a file name; else one of its own.
pub fn id_of(bytes: &[u8], key: &SessionKey) -> String {
    let first = bytes.split(|byte| *byte == b'\n').next().unwrap_or(bytes);
    let id = read_lines(first).header.map(|header| header.id).filter(|id| is_file_id(id));
    id.unwrap_or_else(|| own_id(key))
}

/// An id that no other key's session has: for one whose id another session has, too.
pub fn own_id(key: &SessionKey) -> String {
    SeededIds::new("export", key.as_str()).session().to_string()
}

/// Makes the files of the session `id` of the bytes of its transcript.
pub fn export(bytes: &[u8], id: &str) -> Exported {
    let transcript = read_lines(bytes);
    let header = transcript.header.as_ref();
    let mut line = json!({
        "type": "session", "version": 3, "id": id,
        "timestamp": iso_ms(header.map_or(0, |header| header.timestamp_ms)),
        "cwd": header.map_or("", |header| &header.cwd),
    });
    if let Some(parent) = header.and_then(|header| header.parent_session.as_ref()) {
        line["parentSession"] = json!(parent);
    }
    let mut out = Vec::with_capacity(bytes.len());
    push_line(&mut out, &line.to_string());
    // A session without entries is its header.
    for line in lines(&transcript, bytes) {
        push_line(&mut out, &line);
    }
    let tree = transcript.tree();
    let messages = tree.positions().filter(|at| tree.kind(*at).role().is_some()).count();
    let entry = entry(&transcript, id);
    Exported { id: id.to_owned(), bytes: out, entry, messages }
}

fn lines(transcript: &Transcript, bytes: &[u8]) -> Vec<String> {
    let tree = transcript.tree();
    let steps = fork(tree, transcript.header.as_ref().map_or(3, |header| header.version)).unwrap_or_default();
    let piece = |step: &Step| {
        let line = step.line(|place| {
            let (start, end) = (usize::try_from(place.start).ok(), usize::try_from(place.end).ok());
            let range = start.zip(end).map(|(start, end)| start..end);
            range.and_then(|range| bytes.get(range)).map(<[u8]>::to_vec).ok_or(())
        });
        line.ok().flatten()
    };
    let positions = tree.positions().zip(&steps);
    positions
        .filter_map(|(at, step)| {
            let line = piece(step)?;
            let kept = || tree.first_kept(at).map_or(tree.id(at), |kept| tree.id(kept));
            Some(if tree.kind(at) == Kind::Reset { as_compaction(&line, kept()) } else { line })
        })
        .collect()
}

/// A compaction that keeps what the reset keeps.
fn as_compaction(line: &str, first_kept: &str) -> String {
    let Ok(mut entry) = serde_json::from_str::<Object<'_>>(line) else { return line.to_owned() };
    let reason = entry.get("reason").and_then(|raw| serde_json::from_str::<Value>(raw.get()).ok());
    entry.set("type", &"compaction");
    entry.set("summary", &RESET_SUMMARY);
    entry.set("firstKeptEntryId", &first_kept);
    entry.set("tokensBefore", &0);
    entry.remove("reason");
    entry.set("details", &json!({"greenroom": {"reset": reason}}));
    entry.line()
}

/// What the store is told: what it said before, if the session came from there.
fn entry(transcript: &Transcript, id: &str) -> Map<String, Value> {
    let said = transcript.entries().iter().rev().find_map(|entry| match &entry.kind {
        EntryKind::Silent(Note::Custom { kind, data: Some(data) }) if &**kind == SESSION => {
            let data: Value = serde_json::from_str(data).ok()?;
            data.get("entry").and_then(Value::as_object).cloned()
        }
        EntryKind::Silent(_)
        | EntryKind::User(_)
        | EntryKind::Assistant(_)
        | EntryKind::ToolResult(_)
        | EntryKind::Shown(_)
        | EntryKind::Compaction { .. }
        | EntryKind::BranchSummary(_)
        | EntryKind::Reset { .. }
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => None,
    });
    let mut entry = said.unwrap_or_default();
    let updated = entry.get("updatedAt").and_then(Value::as_u64).unwrap_or(0).max(transcript.last_ms());
    let mut set = |name: &str, value: Value| drop(entry.insert(name.to_owned(), value));
    set("sessionId", json!(id));
    set("updatedAt", json!(updated));
    set("sessionFile", json!(format!("{id}.jsonl")));
    if let Some(name) = transcript.tree().name() {
        entry.entry("label").or_insert_with(|| json!(&**name));
    }
    entry
}
