//! What a shard does when its sessions crash beyond its budget: it starts none for a while, longer each time. Pure.

use std::time::Duration;

/// The first pause; each further one doubles it.
pub const FIRST: Duration = Duration::from_secs(2);
/// The longest pause.
pub const MAX: Duration = Duration::from_secs(60);
/// After so long without a pause the next one is a first one.
pub const QUIET: Duration = Duration::from_secs(60);

/// The pauses of one shard.
#[derive(Debug, Default)]
pub struct Pause {
    until: Option<Duration>,
    ended: Option<Duration>,
    in_a_row: u32,
    event: Option<String>,
}

// === impl Pause ===

impl Pause {
    /// Begins a pause, or prolongs the one that holds; how long it lasts from now on.
    pub fn begin(&mut self, now: Duration) -> Duration {
        if self.until.is_none() && self.ended.is_none_or(|ended| now.saturating_sub(ended) >= QUIET) {
            self.in_a_row = 0;
        }
        let lasts = FIRST.saturating_mul(1 << self.in_a_row.min(31)).min(MAX);
        self.in_a_row = self.in_a_row.saturating_add(1);
        self.until = Some(now + lasts);
        lasts
    }

    /// The event that told of it, the cause of the one that tells of its end.
    pub fn told(&mut self, event: String) {
        self.event = Some(event);
    }

    /// Whether one holds.
    pub fn holds(&self) -> bool {
        self.until.is_some()
    }

    /// Ends the pause if its time is over; the answer is the event that told of it.
    pub fn end(&mut self, now: Duration) -> Option<Option<String>> {
        self.until.take_if(|until| *until <= now)?;
        self.ended = Some(now);
        Some(self.event.take())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn secs(n: u64) -> Duration {
        Duration::from_secs(n)
    }

    #[test]
    fn pauses_in_a_row_double_up_to_the_longest_and_quiet_forgets_them() {
        let mut pause = Pause::default();
        let mut now = Duration::ZERO;
        let mut lengths = Vec::new();
        for _ in 0..7 {
            let lasts = pause.begin(now);
            assert!(pause.holds() && pause.end(now + lasts - secs(1)).is_none());
            now += lasts;
            assert_eq!(pause.end(now), Some(None));
            assert!(!pause.holds() && pause.end(now).is_none());
            lengths.push(lasts.as_secs());
            now += secs(10);
        }
        assert_eq!(lengths, [2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(pause.begin(now + QUIET), FIRST);
    }

    #[test]
    fn one_that_holds_is_prolonged_and_names_its_newest_event() {
        let mut pause = Pause::default();
        pause.begin(secs(0));
        pause.told("a-1".to_owned());
        assert_eq!(pause.begin(secs(1)), secs(4));
        pause.told("a-2".to_owned());
        assert_eq!(pause.end(secs(4)), None);
        assert_eq!(pause.end(secs(5)), Some(Some("a-2".to_owned())));
    }
}
