//! Messages that another turn took up: their own turns never begin, say nothing, and stand in the transcript once, as
//! messages of that one, which has an end of its own.

use std::collections::BTreeMap;

use domain::ids::{SessionKey, TurnId};
use domain::transcript::{TurnClose, UserMark};
use protocol::turn::TurnResult;

use super::books::{Books, Turn};

/// Which turns the transcripts say to have joined which.
#[derive(Debug, Default)]
pub struct Joins(BTreeMap<TurnId, TurnId>);

impl Joins {
    /// Takes in the mark of a message.
    pub fn read(&mut self, mark: &UserMark) {
        self.0.extend(mark.into.map(|into| (mark.turn, into)));
    }

    /// What a turn joined.
    pub fn of(&self, turn: TurnId) -> Option<TurnId> {
        self.0.get(&turn).copied()
    }

    /// A message that was taken up has no other end.
    pub fn account(&self, turn: &Turn, ends: &[TurnClose], users: u32, letters: u32) -> Result<(), String> {
        let shown = turn.end.is_none_or(|end| end == TurnResult::Joined);
        if (users, ends.len(), letters, shown) == (1, 0, 0, true) {
            return Ok(());
        }
        let message = turn.message;
        Err(format!("m{message} was taken up, stands {users} times, ends as {ends:?} and was shown as {:?}", turn.end))
    }
}

impl Books {
    /// A turn ended as `into` took it up.
    pub fn joined(&mut self, key: &SessionKey, turn: TurnId, into: Option<TurnId>) {
        self.counts.joined += 1;
        let began = self.beings.get(key).map(|being| being.began.as_slice()).unwrap_or_default();
        let host = into.filter(|into| *into != turn);
        let of = host.and_then(|into| self.turns.get(&into).map(|host| &host.key).or_else(|| self.guests.get(&into)));
        let fits = of == Some(key) && into.is_some_and(|into| began.contains(&into));
        if !fits || began.contains(&turn) {
            let name = self.name(turn);
            self.wrong(format!("{name} joined a turn that did not run, or ran itself"));
        }
    }
}
