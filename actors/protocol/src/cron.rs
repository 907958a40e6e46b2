//! What the cron actor (one per gateway) is asked.
//!
//! | message | from | answer | durable when it answers |
//! |---|---|---|---|
//! | [`AskCron`] | doors, the `cron` tool | [`Answer`] or why not, once | what was changed is in `cron/jobs.json`, or [`Answer::unsaved`] says why not |
//!
//! In any order. What is not in the file yet is written as soon as that can be.

use domain::cron::scheduler::{Draft, JobView, Refusal};
use tokio::sync::oneshot;

/// A question or an order, and where its answer goes.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct AskCron {
    /// What.
    pub ask: Ask,
    /// The answer.
    pub reply: oneshot::Sender<Result<Answer, Refusal>>,
}

/// What is asked of the jobs.
#[derive(Debug, Clone, PartialEq)]
pub enum Ask {
    /// All of them.
    List,
    /// One of them.
    Show(String),
    /// Make one.
    Add(Box<Draft>),
    /// Remove one.
    Remove(String),
    /// Switch one on or off.
    Enable {
        /// Which.
        id: String,
        /// On.
        enabled: bool,
    },
    /// Run one now.
    Run(String),
}

/// The jobs that were asked for.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Answer {
    /// All, or the one that it was about.
    pub jobs: Vec<JobView>,
    /// Why the change is not in the file yet.
    pub unsaved: Option<String>,
}

/// The jobs, as the other parts of the process see them.
pub trait Jobs: Send + Sync + 'static {
    /// Asks; the receiver fails when no gateway follows the jobs, or it is stopping.
    fn ask(&self, ask: Ask) -> oneshot::Receiver<Result<Answer, Refusal>>;
    /// The zone in which times are read and shown.
    fn zone(&self) -> &jiff::tz::TimeZone;
}
