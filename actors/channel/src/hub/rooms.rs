//! Who asked for which turn of a session that several chats share.
//!
//! The hub shows a chat the turns of its session. Where chats share one, a chat claims the turns that it asks for, and
//! their events pass under the chat's own key: nobody else is shown them.
//!
//! **Invariant:** a claim ends with its turn's last event, or with the [`Claim`] that was not kept.

use std::sync::Arc;

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use domain::ids::{SessionKey, TurnId};
use domain::keys::UNIFIED_KEY;
use protocol::turn::TurnEvent;

use super::Hub;

/// The claims.
#[derive(Debug, Default)]
pub(super) struct Rooms(DashMap<TurnId, SessionKey>);

/// A turn that a chat claims; given back when dropped, unless it is kept.
pub(crate) struct Claim {
    hub: Arc<Hub>,
    turn: TurnId,
    kept: bool,
}

// === impl Rooms ===

impl Rooms {
    /// The key under which an event passes, if not under its session's. The last event of a turn ends the claim.
    pub(super) fn take(&self, event: &TurnEvent, last: bool) -> Option<SessionKey> {
        if event.key.as_str() != UNIFIED_KEY {
            return None;
        }
        if last {
            return self.0.remove(&event.turn).map(|(_, chat)| chat);
        }
        self.0.get(&event.turn).map(|chat| chat.clone())
    }

    /// Claimed turns of a session with the chats that claim them, in the order of the turns.
    pub(super) fn of(&self, session: &SessionKey) -> Vec<(TurnId, SessionKey)> {
        if session.as_str() != UNIFIED_KEY {
            return Vec::new();
        }
        let mut claimed: Vec<_> = self.0.iter().map(|claim| (*claim.key(), claim.value().clone())).collect();
        claimed.sort_unstable_by_key(|(turn, _)| *turn);
        claimed
    }
}

// === impl Hub ===

impl Hub {
    /// Claims a turn of `session` for a chat; `None` when another chat has it, or somebody who waits for it.
    pub(crate) fn claim(self: &Arc<Self>, session: &SessionKey, turn: TurnId, chat: &SessionKey) -> Option<Claim> {
        let awaited =
            self.sessions.get(session).is_some_and(|session| session.turns.iter().any(|slot| slot.turn == turn));
        match self.rooms.0.entry(turn) {
            Entry::Vacant(free) if !awaited => drop(free.insert(chat.clone())),
            Entry::Vacant(_) | Entry::Occupied(_) => return None,
        }
        Some(Claim { hub: Arc::clone(self), turn, kept: false })
    }
}

// === impl Claim ===

impl Claim {
    /// The chat is shown the turn to its end.
    pub(crate) fn keep(mut self) {
        self.kept = true;
    }

    /// Gives the turn back; whether it was still there to be given: else the chat was shown its end.
    pub(crate) fn give_back(mut self) -> bool {
        self.kept = true;
        self.hub.rooms.0.remove(&self.turn).is_some()
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.kept {
            self.hub.rooms.0.remove(&self.turn);
        }
    }
}
