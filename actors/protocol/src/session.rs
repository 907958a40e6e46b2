//! What a session actor receives: its mailbox carries hints and control, never the turns themselves.
//!
//! | mail | from | answer | order |
//! |---|---|---|---|
//! | [`Mail::Queued`] | registry, for the journal | – | any; the inbox sorts by `seq` and drops what it has |
//! | [`Mail::Stop`] | doors | [`Stopped`], at once; while it loads: remembered | never behind a turn |
//! | [`Mail::Queue`] | doors | [`QueueState`], as soon as what is set is durable | never behind a turn |
//! | [`Mail::Status`] | doors | [`Status`], at once, also while loading | never behind a turn |
//! | [`Mail::CancelTurn`] | doors | –; the turn ends as cancelled | never behind a turn |
//! | [`Mail::ReadTurn`] | doors | [`TurnRecord`], once the transcript is readable | after the load |
//! | [`Mail::Has`] | the channel of reports | whether the turn is one of this conversation | after the load |
//! | [`Mail::Standing`] | doors | [`Standing`], once it knows | after the load |
//! | [`Mail::Run`] | the keeper of runs | what it was sent to do, and the turn that is open, if it knows | after the load |
//! | [`Mail::Edit`] | doors | [`Edited`], once durable | behind the running turn, before those that wait |
//! | [`Mail::Condense`] | whoever looks for silent sessions | [`Edited`], once durable | only while nothing else is to be done |
//! | [`Mail::Close`] | doors | [`Closed`], once the end is durable and the file is away | never behind a turn |
//! | [`Mail::Restore`] | doors | [`Restored`], once the file is back | after the load |
//! | [`Mail::Passivate`] | registry | –; the session goes if it is idle | |
//! | [`Mail::Drain`] | registry, at an orderly stop | –; the running turn ends, no other begins, the session goes | |
//! | [`Mail::Interrupt`] | registry, at an orderly stop | –; the running turn is checkpointed, the session goes | |
//!
//! For a session that cannot answer itself, as it waits for its restart or the end of its quarantine, the registry
//! answers `Stop` and `Status`.
//!
//! One enum instead of a struct per message: a registry slot then holds a single recipient, which is what 100,000 idle
//! sessions can afford.

use std::fmt;
use std::sync::Arc;

use actix::Recipient;
use domain::chat::{StopReason, Usage};
use domain::ids::{Attempt, Epoch, SessionId, SessionKey, TurnId};
use domain::queue::{QueueAsk, QueueRules};
use domain::run::RunSpec;
use domain::tally::Fill;
use serde::Serialize;
use tokio::sync::oneshot;

use crate::edit::{Edit, EditError, Edited, Patience};
use crate::journal::{InboxItem, Line, Shelf};
use crate::turn::{Standing, TurnResult};

/// Everything that reaches a session from outside.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub enum Mail {
    /// A message of this session is durable.
    Queued(InboxItem),
    /// Cancel the running turn; with `all`, the waiting ones too.
    Stop {
        /// Whether the queue is cleared.
        all: bool,
        /// The answer.
        reply: oneshot::Sender<Stopped>,
    },
    /// What are the rules of your queue? Or: these are.
    Queue {
        /// Which.
        ask: QueueAsk,
        /// The answer; what is set is durable then.
        reply: oneshot::Sender<QueueState>,
    },
    /// What are you doing?
    Status {
        /// The answer.
        reply: oneshot::Sender<Status>,
    },
    /// Cancel this turn, running or waiting (its asker went away).
    CancelTurn {
        /// Which.
        turn: TurnId,
    },
    /// What does the transcript say about this turn?
    ReadTurn {
        /// Which.
        turn: TurnId,
        /// The answer; `None` when the transcript does not know it.
        reply: oneshot::Sender<Option<TurnRecord>>,
    },
    /// Is this turn one of your present conversation, whether it has ended or not? Unanswered where that cannot be read.
    Has {
        /// Which.
        turn: TurnId,
        /// The answer.
        reply: oneshot::Sender<bool>,
    },
    /// How do you stand between two turns?
    Standing {
        /// The answer.
        reply: oneshot::Sender<Standing>,
    },
    /// What were you sent to do, as a sub-agent, and which of your turns is open? Unanswered while that is not known.
    Run {
        /// The answer.
        reply: oneshot::Sender<(Arc<RunSpec>, Option<TurnId>)>,
    },
    /// Change the conversation between two turns.
    Edit {
        /// How.
        edit: Edit,
        /// Whether it waits while a turn runs.
        patience: Patience,
        /// The answer.
        reply: oneshot::Sender<Result<Edited, EditError>>,
    },
    /// Summarise all but the last messages, if nothing was said for long and nothing is to be done.
    Condense {
        /// The answer.
        reply: oneshot::Sender<Result<Edited, EditError>>,
    },
    /// End the transcript, and with it all its turns, and put its file away. What comes later begins a new one.
    Close {
        /// Where to.
        to: Shelf,
        /// Whether a session with turns that wait or run is left alone.
        if_quiet: bool,
        /// The answer.
        reply: oneshot::Sender<Result<Closed, NotClosed>>,
    },
    /// Take the newest transcript back from the archive.
    Restore {
        /// The answer.
        reply: oneshot::Sender<Result<Restored, NotRestored>>,
    },
    /// Leave memory if idle.
    Passivate,
    /// Finish the running turn, begin no other, and leave memory.
    Drain,
    /// Checkpoint the running turn and leave memory.
    Interrupt,
}

/// The recipient of one session's mail.
pub type Address = Recipient<Mail>;

/// Answer to [`Mail::Stop`].
#[derive(Debug, Clone, Serialize)]
pub struct Stopped {
    /// The turn that was running.
    pub cancelled: Option<TurnId>,
    /// Waiting turns that were cancelled too.
    pub dropped: u32,
    /// Waiting turns that stay.
    pub waiting: u32,
    /// What the session works on waits for `/goal resume`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub goal_paused: bool,
    /// The session cannot do it now, and will as soon as it runs again; nothing of the above has happened yet. Control is
    /// never journalled: a process that ends before forgets it, and whoever asked is told so.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub later: bool,
}

/// Answer to [`Mail::Queue`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueState {
    /// The rules that hold.
    pub rules: QueueRules,
    /// Waiting turns.
    pub waiting: u32,
}

// === impl QueueState ===

/// As people are told.
impl fmt::Display for QueueState {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { rules, waiting } = self;
        write!(out, "Queue: {rules}. {waiting} waiting.")
    }
}

/// Answer to [`Mail::Close`].
#[derive(Debug, Clone, Serialize)]
pub struct Closed {
    /// The transcript that ended.
    pub session: SessionId,
    /// Turns that were cancelled.
    pub cancelled: u32,
    /// Its file's new name, below the directory of the sessions; `None` when there was no file, or it is `unmoved`.
    pub file: Option<String>,
    /// Why its file still lies where it was. That is tried again; no other session of the key begins before.
    pub unmoved: Option<String>,
}

/// Why a session was not closed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotClosed {
    /// It has no transcript and no message.
    #[error("there is no such session")]
    Nothing,
    /// It has none because nothing of its file could be read.
    #[error("no entry of this session is left: {0}")]
    Lost(String),
    /// Turns wait or run.
    #[error("the session has turns that wait or run; stop them, or wait for their end")]
    Busy,
    /// It is being changed or closed, or the process is stopping.
    #[error("the session is being changed, or on its way out; try again")]
    Leaving,
    /// The transcript of the session before cannot be put away.
    #[error("the transcript of the session before cannot be put away yet; `greenroom logs --why` says why")]
    Held,
}

/// Answer to [`Mail::Restore`].
#[derive(Debug, Clone, Serialize)]
pub struct Restored {
    /// The file that was taken back, below the directory of the sessions.
    pub file: String,
}

/// Why a session was not restored.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NotRestored {
    /// It is not in the archive.
    #[error("there is no archived session of this key")]
    Nothing,
    /// A newer one has its place.
    #[error("the key has a newer session; archive or delete that first")]
    InUse,
    /// Its file could not be moved.
    #[error("the archived file cannot be moved: {0}")]
    Failed(String),
}

/// Answer to [`Mail::Status`].
#[derive(Debug, Clone, Serialize)]
pub struct Status {
    /// Session.
    pub key: SessionKey,
    /// Transcript, once loaded.
    pub session: Option<SessionId>,
    /// What it does.
    pub state: State,
    /// Ownership number, once loaded.
    pub epoch: Epoch,
    /// The running turn.
    pub turn: Option<TurnId>,
    /// Its attempt.
    pub attempt: Option<Attempt>,
    /// How long it has been running.
    pub running_ms: Option<u64>,
    /// Waiting turns.
    pub inbox: u32,
    /// Why it is [`State::Held`].
    #[serde(skip_serializing_if = "Option::is_none")]
    pub why: Option<Box<str>>,
    /// Its model and conversation, once loaded.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub about: Option<Box<About>>,
}

/// The model and the conversation of a session.
#[derive(Debug, Clone, Serialize)]
pub struct About {
    /// Which model answers the next message.
    pub model: Arc<str>,
    /// The preset that was chosen.
    pub preset: Option<Arc<str>>,
    /// How hard it thinks, in the provider's word; `None` leaves that to it.
    pub effort: Option<Arc<str>>,
    /// The model's window.
    pub context_window_tokens: u64,
    /// What the last model call took.
    pub last: Option<Usage>,
    /// How full the window is, if that is known without reading the transcript.
    pub fill: Option<Fill>,
    /// What it works on.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub goal: Option<Arc<str>>,
    /// Whether that waits for `/goal resume`.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub goal_paused: bool,
    /// Messages of people and of the model since the conversation began.
    pub messages: u32,
    /// What the journal has of it and its file lacks for now, oldest first.
    #[serde(skip)]
    pub unwritten: Vec<Line>,
}

/// What a session does.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// Reading journal and transcript.
    Loading,
    /// It waits until the transcript of the session before it can be put away.
    Held,
    /// It crashed and waits for its restart.
    Restarting,
    /// It crashed too often and is held back.
    Quarantined,
    /// Nothing to do.
    Idle,
    /// Waiting for a place among the running turns of the gateway, or for one at the provider.
    Waiting,
    /// Waiting for the model.
    Thinking,
    /// Running tools.
    RunningTools,
    /// Waiting for the end of a turn to be durable.
    Saving,
}

impl State {
    /// The word that tree, answers and metric labels use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Loading => "loading",
            Self::Held => "held",
            Self::Idle => "idle",
            Self::Waiting => "waiting",
            Self::Restarting => "restarting",
            Self::Quarantined => "quarantined",
            Self::Thinking => "thinking",
            Self::RunningTools => "running_tools",
            Self::Saving => "saving",
        }
    }
}

/// What a transcript says about a turn.
#[derive(Debug, Clone)]
pub enum TurnRecord {
    /// It waits or runs; the hub has its events.
    Open,
    /// It ended.
    Ended {
        /// The verdict.
        result: TurnResult,
        /// The turn that took its message up, if one did: then the text is what that one answered, if it has.
        into: Option<TurnId>,
        /// The text that the user was given.
        text: String,
        /// Why the model stopped last.
        stop: StopReason,
        /// Tokens.
        usage: Usage,
        /// Model name.
        model: String,
    },
}
