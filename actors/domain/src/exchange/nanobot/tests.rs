use jiff::tz::TimeZone;
use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::*;
use crate::exchange::Transcribed;
use crate::exchange::json::python_line;
use crate::ids::{EntryId, SessionKey, TurnId};
use crate::transcript::{CompactionFields, Head, Pen, UserEntry, UserMark, read_lines, user_line};

fn key() -> SessionKey {
    SessionKey::new("telegram:1").unwrap()
}

fn ours(file: &str) -> Transcribed {
    let file = SessionFile::read(file.as_bytes());
    transcribe(&Source { file: &file, key: &key(), checkpoint: None, zone: &TimeZone::UTC, cwd: "/w" })
}

fn back(bytes: &[u8]) -> SessionFile {
    SessionFile::read(&export(bytes, &key(), &TimeZone::UTC).bytes)
}

fn say(bytes: &mut Vec<u8>, id: u64, text: &str) {
    say_as(bytes, id, text, None);
}

fn say_as(bytes: &mut Vec<u8>, id: u64, text: &str, mark: Option<UserMark>) {
    let transcript = read_lines(bytes);
    let head = Head {
        id: EntryId(id).to_string().into(),
        parent: transcript.append_parent().map(Into::into),
        timestamp_ms: 1_795_985_609_123,
    };
    let user = UserEntry { content: [crate::chat::Content::text(text)].into(), mark, event: None };
    bytes.extend_from_slice(user_line(&head, &user).as_bytes());
    bytes.push(b'\n');
}

#[test]
fn a_command_stays_one() {
    let file = SessionFile::read(FILE.as_bytes());
    let mut bytes = ours(FILE).bytes;
    let rows = file.rows.len();
    let mark = UserMark {
        turn: TurnId(uuid::Uuid::from_u128(1)),
        idempotency_key: "telegram:1".into(),
        body_hash: 1,
        accepted_ms: 0,
        into: None,
        command: true,
    };
    say_as(&mut bytes, 77, "/help", Some(mark));
    let back = back(&bytes);
    assert!(back.rows.len() == rows + 1 && back.rows[rows].is_true("_command"));
}

const FILE: &str = concat!(
    r#"{"_type": "metadata", "key": "telegram:1", "created_at": "2026-03-02T08:15:00.120000", "#,
    r#""updated_at": "2026-03-02T08:16:00", "metadata": {"title": "T", "x": 1, "runtime_checkpoint": {}, "#,
    r#""_last_summary": {"text": "S"}}, "last_consolidated": 1}"#,
    "\n",
    r#"{"_type": "provider_state", "state": {"kind": "k"}}"#,
    "\n",
    r#"{"role": "user", "content": "one", "timestamp": "2026-03-02T08:15:30.000001"}"#,
    "\n",
    r#"{"role": "assistant", "content": "two", "tool_calls": [{"id": "c", "type": "function", "function": "#,
    r#"{"name": "f", "arguments": "{bad"}}], "thinking_blocks": [{"type": "thinking", "signature": "s"}], "new": [1]}"#,
    "\n",
);

#[test]
fn what_is_said_afterwards_follows_and_the_turn_that_was_under_way_is_forgotten() {
    let mut bytes = ours(FILE).bytes;
    assert_eq!(export(&bytes, &key(), &TimeZone::UTC).bytes, FILE.as_bytes());
    say(&mut bytes, 7, "three");
    let file = back(&bytes);
    let before: Vec<&str> = FILE.lines().skip(2).collect();
    assert_eq!(file.rows.iter().map(|row| row.text.as_str()).take(2).collect::<Vec<_>>(), before);
    assert_eq!(file.rows[2].text, r#"{"role": "user", "content": "three", "timestamp": "2026-11-29T20:53:29.123000"}"#);
    assert_eq!((file.consolidated(), &file.state), (1, &None));
    assert_eq!(file.metadata().keys().collect::<Vec<_>>(), ["title", "x", "_last_summary"]);
    assert_eq!(file.head["updated_at"], "2026-11-29T20:53:29.123000");
}

#[test]
fn a_compaction_of_ours_is_a_number_and_a_summary_and_a_reset_forgets() {
    let mut bytes = ours(FILE).bytes;
    say(&mut bytes, 7, "three");
    let transcript = read_lines(&bytes);
    let mut id = || EntryId(8);
    let kept = EntryId(7).to_string();
    let compaction = CompactionFields { summary: "until now", first_kept: Some(&kept), ..Default::default() };
    let line = Pen::new(transcript.tree(), &mut id, 0).compact(&compaction).unwrap().line;
    bytes.extend_from_slice(format!("{line}\n").as_bytes());
    let file = back(&bytes);
    assert_eq!((file.rows.len(), file.consolidated()), (3, 2));
    assert_eq!(file.metadata()["_last_summary"]["text"], "until now");
    let transcript = read_lines(&bytes);
    let mut id = || EntryId(9);
    let line = Pen::new(transcript.tree(), &mut id, 0).reset("new", None).unwrap().line;
    bytes.extend_from_slice(format!("{line}\n").as_bytes());
    say(&mut bytes, 10, "four");
    let exported = export(&bytes, &key(), &TimeZone::UTC);
    assert_eq!((exported.messages, exported.consolidated, exported.remarks.len()), (1, 0, 1));
}

#[test]
fn a_number_of_consolidated_messages_that_cannot_be_counts_as_none() {
    let file = |number: &str| FILE.replace(r#""last_consolidated": 1"#, &format!(r#""last_consolidated": {number}"#));
    for (number, consolidated) in [
        ("0", 0),
        ("1", 1),
        ("2", 2),
        ("3", 0),
        ("18446744073709551615", 0),
        ("-1", 0),
        ("1.5", 0),
        ("true", 0),
        (r#""1""#, 0),
        ("null", 0),
    ] {
        let text = file(number);
        let read = SessionFile::read(text.as_bytes());
        assert_eq!((read.consolidated(), read.rows.len()), (consolidated, 2), "{number}");
        assert!(read.replayed_from() <= consolidated, "{number}: nothing is hidden that was not summed up");
        assert_eq!(back(&ours(&text).bytes).rows.len(), 2, "{number}");
    }
}

#[test]
fn names_of_files() {
    assert_eq!(name::stem(&key()).unwrap(), "dGVsZWdyYW06MQ");
    assert_eq!(name::key_of("dGVsZWdyYW06MQ"), Some(key()));
    assert_eq!(name::key_of("dGVsZWdyYW06MQ="), None);
    assert_eq!(name::key_of("telegram_1"), None);
    assert_eq!((name::key_of_lossy("telegram_1"), name::key_of_lossy("notes")), (Some(key()), None));
    assert_eq!(name::stem(&SessionKey::new(&"k".repeat(400)).unwrap()), None);
}

/// Any JSON, with keys that mean something more often than others.
fn value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        any::<String>().prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 12, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::vec((field(), inner), 0..4).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

fn field() -> impl Strategy<Value = String> {
    const KNOWN: &[&str] =
        &["content", "tool_calls", "function", "arguments", "id", "text", "media", "timestamp", "_command"];
    prop_oneof![prop::sample::select(KNOWN).prop_map(str::to_owned), any::<String>()]
}

fn row() -> impl Strategy<Value = Map<String, Value>> {
    let role = prop::sample::select(&["user", "assistant", "tool", "system", "odd"][..]);
    (role, prop::collection::vec((field(), value()), 0..6)).prop_map(|(role, fields)| {
        let mut row: Map<String, Value> = fields.into_iter().filter(|(name, _)| name != "_type").collect();
        row.insert("role".into(), json!(role));
        row
    })
}

proptest! {
    #[test]
    fn every_message_comes_back(rows in prop::collection::vec(row(), 0..8), consolidated in 0..10_u64) {
        let mut file = python_line(&json!({"_type": "metadata", "key": "telegram:1", "metadata": {},
            "last_consolidated": consolidated})) + "\n";
        for row in &rows {
            file.push_str(&python_line(row));
            file.push('\n');
        }
        let ours = ours(&file);
        prop_assert!(read_lines(&ours.bytes).problems.is_empty());
        let back = export(&ours.bytes, &key(), &TimeZone::UTC);
        prop_assert_eq!(String::from_utf8(back.bytes).unwrap(), file);
    }

    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let file = SessionFile::read(&bytes);
        let made = transcribe(&Source { file: &file, key: &key(), checkpoint: Some(&bytes), zone: &TimeZone::UTC, cwd: "" });
        prop_assert_eq!(back(&made.bytes).rows.len(), file.rows.len());
    }

    #[test]
    fn exporting_any_transcript_does_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        export(&bytes, &key(), &TimeZone::UTC);
    }
}
