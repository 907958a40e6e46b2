//! Places among the running model calls of the whole process, given out fairly.
//!
//! A session with fewer running calls comes before one with more; among equals the one that has waited longest.
//! Whoever asks twice waits for himself first.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::ids::SessionKey;
use protocol::provider::{AskPermit, Event, Permit};
use protocol::turn::Pulse;
use supervision::ports::Clock;
use supervision::tell;

/// Below this many waiting asks no look is taken for cancelled ones among them.
const SWEEP_MIN: usize = 1024;

/// The places.
pub struct Places {
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    granted: Pulse,
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
}

/// How many calls of the session run or wait before this ask, then its arrival; the least comes first.
type Rank = (usize, u64);

/// One taken place.
struct Place {
    places: Arc<Places>,
    key: SessionKey,
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
        };
        Arc::new(Self { state: Mutex::new(state), clock, granted: Pulse::default() })
    }

    /// Grants a place now, or later when one is free.
    pub fn ask(self: &Arc<Self>, ask: AskPermit) {
        let mut state = self.lock();
        if state.free == 0 {
            state.enqueue(ask);
            return;
        }
        state.take(ask.key.clone());
        drop(state);
        self.grant(ask);
    }

    /// How many places are taken, and how many asks wait.
    pub fn count(&self) -> [usize; 2] {
        let state = self.lock();
        [state.running.values().sum(), state.waiting.len()]
    }

    /// Beats with each place that is granted: the queue moves.
    pub fn granted(&self) -> &Pulse {
        &self.granted
    }

    fn grant(self: &Arc<Self>, ask: AskPermit) {
        self.granted.beat(self.clock.mono());
        let place = Place { places: self.clone(), key: ask.key };
        let event = Event::Permitted { stamp: ask.stamp, permit: Permit::new(place) };
        // An asker that is gone gives its place back with the event.
        let _ = tell(&ask.reply_to, event);
    }

    fn give_back(self: &Arc<Self>, key: &SessionKey) {
        let mut state = self.lock();
        state.leave(key);
        let next = state.next();
        drop(state);
        if let Some(next) = next {
            self.grant(next);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held; were it otherwise, the counts would still be whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.places.give_back(&self.key);
    }
}

// === impl State ===

impl State {
    fn take(&mut self, key: SessionKey) {
        self.free -= 1;
        *self.running.entry(key).or_insert(0) += 1;
    }

    fn leave(&mut self, key: &SessionKey) {
        self.free += 1;
        if let Some(count) = self.running.get_mut(key) {
            *count -= 1;
            if *count == 0 {
                self.running.remove(key);
            }
        }
        self.rerank(key);
    }

    fn enqueue(&mut self, ask: AskPermit) {
        if self.waiting.len() >= self.sweep_at {
            self.sweep();
        }
        self.arrivals += 1;
        let ranks = self.ranks.entry(ask.key.clone()).or_default();
        let rank = (self.running.get(&ask.key).copied().unwrap_or(0) + ranks.len(), self.arrivals);
        ranks.push(rank);
        self.waiting.insert(rank, ask);
    }

    /// Takes the next place for whoever is first in the queue and still there.
    fn next(&mut self) -> Option<AskPermit> {
        while self.free > 0 {
            let (rank, ask) = self.waiting.pop_first()?;
            self.forget(&ask.key, rank);
            if !ask.cancel.is_cancelled() && ask.reply_to.connected() {
                self.take(ask.key.clone());
                return Some(ask);
            }
            self.rerank(&ask.key);
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
        self.sweep_at = SWEEP_MIN.max(2 * self.waiting.len());
    }
}

#[cfg(test)]
mod tests;
