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
    let mark = UserMark {
        turn: turn(number),
        idempotency_key: format!("ws:m{number}").into(),
        body_hash: 0xab,
        accepted_ms: 5,
        into: None,
        command: false,
    };
    UserEntry { content: [Content::text(text)].into(), mark: Some(mark), event: None }
}

fn answer(text: &str, number: u128, end: Option<TurnClose>) -> AssistantEntry {
    AssistantEntry {
        message: Arc::new(AssistantMessage {
            reasoning: Some("hm".to_owned()),
            usage: Usage { input_tokens: 10, output_tokens: 3, cached_tokens: 4 },
            asked_tokens: 8,
            ..AssistantMessage::new(text, "offline", "echo")
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
        r#"{"type":"message","id":"00a1","parentId":null,"timestamp":"2026-11-29T20:53:29.123Z","message":{"role":"user","content":[{"type":"text","text":"hi \u0001\""}],"timestamp":5,"idempotencyKey":"ws:m1","turnId":"00000000-0000-0000-0000-000000000001","bodyHash":"00000000000000ab"}}"#
    );
    let mut steered = user("x", 1);
    steered.mark.iter_mut().for_each(|mark| (mark.into, mark.command) = (Some(turn(2)), true));
    assert_eq!(
        user_line(&head("00a1", None), &steered),
        r#"{"type":"message","id":"00a1","parentId":null,"timestamp":"2026-11-29T20:53:29.123Z","message":{"role":"user","content":[{"type":"text","text":"x"}],"timestamp":5,"idempotencyKey":"ws:m1","turnId":"00000000-0000-0000-0000-000000000001","bodyHash":"00000000000000ab","intoTurn":"00000000-0000-0000-0000-000000000002","command":true}}"#
    );
    assert_eq!(
        leaf_line(&head("b", Some("a")), None, Some("a")),
        r#"{"type":"leaf","id":"b","parentId":"a","timestamp":"2026-11-29T20:53:29.123Z","targetId":null,"appendParentId":"a"}"#
    );
    assert_eq!(
        custom_line(&head("b", Some("a")), "note", Some("1")),
        r#"{"type":"custom","customType":"note","data":1,"id":"b","parentId":"a","timestamp":"2026-11-29T20:53:29.123Z"}"#
    );
    let key = SessionKey::new("cli:direct").unwrap();
    let session = SessionId(uuid::Uuid::from_u128(7));
    let fields = HeaderFields { session, key: &key, timestamp_ms: 5, cwd: "/w", parent_session: Some("/s/old.jsonl") };
    let header = header_line(&fields);
    assert_eq!(
        header,
        r#"{"type":"session","version":3,"id":"00000000-0000-0000-0000-000000000007","timestamp":"1970-01-01T00:00:00.005Z","cwd":"/w","parentSession":"/s/old.jsonl","sessionKey":"cli:direct"}"#
    );
    assert_eq!(read_lines(header.as_bytes()).header.unwrap().parent_session.as_deref(), Some("/s/old.jsonl"));
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
    let image = Content::Image { data: "AAAA".into(), mime: "image/png".to_owned(), path: None };
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
fn a_command_is_read_back_known_again_and_not_shown() {
    let (mut asking, mut answering) = (user("/help", 1), answer("all of them", 1, Some(TurnClose::Done)));
    asking.mark.iter_mut().for_each(|mark| (mark.into, mark.command) = (Some(turn(2)), true));
    answering.transcript_only = true;
    let lines = [
        HEADER.to_owned(),
        user_line(&head("a", None), &asking),
        assistant_line(&head("b", Some("a")), &answering),
        user_line(&head("c", Some("b")), &user("hi", 3)),
    ];
    let bytes = lines.join("\n");
    let transcript = read_lines(bytes.as_bytes());
    let kinds: Vec<_> = transcript.entries().iter().map(|entry| entry.kind.clone()).collect();
    let assistant = EntryKind::Assistant(Box::new(answering));
    assert_eq!(kinds[..2], [EntryKind::User(asking), assistant]);
    let tree = transcript.tree();
    assert_eq!(tree.positions().map(|at| tree.kind(at)).next(), Some(Kind::Command));
    let shown = tree.shown(&tree.path());
    assert_eq!(shown.iter().map(|at| tree.id(*at)).collect::<Vec<_>>(), ["c"]);
    let known: Vec<_> = recent_ids(bytes.as_bytes(), true).into_iter().map(|recent| recent.turn).collect();
    assert_eq!(known, [turn(1), turn(3)]);
    assert_eq!(turn_record(&transcript, turn(1)).unwrap().text, "all of them");
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
    let half = r#"{"type":"message","id":"a","message":{"role":"user","content":"half \ud800 a pair"}}"#;
    let EntryKind::User(said) = &read_lines(half.as_bytes()).entries()[0].kind.clone() else { panic!("a user entry") };
    assert_eq!(*said.content, [Content::text("half \u{fffd} a pair")]);
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

/// Everything that the index and the contents of a file are.
fn pieces(bytes: &[u8], sizes: &[usize]) -> Transcript {
    let mut transcript = Transcript::default();
    let mut reader = Reader::default();
    let (mut rest, mut sizes) = (bytes, sizes.iter().cycle());
    while !rest.is_empty() {
        let size = sizes.next().map_or(rest.len(), |size| *size).clamp(1, rest.len());
        let (piece, behind) = rest.split_at(size);
        reader.push(piece, |record| transcript.insert(record));
        rest = behind;
        let come = bytes.len() - rest.len();
        let whole_lines = bytes[..come].iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        assert_eq!(reader.at(), whole_lines as u64);
    }
    let Findings { header, problems, problems_total } = reader.finish(|record| transcript.insert(record));
    Transcript { header, problems, problems_total, ..transcript }
}

/// Reading each entry by its place gives what reading the whole file gave.
#[track_caller]
fn check_places(bytes: &[u8], transcript: &Transcript) {
    let tree = transcript.tree();
    for at in tree.positions() {
        let place = tree.place(at);
        let bytes = &bytes[place.start as usize..place.end as usize];
        let entry = read_entry(tree, at, bytes);
        assert_eq!(entry.as_ref(), Some(&transcript.entries()[at.0 as usize]), "{}", String::from_utf8_lossy(bytes));
    }
}

#[test]
fn every_role_says_what_it_should() {
    let shown = |text: &str| EntryKind::Shown([Content::text(text)].into());
    let withheld = EntryKind::Silent(crate::transcript::Note::Withheld);
    for (message, kind, expected) in [
        (r#"{"role":"custom","customType":"x","content":"hi","display":false}"#, Kind::CustomRole, shown("hi")),
        (r#"{"role":"hookMessage","content":"hi"}"#, Kind::CustomRole, shown("hi")),
        (
            r#"{"role":"bashExecution","command":"ls","output":"a","exitCode":0}"#,
            Kind::Bash,
            shown("I ran `ls` in a shell. Its output:\na"),
        ),
        (r#"{"role":"bashExecution","command":"ls","excludeFromContext":true}"#, Kind::Bash, withheld.clone()),
        (r#"{"role":"branchSummary","summary":"s"}"#, Kind::OtherRole, EntryKind::BranchSummary("s".to_owned())),
        (r#"{"role":"compactionSummary","summary":"s"}"#, Kind::OtherRole, shown("s")),
        (r#"{"role":"system","content":"s"}"#, Kind::OtherRole, withheld.clone()),
        ("null", Kind::OtherRole, withheld),
    ] {
        let line = format!(r#"{{"type":"message","id":"a","parentId":null,"message":{message}}}"#);
        let transcript = read_lines(line.as_bytes());
        assert_eq!(transcript.tree().kind(crate::transcript::Position(0)), kind, "{message}");
        assert_eq!(transcript.entries()[0].kind, expected, "{message}");
        check_places(line.as_bytes(), &transcript);
    }
}

#[test]
fn an_entry_is_read_alone_by_its_place() {
    let user = |id: &str, text: &str| {
        format!(r#"{{"type":"message","id":"{id}","parentId":"o","message":{{"role":"user","content":"{text}"}}}}"#)
    };
    let lines = [
        HEADER.to_owned(),
        r#"{"type":"novelty","id":"o","parentId":null}"#.to_owned(),
        format!("{} \t{}", user("a", "one"), user("b", "two")),
        format!("{}{}", user("c", "raw \u{1}"), user("d", "half \\ud800")),
        r#" {"type":"compaction","id":"e","parentId":"b","summary":"s","firstKeptEntryId":"o"} "#.to_owned(),
        r#"{"type":"leaf","id":"l","parentId":"e","targetId":"zz"}"#.to_owned(),
        "\u{feff}42".to_owned(),
    ];
    let text = lines.join("\r\n");
    let transcript = read_lines(text.as_bytes());
    assert_eq!(transcript.entries().len(), 8);
    check_places(text.as_bytes(), &transcript);
    assert_eq!(read_entry(transcript.tree(), crate::transcript::Position(1), b"{}"), None);
    assert_eq!(read_entry(transcript.tree(), crate::transcript::Position(1), user("z", "").as_bytes()), None);
    assert_eq!(read_entry(transcript.tree(), crate::transcript::Position(99), b"{}"), None);
}

#[test]
fn a_file_of_version_1_goes_on_in_the_present_form() {
    let old_user = |text: &str| format!(r#"{{"type":"message","message":{{"role":"user","content":"{text}"}}}}"#);
    let mut text = [
        r#"{"type":"session","id":"old","timestamp":"2025-01-01T00:00:00.000Z"}"#,
        &old_user("one"),
        "broken",
        r#"{"type":"novelty"}"#,
        &old_user("two"),
        r#"{"type":"compaction","summary":"s","firstKeptEntryIndex":3}"#,
        &old_user("three"),
        "",
    ]
    .join("\n");
    let old = read_lines(text.as_bytes());
    let path = |transcript: &Transcript| -> Vec<String> {
        transcript.path_to_leaf().iter().map(|entry| entry.id.as_ref().to_owned()).collect()
    };
    assert_eq!(path(&old), ["00000001", "00000003", "00000004", "00000005"]);
    let shown = |transcript: &Transcript| transcript.tree().shown(&transcript.tree().path()).len();
    assert_eq!(shown(&old), 3, "two, the summary, three");
    check_places(text.as_bytes(), &old);
    // What is appended names what was read; the file is not rewritten.
    text.push_str(&user_line(&head("00a1", old.append_parent()), &user("four", 4)));
    text.push('\n');
    text.push_str(&leaf_line(&head("00a2", Some("00a1")), Some("00000003"), None));
    text.push('\n');
    let branched = read_lines(text.as_bytes());
    assert_eq!(path(&branched), ["00000001", "00000003"]);
    text.push_str(&user_line(&head("00a3", branched.append_parent()), &user("five", 5)));
    let grown = read_lines(text.as_bytes());
    assert_eq!(path(&grown), ["00000001", "00000003", "00a3"]);
    assert_eq!(grown.entries()[..5], old.entries()[..5]);
    check_places(text.as_bytes(), &grown);
}

#[test]
fn files_without_a_header_or_anything_are_read_and_go_on() {
    let lone = read_lines(b"{\"type\":\"message\",\"message\":{\"role\":\"user\",\"content\":\"x\"}}");
    assert_eq!((lone.entries().len(), lone.leaf()), (1, None), "without a header there is no version 1");
    let mut text = note("a", "null");
    assert_eq!(read_lines(text.as_bytes()).append_parent(), Some("a"));
    text.push('\n');
    text.push_str(HEADER);
    text.push('\n');
    text.push_str(&note("b", "\"a\""));
    let healed = read_lines(text.as_bytes());
    assert_eq!((healed.path_to_leaf().len(), healed.problems_total), (2, 1));
    assert!(healed.header.is_some());
    let empty = read_lines(b"");
    assert_eq!((empty.leaf(), empty.append_parent(), empty.entries().len()), (None, None, 0));
}

#[test]
fn a_line_that_is_too_long_is_left_out_and_counted() {
    let mut transcript = Transcript::default();
    let mut reader = Reader::default();
    let begin = format!("{HEADER}\n{}\n\"", note("a", "null"));
    reader.push(begin.as_bytes(), |record| transcript.insert(record));
    let part = vec![b'x'; 1 << 20];
    for _ in 0..=LINE_BYTES_MAX >> 20 {
        reader.push(&part, |record| transcript.insert(record));
    }
    let end = format!("\"\n{}\n", note("b", "\"a\""));
    reader.push(end.as_bytes(), |record| transcript.insert(record));
    assert_eq!(reader.problems(), [crate::transcript::Problem { line: 3, what: ProblemKind::TooLong }]);
    assert_eq!(reader.problems_total(), 1);
    assert_eq!(reader.header().map(|header| header.id.as_str()), Some("s"));
    let length = begin.len() + part.len() * (1 + (LINE_BYTES_MAX >> 20)) + end.len();
    assert_eq!(reader.at(), length as u64);
    assert_eq!(transcript.path_to_leaf().len(), 2);
    assert_eq!(transcript.tree().place(crate::transcript::Position(1)).end, length as u64 - 1);
}

proptest! {
    #[test]
    fn in_whatever_pieces_a_file_comes_it_is_the_same(
        lines in prop::collection::vec("(\\PC|[\\x00-\\x1f\"{}:]){0,12}", 0..6),
        ends in prop::sample::select(vec!["\n", "\r\n", "\n\n"]),
        sizes in prop::collection::vec(1usize..40, 1..6),
        ended in any::<bool>(),
    ) {
        let mut all = vec![HEADER.to_owned()];
        for (number, line) in lines.iter().enumerate() {
            all.push(line.clone());
            all.push(note(&format!("n{number}"), "null"));
        }
        let text = all.join(ends) + if ended { ends } else { "" };
        let whole = read_lines(text.as_bytes());
        let parts = pieces(text.as_bytes(), &sizes);
        prop_assert_eq!(parts.entries(), whole.entries());
        prop_assert_eq!((&parts.header, &parts.problems), (&whole.header, &whole.problems));
        for at in whole.tree().positions() {
            prop_assert_eq!(parts.tree().place(at), whole.tree().place(at));
        }
    }
}
