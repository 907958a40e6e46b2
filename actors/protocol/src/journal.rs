//! The journal's contract: the durable truth of one process. The engines live in the `journal` crate.
//!
//! | call | from | answer | durable when it answers |
//! |---|---|---|---|
//! | [`Journal::enqueue`] | doors | [`Enqueued`] | for `Accepted`: the message; a `Duplicate` waits for the first one's sync |
//! | [`Journal::load`] | session, on activation | [`Loaded`] | the new epoch, no later than the first commit under it |
//! | [`Journal::commit`] | session | [`CommitOutcome`] | all of the commit, or nothing |
//! | [`Journal::accepted`] | session | the accepted message | – |
//! | [`Journal::release`] | session, passivated | nothing | – |
//! | [`Journal::view_written`] | session | nothing | – (the checkpointer syncs later) |
//! | [`Journal::quarantine`], [`Journal::unquarantine`] | registry | done | the verdict |
//! | [`Journal::unfinished`] | registry, at boot | keys with work | – |
//! | [`Journal::drain`], [`Journal::close`] | composition root | done | everything |
//!
//! Every call is submit-and-return; dropping the receiver cancels nothing. Per key, order of submission is order of
//! effect. The first open turn of a key counts as begun (attempt 1) as soon as it is first: no record says so, `Accepted`
//! and the commit that ended its predecessor imply it. Only attempts above the first are marked by [`Started`].
//! After a batch is on disk the journal first hands each new message to [`QueuedSink`] in log order and only
//! then answers the doors.

use std::sync::Arc;

use domain::ids::{Attempt, Epoch, MessageId, Seq, SessionId, SessionKey, Source, ToolCallId, TurnId};
use tokio::sync::oneshot;

use crate::turn::Route;

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
    /// The log is near its size limit, or cannot be written.
    Disk,
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

/// A transcript line with its id.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Line {
    /// Entry id (text: files of others hold other forms), or empty for the header line.
    pub id: Arc<str>,
    /// One JSON object, without the line end.
    pub text: Arc<str>,
}

/// Marks that an attempt of a turn begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Started {
    /// Turn.
    pub turn: TurnId,
    /// Attempt; must be durable before the attempt runs when it is above the first.
    pub attempt: Attempt,
    /// Crashes of its own actor or task so far.
    pub crashes: u32,
    /// Process deaths while it ran so far.
    pub deaths: u32,
    /// Whether it is a suspect that runs alone: a death now counts as a crash.
    pub alone: bool,
}

/// The end of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum TurnEnd {
    /// Answered.
    Done,
    /// Given up; kept as a dead letter.
    Dead {
        /// Why, for `deadletters`.
        reason: Arc<str>,
    },
    /// Cancelled.
    Cancelled {
        /// Why.
        why: Arc<str>,
    },
}

/// One atomic unit of a session's progress.
#[derive(Debug, Clone)]
pub struct Commit {
    /// Session.
    pub key: SessionKey,
    /// Transcript.
    pub session: SessionId,
    /// Ownership; an old one is refused as `Fenced`.
    pub epoch: Epoch,
    /// Number of this commit, one more than the last of this key; see [`Loaded::next_commit`].
    pub number: u64,
    /// Transcript lines, in file order.
    pub lines: Vec<Line>,
    /// Tool calls that may have had an effect from now on.
    pub tools_started: Vec<ToolCallId>,
    /// Turns that end here.
    pub ended: Vec<(TurnId, TurnEnd)>,
    /// An attempt above the first that begins.
    pub started: Option<Started>,
    /// An orderly stop: the running turn counts neither crash nor death.
    pub interrupted: bool,
    /// The transcript ends here: a tombstone, or an archived stateless session.
    pub closes_session: bool,
}

/// The verdict over a [`Commit`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CommitOutcome {
    /// On disk.
    Done,
    /// A newer epoch owns the key.
    Fenced,
    /// No record can ever hold it: nothing was written, and its number is still due. Something smaller may take its place.
    TooLarge,
    /// Whether it is on disk cannot be told: reload and look.
    Unknown {
        /// Why.
        why: String,
    },
}

/// How the last attempt of a running turn was left.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LeftBy {
    /// Its actor crashed in this process.
    Crash,
    /// The process ended without an orderly stop.
    Death,
    /// The process stopped in order.
    Interrupted,
}

/// A turn that had begun when the session was last left.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CutTurn {
    /// The last durable start.
    pub started: Started,
    /// How it was left. `started.crashes` and `started.deaths` do not yet count this.
    pub left_by: LeftBy,
    /// Tool calls that had begun and have no result line.
    pub tools_started: Vec<ToolCallId>,
}

/// What a session needs to begin an incarnation.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// Its ownership number.
    pub epoch: Epoch,
    /// Its transcript; a fresh id when the key has none.
    pub session: SessionId,
    /// Number of the next commit.
    pub next_commit: u64,
    /// How much of the file is known to be on the device.
    pub view: ViewMark,
    /// Lines that were committed after `view`, in order; the file may or may not have them.
    pub lines: Vec<Line>,
    /// Waiting turns in order, the cut one (if any) first.
    pub inbox: Vec<InboxItem>,
    /// The turn that had begun.
    pub cut: Option<CutTurn>,
}

/// How far the transcript file is known to be good.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ViewMark {
    /// Length in bytes.
    pub length: u64,
    /// Id of the last entry within that length.
    pub last_entry: Option<Arc<str>>,
}

/// Tells the checkpointer how far a transcript file was written.
#[derive(Debug, Clone)]
pub struct ViewWritten {
    /// Session.
    pub key: SessionKey,
    /// Transcript.
    pub session: SessionId,
    /// Commits up to this number are in the file.
    pub commit: u64,
    /// The file's length after them.
    pub mark: ViewMark,
}

/// A key with work, at boot.
#[derive(Debug, Clone)]
pub struct Unfinished {
    /// Session.
    pub key: SessionKey,
    /// The turn that had begun, if any, with its counts.
    pub cut: Option<(Started, LeftBy)>,
    /// Number of turns that wait or run.
    pub turns: u32,
    /// A quarantine that holds, with its end in ms since 1970.
    pub quarantined_until_ms: Option<u64>,
}

/// A durable quarantine.
#[derive(Debug, Clone)]
pub struct Quarantine {
    /// Session.
    pub key: SessionKey,
    /// Its end, ms since 1970.
    pub until_ms: u64,
    /// How many times in a row, for the doubling of its length.
    pub times: u32,
    /// Why: `crashes` or `load`.
    pub reason: Arc<str>,
}

/// A dead letter.
#[derive(Debug, Clone, serde::Serialize)]
pub struct DeadLetter {
    /// Turn.
    pub turn: TurnId,
    /// Session.
    pub key: SessionKey,
    /// Sender's id.
    pub message_id: MessageId,
    /// Why.
    pub reason: Arc<str>,
    /// When, ms since 1970.
    pub at_ms: u64,
}

/// Counters that every engine shows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, serde::Serialize)]
pub struct JournalStatus {
    /// Turns accepted since the log began to be counted in this process (recovered open ones included).
    pub accepted: u64,
    /// Turns that ended as done.
    pub done: u64,
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
    /// Bytes in segments that hold something needed.
    pub live_bytes: u64,
    /// Bytes of all segments.
    pub total_bytes: u64,
    /// Whether it can write.
    pub writable: bool,
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

/// The journal of this process. See the table above.
pub trait Journal: Send + Sync + 'static {
    /// Admits one message.
    fn enqueue(&self, message: Enqueue) -> oneshot::Receiver<Enqueued>;
    /// Begins an incarnation of a session: takes the next epoch.
    fn load(&self, key: SessionKey) -> oneshot::Receiver<Result<Loaded, JournalError>>;
    /// Makes progress durable.
    fn commit(&self, commit: Commit) -> oneshot::Receiver<CommitOutcome>;
    /// Reads an accepted message back.
    fn accepted(&self, at: LogPosition) -> oneshot::Receiver<Result<Arc<Accepted>, JournalError>>;
    /// The session was passivated: its dedupe ids may leave memory.
    fn release(&self, key: SessionKey, epoch: Epoch);
    /// A transcript file was written up to a commit.
    fn view_written(&self, written: ViewWritten);
    /// Holds a session back.
    fn quarantine(&self, quarantine: Quarantine) -> oneshot::Receiver<()>;
    /// Lets it go.
    fn unquarantine(&self, key: SessionKey) -> oneshot::Receiver<()>;
    /// Keys with work, oldest message first.
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>>;
    /// Dead letters, oldest first.
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>>;
    /// Refuses new messages from now on.
    fn drain(&self);
    /// Flushes and stops.
    fn close(&self) -> oneshot::Receiver<()>;
    /// A consistent copy of the log below `to`, while the journal runs on.
    fn backup(&self, to: std::path::PathBuf) -> oneshot::Receiver<Result<u64, JournalError>>;
    /// Counters, at any time.
    fn status(&self) -> JournalStatus;
}

/// Where the journal finds the recent message ids of a key that it has not in memory: the tail of its transcript.
/// Called on the blocking pool.
pub trait RecentIds: Send + Sync + 'static {
    /// The last [`RECENT_IDS_MAX`] messages of the transcript, oldest first.
    fn recent(&self, key: &SessionKey) -> std::io::Result<Vec<RecentId>>;
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
