//! Places among the running model calls of the whole process, given out fairly.
//!
//! A session with fewer running calls comes before one with more; among equals the one that has waited longest.
//! Whoever asks twice waits for himself first. Calls for which nobody waits come last, count against no session, and are
//! cancelled one by one while others wait.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::ids::SessionKey;
use protocol::provider::{AskPermit, Event, Permit, Urgency};
use protocol::turn::Pulse;
use supervision::ports::Clock;
use supervision::tell;
use tokio_util::sync::CancellationToken;

/// Below this many waiting asks no look is taken for cancelled ones among them.
const SWEEP_MIN: usize = 1024;

/// The places.
pub struct Places {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    moves: Pulse,
}

#[derive(Debug)]
struct State {
    free: usize,
    running: HashMap<SessionKey, usize>,
    waiting: BTreeMap<Rank, AskPermit>,
    /// The ranks of each session's asks, in the order of their arrival.
    ranks: HashMap<SessionKey, Vec<Rank>>,
    arrivals: u64,
    sweep_at: usize,
    /// What cancels the calls for which nobody waits, by their numbers.
    spare: BTreeMap<u64, CancellationToken>,
    /// Such asks, in the order of their arrival.
    spare_waiting: VecDeque<AskPermit>,
}

/// How many calls of the session run or wait before this ask, then its arrival; the least comes first.
type Rank = (usize, u64);

/// One taken place.
struct Place {
    places: Arc<Places>,
    of: Of,
}

/// Whose a taken place is.
#[derive(Debug)]
enum Of {
    Session(SessionKey),
    /// By its number.
    Spare(u64),
}

// === impl Places ===

impl Places {
    /// At most `max` at once.
    pub fn new(max: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let state = State {
            free: max.max(1),
            running: HashMap::new(),
            waiting: BTreeMap::new(),
            ranks: HashMap::new(),
            arrivals: 0,
            sweep_at: SWEEP_MIN,
            spare: BTreeMap::new(),
            spare_waiting: VecDeque::new(),
        };
        Arc::new(Self { state: Mutex::new(state), clock, moves: Pulse::default() })
    }

    /// Grants a place now, or later when one is free.
    pub fn ask(self: &Arc<Self>, ask: AskPermit) {
        let mut state = self.lock();
        if state.free == 0 {
            let yielding = state.enqueue(ask);
            drop(state);
            // The call gives its place back when it has ended, and that goes to whoever is first.
            yielding.inspect(CancellationToken::cancel);
            return;
        }
        let of = state.take(&ask);
        drop(state);
        self.grant(ask, of);
    }

    /// How many places are taken, and how many asks wait.
    pub fn count(&self) -> [usize; 2] {
        let state = self.lock();
        let taken = state.running.values().sum::<usize>() + state.spare.len();
        [taken, state.waiting.len() + state.spare_waiting.len()]
    }

    /// Beats with each place that is granted, and each sign of life of a call that has one: the queue moves.
    pub fn moves(&self) -> &Pulse {
        &self.moves
    }

    /// A call that has a place gets on.
    pub fn moved(&self) {
        self.moves.beat(self.clock.mono());
    }

    fn grant(self: &Arc<Self>, ask: AskPermit, of: Of) {
        self.moved();
        let place = Place { places: self.clone(), of };
        let event = Event::Permitted { stamp: ask.stamp, permit: Permit::new(place) };
        // An asker that is gone gives its place back with the event.
        let _ = tell(&ask.reply_to, event);
    }

    fn give_back(self: &Arc<Self>, of: &Of) {
        let mut state = self.lock();
        state.leave(of);
        let next = state.next();
        drop(state);
        if let Some((next, of)) = next {
            self.grant(next, of);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; were it otherwise, the counts would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.give_back(&self.of);
    }
}

// === impl State ===

impl State {
    fn take(&mut self, ask: &AskPermit) -> Of {
        self.free -= 1;
        match ask.urgency {
            Urgency::Turn => {
                *self.running.entry(ask.key.clone()).or_insert(0) += 1;
                Of::Session(ask.key.clone())
            }
            Urgency::Spare => {
                self.arrivals += 1;
                self.spare.insert(self.arrivals, ask.cancel.clone());
                Of::Spare(self.arrivals)
            }
        }
    }

    fn leave(&mut self, of: &Of) {
        self.free += 1;
        let key = match of {
            Of::Session(key) => key,
            Of::Spare(number) => {
                self.spare.remove(number);
                return;
            }
        };
        if let Some(count) = self.running.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(key);
            }
        }
        self.rerank(key);
    }

    /// Lets it wait. What cancels a running call for which nobody waits, if this is for a turn.
    fn enqueue(&mut self, ask: AskPermit) -> Option<CancellationToken> {
        if self.waiting.len() + self.spare_waiting.len() >= self.sweep_at {
            self.sweep();
        }
        if ask.urgency == Urgency::Spare {
            self.spare_waiting.push_back(ask);
            return None;
        }
        self.arrivals += 1;
        let ranks = self.ranks.entry(ask.key.clone()).or_default();
        let rank = (self.running.get(&ask.key).copied().unwrap_or(0) + ranks.len(), self.arrivals);
        ranks.push(rank);
        self.waiting.insert(rank, ask);
        self.spare.values().find(|cancel| !cancel.is_cancelled()).cloned()
    }

    /// Takes the next place for whoever is first in the queue and still there.
    fn next(&mut self) -> Option<(AskPermit, Of)> {
        let is_there = |ask: &AskPermit| !ask.cancel.is_cancelled() && ask.reply_to.connected();
        while self.free > 0 {
            let Some((rank, ask)) = self.waiting.pop_first() else { break };
            self.forget(&ask.key, rank);
            if is_there(&ask) {
                let of = self.take(&ask);
                return Some((ask, of));
            }
            self.rerank(&ask.key);
        }
        while self.free > 0 {
            let ask = self.spare_waiting.pop_front()?;
            if is_there(&ask) {
                let of = self.take(&ask);
                return Some((ask, of));
            }
        }
        None
    }

    fn forget(&mut self, key: &SessionKey, rank: Rank) {
        if let Some(ranks) = self.ranks.get_mut(key) {
            ranks.retain(|other| *other != rank);
            if ranks.is_empty() {
                self.ranks.remove(key);
            }
        }
    }

    /// Moves a session's asks to where they belong now.
    fn rerank(&mut self, key: &SessionKey) {
        let Some(ranks) = self.ranks.get_mut(key) else { return };
        let running = self.running.get(key).copied().unwrap_or(0);
        for (before, rank) in ranks.iter_mut().enumerate() {
            let now = (running + before, rank.1);
            if now != *rank
                && let Some(ask) = self.waiting.remove(rank)
            {
                self.waiting.insert(now, ask);
                *rank = now;
            }
        }
    }

    /// Forgets the cancelled, so that their number never exceeds that of the others by much.
    fn sweep(&mut self) {
        let cancelled = self.waiting.iter().filter(|(_, ask)| ask.cancel.is_cancelled());
        let cancelled: Vec<(Rank, SessionKey)> = cancelled.map(|(rank, ask)| (*rank, ask.key.clone())).collect();
        for (rank, key) in &cancelled {
            self.waiting.remove(rank);
            self.forget(key, *rank);
        }
        for (_, key) in &cancelled {
            self.rerank(key);
        }
        self.spare_waiting.retain(|ask| !ask.cancel.is_cancelled());
        self.sweep_at = SWEEP_MIN.max(2 * (self.waiting.len() + self.spare_waiting.len()));
    }
}

#[cfg(test)]
mod tests;
