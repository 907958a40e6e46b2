//! Which moments are used, and what is written down of it. No clock, no file, no message: [`Scheduler::step`] is told what
//! happened and says what to do.
//!
//! ```text
//!  due ──▶ Fire ──▶ accepted ──▶ running ──▶ ended ──▶ recorded
//!   │        ▲ refused: again later, at last given up
//!   └─ the run before has not ended, or nobody was there at that time: recorded as skipped
//! ```
//!
//! A moment counts as used when its message was accepted: the journal refuses a second message of the same id, so it is
//! used once, however often it is asked for after a crash. What is in memory goes before what the file says of runs, and
//! stays so while the file cannot be written.

mod command;
mod due;
mod merge;

use crate::cron::file::{Action, File};
use crate::cron::job::{Job, JobId, Missed, RunRecord, RunStatus};
use crate::cron::schedule::{Timing, Zones};
use crate::ids::{SessionKey, TurnId};
use crate::text::ellipsis;

pub use command::{Draft, JobView, Refusal};

/// Later than this after its moment, a job is late, and its moment missed. In milliseconds.
pub const LATE_MS: u64 = 60_000;
/// Moments that are made up for at most, of a job with [`Missed::All`].
pub const CATCH_UP_MAX: usize = 100;
/// How long a refused message is offered.
const OFFERED_MS_MAX: u64 = 600_000;
/// How long the end of a cancelled run is waited for.
const CANCEL_MS_MAX: u64 = 60_000;
/// The shortest distance of two runs of a job.
const DISTANCE_MS_MIN: u64 = 1000;
/// The longest wait between two attempts to save.
const SAVE_WAIT_MS_MAX: u64 = 60_000;
/// Characters of an error that are kept.
const ERROR_CHARS_MAX: usize = 200;

/// The jobs of one file, and what they are at.
#[derive(Debug)]
pub struct Scheduler {
    zones: Zones,
    standing: Standing,
    /// The file, without its jobs.
    head: File,
    entries: Vec<Entry>,
    /// Removed jobs, with the revision that lacks them, until that is saved.
    removed: Vec<(JobId, u64)>,
    /// Counts changes of what is to be in the file.
    revision: u64,
    saved: u64,
    saving: bool,
    /// Attempts to save that failed in a row, and when the next is due.
    failed: Option<(u32, u64)>,
}

/// Whether there are jobs to follow.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Standing {
    /// The file was not read yet.
    Unread,
    Ready,
    /// The file was damaged when the process began.
    Refused(String),
}

#[derive(Debug)]
struct Entry {
    job: Job,
    /// Why the job cannot be followed, if it cannot.
    timing: Result<Timing, String>,
    offer: Option<Offer>,
    /// When the running turn was cancelled for taking too long.
    cancelled_ms: Option<u64>,
    /// The revision of the last change by a command.
    touched: u64,
}

/// A message on its way into its session.
#[derive(Debug, Clone, Copy)]
struct Offer {
    due_ms: u64,
    /// When it was offered first.
    since_ms: u64,
    /// When it is offered again; none while the verdict is awaited.
    again_ms: Option<u64>,
    /// Somebody asked for this run: the schedule does not know it.
    by_hand: bool,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// The files were read; none when there is no `jobs.json`.
    Read {
        /// All jobs.
        file: Option<File>,
        /// What others want done.
        actions: Vec<Action>,
    },
    /// `jobs.json` was damaged, and set aside.
    Damaged(String),
    /// They could not be read.
    Unreadable(String),
    /// Time passed.
    Tick,
    /// The journal's answer to [`Effect::Fire`].
    Verdict {
        /// Of which job.
        job: JobId,
        /// Of which moment.
        due_ms: u64,
        /// The answer.
        verdict: Verdict,
    },
    /// A run ended.
    Ended {
        /// Of which job.
        job: JobId,
        /// Its turn.
        turn: TurnId,
        /// How.
        end: End,
    },
    /// The end of [`Effect::Save`].
    Saved {
        /// Of which revision.
        revision: u64,
        /// How it went.
        outcome: SaveOutcome,
    },
}

/// What became of a message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// It is a turn, now or since before.
    Accepted(TurnId),
    /// Not now.
    Refused {
        /// When to ask again.
        retry_after_ms: u64,
        /// Why.
        why: String,
    },
    /// Never.
    Impossible(String),
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct End {
    /// In the words of the history.
    pub status: RunStatus,
    /// Why, if not well.
    pub error: Option<String>,
}

/// How an attempt to save went.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SaveOutcome {
    /// It is on the device.
    Done,
    /// Somebody else had changed the files: nothing was written, and they are read first.
    Changed,
    /// It could not be written.
    Failed(String),
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq)]
pub enum Effect {
    /// Hand a message to a session; [`Input::Verdict`] tells how that went.
    Fire(Box<Fire>),
    /// Tell how this turn ends, or has ended: [`Input::Ended`].
    Watch {
        /// Of which job.
        job: JobId,
        /// The session.
        key: SessionKey,
        /// The turn.
        turn: TurnId,
    },
    /// Cancel a turn that takes too long.
    Cancel {
        /// The session.
        key: SessionKey,
        /// The turn.
        turn: TurnId,
    },
    /// Read the files again.
    Read,
    /// Write the file; [`Input::Saved`] tells how that went.
    Save {
        /// Which state of it this is.
        revision: u64,
        /// The file.
        file: File,
    },
    /// Say so where people look.
    Note(Note),
}

/// A message that is due.
#[derive(Debug, Clone, PartialEq)]
pub struct Fire {
    /// The job.
    pub job: Job,
    /// Its session.
    pub key: SessionKey,
    /// The moment.
    pub due_ms: u64,
}

/// What people are told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// What happened.
    pub what: Noted,
    /// To which job.
    pub job: Option<JobId>,
    /// The turn.
    pub turn: Option<TurnId>,
    /// In words; never what a message says.
    pub text: String,
}

/// What people are told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Noted {
    /// A moment was not used.
    Skipped,
    /// A run did not end well.
    Failed,
    /// The file was damaged.
    Damaged,
    /// The file cannot be written.
    Unsaved,
    /// The file can be written again.
    Saved,
}

// === impl Scheduler ===

impl Scheduler {
    /// Before the file was read.
    pub fn new(zones: Zones) -> Self {
        Self {
            zones,
            standing: Standing::Unread,
            head: File::default(),
            entries: Vec::new(),
            removed: Vec::new(),
            revision: 0,
            saved: 0,
            saving: false,
            failed: None,
        }
    }

    /// Takes in what happened; `now_ms` is the wall clock, which may have jumped.
    pub fn step(&mut self, input: Input, now_ms: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        match input {
            Input::Read { file, actions } => self.read(file, actions, now_ms, &mut effects),
            Input::Damaged(why) => self.damaged(&why, &mut effects),
            Input::Unreadable(why) => {
                self.saving = false;
                self.postpone(&why, now_ms, &mut effects);
            }
            Input::Tick => {}
            Input::Verdict { job, due_ms, verdict } => self.answered(&job, due_ms, verdict, now_ms, &mut effects),
            Input::Ended { job, turn, end } => self.ended(&job, turn, end, now_ms, &mut effects),
            Input::Saved { revision, outcome } => self.save_ended(revision, outcome, now_ms, &mut effects),
        }
        self.settle(now_ms, &mut effects);
        effects
    }

    /// What is due, and the file, if it has to be written.
    fn settle(&mut self, now_ms: u64, effects: &mut Vec<Effect>) {
        if self.standing == Standing::Ready {
            self.look(now_ms, effects);
        }
        let waits = self.failed.is_some_and(|(_, at)| now_ms < at);
        if self.revision > self.saved && !self.saving && !waits && self.standing == Standing::Ready {
            self.saving = true;
            effects.push(Effect::Save { revision: self.revision, file: self.file() });
        }
    }

    /// When [`Input::Tick`] is due at the latest, on the wall clock.
    pub fn wake_ms(&self) -> Option<u64> {
        let of_jobs = self.entries.iter().filter_map(Entry::wake_ms).min();
        let of_file = self.failed.map(|(_, at)| at).filter(|_| !self.saving && self.revision > self.saved);
        of_jobs.into_iter().chain(of_file).min()
    }

    /// As it is to be written.
    pub fn file(&self) -> File {
        File { jobs: self.entries.iter().map(|entry| entry.job.clone()).collect(), ..self.head.clone() }
    }

    /// What is to be in the file has this number; it grows with each change.
    pub fn revision(&self) -> u64 {
        self.revision
    }

    /// The last one that is in the file.
    pub fn saved(&self) -> u64 {
        self.saved
    }

    /// Whether the last attempt to save failed, and the next is not due yet.
    pub fn waits_to_save(&self) -> bool {
        self.failed.is_some() && !self.saving
    }

    /// How many jobs there are, and how many of them run.
    pub fn count(&self) -> (usize, usize) {
        let runs = self.entries.iter().filter(|entry| entry.job.state.running.is_some()).count();
        (self.entries.len(), runs)
    }

    fn changed(&mut self) {
        self.revision += 1;
    }

    fn find(&mut self, id: &JobId) -> Option<&mut Entry> {
        self.entries.iter_mut().find(|entry| entry.job.id == *id)
    }

    fn damaged(&mut self, why: &str, effects: &mut Vec<Effect>) {
        effects.push(Effect::Note(Note { what: Noted::Damaged, job: None, turn: None, text: why.to_owned() }));
        match self.standing {
            Standing::Unread | Standing::Refused(_) => self.standing = Standing::Refused(why.to_owned()),
            // Memory has it all.
            Standing::Ready => self.changed(),
        }
    }

    fn save_ended(&mut self, revision: u64, outcome: SaveOutcome, now_ms: u64, effects: &mut Vec<Effect>) {
        self.saving = false;
        match outcome {
            SaveOutcome::Done => {
                self.saved = self.saved.max(revision);
                let saved = self.saved;
                self.removed.retain(|(_, revision)| *revision > saved);
                self.recovered(effects);
            }
            SaveOutcome::Changed => {
                self.saving = true;
                effects.push(Effect::Read);
            }
            SaveOutcome::Failed(why) => self.postpone(&why, now_ms, effects),
        }
    }

    fn recovered(&mut self, effects: &mut Vec<Effect>) {
        if self.failed.take().is_some() {
            let text = "the file and the jobs are one again".to_owned();
            effects.push(Effect::Note(Note { what: Noted::Saved, job: None, turn: None, text }));
        }
    }

    /// The file can be used again later.
    fn postpone(&mut self, why: &str, now_ms: u64, effects: &mut Vec<Effect>) {
        let times = self.failed.map_or(0, |(times, _)| times);
        if times == 0 {
            let text = format!("the jobs are kept in memory: {why}");
            effects.push(Effect::Note(Note { what: Noted::Unsaved, job: None, turn: None, text }));
        }
        let wait = SAVE_WAIT_MS_MAX.min(1000 << times.min(6));
        self.failed = Some((times + 1, now_ms + wait));
    }
}

// === impl Entry ===

impl Entry {
    fn new(job: Job, zones: &Zones, touched: u64) -> Self {
        let timing = Self::timing_of(&job, zones);
        Self { job, timing, offer: None, cancelled_ms: None, touched }
    }

    fn timing_of(job: &Job, zones: &Zones) -> Result<Timing, String> {
        job.payload.key()?;
        JobId::new(job.id.as_str()).map_err(|error| format!("id: {error}"))?;
        job.schedule.timing(zones).map_err(|error| error.to_string())
    }

    /// Whether its times are used.
    fn follows(&self) -> bool {
        self.job.enabled && !self.job.payload.is_system() && self.timing.is_ok()
    }

    fn turn(&self) -> Option<TurnId> {
        self.job.state.running.as_ref().and_then(|running| running.run_id.parse().ok())
    }

    /// When the running turn is cancelled, or its end no longer waited for.
    fn limit_ms(&self) -> Option<u64> {
        let running = self.job.state.running.as_ref()?;
        let usual = running.at_ms.saturating_add(self.job.timeout_ms());
        Some(self.cancelled_ms.map_or(usual, |at| at.saturating_add(CANCEL_MS_MAX)))
    }

    fn wake_ms(&self) -> Option<u64> {
        let due = match (&self.offer, &self.job.state.running) {
            (Some(offer), _) => offer.again_ms,
            (None, Some(_)) if self.job.missed() == Missed::All => None,
            (None, _) => self.job.state.next_run_at_ms.filter(|_| self.follows()),
        };
        due.into_iter().chain(self.limit_ms()).min()
    }

    /// The first moment after `due_ms` and after `now_ms`.
    fn following(&self, due_ms: u64, now_ms: u64) -> Option<u64> {
        let now_ms = now_ms.max(due_ms);
        match self.timing.as_ref().ok()? {
            Timing::At(_) => None,
            Timing::Every(every) if *every < DISTANCE_MS_MIN => Some(now_ms + DISTANCE_MS_MIN),
            Timing::Every(every) => Some(due_ms + ((now_ms - due_ms) / every + 1) * every),
            timing @ Timing::Cron(..) => timing.next_after(now_ms),
        }
    }

    /// Adds to the history; what is skipped again for the same reason is one record.
    fn skip(&mut self, due_ms: u64, why: &str) {
        let last = self.job.state.run_history.last_mut();
        let same = |run: &&mut RunRecord| run.status == RunStatus::Skipped && run.error.as_deref() == Some(why);
        if let Some(run) = last.filter(same) {
            let times = run.extra.get("times").and_then(serde_json::Value::as_u64).unwrap_or(1);
            run.extra.insert("times".to_owned(), (times + 1).into());
            run.run_at_ms = due_ms;
        } else {
            self.record(due_ms, RunStatus::Skipped, 0, Some(why), None);
        }
    }

    fn record(&mut self, at_ms: u64, status: RunStatus, took_ms: u64, error: Option<&str>, turn: Option<TurnId>) {
        self.job.record(RunRecord {
            run_at_ms: at_ms,
            status,
            duration_ms: took_ms,
            error: error.map(|error| ellipsis(error, ERROR_CHARS_MAX).into_owned()),
            run_id: turn.map(|turn| turn.to_string()),
            extra: Default::default(),
        });
    }

    fn note(&self, what: Noted, text: impl Into<String>) -> Effect {
        Effect::Note(Note { what, job: Some(self.job.id.clone()), turn: self.turn(), text: text.into() })
    }
}

#[cfg(test)]
mod tests;
