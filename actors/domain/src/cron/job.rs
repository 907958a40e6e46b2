//! A job as `jobs.json` has it. Fields of others are kept where they stand.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::schedule::Schedule;
use crate::ids::{BadId, MessageId, SessionKey};

/// Records of runs that a job keeps.
pub const HISTORY_MAX: usize = 20;
/// Of a job's text, in bytes.
pub const MESSAGE_BYTES_MAX: usize = 64 * 1024;
/// Characters of a message that serve as a name.
pub const NAME_CHARS: usize = 30;
/// How long a run may take, unless its job says otherwise.
pub const TIMEOUT_MS: u64 = 60 * 60 * 1000;

/// The name of a job in its file: ours have 8 hex digits, others what their program chose.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct JobId(Arc<str>);

/// A job.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Job {
    /// Unique in its file.
    pub id: JobId,
    /// For people.
    pub name: String,
    /// Whether it is followed.
    #[serde(default = "yes")]
    pub enabled: bool,
    /// When.
    pub schedule: Schedule,
    /// What, and for whom.
    #[serde(default)]
    pub payload: Payload,
    /// What became of it.
    #[serde(default)]
    pub state: State,
    /// When it was made, ms since 1970.
    #[serde(default)]
    pub created_at_ms: u64,
    /// When it was changed, ms since 1970.
    #[serde(default)]
    pub updated_at_ms: u64,
    /// Whether it goes after its only run.
    #[serde(default)]
    pub delete_after_run: bool,
    /// Ours: what becomes of times that were missed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub missed: Option<Missed>,
    /// Ours: how long a run may take, in milliseconds; without it, [`TIMEOUT_MS`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub timeout_ms: Option<u64>,
    /// What else the file says.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What a job says, and where its answer goes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Payload {
    /// `agent_turn`, or `system_event`: then it belongs to a program and is not run as a turn.
    #[serde(default = "agent_turn")]
    pub kind: String,
    /// What the session is told.
    #[serde(default)]
    pub message: String,
    /// Of old files: whether the answer goes to `channel` and `to`.
    #[serde(default)]
    pub deliver: bool,
    /// Of old files.
    #[serde(default)]
    pub channel: Option<String>,
    /// Of old files.
    #[serde(default)]
    pub to: Option<String>,
    /// Of old files.
    #[serde(default)]
    pub channel_meta: Map<String, Value>,
    /// The session that it runs in.
    #[serde(default)]
    pub session_key: Option<String>,
    /// The channel whose chat is given the answer.
    #[serde(default)]
    pub origin_channel: Option<String>,
    /// That chat.
    #[serde(default)]
    pub origin_chat_id: Option<String>,
    /// More of that chat; `account` and `thread` are ours.
    #[serde(default)]
    pub origin_metadata: Map<String, Value>,
    /// What else the file says.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// What became of a job so far.
#[derive(Debug, Clone, PartialEq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct State {
    /// When it is due next.
    #[serde(default)]
    pub next_run_at_ms: Option<u64>,
    /// When its last run began.
    #[serde(default)]
    pub last_run_at_ms: Option<u64>,
    /// How that ended.
    #[serde(default)]
    pub last_status: Option<RunStatus>,
    /// Why, if not well.
    #[serde(default)]
    pub last_error: Option<String>,
    /// The last [`HISTORY_MAX`] runs, oldest first.
    #[serde(default)]
    pub run_history: Vec<RunRecord>,
    /// Ours: the last moment that was used, for which nothing runs again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_due_ms: Option<u64>,
    /// Ours: the run whose end is not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    /// What else the file says.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// A run that was accepted and has not ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Running {
    /// When it was due.
    pub due_ms: u64,
    /// When it began.
    pub at_ms: u64,
    /// Its turn.
    pub run_id: String,
}

/// A run that is over.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct RunRecord {
    /// When it began; of a moment that was skipped, when it was due.
    pub run_at_ms: u64,
    /// How it ended.
    pub status: RunStatus,
    /// How long it took.
    #[serde(default)]
    pub duration_ms: u64,
    /// Why, if not well.
    #[serde(default)]
    pub error: Option<String>,
    /// Its turn.
    #[serde(default)]
    pub run_id: Option<String>,
    /// What else the file says.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
}

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RunStatus {
    /// Answered.
    Ok,
    /// Not answered.
    Error,
    /// It did not begin.
    Skipped,
}

/// What becomes of moments that passed while nobody could use them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Missed {
    /// Nothing.
    #[default]
    Skip,
    /// One run for all of them.
    Once,
    /// A run for each, one after the other.
    All,
}

// === impl JobId ===

impl JobId {
    /// Any text that can be part of a message id.
    pub fn new(text: &str) -> Result<Self, BadId> {
        let id = Self(text.into());
        id.message_id(u64::MAX).map(|_| id)
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// The id of the message of one moment: `<job>:<milliseconds>`.
    pub fn message_id(&self, due_ms: u64) -> Result<MessageId, BadId> {
        MessageId::new(&format!("{}:{due_ms}", self.0))
    }
}

impl fmt::Display for JobId {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.0)
    }
}

// === impl Payload ===

impl Default for Payload {
    fn default() -> Self {
        Self {
            kind: agent_turn(),
            message: String::new(),
            deliver: false,
            channel: None,
            to: None,
            channel_meta: Map::new(),
            session_key: None,
            origin_channel: None,
            origin_chat_id: None,
            origin_metadata: Map::new(),
            extra: Map::new(),
        }
    }
}

impl Payload {
    /// Whether it belongs to a program: it is shown, and neither run as a turn nor removed.
    pub fn is_system(&self) -> bool {
        self.kind == "system_event"
    }

    /// The session that it runs in.
    pub fn key(&self) -> Result<SessionKey, String> {
        let text = match (&self.session_key, &self.origin_channel, &self.origin_chat_id) {
            (Some(key), _, _) => key.clone(),
            (None, Some(channel), Some(chat)) => format!("{channel}:{chat}"),
            (None, _, _) => return Err("payload.sessionKey is missing".to_owned()),
        };
        SessionKey::new(&text).map_err(|error| format!("payload.sessionKey: {error}"))
    }

    /// A text of `originMetadata`; numbers count as texts.
    pub fn origin(&self, name: &str) -> Option<String> {
        match self.origin_metadata.get(name)? {
            Value::String(text) => Some(text.clone()),
            Value::Number(number) => Some(number.to_string()),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        }
    }
}

// === impl Job ===

impl Job {
    /// What becomes of times that were missed.
    pub fn missed(&self) -> Missed {
        self.missed.unwrap_or_default()
    }

    /// How long a run may take.
    pub fn timeout_ms(&self) -> u64 {
        self.timeout_ms.filter(|timeout| *timeout > 0).unwrap_or(TIMEOUT_MS)
    }

    /// Adds to the history.
    pub fn record(&mut self, run: RunRecord) {
        let state = &mut self.state;
        state.last_status = Some(run.status);
        state.last_error = run.error.clone();
        if run.status != RunStatus::Skipped {
            state.last_run_at_ms = Some(run.run_at_ms);
        }
        state.run_history.push(run);
        let over = state.run_history.len().saturating_sub(HISTORY_MAX);
        state.run_history.drain(..over);
    }
}

fn yes() -> bool {
    true
}

fn agent_turn() -> String {
    "agent_turn".to_owned()
}
