//! Sessions of nanobot, and what nanobot 0.3.0 itself made of them: `tests/fixtures/nanobot/README.md`.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::path::{Path, PathBuf};

use domain::chat::{Message, plain_text};
use domain::exchange::Transcribed;
use domain::exchange::nanobot::{SessionFile, Source, export, name, transcribe};
use domain::history::{NOT_RUN, SUMMARISED, repair};
use domain::ids::SessionKey;
use domain::transcript::read_lines;
use jiff::tz::TimeZone;
use serde_json::Value;

struct Case {
    name: String,
    bytes: Vec<u8>,
    file: SessionFile,
    key: SessionKey,
    expected: Value,
}

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/nanobot")
}

/// The sessions of one part that nanobot itself lists.
fn cases(part: &str) -> Vec<Case> {
    let expected: Value = serde_json::from_slice(&std::fs::read(dir().join("expected.json")).unwrap()).unwrap();
    let sessions = dir().join(part).join("sessions/5f0c2a9e7b1d4c3e8a6f9b0d1c2e3f4a");
    let mut cases = Vec::new();
    for path in std::fs::read_dir(sessions).unwrap().map(|file| file.unwrap().path()) {
        let file_name = path.file_name().unwrap().to_str().unwrap();
        let Some(key) = file_name.strip_suffix(".jsonl").and_then(name::key_of) else { continue };
        let found = expected[part].as_object().into_iter().flatten().find(|(_, case)| case["file"] == file_name);
        let (name, expected) = found.map_or((file_name.to_owned(), Value::Null), |(n, e)| (n.clone(), e.clone()));
        let bytes = std::fs::read(path).unwrap();
        cases.push(Case { name, file: SessionFile::read(&bytes), bytes, key, expected });
    }
    cases.sort_by(|one, other| one.name.cmp(&other.name));
    assert!(cases.len() >= 4);
    cases
}

impl Case {
    fn transcribed(&self) -> Transcribed {
        let zone = TimeZone::UTC;
        transcribe(&Source { file: &self.file, key: &self.key, checkpoint: None, zone: &zone, cwd: "/w" })
    }
}

#[test]
fn what_came_from_nanobot_goes_back_byte_for_byte() {
    for case in cases("datadir").into_iter().chain(cases("datadir-0.3.5")) {
        let ours = case.transcribed();
        assert_eq!(ours.bytes, case.transcribed().bytes, "{}: a second import differs", case.name);
        let back = export(&ours.bytes, &case.key, &TimeZone::UTC);
        assert_eq!(String::from_utf8_lossy(&back.bytes), String::from_utf8_lossy(&case.bytes), "{}", case.name);
        assert_eq!(back.consolidated, case.file.consolidated(), "{}", case.name);
        assert!(read_lines(&ours.bytes).problems.is_empty(), "{}", case.name);
    }
}

#[test]
fn damaged_files_keep_all_their_messages_and_all_else_beside_them() {
    for case in cases("datadir-damaged") {
        let ours = case.transcribed();
        let back = export(&ours.bytes, &case.key, &TimeZone::UTC);
        let back = SessionFile::read(&back.bytes);
        let texts = |file: &SessionFile| file.rows.iter().map(|row| row.text.clone()).collect::<Vec<_>>();
        assert_eq!(texts(&back), texts(&case.file), "{}", case.name);
        assert_eq!(back.consolidated(), case.file.consolidated(), "{}", case.name);
        let load = &case.expected["load"];
        if !load.is_null() {
            assert_eq!(case.file.rows.len() as u64, load["message_count"], "{}", case.name);
            assert_eq!(case.file.consolidated() as u64, load["last_consolidated"], "{}", case.name);
        }
        // Each line of the source stands somewhere in ours, as it is or as JSON text.
        let text = String::from_utf8_lossy(&ours.bytes);
        for line in String::from_utf8_lossy(&case.bytes).lines().map(str::trim).filter(|line| !line.is_empty()) {
            let line = line.trim_start_matches('\u{feff}');
            let (quoted, compact) = (serde_json::to_string(line).unwrap(), compact(line));
            let is_kept = text.contains(line) || text.contains(&quoted) || text.contains(&compact);
            assert!(is_kept || line.contains('\u{fffd}') || line.contains("provider_state"), "{}: {line}", case.name);
        }
    }
}

fn compact(line: &str) -> String {
    serde_json::from_str::<Value>(line).map_or_else(|_| line.to_owned(), |value| value.to_string())
}

/// What both programs show of a message: its role, its text, the ids of calls.
fn shown(message: &Message) -> (String, String, Vec<String>) {
    match message {
        Message::User(said) => ("user".into(), plain_text(said), Vec::new()),
        Message::Assistant(said) => {
            let text = said.text.replace(['\u{2028}', '\u{c}'], "\n");
            let calls = said.calls.iter().map(|call| call.id.to_string()).collect();
            ("assistant".into(), text, calls)
        }
        Message::ToolResult(result) => ("tool".into(), plain_text(&result.content), vec![result.call.to_string()]),
    }
}

fn shown_there(message: &Value) -> (String, String, Vec<String>) {
    let content = &message["content"];
    let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
    let text = content.as_str().map_or_else(|| blocks.collect::<Vec<_>>().join("\n"), str::to_owned);
    let calls = message["tool_calls"].as_array().into_iter().flatten().chain(std::iter::once(&Value::Null));
    let mut ids: Vec<String> = calls.filter_map(|call| call["id"].as_str()).map(str::to_owned).collect();
    ids.extend(message["tool_call_id"].as_str().map(str::to_owned));
    (message["role"].as_str().unwrap().to_owned(), text.trim_start_matches('\n').to_owned(), ids)
}

/// The same, but for what we do on purpose: a conversation begins with a user, results stand in the order of their calls,
/// users and models take turns.
fn in_our_order(mut shown: Vec<(String, String, Vec<String>)>) -> Vec<(String, String, Vec<String>)> {
    let begin = shown.iter().position(|(role, ..)| role == "user").unwrap_or(shown.len());
    shown.drain(..begin);
    shown.retain(|(_, text, _)| text != NOT_RUN);
    for tools in shown.chunk_by_mut(|(one, ..), (other, ..)| one == "tool" && other == "tool") {
        tools.sort();
    }
    let mut joined: Vec<(String, String, Vec<String>)> = Vec::new();
    for (role, text, ids) in shown {
        match joined.last_mut() {
            Some(last) if last.0 == role && role != "tool" => last.1 = format!("{}\n\n{text}", last.1),
            Some(_) | None => joined.push((role, text, ids)),
        }
    }
    joined
}

#[test]
fn the_model_is_shown_what_nanobot_replays() {
    // nanobot cleans up texts of users while it replays; we show them as they were said. Of `long-line` only a digest is known.
    let cleaned = ["cli-apps", "commands", "long-line", "media", "mix-2", "mix-3", "mix-4", "mix-5", "unicode"];
    let mut compared = 0;
    for case in cases("datadir").iter().filter(|case| !cleaned.contains(&case.name.as_str())) {
        let ours = read_lines(&case.transcribed().bytes);
        let mut ours = repair(&ours.path_to_leaf()).messages;
        ours.retain(|message| shown(message).1 != SUMMARISED);
        let theirs = case.expected["history"].as_array().unwrap().iter().map(shown_there).collect();
        assert_eq!(in_our_order(ours.iter().map(shown).collect()), in_our_order(theirs), "{}", case.name);
        compared += 1;
    }
    assert!(compared >= 30, "{compared}");
}
