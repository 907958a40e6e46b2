//! A journal of which a double answers a few calls: to all others it says nothing, as one that is being closed.

use std::path::PathBuf;
use std::sync::Arc;

use domain::ids::{DeliveryId, Epoch, LetterId, SessionId, SessionKey, TurnId};
use protocol::journal::{
    Accepted, AskRows, Commit, CommitOutcome, DeadLetter, Enqueue, Journal, JournalError, JournalStatus, LetterDetail,
    Loaded, LogPosition, Moving, OpenWork, OutRow, Quarantine, Rows, Told, Unfinished, ViewWritten,
};
use tokio::sync::oneshot;

/// What a double may answer.
pub trait Answers: Send + Sync + 'static {
    /// See [`Journal::admit`].
    fn admit(&self, _message: Enqueue, _told: Told) {}
    /// See [`Journal::quarantine`].
    fn quarantine(&self, _quarantine: Quarantine) -> oneshot::Receiver<()> {
        silence()
    }
    /// See [`Journal::unquarantine`].
    fn unquarantine(&self, _key: SessionKey) -> oneshot::Receiver<()> {
        silence()
    }
    /// See [`Journal::unfinished`].
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>> {
        silence()
    }
    /// See [`Journal::open_of`].
    fn open_of(&self, _key: SessionKey) -> oneshot::Receiver<OpenWork> {
        silence()
    }
    /// See [`Journal::dead_letters`].
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>> {
        silence()
    }
}

/// The journal around a double.
pub struct QuietJournal<T>(pub Arc<T>);

fn silence<T>() -> oneshot::Receiver<T> {
    oneshot::channel().1
}

impl<T: Answers> Journal for QuietJournal<T> {
    fn admit(&self, message: Enqueue, told: Told) {
        self.0.admit(message, told);
    }
    fn quarantine(&self, quarantine: Quarantine) -> oneshot::Receiver<()> {
        self.0.quarantine(quarantine)
    }
    fn unquarantine(&self, key: SessionKey) -> oneshot::Receiver<()> {
        self.0.unquarantine(key)
    }
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>> {
        self.0.unfinished()
    }
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>> {
        self.0.dead_letters()
    }
    fn open_of(&self, key: SessionKey) -> oneshot::Receiver<OpenWork> {
        self.0.open_of(key)
    }
    fn load(&self, _: SessionKey) -> oneshot::Receiver<Result<Loaded, JournalError>> {
        silence()
    }
    fn commit(&self, _: Commit) -> oneshot::Receiver<CommitOutcome> {
        silence()
    }
    fn accepted(&self, _: LogPosition) -> oneshot::Receiver<Result<Arc<Accepted>, JournalError>> {
        silence()
    }
    fn release(&self, _: SessionKey, _: Epoch) {}
    fn view_written(&self, _: ViewWritten) {}
    fn ended(&self, _: SessionKey) -> oneshot::Receiver<Result<Option<Moving>, JournalError>> {
        silence()
    }
    fn moved(&self, _: SessionKey, _: SessionId) {}
    fn find_turn(&self, _: TurnId) -> oneshot::Receiver<Option<SessionKey>> {
        silence()
    }
    fn letter(&self, _: LetterId) -> oneshot::Receiver<Option<LetterDetail>> {
        silence()
    }
    fn drop_letter(&self, _: LetterId) -> oneshot::Receiver<bool> {
        silence()
    }
    fn redeliver(&self, _: LetterId) -> oneshot::Receiver<Option<OutRow>> {
        silence()
    }
    fn outbox_channels(&self) -> oneshot::Receiver<Vec<Arc<str>>> {
        silence()
    }
    fn outbox(&self, _: AskRows) -> oneshot::Receiver<Rows> {
        silence()
    }
    fn sending(&self, _: DeliveryId) -> oneshot::Receiver<()> {
        silence()
    }
    fn sent(&self, _: DeliveryId) -> oneshot::Receiver<()> {
        silence()
    }
    fn undeliverable(&self, _: DeliveryId, _: Arc<str>) -> oneshot::Receiver<()> {
        silence()
    }
    fn drain(&self) {}
    fn close(&self) -> oneshot::Receiver<()> {
        silence()
    }
    fn backup(&self, _: PathBuf) -> oneshot::Receiver<Result<u64, JournalError>> {
        silence()
    }
    fn status(&self) -> JournalStatus {
        JournalStatus::default()
    }
}
