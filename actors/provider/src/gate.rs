//! The breaker as the front ends of the process share it, with what it tells: events, gauge, and a text for users.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use protocol::metrics::Metrics;
use protocol::provider::{Failure, FailureKind};
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use supervision::ports::Clock;

use crate::breaker::{Admission, Breaker, Change};

/// Lets calls through, or not.
pub struct Gate {
    /// Of the provider.
    name: Arc<str>,
    state: Mutex<State>,
    clock: Arc<dyn Clock>,
    log: Arc<dyn SupervisionLog>,
    metrics: Metrics,
}

#[derive(Default)]
struct State {
    breaker: Breaker,
    /// The event that told that it opened.
    event: Option<String>,
}

/// One call that was let through. Dropped without an outcome, it lets the next one try.
pub struct Pass {
    gate: Arc<Gate>,
    tries: bool,
}

// === impl Gate ===

impl Gate {
    /// Open to all.
    pub fn new(name: Arc<str>, clock: Arc<dyn Clock>, log: Arc<dyn SupervisionLog>, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self { name, state: Mutex::default(), clock, log, metrics })
    }

    /// A pass, or what the user is told instead.
    pub fn enter(self: &Arc<Self>) -> Result<Pass, Failure> {
        let admission = self.lock().breaker.admit(self.clock.mono());
        match admission {
            Admission::Call => Ok(Pass { gate: self.clone(), tries: false }),
            Admission::Try => Ok(Pass { gate: self.clone(), tries: true }),
            Admission::Refused { left, kind } => Err(self.refusal(left, kind)),
        }
    }

    fn refusal(&self, left: Duration, kind: FailureKind) -> Failure {
        let name = &self.name;
        let seconds = left.as_secs() + 1;
        let detail = match kind {
            FailureKind::Billing => format!(
                "{name} is not asked for now, as its account has no credit left; it is tried again in {seconds} s"
            ),
            FailureKind::Transient
            | FailureKind::Overloaded
            | FailureKind::RateLimited
            | FailureKind::Unauthorized
            | FailureKind::ContextTooLong
            | FailureKind::Refused => {
                format!("{name} is not asked for now, as its last calls failed; it is tried again in {seconds} s")
            }
        };
        Failure { kind, detail }
    }

    fn ended(&self, failure: Option<FailureKind>, tries: bool) {
        let mut state = self.lock();
        match state.breaker.ended(failure, tries, self.clock.mono()) {
            None => {}
            Some(Change::Opened { lasts, kind, failures, again }) => {
                if !again {
                    self.metrics.providers_open.inc();
                }
                let mut event = self.event(EventName::ProviderOpened);
                event.reason =
                    Some(format!("{}: {failures} tries in a row failed, the last as {}", self.name, kind.word()));
                event.verdict = Some(format!("not asked for {} s", lasts.as_secs()));
                event.backoff_ms = Some(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
                event.cause = state.event.take();
                state.event = Some(self.log.record(event));
            }
            Some(Change::Closed) => {
                self.metrics.providers_open.dec();
                let mut event = self.event(EventName::ProviderClosed);
                event.reason = Some(format!("{} answers again", self.name));
                event.cause = state.event.take();
                self.log.record(event);
            }
        }
    }

    fn event(&self, name: EventName) -> Event {
        Event::new(name, ActorPath("/provider".into()), Kind::Provider)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing panics while it is held.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

// === impl Pass ===

impl Pass {
    /// One try of the call ended: answered, or with a failure of this class.
    pub fn ended(&mut self, failure: Option<FailureKind>) {
        // Only the first try is the one for all.
        self.gate.ended(failure, std::mem::take(&mut self.tries));
    }
}

impl Drop for Pass {
    fn drop(&mut self) {
        if self.tries {
            self.gate.lock().breaker.given_up(self.gate.clock.mono());
        }
    }
}
