//! A journal in memory that keeps every promise a session relies on.

use std::sync::{Arc, Mutex, MutexGuard};

use domain::ids::*;
use protocol::journal::*;
use tokio::sync::oneshot;
use uuid::Uuid;

type Held = Box<dyn FnOnce(&mut Books) + Send>;

#[derive(Default)]
pub struct Books {
    pub epoch: u64,
    pub commits: Vec<Commit>,
    pub lines: Vec<Line>,
    /// How far the file had what `lines` no longer has.
    pub view: ViewMark,
    pub open: Vec<Arc<Accepted>>,
    through: Seq,
    pub started: Option<Started>,
    pub tools_started: Vec<ToolCallId>,
    pub left_by: Option<LeftBy>,
    pub released: u32,
    pub views: Vec<ViewWritten>,
    /// Transcripts that were closed.
    pub closed: u32,
    pub moving: Option<Moving>,
    /// Verdicts over the next commits, instead of writing them.
    pub verdicts: Vec<CommitOutcome>,
    /// While set, commits and loads wait.
    pub hold: bool,
    pub read_only: bool,
    /// The next commit is written and not answered.
    pub mute: bool,
    unanswered: Vec<oneshot::Sender<CommitOutcome>>,
    pub held: Vec<Held>,
    next_commit: u64,
}

#[derive(Default)]
pub struct FakeJournal(Mutex<Books>);

impl FakeJournal {
    pub fn books(&self) -> MutexGuard<'_, Books> {
        self.0.lock().unwrap()
    }

    /// Answers what was held.
    pub fn let_go(&self) {
        let mut books = self.books();
        books.hold = false;
        for held in std::mem::take(&mut books.held) {
            held(&mut books);
        }
    }

    fn soon<T: Send + 'static>(
        &self,
        work: impl FnOnce(&mut Books) -> Option<T> + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (tx, rx) = oneshot::channel();
        let job = move |books: &mut Books| {
            if let Some(answer) = work(books) {
                let _ = tx.send(answer);
            }
        };
        let mut books = self.books();
        if books.hold {
            books.held.push(Box::new(job));
        } else {
            job(&mut books);
        }
        rx
    }
}

impl Books {
    fn load(&mut self) -> Loaded {
        self.epoch += 1;
        self.through = self.open.last().map_or(self.through, |last| last.seq.max(self.through));
        let left_by = self.left_by.replace(LeftBy::Crash);
        let cut = left_by.zip(self.open.first()).map(|(left_by, first)| CutTurn {
            started: self.started.unwrap_or(Started {
                turn: first.turn,
                attempt: Attempt::FIRST,
                crashes: 0,
                deaths: 0,
                alone: false,
            }),
            left_by,
            blamed: false,
            tools_started: self.tools_started.clone(),
        });
        let item = |accepted: &Arc<Accepted>| item(accepted);
        Loaded {
            epoch: Epoch(self.epoch),
            session: self.session(),
            next_commit: self.next_commit + 1,
            view: self.view.clone(),
            lines: self.lines.clone(),
            inbox: self.open.iter().map(item).collect(),
            through: self.through,
            cut,
            moving: self.moving.clone(),
        }
    }

    pub fn session(&self) -> SessionId {
        SessionId(Uuid::from_u128(77 + u128::from(self.closed)))
    }

    fn commit(&mut self, commit: Commit) -> CommitOutcome {
        if !self.verdicts.is_empty() {
            return self.verdicts.remove(0);
        }
        if commit.epoch.0 != self.epoch || commit.session != self.session() {
            return CommitOutcome::Fenced;
        }
        assert_eq!(commit.number, self.next_commit + 1, "commits are numbered without gaps");
        self.next_commit = commit.number;
        self.lines.extend(commit.lines.iter().cloned());
        self.tools_started.extend(commit.tools_started.iter().cloned());
        if let Some(started) = commit.started {
            self.started = Some(started);
        }
        if commit.interrupted {
            self.left_by = Some(LeftBy::Interrupted);
        }
        for (turn, _) in &commit.ended {
            self.open.retain(|open| open.turn != *turn);
            self.started = None;
            self.tools_started.clear();
        }
        if let Some(closes) = commit.closes {
            self.closed += 1;
            self.left_by = None;
            let (lines, view) = (std::mem::take(&mut self.lines), std::mem::take(&mut self.view));
            if let Closes::Moves(place) = closes {
                let (key, session) = (commit.key.clone(), commit.session);
                self.moving = Some(Moving { key, session, place, view, lines });
            }
        }
        self.commits.push(commit);
        CommitOutcome::Done
    }
}

pub fn item(accepted: &Arc<Accepted>) -> InboxItem {
    let inline = (accepted.body.len() <= INLINE_BODY_BYTES_MAX).then(|| Arc::clone(accepted));
    InboxItem {
        turn: accepted.turn,
        seq: accepted.seq,
        at: LogPosition(accepted.seq.0),
        inline,
        push: None,
        event: false,
    }
}

impl Journal for FakeJournal {
    fn load(&self, _: SessionKey) -> oneshot::Receiver<Result<Loaded, JournalError>> {
        self.soon(|books| Some(Ok(books.load())))
    }
    fn commit(&self, commit: Commit) -> oneshot::Receiver<CommitOutcome> {
        let mut books = self.books();
        if std::mem::take(&mut books.mute) {
            let (tx, rx) = oneshot::channel();
            books.commit(commit);
            books.unanswered.push(tx);
            return rx;
        }
        drop(books);
        self.soon(|books| Some(books.commit(commit)))
    }
    fn accepted(&self, at: LogPosition) -> oneshot::Receiver<Result<Arc<Accepted>, JournalError>> {
        self.soon(move |books| {
            let found = books.open.iter().find(|open| open.seq.0 == at.0).cloned();
            Some(found.ok_or_else(|| JournalError::Unreadable("gone".to_owned())))
        })
    }
    fn release(&self, _: SessionKey, _: Epoch) {
        let mut books = self.books();
        books.released += 1;
        books.left_by = None;
    }
    fn ended(&self, _: SessionKey) -> oneshot::Receiver<Result<Option<Moving>, JournalError>> {
        self.soon(|books| Some(Ok(books.moving.clone())))
    }
    fn moved(&self, _: SessionKey, session: SessionId) {
        self.books().moving.take_if(|moving| moving.session == session);
    }
    fn view_written(&self, written: ViewWritten) {
        self.books().views.push(written);
    }
    fn admit(&self, _: Enqueue, _: Told) {
        unreachable!("sessions do not enqueue")
    }
    fn quarantine(&self, _: Quarantine) -> oneshot::Receiver<()> {
        unreachable!("sessions do not quarantine")
    }
    fn unquarantine(&self, _: SessionKey) -> oneshot::Receiver<()> {
        unreachable!("sessions do not quarantine")
    }
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>> {
        unreachable!("sessions do not ask for others")
    }
    fn find_turn(&self, turn: TurnId) -> oneshot::Receiver<Option<SessionKey>> {
        self.soon(move |books| Some(books.open.iter().any(|open| open.turn == turn).then(super::key)))
    }
    fn open_of(&self, _: SessionKey) -> oneshot::Receiver<protocol::journal::OpenWork> {
        unreachable!("sessions do not ask for others")
    }
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>> {
        unreachable!("sessions do not ask for them")
    }
    fn letter(&self, _: LetterId) -> oneshot::Receiver<Option<LetterDetail>> {
        unreachable!("sessions deliver nothing")
    }
    fn drop_letter(&self, _: LetterId) -> oneshot::Receiver<bool> {
        unreachable!("sessions deliver nothing")
    }
    fn redeliver(&self, _: LetterId) -> oneshot::Receiver<Option<OutRow>> {
        unreachable!("sessions deliver nothing")
    }
    fn outbox_channels(&self) -> oneshot::Receiver<Vec<Arc<str>>> {
        unreachable!("sessions deliver nothing")
    }
    fn outbox(&self, _: AskRows) -> oneshot::Receiver<Rows> {
        unreachable!("sessions deliver nothing")
    }
    fn sending(&self, _: DeliveryId) -> oneshot::Receiver<()> {
        unreachable!("sessions deliver nothing")
    }
    fn sent(&self, _: DeliveryId) -> oneshot::Receiver<()> {
        unreachable!("sessions deliver nothing")
    }
    fn undeliverable(&self, _: DeliveryId, _: Arc<str>) -> oneshot::Receiver<()> {
        unreachable!("sessions deliver nothing")
    }
    fn drain(&self) {}
    fn close(&self) -> oneshot::Receiver<()> {
        unreachable!("sessions do not close it")
    }
    fn backup(&self, _: std::path::PathBuf) -> oneshot::Receiver<Result<u64, JournalError>> {
        unreachable!("sessions make no backup")
    }
    fn status(&self) -> JournalStatus {
        JournalStatus { writable: !self.books().read_only, ..JournalStatus::default() }
    }
}
