//! Whether a crashed actor begins again, and when. Pure.
//!
//! | crashes within `window`, this one included | verdict |
//! |---|---|
//! | fewer than `intensity` | restart after a backoff |
//! | `intensity` or more | give up |
//!
//! The backoff doubles from `backoff_base` with every crash of a streak up to `backoff_cap`, and half of it is random, so
//! that many actors felled by one cause do not come back in step. A pause of `quiet` between two crashes ends a streak.

use std::collections::VecDeque;
use std::time::Duration;

/// The bounds of one actor's restarts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RestartPolicy {
    /// This many crashes within `window` end the restarts.
    pub intensity: u32,
    /// The window that slides over the crashes.
    pub window: Duration,
    /// Backoff after the first crash of a streak.
    pub backoff_base: Duration,
    /// The longest backoff.
    pub backoff_cap: Duration,
    /// A pause this long between two crashes begins a new streak.
    pub quiet: Duration,
}

impl Default for RestartPolicy {
    fn default() -> Self {
        Self {
            intensity: 5,
            window: Duration::from_secs(60),
            backoff_base: Duration::from_millis(100),
            backoff_cap: Duration::from_secs(30),
            quiet: Duration::from_secs(60),
        }
    }
}

/// What is to be done about a crash.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Begin again.
    Restart {
        /// After this long.
        backoff: Duration,
        /// Crashes within the window, this one included.
        in_window: u32,
    },
    /// Stop restarting.
    GiveUp {
        /// Crashes within the window, this one included.
        in_window: u32,
    },
}

/// The crashes of one actor, as far as they matter.
#[derive(Debug, Default)]
pub struct CrashHistory {
    /// Times of the crashes within the window, oldest first; at most `intensity` of them.
    recent: VecDeque<Duration>,
    streak: u32,
    last: Option<Duration>,
}

impl CrashHistory {
    /// Counts a crash at `now` (monotonic) and decides. `random` makes the jitter.
    pub fn crashed(&mut self, policy: &RestartPolicy, now: Duration, random: u64) -> Verdict {
        while self.recent.front().is_some_and(|first| now.saturating_sub(*first) >= policy.window) {
            self.recent.pop_front();
        }
        if self.last.is_some_and(|last| now.saturating_sub(last) >= policy.quiet) {
            self.streak = 0;
        }
        self.recent.push_back(now);
        self.last = Some(now);
        self.streak = self.streak.saturating_add(1);
        let in_window = u32::try_from(self.recent.len()).unwrap_or(u32::MAX);
        if in_window >= policy.intensity {
            return Verdict::GiveUp { in_window };
        }
        Verdict::Restart { backoff: backoff(policy, self.streak, random), in_window }
    }

    /// Until when (monotonic) the crashes make a difference; `None` when there are none.
    pub fn matters_until(&self, policy: &RestartPolicy) -> Option<Duration> {
        self.last.map(|last| last.saturating_add(policy.window.max(policy.quiet)))
    }

    /// The crashes so far have been dealt with otherwise; they no longer count.
    pub fn forgive(&mut self) {
        *self = Self::default();
    }
}

fn backoff(policy: &RestartPolicy, streak: u32, random: u64) -> Duration {
    let doublings = streak.saturating_sub(1).min(31);
    let full = policy.backoff_base.saturating_mul(1 << doublings).min(policy.backoff_cap);
    let half = full / 2;
    let spread_us = u64::try_from((full - half).as_micros()).unwrap_or(u64::MAX);
    half + Duration::from_micros(random % spread_us.saturating_add(1))
}

#[cfg(test)]
mod tests;
