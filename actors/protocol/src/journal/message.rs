//! A message's way in: what a door hands over, the verdict, and what the session gets.

use std::sync::Arc;

use domain::ids::{MessageId, Seq, SessionKey, Source, TurnId};

use super::{Line, Moving, ViewMark};
use crate::turn::{PushRoute, Route};

/// A message on its way in. Dedupe key: (`key`, `source`, `message_id`).
#[derive(Debug, Clone)]
pub struct Enqueue {
    /// Session.
    pub key: SessionKey,
    /// The turn's id, should it be accepted.
    pub turn: TurnId,
    /// Which door.
    pub source: Source,
    /// The sender's id of the message.
    pub message_id: MessageId,
    /// Where replies go.
    pub route: Route,
    /// An encoded `TurnBody`; at most 16 MiB.
    pub body: Arc<[u8]>,
    /// `domain::body::body_hash` of `body`.
    pub body_hash: u64,
    /// For `deadletters retry`: the dead turn whose user entry stands already.
    pub retry_of: Option<TurnId>,
}

/// The verdict over an [`Enqueue`]. Everything but `Accepted` wrote nothing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Enqueued {
    /// On disk; will be answered.
    Accepted {
        /// Its turn.
        turn: TurnId,
        /// Its place in the session's order.
        seq: Seq,
        /// How many turns are before it.
        position: u32,
        /// What becomes of it now.
        state: AcceptedState,
    },
    /// This message was accepted before.
    Duplicate {
        /// The first one's turn.
        turn: TurnId,
        /// How far that one is.
        state: DuplicateState,
    },
    /// This id was used before with another body.
    Conflict {
        /// The first one's turn.
        turn: TurnId,
    },
    /// A bound is reached.
    Busy {
        /// When to try again.
        retry_after_ms: u64,
        /// Which bound.
        why: BusyReason,
    },
    /// The session is quarantined and its inbox is full.
    Quarantined {
        /// When it tries again, wall clock in ms since 1970.
        until_ms: u64,
    },
    /// The process is stopping.
    Draining,
}

/// What becomes of an accepted message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AcceptedState {
    /// Its turn starts now.
    Running,
    /// It waits for the turns before it.
    Queued,
    /// It waits for the end of the session's quarantine.
    Quarantined,
}

/// How far the first message of a duplicate is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DuplicateState {
    /// Waiting or running.
    Open,
    /// Its turn ended; the transcript has the outcome.
    Ended,
}

/// Which bound refused a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum BusyReason {
    /// `runtime.inboxMax` or `runtime.inboxMaxBytes` of this session.
    Session,
    /// `runtime.queuedMaxBytes` of the process.
    Process,
    /// `runtime.memoryHighBytes` of the process.
    Memory,
    /// The log is near its size limit, or cannot be written.
    Disk,
    /// The session's transcript cannot be read, so it cannot be told whether the message is a repeat.
    Transcript,
}

/// An accepted message as the log has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Accepted {
    /// Turn.
    pub turn: TurnId,
    /// Order in the session.
    pub seq: Seq,
    /// Door.
    pub source: Source,
    /// Sender's id.
    pub message_id: MessageId,
    /// Hash of `body`.
    pub body_hash: u64,
    /// Reply route.
    pub route: Route,
    /// Encoded `TurnBody`.
    pub body: Arc<[u8]>,
    /// When it was accepted, ms since 1970.
    pub accepted_ms: u64,
    /// The dead turn that this one repeats.
    pub retry_of: Option<TurnId>,
}

/// Where a record lies in the log. Opaque to everybody but the engine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct LogPosition(pub u64);

/// One waiting turn, small enough to keep thousands.
#[derive(Debug, Clone)]
pub struct InboxItem {
    /// Turn.
    pub turn: TurnId,
    /// Order.
    pub seq: Seq,
    /// Where the message lies.
    pub at: LogPosition,
    /// The message itself when its body has at most [`INLINE_BODY_BYTES_MAX`] bytes.
    pub inline: Option<Arc<Accepted>>,
    /// Where its reply is pushed, if it is, of a message that is not `inline`.
    pub push: Option<Arc<PushRoute>>,
    /// Whether it is an event: no person said it.
    pub event: bool,
}

impl InboxItem {
    /// Where its reply is pushed, if it is.
    pub fn push_route(&self) -> Option<&PushRoute> {
        match self.inline.as_deref().map(|message| &message.route) {
            Some(Route::Push(route)) => Some(route),
            Some(Route::Live | Route::Reply) => None,
            None => self.push.as_deref(),
        }
    }
}

/// Larger bodies are read from the log when their turn starts.
pub const INLINE_BODY_BYTES_MAX: usize = 1024;

/// Handed over for each accepted message once it is durable, in log order, from the journal's thread: must not block.
#[derive(Debug, Clone)]
pub struct Queued {
    /// Session.
    pub key: SessionKey,
    /// The turn.
    pub item: InboxItem,
}

/// Where accepted messages go: the registry, which finds or starts the session.
pub trait QueuedSink: Send + Sync + 'static {
    /// Takes one message.
    fn queued(&self, queued: Queued);
}

/// What the journal asks of transcripts whose sessions are not in memory. Called on the blocking pool.
pub trait RecentIds: Send + Sync + 'static {
    /// The last [`RECENT_IDS_MAX`] messages of the transcript, oldest first.
    fn recent(&self, key: &SessionKey) -> std::io::Result<Vec<RecentId>>;

    /// Makes the transcript complete: `lines` are what the journal has from `from` on. Gives how far it has everything
    /// now; `None` if somebody else wrote into it, which its session has to sort out. Nobody else writes it meanwhile.
    fn complete(&self, _key: &SessionKey, _from: &ViewMark, _lines: &[Line]) -> std::io::Result<Option<ViewMark>> {
        Ok(None)
    }

    /// Completes the file of an ended transcript and moves it to its place, unless that was done before; all of it is
    /// synced. Nobody else touches it meanwhile.
    fn move_away(&self, _moving: &Moving) -> std::io::Result<()> {
        Err(std::io::ErrorKind::Unsupported.into())
    }
}

/// How many message ids per session are remembered.
pub const RECENT_IDS_MAX: usize = 1000;

/// One message that a transcript has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentId {
    /// `<source>:<message id>`.
    pub idempotency_key: String,
    /// Its turn.
    pub turn: TurnId,
    /// Hash of its body.
    pub body_hash: u64,
}
