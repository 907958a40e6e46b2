//! What reaches the engine: the calls of the contract with their answers' ways back, and the results of its own
//! work elsewhere. One queue, so the order of this queue is the order of everything.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use domain::ids::{Epoch, SessionId, SessionKey, TurnId};
use protocol::journal::{
    Accepted, Commit, CommitOutcome, DeadLetter, Enqueue, JournalError, Loaded, LogPosition, Moving, OpenWork,
    Quarantine, RecentId, Told, Unfinished,
};
use tokio::sync::oneshot::Sender;

use crate::carry::CarryRead;
use crate::catch_up::CaughtUp;
use crate::log::{NoSegment, Prepared};
use crate::outgoing::Outgoing;

/// One thing for the engine to do.
pub enum Call {
    /// See [`protocol::journal::Journal::enqueue`].
    Enqueue(Enqueue, Told),
    /// See [`protocol::journal::Journal::load`].
    Load(SessionKey, Sender<Result<Loaded, JournalError>>),
    /// See [`protocol::journal::Journal::commit`].
    Commit(Commit, Sender<CommitOutcome>),
    /// See [`protocol::journal::Journal::accepted`].
    Accepted(LogPosition, Sender<Result<Arc<Accepted>, JournalError>>),
    /// See [`protocol::journal::Journal::release`].
    Release(SessionKey, Epoch),
    /// See [`protocol::journal::Journal::bound`].
    Bound(SessionKey, Option<u32>),
    /// See [`protocol::journal::Journal::ended`].
    Ended(SessionKey, Sender<Result<Option<Moving>, JournalError>>),
    /// See [`protocol::journal::Journal::moved`].
    Moved(SessionKey, SessionId),
    /// See [`protocol::journal::Journal::quarantine`].
    Quarantine(Quarantine, Sender<()>),
    /// See [`protocol::journal::Journal::unquarantine`].
    Unquarantine(SessionKey, Sender<()>),
    /// See [`protocol::journal::Journal::unfinished`].
    Unfinished(Sender<Vec<Unfinished>>),
    /// See [`protocol::journal::Journal::find_turn`].
    FindTurn(TurnId, Sender<Option<SessionKey>>),
    /// See [`protocol::journal::Journal::open_of`].
    OpenOf(SessionKey, Sender<OpenWork>),
    /// See [`crate::LogJournal::caught_up`].
    AskCaughtUp(Sender<Vec<SessionKey>>),
    /// See [`protocol::journal::Journal::dead_letters`].
    DeadLetters(Sender<Vec<DeadLetter>>),
    /// About rows of the outbox and about single dead letters.
    Outgoing(Outgoing),
    /// See [`protocol::journal::Journal::drain`].
    Drain,
    /// See [`protocol::journal::Journal::close`].
    Close(Sender<()>),
    /// See [`protocol::journal::Journal::backup`].
    Backup(PathBuf, Sender<Result<u64, JournalError>>),
    /// The recent ids of some keys were read.
    RecentIds(Vec<(SessionKey, io::Result<Vec<RecentId>>)>),
    /// The next segment was made, or not.
    Prepared(Result<Prepared, NoSegment>),
    /// The transcript files were synced, or not.
    ViewsSynced(io::Result<()>),
    /// Files of sessions that nobody woke have everything.
    CaughtUp(CaughtUp),
    /// Records to be copied forward were read.
    CarryRead(Vec<CarryRead>),
    /// Nothing; lets the engine look at the clock.
    Tick,
}
