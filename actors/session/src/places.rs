//! Places among the running turns of the whole process: a turn begins when it has one, and keeps it to its end.
//!
//! Whoever waits longest is next. A session has one turn at a time and asks anew for each, so the places go round among
//! the sessions, however many messages one of them has waiting.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use actix::WeakRecipient;
use protocol::metrics::Metrics;
use supervision::tell;

/// `runtime.maxRunningTurns` of them.
#[derive(Debug)]
pub struct Places {
    state: Mutex<State>,
    metrics: Metrics,
}

#[derive(Debug)]
struct State {
    free: usize,
    /// One for each session that waits, at most.
    waiting: VecDeque<WeakRecipient<Placed>>,
}

/// A place; free again when it is dropped.
#[derive(Debug)]
pub struct Place(Arc<Places>);

/// The place that was asked for.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct Placed(pub Place);

// === impl Places ===

impl Places {
    /// `max` places, none where no turn is to begin; `metrics` shows how many sessions wait.
    pub fn new(max: usize, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self { state: Mutex::new(State { free: max, waiting: VecDeque::new() }), metrics })
    }

    /// A place, or `None`: then `me` is told later. Nobody overtakes who waits already.
    pub fn enter(self: &Arc<Self>, me: impl FnOnce() -> WeakRecipient<Placed>) -> Option<Place> {
        let mut state = self.lock();
        if state.free > 0 {
            state.free -= 1;
            return Some(Place(Arc::clone(self)));
        }
        state.waiting.push_back(me());
        self.metrics.turns_waiting.inc();
        None
    }

    fn leave(self: &Arc<Self>) {
        loop {
            let mut state = self.lock();
            let Some(next) = state.waiting.pop_front() else {
                state.free += 1;
                return;
            };
            drop(state);
            self.metrics.turns_waiting.dec();
            if let Some(next) = next.upgrade().filter(|next| next.connected()) {
                // One that ends just now gives the place back with the message.
                let _ = tell(&next, Placed(Place(Arc::clone(self))));
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.0.leave();
    }
}

#[cfg(test)]
mod tests {
    use testkit::deadline::run;
    use testkit::probe::Probe;

    use super::*;

    #[test]
    fn places_go_to_who_waits_longest_and_past_who_is_gone() {
        run("places", async {
            let metrics = Metrics::default();
            let places = Places::new(2, metrics.clone());
            let mut probes: Vec<Probe<Placed>> = (0..4).map(|_| Probe::new()).collect();
            let enter = |probe: &Probe<Placed>| places.enter(|| probe.recipient().downgrade());
            let first = enter(&probes[0]).unwrap();
            let second = enter(&probes[0]).unwrap();
            assert!(probes[1..].iter().all(|probe| enter(probe).is_none()));
            assert_eq!(metrics.turns_waiting.get(), 3);
            drop(probes.remove(1));
            drop(first);
            let Placed(third) = probes[1].next().await;
            assert!(probes[2].try_next().is_none(), "more than two places are taken");
            assert!(enter(&probes[0]).is_none(), "nobody overtakes");
            drop((second, third));
            let held = (probes[2].next().await, probes[0].next().await);
            assert_eq!(metrics.turns_waiting.get(), 0);
            drop(held);
            assert!(enter(&probes[0]).is_some());
        });
    }
}
