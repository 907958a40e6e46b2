//! Events in the file: `custom_message` lines of ours, whose `details` say what a user's message says of itself.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;
use serde_json::value::RawValue;

use super::write::{CustomMessageLine, custom_message_line};
use super::{Head, UserEntry, UserMark};
use crate::chat::Content;
use crate::event::{EVENT, Event};
use crate::ids::TurnId;

/// `details`.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Details {
    event: Arc<Event>,
    #[serde(flatten)]
    mark: Option<Mark>,
}

#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Mark {
    turn_id: TurnId,
    idempotency_key: Arc<str>,
    /// 16 hex digits.
    body_hash: String,
    #[serde(default)]
    accepted_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    into_turn: Option<TurnId>,
}

/// The line of an event.
pub(super) fn event_line(head: &Head, event: &Arc<Event>, user: &UserEntry) -> String {
    let mark = user.mark.as_ref().map(|mark| Mark {
        turn_id: mark.turn,
        idempotency_key: Arc::clone(&mark.idempotency_key),
        body_hash: format!("{:016x}", mark.body_hash),
        accepted_ms: mark.accepted_ms,
        into_turn: mark.into,
    });
    let details: Option<Value> = serde_json::to_value(Details { event: Arc::clone(event), mark }).ok();
    let message =
        CustomMessageLine { custom_type: EVENT, content: &user.content, display: true, details: details.as_ref() };
    custom_message_line(head, &message)
}

/// The event of a `custom_message` line; `None` if it is another program's message.
pub(super) fn event(custom_type: Option<&str>, details: Option<&RawValue>, content: &[Content]) -> Option<UserEntry> {
    if custom_type != Some(EVENT) {
        return None;
    }
    let Details { event, mark } = serde_json::from_str(details?.get()).ok()?;
    let mark = mark.filter(|mark| mark.body_hash.len() == 16).and_then(|mark| {
        Some(UserMark {
            turn: mark.turn_id,
            idempotency_key: mark.idempotency_key,
            body_hash: u64::from_str_radix(&mark.body_hash, 16).ok()?,
            accepted_ms: mark.accepted_ms,
            into: mark.into_turn,
            command: false,
        })
    });
    Some(UserEntry { content: content.into(), mark, event: Some(event) })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::event::EventKind;
    use crate::transcript::{EntryKind, Kind, RecentMessage, read_entry, read_lines, recent_ids, user_line};

    fn head() -> Head {
        Head { id: "a".into(), parent: None, timestamp_ms: 9 }
    }

    fn kinds() -> impl Strategy<Value = EventKind> {
        prop::sample::select(vec![
            EventKind::Subagent,
            EventKind::Cron,
            EventKind::Heartbeat,
            EventKind::Trigger,
            EventKind::Webhook,
        ])
    }

    fn turns() -> impl Strategy<Value = TurnId> {
        any::<u128>().prop_map(|number| TurnId(uuid::Uuid::from_u128(number)))
    }

    prop_compose! {
        fn marks()(
            turn in turns(), key in "[a-z]{1,5}:[ -~]{1,20}", body_hash in any::<u64>(), accepted_ms in any::<u64>(),
            into in prop::option::of(turns()),
        ) -> UserMark {
            UserMark { turn, idempotency_key: key.into(), body_hash, accepted_ms, into, command: false }
        }
    }

    prop_compose! {
        fn events()(
            text in "\\PC{0,20}|[\\x00-\\x7f]{0,20}", kind in kinds(), id in "\\PC{0,8}", name in "\\PC{0,8}",
            status in prop::option::of("\\PC{0,8}"), mark in prop::option::of(marks()),
        ) -> UserEntry {
            let event = Event { kind, id: id.into(), name: name.into(), status: status.map(Arc::from) };
            UserEntry { content: [Content::text(text)].into(), mark, event: Some(Arc::new(event)) }
        }
    }

    proptest! {
        #[test]
        fn all_readers_find_in_the_file_what_was_written(entry in events()) {
            let line = user_line(&head(), &entry);
            let transcript = read_lines(line.as_bytes());
            let kind = EntryKind::User(entry.clone());
            prop_assert_eq!(&transcript.entries()[0].kind, &kind);
            let tree = transcript.tree();
            let at = tree.positions().next().unwrap();
            prop_assert_eq!(tree.kind(at), Kind::Event);
            prop_assert_eq!(tree.turn(at), entry.mark.as_ref().map(|mark| mark.turn));
            let place = tree.place(at);
            let alone = read_entry(tree, at, &line.as_bytes()[place.start as usize..place.end as usize]);
            prop_assert_eq!(alone.map(|entry| entry.kind), Some(kind));
            let recent = entry.mark.map(|mark| RecentMessage {
                idempotency_key: mark.idempotency_key.as_ref().to_owned(), turn: mark.turn, body_hash: mark.body_hash,
            });
            prop_assert_eq!(recent_ids(line.as_bytes(), true), recent.into_iter().collect::<Vec<_>>());
        }
    }

    #[test]
    fn what_other_programs_say_is_what_it_was() {
        for (custom_type, details) in [
            ("other", r#"{"event":{"kind":"cron","id":"1","name":"n"}}"#),
            (EVENT, "7"),
            (EVENT, r#"{"event":{"kind":"novelty","id":"1","name":"n"}}"#),
            (EVENT, "{}"),
        ] {
            let line = format!(
                r#"{{"type":"custom_message","customType":"{custom_type}","content":"hi","details":{details},"id":"a","parentId":null}}"#
            );
            let shown = EntryKind::Shown([Content::text("hi")].into());
            assert_eq!(read_lines(line.as_bytes()).entries()[0].kind, shown, "{line}");
        }
    }
}
