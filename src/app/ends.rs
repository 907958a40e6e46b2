//! Passes turn events on to the doors' hub, and tells other actors of the ends that they wait for.

use std::sync::Arc;

use actix::Recipient;
use dashmap::DashMap;
use domain::ids::{Attempt, SessionKey, TurnId};
use protocol::journal::{Queued, QueuedSink};
use protocol::metrics::{Metrics, gauge};
use protocol::turn::{
    Finished, TurnEnded, TurnEvent, TurnEvents, TurnProgress, TurnWatch, WATCHED_MAX, WatchedTooMany,
};
use supervision::tell;

/// The hub, and who waits for ends.
pub struct Ends {
    hub: Arc<dyn TurnEvents>,
    metrics: Metrics,
    watched: DashMap<TurnId, Watcher>,
}

struct Watcher {
    key: SessionKey,
    to: Vec<Recipient<TurnEnded>>,
    /// A session that is loaded tells the ends of those that it does not know any more; it knows none that is not
    /// accepted yet.
    accepted: bool,
    /// Only whoever watches it asked for its end: people were shown that before, perhaps by an earlier process.
    quiet: bool,
}

/// Hears of accepted messages before the registry does.
struct Heard {
    ends: Arc<Ends>,
    next: Arc<dyn QueuedSink>,
}

// === impl Ends ===

impl Ends {
    /// Nobody waits for anything yet.
    pub fn new(hub: Arc<dyn TurnEvents>, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self { hub, metrics, watched: DashMap::new() })
    }

    fn show(&self) {
        self.metrics.work.watched_turns.set(gauge(self.watched.len()));
    }

    /// What hands accepted messages on to `next`.
    pub fn hears(self: &Arc<Self>, next: Arc<dyn QueuedSink>) -> Arc<dyn QueuedSink> {
        Arc::new(Heard { ends: Arc::clone(self), next })
    }

    fn finished(&self, key: SessionKey, turn: TurnId, finished: &Finished) {
        if !self.watched.contains_key(&turn) {
            return;
        }
        let Finished { result, text, model, usage, .. } = finished;
        let (text, model) = (text.as_str().into(), Arc::clone(model));
        self.ended(TurnEnded { key, turn, result: *result, text, usage: *usage, model });
    }
}

impl QueuedSink for Heard {
    fn queued(&self, queued: Queued) {
        self.ends.accepted(queued.item.turn);
        self.next.queued(queued);
    }
}

impl TurnEvents for Ends {
    fn emit(&self, event: TurnEvent) {
        let ended = match &event.what {
            TurnProgress::Finished(finished) => Some((event.key.clone(), event.turn, Arc::clone(finished))),
            TurnProgress::Started => {
                self.accepted(event.turn);
                self.watched.get_mut(&event.turn).iter_mut().for_each(|watched| watched.quiet = false);
                None
            }
            TurnProgress::Delta(_)
            | TurnProgress::Reasoning(_)
            | TurnProgress::StreamEnd { .. }
            | TurnProgress::ToolStarted { .. }
            | TurnProgress::ToolEnded { .. }
            | TurnProgress::Goal(_)
            | TurnProgress::Notice(_) => None,
        };
        // Before people are shown it: should that crash the session, its end would be asked for again for the watcher's sake,
        // and shown twice.
        if let Some((key, turn, finished)) = ended {
            let again = event.seq == 1 && event.attempt == Attempt::FIRST.next();
            let quiet = again && self.watched.get(&turn).is_some_and(|watched| watched.quiet);
            let shown = quiet && self.hub.unfinished(&key).iter().all(|(other, _)| *other != turn);
            self.finished(key, turn, &finished);
            if shown {
                return;
            }
        }
        self.hub.emit(event);
    }

    fn unfinished(&self, key: &SessionKey) -> Vec<(TurnId, Attempt)> {
        let mut turns = self.hub.unfinished(key);
        let mut more = Vec::new();
        for mut watched in self.watched.iter_mut().filter(|watched| watched.accepted && watched.key == *key) {
            let turn = *watched.key();
            watched.quiet = turns.iter().all(|(other, _)| *other != turn);
            more.extend(watched.quiet.then_some((turn, Attempt::FIRST)));
        }
        turns.extend(more);
        turns
    }
}

impl TurnWatch for Ends {
    fn watch(&self, key: &SessionKey, turn: TurnId, to: Recipient<TurnEnded>) -> Result<(), WatchedTooMany> {
        if self.watched.len() >= WATCHED_MAX && !self.watched.contains_key(&turn) {
            return Err(WatchedTooMany);
        }
        let nobody = || Watcher { key: key.clone(), to: Vec::new(), accepted: false, quiet: false };
        let mut watched = self.watched.entry(turn).or_insert_with(nobody);
        if !watched.to.contains(&to) {
            watched.to.push(to);
        }
        drop(watched);
        self.show();
        Ok(())
    }

    fn accepted(&self, turn: TurnId) {
        self.watched.get_mut(&turn).iter_mut().for_each(|watched| watched.accepted = true);
    }

    fn ended(&self, ended: TurnEnded) {
        let Some((_, Watcher { to, .. })) = self.watched.remove(&ended.turn) else { return };
        self.show();
        for to in &to {
            // Whoever is gone asks again when it is back.
            let _ = tell(to, ended.clone());
        }
    }

    fn unwatch(&self, turn: TurnId) {
        self.watched.remove(&turn);
        self.show();
    }
}

#[cfg(test)]
mod tests {
    use channel::Hub;
    use domain::chat::{StopReason, Usage};
    use domain::ids::Seq;
    use protocol::journal::{InboxItem, LogPosition};
    use protocol::turn::TurnResult;
    use testkit::probe::Probe;
    use uuid::Uuid;

    use super::*;

    fn event(turn: TurnId, what: TurnProgress) -> TurnEvent {
        TurnEvent { key: key(), turn, attempt: Attempt::FIRST, seq: 1, what }
    }

    fn key() -> SessionKey {
        SessionKey::new("api:1").unwrap()
    }

    /// Who takes messages and does nothing.
    struct Deaf;

    impl QueuedSink for Deaf {
        fn queued(&self, _: Queued) {}
    }

    fn item(turn: TurnId) -> InboxItem {
        InboxItem { turn, seq: Seq(1), at: LogPosition(0), inline: None, push: None, event: false }
    }

    fn answered(text: &str) -> TurnProgress {
        TurnProgress::Finished(Arc::new(Finished {
            result: TurnResult::Done,
            into: None,
            text: text.to_owned(),
            stop: StopReason::Stop,
            model: "m".into(),
            usage: Usage::default(),
            latency_ms: 0,
            standing: None,
        }))
    }

    /// Crashes whoever shows an end.
    struct Crashing;

    impl TurnEvents for Crashing {
        fn emit(&self, event: TurnEvent) {
            assert!(!matches!(event.what, TurnProgress::Finished(_)), "a screen fails");
        }

        fn unfinished(&self, _: &SessionKey) -> Vec<(TurnId, Attempt)> {
            Vec::new()
        }
    }

    #[test]
    fn a_crash_while_an_end_is_shown_does_not_ask_for_it_again() {
        testkit::deadline::run_paused("crash at an end", async {
            let ends = Ends::new(Arc::new(Crashing), Metrics::default());
            let mut told = Probe::<TurnEnded>::new();
            let turn = TurnId(Uuid::from_u128(1));
            ends.watch(&key(), turn, told.recipient()).unwrap();
            ends.emit(event(turn, TurnProgress::Started));
            assert_eq!(ends.unfinished(&key()), [(turn, Attempt::FIRST)]);
            let shown = || ends.emit(event(turn, answered("one")));
            assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(shown)).is_err());
            assert_eq!(ends.unfinished(&key()), []);
            assert_eq!(told.next().await.turn, turn);
        });
    }

    /// Keeps what it is shown; nobody waits for anything.
    #[derive(Default)]
    struct Watching(std::sync::Mutex<Vec<TurnId>>);

    impl TurnEvents for Watching {
        fn emit(&self, event: TurnEvent) {
            self.0.lock().unwrap().push(event.turn);
        }

        fn unfinished(&self, _: &SessionKey) -> Vec<(TurnId, Attempt)> {
            Vec::new()
        }
    }

    #[test]
    fn an_end_for_which_only_a_watcher_asked_is_not_shown_again_and_that_of_a_turn_that_runs_is() {
        testkit::deadline::run_paused("quiet ends", async {
            let hub = Arc::new(Watching::default());
            let ends = Ends::new(hub.clone(), Metrics::default());
            let mut told = Probe::<TurnEnded>::new();
            let [over, runs] = [1, 2].map(|number| TurnId(Uuid::from_u128(number)));
            for turn in [over, runs] {
                ends.watch(&key(), turn, told.recipient()).unwrap();
                ends.accepted(turn);
            }
            assert_eq!(ends.unfinished(&key()).len(), 2);
            ends.emit(event(runs, TurnProgress::Started));
            for turn in [over, runs] {
                ends.emit(TurnEvent { attempt: Attempt::FIRST.next(), ..event(turn, answered("one")) });
                assert_eq!(told.next().await.turn, turn);
            }
            assert_eq!(*hub.0.lock().unwrap(), [runs, runs]);
        });
    }

    #[test]
    fn an_end_is_told_once_and_a_session_is_asked_only_for_what_has_begun() {
        testkit::deadline::run_paused("ends of turns", async {
            let metrics = Metrics::default();
            let ends = Ends::new(Hub::new(), metrics.clone());
            let mut told = Probe::<TurnEnded>::new();
            let [first, second, third] = [1, 2, 3].map(|number| TurnId(Uuid::from_u128(number)));
            for turn in [first, second, third] {
                ends.watch(&key(), turn, told.recipient()).unwrap();
            }
            ends.unwatch(third);
            assert_eq!(metrics.work.watched_turns.get(), 2);
            assert_eq!(ends.unfinished(&key()), [], "none of them is known to be accepted");
            ends.emit(event(first, TurnProgress::Started));
            assert_eq!(ends.unfinished(&key()), [(first, Attempt::FIRST)]);
            // One that waits behind it may be taken up by it, or cancelled, and never begin.
            ends.hears(Arc::new(Deaf)).queued(Queued { key: key(), item: item(second) });
            let mut both = ends.unfinished(&key());
            both.sort();
            assert_eq!(both, [(first, Attempt::FIRST), (second, Attempt::FIRST)]);
            assert_eq!(ends.unfinished(&SessionKey::new("api:2").unwrap()), []);
            for text in ["one", "again"] {
                ends.emit(event(first, answered(text)));
            }
            ends.emit(event(third, answered("three")));
            ends.emit(event(second, answered("two")));
            for (turn, text) in [(first, "one"), (second, "two")] {
                let ended = told.next().await;
                assert_eq!((ended.turn, &*ended.text, ended.key), (turn, text, key()));
            }
            assert_eq!(ends.unfinished(&key()), []);
            assert_eq!(metrics.work.watched_turns.get(), 0);
        });
    }

    #[test]
    fn an_end_that_became_known_otherwise_is_told_once() {
        testkit::deadline::run_paused("ends known otherwise", async {
            let ends = Ends::new(Hub::new(), Metrics::default());
            let mut told = Probe::<TurnEnded>::new();
            let turn = TurnId(Uuid::from_u128(1));
            ends.watch(&key(), turn, told.recipient()).unwrap();
            let (result, usage) = (TurnResult::DeadLettered, Usage::default());
            let ended = TurnEnded { key: key(), turn, result, text: "given up".into(), usage, model: "m".into() };
            ends.ended(ended.clone());
            ends.ended(ended.clone());
            ends.emit(event(turn, answered("late")));
            let other = TurnId(Uuid::from_u128(2));
            ends.watch(&key(), other, told.recipient()).unwrap();
            ends.emit(event(other, answered("two")));
            assert_eq!(told.next().await, ended);
            assert_eq!(told.next().await.turn, other);
        });
    }
}
