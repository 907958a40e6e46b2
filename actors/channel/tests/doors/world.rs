//! Doubles for everything behind the doors, and the doors themselves on free ports.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};

use channel::doors::{Doors, DoorsParts, PhaseWord};
use channel::{Hub, Phase};
use domain::body::TurnBody;
use domain::chat::{StopReason, Usage, plain_text};
use domain::ids::{Attempt, DeliveryId, Epoch, LetterId, MessageId, Seq, SessionId, SessionKey, Source, TurnId};
use domain::queue::{QueueAsk, QueueRules, QueueSet};
use protocol::edit::EditError;
use protocol::journal::{
    Accepted, AcceptedState, AskRows, Commit, CommitOutcome, DeadLetter, DuplicateState, Enqueue, Enqueued, Journal,
    JournalError, JournalStatus, LetterDetail, Loaded, LogPosition, Moving, OutRow, Quarantine, Rows, Shelf, Told,
    Unfinished, ViewWritten,
};
use protocol::metrics::Metrics;
use protocol::registry::{Sessions, Unreachable};
use protocol::session::{Mail, NotClosed, NotRestored, QueueState, State, Status, Stopped, TurnRecord};
use protocol::supervision::{ActorPath, Kind, TreeNode};
use protocol::top::{SessionsTop, TopQuery, TopRow};
use protocol::transcripts::{BroughtIn, Check, EndedPage, Page, TranscriptReader, Tree};
use protocol::turn::{Finished, Lane, Standing, TurnEvent, TurnEvents, TurnProgress, TurnResult};
use supervision::memory::{InlineOffload, PowerCutDisk, RuntimeClock, SeededIds};
use supervision::ports::Ports;
use testkit::deadline::with_deadline;
use tokio::net::TcpListener;
use tokio::sync::{mpsc, oneshot, watch};
use tokio_util::sync::CancellationToken;

/// What the doors did, and what they are answered.
pub struct World {
    pub hub: Arc<Hub>,
    pub log: Arc<supervision::log::MemoryLog>,
    pub phase: Arc<Phase>,
    pub doors: Doors,
    pub backend: Arc<Backend>,
    pub shutdown: CancellationToken,
    messages: tokio::sync::Mutex<mpsc::UnboundedReceiver<Enqueue>>,
    cancels: tokio::sync::Mutex<mpsc::UnboundedReceiver<TurnId>>,
}

type Asked = (SessionKey, Source, MessageId);

/// Tells a verdict.
type Tell = Box<dyn FnOnce() + Send>;

/// A turn that waits in `api:asleep`, of which only the journal knows.
pub const WAITING: &str = "01890a5d-ac96-774b-bcce-b302099a8059";

/// Journal and sessions.
pub struct Backend {
    hub: Arc<Hub>,
    known: Mutex<HashMap<Asked, (TurnId, u64)>>,
    refusal: Mutex<Option<Enqueued>>,
    /// What transcripts say.
    pub records: Mutex<HashMap<TurnId, TurnRecord>>,
    messages: mpsc::UnboundedSender<Enqueue>,
    cancels: mpsc::UnboundedSender<TurnId>,
    /// Whether a turn's first event comes before the door hears the verdict.
    pub hasty: std::sync::atomic::AtomicBool,
    pub writable: std::sync::atomic::AtomicBool,
    /// Whether no session can be asked.
    pub held_back: std::sync::atomic::AtomicBool,
    /// While it is there, verdicts wait in it.
    held: Mutex<Option<Vec<Tell>>>,
    /// What the sessions work on.
    pub goal: Mutex<Option<Arc<domain::goal::Goal>>>,
    /// The stops that came, and how many messages the journal had taken then.
    pub stops: Mutex<Vec<usize>>,
}

impl World {
    pub fn new() -> Arc<Self> {
        Self::with_frame_room(64 << 20)
    }

    /// With room for so many bytes of frames.
    pub fn with_frame_room(bytes: usize) -> Arc<Self> {
        let hub = Hub::new();
        let phase = Arc::new(Phase::default());
        phase.set(PhaseWord::Serving);
        let (messages, got) = mpsc::unbounded_channel();
        let (cancels, cancelled) = mpsc::unbounded_channel();
        let backend = Arc::new(Backend {
            hub: Arc::clone(&hub),
            known: Mutex::default(),
            refusal: Mutex::default(),
            records: Mutex::default(),
            messages,
            cancels,
            hasty: false.into(),
            writable: true.into(),
            held: Mutex::default(),
            held_back: false.into(),
            goal: Mutex::default(),
            stops: Mutex::default(),
        });
        let ports = Ports {
            disk: PowerCutDisk::new(),
            clock: RuntimeClock::new(),
            ids: Arc::new(SeededIds::new(1)),
            offload: Arc::new(InlineOffload),
        };
        let (metrics, log) = (Metrics::default(), supervision::log::MemoryLog::new());
        let doors = Doors::new(DoorsParts {
            journal: backend.clone(),
            sessions: backend.clone(),
            transcripts: backend.clone(),
            hub: hub.clone(),
            kernel: supervision::Kernel::new(ports.clone(), log.clone(), metrics.clone()),
            ports,
            metrics,
            log: log.clone(),
            phase: phase.clone(),
            outbox: Arc::default(),
            frame_bytes_in_flight: bytes,
            media: "/media".into(),
            jobs: None,
            memory: Arc::new(crate::memory::Remembered),
            runs: None,
            restart: None,
            show: Arc::new(|| ()),
        });
        Arc::new(Self {
            hub,
            log,
            phase,
            doors,
            backend,
            shutdown: CancellationToken::new(),
            messages: got.into(),
            cancels: cancelled.into(),
        })
    }

    /// The next message that a door handed over.
    pub async fn message(&self) -> Enqueue {
        with_deadline("message for the journal", async { self.messages.lock().await.recv().await.unwrap() }).await
    }

    /// The next turn that a door cancelled.
    pub async fn cancelled(&self) -> TurnId {
        with_deadline("cancel", async { self.cancels.lock().await.recv().await.unwrap() }).await
    }

    /// Answers the next message so.
    pub fn refuse(&self, refusal: Enqueued) {
        *self.backend.refusal.lock().unwrap() = Some(refusal);
    }

    /// From now on no verdict is told.
    pub fn hold_verdicts(&self) {
        *self.backend.held.lock().unwrap() = Some(Vec::new());
    }

    /// Tells them.
    pub fn tell_verdicts(&self) {
        let held = self.backend.held.lock().unwrap().take();
        held.into_iter().flatten().for_each(|tell| tell());
    }

    pub fn play(&self, key: &SessionKey, turn: TurnId) -> Player {
        Player { hub: self.hub.clone(), key: key.clone(), turn, attempt: 1, seq: 0 }
    }

    pub async fn listen(&self) -> (TcpListener, SocketAddr) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        (listener, address)
    }
}

/// Plays the session: emits a turn's events.
pub struct Player {
    hub: Arc<Hub>,
    key: SessionKey,
    turn: TurnId,
    attempt: u32,
    seq: u64,
}

impl Player {
    pub fn emit(&mut self, what: TurnProgress) -> &mut Self {
        self.seq += 1;
        let (key, attempt) = (self.key.clone(), Attempt(self.attempt));
        self.hub.emit(TurnEvent { key, turn: self.turn, attempt, seq: self.seq, what });
        self
    }

    pub fn start(&mut self) -> &mut Self {
        self.emit(TurnProgress::Started)
    }

    pub fn again(&mut self) -> &mut Self {
        self.attempt += 1;
        self.seq = 0;
        self.start()
    }

    pub fn say(&mut self, text: &str) -> &mut Self {
        self.emit(TurnProgress::Delta(text.to_owned()))
    }

    pub fn end(&mut self, text: &str) -> &mut Self {
        self.emit(TurnProgress::StreamEnd { text: text.into(), more: false, merge: false })
    }

    pub fn finish(&mut self, result: TurnResult, text: &str) {
        self.emit(TurnProgress::Finished(Arc::new(finished(result, text))));
    }

    /// The whole of a plain answer.
    pub fn answer(&mut self, text: &str) {
        self.start().say(text).end(text).finish(TurnResult::Done, text);
    }
}

pub fn finished(result: TurnResult, text: &str) -> Finished {
    let usage = Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 0 };
    let stop = match result {
        TurnResult::Done | TurnResult::Joined => StopReason::Stop,
        TurnResult::Failed | TurnResult::DeadLettered => StopReason::Error,
        TurnResult::Cancelled => StopReason::Aborted,
    };
    Finished {
        result,
        into: None,
        text: text.to_owned(),
        stop,
        model: "m".into(),
        usage,
        latency_ms: 5,
        standing: None,
    }
}

/// What the transcript has of a turn that ended so.
pub fn ended(finished: Finished) -> TurnRecord {
    let Finished { result, into, text, stop, usage, .. } = finished;
    TurnRecord::Ended { result, into, text, stop, usage, model: "m".to_owned() }
}

/// What the user said.
pub fn text_of(message: &Enqueue) -> String {
    plain_text(&TurnBody::decode(&message.body).unwrap().content)
}

fn now<T>(value: T) -> oneshot::Receiver<T> {
    let (tx, rx) = oneshot::channel();
    let _ = tx.send(value);
    rx
}

impl Journal for Backend {
    fn admit(&self, message: Enqueue, told: Told) {
        if let Some(refusal) = self.refusal.lock().unwrap().take() {
            return told.tell(refusal);
        }
        let id = (message.key.clone(), message.source.clone(), message.message_id.clone());
        let mut known = self.known.lock().unwrap();
        if let Some((turn, hash)) = known.get(&id).copied() {
            if hash != message.body_hash {
                return told.tell(Enqueued::Conflict { turn });
            }
            let ended = matches!(self.records.lock().unwrap().get(&turn), Some(TurnRecord::Ended { .. }));
            let state = if ended { DuplicateState::Ended } else { DuplicateState::Open };
            return told.tell(Enqueued::Duplicate { turn, state });
        }
        known.insert(id, (message.turn, message.body_hash));
        let (turn, seq) = (message.turn, Seq(known.len() as u64));
        if self.hasty.load(std::sync::atomic::Ordering::Relaxed) {
            let (hub, key) = (self.hub.clone(), message.key.clone());
            Player { hub, key, turn, attempt: 1, seq: 0 }.start();
        }
        self.messages.send(message).unwrap();
        let tell = move || told.tell(Enqueued::Accepted { turn, seq, position: 0, state: AcceptedState::Running });
        match &mut *self.held.lock().unwrap() {
            Some(held) => held.push(Box::new(tell)),
            None => tell(),
        }
    }
    fn load(&self, _: SessionKey) -> oneshot::Receiver<Result<Loaded, JournalError>> {
        unreachable!("doors load nothing")
    }
    fn commit(&self, _: Commit) -> oneshot::Receiver<CommitOutcome> {
        unreachable!("doors commit nothing")
    }
    fn accepted(&self, _: LogPosition) -> oneshot::Receiver<Result<Arc<Accepted>, JournalError>> {
        unreachable!("doors read nothing back")
    }
    fn release(&self, _: SessionKey, _: Epoch) {}
    fn ended(&self, _: SessionKey) -> oneshot::Receiver<Result<Option<Moving>, JournalError>> {
        oneshot::channel().1
    }
    fn moved(&self, _: SessionKey, _: SessionId) {}
    fn view_written(&self, _: ViewWritten) {}
    fn quarantine(&self, _: Quarantine) -> oneshot::Receiver<()> {
        now(())
    }
    fn unquarantine(&self, _: SessionKey) -> oneshot::Receiver<()> {
        now(())
    }
    fn unfinished(&self) -> oneshot::Receiver<Vec<Unfinished>> {
        now(Vec::new())
    }
    fn find_turn(&self, turn: TurnId) -> oneshot::Receiver<Option<SessionKey>> {
        now((turn.to_string() == WAITING).then(|| SessionKey::new("api:asleep").unwrap()))
    }
    fn open_of(&self, _: SessionKey) -> oneshot::Receiver<protocol::journal::OpenWork> {
        now(protocol::journal::OpenWork::default())
    }
    fn dead_letters(&self) -> oneshot::Receiver<Vec<DeadLetter>> {
        now(Vec::new())
    }
    fn letter(&self, _: LetterId) -> oneshot::Receiver<Option<LetterDetail>> {
        unreachable!("doors deliver nothing")
    }
    fn drop_letter(&self, _: LetterId) -> oneshot::Receiver<bool> {
        unreachable!("doors deliver nothing")
    }
    fn redeliver(&self, _: LetterId) -> oneshot::Receiver<Option<OutRow>> {
        unreachable!("doors deliver nothing")
    }
    fn outbox_channels(&self) -> oneshot::Receiver<Vec<Arc<str>>> {
        unreachable!("doors deliver nothing")
    }
    fn outbox(&self, _: AskRows) -> oneshot::Receiver<Rows> {
        unreachable!("doors deliver nothing")
    }
    fn sending(&self, _: DeliveryId) -> oneshot::Receiver<()> {
        unreachable!("doors deliver nothing")
    }
    fn sent(&self, _: DeliveryId) -> oneshot::Receiver<()> {
        unreachable!("doors deliver nothing")
    }
    fn undeliverable(&self, _: DeliveryId, _: Arc<str>) -> oneshot::Receiver<()> {
        unreachable!("doors deliver nothing")
    }
    fn drain(&self) {
        *self.refusal.lock().unwrap() = Some(Enqueued::Draining);
    }
    fn close(&self) -> oneshot::Receiver<()> {
        now(())
    }
    fn backup(&self, _: PathBuf) -> oneshot::Receiver<Result<u64, JournalError>> {
        now(Ok(42))
    }
    fn status(&self) -> JournalStatus {
        let writable = self.writable.load(std::sync::atomic::Ordering::Relaxed);
        JournalStatus { accepted: 7, open: 2, writable, ..JournalStatus::default() }
    }
}

impl TranscriptReader for Backend {
    fn page(&self, _: Option<&SessionKey>, _: usize) -> Page {
        Page::default()
    }
    fn all_known(&self) -> watch::Receiver<bool> {
        watch::channel(true).1
    }
    fn is_there(&self, _: &SessionKey) -> std::io::Result<bool> {
        Ok(false)
    }
    fn read(&self, _: &SessionKey) -> std::io::Result<Option<Vec<String>>> {
        Ok(None)
    }
    fn tree(&self, _: &SessionKey) -> std::io::Result<Option<Tree>> {
        Ok(None)
    }
    fn check(&self, _: &SessionKey) -> std::io::Result<Option<Check>> {
        Ok(None)
    }
    fn ended(&self, _: Shelf, _: Option<&str>, _: usize) -> std::io::Result<EndedPage> {
        Ok(EndedPage::default())
    }
    fn delete_archived(&self, _: &SessionKey, _: u64) -> std::io::Result<Option<String>> {
        Ok(None)
    }
    fn put_away(&self) -> std::io::Result<Vec<domain::retention::PutAway>> {
        Ok(Vec::new())
    }
    fn remove_put_away(&self, _: &str) -> std::io::Result<()> {
        Ok(())
    }
    fn bring_in(
        &self,
        _: &std::path::Path,
        _: Option<&SessionKey>,
        _: &dyn Fn(&SessionKey) -> Result<(), EditError>,
    ) -> Result<BroughtIn, EditError> {
        Err(EditError::NoSession)
    }
    fn read_archived(&self, _: &SessionKey) -> std::io::Result<Option<Vec<String>>> {
        Ok(None)
    }
    fn turn(&self, _: &SessionKey, turn: TurnId) -> std::io::Result<Option<TurnRecord>> {
        Ok(self.records.lock().unwrap().get(&turn).cloned())
    }
}

impl Sessions for Backend {
    fn tell(&self, key: &SessionKey, mail: Mail) -> Result<(), Unreachable> {
        if self.held_back.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(Unreachable::Quarantined);
        }
        match mail {
            Mail::ReadTurn { turn, reply } => {
                let _ = reply.send(self.records.lock().unwrap().get(&turn).cloned());
            }
            Mail::CancelTurn { turn } => self.cancels.send(turn).unwrap(),
            Mail::Stop { all, reply } => {
                self.stops.lock().unwrap().push(self.known.lock().unwrap().len());
                let _ = reply.send(Stopped {
                    cancelled: None,
                    dropped: u32::from(all),
                    waiting: 0,
                    goal_paused: false,
                    later: false,
                });
            }
            Mail::Status { reply } => {
                let _ = reply.send(Status {
                    key: key.clone(),
                    session: None,
                    state: State::Thinking,
                    epoch: Epoch(1),
                    turn: None,
                    attempt: None,
                    running_ms: Some(1200),
                    inbox: 3,
                    why: None,
                    about: None,
                });
            }
            Mail::Queue { ask, reply } => {
                let own = if let QueueAsk::Set(set) = ask { set } else { QueueSet::default() };
                let _ = reply.send(QueueState { rules: own.over(&QueueRules::default()), waiting: 3 });
            }
            Mail::Close { reply, .. } => drop(reply.send(Err(NotClosed::Busy))),
            Mail::Restore { reply } => drop(reply.send(Err(NotRestored::Nothing))),
            Mail::Standing { reply } => {
                let goal = self.goal.lock().unwrap().clone();
                drop(reply.send(Standing { window_tokens: 9000, goal }));
            }
            Mail::Queued(_)
            | Mail::Has { .. }
            | Mail::Run { .. }
            | Mail::Edit { .. }
            | Mail::Condense { .. }
            | Mail::Passivate
            | Mail::Drain
            | Mail::Interrupt => {}
        }
        Ok(())
    }
    fn tell_live(&self, key: &SessionKey, mail: Mail) -> Result<(), Mail> {
        if key.as_str().ends_with("asleep") || self.held_back.load(std::sync::atomic::Ordering::Relaxed) {
            return Err(mail);
        }
        self.tell(key, mail).unwrap();
        Ok(())
    }
    fn state(&self, key: &SessionKey) -> Option<State> {
        (key.as_str() == "api:b").then_some(State::Thinking)
    }
    fn steers(&self, _: &SessionKey) -> Option<Lane> {
        None
    }
    fn live(&self) -> usize {
        5
    }
    fn tree(&self) -> TreeNode {
        TreeNode::new(ActorPath("/".into()), Kind::Registry, "running")
    }
    fn top(&self, query: &TopQuery) -> SessionsTop {
        let key = SessionKey::new("api:busy").unwrap();
        let row = TopRow {
            path: ActorPath::session(0, &key),
            kind: Kind::Session,
            state: "thinking".to_owned(),
            session: Some(key),
            turn: None,
            running_ms: Some(5),
            inbox: 0,
            mailbox: 0,
            restarts: 0,
            since: 0,
        };
        let wanted = query.path.as_ref().is_none_or(|glob| supervision::log_read::glob_matches(glob, &row.path.0));
        let rows = if wanted { vec![row] } else { Vec::new() };
        SessionsTop { states: [("thinking", 1)].into(), rows, ..SessionsTop::default() }
    }
    fn release(&self, key: &SessionKey) -> bool {
        key.as_str() == "api:held"
    }
}
