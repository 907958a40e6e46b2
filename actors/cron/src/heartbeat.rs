//! The heartbeat: from time to time the agent looks after the active tasks of `HEARTBEAT.md`, and a person is told only if
//! the model finds that worth it. See [`domain::heartbeat`].
//!
//! ```text
//!  due ──look──▶ turn in `heartbeat` ──ended──▶ asked whether to tell ──yes──▶ message of the newest session
//!    │ inactive hours, no tasks, no target         │ failed, nothing said        │ no, or no answer
//!    └──────────────── nothing ───────────────────┴──────── silence ────────────┘
//! ```
//!
//! Nothing is remembered over a crash: what a beat would have told is not told then. What is told is one message, however
//! often it is offered, and its answer is known already: it is the report.

mod actor;
mod call;
mod look;

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use domain::heartbeat::ActiveHours;
use jiff::tz::TimeZone;
use protocol::journal::Journal;
use protocol::metrics::Metrics;
use protocol::provider::{AskPermit, Complete};
use protocol::registry::Sessions;
use protocol::supervision::SupervisionLog;
use protocol::transcripts::TranscriptReader;
use protocol::turn::TurnWatch;
use supervision::ports::Ports;

pub use actor::Heartbeat;

/// What is configured of it.
#[derive(Debug, Clone)]
pub struct HeartbeatRules {
    /// The time between two beats.
    pub every: Duration,
    /// When it may beat; not set: always.
    pub hours: Option<ActiveHours>,
    /// By whose clocks.
    pub zone: TimeZone,
    /// Messages of earlier beats that the model is still shown.
    pub keep: u32,
    /// The model that decides whether a person is told.
    pub model: Arc<str>,
    /// The most tokens of its answer.
    pub max_tokens: u32,
}

/// What the actor needs.
#[derive(Clone)]
pub struct HeartbeatDeps {
    /// The outside world.
    pub ports: Ports,
    /// The counters.
    pub metrics: Metrics,
    /// Where people look.
    pub log: Arc<dyn SupervisionLog>,
    /// Takes messages.
    pub journal: Arc<dyn Journal>,
    /// Tells of the ends of turns.
    pub ends: Arc<dyn TurnWatch>,
    /// Reaches sessions.
    pub sessions: Arc<dyn Sessions>,
    /// Knows which sessions there are.
    pub transcripts: Arc<dyn TranscriptReader>,
    /// Where the files lie.
    pub workspace: PathBuf,
    /// The channels by which people speak.
    pub enabled: BTreeSet<Arc<str>>,
    /// Those that are told.
    pub told: BTreeSet<Arc<str>>,
    /// Grants the right to call the model; on the actor's own arbiter.
    pub permits: Recipient<AskPermit>,
    /// Calls it.
    pub model: Recipient<Complete>,
    /// How it beats.
    pub rules: HeartbeatRules,
}

#[cfg(test)]
mod tests;
