//! Message ids that a key has seen. **Invariant:** pure.

use std::collections::VecDeque;

use domain::ids::{MessageId, Source, TurnId};
use protocol::journal::{RECENT_IDS_MAX, RecentId};
use sha2::{Digest, Sha256};

/// Hash of `<source>:<message id>`, the form that a transcript keeps. Half a SHA-256: a collision would swallow a
/// message, and senders choose their ids.
pub fn id_hash(source: &Source, message_id: &MessageId) -> u128 {
    let mut hash = Sha256::new();
    hash.update(source.as_str());
    hash.update(b":");
    hash.update(message_id.as_str());
    half(&hash.finalize())
}

/// The same of the text itself.
pub fn text_hash(idempotency_key: &str) -> u128 {
    half(&Sha256::digest(idempotency_key))
}

fn half(digest: &[u8]) -> u128 {
    digest.iter().take(16).fold(0, |hash, byte| hash << 8 | u128::from(*byte))
}

/// A message that was accepted before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// Its turn.
    pub turn: TurnId,
    /// Hash of its body.
    pub body_hash: u64,
}

/// The last [`RECENT_IDS_MAX`] ids of a key. Searched from the newest by eight bytes each, which a thousand of them
/// are fast enough for, and which costs nothing for a short conversation.
#[derive(Debug, Default)]
pub struct RecentSet {
    prefixes: VecDeque<u64>,
    known: VecDeque<(u128, Known)>,
}

impl RecentSet {
    /// What a transcript has, oldest first.
    pub fn new(found: &[RecentId]) -> Self {
        let mut set = Self::default();
        for recent in found {
            set.add(text_hash(&recent.idempotency_key), Known { turn: recent.turn, body_hash: recent.body_hash });
        }
        set
    }

    /// Adds the newest; the oldest leaves when there are too many.
    pub fn add(&mut self, id: u128, known: Known) {
        if self.known.len() == RECENT_IDS_MAX {
            self.prefixes.pop_front();
            self.known.pop_front();
        }
        self.prefixes.push_back(id as u64);
        self.known.push_back((id, known));
    }

    /// Finds one.
    pub fn find(&self, id: u128) -> Option<Known> {
        let prefix = id as u64;
        let places = self.prefixes.iter().enumerate().rev().filter(|(_, known)| **known == prefix);
        places.filter_map(|(at, _)| self.known.get(at)).find(|(known, _)| *known == id).map(|(_, known)| *known)
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    #[test]
    fn both_forms_hash_alike() {
        let (source, id) = (Source::new("ws").unwrap(), MessageId::new("m 1").unwrap());
        assert_eq!(id_hash(&source, &id), text_hash("ws:m 1"));
        assert_ne!(text_hash("ws:m 1"), text_hash("ws:m 2"));
    }

    #[test]
    fn the_oldest_leaves() {
        let mut set = RecentSet::default();
        let known = |n: u64| Known { turn: TurnId(Uuid::from_u128(u128::from(n))), body_hash: n };
        for n in 0..=RECENT_IDS_MAX as u64 {
            set.add(text_hash(&n.to_string()), known(n));
        }
        assert_eq!(set.find(text_hash("0")), None);
        assert_eq!(set.find(text_hash("1")), Some(known(1)));
        assert_eq!(set.find(text_hash("1000")), Some(known(1000)));
    }
}
