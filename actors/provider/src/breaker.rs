//! When a provider is not asked any more: after failures in a row, or when the account has no credit. Pure.
//!
//! ```text
//!            failures in a row, no credit                 the time is over: one call tries
//!   Closed ──────────────────────────────▶ Open(until) ───────────────────────────────────▶ Trying
//!     ▲                                      ▲                                                 │
//!     │                                      └──────── it failed: twice as long, capped ───────┤
//!     └──────────────────────────── an answer of any call ─────────────────────────────────────┘
//! ```
//!
//! | outcome of one try | counts as |
//! |---|---|
//! | transient, overloaded | failure |
//! | billing | opens at once |
//! | rate limited | nothing: the provider works, the call waits and tries again by itself |
//! | answered, unauthorized, refused, context too long | the provider works |
//!
//! Calls that are under way go on with their further tries, which are bounded, whatever the state is.

use std::time::Duration;

use protocol::provider::FailureKind;

/// Tries that fail in a row before it opens.
pub const FAILURES_MAX: u32 = 10;
/// The first time that it stays open; doubled each time.
const OPEN_FIRST: Duration = Duration::from_secs(5);
/// The same after a billing failure.
const OPEN_FIRST_BILLING: Duration = Duration::from_secs(60);
/// The longest time.
pub const OPEN_MAX: Duration = Duration::from_secs(300);

/// The breaker of one provider.
#[derive(Debug, Default)]
pub struct Breaker {
    /// Failures since the last answer.
    failures: u32,
    open: Option<Open>,
}

#[derive(Debug, Clone, Copy)]
struct Open {
    until: Duration,
    lasts: Duration,
    kind: FailureKind,
    /// A call tries whether the provider answers again.
    trying: bool,
}

/// Whether a call may be made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Admission {
    /// It may.
    Call,
    /// It may, and all others wait for what becomes of it.
    Try,
    /// It may not, for that long at least.
    Refused {
        /// Until somebody tries again.
        left: Duration,
        /// What the provider failed with.
        kind: FailureKind,
    },
}

/// What changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Change {
    /// It opened, or stays open after a try.
    Opened {
        /// For how long.
        lasts: Duration,
        /// What the provider failed with.
        kind: FailureKind,
        /// Tries that failed in a row.
        failures: u32,
        /// Whether it was open before.
        again: bool,
    },
    /// It closed.
    Closed,
}

// === impl Breaker ===

impl Breaker {
    /// Whether a new call may be made at `now`.
    pub fn admit(&mut self, now: Duration) -> Admission {
        match &mut self.open {
            None => Admission::Call,
            Some(open) if now >= open.until && !open.trying => {
                open.trying = true;
                Admission::Try
            }
            Some(open) => Admission::Refused { left: open.until.saturating_sub(now), kind: open.kind },
        }
    }

    /// One try of a call ended: answered, or with a failure of this class. `tries` says that it was the one that tries
    /// for all.
    pub fn ended(&mut self, failure: Option<FailureKind>, tries: bool, now: Duration) -> Option<Change> {
        match failure {
            Some(kind @ (FailureKind::Transient | FailureKind::Overloaded | FailureKind::Billing)) => {
                self.failures = self.failures.saturating_add(1);
                self.failed(kind, tries, now)
            }
            Some(FailureKind::RateLimited) => {
                if tries {
                    self.given_up(now);
                }
                None
            }
            Some(FailureKind::Unauthorized | FailureKind::ContextTooLong | FailureKind::Refused) | None => {
                self.failures = 0;
                self.open.take().map(|_| Change::Closed)
            }
        }
    }

    /// The call that tries for all ended without an outcome: the next one tries.
    pub fn given_up(&mut self, now: Duration) {
        if let Some(open) = &mut self.open {
            open.trying = false;
            open.until = open.until.min(now);
        }
    }

    fn failed(&mut self, kind: FailureKind, tries: bool, now: Duration) -> Option<Change> {
        let first = if kind == FailureKind::Billing { OPEN_FIRST_BILLING } else { OPEN_FIRST };
        let lasts = match self.open {
            Some(open) if tries => open.lasts.saturating_mul(2).max(first).min(OPEN_MAX),
            // Of a call that was under way before.
            Some(_) => return None,
            None if kind == FailureKind::Billing || self.failures >= FAILURES_MAX => first,
            None => return None,
        };
        let again = self.open.is_some();
        self.open = Some(Open { until: now + lasts, lasts, kind, trying: false });
        Some(Change::Opened { lasts, kind, failures: self.failures, again })
    }
}

#[cfg(test)]
mod tests {
    use FailureKind::*;

    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn failures_in_a_row_open_it_and_any_answer_between_them_does_not() {
        let mut breaker = Breaker::default();
        for _ in 0..5 {
            for _ in 1..FAILURES_MAX {
                assert_eq!(breaker.ended(Some(Transient), false, secs(1)), None);
            }
            assert_eq!(breaker.ended(None, false, secs(1)), None);
        }
        for kind in [Transient, Overloaded].into_iter().cycle().take(9) {
            assert_eq!(breaker.ended(Some(kind), false, secs(1)), None);
            assert_eq!(breaker.ended(Some(RateLimited), false, secs(1)), None);
        }
        assert_eq!(breaker.admit(secs(1)), Admission::Call);
        let opened = Change::Opened { lasts: secs(5), kind: Overloaded, failures: 10, again: false };
        assert_eq!(breaker.ended(Some(Overloaded), false, secs(1)), Some(opened));
        assert_eq!(breaker.ended(Some(Overloaded), false, secs(1)), None, "it is open already");
        assert_eq!(breaker.admit(secs(2)), Admission::Refused { left: secs(4), kind: Overloaded });
    }

    #[test]
    fn one_call_tries_and_the_time_doubles_up_to_the_cap() {
        let mut breaker = Breaker::default();
        let mut now = secs(0);
        for _ in 0..FAILURES_MAX {
            breaker.ended(Some(Transient), false, now);
        }
        let mut lengths = vec![5];
        for _ in 0..8 {
            now += secs(*lengths.last().unwrap());
            assert_eq!(breaker.admit(now), Admission::Try);
            assert!(matches!(breaker.admit(now), Admission::Refused { .. }), "only one tries");
            let Some(Change::Opened { lasts, again: true, .. }) = breaker.ended(Some(Transient), true, now) else {
                panic!("it must stay open");
            };
            lengths.push(lasts.as_secs());
        }
        assert_eq!(lengths, [5, 10, 20, 40, 80, 160, 300, 300, 300]);
        now += OPEN_MAX;
        assert_eq!(breaker.admit(now), Admission::Try);
        assert_eq!(breaker.ended(None, true, now), Some(Change::Closed));
        assert_eq!(breaker.admit(now), Admission::Call);
    }

    #[test]
    fn a_try_without_an_outcome_lets_the_next_one_try() {
        let mut breaker = Breaker::default();
        breaker.ended(Some(Billing), false, secs(0));
        assert_eq!(breaker.admit(secs(60)), Admission::Try);
        breaker.given_up(secs(61));
        assert_eq!(breaker.admit(secs(61)), Admission::Try);
        assert_eq!(breaker.ended(Some(RateLimited), true, secs(61)), None);
        assert_eq!(breaker.admit(secs(61)), Admission::Try);
    }

    #[test]
    fn missing_credit_stops_all_calls_at_the_first_one() {
        let mut breaker = Breaker::default();
        let opened = Change::Opened { lasts: secs(60), kind: Billing, failures: 1, again: false };
        assert_eq!(breaker.ended(Some(Billing), false, secs(0)), Some(opened));
        assert_eq!(breaker.admit(secs(59)), Admission::Refused { left: secs(1), kind: Billing });
    }

    #[test]
    fn an_answer_of_a_call_that_was_under_way_closes_it() {
        let mut breaker = Breaker::default();
        for _ in 0..FAILURES_MAX {
            breaker.ended(Some(Transient), false, secs(0));
        }
        assert_eq!(breaker.ended(Some(Unauthorized), false, secs(1)), Some(Change::Closed), "it answers");
    }
}
