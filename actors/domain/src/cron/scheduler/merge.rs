//! What the file says, and what memory knows better.

use std::collections::BTreeMap;

use super::{Effect, Entry, LATE_MS, Note, Noted, Scheduler, Standing};
use crate::cron::file::{Action, File};
use crate::cron::job::{Job, JobId, Missed};
use crate::cron::schedule::{Timing, Zones};

impl Scheduler {
    pub(super) fn read(&mut self, file: Option<File>, actions: Vec<Action>, now_ms: u64, effects: &mut Vec<Effect>) {
        self.saving = false;
        if self.failed.is_some() && self.revision == self.saved {
            self.recovered(effects);
        }
        let refused = matches!(self.standing, Standing::Refused(_));
        if refused && file.is_none() && actions.is_empty() {
            return;
        }
        let first = self.standing != Standing::Ready;
        if !first && file.is_none() && self.revision > self.saved {
            // It was set aside, or somebody removed it before it had what memory has.
            return;
        }
        let mut read = file.unwrap_or_default();
        for (job, why) in std::mem::take(&mut read.switched_off) {
            let text = format!("it is switched off: {why}; once it is mended, `cron enable` follows it again");
            effects.push(Effect::Note(Note { what: Noted::Failed, job: Some(job), turn: None, text }));
        }
        let acted = !actions.is_empty();
        let mut wanted = read.clone();
        for action in actions {
            apply(&mut wanted, action);
        }
        self.standing = Standing::Ready;
        self.head = File { jobs: Vec::new(), ..wanted.clone() };
        if first {
            self.entries = wanted.jobs.into_iter().map(|job| Entry::new(job, &self.zones, 0)).collect();
            for entry in &mut self.entries {
                entry.begin(now_ms);
                effects.extend(entry.watch());
            }
        } else {
            self.merge(wanted.jobs, now_ms);
        }
        if acted || self.file() != read {
            self.changed();
        }
    }

    fn merge(&mut self, jobs: Vec<Job>, now_ms: u64) {
        let mut known: Vec<Option<Entry>> = std::mem::take(&mut self.entries).into_iter().map(Some).collect();
        let places = known.iter().flatten().enumerate().map(|(at, entry)| (entry.job.id.clone(), at));
        let places: BTreeMap<JobId, usize> = places.collect();
        for job in jobs {
            if self.removed.iter().any(|(id, _)| *id == job.id) {
                continue;
            }
            let before = places.get(&job.id).and_then(|at| known.get_mut(*at)).and_then(Option::take);
            let entry = match before {
                Some(entry) if entry.touched > self.saved => entry,
                Some(entry) => entry.replaced(job, &self.zones, now_ms),
                None => {
                    let mut entry = Entry::new(job, &self.zones, 0);
                    // A run of a job that was not known is nobody's here.
                    entry.job.state.running = None;
                    entry.begin(now_ms);
                    entry
                }
            };
            self.entries.push(entry);
        }
        // Those that no file has seen yet stay; the others somebody removed.
        self.entries.extend(known.into_iter().flatten().filter(|entry| entry.touched > self.saved));
    }
}

fn apply(file: &mut File, action: Action) {
    match action {
        Action::Put(mut job) => match file.jobs.iter_mut().find(|other| other.id == job.id) {
            Some(other) => {
                job.state = std::mem::take(&mut other.state);
                *other = *job;
            }
            None => file.jobs.push(*job),
        },
        Action::Remove(id) => file.jobs.retain(|job| job.id != id || job.payload.is_system()),
    }
}

impl Entry {
    /// Sets when it is due, for a process that has just begun, or a job that it has just learned of.
    pub(super) fn begin(&mut self, now_ms: u64) {
        if !self.job.enabled || self.job.payload.is_system() {
            return;
        }
        let stored = self.job.state.next_run_at_ms.filter(|stored| self.stands(*stored, now_ms));
        let last_ms = self.job.state.last_due_ms.unwrap_or(0);
        let next = match &self.timing {
            Err(_) => None,
            Ok(_) if stored.is_some() => stored,
            Ok(timing) => timing.next_after(now_ms.max(last_ms)),
        };
        self.job.state.next_run_at_ms = next;
    }

    /// Whether the moment that the file names is still to be used.
    fn stands(&self, stored_ms: u64, now_ms: u64) -> bool {
        if self.job.state.last_due_ms.is_some_and(|last| stored_ms <= last) {
            return false;
        }
        let passed = stored_ms <= now_ms;
        if passed && self.job.missed() == Missed::Skip {
            return false;
        }
        match &self.timing {
            Ok(Timing::At(at)) => stored_ms == *at,
            Ok(Timing::Every(every)) => passed || stored_ms - now_ms <= (*every).max(LATE_MS),
            Ok(timing @ Timing::Cron(..)) => timing.next_after(stored_ms.saturating_sub(1)) == Some(stored_ms),
            Err(_) => false,
        }
    }

    /// With what somebody made of the job; of its runs, memory knows more.
    pub(super) fn replaced(mut self, mut job: Job, zones: &Zones, now_ms: u64) -> Self {
        job.state = std::mem::take(&mut self.job.state);
        let anew = job.schedule != self.job.schedule || job.enabled != self.job.enabled;
        self.timing = Self::timing_of(&job, zones);
        self.job = job;
        if anew {
            let last_ms = self.job.state.last_due_ms.unwrap_or(0);
            let next = self.timing.as_ref().ok().and_then(|timing| timing.next_after(now_ms.max(last_ms)));
            self.job.state.next_run_at_ms = next.filter(|_| self.follows());
        }
        self
    }
}

impl Scheduler {
    /// Forgets a job; until the file lacks it, the file is not believed.
    pub(super) fn forget(&mut self, id: &JobId) {
        self.entries.retain(|entry| entry.job.id != *id);
        self.changed();
        self.removed.push((id.clone(), self.revision));
    }
}
