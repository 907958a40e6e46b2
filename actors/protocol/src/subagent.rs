//! The keeper of runs: what sessions send sub-agents to do.
//!
//! | message | from | answer | durable when it answers |
//! |---|---|---|---|
//! | [`RunMail::Spawn`] | the tool `spawn` | [`Spawned`] or [`NotSpawned`] | the run: it will end, and its end be reported |
//! | [`RunMail::List`] | tools, doors | [`RunRow`]s | – |
//! | [`RunMail::Say`] | the tool `subagents`, doors | whether it was taken | the message |
//! | [`RunMail::Wait`] | tools | [`RunRow`]s, when they have ended and their reports wait for the parent | what they say |
//! | [`RunMail::Cancel`] | the tool `subagents`, doors | how many are being stopped | – |
//! | [`RunMail::Retry`] | doors | [`Spawned`] or [`NotSpawned`] | as of `Spawn` |
//! | [`RunMail::CancelChildren`] | doors, at a stop or the end of a session | – | – |
//! | [`RunMail::Reported`] | the channel that hands reports over | – | – |
//!
//! One enum, so that a tool and a door need one recipient.

use std::sync::Arc;

use domain::chat::Usage;
use domain::ids::{RunId, SessionKey, Source, TurnId};
use domain::run::{RunSpec, Saying};
use serde::Serialize;
use tokio::sync::oneshot;

use crate::turn::TurnResult;

/// The push channel that hands reports to the parents' sessions.
pub const REPORTS: &str = "session";

/// Everything that reaches the keeper from outside.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub enum RunMail {
    /// Begin this run, unless it has begun: then the answer is about that.
    Spawn {
        /// What is to be done.
        spec: Arc<RunSpec>,
        /// Whether the asker takes the result itself, so that nothing is reported.
        waits: bool,
        /// The answer.
        reply: oneshot::Sender<Result<Spawned, NotSpawned>>,
    },
    /// The runs of a session, or all of them: those that are open, and the last ones that ended.
    List {
        /// Whose.
        parent: Option<SessionKey>,
        /// The answer, oldest first.
        reply: oneshot::Sender<Vec<RunRow>>,
    },
    /// Say something to a run.
    Say {
        /// Whose it is.
        parent: SessionKey,
        /// Which.
        run: RunId,
        /// The same again says nothing again.
        id: Arc<str>,
        /// How.
        saying: Saying,
        /// What.
        text: String,
        /// The door of whoever says it, if people come there who may do less than the owner: the run has to be of that.
        by: Option<Source>,
        /// Whether it was taken, or why not.
        reply: oneshot::Sender<Result<(), String>>,
    },
    /// Tell when these runs have ended; with `any`, when one of them has.
    Wait {
        /// Which.
        runs: Vec<RunId>,
        /// Whether one is enough.
        any: bool,
        /// The answer: those that have ended.
        reply: oneshot::Sender<Vec<RunRow>>,
    },
    /// Stop a run; `parent` is whose it has to be.
    Cancel {
        /// Whose.
        parent: Option<SessionKey>,
        /// Which.
        run: RunId,
        /// Whether it was open.
        reply: oneshot::Sender<bool>,
    },
    /// Do the same once more, as a new run.
    Retry {
        /// Which.
        run: RunId,
        /// The answer.
        reply: oneshot::Sender<Result<Spawned, NotSpawned>>,
    },
    /// Stop the runs of a session that are not detached.
    CancelChildren {
        /// Whose.
        parent: SessionKey,
    },
    /// The report of a run waits for its parent now.
    Reported {
        /// Which.
        run: RunId,
    },
}

/// A run that has begun.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawned {
    /// It.
    pub run: RunId,
    /// Its session.
    pub key: SessionKey,
    /// Whether the same call had begun it before.
    pub again: bool,
}

/// Why a run was not begun; the text is for the model.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotSpawned {
    /// A sub-agent has none of its own.
    #[error("a sub-agent cannot have sub-agents of its own")]
    TooDeep,
    /// Too many are open.
    #[error("{open} sub-agents of this session are running, and no more are allowed; wait for one of them")]
    OfSession {
        /// How many.
        open: usize,
    },
    /// Too many are open in the whole process.
    #[error("{open} sub-agents are running in this process, and no more are allowed; try again later")]
    OfProcess {
        /// How many.
        open: usize,
    },
    /// The sub-agents of the turn may not use so much.
    #[error(
        "of the {of} tokens that the sub-agents of one turn may use together, {left} are left; ask for fewer, or do it yourself"
    )]
    OverTree {
        /// What nobody has used or was given.
        left: u64,
        /// Of how much.
        of: u64,
    },
    /// The journal did not take it.
    #[error("it cannot be begun: {0}")]
    Refused(String),
}

/// What is known of a run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct RunRow {
    /// It.
    pub run: RunId,
    /// Whose it is.
    pub parent: SessionKey,
    /// Its session.
    pub key: SessionKey,
    /// For people.
    pub label: Arc<str>,
    /// `starting`, `running`, `done`, `failed`, `cancelled` …
    pub state: &'static str,
    /// Its turn.
    pub turn: TurnId,
    /// When it began, ms since 1970.
    pub since_ms: u64,
    /// Whether it outlives a stop of its parent.
    pub detached: bool,
    /// What it said last, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<Arc<str>>,
    /// What it has used, once it has ended.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Usage>,
    /// Once it has ended and has something to report: [`PENDING`], [`DELIVERED`] or [`UNDELIVERED`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub delivery: Option<&'static str>,
}

/// Its report is on its way to the parent.
pub const PENDING: &str = "pending";
/// Its report waits for the parent, or was read by it.
pub const DELIVERED: &str = "delivered";
/// Its report was given up: it is a dead letter.
pub const UNDELIVERED: &str = "undelivered";

/// Letters with which the id of a run begins, at least, so that it is known by them.
const ID_BEGIN_MIN: usize = 4;

/// The run of these that is named so: by its id, by how that alone begins, or by its label, the newest of several.
pub fn find<'r>(rows: &'r [RunRow], name: &str) -> Option<&'r RunRow> {
    let newest = |is: &dyn Fn(&RunRow) -> bool| rows.iter().rev().find(|row| is(row));
    if let Ok(id) = name.parse::<RunId>() {
        return newest(&|row| row.run == id);
    }
    let begins_so = |row: &&RunRow| name.len() >= ID_BEGIN_MIN && row.run.to_string().starts_with(name);
    let mut begin_so = rows.iter().filter(begins_so);
    let only = begin_so.next().filter(|_| begin_so.next().is_none());
    newest(&|row| *row.label == *name).or(only)
}

/// The word for how a run ended.
pub fn ended_word(result: TurnResult) -> &'static str {
    match result {
        TurnResult::Done | TurnResult::Joined => "done",
        TurnResult::Failed | TurnResult::DeadLettered => "failed",
        TurnResult::Cancelled => "cancelled",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(id: &str, label: &str) -> RunRow {
        RunRow {
            run: format!("{id}-0000-0000-0000-000000000007").parse().unwrap(),
            parent: SessionKey::new("cli:direct").unwrap(),
            key: SessionKey::new("agent:main:subagent:7").unwrap(),
            label: label.into(),
            state: "running",
            turn: "00000000-0000-0000-0000-000000000008".parse().unwrap(),
            since_ms: 1,
            detached: false,
            text: None,
            usage: None,
            delivery: None,
        }
    }

    #[test]
    fn runs_are_named_by_ids_their_beginnings_and_labels() {
        let rows = [row("aaaa0000", "toads"), row("aaaa1111", "newts"), row("bbbb0000", "toads")];
        let whole = rows[1].run.to_string();
        for (name, found) in [
            (whole.as_str(), Some(1)),
            ("aaaa1", Some(1)),
            ("aaaa", None),
            ("bbb", None),
            ("bbbb", Some(2)),
            ("toads", Some(2)),
            ("frogs", None),
            ("", None),
            ("00000000-0000-0000-0000-000000000001", None),
        ] {
            assert_eq!(find(&rows, name), found.map(|at: usize| &rows[at]), "{name:?}");
        }
    }
}
