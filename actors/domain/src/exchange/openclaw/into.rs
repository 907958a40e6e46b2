//! OpenClaw transcript → transcript of ours.

use serde_json::{Map, Value, json};

use super::SESSION;
use crate::exchange::{Remark, SeededIds, Transcribed, push_line};
use crate::ids::SessionKey;
use crate::time::iso_ms;
use crate::transcript::object::Object;
use crate::transcript::{Addition, Header, Pen, ProblemKind, Transcript, read_lines};

/// What a session is made of.
#[derive(Debug, Clone, Copy)]
pub struct Source<'a> {
    /// Its transcript.
    pub bytes: &'a [u8],
    /// Its key.
    pub key: &'a SessionKey,
    /// Its id, for a transcript without a header.
    pub id: &'a str,
    /// Its entry in `sessions.json`.
    pub entry: Option<&'a Map<String, Value>>,
}

/// Makes a transcript. What is there stays as it is; what is new stands in the first line and behind the last one.
pub fn transcribe(source: &Source<'_>) -> Transcribed {
    let mut transcript = read_lines(source.bytes);
    let mut bytes = Vec::with_capacity(source.bytes.len() + 1024);
    let (first, rest) = match source.bytes.iter().position(|byte| *byte == b'\n') {
        Some(end) => source.bytes.split_at(end + 1),
        None => (source.bytes, &[][..]),
    };
    let mut remarks = remarks(&transcript);
    match named(first, source.key) {
        Some(header) => {
            push_line(&mut bytes, &header);
            bytes.extend_from_slice(rest);
        }
        None => {
            push_line(&mut bytes, &new_header(source, transcript.header.as_ref()));
            bytes.extend_from_slice(source.bytes);
            remarks.push(Remark::at(1, "no session header; one was put in front"));
        }
    }
    if bytes.last() != Some(&b'\n') {
        bytes.push(b'\n');
    }
    let tree = transcript.tree();
    let messages = tree.positions().filter(|at| tree.kind(*at).role().is_some()).count();
    if let Some(entry) = source.entry {
        for line in what_the_store_says(source.key, entry, &mut transcript) {
            push_line(&mut bytes, &line);
        }
    }
    Transcribed { bytes, messages, remarks }
}

/// The header line with the session's key, if this is one.
fn named(line: &[u8], key: &SessionKey) -> Option<String> {
    let line = std::str::from_utf8(line).ok()?.trim_start_matches('\u{feff}');
    let mut header: Object<'_> = serde_json::from_str(line).ok()?;
    let is_text = |name: &str, is: fn(&str) -> bool| {
        header.get(name).and_then(|raw| serde_json::from_str::<String>(raw.get()).ok()).is_some_and(|text| is(&text))
    };
    if !is_text("type", |kind| kind == "session") || !is_text("id", |id| !id.is_empty()) {
        return None;
    }
    header.set("sessionKey", key);
    Some(header.line().trim_end().to_owned())
}

fn new_header(source: &Source<'_>, found: Option<&Header>) -> String {
    let id = found.map_or(source.id, |header| &header.id);
    let made = found.map_or(0, |header| header.timestamp_ms);
    let cwd = found.map_or("", |header| &header.cwd);
    let version = found.map_or(3, |header| header.version);
    let header = json!({"type": "session", "version": version, "id": id, "timestamp": iso_ms(made), "cwd": cwd});
    named(header.to_string().as_bytes(), source.key).unwrap_or_else(|| header.to_string())
}

fn remarks(transcript: &Transcript) -> Vec<Remark> {
    let said = |what| match what {
        ProblemKind::NotJson => Some("not JSON; stays in the file, is not read"),
        ProblemKind::TooLong => Some("too long; stays in the file, is not read"),
        // Said when the header is made.
        ProblemKind::HeaderMissing => None,
    };
    let problems = transcript.problems.iter();
    let mut remarks: Vec<Remark> =
        problems.filter_map(|problem| Some(Remark::at(problem.line, said(problem.what)?))).collect();
    let more = transcript.problems_total.saturating_sub(transcript.problems.len());
    if more > 0 {
        remarks.push(Remark::of(format!("{more} more lines that are not read")));
    }
    remarks
}

/// The session's name, if its transcript has none, and all else of its entry.
fn what_the_store_says(key: &SessionKey, entry: &Map<String, Value>, transcript: &mut Transcript) -> Vec<String> {
    let mut ids = SeededIds::new("openclaw", key.as_str());
    let at = entry.get("updatedAt").and_then(Value::as_u64).unwrap_or(0);
    let mut lines = Vec::new();
    let mut add = |transcript: &mut Transcript, write: &dyn Fn(&mut Pen<'_>) -> Addition| {
        let mut next = || ids.entry();
        let Addition { line, entry } = write(&mut Pen::new(transcript.tree(), &mut next, at));
        transcript.push(entry);
        lines.push(line);
    };
    let text = |name: &str| entry.get(name).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    if let Some(name) = text("label").or_else(|| text("displayName")).filter(|_| transcript.tree().name().is_none()) {
        add(transcript, &|pen| pen.rename(name));
    }
    let data = json!({"key": key, "entry": entry});
    add(transcript, &|pen| pen.custom(SESSION, Some(&data)));
    lines
}
