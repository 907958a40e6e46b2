//! Files of ended transcripts that have to be moved, one per key at most: a key's next transcript begins after it.
//! **Invariant:** pure.

use std::collections::BTreeMap;

use domain::ids::{SessionId, SessionKey};
use protocol::journal::{LogPosition, Moving};

/// All of them.
#[derive(Debug, Default)]
pub struct MovingFiles(BTreeMap<SessionKey, (LogPosition, Moving)>);

// === impl MovingFiles ===

impl MovingFiles {
    /// The record at `at` wants one moved.
    pub fn add(&mut self, moving: Moving, at: LogPosition) {
        self.0.insert(moving.key.clone(), (at, moving));
    }

    /// It was moved.
    pub fn done(&mut self, key: &SessionKey, session: SessionId) {
        if self.of(key).is_some_and(|moving| moving.session == session) {
            self.0.remove(key);
        }
    }

    /// That of a key.
    pub fn of(&self, key: &SessionKey) -> Option<&Moving> {
        self.0.get(key).map(|(_, moving)| moving)
    }

    /// The keys, in order.
    pub fn keys(&self) -> impl Iterator<Item = &SessionKey> {
        self.0.keys()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// The first that only a record below `cutoff` tells of.
    pub fn below(&self, cutoff: LogPosition) -> Option<Moving> {
        self.0.values().find(|(at, _)| *at < cutoff).map(|(_, moving)| moving.clone())
    }
}
