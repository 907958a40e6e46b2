use proptest::prelude::*;
use serde_json::{Map, Value};

use super::*;
use crate::chat::{Arguments, AssistantMessage, Content, StopReason, ToolCall, ToolResult, Usage};
use crate::ids::{SessionId, SessionKey, ToolCallId};
use crate::transcript::{
    AssistantEntry, Head, HeaderFields, ToolResultEntry, TurnClose, UserEntry, UserMark, assistant_line, custom_line,
    header_line, leaf_line, tool_result_line, turn_record, user_line,
};

const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#;

fn turn(number: u128) -> TurnId {
    TurnId(uuid::Uuid::from_u128(number))
}

fn head(id: &str, parent: Option<&str>) -> Head {
    Head { id: id.into(), parent: parent.map(Arc::from), timestamp_ms: 1_795_985_609_123 }
}

fn note(id: &str, parent: &str) -> String {
    format!(r#"{{"type":"label","id":"{id}","parentId":{parent},"targetId":"x"}}"#)
}

fn file(lines: &[String]) -> Transcript {
    read_lines(format!("{HEADER}\n{}\n", lines.join("\n")).as_bytes())
}

#[track_caller]
fn check_path(lines: &[String], expected: &[&str], append_parent: Option<&str>) {
    let transcript = file(lines);
    let path: Vec<&str> = transcript.path_to_leaf().iter().map(|entry| &*entry.id).collect();
    assert_eq!(path, expected);
    assert_eq!(transcript.append_parent(), append_parent);
}

fn user(text: &str, number: u128) -> UserEntry {
    let mark = UserMark { turn: turn(number), idempotency_key: format!("ws:m{number}").into(), body_hash: 0xab };
    UserEntry { content: [Content::text(text)].into(), mark: Some(mark) }
}

fn answer(text: &str, number: u128, end: Option<TurnClose>) -> AssistantEntry {
    AssistantEntry {
        message: Arc::new(AssistantMessage {
            text: text.to_owned(),
            reasoning: Some("hm".to_owned()),
            calls: Vec::new(),
            stop: StopReason::Stop,
            usage: Usage { input_tokens: 10, output_tokens: 3, cached_tokens: 4 },
            provider: "offline".into(),
            model: "echo".into(),
            error: None,
        }),
        turn: Some(turn(number)),
        end,
        transcript_only: false,
    }
}

#[test]
fn lines_have_the_documented_form() {
    assert_eq!(
        user_line(&head("00a1", None), &user("hi \u{1}\"", 1)),
        r#"{"type":"message","id":"00a1","parentId":null,"timestamp":"2026-11-29T20:53:29.123Z","message":{"role":"user","content":[{"type":"text","text":"hi \u0001\""}],"timestamp":1795985609123,"idempotencyKey":"ws:m1","turnId":"00000000-0000-0000-0000-000000000001","bodyHash":"00000000000000ab"}}"#
    );
    assert_eq!(
        leaf_line(&head("b", Some("a")), None, Some("a")),
        r#"{"type":"leaf","id":"b","parentId":"a","timestamp":"2026-11-29T20:53:29.123Z","targetId":null,"appendParentId":"a"}"#
    );
    assert_eq!(
        custom_line(&head("b", Some("a")), "note", Some(&Value::from(1))),
        r#"{"type":"custom","customType":"note","data":1,"id":"b","parentId":"a","timestamp":"2026-11-29T20:53:29.123Z"}"#
    );
    let line = assistant_line(&head("b", Some("a")), &answer("yes", 1, Some(TurnClose::Done)));
    let value: Value = serde_json::from_str(&line).unwrap();
    assert_eq!(value["message"]["usage"]["input"], 6);
    assert_eq!(value["message"]["usage"]["totalTokens"], 13);
    assert_eq!(value["message"]["turnEnd"], "done");
    assert_eq!(value["message"]["content"][0]["type"], "thinking");
}

#[test]
fn what_is_written_is_read_back() {
    let key = SessionKey::new("cli:direct").unwrap();
    let session = SessionId(uuid::Uuid::from_u128(7));
    let asking = user("hi", 1);
    let mut calling = answer("", 1, None);
    let message = Arc::make_mut(&mut calling.message);
    message.calls = vec![
        ToolCall { id: ToolCallId("c1".into()), name: "a".to_owned(), arguments: Arguments::Object(Map::new()) },
        ToolCall {
            id: ToolCallId("c2".into()),
            name: "b".to_owned(),
            arguments: Arguments::Malformed { text: "{".to_owned(), problem: "cut".to_owned() },
        },
    ];
    message.stop = StopReason::ToolUse;
    let image = Content::Image { data: "AAAA".into(), mime: "image/png".to_owned() };
    let result = ToolResultEntry {
        result: Arc::new(ToolResult {
            call: ToolCallId("c1".into()),
            name: "a".to_owned(),
            content: vec![Content::text("ok"), image],
            is_error: true,
        }),
        turn: Some(turn(1)),
    };
    let lines = [
        header_line(&HeaderFields { session, key: &key, timestamp_ms: 5, cwd: "/w", parent_session: None }),
        user_line(&head("a", None), &asking),
        assistant_line(&head("b", Some("a")), &calling),
        tool_result_line(&head("c", Some("b")), &result),
    ];
    let transcript = read_lines(lines.join("\n").as_bytes());
    assert!(transcript.problems.is_empty());
    let header = transcript.header.as_ref().unwrap();
    assert_eq!((header.version, header.timestamp_ms), (3, 5));
    assert_eq!((header.id.as_str(), header.session_key.as_deref()), (&*session.to_string(), Some("cli:direct")));
    let mut built = Transcript::default();
    for (at, kind) in [
        (head("a", None), EntryKind::User(asking)),
        (head("b", Some("a")), EntryKind::Assistant(Box::new(calling))),
        (head("c", Some("b")), EntryKind::ToolResult(result)),
    ] {
        built.push(Entry::new(at, kind));
    }
    assert_eq!(transcript.entries(), built.entries());
    assert_eq!(built.append_parent(), Some("c"));
    assert_eq!(built.last_ms(), 1_795_985_609_123);
}

#[test]
fn damage_is_counted_and_read_around() {
    let text = format!(
        "{HEADER}\n{}{}\nnonsense\n{{\"type\":\"message\",\"id\":\"c\",\"parentId\":\"b\",\"message\":{{\"role\":\"user\",\"content\":\"tab\there \\ud800 \u{1}\"}}}}\n\n42\n{}",
        note("a", "null"),
        note("b", "\"a\""),
        "{\"type\":\"message\",\"id\""
    );
    let transcript = read_lines(text.as_bytes());
    let lines: Vec<usize> = transcript.problems.iter().map(|problem| problem.line).collect();
    assert_eq!((lines, transcript.problems_total), (vec![3, 7], 2));
    let path = transcript.path_to_leaf();
    assert_eq!(path.len(), 3);
    let EntryKind::User(said) = &path[2].kind else { panic!("a user entry was expected") };
    assert_eq!(*said.content, [Content::text("tab\there \u{fffd} \u{1}")]);
    assert_eq!(transcript.entries()[3].kind, EntryKind::Opaque);
    let place = transcript.tree().place(crate::transcript::Position(3));
    assert_eq!(text.get(place.start as usize..place.end as usize), Some("42"));
    assert!(read_lines(b"").problems.is_empty());
    assert_eq!(read_lines(b"\0\0\0\n\0").problems_total, 2);
    assert!(read_lines(format!("\u{feff}{HEADER}\r\n").as_bytes()).problems.is_empty());
    let zeros = read_lines(format!("{HEADER}\n{}\0\0", note("a", "null")).as_bytes());
    assert_eq!((zeros.entries().len(), zeros.problems_total), (1, 1));
}

#[test]
fn a_header_elsewhere_is_used() {
    let transcript = read_lines(format!("{}\n{HEADER}\n{HEADER}\n", note("a", "null")).as_bytes());
    assert_eq!(transcript.problems[0], crate::transcript::Problem { line: 1, what: ProblemKind::HeaderMissing });
    assert!(transcript.header.is_some());
    assert_eq!(transcript.entries().len(), 2);
}

#[test]
fn the_leaf_follows_the_lines() {
    let leaf = |target: &str| format!(r#"{{"type":"leaf","id":"l","parentId":"b","targetId":{target}}}"#);
    let (a, b) = (note("a", "null"), note("b", "\"a\""));
    check_path(&[a.clone(), b.clone()], &["a", "b"], Some("b"));
    check_path(&[a.clone(), b.clone(), leaf("\"a\"")], &["a"], Some("a"));
    check_path(&[a.clone(), b.clone(), leaf("null")], &[], None);
    check_path(&[a.clone(), b.clone(), leaf("\"zz\"")], &["a", "b"], Some("b"));
    check_path(&[a.clone(), b.clone(), leaf("7")], &["a", "b"], Some("b"));
    // A child of a leaf row hangs off its target; of an invalid one, off that row's own parent.
    check_path(&[a.clone(), b.clone(), leaf("\"a\""), note("c", "\"l\"")], &["a", "c"], Some("c"));
    check_path(&[a.clone(), b.clone(), leaf("\"zz\""), note("c", "\"l\"")], &["a", "b", "c"], Some("c"));
    // A later branch wins.
    check_path(&[a.clone(), b.clone(), note("c", "\"a\"")], &["a", "c"], Some("c"));
    // A new root begins anew; one that says nothing follows the leaf.
    check_path(&[a.clone(), b.clone(), note("c", "null")], &["c"], Some("c"));
    check_path(&[a.clone(), b.clone(), r#"{"type":"label","id":"c"}"#.to_owned()], &["a", "b", "c"], Some("c"));
}

#[test]
fn side_entries_and_unknown_records_move_the_cursor_only() {
    let (a, b) = (note("a", "null"), note("b", "\"a\""));
    let side = r#"{"type":"label","id":"s","parentId":"b","appendMode":"side"}"#.to_owned();
    check_path(&[a.clone(), b.clone(), side.clone()], &["a", "b"], Some("s"));
    check_path(&[a.clone(), b.clone(), side, note("c", "\"s\"")], &["a", "b", "c"], Some("c"));
    let unknown = r#"{"type":"novelty","id":"u","parentId":"b"}"#.to_owned();
    check_path(&[a.clone(), b.clone(), unknown.clone()], &["a", "b"], Some("u"));
    check_path(&[a.clone(), b.clone(), unknown, note("c", "\"u\"")], &["a", "b", "c"], Some("c"));
}

#[test]
fn orphans_and_cycles_end_the_walk() {
    check_path(&[note("a", "\"gone\""), note("b", "\"a\"")], &["a", "b"], Some("b"));
    check_path(&[note("a", "\"b\""), note("b", "\"a\"")], &["a", "b"], Some("b"));
    check_path(&[note("a", "\"a\"")], &["a"], Some("a"));
}

#[test]
fn recent_ids_come_oldest_first_and_bounded() {
    let mut lines = vec![HEADER.to_owned()];
    for number in 0..1005 {
        lines.push(user_line(&head("a", None), &user("hi", number)));
        lines.push(note("n", "null"));
    }
    let bytes = lines.join("\n");
    let recent = recent_ids(bytes.as_bytes(), true);
    assert_eq!((recent.len(), recent[0].turn, recent[999].turn), (RECENT_MAX, turn(5), turn(1004)));
    assert_eq!(recent[0].idempotency_key, "ws:m5");
    assert_eq!(recent[0].body_hash, 0xab);
    let last = lines[lines.len() - 2].as_str();
    assert_eq!(recent_ids(last.as_bytes(), true).len(), 1);
    assert_eq!(recent_ids(last.as_bytes(), false).len(), 0);
    assert_eq!(recent_ids(format!("cut\n{last}\n").as_bytes(), false).len(), 1);
}

#[test]
fn a_turn_is_told_from_its_entries() {
    let mut transcript = Transcript::default();
    let mut push = |id: &str, kind: EntryKind| {
        let parent = transcript.append_parent().map(Arc::from);
        transcript.push(Entry::new(Head { id: id.into(), parent, timestamp_ms: 1 }, kind));
    };
    push("a", EntryKind::User(user("one", 1)));
    push("b", EntryKind::Assistant(Box::new(answer("let me see", 1, None))));
    push("c", EntryKind::Assistant(Box::new(answer("done", 1, Some(TurnClose::Done)))));
    push("d", EntryKind::User(user("two", 2)));
    let first = turn_record(&transcript, turn(1)).unwrap();
    assert_eq!((first.end, first.text.as_str()), (Some(TurnClose::Done), "done"));
    assert_eq!((first.usage.output_tokens, &*first.model), (6, "echo"));
    let second = turn_record(&transcript, turn(2)).unwrap();
    assert_eq!((second.end, second.stop), (None, None));
    assert_eq!(turn_record(&transcript, turn(3)), None);
}

proptest! {
    #[test]
    fn no_bytes_panic(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        let transcript = read_lines(&bytes);
        let _ = (transcript.path_to_leaf(), recent_ids(&bytes, false));
    }

    #[test]
    fn any_tree_of_lines_has_a_finite_path(
        lines in proptest::collection::vec((0usize..6, "[a-e]", "(null|\"[a-f]\"|3|\"\")"), 0..24)
    ) {
        let kinds = ["label", "leaf", "novelty", "compaction", "custom_message", "message"];
        let lines: Vec<String> = lines.into_iter().map(|(kind, id, link)| format!(
            r#"{{"type":"{}","id":"{id}","parentId":{link},"targetId":{link},"appendMode":"{}"}}"#,
            kinds[kind], if kind == 3 { "side" } else { "" }
        )).collect();
        let transcript = file(&lines);
        prop_assert_eq!(transcript.entries().len(), lines.len());
        prop_assert!(transcript.path_to_leaf().len() <= lines.len());
    }

    #[test]
    fn any_text_survives_the_file(text in "\\PC{0,30}|[\\x00-\\x7f]{0,30}") {
        let entry = user(&text, 1);
        let transcript = read_lines(user_line(&head("a", None), &entry).as_bytes());
        prop_assert_eq!(&transcript.entries()[0].kind, &EntryKind::User(entry));
    }
}
