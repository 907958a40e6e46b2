use std::convert::Infallible;

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::chat::{Content, StopReason};
use crate::history::tests::{assert_legal, assistant, compaction, kinds, result, told, transcript, user};
use crate::history::{Render, Runtime, select};
use crate::ids::{SessionKey, TurnId};
use crate::keys::Key;
use crate::transcript::{Note, Transcript, UserEntry, UserMark};

const LONG: &str = "a long message that takes many more tokens than what is said in its place, again and again and again, \
                    until nobody wants to read it any more, which is when it is left out of the conversation at last";

fn label(target: usize, label: &str) -> EntryKind {
    EntryKind::Silent(Note::Label { target: target.to_string().into(), label: Some(label.into()) })
}

fn planned(transcript: &Transcript, keep: Keep<'_>, summary: Option<&str>) -> Result<Plan, CompactError<Infallible>> {
    plan(transcript.tree(), keep, summary, |at| Ok(transcript.entries().get(at.0 as usize).cloned()))
}

/// Tokens of what the model is shown of it, summary included.
fn tokens(transcript: &Transcript) -> u64 {
    repair(&transcript.path_to_leaf()).tokens()
}

fn compacted(mut transcript: Transcript, plan: &Plan) -> Transcript {
    let parent = transcript.append_parent().map(Arc::from);
    let id: Arc<str> = format!("c{}", transcript.entries().len()).into();
    let first_kept = plan.first_kept.clone().or_else(|| Some(id.clone()));
    let kind = EntryKind::Compaction { summary: plan.summary.clone(), first_kept };
    transcript.push(Entry::new(Head { id, parent, timestamp_ms: 1 }, kind));
    transcript
}

/// Two turns with tools, then a short one: 0 user, 1 call, 2 result, 3 answer, 4 user, 5 calls, 6 7 results, 8 answer,
/// 9 user, 10 answer.
fn three_turns() -> Vec<EntryKind> {
    vec![
        user(LONG),
        assistant("", StopReason::ToolUse, &[("a", "t")]),
        result("a", LONG),
        assistant("one", StopReason::Stop, &[]),
        user("second"),
        assistant("", StopReason::ToolUse, &[("a", "t"), ("b", "t")]),
        result("a", LONG),
        result("b", LONG),
        assistant("two", StopReason::Stop, &[]),
        user("third"),
        assistant("three", StopReason::Stop, &[]),
    ]
}

#[test]
fn boundaries_stand_at_legal_places_and_keep_at_least_what_was_asked_for() {
    for (keep, first) in [
        (Keep::Messages(1), Some("9")),
        (Keep::Messages(2), Some("9")),
        (Keep::Messages(3), Some("4")),
        (Keep::Messages(5), Some("4")),
        (Keep::Messages(7), Some("4")),
        (Keep::Messages(0), None),
        (Keep::Nothing, None),
        (Keep::Since(2), None),
    ] {
        let plan = planned(&transcript(three_turns()), keep, Some("short")).unwrap();
        assert_eq!((plan.first_kept.as_deref(), plan.summary.as_str()), (first, "short"), "{keep:?}");
        assert!(plan.tokens_after < plan.tokens_before);
    }
    for keep in [Keep::Messages(8), Keep::Messages(11), Keep::Messages(u32::MAX), Keep::Since(0), Keep::Since(1)] {
        let refused = planned(&transcript(three_turns()), keep, Some("short"));
        assert_eq!(refused, Err(CompactError::NothingToLeaveOut), "{keep:?}");
    }
    assert_eq!(planned(&Transcript::default(), Keep::Nothing, None), Err(CompactError::NothingToLeaveOut));
}

#[test]
fn a_person_who_speaks_between_a_call_and_its_result_is_no_legal_place() {
    let kinds = vec![
        user(LONG),
        assistant(LONG, StopReason::ToolUse, &[("a", "t")]),
        user("wait"),
        result("a", "found"),
        user("go on"),
        assistant("done", StopReason::Stop, &[]),
    ];
    let first = |keep| planned(&transcript(kinds.clone()), keep, Some("s")).map(|plan| plan.first_kept);
    assert_eq!(first(Keep::Messages(2)), Ok(Some("4".into())));
    assert_eq!(first(Keep::Messages(4)), Err(CompactError::NothingToLeaveOut));
}

#[test]
fn what_is_marked_and_hidden_is_quoted_once_also_the_next_time() {
    let mut kinds = three_turns();
    kinds.extend([label(3, "the answer"), label(9, "kept")]);
    let before = transcript(kinds);
    let plan = planned(&before, Keep::Messages(2), None).unwrap();
    assert_eq!(
        plan.summary,
        "Messages left out here: 9, the last of 1970-01-01T00:00:00.001Z.\n\nMarked as important:\n\
         - the answer (assistant, 1970-01-01T00:00:00.001Z):\n> one"
    );
    let mut after = compacted(before, &plan);
    let history = select(&after.path_to_leaf(), u64::MAX);
    assert_eq!(told(history.messages.iter()).len(), 2);
    assert_eq!(plan.tokens_after, tokens(&after));
    for (number, kind) in [user(LONG), assistant(LONG, StopReason::Stop, &[])].into_iter().enumerate() {
        after.follow(Entry::new(Head { id: format!("n{number}").into(), parent: None, timestamp_ms: 5 }, kind));
    }
    let again = planned(&after, Keep::Nothing, None).unwrap();
    assert_eq!(again.summary.matches("the answer").count(), 1);
    assert!(again.summary.contains("- kept (user"), "{}", again.summary);
    assert!(again.summary.starts_with("Messages left out here: 13, the last of 1970-01-01T00:00:00.005Z."));
    let said = planned(&after, Keep::Nothing, Some("in the caller's words")).unwrap();
    assert!(said.summary.starts_with("in the caller's words\n\nMarked as important:\n- the answer"));
    // A summary that others wrote stays.
    let others = transcript(vec![user(LONG), compaction("theirs", None), user(LONG), user("x")]);
    let plan = planned(&others, Keep::Messages(1), None).unwrap();
    assert_eq!(plan.summary, "theirs\n\nMessages left out here: 2, the last of 1970-01-01T00:00:00.001Z.");
}

#[test]
fn what_a_reset_ended_stays_ended() {
    let reset = EntryKind::Reset { first_kept: None };
    let kinds = vec![user("old"), label(0, "old"), reset, user(LONG), user(LONG), user("new")];
    let plan = planned(&transcript(kinds), Keep::Messages(1), None).unwrap();
    assert_eq!(plan.summary, "Messages left out here: 2, the last of 1970-01-01T00:00:00.001Z.");
}

#[test]
fn quotes_are_bounded_and_a_longer_conversation_is_refused() {
    let mut kinds: Vec<EntryKind> = (0..20).map(|_| user(&"word ".repeat(2000))).collect();
    kinds.extend((0..20).map(|at| label(at, "x")));
    let plan = planned(&transcript(kinds), Keep::Nothing, None).unwrap();
    assert!(plan.summary.chars().count() < EXCERPTS_CHARS_MAX + 500);
    assert!(plan.summary.contains("more that came earlier)"));
    let short = transcript(vec![user("a"), user("b")]);
    assert!(matches!(planned(&short, Keep::Messages(1), Some(LONG)), Err(CompactError::NotShorter { .. })));
}

proptest! {
    #[test]
    fn the_request_afterwards_is_legal_and_smaller(
        kinds in kinds(),
        labels in prop::collection::vec((0_usize..24, "[a-z]{1,4}"), 0..3),
        keep in prop_oneof![Just(Keep::Nothing), (0_u32..20).prop_map(Keep::Messages), (0_u64..3).prop_map(Keep::Since)],
        summary in prop::option::of("[a-z ]{0,20}"),
        stays in prop_oneof![(0_u32..20).prop_map(Stays::Messages), (0_u64..200).prop_map(Stays::Tokens)],
        room in 0_u64..300,
    ) {
        let mut kinds = kinds;
        kinds.extend(labels.iter().map(|(target, text)| label(*target, text)));
        let before = transcript(kinds);
        let part = cut_of(&before, stays, Spared::Last, room);
        if let Some(part) = &part {
            let shown = select(&Transcript::part(part.shown.clone()).path_to_leaf(), u64::MAX);
            assert_legal(shown.messages.iter())?;
            prop_assert!(!shown.messages.is_empty());
        }
        let behind = part.as_ref().map(|part| Keep::Behind(&part.first, &part.last));
        if let Ok(plan) = planned(&before, behind.unwrap_or(keep), summary.as_deref()) {
            prop_assert!(tokens(&before) <= plan.tokens_before);
            let after = compacted(before, &plan);
            let request = select(&after.path_to_leaf(), u64::MAX);
            prop_assert!(tokens(&after) <= plan.tokens_after);
            prop_assert!(plan.tokens_after < plan.tokens_before);
            assert_legal(request.messages.iter())?;
        }
    }
}

fn cut_of(transcript: &Transcript, stays: Stays, spared: Spared, room: u64) -> Option<Cut> {
    let entry = |at: Position| Ok::<_, Infallible>(transcript.entries().get(at.0 as usize).cloned());
    let room = Room { part: room, all: u64::MAX };
    let Ok(cut) = cut(transcript.tree(), stays, spared, room, &Render::default(), entry);
    cut
}

fn running(turn: u128) -> Spared {
    Spared::Running(TurnId(uuid::Uuid::from_u128(turn)))
}

#[test]
fn what_is_told_with_each_message_counts() {
    let said = |at: u128| {
        let turn = TurnId(uuid::Uuid::from_u128(at));
        let mark = UserMark {
            turn,
            idempotency_key: "ws:1".into(),
            body_hash: 1,
            accepted_ms: 1_767_225_600_000,
            into: None,
            command: false,
        };
        EntryKind::User(UserEntry { content: [Content::text("x")].into(), mark: Some(mark), event: None })
    };
    let kinds = (0..10).flat_map(|at| [said(at), assistant("y", StopReason::Stop, &[])]).collect();
    let all = transcript(kinds);
    let key = Key::from(&SessionKey::new("websocket:a").unwrap());
    let runtime = Runtime { key: &key, zone: &TimeZone::UTC };
    let render = Render { runtime: Some(runtime), ..Render::default() };
    let path = all.path_to_leaf();
    let (plain, told) = (repair(&path).tokens(), render.repair(&path, path.len()).tokens());
    assert!(told > plain * 2, "{told} {plain}");
    let entry = |at: Position| Ok::<_, Infallible>(all.entries().get(at.0 as usize).cloned());
    let room = Room { part: u64::MAX, all: u64::MAX };
    let Ok(part) = cut(all.tree(), Stays::Tokens(told / 2), Spared::Last, room, &render, entry);
    let part = part.expect("a half of it has to go");
    assert!((told * 4 / 10..=told * 6 / 10).contains(&part.tokens), "{} of {told}", part.tokens);
}

#[test]
fn a_part_ends_between_turns_leaves_what_is_spared_and_fits_the_room() {
    let all = transcript(three_turns());
    let last = |stays, spared, room| cut_of(&all, stays, spared, room).map(|cut| cut.last);
    let (first, second) = (Some("3".to_owned()), Some("8".to_owned()));
    for (stays, spared, room, expected) in [
        (Stays::Messages(2), Spared::Last, u64::MAX, second.clone()),
        (Stays::Messages(3), Spared::Last, u64::MAX, first.clone()),
        (Stays::Messages(8), Spared::Last, u64::MAX, None),
        (Stays::Messages(0), Spared::Last, u64::MAX, second.clone()),
        (Stays::Messages(0), running(9), u64::MAX, Some("10".to_owned())),
        (Stays::Tokens(20), Spared::Last, u64::MAX, second.clone()),
        (Stays::Tokens(0), Spared::Last, u64::MAX, second),
        (Stays::Tokens(u64::MAX), Spared::Last, u64::MAX, None),
        // The first turn alone is more than the room, or the second does not fit beside it.
        (Stays::Tokens(0), Spared::Last, 1, first.clone()),
        (Stays::Tokens(0), Spared::Last, 150, first),
    ] {
        assert_eq!(last(stays, spared, room), expected, "{stays:?} {spared:?} {room}");
    }
    assert_eq!(cut_of(&Transcript::default(), Stays::Tokens(0), Spared::Last, 9), None);
}

#[test]
fn what_is_more_than_all_parts_together_goes_first_as_it_is_and_only_its_beginning_is_read_for_it() {
    let all = transcript((0..1_000).flat_map(|_| [user(LONG), assistant("yes", StopReason::Stop, &[])]).collect());
    let one = tokens(&transcript(vec![user(LONG), assistant("yes", StopReason::Stop, &[])]));
    let cut = |room: Room| {
        let entry = |at: Position| Ok::<_, Infallible>(all.entries().get(at.0 as usize).cloned());
        let Ok(cut) = cut(all.tree(), Stays::Tokens(100 * one), Spared::Last, room, &Render::default(), entry);
        cut.map(|cut| (cut.messages, cut.tokens / one, cut.shown.len(), cut.as_it_is)).unwrap()
    };
    // Of 1000 turns 900 have to go.
    assert_eq!(cut(Room { part: 50 * one, all: 250 * one }), (1_300, 650, 100, true));
    assert_eq!(cut(Room { part: 50 * one, all: 900 * one }), (100, 50, 100, false));
    assert_eq!(cut(Room { part: 50 * one, all: 899 * one }), (100, 50, 100, false), "one turn more is no reason");
    assert_eq!(cut(Room { part: 0, all: 0 }), (1_800, 900, 2, true));
}

#[test]
fn the_next_part_begins_where_the_last_one_ended_also_inside_of_what_was_kept() {
    let before = transcript(three_turns());
    let one = cut_of(&before, Stays::Messages(3), Spared::Last, u64::MAX).unwrap();
    assert_eq!((one.first.as_str(), one.last.as_str(), one.shown.len()), ("0", "3", 4));
    let plan = planned(&before, Keep::Behind(&one.first, &one.last), Some("first summary")).unwrap();
    assert_eq!(plan.first_kept.as_deref(), Some("4"));
    let after = compacted(before, &plan);
    assert_eq!(planned(&after, Keep::Behind(&one.first, &one.last), Some("x")), Err(CompactError::Changed));
    // What is kept stands before the boundary, and goes with its summary.
    let two = cut_of(&after, Stays::Messages(2), Spared::Last, u64::MAX).unwrap();
    assert_eq!((two.first.as_str(), two.last.as_str()), ("4", "8"));
    let part = Transcript::part(two.shown);
    let shown = repair(&part.path_to_leaf());
    assert_eq!(shown.summary.as_deref(), Some("first summary"));
    let shown = told(&shown.messages);
    assert!(shown[0] == "u:second" && shown.len() == 5, "{shown:?}");
}

#[test]
fn messages_count_from_the_last_boundary() {
    for (kinds, count) in [
        (Vec::new(), 0),
        (three_turns(), 11),
        ([three_turns(), vec![compaction("s", Some("9"))]].concat(), 0),
        ([three_turns(), vec![compaction("s", None), user("a"), label(2, "x"), user("b")]].concat(), 2),
        (
            [vec![compaction("s", None)], three_turns(), vec![EntryKind::Reset { first_kept: None }, user("a")]]
                .concat(),
            1,
        ),
    ] {
        assert_eq!(behind_boundary(transcript(kinds).tree()), count);
    }
}
