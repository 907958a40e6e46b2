//! When crashes of single sessions are a fault of the whole shard. Pure.

use std::collections::HashMap;
use std::time::Duration;

use domain::ids::SessionKey;

/// The window that slides over the crashes.
pub const WINDOW: Duration = Duration::from_secs(10);
/// This share of the live sessions may crash within the window, in percent.
pub const CRASHING_PERCENT_MAX: usize = 5;

/// The sessions that crashed lately: at most one entry for each live one.
#[derive(Debug, Default)]
pub struct Budget {
    last_crash: HashMap<SessionKey, Duration>,
    escalated: Option<Duration>,
}

/// The budget is used up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Exceeded {
    /// Distinct sessions that crashed within the window.
    pub crashing: usize,
    /// How many may.
    pub allowed: usize,
}

impl Budget {
    /// Counts a crash at `now` (monotonic). The answer says that the budget is used up, at most once per window.
    pub fn crashed(&mut self, key: &SessionKey, now: Duration, live: usize, minimum: usize) -> Option<Exceeded> {
        self.last_crash.retain(|_, at| now.saturating_sub(*at) < WINDOW);
        self.last_crash.insert(key.clone(), now);
        let allowed = (live * CRASHING_PERCENT_MAX / 100).max(minimum.saturating_sub(1));
        let crashing = self.last_crash.len();
        let silent = self.escalated.is_some_and(|at| now.saturating_sub(at) < WINDOW);
        if crashing <= allowed || silent {
            return None;
        }
        self.escalated = Some(now);
        Some(Exceeded { crashing, allowed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(n: u64) -> SessionKey {
        SessionKey::new(&format!("api:{n}")).unwrap()
    }

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn one_session_alone_never_escalates() {
        let mut budget = Budget::default();
        for n in 0..1000 {
            assert_eq!(budget.crashed(&key(1), secs(n / 10), 1, 5), None);
        }
    }

    #[test]
    fn the_fifth_distinct_session_escalates_once_per_window() {
        let mut budget = Budget::default();
        for n in 0..4 {
            assert_eq!(budget.crashed(&key(n), secs(1), 10, 5), None);
        }
        assert_eq!(budget.crashed(&key(4), secs(2), 10, 5), Some(Exceeded { crashing: 5, allowed: 4 }));
        assert_eq!(budget.crashed(&key(5), secs(3), 10, 5), None);
        assert!(budget.crashed(&key(6), secs(11), 10, 1).is_none());
        assert!(budget.crashed(&key(7), secs(12), 10, 1).is_some());
    }

    #[test]
    fn many_live_sessions_may_have_more_crashes() {
        let mut budget = Budget::default();
        for n in 0..50 {
            assert_eq!(budget.crashed(&key(n), secs(1), 1000, 5), None);
        }
        assert_eq!(budget.crashed(&key(50), secs(1), 1000, 5), Some(Exceeded { crashing: 51, allowed: 50 }));
    }

    #[test]
    fn crashes_leave_the_window() {
        let mut budget = Budget::default();
        for n in 0..100 {
            assert_eq!(budget.crashed(&key(n), secs(n * 3), 10, 5), None);
        }
    }
}
