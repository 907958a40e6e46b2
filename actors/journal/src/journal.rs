//! The handle that everybody holds: each call is put into the engine's queue and returns at once.

use std::future::Future;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, PoisonError};

use domain::ids::{DeliveryId, Epoch, LetterId, SessionId, SessionKey, TurnId};
use protocol::journal::{
    Accepted, AskRows, Commit, CommitOutcome, DeadLetter, Enqueue, Journal, JournalError, JournalStatus, LetterDetail,
    Loaded, LogPosition, Moving, OpenWork, OutRow, Quarantine, Rows, Told, Unfinished, ViewWritten,
};
use tokio::sync::{oneshot, watch};

use crate::call::Call;
use crate::carry::Notes;
use crate::engine::{Engine, Surroundings, status_of};
use crate::options::{OpenError, Options};
use crate::outgoing::{Outgoing, Step};
use crate::pump::Pump;
use crate::recovery::{self, RecoveryReport};

/// The journal on a log of its own. Dropping the last handle closes it. A call that races with the close may find its
/// answer's channel closed, which means the same as `Closed` or `Unknown`.
pub struct LogJournal {
    pump: Pump,
    notes: Notes,
    status: Arc<Mutex<JournalStatus>>,
    failed: watch::Receiver<Option<String>>,
}

impl LogJournal {
    /// Recovers the log in `options.dir` (made when missing) and starts its writer thread, named `journal`. Blocks.
    pub fn open(options: Options, around: Surroundings) -> Result<(Arc<Self>, RecoveryReport), OpenError> {
        let counted = around.metrics.clone();
        Self::start(options, around, |make| Pump::thread(make, &counted).map_err(OpenError::Thread))
    }

    /// The same engine without a thread: each call is carried out on the pool of `ports`, together with what has come
    /// meanwhile; where that works in place, before the call returns. For simulations, where one thread runs everything on
    /// a paused clock.
    pub fn open_local(options: Options, around: Surroundings) -> Result<(Arc<Self>, RecoveryReport), OpenError> {
        let pool = around.ports.offload.clone();
        Self::start(options, around, |make| Ok(Pump::local(make, pool)))
    }

    fn start(
        options: Options,
        around: Surroundings,
        pump: impl FnOnce(Box<dyn FnOnce(crate::pump::Post) -> Engine + Send>) -> Result<Pump, OpenError>,
    ) -> Result<(Arc<Self>, RecoveryReport), OpenError> {
        let recovered = recovery::recover(&options, &around.ports)?;
        let report = recovered.report.clone();
        // Told from the first moment, before the thread has begun.
        let writable = recovered.no_space.is_none();
        let space = recovered.no_space.as_ref().and_then(|why| why.space);
        let status = JournalStatus { space, ..status_of(&recovered.state, &recovered.log, writable) };
        let status = Arc::new(Mutex::new(status));
        let (fail, failed) = watch::channel(None);
        let (notes, shown) = (Notes::default(), status.clone());
        let noted = notes.clone();
        let pump = pump(Box::new(move |post| Engine::new(options, around, recovered, post, noted, shown, fail)))?;
        let journal = Self { pump, notes, status, failed };
        // The next segment is made ahead of the first message: whoever starts on a full disk is told at once.
        journal.tell(Call::Tick);
        Ok((Arc::new(journal), report))
    }

    /// Resolves with the reason when the log's disk failed. From then on nothing is acknowledged any more: the
    /// process has to end (exit code 74) and recover on the next start.
    pub fn failed(&self) -> impl Future<Output = String> + Send + use<> {
        let mut failed = self.failed.clone();
        async move {
            let reason = failed.wait_for(Option::is_some).await.ok().and_then(|reason| reason.clone());
            match reason {
                Some(reason) => reason,
                // The journal was closed in order: it can never fail any more.
                None => std::future::pending().await,
            }
        }
    }

    /// Resolves when the files of all sessions that nobody wakes were brought up to the log, with the keys of those that
    /// were not: others wrote into the file, or it cannot be written.
    pub fn caught_up(&self) -> oneshot::Receiver<Vec<SessionKey>> {
        self.ask(Call::AskCaughtUp)
    }

    fn ask<T>(&self, call: impl FnOnce(oneshot::Sender<T>) -> Call) -> oneshot::Receiver<T> {
        let (reply, answer) = oneshot::channel();
        self.tell(call(reply));
        answer
    }

    fn tell(&self, call: Call) {
        if let Err(call) = self.pump.post(call) {
            Engine::refuse(*call, "the journal is closed");
        }
    }
}

impl Journal for LogJournal {
    fn admit(&self, message: Enqueue, told: Told) {
        self.tell(Call::Enqueue(message, told));
    }

    fn load(&self, key: SessionKey) -> oneshot::Receiver<Result<Loaded, JournalError>> {
        self.ask(|reply| Call::Load(key, reply))
    }

    fn commit(&self, commit: Commit) -> oneshot::Receiver<CommitOutcome> {
        self.ask(|reply| Call::Commit(commit, reply))
    }

    fn accepted(&self, at: LogPosition) -> oneshot::Receiver<Result<Arc<Accepted>, JournalError>> {
        self.ask(|reply| Call::Accepted(at, reply))
    }

    fn release(&self, key: SessionKey, epoch: Epoch) {
        self.tell(Call::Release(key, epoch));
    }

    fn bound(&self, key: SessionKey, cap: Option<u32>) {
        self.tell(Call::Bound(key, cap));
    }

    fn view_written(&self, written: ViewWritten) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(written);
    }

    fn ended(&self, key: SessionKey) -> oneshot::Receiver<Result<Option<Moving>, JournalError>> {
        self.ask(|reply| Call::Ended(key, reply))
    }

    fn moved(&self, key: SessionKey, session: SessionId) {
        self.tell(Call::Moved(key, session));
    }

    fn quarantine(&self, quarantine: Quarantine) -> oneshot::Receiver<()> {
        self.ask(|reply| Call::Quarantine(quarantine, reply))
    }

    fn unquarantine(&self, key: SessionKey) -> oneshot::Receiver<()> {
        self.ask(|reply| Call::Unquarantine(key, reply))
    }

    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>> {
        self.ask(Call::Unfinished)
    }

    fn find_turn(&self, turn: TurnId) -> oneshot::Receiver<Option<SessionKey>> {
        self.ask(|reply| Call::FindTurn(turn, reply))
    }

    fn open_of(&self, key: SessionKey) -> oneshot::Receiver<OpenWork> {
        self.ask(|reply| Call::OpenOf(key, reply))
    }

    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>> {
        self.ask(Call::DeadLetters)
    }

    fn letter(&self, id: LetterId) -> oneshot::Receiver<Option<LetterDetail>> {
        self.ask(|reply| Call::Outgoing(Outgoing::Letter(id, reply)))
    }

    fn drop_letter(&self, id: LetterId) -> oneshot::Receiver<bool> {
        self.ask(|reply| Call::Outgoing(Outgoing::Drop(id, reply)))
    }

    fn redeliver(&self, id: LetterId) -> oneshot::Receiver<Option<OutRow>> {
        self.ask(|reply| Call::Outgoing(Outgoing::Redeliver(id, reply)))
    }

    fn outbox_channels(&self) -> oneshot::Receiver<Vec<Arc<str>>> {
        self.ask(|reply| Call::Outgoing(Outgoing::Channels(reply)))
    }

    fn outbox(&self, ask: AskRows) -> oneshot::Receiver<Rows> {
        self.ask(|reply| Call::Outgoing(Outgoing::Rows(ask, reply)))
    }

    fn sending(&self, id: DeliveryId) -> oneshot::Receiver<()> {
        self.ask(|reply| Call::Outgoing(Outgoing::Step(id, Step::Sending, reply)))
    }

    fn sent(&self, id: DeliveryId) -> oneshot::Receiver<()> {
        self.ask(|reply| Call::Outgoing(Outgoing::Step(id, Step::Sent, reply)))
    }

    fn undeliverable(&self, id: DeliveryId, reason: Arc<str>) -> oneshot::Receiver<()> {
        self.ask(|reply| Call::Outgoing(Outgoing::Step(id, Step::Undeliverable(reason), reply)))
    }

    fn drain(&self) {
        self.tell(Call::Drain);
    }

    fn close(&self) -> oneshot::Receiver<()> {
        self.ask(Call::Close)
    }

    fn backup(&self, to: PathBuf) -> oneshot::Receiver<Result<u64, JournalError>> {
        self.ask(|reply| Call::Backup(to, reply))
    }

    fn status(&self) -> JournalStatus {
        *self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for LogJournal {
    fn drop(&mut self) {
        let (reply, _) = oneshot::channel();
        self.tell(Call::Close(reply));
    }
}
