//! Boot: starts the sessions that have work, a bounded number of them loading at a time, and suspects last, alone.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::{SessionKey, TurnId};
use domain::text::counted;
use protocol::journal::{LeftBy, Unfinished};
use protocol::session::State;
use protocol::supervision::{ActorPath, Event, EventName, Kind};

use crate::quarantine::{Held, Waiting};
use crate::registry::{POLL_EVERY, Registry};

/// Sessions that load at the same time.
pub const LOADING_MAX: usize = 256;
/// A session that has not loaded for this long no longer counts as loading.
const LOADING_PATIENCE: Duration = Duration::from_secs(10);
/// A turn during which the process died this often is a suspect.
pub const SUSPECT_DEATHS: u32 = 2;

/// Who is started, and how. Pure.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    start: Vec<SessionKey>,
    suspects: Vec<(SessionKey, TurnId)>,
    quarantined: Vec<(SessionKey, u64)>,
    /// How often in a row each was in quarantine.
    times: Vec<(SessionKey, u32)>,
}

/// Suspects with the least blame come first: whoever was alone at a death waits for the others, so that deaths which have
/// another cause do not meet the same turn again and again.
fn plan(unfinished: Vec<Unfinished>, now_ms: u64) -> Plan {
    let mut plan = Plan::default();
    let mut suspects = Vec::new();
    for one in unfinished {
        if one.quarantined_times > 0 {
            plan.times.push((one.key.clone(), one.quarantined_times));
        }
        let died = one.cut.as_ref().is_some_and(|(_, left_by)| *left_by == LeftBy::Death);
        let blame = one.cut.as_ref().map_or(0, |(started, _)| started.crashes + u32::from(died && started.alone));
        let deaths = one.cut.map(|(started, _)| (started.turn, started.deaths + u32::from(died)));
        match (one.quarantined_until_ms, deaths) {
            (Some(until_ms), _) if until_ms > now_ms => plan.quarantined.push((one.key, until_ms)),
            (_, Some((turn, deaths))) if deaths >= SUSPECT_DEATHS => suspects.push((blame, one.key, turn)),
            (_, _) if one.turns > 0 => plan.start.push(one.key),
            // A quarantine that ended while the process was down, and nothing waits.
            (_, _) => {}
        }
    }
    suspects.sort_by_key(|(blame, ..)| *blame);
    plan.suspects = suspects.into_iter().map(|(_, key, turn)| (key, turn)).collect();
    plan
}

impl Registry {
    /// Starts every session that has work. Returns when all of them were started, but for the suspects: those follow one
    /// by one, each when the one before has ended its turn. `known` is called before any of them is started, once it is
    /// known who has work and who is held back: from then on new messages meet the right session state.
    pub async fn recover(self: &Arc<Self>, known: impl FnOnce()) {
        let Some(journal) = self.journal() else { return };
        let Ok(unfinished) = journal.unfinished().await else {
            tracing::error!(target: "registry", "the journal ended before sessions could be recovered");
            return;
        };
        let plan = plan(unfinished, self.kernel.ports().clock.wall_ms());
        let boot = self.kernel.log().latest(EventName::ProcessStarted);
        for (key, times) in &plan.times {
            self.sector(key).1.waitlist.counted(key, *times);
        }
        for (key, until_ms) in &plan.quarantined {
            let held = Held { until_ms: *until_ms, event: boot.clone(), inbox: 0, stop: None };
            self.sector(key).1.waitlist.hold(key.clone(), Waiting::Quarantined(held));
        }
        for (key, _) in &plan.suspects {
            self.sector(key).1.waitlist.hold(key.clone(), Waiting::Suspect);
        }
        known();
        let mut event = Event::new(EventName::Recovered, ActorPath("/registry".into()), Kind::Registry);
        event.reason = Some(format!(
            "{} with work, {}, {} in quarantine",
            counted(plan.start.len(), "session"),
            counted(plan.suspects.len(), "suspect"),
            plan.quarantined.len()
        ));
        event.cause.clone_from(&boot);
        self.start_all(plan.start, boot.as_ref()).await;
        self.kernel.log().record(event);
        if !plan.suspects.is_empty() {
            let me = Arc::clone(self);
            let job = move || {
                actix_rt::spawn(async move { me.start_suspects(plan.suspects, boot).await });
            };
            self.placement.run_on(0, Box::new(job));
        }
    }

    /// After a pause of a shard: starts its sessions that have work.
    pub(crate) async fn catch_up(&self, index: usize, cause: Option<&String>) {
        let Some(journal) = self.journal() else { return };
        // Without an answer the process is ending.
        let Ok(unfinished) = journal.unfinished().await else { return };
        let here = |one: &Unfinished| one.turns > 0 && self.sector(&one.key).0 == index;
        self.start_all(unfinished.into_iter().filter(here).map(|one| one.key).collect(), cause).await;
    }

    async fn start_all(&self, keys: Vec<SessionKey>, boot: Option<&String>) {
        let clock = &self.kernel.ports().clock;
        let mut loading: Vec<(SessionKey, Duration)> = Vec::new();
        for key in keys {
            while loading.len() >= LOADING_MAX && !self.is_stopping() {
                let now = clock.mono();
                loading.retain(|(key, since)| self.is_loading(key) && now.saturating_sub(*since) < LOADING_PATIENCE);
                if loading.len() >= LOADING_MAX {
                    tokio::time::sleep(POLL_EVERY).await;
                }
            }
            if self.wake(&key, false, boot.cloned()) {
                loading.push((key, clock.mono()));
            }
        }
    }

    fn is_loading(&self, key: &SessionKey) -> bool {
        self.sector(key)
            .1
            .slots
            .view(key)
            .is_some_and(|slot| matches!(slot.note.state, State::Loading | State::Restarting))
    }

    async fn start_suspects(&self, suspects: Vec<(SessionKey, TurnId)>, boot: Option<String>) {
        for (key, turn) in suspects {
            while self.sector(&key).1.pause().holds() && !self.is_stopping() {
                tokio::time::sleep(POLL_EVERY).await;
            }
            self.sector(&key).1.waitlist.admit_suspect(&key);
            self.wake(&key, true, boot.clone());
            while self.works_on(&key, turn) && !self.is_stopping() {
                tokio::time::sleep(POLL_EVERY).await;
            }
        }
    }

    /// Whether `turn` may still run: the session is live, and shows neither another turn nor that it is idle. The turn's
    /// own stall limit bounds how long that can be.
    fn works_on(&self, key: &SessionKey, turn: TurnId) -> bool {
        let slot = self.sector(key).1.slots.view(key);
        slot.is_some_and(|slot| match slot.note.turn {
            Some(running) => running == turn,
            None => slot.note.state != State::Idle,
        })
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::Attempt;
    use protocol::journal::Started;
    use uuid::Uuid;

    use super::*;

    fn unfinished(name: &str, cut: Option<(u32, LeftBy)>, turns: u32, until: Option<u64>) -> Unfinished {
        let started =
            |deaths| Started { turn: TurnId(Uuid::nil()), attempt: Attempt(1), crashes: 0, deaths, alone: false };
        Unfinished {
            key: SessionKey::new(name).unwrap(),
            cut: cut.map(|(deaths, left_by)| (started(deaths), left_by)),
            turns,
            quarantined_until_ms: until,
            quarantined_times: u32::from(until.is_some()),
        }
    }

    #[test]
    fn a_suspect_that_was_alone_at_a_death_waits_for_the_other_suspects() {
        let suspect = |name: &str, crashes, alone, left_by| {
            let started = Started { turn: TurnId(Uuid::nil()), attempt: Attempt(3), crashes, deaths: 2, alone };
            Unfinished {
                key: SessionKey::new(name).unwrap(),
                cut: Some((started, left_by)),
                turns: 1,
                quarantined_until_ms: None,
                quarantined_times: 0,
            }
        };
        let plan = plan(
            vec![
                suspect("alone twice", 1, true, LeftBy::Death),
                suspect("alone now", 0, true, LeftBy::Death),
                suspect("never alone", 0, false, LeftBy::Death),
                suspect("alone, stopped in order", 0, true, LeftBy::Interrupted),
            ],
            0,
        );
        let order: Vec<_> = plan.suspects.iter().map(|(key, _)| key.as_str()).collect();
        assert_eq!(order, ["never alone", "alone, stopped in order", "alone now", "alone twice"]);
    }

    #[test]
    fn suspects_and_quarantined_sessions_are_told_apart() {
        let plan = plan(
            vec![
                unfinished("new", None, 1, None),
                unfinished("crashed", Some((0, LeftBy::Crash)), 1, None),
                unfinished("died once", Some((0, LeftBy::Death)), 1, None),
                unfinished("died twice", Some((1, LeftBy::Death)), 1, None),
                unfinished("died twice, then stopped", Some((2, LeftBy::Interrupted)), 1, None),
                unfinished("held", Some((5, LeftBy::Death)), 1, Some(101)),
                unfinished("held, empty", None, 0, Some(101)),
                unfinished("held, over", None, 1, Some(100)),
                unfinished("held, over, empty", None, 0, Some(100)),
            ],
            100,
        );
        let names = |keys: &[SessionKey]| keys.iter().map(|key| key.as_str().to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&plan.start), ["new", "crashed", "died once", "held, over"]);
        let suspects: Vec<_> = plan.suspects.into_iter().map(|(key, _)| key).collect();
        assert_eq!(names(&suspects), ["died twice", "died twice, then stopped"]);
        let held: Vec<_> = plan.quarantined.into_iter().map(|(key, _)| key).collect();
        assert_eq!(names(&held), ["held", "held, empty"]);
    }
}
