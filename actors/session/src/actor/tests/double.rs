//! A stage to put a session on, among probes and a journal in memory.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{AssistantMessage, Usage};
use domain::ids::*;
use domain::request::ToolSpec;
use protocol::journal::*;
use protocol::memory::{AskDream, Summarise};
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
use super::journal::{FakeJournal, item};
use crate::settings::{Preset, Presets};
use crate::{Deps, Neighbours, Session, SessionConfig, Shared, Transcripts};

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
    pub memory: Probe<Summarise>,
    pub dream: Probe<AskDream>,
    pub moves: Pulse,
    armed: Arc<AtomicBool>,
    events: mpsc::UnboundedReceiver<TurnEvent>,
    kernel: Kernel,
    shared: Arc<Shared>,
    neighbours: Arc<Neighbours>,
    next_seq: u64,
}

fn config() -> SessionConfig {
    SessionConfig {
        policies: Arc::default(),
        reset: Default::default(),
        push_limits: Default::default(),
        workspace: "/w".into(),
        attachments: vec!["/m/websocket".into(), "/m/api".into()],
        prompt: Default::default(),
        provider: "p".into(),
        preset: Preset {
            model: "m".into(),
            max_tokens: 1000,
            context_window_tokens: 65_000,
            temperature: 0.1,
            effort: None,
            elsewhere: None,
        },
        presets: Presets::default(),
        dream_preset: None,
        context_block_limit: None,
        runtime_context: false,
        consolidation_per_mille: 500,
        idle_compact: Some(Duration::from_secs(900)),
        titles: false,
        max_tool_iterations: 3,
        max_tool_result_chars: 1000,
        poison_attempts: 3,
        process_deaths: 20,
        context_idle: Duration::from_secs(30),
        context_cache_bytes: 100_000,
        stall: Duration::from_secs(300),
        running_max: 2,
        queue: Default::default(),
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
    SessionKey::new("websocket:stage").unwrap()
}

pub fn turn(seq: u64) -> TurnId {
    TurnId(Uuid::from_u128(u128::from(seq) + 1000))
}

pub fn answer(text: &str) -> Box<AssistantMessage> {
    Box::new(AssistantMessage {
        usage: Usage { input_tokens: 10, output_tokens: 1, cached_tokens: 0 },
        ..AssistantMessage::new(text, "p", "m")
    })
}

impl Stage {
    pub fn new() -> Self {
        Self::with(|_| ())
    }

    /// With other settings.
    pub fn with(change: impl FnOnce(&mut SessionConfig)) -> Self {
        let mut config = config();
        change(&mut config);
        let disk = PowerCutDisk::new();
        disk.create_dir_all(std::path::Path::new("/w/sessions")).unwrap();
        let ports = memory_ports(Arc::clone(&disk), RuntimeClock::new(), 1);
        let log = MemoryLog::new();
        let metrics = Metrics::default();
        let journal = Arc::new(FakeJournal::default());
        let (tx, events) = mpsc::unbounded_channel();
        let armed = Arc::<AtomicBool>::default();
        let (memory, dream) = (Probe::new(), Probe::new());
        let (permits, model, tools, moves) = (Probe::new(), Probe::new(), Probe::new(), Pulse::default());
        let neighbours = Arc::new(Neighbours {
            permits: permits.recipient(),
            model: model.recipient(),
            moves: moves.clone(),
            tools: tools.recipient(),
            memory: memory.recipient(),
            dream: dream.recipient(),
        });
        let shared = Shared::new(Deps {
            ports: ports.clone(),
            log: log.clone(),
            journal: journal.clone(),
            events: Arc::new(Audience::new(tx, armed.clone())),
            metrics: metrics.clone(),
            tools: specs(),
            transcripts: Arc::new(Transcripts::new(ports.clone(), "/w/sessions".into())),
            triggers: None,
            config,
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
            memory,
            dream,
            moves,
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
        self.say_through("ws", body)
    }

    /// A message is accepted from that source.
    pub fn say_through(&mut self, source: &str, body: &TurnBody) -> u64 {
        let seq = self.next_seq;
        self.next_seq += 1;
        let accepted = Arc::new(Accepted {
            turn: turn(seq),
            seq: Seq(seq),
            source: Source::new(source).unwrap(),
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
        self.permit().await;
        self.model.next().await
    }

    /// Grants the next permit.
    pub async fn permit(&mut self) {
        let ask = self.permits.next().await;
        tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit: Permit::new(()) }).unwrap();
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

    /// What is kept of the conversation in memory.
    pub fn conversation_bytes(&self) -> u64 {
        self.shared.cached_bytes()
    }

    pub fn now(&self) -> Duration {
        self.shared.ports.clock.mono()
    }

    /// One of the two places among the running turns.
    pub fn take_place(&self) -> Option<crate::places::Place> {
        self.take_place_of(&key())
    }

    /// The same for a session of that key.
    pub fn take_place_of(&self, key: &SessionKey) -> Option<crate::places::Place> {
        self.shared.places(key).enter(|| Probe::new().recipient().downgrade())
    }

    /// Somebody waits for the end of that turn.
    pub fn follow(&self, turn: TurnId) {
        let what = TurnProgress::Started;
        self.shared.events.emit(TurnEvent { key: key(), turn, attempt: Attempt::FIRST, seq: 1, what });
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

    /// The lines of the file, once nothing is missing there.
    pub async fn file_when_written(&self) -> Vec<String> {
        let written = async {
            while self.metrics.view_lag_bytes.get() > 0 {
                tokio::time::sleep(std::time::Duration::from_millis(1)).await;
            }
        };
        with_deadline("the file", written).await;
        self.file().lines().map(str::to_owned).collect()
    }

    pub fn file(&self) -> String {
        let path = std::path::Path::new("/w/sessions/websocket.stage.jsonl");
        String::from_utf8(self.disk.read(path).unwrap_or_default()).unwrap()
    }
}
