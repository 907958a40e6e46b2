//! What people and models ask of the jobs.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{Effect, Entry, Scheduler, Standing};
use crate::cron::job::{Job, JobId, MESSAGE_BYTES_MAX, Missed, NAME_CHARS, Payload, RunRecord, RunStatus, State};
use crate::cron::schedule::{EVERY_MS_MIN, Schedule, Timing};
use crate::ids::SessionKey;
use crate::keys::Key;
use crate::text::{ellipsis, one_line};

/// The most jobs that can be made.
pub const JOBS_MAX: usize = 1000;

/// A job that is to be made.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Draft {
    /// For people; without one, the beginning of the message.
    #[serde(default)]
    pub name: Option<String>,
    /// What the session is told.
    pub message: String,
    /// When.
    pub schedule: Schedule,
    /// The session; without one, the job has its own.
    #[serde(default)]
    pub key: Option<SessionKey>,
    /// The channel and the chat that are given the answer; without them, those of the session's key.
    #[serde(default)]
    pub origin: Option<(String, String)>,
    /// More of that chat.
    #[serde(default)]
    pub metadata: Map<String, Value>,
    /// What becomes of times that were missed; without it, a single time is made up for and others are not.
    #[serde(default)]
    pub missed: Option<Missed>,
    /// How long a run may take.
    #[serde(default)]
    pub timeout_ms: Option<u64>,
    /// Whether it stays after its only run.
    #[serde(default)]
    pub keep: bool,
}

/// Why something was not done.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// The file was not read yet.
    #[error("the jobs are being read; try again")]
    Unread,
    /// The file was damaged.
    #[error("{0}; put a good cron/jobs.json in its place, or restart the gateway to begin without jobs")]
    Damaged(String),
    /// No such job.
    #[error("there is no job {0}; `cron list` shows all")]
    NotFound(String),
    /// The job is a program's own.
    #[error("job {0} belongs to the system and cannot be changed")]
    Protected(JobId),
    /// Too many.
    #[error("there are {JOBS_MAX} jobs already; remove some")]
    Full,
    /// Something is wrong with the draft; names the field.
    #[error("{0}")]
    Bad(String),
    /// A run has not ended.
    #[error("job {0} runs at present")]
    Running(JobId),
}

/// A job, as it is shown.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct JobView {
    /// Its id.
    pub id: JobId,
    /// Its name.
    pub name: String,
    /// Whether it is followed.
    pub enabled: bool,
    /// Whether it belongs to a program.
    pub system: bool,
    /// When, in words.
    pub schedule: String,
    /// When it is due next, ms since 1970.
    pub next_run_at_ms: Option<u64>,
    /// Whether it runs.
    pub running: bool,
    /// When its last run began, ms since 1970.
    pub last_run_at_ms: Option<u64>,
    /// How the last one ended.
    pub last_status: Option<RunStatus>,
    /// Why, if not well.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<String>,
    /// Why it cannot be followed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
    /// What becomes of times that were missed.
    pub missed: Missed,
    /// The session.
    pub session: Option<String>,
    /// What the session is told.
    pub message: String,
    /// The last runs, oldest first.
    pub history: Vec<RunRecord>,
}

impl Refusal {
    /// Its word for programs.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Unread => "loading",
            Self::Damaged(_) => "damaged",
            Self::NotFound(_) => "not_found",
            Self::Protected(_) => "protected",
            Self::Full => "full",
            Self::Bad(_) => "bad_job",
            Self::Running(_) => "running",
        }
    }
}

impl Scheduler {
    fn ready(&self) -> Result<(), Refusal> {
        match &self.standing {
            Standing::Ready => Ok(()),
            Standing::Unread => Err(Refusal::Unread),
            Standing::Refused(why) => Err(Refusal::Damaged(why.clone())),
        }
    }

    /// All jobs: the next due first, those that are never due last, otherwise in the order of the file.
    pub fn list(&self) -> Result<Vec<JobView>, Refusal> {
        self.ready()?;
        let mut views: Vec<JobView> = self.entries.iter().map(|entry| self.view(entry)).collect();
        views.sort_by_key(|view| view.next_run_at_ms.filter(|_| view.enabled).unwrap_or(u64::MAX));
        Ok(views)
    }

    fn view(&self, entry: &Entry) -> JobView {
        let Job { id, name, enabled, schedule, payload, state, .. } = entry.job.clone();
        JobView {
            id,
            name,
            enabled,
            system: payload.is_system(),
            schedule: schedule.told(&self.zones.local),
            next_run_at_ms: state.next_run_at_ms,
            running: state.running.is_some(),
            last_run_at_ms: state.last_run_at_ms,
            last_status: state.last_status,
            last_error: state.last_error,
            problem: entry.timing.as_ref().err().filter(|_| !entry.job.payload.is_system()).cloned(),
            missed: entry.job.missed(),
            session: payload.key().ok().map(|key| key.as_str().to_owned()),
            message: payload.message,
            history: state.run_history,
        }
    }

    /// One job.
    pub fn show(&self, id: &str) -> Result<JobView, Refusal> {
        self.ready()?;
        let entry = self.entries.iter().find(|entry| entry.job.id.as_str() == id);
        entry.map(|entry| self.view(entry)).ok_or_else(|| not_found(id))
    }

    /// Makes a job; `id` is new.
    pub fn add(&mut self, id: JobId, draft: Draft, now_ms: u64) -> Result<(JobView, Vec<Effect>), Refusal> {
        self.ready()?;
        if self.entries.len() >= JOBS_MAX {
            return Err(Refusal::Full);
        }
        let timing = self.check(&draft, now_ms)?;
        let once = draft.schedule.is_once();
        let own = draft.origin.or_else(|| draft.key.as_ref().and_then(chat_of));
        let (channel, chat) = own.unzip();
        let key = draft.key.map_or_else(|| format!("cron:{id}"), |key| key.as_str().to_owned());
        let name = draft.name.map(|name| one_line(&name)).filter(|name| !name.is_empty());
        let beginning = || one_line(&draft.message).chars().take(NAME_CHARS).collect();
        let job = Job {
            name: name.unwrap_or_else(beginning),
            id,
            enabled: true,
            payload: Payload {
                message: draft.message,
                session_key: Some(key),
                origin_channel: channel,
                origin_chat_id: chat,
                origin_metadata: draft.metadata,
                ..Payload::default()
            },
            state: State { next_run_at_ms: timing.next_after(now_ms), ..State::default() },
            schedule: draft.schedule,
            created_at_ms: now_ms,
            updated_at_ms: now_ms,
            delete_after_run: once && !draft.keep,
            missed: draft.missed.or(once.then_some(Missed::Once)),
            timeout_ms: draft.timeout_ms,
            extra: Map::new(),
        };
        job.payload.key().map_err(Refusal::Bad)?;
        self.changed();
        let entry = Entry::new(job, &self.zones, self.revision);
        let view = self.view(&entry);
        self.entries.push(entry);
        Ok((view, self.after(now_ms)))
    }

    fn check(&self, draft: &Draft, now_ms: u64) -> Result<Timing, Refusal> {
        let bad = |text: &str| Err(Refusal::Bad(text.to_owned()));
        if draft.message.trim().is_empty() {
            return bad("message is empty");
        }
        if draft.message.len() > MESSAGE_BYTES_MAX {
            return Err(Refusal::Bad(format!("message has more than {MESSAGE_BYTES_MAX} bytes")));
        }
        let timing = draft.schedule.timing(&self.zones).map_err(|error| Refusal::Bad(error.to_string()))?;
        match &timing {
            Timing::Every(every) if *every < EVERY_MS_MIN => {
                bad("schedule.everyMs is below 1000, the shortest distance")
            }
            Timing::At(at) if *at <= now_ms => bad("schedule.atMs is in the past"),
            Timing::Cron(..) if timing.next_after(now_ms).is_none() => {
                bad("schedule.expr is right in form, and names a time that never comes")
            }
            Timing::Every(_) | Timing::At(_) | Timing::Cron(..) => Ok(timing),
        }
    }

    /// Removes a job. A run of it goes on.
    pub fn remove(&mut self, id: &str, now_ms: u64) -> Result<(JobView, Vec<Effect>), Refusal> {
        let view = self.changeable(id)?;
        self.forget(&view.id);
        Ok((view, self.after(now_ms)))
    }

    /// Switches a job on or off.
    pub fn enable(&mut self, id: &str, enabled: bool, now_ms: u64) -> Result<(JobView, Vec<Effect>), Refusal> {
        let view = self.changeable(id)?;
        let revision = self.revision + 1;
        let Some(entry) = self.entries.iter_mut().find(|entry| entry.job.id == view.id) else {
            return Err(not_found(id));
        };
        if entry.job.enabled != enabled {
            if enabled && let Err(problem) = &entry.timing {
                return Err(Refusal::Bad(problem.clone()));
            }
            entry.job.enabled = enabled;
            entry.job.updated_at_ms = now_ms;
            let last_ms = entry.job.state.last_due_ms.unwrap_or(0);
            let next = entry.timing.as_ref().ok().and_then(|timing| timing.next_after(now_ms.max(last_ms)));
            entry.job.state.next_run_at_ms = next.filter(|_| enabled);
            entry.touched = revision;
            self.changed();
        }
        Ok((self.show(id)?, self.after(now_ms)))
    }

    /// Runs a job now, whatever its schedule says.
    pub fn run(&mut self, id: &str, now_ms: u64) -> Result<(JobView, Vec<Effect>), Refusal> {
        let view = self.changeable(id)?;
        let Some(entry) = self.find(&view.id) else { return Err(not_found(id)) };
        if entry.offer.is_some() || entry.job.state.running.is_some() {
            return Err(Refusal::Running(view.id));
        }
        let mut effects: Vec<Effect> = entry.offer(now_ms, true, now_ms).into_iter().collect();
        if effects.is_empty() {
            return Err(Refusal::Bad(view.problem.unwrap_or_default()));
        }
        effects.extend(self.after(now_ms));
        Ok((view, effects))
    }

    /// A job that is nobody else's.
    fn changeable(&self, id: &str) -> Result<JobView, Refusal> {
        let view = self.show(id)?;
        if view.system { Err(Refusal::Protected(view.id)) } else { Ok(view) }
    }

    fn after(&mut self, now_ms: u64) -> Vec<Effect> {
        let mut effects = Vec::new();
        self.settle(now_ms, &mut effects);
        effects
    }
}

/// The chat that a key names.
fn chat_of(key: &SessionKey) -> Option<(String, String)> {
    let key = Key::from(key);
    key.channel().zip(key.chat()).map(|(channel, chat)| (channel.to_owned(), chat.to_owned()))
}

fn not_found(id: &str) -> Refusal {
    Refusal::NotFound(ellipsis(id, 32).into_owned())
}
