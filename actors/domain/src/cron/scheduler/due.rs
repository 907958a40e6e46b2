//! Moments that came, and what became of those that were used.

use super::{
    CANCEL_MS_MAX, CATCH_UP_MAX, DISTANCE_MS_MIN, Effect, End, Entry, Fire, LATE_MS, Noted, OFFERED_MS_MAX, Offer,
    Scheduler, Verdict,
};
use crate::cron::job::{JobId, Missed, RunStatus, Running};
use crate::cron::schedule::Timing;
use crate::ids::TurnId;

/// What the history says of a moment at which the run before went on.
const OVERLAP: &str = "the run before had not ended";
/// What it says of moments that passed while nobody was there.
const MISSED: &str = "missed: the gateway did not run, or its clock jumped";
/// How long one waits that was refused without a word about it.
const AGAIN_MS_MIN: u64 = 1000;

impl Scheduler {
    /// Looks at each job once.
    pub(super) fn look(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        let mut changed = false;
        let mut over = Vec::new();
        for entry in &mut self.entries {
            changed |= entry.look_at_run(now_ms, effects);
            if entry.offer.is_some() {
                changed |= entry.offer_again(now_ms, effects);
            } else {
                changed |= entry.look_at_due(now_ms, effects);
            }
            if entry.is_over() {
                over.push(entry.job.id.clone());
            }
        }
        if !over.is_empty() {
            self.entries.retain(|entry| !over.contains(&entry.job.id));
        }
        if changed {
            self.changed();
        }
    }

    pub(super) fn answered(
        &mut self,
        job: &JobId,
        due_ms: u64,
        verdict: Verdict,
        now_ms: u64,
        effects: &mut Vec<Effect>,
    ) {
        // The job may have been removed meanwhile.
        let Some(entry) = self.find(job) else { return };
        let Some(offer) = entry.offer.filter(|offer| offer.due_ms == due_ms && offer.again_ms.is_none()) else {
            return;
        };
        match verdict {
            Verdict::Accepted(turn) => {
                entry.offer = None;
                entry.job.state.running = Some(Running { due_ms, at_ms: now_ms, run_id: turn.to_string() });
                entry.cancelled_ms = None;
                if !offer.by_hand {
                    entry.used(due_ms, now_ms);
                }
                effects.extend(entry.watch());
            }
            Verdict::Refused { retry_after_ms, .. } if now_ms.saturating_sub(offer.since_ms) < OFFERED_MS_MAX => {
                let wait = retry_after_ms.clamp(AGAIN_MS_MIN, OFFERED_MS_MAX);
                entry.offer = Some(Offer { again_ms: Some(now_ms + wait), ..offer });
                return;
            }
            Verdict::Refused { why, .. } | Verdict::Impossible(why) => {
                entry.offer = None;
                entry.record(due_ms, RunStatus::Error, 0, Some(&format!("not accepted: {why}")), None);
                effects.push(entry.note(Noted::Skipped, format!("not accepted: {why}")));
                if !offer.by_hand {
                    entry.used(due_ms, now_ms);
                }
                entry.end_of_once();
            }
        }
        self.changed();
    }

    pub(super) fn ended(&mut self, job: &JobId, turn: TurnId, end: End, now_ms: u64, effects: &mut Vec<Effect>) {
        let Some(entry) = self.find(job).filter(|entry| entry.turn() == Some(turn)) else { return };
        let End { status, error } = end;
        let late = entry.cancelled_ms.is_some() && status != RunStatus::Ok;
        let error = if late { Some(entry.too_long()) } else { error };
        entry.end_of_run(status, error.as_deref(), now_ms, effects);
        self.changed();
    }
}

impl Entry {
    /// Cancels a run that takes too long, and gives up one that does not end then.
    fn look_at_run(&mut self, now_ms: u64, effects: &mut Vec<Effect>) -> bool {
        let Some(running) = &self.job.state.running else { return false };
        let begun_ms = running.at_ms;
        let (Some(turn), Ok(key)) = (self.turn(), self.job.payload.key()) else {
            // Nobody can tell how it ended.
            self.end_of_run(RunStatus::Error, Some("its turn is not known"), now_ms, effects);
            return true;
        };
        match self.cancelled_ms {
            None if now_ms.saturating_sub(begun_ms) >= self.job.timeout_ms() => {
                self.cancelled_ms = Some(now_ms);
                effects.push(Effect::Cancel { key, turn });
                false
            }
            Some(at) if now_ms.saturating_sub(at) >= CANCEL_MS_MAX => {
                let why = self.too_long();
                self.end_of_run(RunStatus::Error, Some(&why), now_ms, effects);
                true
            }
            None | Some(_) => false,
        }
    }

    fn offer_again(&mut self, now_ms: u64, effects: &mut Vec<Effect>) -> bool {
        let due = self.offer.filter(|offer| offer.again_ms.is_some_and(|at| at <= now_ms));
        if let Some(offer) = due {
            if !offer.by_hand && !self.follows() {
                // It was switched off meanwhile.
                self.offer = None;
                return false;
            }
            self.offer = Some(Offer { again_ms: None, ..offer });
            effects.extend(self.fire(offer.due_ms));
        }
        false
    }

    fn look_at_due(&mut self, now_ms: u64, effects: &mut Vec<Effect>) -> bool {
        let Some(due_ms) = self.job.state.next_run_at_ms.filter(|due| *due <= now_ms && self.follows()) else {
            return false;
        };
        let late = now_ms - due_ms > LATE_MS;
        let missed = self.job.missed();
        if self.job.state.running.is_some() {
            if missed == Missed::All {
                return false;
            }
            self.skip(due_ms, OVERLAP);
            effects.push(self.note(Noted::Skipped, OVERLAP));
            self.used(due_ms, now_ms);
            return true;
        }
        match missed {
            Missed::Skip if late => {
                self.skip(due_ms, MISSED);
                effects.push(self.note(Noted::Skipped, MISSED));
                self.used(due_ms, now_ms);
                true
            }
            Missed::All if self.shorten(due_ms, now_ms) => {
                effects.push(
                    self.note(Noted::Skipped, format!("of the missed moments the last {CATCH_UP_MAX} are made up for")),
                );
                true
            }
            Missed::Skip | Missed::Once | Missed::All => {
                effects.extend(self.offer(due_ms, false, now_ms));
                false
            }
        }
    }

    /// Leaves out the oldest of too many moments that were missed.
    fn shorten(&mut self, due_ms: u64, now_ms: u64) -> bool {
        let first = match &self.timing {
            Ok(Timing::Every(every)) => {
                let every = (*every).max(DISTANCE_MS_MIN);
                let count = (now_ms - due_ms) / every + 1;
                let over = count.saturating_sub(CATCH_UP_MAX as u64);
                due_ms + over * every
            }
            Ok(Timing::Cron(pattern, zone)) => match pattern.earlier(CATCH_UP_MAX, now_ms, zone) {
                Some(first) => first.max(due_ms),
                None => due_ms,
            },
            Ok(Timing::At(_)) | Err(_) => due_ms,
        };
        self.job.state.next_run_at_ms = Some(first);
        first > due_ms
    }

    /// Hands the message over for the first time.
    pub(super) fn offer(&mut self, due_ms: u64, by_hand: bool, now_ms: u64) -> Option<Effect> {
        let fire = self.fire(due_ms)?;
        self.offer = Some(Offer { due_ms, since_ms: now_ms, again_ms: None, by_hand });
        Some(fire)
    }

    fn fire(&self, due_ms: u64) -> Option<Effect> {
        let key = self.job.payload.key().ok()?;
        Some(Effect::Fire(Box::new(Fire { job: self.job.clone(), key, due_ms })))
    }

    /// A moment was used, or passed unused: the next one is looked for.
    fn used(&mut self, due_ms: u64, now_ms: u64) {
        let last = &mut self.job.state.last_due_ms;
        *last = Some(last.map_or(due_ms, |last| last.max(due_ms)));
        let after = match self.job.missed() {
            // Each of its moments is used, however late.
            Missed::All => due_ms,
            Missed::Skip | Missed::Once => now_ms.max(due_ms),
        };
        let on_time = now_ms.saturating_sub(due_ms) <= LATE_MS;
        let after = if on_time { due_ms } else { after };
        self.job.state.next_run_at_ms = self.following(due_ms, after);
    }

    pub(super) fn watch(&self) -> Option<Effect> {
        let (turn, key) = (self.turn()?, self.job.payload.key().ok()?);
        Some(Effect::Watch { job: self.job.id.clone(), key, turn })
    }

    fn too_long(&self) -> String {
        format!("it did not end within {} s and was cancelled", self.job.timeout_ms() / 1000)
    }

    fn end_of_run(&mut self, status: RunStatus, error: Option<&str>, now_ms: u64, effects: &mut Vec<Effect>) {
        if status != RunStatus::Ok {
            effects.push(self.note(Noted::Failed, error.unwrap_or("it failed")));
        }
        let turn = self.turn();
        let Some(Running { at_ms, .. }) = self.job.state.running.take() else { return };
        self.cancelled_ms = None;
        self.record(at_ms, status, now_ms.saturating_sub(at_ms), error, turn);
        self.end_of_once();
    }

    /// A job with one moment has had it.
    fn end_of_once(&mut self) {
        if self.job.schedule.is_once() && self.job.state.next_run_at_ms.is_none() {
            self.job.enabled = false;
        }
    }

    /// Whether it goes now.
    fn is_over(&self) -> bool {
        let state = &self.job.state;
        let job = &self.job;
        job.delete_after_run
            && job.schedule.is_once()
            && !job.enabled
            && state.running.is_none()
            && state.last_due_ms.is_some()
    }
}
