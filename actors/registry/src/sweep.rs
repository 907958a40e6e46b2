//! Which sessions should leave memory. Pure: the session itself has the last word.

use std::time::Duration;

use domain::ids::SessionKey;

/// Sessions asked to leave in one sweep; the rest waits for the next.
pub const SWEPT_MAX: usize = 10_000;

/// A session that does nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Idle {
    /// Whose.
    pub key: SessionKey,
    /// For how long.
    pub idle: Duration,
}

/// Those idle for `idle_max`, and, over `live_max` live ones, as many more as are too many; the longest idle first.
pub fn leavers(mut idle: Vec<Idle>, live: usize, idle_max: Duration, live_max: usize) -> Vec<SessionKey> {
    idle.sort_by(|a, b| b.idle.cmp(&a.idle).then_with(|| a.key.cmp(&b.key)));
    let too_many = live.saturating_sub(live_max);
    let leave = idle.into_iter().enumerate().take_while(|(n, one)| *n < too_many || one.idle >= idle_max);
    leave.take(SWEPT_MAX).map(|(_, one)| one.key).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn idle(seconds: &[u64]) -> Vec<Idle> {
        let one = |(n, seconds): (usize, &u64)| Idle {
            key: SessionKey::new(&format!("k{n}")).unwrap(),
            idle: Duration::from_secs(*seconds),
        };
        seconds.iter().enumerate().map(one).collect()
    }

    #[test]
    fn the_idle_and_the_surplus_leave_longest_idle_first() {
        let table: [(&[u64], usize, usize, &[&str]); 6] = [
            (&[], 0, 10, &[]),
            (&[1, 2, 3], 3, 10, &[]),
            (&[700, 2, 600], 3, 10, &["k0", "k2"]),
            (&[1, 5, 3], 3, 2, &["k1"]),
            (&[1, 5, 3], 10, 5, &["k1", "k2", "k0"]),
            (&[900, 5, 3], 6, 4, &["k0", "k1"]),
        ];
        for (seconds, live, max, expect) in table {
            let leave = leavers(idle(seconds), live, Duration::from_secs(600), max);
            assert_eq!(leave.iter().map(SessionKey::as_str).collect::<Vec<_>>(), expect, "{seconds:?}");
        }
    }
}
