//! What an ended turn says to a chat that waits for no connection: rows of the outbox. Pure.

use std::collections::BTreeMap;
use std::sync::Arc;

use domain::ids::{DeliveryId, TurnId};
use domain::text::{TextLimit, TextUnit, split};
use protocol::journal::Out;
use protocol::turn::PushRoute;

/// The longest message of each push channel.
pub type PushLimits = BTreeMap<Arc<str>, TextLimit>;

/// Of a channel that this process does not have: short enough for any.
const UNKNOWN: TextLimit = TextLimit { unit: TextUnit::Chars, max: 2000 };

/// One row for each part of `text`; none for a part that shows nothing.
pub fn replies(turn: TurnId, route: &PushRoute, text: &str, limits: &PushLimits) -> Vec<Out> {
    let limit = limits.get(&route.channel).copied().unwrap_or(UNKNOWN);
    let mut parts = split(text, limit);
    parts.retain(|part| !part.trim().is_empty());
    let count = u32::try_from(parts.len()).unwrap_or(u32::MAX);
    let row = |(n, part): (u32, &str)| Out {
        id: DeliveryId { turn, n },
        turn,
        route: route.clone(),
        parts: count,
        text: part.into(),
    };
    (1..).zip(parts).map(row).collect()
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn long_replies_come_in_parts_and_blank_ones_not_at_all() {
        let turn = TurnId(Uuid::from_u128(7));
        let limits = PushLimits::from([("hook".into(), TextLimit { unit: TextUnit::Chars, max: 6 })]);
        for (channel, text, expected) in [
            ("hook", "short", vec!["short"]),
            ("hook", "one\ntwo three", vec!["one\n", "two ", "three"]),
            ("hook", "", vec![]),
            ("hook", " \n\n ", vec![]),
            ("hook", "abcdef      ghijkl", vec!["abcdef", "ghijkl"]),
            ("gone", "one\ntwo three", vec!["one\ntwo three"]),
        ] {
            let route = PushRoute { channel: channel.into(), account: "a".into(), chat: "c".into(), thread: None };
            let rows = replies(turn, &route, text, &limits);
            assert_eq!(rows.iter().map(|row| &*row.text).collect::<Vec<_>>(), expected, "{text:?}");
            for (n, row) in (1..).zip(&rows) {
                assert_eq!((row.id, row.parts as usize), (DeliveryId { turn, n }, expected.len()));
                assert_eq!((row.turn, &row.route), (turn, &route));
            }
        }
    }
}
