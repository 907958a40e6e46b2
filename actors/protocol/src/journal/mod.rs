//! The journal's contract: the durable truth of one process. The engines live in the `journal` crate.
//!
//! | call | from | answer | durable when it answers |
//! |---|---|---|---|
//! | [`Journal::enqueue`] | doors | [`Enqueued`] | for `Accepted`: the message; a `Duplicate` waits for the first one's sync |
//! | [`Journal::load`] | session, on activation | [`Loaded`] | the new epoch, no later than the first commit under it |
//! | [`Journal::commit`] | session | [`CommitOutcome`] | all of the commit, or nothing |
//! | [`Journal::accepted`] | session | the accepted message | – |
//! | [`Journal::release`] | session, passivated | nothing | – |
//! | [`Journal::bound`] | session | nothing | – |
//! | [`Journal::view_written`] | session | nothing | – (the checkpointer syncs later) |
//! | [`Journal::moved`] | session | nothing | before whatever is committed after it |
//! | [`Journal::quarantine`], [`Journal::unquarantine`] | registry | done | the verdict |
//! | [`Journal::unfinished`] | registry, at boot | keys with work | – |
//! | [`Journal::find_turn`], [`Journal::open_of`] | operators | the session of an open turn; what is open of a session | – |
//! | [`Journal::outbox`], [`Journal::outbox_channels`] | deliverer | open rows | – |
//! | [`Journal::sending`], [`Journal::sent`], [`Journal::undeliverable`] | deliverer | done | the row's step |
//! | [`Journal::dead_letters`], [`Journal::letter`] | operators | dead letters | – |
//! | [`Journal::drop_letter`], [`Journal::redeliver`] | operators | whether it was there | the letter's end |
//! | [`Journal::drain`], [`Journal::close`] | composition root | done | everything |
//!
//! Every call is submit-and-return; dropping the receiver cancels nothing. Per key, order of submission is order of
//! effect. The first open turn of a key counts as begun (attempt 1) as soon as it is first: no record says so, `Accepted`
//! and the commit that ended its predecessor imply it. Only attempts above the first are marked by [`Started`].
//! After a batch is on disk the journal first hands each new message to [`QueuedSink`] and each new row to [`OutSink`]
//! in log order and only then answers. The letter of a dead turn ends with the record that accepts its retry.

mod commit;
mod message;
mod open;
mod outbox;

use std::path::PathBuf;
use std::sync::Arc;

use domain::ids::{DeliveryId, Epoch, LetterId, SessionId, SessionKey, TurnId};
use tokio::sync::oneshot;

pub use commit::{
    Closes, Commit, CommitOutcome, CutTurn, LeftBy, Line, Loaded, Move, Moving, Quarantine, Shelf, Started, TurnEnd,
    Unfinished, ViewMark, ViewWritten,
};
pub use message::{
    Accepted, AcceptedState, BusyReason, DuplicateState, Enqueue, Enqueued, INLINE_BODY_BYTES_MAX, InboxItem,
    LogPosition, Queued, QueuedSink, RECENT_IDS_MAX, RecentId, RecentIds,
};
pub use open::{OpenRow, OpenTurn, OpenWork};
pub use outbox::{AskRows, DeadLetter, LetterContent, LetterDetail, LetterKind, Out, OutRow, OutSink, Rows};

/// Counters that every engine shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct JournalStatus {
    /// Turns accepted since the log began to be counted in this process (recovered open ones included).
    pub accepted: u64,
    /// Turns that ended as done: `accepted` = `done` + `dead` + `cancelled` + `open`.
    pub done: u64,
    /// Of `done`, those that ended with a failure that their user was told; the others were answered.
    pub failed: u64,
    /// Turns that ended as dead letters.
    pub dead: u64,
    /// Turns that were cancelled.
    pub cancelled: u64,
    /// Turns that wait or run.
    pub open: u64,
    /// When the oldest open turn was accepted, ms since 1970.
    pub oldest_open_ms: Option<u64>,
    /// Bytes of open bodies.
    pub open_bytes: u64,
    /// Rows of the outbox that are not delivered yet.
    pub outbox: u64,
    /// When the first of them was committed, ms since 1970.
    pub oldest_out_ms: Option<u64>,
    /// Bytes in segments that hold something needed.
    pub live_bytes: u64,
    /// Bytes of all segments.
    pub total_bytes: u64,
    /// Whether it can write.
    pub writable: bool,
    /// What the disk lacks, when that is why it cannot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub space: Option<Space>,
}

/// What a full disk must have before the journal can be written again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
pub struct Space {
    /// Bytes of the next segment, all of which are taken at once.
    pub needed_bytes: u64,
    /// Bytes that are free.
    pub free_bytes: u64,
}

impl std::fmt::Display for Space {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(out, "{} bytes are needed, {} are free", self.needed_bytes, self.free_bytes)
    }
}

/// Why a call could not be answered.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum JournalError {
    /// A record could not be read back.
    #[error("journal record cannot be read: {0}")]
    Unreadable(String),
    /// The journal stopped: its disk failed, or the process is ending.
    #[error("journal is closed")]
    Closed,
}

/// Who is told the verdict over a message: once, on the journal's thread, so it must not wait for anything. It is
/// dropped untold when the journal is gone.
pub struct Told(Box<dyn FnOnce(Enqueued) + Send>);

impl Told {
    /// Calls `hear`.
    pub fn new(hear: impl FnOnce(Enqueued) + Send + 'static) -> Self {
        Self(Box::new(hear))
    }

    /// Tells it.
    pub fn tell(self, verdict: Enqueued) {
        (self.0)(verdict);
    }
}

impl From<oneshot::Sender<Enqueued>> for Told {
    fn from(to: oneshot::Sender<Enqueued>) -> Self {
        // Whoever asked may be gone; then nobody needs the answer.
        Self::new(move |verdict| drop(to.send(verdict)))
    }
}

/// The journal of this process. See the table above.
pub trait Journal: Send + Sync + 'static {
    /// Admits one message.
    fn enqueue(&self, message: Enqueue) -> oneshot::Receiver<Enqueued> {
        let (told, verdict) = oneshot::channel();
        self.admit(message, told.into());
        verdict
    }
    /// Admits one message, and tells how it went in place.
    fn admit(&self, message: Enqueue, told: Told);
    /// Begins an incarnation of a session: takes the next epoch.
    fn load(&self, key: SessionKey) -> oneshot::Receiver<Result<Loaded, JournalError>>;
    /// Makes progress durable.
    fn commit(&self, commit: Commit) -> oneshot::Receiver<CommitOutcome>;
    /// Reads an accepted message back.
    fn accepted(&self, at: LogPosition) -> oneshot::Receiver<Result<Arc<Accepted>, JournalError>>;
    /// The session was passivated: its dedupe ids may leave memory.
    fn release(&self, key: SessionKey, epoch: Epoch);
    /// How many turns may wait behind the first open one of a session that is loaded, in place of what is configured:
    /// `u32::MAX` is any number. It holds until the session is released. A journal that refuses nobody needs no bound.
    fn bound(&self, _key: SessionKey, _cap: Option<u32>) {}
    /// A transcript file was written up to a commit.
    fn view_written(&self, written: ViewWritten);
    /// The file of an ended transcript that has to be moved, with what it may lack.
    fn ended(&self, key: SessionKey) -> oneshot::Receiver<Result<Option<Moving>, JournalError>>;
    /// The file of an ended transcript is complete where [`Closes::Moves`] wanted it, and all of it is synced.
    fn moved(&self, key: SessionKey, session: SessionId);
    /// Holds a session back.
    fn quarantine(&self, quarantine: Quarantine) -> oneshot::Receiver<()>;
    /// Lets it go.
    fn unquarantine(&self, key: SessionKey) -> oneshot::Receiver<()>;
    /// Keys with work, oldest message first.
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>>;
    /// The session in which a turn waits or runs. Looks at every open turn: for people who ask.
    fn find_turn(&self, turn: TurnId) -> oneshot::Receiver<Option<SessionKey>>;
    /// What is open of a session. Looks at every open row: for people who ask.
    fn open_of(&self, key: SessionKey) -> oneshot::Receiver<OpenWork>;
    /// Dead letters, oldest first.
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>>;
    /// One of them with what it is about.
    fn letter(&self, id: LetterId) -> oneshot::Receiver<Option<LetterDetail>>;
    /// Ends a letter; `false` when there is none of this name.
    fn drop_letter(&self, id: LetterId) -> oneshot::Receiver<bool>;
    /// Opens the row of a dead delivery again, behind all others, its age counted from now. The sink gets it, too.
    /// `None` when there is no such letter, or its row cannot be read any more.
    fn redeliver(&self, id: LetterId) -> oneshot::Receiver<Option<OutRow>>;
    /// The channels that have open rows, in order.
    fn outbox_channels(&self) -> oneshot::Receiver<Vec<Arc<str>>>;
    /// The oldest open rows of a channel, for whoever did not keep them.
    fn outbox(&self, ask: AskRows) -> oneshot::Receiver<Rows>;
    /// A send of this row begins. Nothing happens when it is not open; so with the next two.
    fn sending(&self, id: DeliveryId) -> oneshot::Receiver<()>;
    /// Its channel took it.
    fn sent(&self, id: DeliveryId) -> oneshot::Receiver<()>;
    /// Its channel will not take it: it becomes a dead letter.
    fn undeliverable(&self, id: DeliveryId, reason: Arc<str>) -> oneshot::Receiver<()>;
    /// Refuses new messages from now on.
    fn drain(&self);
    /// Flushes and stops.
    fn close(&self) -> oneshot::Receiver<()>;
    /// A consistent copy of the log below `to`, while the journal runs on.
    fn backup(&self, to: PathBuf) -> oneshot::Receiver<Result<u64, JournalError>>;
    /// Counters, at any time.
    fn status(&self) -> JournalStatus;
}
