//! How often a hook may be called: a bucket that fills evenly. Pure but for its own state.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

const MINUTE: Duration = Duration::from_secs(60);

/// So many calls a minute; a minute's worth of them at once.
#[derive(Debug)]
pub struct Rate {
    per_minute: u32,
    /// When the bucket would be full again.
    full_at: Mutex<Duration>,
}

// === impl Rate ===

impl Rate {
    /// A full bucket. At least one call a minute.
    pub fn per_minute(calls: u32) -> Self {
        Self { per_minute: calls.max(1), full_at: Mutex::default() }
    }

    /// Takes one call at `now`, or says how long to wait for one.
    pub(super) fn take(&self, now: Duration) -> Result<(), Duration> {
        let one = MINUTE / self.per_minute;
        let mut full_at = self.full_at.lock().unwrap_or_else(PoisonError::into_inner);
        let then = (*full_at).max(now) + one;
        match (then - now).checked_sub(one * self.per_minute) {
            None | Some(Duration::ZERO) => {
                *full_at = then;
                Ok(())
            }
            Some(over) => Err(over),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_minutes_worth_at_once_then_one_at_a_time() {
        let rate = Rate::per_minute(3);
        let at = |seconds| rate.take(Duration::from_secs(seconds));
        assert_eq!([at(100), at(100), at(100)], [Ok(()); 3]);
        assert_eq!(at(100), Err(Duration::from_secs(20)));
        assert_eq!(at(115), Err(Duration::from_secs(5)));
        assert_eq!((at(120), at(120)), (Ok(()), Err(Duration::from_secs(20))));
        assert_eq!([at(500), at(500), at(500)], [Ok(()); 3]);
        assert!(at(500).is_err());
        assert!(Rate::per_minute(0).take(Duration::ZERO).is_ok());
    }
}
