//! Any transcript, any budget.

use std::collections::HashSet;

use jiff::tz::TimeZone;
use proptest::prelude::*;

use super::*;
use crate::transcript::{Note, Position};

pub(crate) fn kinds() -> impl Strategy<Value = Vec<EntryKind>> {
    let ids = prop::sample::select(vec!["a", "b", "c", ""]);
    let stops = prop::sample::select(vec![
        StopReason::Stop,
        StopReason::Length,
        StopReason::ToolUse,
        StopReason::Error,
        StopReason::Aborted,
    ]);
    let long = "n".repeat(200);
    let names =
        ["t", "", "list dir!", "functions.list_dir", "list_dir ", "größe", "\u{1f980}", &long].map(str::to_owned);
    let names = prop::sample::select(names.to_vec());
    let calls = prop::collection::vec((ids.clone(), names), 0..4);
    let kind = prop_oneof![
        4 => "[x ]{0,60}".prop_map(|text| user(&text)),
        4 => ("[x ]{0,20}", stops, calls).prop_map(|(text, stop, calls)| {
            let calls: Vec<(&str, &str)> = calls.iter().map(|(id, name)| (*id, &**name)).collect();
            assistant(&text, stop, &calls)
        }),
        6 => (ids.clone(), "x{0,80}").prop_map(|(call, text)| result(call, &text)),
        2 => (ids, 100..800_usize, any::<bool>(), any::<bool>()).prop_map(|(call, chars, failed, picture)| {
            tool_result(call, "grep", &"y".repeat(chars), failed, picture)
        }),
        1 => ("[x ]{0,20}", any::<bool>()).prop_map(|(text, kept)| pictured(&text, kept.then_some("/m/a.png"))),
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

/// The rules that providers insist on.
pub(crate) fn assert_legal<'m>(messages: impl Iterator<Item = &'m Message>) -> Result<(), TestCaseError> {
    let mut messages = messages.peekable();
    prop_assert!(messages.peek().is_none_or(|first| matches!(first, Message::User(_))));
    let mut open: Vec<(ToolCallId, String)> = Vec::new();
    let mut ids = HashSet::new();
    let mut last: Option<&Message> = None;
    for message in messages {
        let alternates = !matches!(
            (last, message),
            (Some(Message::User(_)), Message::User(_)) | (Some(Message::Assistant(_)), Message::Assistant(_))
        );
        prop_assert!(alternates, "two of the same behind each other");
        last = Some(message);
        match message {
            Message::ToolResult(result) => {
                prop_assert!(!open.is_empty() && open.remove(0) == (result.call.clone(), result.name.clone()));
            }
            Message::User(content) => {
                prop_assert!(open.is_empty() && !content.is_empty());
                ids.clear();
            }
            Message::Assistant(message) => {
                prop_assert!(open.is_empty() && (!message.text.is_empty() || !message.calls.is_empty()));
                open = message.calls.iter().map(|call| (call.id.clone(), call.name.clone())).collect();
                for call in &message.calls {
                    let is_legal = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '_' | '-');
                    prop_assert!(
                        call.name.chars().all(is_legal) && (1..=64).contains(&call.name.len()),
                        "{}",
                        call.name
                    );
                    prop_assert!(ids.insert(call.id.clone()));
                }
            }
        }
    }
    prop_assert!(open.is_empty());
    Ok(())
}

/// Only the newest turn may be over the budget.
fn assert_fits(history: &History, all: &Repaired, budget: u64) -> Result<(), TestCaseError> {
    let own = all.messages.get(all.own_from..).unwrap_or(&[]);
    if history.tokens > budget && matches!(own.first(), None | Some(Message::User(_))) {
        let users = history.messages.iter().filter(|message| matches!(message, Message::User(_))).count();
        prop_assert!(users <= 1 || history.messages.len() <= own.len());
    }
    Ok(())
}

fn key() -> Key {
    Key::from(&SessionKey::new("websocket:garden").unwrap())
}

proptest! {
    #[test]
    fn what_is_kept_between_turns_changes_no_request(
        turns in prop::collection::vec((kinds(), any::<bool>()), 1..4),
        budget in 0u64..300,
        trim in prop::sample::select(vec![Trim::Usual, Trim::Hard]),
    ) {
        let key = key();
        let render = Render { runtime: Some(Runtime { key: &key, zone: &TimeZone::UTC }), trim };
        let mut kept = Kept::default();
        let mut grown = Transcript::default();
        for (number, (kinds, ours)) in turns.into_iter().enumerate() {
            let turn = TurnId(uuid::Uuid::from_u128(number as u128));
            // A request before each entry, as if a round of the model began there.
            for kind in kinds {
                let kind = if ours { of_turn(kind, number as u128) } else { kind };
                let parent = grown.append_parent().map(Arc::from);
                let head = Head { id: grown.entries().len().to_string().into(), parent, timestamp_ms: 1 };
                let own = kept.follow(&grown, turn, &render);
                let path = grown.path_to_leaf();
                let own_at = path.iter().position(|entry| entry.turn() == Some(turn)).unwrap_or(path.len());
                let expected = render.select(&path, own_at, budget);
                let place = Place { transcript: &grown, turn, render: &render };
                prop_assert_eq!(kept.select(place, &own, 0, budget), expected);
                let summary = render.repair(&path, own_at).summary;
                prop_assert_eq!(kept.summary(&own), summary.as_deref());
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
        if limit == u64::MAX || suffices(&part, None, budget) {
            let (of_part, of_whole) = (select(&part, budget), select(&whole.path_to_leaf(), budget));
            prop_assert_eq!((of_part.messages, of_part.tokens), (of_whole.messages, of_whole.tokens));
        }
    }

    #[test]
    fn every_transcript_and_budget_gives_a_legal_request(
        kinds in kinds(),
        own_at in 0usize..24,
        budget in 0u64..2000,
        trim in prop::sample::select(vec![Trim::Usual, Trim::Hard]),
    ) {
        let transcript = transcript(kinds);
        let path = transcript.path_to_leaf();
        let before = transcript.entries().to_vec();
        let key = key();
        let render = Render { runtime: Some(Runtime { key: &key, zone: &TimeZone::UTC }), trim };
        for own_at in [own_at, path.len()] {
            let history = render.select(&path, own_at, budget);
            assert_legal(history.messages.iter())?;
            prop_assert_eq!(history.tokens, history.messages.iter().map(message_tokens).sum::<u64>());
            prop_assert_eq!(&render.select(&path, own_at, budget), &history);
            let all = render.repair(&path, own_at);
            assert_legal(all.messages.iter())?;
            prop_assert_eq!(history.messages.is_empty(), all.messages.is_empty());
            prop_assert_eq!(history.messages.iter().map(message_tokens).sum::<u64>(), history.tokens);
            assert_fits(&history, &all, budget)?;
        }
        prop_assert_eq!(transcript.entries(), &before[..]);
    }

    #[test]
    fn a_running_turn_is_cut_to_size_but_for_what_users_said_and_its_last_round(
        kinds in kinds(),
        room in 0u64..1500,
        how in prop::sample::select(vec![Trim::Usual, Trim::Hard]),
    ) {
        let transcript = transcript(kinds);
        let mut own = Render::default().repair(&transcript.path_to_leaf(), 0).messages;
        let (before, users) = (own.clone(), users_of(&own));
        trim(&mut own, room, how);
        assert_legal(own.iter())?;
        let tokens = |messages: &[Message]| messages.iter().map(message_tokens).sum::<u64>();
        prop_assert_eq!(&users_of(&own), &users);
        prop_assert_eq!(own.last().map(kind_of), before.last().map(kind_of));
        prop_assert!(tokens(&own) <= tokens(&before));
        if tokens(&own) > room {
            // Without a round between two messages of users, those would be one.
            let spare = own.windows(2).filter(|pair| matches!(pair, [Message::ToolResult(_) | Message::Assistant(_), Message::Assistant(_)]));
            prop_assert!(spare.count() <= 1, "{:?}", told(&own));
        } else if how == Trim::Usual && tokens(&before) <= room {
            prop_assert_eq!(own, before);
        }
    }
}

fn users_of(messages: &[Message]) -> Vec<Message> {
    messages.iter().filter(|message| matches!(message, Message::User(_))).cloned().collect()
}

fn kind_of(message: &Message) -> std::mem::Discriminant<Message> {
    std::mem::discriminant(message)
}
