use std::collections::HashSet;
use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::chat::{Arguments, AssistantMessage, Content, StopReason, ToolCall, ToolResult, Usage};
use crate::ids::{ToolCallId, TurnId};
use crate::transcript::{
    AssistantEntry, EntryKind, Head, Note, Position, ToolResultEntry, Transcript, UserEntry, UserMark,
};

fn id(text: &str) -> ToolCallId {
    ToolCallId(text.into())
}

pub(crate) fn user(text: &str) -> EntryKind {
    EntryKind::User(UserEntry { content: [Content::text(text)].into(), mark: None })
}

fn mark(turn: TurnId) -> UserMark {
    UserMark { turn, idempotency_key: "ws:1".into(), body_hash: 1, accepted_ms: 0, into: None, command: false }
}

fn command(text: &str) -> EntryKind {
    let mark = UserMark { command: true, ..mark(TurnId(uuid::Uuid::from_u128(99))) };
    EntryKind::User(UserEntry { content: [Content::text(text)].into(), mark: Some(mark) })
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
    let message = AssistantMessage {
        text: text.to_owned(),
        reasoning: None,
        calls: calls.iter().map(|(id, name)| call(id, name)).collect(),
        stop,
        usage: Usage::default(),
        asked_tokens: 0,
        provider: "p".into(),
        model: "m".into(),
        error: None,
    };
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
    let summary = "u:The conversation before this point, in short:\n<summary>\nS\n</summary>";
    let talk = || vec![user("one"), assistant("1", StopReason::Stop, &[]), user("two")];
    let with = |boundary| {
        let mut kinds = talk();
        kinds.push(boundary);
        kinds.push(user("three"));
        kinds
    };
    check(with(compaction("S", Some("2"))), &[summary, "u:two", "u:three"]);
    check(with(compaction("S", Some("1"))), &[summary, "a:1()", "u:two", "u:three"]);
    check(with(compaction("S", Some("3"))), &[summary, "u:three"]);
    check(with(compaction("S", Some("gone"))), &[summary, "u:three"]);
    check(with(EntryKind::Reset { first_kept: None }), &["u:three"]);
    check(with(EntryKind::Reset { first_kept: Some("1".into()) }), &["u:two", "u:three"]);
    let mut twice = with(compaction("old", None));
    twice.extend([compaction("S", None), user("four")]);
    check(twice, &[summary, "u:four"]);
}

#[test]
fn the_budget_keeps_the_newest_turns() {
    let kinds = vec![
        user("one"),
        assistant("1", StopReason::Stop, &[]),
        user("two"),
        assistant("2", StopReason::Stop, &[]),
        user("three"),
    ];
    let transcript = transcript(kinds);
    let path = transcript.path_to_leaf();
    for (budget, expected, left_out) in [
        (1000, vec!["u:one", "a:1()", "u:two", "a:2()", "u:three"], 0),
        (16, vec!["u:two", "a:2()", "u:three"], 1),
        (15, vec!["u:three"], 2),
        (0, vec!["u:three"], 2),
    ] {
        let history = select(&path, budget);
        assert_eq!(
            (told(history.messages.iter()), history.turns_left_out),
            (expected.iter().map(|s| (*s).to_owned()).collect(), left_out)
        );
        assert_eq!(history.tokens, history.messages.iter().map(message_tokens).sum::<u64>());
    }
}

pub(crate) fn kinds() -> impl Strategy<Value = Vec<EntryKind>> {
    let ids = prop::sample::select(vec!["a", "b", "c", ""]);
    let stops = prop::sample::select(vec![
        StopReason::Stop,
        StopReason::Length,
        StopReason::ToolUse,
        StopReason::Error,
        StopReason::Aborted,
    ]);
    let names = prop::sample::select(vec!["t", ""]);
    let calls = prop::collection::vec((ids.clone(), names), 0..4);
    let kind = prop_oneof![
        4 => "[x ]{0,60}".prop_map(|text| user(&text)),
        4 => ("[x ]{0,20}", stops, calls).prop_map(|(text, stop, calls)| assistant(&text, stop, &calls)),
        6 => (ids, "x{0,80}").prop_map(|(call, text)| result(call, &text)),
        1 => ("[s ]{0,40}", prop::option::of(0usize..12)).prop_map(|(summary, kept)| {
            compaction(&summary, kept.map(|at| at.to_string()).as_deref())
        }),
        1 => prop::option::of(0usize..12)
            .prop_map(|kept| EntryKind::Reset { first_kept: kept.map(|at| at.to_string().into()) }),
        1 => "[s ]{0,20}".prop_map(EntryKind::BranchSummary),
        1 => Just(EntryKind::Silent(Note::Withheld)),
        1 => "[x ]{0,20}".prop_map(|text| command(&text)),
        1 => "[x ]{0,20}".prop_map(|text| command_answer(&text)),
    ];
    prop::collection::vec(kind, 0..24)
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

/// The rules that providers insist on.
pub(crate) fn assert_legal<'m>(messages: impl Iterator<Item = &'m Message>) -> Result<(), TestCaseError> {
    let mut messages = messages.peekable();
    prop_assert!(messages.peek().is_none_or(|first| matches!(first, Message::User(_))));
    let mut open: Vec<ToolCallId> = Vec::new();
    let mut ids = HashSet::new();
    let mut cut = false;
    for message in messages {
        prop_assert!(
            !cut || matches!(message, Message::User(_)),
            "an answer that was cut goes on in a message of its own"
        );
        cut = matches!(message, Message::Assistant(answer) if answer.is_cut());
        match message {
            Message::ToolResult(result) => {
                prop_assert!(!open.is_empty() && open.remove(0) == result.call);
            }
            Message::User(content) => {
                prop_assert!(open.is_empty() && !content.is_empty());
                ids.clear();
            }
            Message::Assistant(message) => {
                prop_assert!(open.is_empty() && (!message.text.is_empty() || !message.calls.is_empty()));
                open = message.calls.iter().map(|call| call.id.clone()).collect();
                for call in &message.calls {
                    prop_assert!(!call.name.trim().is_empty() && ids.insert(call.id.clone()));
                }
            }
        }
    }
    prop_assert!(open.is_empty());
    Ok(())
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

proptest! {
    #[test]
    fn what_is_kept_between_turns_changes_no_request(
        turns in prop::collection::vec((kinds(), any::<bool>()), 1..4),
        budget in 0u64..300,
    ) {
        let mut kept = Kept::default();
        let mut grown = Transcript::default();
        for (number, (kinds, ours)) in turns.into_iter().enumerate() {
            let turn = TurnId(uuid::Uuid::from_u128(number as u128));
            // A request before each entry, as if a round of the model began there.
            for kind in kinds {
                let kind = if ours { of_turn(kind, number as u128) } else { kind };
                let parent = grown.append_parent().map(Arc::from);
                let head = Head { id: grown.entries().len().to_string().into(), parent, timestamp_ms: 1 };
                let own: Vec<Entry> = kept.follow(&grown, turn).into_iter().cloned().collect();
                let own: Vec<&Entry> = own.iter().collect();
                let expected = select(&grown.path_to_leaf(), budget);
                prop_assert_eq!(kept.select(&grown, turn, &own, budget), expected);
                grown.push(Entry::new(head, kind));
            }
        }
    }

    #[test]
    fn a_part_that_suffices_shows_what_the_whole_shows(
        kinds in kinds(),
        budget in 0u64..200,
        limit in prop_oneof![0u64..400, Just(u64::MAX)],
    ) {
        let whole = transcript(kinds);
        let shown = whole.tree().shown(&whole.tree().path());
        let entry = |at: Position| &whole.entries()[at.0 as usize];
        let chosen = newest(whole.tree(), &shown, |at| entry_tokens(entry(at)), limit, None);
        prop_assert!(limit < u64::MAX || chosen == shown);
        let part = Transcript::part(chosen.into_iter().map(|at| entry(at).clone()));
        let part = part.path_to_leaf();
        if limit == u64::MAX || suffices(&part, budget) {
            let (of_part, of_whole) = (select(&part, budget), select(&whole.path_to_leaf(), budget));
            prop_assert_eq!((of_part.messages, of_part.tokens), (of_whole.messages, of_whole.tokens));
        }
    }

    #[test]
    fn every_transcript_and_budget_gives_a_legal_request(kinds in kinds(), budget in 0u64..200) {
        let transcript = transcript(kinds);
        let path = transcript.path_to_leaf();
        let history = select(&path, budget);
        assert_legal(history.messages.iter())?;
        prop_assert_eq!(history.tokens, history.messages.iter().map(message_tokens).sum::<u64>());
        let users = history.messages.iter().filter(|message| matches!(message, Message::User(_))).count();
        prop_assert!(history.tokens <= budget || users <= 1);
        prop_assert_eq!(&select(&path, budget), &history);
        let all = repair(&path).messages;
        assert_legal(all.iter())?;
        prop_assert_eq!(history.messages.is_empty(), all.is_empty());
        prop_assert_eq!(history.messages.iter().next_back(), all.last());
    }
}
