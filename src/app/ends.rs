//! Passes turn events on to the doors' hub, and tells other actors of the ends that they wait for.

use std::sync::Arc;

use actix::Recipient;
use dashmap::DashMap;
use domain::ids::{Attempt, SessionKey, TurnId};
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
    /// accepted yet, so that one must have begun first.
    begun: bool,
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

    fn finished(&self, turn: TurnId, finished: &Finished) {
        let Some((turn, Watcher { key, to, begun: _ })) = self.watched.remove(&turn) else { return };
        self.show();
        let Finished { result, text, model, usage, .. } = finished;
        let ended = TurnEnded {
            key,
            turn,
            result: *result,
            text: text.as_str().into(),
            usage: *usage,
            model: Arc::clone(model),
        };
        for to in &to {
            // Whoever is gone asks again when it is back.
            let _ = tell(to, ended.clone());
        }
    }
}

impl TurnEvents for Ends {
    fn emit(&self, event: TurnEvent) {
        let ended = match &event.what {
            TurnProgress::Finished(finished) => Some((event.turn, Arc::clone(finished))),
            TurnProgress::Started => {
                self.watched.get_mut(&event.turn).iter_mut().for_each(|watched| watched.begun = true);
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
        self.hub.emit(event);
        if let Some((turn, finished)) = ended {
            self.finished(turn, &finished);
        }
    }

    fn unfinished(&self, key: &SessionKey) -> Vec<(TurnId, Attempt)> {
        let mut turns = self.hub.unfinished(key);
        let watched =
            self.watched.iter().filter(|watched| watched.begun && watched.key == *key).map(|watched| *watched.key());
        let more: Vec<TurnId> = watched.filter(|turn| turns.iter().all(|(other, _)| other != turn)).collect();
        turns.extend(more.into_iter().map(|turn| (turn, Attempt::FIRST)));
        turns
    }
}

impl TurnWatch for Ends {
    fn watch(&self, key: &SessionKey, turn: TurnId, to: Recipient<TurnEnded>) -> Result<(), WatchedTooMany> {
        if self.watched.len() >= WATCHED_MAX && !self.watched.contains_key(&turn) {
            return Err(WatchedTooMany);
        }
        let nobody = || Watcher { key: key.clone(), to: Vec::new(), begun: false };
        let mut watched = self.watched.entry(turn).or_insert_with(nobody);
        if !watched.to.contains(&to) {
            watched.to.push(to);
        }
        drop(watched);
        self.show();
        Ok(())
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
}
