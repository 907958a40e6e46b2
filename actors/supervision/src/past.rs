//! Crashes of actors that have left since: one that comes back to its path soon begins with them, so that leaving memory
//! gives nobody fresh restarts.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use protocol::metrics::{ByBound, Metrics, gauge};
use protocol::supervision::ActorPath;

use crate::restart::{CrashHistory, RestartPolicy};

/// Actors whose crashes are kept; over it those are forgotten that would be forgotten first.
const HISTORIES_MAX: usize = 4096;

/// What is kept, by path, each until it matters no more.
#[derive(Debug, Default)]
pub(crate) struct Past(Mutex<BTreeMap<ActorPath, Kept>>);

#[derive(Debug)]
struct Kept {
    until: Duration,
    history: CrashHistory,
}

// === impl Past ===

impl Past {
    /// Empty, with its bound shown.
    pub fn new(metrics: &Metrics) -> Self {
        metrics.work.limit.get_or_create(&ByBound { bound: "crash_histories" }).set(gauge(HISTORIES_MAX));
        Self::default()
    }

    /// The actor at `path` has left at `now` (monotonic); how many are kept then.
    pub fn keep(&self, path: &ActorPath, policy: &RestartPolicy, history: CrashHistory, now: Duration) -> usize {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(until) = history.matters_until(policy).filter(|until| *until > now) {
            all.retain(|_, kept| kept.until > now);
            while all.len() >= HISTORIES_MAX
                && let Some(first) = all.iter().min_by_key(|(_, kept)| kept.until).map(|(path, _)| path.clone())
            {
                all.remove(&first);
            }
            all.insert(path.clone(), Kept { until, history });
        }
        all.len()
    }

    /// An actor comes to `path` at `now`: with the crashes of the one before, while they matter. How many others are kept.
    pub fn take(&self, path: &ActorPath, now: Duration) -> (CrashHistory, usize) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = all.remove(path).filter(|kept| kept.until > now);
        (kept.map(|kept| kept.history).unwrap_or_default(), all.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::restart::Verdict;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    fn path(n: usize) -> ActorPath {
        ActorPath(format!("/registry/0/session/api:{n}").into())
    }

    fn crashed_at(now: Duration) -> CrashHistory {
        let mut history = CrashHistory::default();
        history.crashed(&RestartPolicy::default(), now, 0);
        history
    }

    fn in_window(mut history: CrashHistory, now: Duration) -> u32 {
        match history.crashed(&RestartPolicy::default(), now, 0) {
            Verdict::Restart { in_window, .. } | Verdict::GiveUp { in_window } => in_window,
        }
    }

    #[test]
    fn crashes_count_for_the_next_actor_at_the_path_while_they_are_in_the_window() {
        for (back_after, expect) in [(0, 2), (59, 2), (60, 1), (1_000, 1)] {
            let past = Past::default();
            past.keep(&path(1), &RestartPolicy::default(), crashed_at(secs(5)), secs(5));
            let back = secs(5 + back_after);
            assert_eq!(in_window(past.take(&path(2), back).0, back), 1, "somebody else");
            assert_eq!(in_window(past.take(&path(1), back).0, back), expect, "{back_after} s later");
            assert_eq!(past.take(&path(1), back).1, 0, "taken");
        }
    }

    #[test]
    fn who_never_crashed_leaves_nothing_and_the_rest_is_bounded() {
        let (past, policy) = (Past::default(), RestartPolicy::default());
        assert_eq!(past.keep(&path(0), &policy, CrashHistory::default(), secs(1)), 0);
        for n in 1..=HISTORIES_MAX + 1 {
            let at = Duration::from_micros(n as u64);
            past.keep(&path(n), &policy, crashed_at(at), at);
        }
        assert_eq!(past.take(&path(1), secs(1)).1, HISTORIES_MAX, "the first one made room");
        assert_eq!(past.keep(&path(1), &policy, crashed_at(secs(500)), secs(500)), 1, "the others are over");
    }
}
