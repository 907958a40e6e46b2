//! Turn events on their way to whoever watches: one session's chat (WebSocket), or one turn (HTTP).
//!
//! Sessions emit from their arbiters, so nothing here waits: a [`Sink`] takes what it is shown into a bounded buffer of
//! its own, and a client that is too slow loses its connection, never a turn its time. All events of a session pass
//! under one map entry, which makes "replay what was, then follow" one atomic step.
//!
//! A turn is remembered (`ring`) while it runs and somebody might come back for it: every turn of a chat key, and
//! those that were watched with [`Keep::Yes`].
//!
//! **Invariant:** no IO and no call out of this crate happens under an entry's guard.

pub mod cursor;
pub(crate) mod outlet;
mod ring;
mod rooms;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use dashmap::DashMap;
use dashmap::mapref::entry::Entry;
use domain::ids::{Attempt, SessionKey, TurnId};
use protocol::turn::{TurnEvent, TurnEvents, TurnProgress};

use self::cursor::Cursor;
use self::ring::Ring;
pub(crate) use self::rooms::Claim;
use self::rooms::Rooms;

/// Keys of chats that clients come back to begin with this.
pub const CHAT_PREFIX: &str = "websocket:";

/// What one running turn may occupy.
const RING_BYTES_MAX: usize = 64 * 1024;

/// What all running turns together may occupy.
const RINGS_BYTES_MAX: usize = 128 * 1024 * 1024;

/// An event as a watcher gets it.
#[derive(Debug, Clone)]
pub struct Shown {
    /// The event.
    pub event: TurnEvent,
    /// Model round of the attempt, from 1.
    pub round: u32,
    /// Something of this attempt before this event was not shown to this watcher and cannot be.
    pub gap: bool,
    /// Its client has it already: it only says where the rest begins.
    pub had: bool,
    /// The watcher must forget what it was shown of this turn: it follows again from the start.
    pub restart: bool,
}

/// Who is shown events. Called on arbiters, so it never blocks, and never calls the hub.
pub trait Sink: Send + Sync + 'static {
    /// Takes one event.
    fn show(&self, shown: &Shown);

    /// No event will come any more in this process.
    fn closed(&self) {}
}

/// Whether a turn's events are remembered for others that come later.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// Yes, from its start to its end.
    Yes,
    /// No.
    No,
}

/// The hub. One per process.
#[derive(Default)]
pub struct Hub {
    sessions: DashMap<SessionKey, Session>,
    rooms: Rooms,
    ring_bytes: AtomicUsize,
    closed: AtomicBool,
}

#[derive(Default)]
struct Session {
    watchers: Vec<Arc<dyn Sink>>,
    turns: Vec<Slot>,
}

struct Slot {
    turn: TurnId,
    watchers: Vec<Arc<dyn Sink>>,
    keep: Keep,
    attempt: Attempt,
    round: u32,
    running: bool,
    /// The start of this attempt was not seen.
    gap: bool,
    ring: Ring,
}

/// A registration; ends when dropped. Not to be dropped inside [`Sink::show`].
pub struct Watch {
    hub: Arc<Hub>,
    key: SessionKey,
    turn: Option<TurnId>,
    sink: Arc<dyn Sink>,
}

/// What an attach to a chat found.
pub struct Attached {
    /// The registration.
    pub watch: Watch,
    /// The turn that runs now.
    pub running: Option<(TurnId, Attempt)>,
    /// Whether the turn of the cursor runs, so that the rest of it was and will be shown.
    pub followed: bool,
}

impl Hub {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Watches one turn, also one that was not accepted yet. What is remembered of it is shown at once, from its start.
    pub fn watch_turn(self: &Arc<Self>, key: &SessionKey, turn: TurnId, keep: Keep, sink: Arc<dyn Sink>) -> Watch {
        let mut session = self.sessions.entry(key.clone()).or_default();
        let slot = session.slot(turn, keep);
        if keep == Keep::Yes {
            slot.keep = Keep::Yes;
        }
        slot.replay(key, None, &*sink);
        slot.watchers.push(Arc::clone(&sink));
        drop(session);
        self.tell_if_closed(&*sink);
        Watch { hub: Arc::clone(self), key: key.clone(), turn: Some(turn), sink }
    }

    /// Watches all turns of a chat. With a cursor of the running turn, what came after it is shown at once.
    pub fn attach_chat(self: &Arc<Self>, key: &SessionKey, after: Option<Cursor>, sink: Arc<dyn Sink>) -> Attached {
        let mut session = self.sessions.entry(key.clone()).or_default();
        let mut followed = false;
        if let Some(cursor) = after
            && let Some(slot) = session.turns.iter().find(|slot| slot.turn == cursor.turn && slot.running)
        {
            slot.replay(key, Some(cursor), &*sink);
            followed = true;
        }
        let running = session.turns.iter().find(|slot| slot.running).map(|slot| (slot.turn, slot.attempt));
        session.watchers.push(Arc::clone(&sink));
        drop(session);
        self.tell_if_closed(&*sink);
        let watch = Watch { hub: Arc::clone(self), key: key.clone(), turn: None, sink };
        Attached { watch, running, followed }
    }

    /// Tells all watchers, and those that come later, that no session runs any more in this process: whoever waits for
    /// a turn that was kept for the next start need not wait for it here.
    pub fn close(&self) {
        self.closed.store(true, Ordering::SeqCst);
        for session in &self.sessions {
            let of_turns = session.turns.iter().flat_map(|slot| &slot.watchers);
            for sink in session.watchers.iter().chain(of_turns) {
                sink.closed();
            }
        }
    }

    fn tell_if_closed(&self, sink: &dyn Sink) {
        if self.closed.load(Ordering::SeqCst) {
            sink.closed();
        }
    }

    /// How many sessions have a watcher or a remembered turn.
    pub fn sessions(&self) -> usize {
        self.sessions.len()
    }

    /// Bytes of what running turns said so far, and how many there may be.
    pub fn bytes(&self) -> (usize, usize) {
        (self.ring_bytes.load(Ordering::Relaxed), RINGS_BYTES_MAX)
    }

    fn leave(&self, watch: &Watch) {
        let Entry::Occupied(mut entry) = self.sessions.entry(watch.key.clone()) else { return };
        let session = entry.get_mut();
        match watch.turn {
            None => forget(&mut session.watchers, &watch.sink),
            Some(turn) => {
                if let Some(slot) = session.turns.iter_mut().find(|slot| slot.turn == turn) {
                    forget(&mut slot.watchers, &watch.sink);
                }
                session.drop_unneeded(&self.ring_bytes);
            }
        }
        if session.is_empty() {
            entry.remove();
        }
    }

    fn remember(&self, slot: &mut Slot, event: &TurnEvent) {
        if slot.keep == Keep::No || slot.gap {
            return;
        }
        let before = slot.ring.bytes();
        slot.ring.push(event.seq, slot.round, &event.what, RING_BYTES_MAX);
        let after = slot.ring.bytes();
        let total = self.ring_bytes.fetch_add(after, Ordering::Relaxed) + after;
        self.ring_bytes.fetch_sub(before, Ordering::Relaxed);
        if total - before.min(total) > RINGS_BYTES_MAX {
            slot.ring.forget(event.seq);
            self.ring_bytes.fetch_sub(after, Ordering::Relaxed);
        }
    }
}

impl TurnEvents for Hub {
    fn unfinished(&self, key: &SessionKey) -> Vec<(TurnId, Attempt)> {
        let running = |key: &SessionKey, is: &dyn Fn(TurnId) -> bool| {
            let found = self.sessions.get(key).map(|session| {
                let turns = session.turns.iter().filter(|slot| slot.running && is(slot.turn));
                turns.map(|slot| (slot.turn, slot.attempt)).collect::<Vec<_>>()
            });
            found.unwrap_or_default()
        };
        let claimed = self.rooms.of(key).into_iter().flat_map(|(turn, chat)| running(&chat, &|other| other == turn));
        running(key, &|_| true).into_iter().chain(claimed).collect()
    }

    fn emit(&self, mut event: TurnEvent) {
        let finished = matches!(event.what, TurnProgress::Finished(_));
        if let Some(chat) = self.rooms.take(&event, finished) {
            event.key = chat;
        }
        let keep = if event.key.as_str().starts_with(CHAT_PREFIX) { Keep::Yes } else { Keep::No };
        let Some(mut session) = self
            .sessions
            .get_mut(&event.key)
            .or_else(|| (keep == Keep::Yes && !finished).then(|| self.sessions.entry(event.key.clone()).or_default()))
        else {
            return;
        };
        let Session { watchers, turns } = &mut *session;
        let known = turns.iter().position(|slot| slot.turn == event.turn);
        let index = match known {
            Some(index) => index,
            None if watchers.is_empty() && keep == Keep::No => return,
            None => {
                turns.push(Slot::new(event.turn, keep));
                turns.len() - 1
            }
        };
        let Some(slot) = turns.get_mut(index) else { return };
        slot.begin(&event, &self.ring_bytes);
        self.remember(slot, &event);
        let shown = Shown { round: slot.round, gap: slot.gap, had: false, restart: false, event };
        if let TurnProgress::StreamEnd { merge, .. } = shown.event.what {
            slot.round += u32::from(!merge);
            if slot.gap {
                slot.gap = false;
                slot.ring.forget(shown.event.seq);
            }
        }
        // Everything is in order before somebody is called: one that panics leaves no turn that never ends.
        if !finished {
            show(&shown, slot.watchers.iter().chain(watchers.iter()));
            return;
        }
        self.ring_bytes.fetch_sub(slot.ring.clear(), Ordering::Relaxed);
        let ended = turns.swap_remove(index);
        show(&shown, ended.watchers.iter().chain(watchers.iter()));
        if session.is_empty() {
            drop(session);
            self.sessions.remove_if(&shown.event.key, |_, session| session.is_empty());
        }
    }
}

impl Session {
    fn slot(&mut self, turn: TurnId, keep: Keep) -> &mut Slot {
        let index = self.turns.iter().position(|slot| slot.turn == turn).unwrap_or_else(|| {
            self.turns.push(Slot::new(turn, keep));
            self.turns.len() - 1
        });
        &mut self.turns[index]
    }

    fn is_empty(&self) -> bool {
        self.watchers.is_empty() && self.turns.is_empty()
    }

    fn drop_unneeded(&mut self, ring_bytes: &AtomicUsize) {
        self.turns.retain_mut(|slot| {
            let needed = !slot.watchers.is_empty() || (slot.running && slot.keep == Keep::Yes);
            if !needed {
                ring_bytes.fetch_sub(slot.ring.clear(), Ordering::Relaxed);
            }
            needed
        });
    }
}

impl Slot {
    fn new(turn: TurnId, keep: Keep) -> Self {
        let (watchers, ring) = (Vec::new(), Ring::default());
        Self { turn, watchers, keep, attempt: Attempt(0), round: 1, running: false, gap: false, ring }
    }

    /// Notices the first event of an attempt.
    fn begin(&mut self, event: &TurnEvent, ring_bytes: &AtomicUsize) {
        self.running = true;
        let started = matches!(event.what, TurnProgress::Started);
        if !started && event.attempt == self.attempt {
            return;
        }
        self.attempt = event.attempt;
        self.round = 1;
        self.gap = !started;
        ring_bytes.fetch_sub(self.ring.clear(), Ordering::Relaxed);
    }

    fn replay(&self, key: &SessionKey, after: Option<Cursor>, sink: &dyn Sink) {
        if !self.running {
            return;
        }
        let same = after.filter(|cursor| cursor.attempt == self.attempt);
        let replay = self.ring.since(same.map_or(0, |cursor| cursor.seq));
        let mut restart = replay.restart || (after.is_some() && same.is_none());
        let mut gap = replay.gap || self.gap;
        for again in replay.events {
            let (turn, attempt) = (self.turn, self.attempt);
            let event = TurnEvent { key: key.clone(), turn, attempt, seq: again.seq, what: again.what };
            sink.show(&Shown { event, round: again.round, gap, had: again.had, restart });
            restart = false;
            gap = false;
        }
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.hub.leave(self);
    }
}

fn show<'a>(shown: &Shown, to: impl Iterator<Item = &'a Arc<dyn Sink>>) {
    for sink in to {
        sink.show(shown);
    }
}

fn forget(watchers: &mut Vec<Arc<dyn Sink>>, sink: &Arc<dyn Sink>) {
    if let Some(index) = watchers.iter().position(|other| Arc::ptr_eq(other, sink)) {
        watchers.swap_remove(index);
    }
}

#[cfg(test)]
mod tests;
