//! Sessions that must not be live for now. Pure but for the map itself.

use std::time::Duration;

use dashmap::DashMap;
use domain::ids::SessionKey;
use protocol::session::State;

/// Why a session must wait.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Waiting {
    /// It crashed too often.
    Quarantined(Held),
    /// It may have ended the process; it is started alone, after all others.
    Suspect,
}

/// A quarantine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Held {
    /// Its end, ms since 1970.
    pub until_ms: u64,
    /// Id of its event, the cause of its release.
    pub event: Option<String>,
    /// Turns that waited when it began.
    pub inbox: u32,
    /// A stop that came meanwhile, and whether it meant all turns.
    pub stop: Option<bool>,
}

/// The sessions of one shard that wait, and how often in a row each had to.
#[derive(Debug, Default)]
pub struct Waitlist {
    waiting: DashMap<SessionKey, Waiting>,
    /// Of live sessions and those in quarantine; forgotten when a session leaves memory in order.
    times: DashMap<SessionKey, u32>,
}

impl Waitlist {
    /// Whether `key` must not be live.
    pub fn holds(&self, key: &SessionKey) -> bool {
        self.waiting.contains_key(key)
    }

    /// What `key` waits for; `None` when it does not.
    pub fn state(&self, key: &SessionKey) -> Option<State> {
        self.waiting.get(key).map(|waiting| match *waiting {
            Waiting::Quarantined(_) => State::Quarantined,
            // Among the running turns there is no place for it yet.
            Waiting::Suspect => State::Waiting,
        })
    }

    /// Whether `key` is in quarantine.
    pub fn is_quarantined(&self, key: &SessionKey) -> bool {
        self.waiting.get(key).is_some_and(|waiting| matches!(*waiting, Waiting::Quarantined(_)))
    }

    /// Turns that waited when the quarantine of `key` began.
    pub fn inbox(&self, key: &SessionKey) -> u32 {
        self.waiting.get(key).map_or(0, |waiting| match &*waiting {
            Waiting::Quarantined(held) => held.inbox,
            Waiting::Suspect => 0,
        })
    }

    /// Keeps a stop for the end of the quarantine of `key`.
    pub fn remember_stop(&self, key: &SessionKey, all: bool) {
        if let Some(mut waiting) = self.waiting.get_mut(key)
            && let Waiting::Quarantined(held) = &mut *waiting
        {
            held.stop = Some(all || held.stop == Some(true));
        }
    }

    /// The quarantine that holds is the `times`th in a row of `key`.
    pub fn counted(&self, key: &SessionKey, times: u32) {
        self.times.insert(key.clone(), times);
    }

    /// Counts a quarantine of `key`: how many that makes in a row.
    pub fn count(&self, key: &SessionKey) -> u32 {
        let mut times = self.times.entry(key.clone()).or_default();
        *times = times.saturating_add(1);
        *times
    }

    /// The next quarantine of `key` is its first; whether it had one.
    pub fn forget(&self, key: &SessionKey) -> bool {
        self.times.remove(key).is_some()
    }

    /// Holds `key` back.
    pub fn hold(&self, key: SessionKey, waiting: Waiting) {
        self.waiting.insert(key, waiting);
    }

    /// Ends a quarantine that ended before `now_ms`.
    pub fn release_ended(&self, key: &SessionKey, now_ms: u64) -> Option<Held> {
        self.take(key, |waiting| matches!(waiting, Waiting::Quarantined(held) if held.until_ms <= now_ms))
    }

    /// Ends a quarantine.
    pub fn release(&self, key: &SessionKey) -> Option<Held> {
        self.take(key, |waiting| matches!(waiting, Waiting::Quarantined(_)))
    }

    fn take(&self, key: &SessionKey, which: impl FnOnce(&Waiting) -> bool) -> Option<Held> {
        match self.waiting.remove_if(key, |_, waiting| which(waiting))? {
            (_, Waiting::Quarantined(held)) => Some(held),
            (_, Waiting::Suspect) => None,
        }
    }

    /// Lets a suspect go.
    pub fn admit_suspect(&self, key: &SessionKey) {
        self.waiting.remove_if(key, |_, waiting| *waiting == Waiting::Suspect);
    }

    /// Quarantines that ended before `now_ms`, in order of their keys.
    pub fn ended(&self, now_ms: u64) -> Vec<SessionKey> {
        let ended = |waiting: &Waiting| matches!(waiting, Waiting::Quarantined(held) if held.until_ms <= now_ms);
        let mut keys: Vec<_> = self.waiting.iter().filter(|one| ended(one)).map(|one| one.key().clone()).collect();
        keys.sort();
        keys
    }

    /// Everything that waits, in order of the keys.
    pub fn all(&self) -> Vec<(SessionKey, Waiting)> {
        let mut all: Vec<_> = self.waiting.iter().map(|one| (one.key().clone(), one.value().clone())).collect();
        all.sort_by(|a, b| a.0.cmp(&b.0));
        all
    }

    /// How many wait.
    pub fn len(&self) -> usize {
        self.waiting.len()
    }
}

/// How long the `times`th quarantine in a row lasts: doubling from `base` up to `cap`.
pub fn length(base: Duration, cap: Duration, times: u32) -> Duration {
    base.saturating_mul(1 << times.saturating_sub(1).min(31)).min(cap)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quarantines_double_up_to_the_cap() {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        let table = [(0, 10), (1, 10), (2, 20), (3, 40), (5, 160), (6, 320), (7, 360), (u32::MAX, 360)];
        for (times, expect) in table {
            assert_eq!(length(minutes(10), minutes(360), times), minutes(expect), "{times}");
        }
    }

    #[test]
    fn only_ended_quarantines_are_released_by_time() {
        let list = Waitlist::default();
        let key = |n: u32| SessionKey::new(&format!("api:{n}")).unwrap();
        let held = |until_ms| Held { until_ms, event: None, inbox: 0, stop: None };
        list.hold(key(1), Waiting::Quarantined(held(10)));
        list.hold(key(2), Waiting::Quarantined(held(20)));
        list.hold(key(3), Waiting::Suspect);
        assert_eq!(list.ended(10), [key(1)]);
        assert_eq!(list.release_ended(&key(2), 10), None);
        assert_eq!(list.release_ended(&key(1), 10), Some(held(10)));
        assert_eq!(list.release(&key(3)), None);
        assert!(list.holds(&key(3)));
        assert_eq!(list.release(&key(2)), Some(held(20)));
        list.admit_suspect(&key(3));
        assert_eq!(list.len(), 0);
    }
}
