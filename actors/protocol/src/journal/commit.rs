//! A session's progress: what it commits, and what its next incarnation is told.

use std::sync::Arc;

use domain::ids::{Attempt, Epoch, Seq, SessionId, SessionKey, ToolCallId, TurnId};

use super::{InboxItem, Out};

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
    /// Its message was taken up by another turn of the same session, whose answer is its answer too. Counts as done.
    Joined {
        /// That turn.
        into: TurnId,
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
    /// What is said to a channel, in order.
    pub out: Vec<Out>,
    /// An attempt above the first that begins.
    pub started: Option<Started>,
    /// An orderly stop: the running turn counts neither crash nor death.
    pub interrupted: bool,
    /// The transcript ends here: what comes later for its key begins a new one, under a new session id.
    pub closes: Option<Closes>,
}

/// How a transcript ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Closes {
    /// Its file was moved away before, as that of a stateless session.
    Moved,
    /// Its file has to be moved: until [`Journal::moved`](super::Journal::moved) the journal sees to that.
    Moves(Move),
}

/// Where the file of an ended transcript goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Move {
    /// Where to.
    pub to: Shelf,
    /// When it ended, ms since 1970: part of the file's new name.
    pub at_ms: u64,
}

/// Where transcripts lie that are no session's any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Shelf {
    /// It can be read, and taken back.
    Archive,
    /// A tombstone.
    Deleted,
}

/// A transcript that has ended and whose file may still lie where its key's next one belongs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moving {
    /// Its key.
    pub key: SessionKey,
    /// The transcript.
    pub session: SessionId,
    /// Where it goes.
    pub place: Move,
    /// How much of the file is known to be on the device.
    pub view: ViewMark,
    /// Lines that were committed after `view`, in order; the file may or may not have them.
    pub lines: Vec<Line>,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "snake_case")]
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
    /// Whether it crashed its session before that was held back, which is not counted yet.
    pub blamed: bool,
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
    /// The last place given out in the accept order: a turn up to it that is not in `inbox` has ended.
    pub through: Seq,
    /// The turn that had begun.
    pub cut: Option<CutTurn>,
    /// The file of an earlier transcript of this key, which has to be moved away before anything else.
    pub moving: Option<Moving>,
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
    /// How many quarantines in a row it had, the last one included even if its time is over.
    pub quarantined_times: u32,
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
    /// The turn whose crash is still to be counted.
    pub turn: Option<TurnId>,
}
