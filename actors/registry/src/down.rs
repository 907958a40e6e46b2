//! What follows from a session's end: nothing, another start, or a quarantine.
//!
//! | end | what follows |
//! |---|---|
//! | crash, restarted in place | counted against the shard's budget; beyond it the shard pauses |
//! | crash while the process stops | the next life checkpoints its turn and leaves |
//! | gave up (crashes reached the intensity) | quarantine, reason `crashes`, or `load` when it never got loaded |
//! | stopped as `panicked` (it could not load) | quarantine, reason `load` |
//! | stopped, lease released | – |
//! | stopped for the process's sake | – |
//! | stopped, lease not released, mail or work left | started again |
//! | its arbiter ended | – : the process is stopping, and the slot's guard may be held by the caller |

use std::sync::PoisonError;

use domain::ids::SessionKey;
use domain::text::counted;
use protocol::journal::Quarantine;
use protocol::session::{Mail, State};
use protocol::supervision::{ActorPath, Down, Event, EventName, ExitReason, Kind};
use supervision::CrashCell;
use supervision::lease::SlotView;
use supervision::log::timestamp;

use crate::answer::stop;
use crate::quarantine::{Held, Waiting, length};
use crate::registry::{Registry, Sector, shard_path};

impl Registry {
    /// On the session's arbiter, before its mailbox is dropped.
    pub(crate) fn down(&self, key: &SessionKey, incarnation: u64, crash: &CrashCell, down: &Down) {
        let (index, sector) = self.sector(key);
        match down.reason {
            ExitReason::Panicked | ExitReason::IntensityExceeded => {
                self.count_crash(index, sector, key, crash);
                if down.restarts {
                    sector.slots.restarts(key, incarnation);
                    if self.is_stopping() {
                        // Its next life does not know that it has to leave.
                        let _ = sector.slots.tell_live(key, Mail::Interrupt);
                    }
                } else {
                    self.quarantine(index, sector, key, incarnation, crash);
                }
            }
            ExitReason::Normal | ExitReason::Passivated => {
                if sector.waitlist.forget(key)
                    && let Some(journal) = self.journal()
                {
                    // Nobody waits for it: should it not get to the disk, the next quarantine is a longer one.
                    drop(journal.unquarantine(key.clone()));
                }
                let unreleased = sector.slots.remove(key, incarnation);
                if unreleased.is_some_and(|slot| slot.depth > 0 || slot.note.inbox > 0 || slot.note.turn.is_some()) {
                    self.wake(key, false, crash.last_event());
                }
            }
            ExitReason::Shutdown => {
                sector.slots.remove(key, incarnation);
            }
            ExitReason::Killed | ExitReason::Noproc => {}
        }
    }

    fn count_crash(&self, index: usize, sector: &Sector, key: &SessionKey, crash: &CrashCell) {
        let now = self.kernel.ports().clock.mono();
        let minimum = usize::try_from(self.config.shard_min_sessions).unwrap_or(usize::MAX);
        let mut budget = sector.budget.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(exceeded) = budget.crashed(key, now, sector.slots.len(), minimum) else { return };
        drop(budget);
        let mut pause = sector.pause();
        if !pause.holds() {
            self.metrics.shards_paused.inc();
        }
        let lasts = pause.begin(now);
        let mut event = Event::new(EventName::Escalated, ActorPath(shard_path(index).into()), Kind::Registry);
        event.reason = Some(format!("{} crashed, {} allowed", counted(exceeded.crashing, "session"), exceeded.allowed));
        event.verdict = Some(format!("no session is started for {} s", lasts.as_secs()));
        event.backoff_ms = Some(u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX));
        event.cause = crash.last_crash().map(|last| last.event);
        pause.told(self.kernel.log().record(event));
    }

    /// Ends a pause whose time is over, and starts what has come meanwhile.
    pub(crate) fn end_pause(&self, index: usize, sector: &Sector) {
        let Some(cause) = sector.pause().end(self.kernel.ports().clock.mono()) else { return };
        self.metrics.shards_paused.dec();
        let mut event = Event::new(EventName::Resumed, ActorPath(shard_path(index).into()), Kind::Registry);
        event.cause = cause;
        let id = self.kernel.log().record(event);
        if let Some(me) = self.me.upgrade() {
            actix_rt::spawn(async move { me.catch_up(index, Some(&id)).await });
        }
    }

    /// Holds the session back first and removes its slot then: whoever finds no slot finds the quarantine.
    fn quarantine(&self, index: usize, sector: &Sector, key: &SessionKey, incarnation: u64, crash: &CrashCell) {
        let times = sector.waitlist.count(key);
        let lasts = length(self.config.quarantine_base, self.config.quarantine_cap, times);
        let lasts_ms = u64::try_from(lasts.as_millis()).unwrap_or(u64::MAX);
        let until_ms = self.kernel.ports().clock.wall_ms().saturating_add(lasts_ms);
        let held = Held { until_ms, event: None, inbox: 0, stop: None };
        sector.waitlist.hold(key.clone(), Waiting::Quarantined(held));
        let Some(slot) = sector.slots.remove(key, incarnation) else {
            tracing::warn!(target: "registry", "a session crashed after it had left its slot");
            return;
        };
        let reason = reason(&slot, crash);
        if let Some(journal) = self.journal() {
            let turn = crash.blamed();
            let entry = Quarantine { key: key.clone(), until_ms, times, reason: reason.into(), turn };
            // Nobody waits for it: should it not get to the disk, the next process tries the session earlier.
            drop(journal.quarantine(entry));
        }
        let mut event = Event::new(EventName::Quarantined, ActorPath::session(index, key), Kind::Session);
        event.session = Some(key.clone());
        event.reason = Some(reason.to_owned());
        event.verdict = Some(format!("held until {}", timestamp(until_ms.saturating_mul(1000))));
        event.inbox = Some(u64::from(slot.note.inbox));
        event.cause = crash.last_crash().map(|last| last.event);
        let id = self.kernel.log().record(event);
        // The turn that crashed counts too: it is still open.
        let inbox = slot.note.inbox + u32::from(slot.note.turn.is_some());
        let held = Held { until_ms, event: Some(id), inbox, stop: None };
        sector.waitlist.hold(key.clone(), Waiting::Quarantined(held));
    }

    /// Ends the quarantines whose time is over.
    pub(crate) fn end_quarantines(&self, sector: &Sector) {
        let now_ms = self.kernel.ports().clock.wall_ms();
        for key in sector.waitlist.ended(now_ms) {
            if let Some(held) = sector.waitlist.release_ended(&key, now_ms) {
                self.released(&key, held, "its time is over");
            }
        }
    }

    /// Starts a session that was let go: it looks itself whether messages came meanwhile. The journal keeps how often it
    /// was held back until it leaves memory in order, so that the next quarantine is longer also after a restart.
    pub(crate) fn released(&self, key: &SessionKey, held: Held, why: &str) {
        let (index, _) = self.sector(key);
        let mut event = Event::new(EventName::Released, ActorPath::session(index, key), Kind::Session);
        event.session = Some(key.clone());
        event.reason = Some(why.to_owned());
        event.cause = held.event;
        let id = self.kernel.log().record(event);
        match held.stop {
            // One that is not started just now, as the process stops or its shard pauses, begins without it.
            Some(all) => drop(self.reach_for(key, stop(all), Some(id))),
            None => drop(self.wake(key, false, Some(id))),
        }
    }
}

fn reason(slot: &SlotView, crash: &CrashCell) -> &'static str {
    let in_turn = crash.last_crash().is_some_and(|last| last.crash.turn.is_some());
    if slot.note.state == State::Loading && !in_turn { "load" } else { "crashes" }
}
