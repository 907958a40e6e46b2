mod budget;
mod random;
mod shown;

use std::sync::Arc;

use super::*;
use crate::chat::{Arguments, AssistantMessage, Content, StopReason, ToolCall, ToolResult};
use crate::ids::{SessionKey, ToolCallId, TurnId};
use crate::keys::Key;
use crate::transcript::{AssistantEntry, EntryKind, Head, ToolResultEntry, Transcript, UserEntry, UserMark};

pub(crate) use random::{assert_legal, kinds};

fn id(text: &str) -> ToolCallId {
    ToolCallId(text.into())
}

pub(crate) fn user(text: &str) -> EntryKind {
    EntryKind::User(UserEntry { content: [Content::text(text)].into(), mark: None, event: None })
}

fn mark(turn: TurnId) -> UserMark {
    UserMark { turn, idempotency_key: "ws:1".into(), body_hash: 1, accepted_ms: 0, into: None, command: false }
}

fn command(text: &str) -> EntryKind {
    let mark = UserMark { command: true, ..mark(TurnId(uuid::Uuid::from_u128(99))) };
    EntryKind::User(UserEntry { content: [Content::text(text)].into(), mark: Some(mark), event: None })
}

fn command_answer(text: &str) -> EntryKind {
    let EntryKind::Assistant(mut answer) = assistant(text, StopReason::Stop, &[]) else { panic!("it is one") };
    answer.transcript_only = true;
    EntryKind::Assistant(answer)
}

fn call(id_text: &str, name: &str) -> ToolCall {
    ToolCall { id: id(id_text), name: name.to_owned(), arguments: Arguments::Object(serde_json::Map::new()) }
}

pub(crate) fn assistant(text: &str, stop: StopReason, calls: &[(&str, &str)]) -> EntryKind {
    let calls = calls.iter().map(|(id, name)| call(id, name)).collect();
    let message = AssistantMessage { calls, stop, ..AssistantMessage::new(text, "p", "m") };
    EntryKind::Assistant(Box::new(AssistantEntry {
        message: message.into(),
        turn: None,
        end: None,
        transcript_only: false,
    }))
}

pub(crate) fn result(call: &str, text: &str) -> EntryKind {
    let content = vec![Content::text(text)];
    let result = ToolResult { call: id(call), name: "t".to_owned(), content, is_error: false };
    EntryKind::ToolResult(ToolResultEntry { result: result.into(), turn: None })
}

fn tool_result(call: &str, name: &str, text: &str, is_error: bool, pictured: bool) -> EntryKind {
    let mut content = vec![Content::text(text)];
    content.extend(pictured.then(|| picture(None)));
    let result = ToolResult { call: id(call), name: name.to_owned(), content, is_error };
    EntryKind::ToolResult(ToolResultEntry { result: result.into(), turn: None })
}

fn picture(path: Option<&str>) -> Content {
    Content::Image { data: "AAAA".into(), mime: "image/png".to_owned(), path: path.map(Arc::from) }
}

fn pictured(text: &str, path: Option<&str>) -> EntryKind {
    EntryKind::User(UserEntry { content: [Content::text(text), picture(path)].into(), mark: None, event: None })
}

pub(crate) fn compaction(summary: &str, first_kept: Option<&str>) -> EntryKind {
    EntryKind::Compaction { summary: summary.to_owned(), first_kept: first_kept.map(Arc::from) }
}

/// Entries with the ids 0, 1, 2 ... in a chain.
pub(crate) fn transcript(kinds: Vec<EntryKind>) -> Transcript {
    let mut transcript = Transcript::default();
    for (at, kind) in kinds.into_iter().enumerate() {
        let parent = transcript.append_parent().map(Arc::from);
        transcript.push(Entry::new(Head { id: at.to_string().into(), parent, timestamp_ms: 1 }, kind));
    }
    transcript
}

/// `u:text`, `a:text(call,call)`, `r:call=text`.
pub(crate) fn told<'m>(messages: impl IntoIterator<Item = &'m Message>) -> Vec<String> {
    messages
        .into_iter()
        .map(|message| match message {
            Message::User(content) => format!("u:{}", crate::chat::plain_text(content)),
            Message::Assistant(message) => {
                let calls: Vec<String> = message.calls.iter().map(|call| call.id.to_string()).collect();
                format!("a:{}({})", message.text, calls.join(","))
            }
            Message::ToolResult(result) => format!("r:{}={}", result.call, crate::chat::plain_text(&result.content)),
        })
        .collect()
}

#[track_caller]
fn check(kinds: Vec<EntryKind>, expected: &[&str]) {
    let transcript = transcript(kinds);
    let history = select(&transcript.path_to_leaf(), u64::MAX);
    assert_eq!(told(history.messages.iter()), expected);
}

#[track_caller]
fn shown_at(render: &Render<'_>, kinds: Vec<EntryKind>, own_at: usize) -> Vec<Message> {
    let transcript = transcript(kinds);
    render.repair(&transcript.path_to_leaf(), own_at).messages
}

/// Marks messages as those of a turn, as far as they can be.
fn of_turn(kind: EntryKind, number: u128) -> EntryKind {
    let turn = TurnId(uuid::Uuid::from_u128(number));
    match kind {
        EntryKind::User(user) => {
            let mark = UserMark { command: user.is_command(), ..mark(turn) };
            EntryKind::User(UserEntry { mark: Some(mark), ..user })
        }
        EntryKind::Assistant(mut assistant) => {
            assistant.turn = Some(turn);
            EntryKind::Assistant(assistant)
        }
        EntryKind::ToolResult(result) => EntryKind::ToolResult(ToolResultEntry { turn: Some(turn), ..result }),
        other @ (EntryKind::Shown(_)
        | EntryKind::Compaction { .. }
        | EntryKind::BranchSummary(_)
        | EntryKind::Reset { .. }
        | EntryKind::Silent(_)
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque) => other,
    }
}

#[test]
fn only_a_user_begins() {
    check(vec![assistant("x", StopReason::Stop, &[]), result("c", "r"), user("hi")], &["u:hi"]);
    check(vec![assistant("x", StopReason::Stop, &[])], &[]);
    check(vec![user(" ")], &["u:(an empty message)"]);
}

#[test]
fn commands_and_their_answers_are_not_shown() {
    check(
        vec![
            command("/help"),
            command_answer("all of them"),
            user("hi"),
            assistant("", StopReason::ToolUse, &[("1", "t")]),
            command("/status"),
            command_answer("fine"),
            result("1", "one"),
            assistant("yes", StopReason::Stop, &[]),
            command("/help"),
        ],
        &["u:hi", "a:(1)", "r:1=one", "a:yes()"],
    );
    check(vec![command("/help"), command_answer("all of them")], &[]);
}

#[test]
fn results_stand_behind_their_calls_in_order() {
    check(
        vec![
            user("hi"),
            assistant("", StopReason::ToolUse, &[("1", "t"), ("2", "t")]),
            result("2", "two"),
            result("1", "one"),
            result("1", "again"),
            result("9", "orphan"),
            assistant("done", StopReason::Stop, &[]),
            result("2", "late"),
        ],
        &["u:hi", "a:(1,2)", "r:1=one", "r:2=two", "a:done()"],
    );
}

#[test]
fn calls_without_result_get_one() {
    let (first, second) = (format!("r:1={NOT_RUN}"), format!("r:2={NOT_RUN}"));
    check(
        vec![user("hi"), assistant("", StopReason::ToolUse, &[("1", "t"), ("2", "t"), ("3", " ")]), user("and?")],
        &["u:hi", "a:(1,2)", &first, &second, "u:and?"],
    );
    check(vec![user("hi"), assistant("", StopReason::ToolUse, &[("1", "")]), result("1", "x")], &["u:hi"]);
}

#[test]
fn repeated_call_ids_are_told_apart_within_a_turn() {
    let round = |text| [assistant("", StopReason::ToolUse, &[("c", "t")]), result("c", text)];
    let mut kinds = vec![user("hi")];
    kinds.extend(round("one"));
    kinds.extend(round("two"));
    kinds.push(user("next"));
    kinds.extend(round("three"));
    check(kinds, &["u:hi", "a:(c)", "r:c=one", "a:(c_2)", "r:c_2=two", "u:next", "a:(c)", "r:c=three"]);
}

#[test]
fn failed_and_cancelled_messages_become_notes() {
    let cut = format!("a:part\n{CANCELLED_PLACEHOLDER}()");
    let failed = format!("a:{FAILED_PLACEHOLDER}()");
    check(
        vec![
            user("hi"),
            assistant("part", StopReason::Aborted, &[("1", "t")]),
            user("again"),
            assistant("a long notice", StopReason::Error, &[]),
        ],
        &["u:hi", &cut, "u:again", &failed],
    );
}

#[test]
fn the_latest_boundary_rules() {
    let begun = format!("u:{SUMMARISED}");
    let talk = || vec![user("one"), assistant("1", StopReason::Stop, &[]), user("two")];
    let with = |boundary| {
        let mut kinds = talk();
        kinds.push(boundary);
        kinds.push(user("three"));
        kinds
    };
    check(with(compaction("S", Some("2"))), &["u:two\n\nthree"]);
    check(with(compaction("S", Some("1"))), &[&begun, "a:1()", "u:two\n\nthree"]);
    check(with(compaction("S", Some("3"))), &["u:three"]);
    check(with(compaction("S", Some("gone"))), &["u:three"]);
    check(with(EntryKind::Reset { first_kept: None }), &["u:three"]);
    check(with(EntryKind::Reset { first_kept: Some("1".into()) }), &["u:two\n\nthree"]);
    let mut twice = with(compaction("old", None));
    twice.extend([compaction("S", None), user("four")]);
    check(twice.clone(), &["u:four"]);
    let transcript = transcript(twice);
    assert_eq!(repair(&transcript.path_to_leaf()).summary.as_deref(), Some("S"));
}

#[test]
fn the_parts_of_an_answer_that_was_cut_are_one_message() {
    let transcript = transcript(vec![
        user("one"),
        assistant("a ", StopReason::Length, &[]),
        assistant("b", StopReason::Length, &[]),
        assistant("c", StopReason::Stop, &[]),
        user("two"),
        assistant("d", StopReason::Length, &[]),
        assistant("", StopReason::Aborted, &[]),
        user("three"),
        assistant("e ", StopReason::Length, &[]),
        assistant("f", StopReason::ToolUse, &[("x", "t")]),
        result("x", "done"),
        assistant("g", StopReason::Length, &[]),
    ]);
    let history = select(&transcript.path_to_leaf(), 1000);
    let cancelled = format!("a:d\n{CANCELLED_PLACEHOLDER}()");
    let expected = ["u:one", "a:a bc()", "u:two", &cancelled, "u:three", "a:e f(x)", "r:x=done", "a:g()"];
    assert_eq!(told(history.messages.iter()), expected);
}
