//! A journal in memory that keeps every promise a session relies on, and a stage to put a session on.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{AssistantMessage, StopReason, Usage};
use domain::ids::*;
use domain::request::ToolSpec;
use protocol::journal::*;
use protocol::metrics::Metrics;
use protocol::provider::{AskPermit, Complete, Delta, Event, Permit};
use protocol::session::{Address, Mail, Status};
use protocol::supervision::{ActorPath, EventName, Kind};
use protocol::tools::RunTool;
use protocol::turn::{Finished, Pulse, Route, Stamp, TurnEvent, TurnProgress};
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::ports::Disk;
use supervision::{Child, CrashCell, Kernel, Lease, LocalPlacement, Slots, tell};
use testkit::deadline::with_deadline;
use testkit::probe::Probe;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::audience::Audience;
use crate::{Deps, Neighbours, Session, SessionConfig, Shared, Transcripts};

type Held = Box<dyn FnOnce(&mut Books) + Send>;

#[derive(Default)]
pub struct Books {
    pub epoch: u64,
    pub commits: Vec<Commit>,
    pub lines: Vec<Line>,
    /// How far the file had what `lines` no longer has.
    pub view: ViewMark,
    pub open: Vec<Arc<Accepted>>,
    pub started: Option<Started>,
    pub tools_started: Vec<ToolCallId>,
    pub left_by: Option<LeftBy>,
    pub released: u32,
    pub views: Vec<ViewWritten>,
    /// Verdicts over the next commits, instead of writing them.
    pub verdicts: Vec<CommitOutcome>,
    /// While set, commits and loads wait.
    pub hold: bool,
    pub read_only: bool,
    /// The next commit is written and not answered.
    pub mute: bool,
    unanswered: Vec<oneshot::Sender<CommitOutcome>>,
    held: Vec<Held>,
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
            tools_started: self.tools_started.clone(),
        });
        let item = |accepted: &Arc<Accepted>| item(accepted);
        Loaded {
            epoch: Epoch(self.epoch),
            session: SessionId(Uuid::from_u128(77)),
            next_commit: self.next_commit + 1,
            view: self.view.clone(),
            lines: self.lines.clone(),
            inbox: self.open.iter().map(item).collect(),
            cut,
        }
    }

    fn commit(&mut self, commit: Commit) -> CommitOutcome {
        if !self.verdicts.is_empty() {
            return self.verdicts.remove(0);
        }
        if commit.epoch.0 != self.epoch {
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
        self.commits.push(commit);
        CommitOutcome::Done
    }
}

pub fn item(accepted: &Arc<Accepted>) -> InboxItem {
    let inline = (accepted.body.len() <= INLINE_BODY_BYTES_MAX).then(|| Arc::clone(accepted));
    InboxItem { turn: accepted.turn, seq: accepted.seq, at: LogPosition(accepted.seq.0), inline, push: None }
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

/// A session among probes.
pub struct Stage {
    pub disk: Arc<PowerCutDisk>,
    pub journal: Arc<FakeJournal>,
    pub log: Arc<MemoryLog>,
    pub slots: Slots,
    pub metrics: Metrics,
    pub permits: Probe<AskPermit>,
    pub model: Probe<Complete>,
    pub tools: Probe<RunTool>,
    pub granted: Pulse,
    armed: Arc<AtomicBool>,
    events: mpsc::UnboundedReceiver<TurnEvent>,
    kernel: Kernel,
    shared: Arc<Shared>,
    neighbours: Arc<Neighbours>,
    next_seq: u64,
}

fn config() -> SessionConfig {
    SessionConfig {
        push_limits: Default::default(),
        workspace: "/w".into(),
        model: "m".into(),
        provider: "p".into(),
        max_tokens: 1000,
        temperature: 0.1,
        context_window_tokens: 65_000,
        max_tool_iterations: 3,
        max_tool_result_chars: 1000,
        poison_attempts: 3,
        process_deaths: 20,
        context_idle: Duration::from_secs(30),
        context_cache_bytes: 1 << 20,
        stall: Duration::from_secs(300),
        running_max: 2,
    }
}

fn specs() -> Arc<[ToolSpec]> {
    let spec = |name: &str, parallel| ToolSpec {
        name: name.to_owned(),
        description: "d".to_owned(),
        parameters: serde_json::json!({"type": "object"}),
        parallel,
        idempotent: parallel,
    };
    [spec("read", true), spec("exec", false)].into()
}

pub fn key() -> SessionKey {
    SessionKey::new("api:stage").unwrap()
}

pub fn turn(seq: u64) -> TurnId {
    TurnId(Uuid::from_u128(u128::from(seq) + 1000))
}

pub fn answer(text: &str) -> Box<AssistantMessage> {
    Box::new(AssistantMessage {
        text: text.to_owned(),
        reasoning: None,
        calls: Vec::new(),
        stop: StopReason::Stop,
        usage: Usage { input_tokens: 10, output_tokens: 1, cached_tokens: 0 },
        provider: "p".into(),
        model: "m".into(),
        error: None,
    })
}

impl Stage {
    pub fn new() -> Self {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(std::path::Path::new("/w/sessions")).unwrap();
        let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 1);
        let log = MemoryLog::new();
        let metrics = Metrics::default();
        let journal = Arc::new(FakeJournal::default());
        let (tx, events) = mpsc::unbounded_channel();
        let armed = Arc::<AtomicBool>::default();
        let (permits, model, tools, granted) = (Probe::new(), Probe::new(), Probe::new(), Pulse::default());
        let neighbours = Arc::new(Neighbours {
            permits: permits.recipient(),
            model: model.recipient(),
            granted: granted.clone(),
            tools: tools.recipient(),
        });
        let shared = Shared::new(Deps {
            ports: ports.clone(),
            log: log.clone(),
            journal: journal.clone(),
            events: Arc::new(Audience(tx, armed.clone())),
            metrics: metrics.clone(),
            tools: specs(),
            transcripts: Arc::new(Transcripts::new(ports.clone(), "/w/sessions".into())),
            config: config(),
        });
        let kernel = Kernel::new(ports.clone(), log.clone(), metrics.clone());
        Self {
            disk,
            journal,
            log,
            slots: Slots::new(ports.clock.clone()),
            metrics,
            permits,
            model,
            tools,
            granted,
            armed,
            events,
            kernel,
            shared,
            neighbours,
            next_seq: 1,
        }
    }

    /// Sends mail, which starts the session if it sleeps.
    pub fn mail(&self, mail: Mail) {
        self.slots.tell(&key(), mail, |lease| Some(self.activate(lease))).expect("the stage always activates");
    }

    fn activate(&self, lease: Lease) -> Address {
        let path = ActorPath::session(0, &key());
        let mut child = Child::new(Arc::clone(&path.0), Kind::Session);
        let (slots, incarnation) = (self.slots.clone(), lease.incarnation());
        child.session = Some(key());
        child.lease = Some(lease.clone());
        child.on_down = Some(Box::new(move |down| {
            if !down.restarts {
                slots.remove(&key(), incarnation);
            }
        }));
        let crash: CrashCell = child.crash.clone();
        let (shared, neighbours) = (Arc::clone(&self.shared), self.neighbours.clone());
        let make = move |_: &mut actix::Context<Session>| Session::new(shared, neighbours, path, lease, crash);
        self.kernel.spawn(child, &LocalPlacement::new(), 0, make).recipient()
    }

    /// A message is accepted.
    pub fn say(&mut self, text: &str) -> u64 {
        self.say_body(&TurnBody::text(text))
    }

    pub fn say_body(&mut self, body: &TurnBody) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        let accepted = Arc::new(Accepted {
            turn: turn(seq),
            seq: Seq(seq),
            source: Source::new("ws").unwrap(),
            message_id: MessageId::new(&seq.to_string()).unwrap(),
            body_hash: seq,
            route: Route::Live,
            body: body.encode().into(),
            accepted_ms: 0,
            retry_of: None,
        });
        self.journal.books().open.push(Arc::clone(&accepted));
        self.mail(Mail::Queued(item(&accepted)));
        seq
    }

    /// Grants the next permit and takes the model call.
    pub async fn called(&mut self) -> Complete {
        let ask = self.permits.next().await;
        tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
        self.model.next().await
    }

    pub fn complete(&self, call: &Complete, message: Box<AssistantMessage>) {
        tell(&call.reply_to, Event::Completed { stamp: call.stamp, message }).unwrap();
    }

    pub fn delta(&self, call: &Complete, text: &str) {
        self.delta_as(call, call.stamp, text);
    }

    pub fn delta_as(&self, call: &Complete, stamp: Stamp, text: &str) {
        tell(&call.reply_to, Event::Delta { stamp, delta: Delta::Text(text.to_owned()) }).unwrap();
    }

    pub async fn event(&mut self) -> TurnEvent {
        with_deadline("a turn event", self.events.recv()).await.unwrap()
    }

    /// The end of the turn that ends next.
    pub async fn finished(&mut self) -> (TurnId, Arc<Finished>) {
        loop {
            let event = self.event().await;
            if let TurnProgress::Finished(finished) = event.what {
                return (event.turn, finished);
            }
        }
    }

    /// One whole plain turn.
    pub async fn turn(&mut self, text: &str, reply: &str) {
        let seq = self.say(text);
        let call = self.called().await;
        self.complete(&call, answer(reply));
        assert_eq!(self.finished().await.0, turn(seq));
    }

    pub async fn status(&self) -> Status {
        let (reply, status) = oneshot::channel();
        self.mail(Mail::Status { reply });
        with_deadline("a status", status).await.unwrap()
    }

    pub fn transcripts(&self) -> &Transcripts {
        &self.shared.transcripts
    }

    pub fn now(&self) -> Duration {
        self.shared.ports.clock.mono()
    }

    /// One of the two places among the running turns.
    pub fn take_place(&self) -> Option<crate::places::Place> {
        self.shared.places.enter(|| Probe::new().recipient().downgrade())
    }

    /// Lets the next turn event of a tool's end crash the session.
    pub fn arm(&self) {
        self.armed.store(true, Ordering::SeqCst);
    }

    /// Waits until the session has left memory.
    pub async fn asleep(&self) {
        let gone = async {
            while !self.slots.is_empty() {
                tokio::task::yield_now().await;
            }
        };
        with_deadline("the session to leave", gone).await;
    }

    /// Waits until the log has an event of that name.
    pub async fn logged(&self, name: EventName) -> protocol::supervision::Event {
        let found = async {
            loop {
                if let Some(event) = self.log.named(name).pop() {
                    return event;
                }
                tokio::task::yield_now().await;
            }
        };
        with_deadline("an event in the log", found).await
    }

    /// Waits until the file has that many lines.
    pub async fn filed(&self, lines: usize) {
        let written = async {
            while self.file().lines().count() != lines {
                // On the paused clock: it lets writes gather and go over.
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        with_deadline("the file", written).await;
    }

    pub fn file(&self) -> String {
        let path = std::path::Path::new("/w/sessions/api.stage.jsonl");
        String::from_utf8(self.disk.read(path).unwrap_or_default()).unwrap()
    }
}
