//! What all doors share.

use std::ops::Deref;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::Duration;

use actix::Recipient;
use domain::body::{TurnBody, body_hash};
use domain::ids::{MessageId, SessionKey, Source, TurnId};
use prometheus_client::metrics::gauge::Gauge;
use protocol::cron::Jobs;
use protocol::journal::{AcceptedState, Enqueue, Enqueued, Journal, Told};
use protocol::memory::Recall;
use protocol::metrics::{ByBound, ByCache, ByDoor, ByDoorReason, Metrics, gauge};
use protocol::registry::Sessions;
use protocol::session::State;
use protocol::subagent::RunMail;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use protocol::trace::{Span, Step, Value, born_us};
use protocol::transcripts::TranscriptReader;
use protocol::turn::{Lane, Route};
use sha2::{Digest, Sha256};
use supervision::Kernel;
use supervision::ports::Ports;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, oneshot};

use crate::hub::Hub;
use crate::hub::outlet::Outflow;
use crate::media::Attached;
use crate::open::OpenDoors;
use crate::outbox::Board;
use crate::outcome::{Refusal, Verdict};
use crate::restart::Restart;

/// Bytes of a body above which the journal could not hold its record.
pub(crate) const BODY_BYTES_MAX: usize = 16 * 1024 * 1024 - 64 * 1024;

/// Bytes of a chat's hash that tell it from others.
const SOURCE_BYTES: usize = 16;

/// At most one refusal in this time goes to the supervision log for each door; the next says how many were left out.
const REFUSAL_EVENT_EVERY_MS: u64 = 1000;

/// Where the process stands; the composition root sets it, `/ready` shows it.
#[derive(Debug, Default)]
pub struct Phase(AtomicU8);

/// A word for where the process stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PhaseWord {
    /// Work of the last run is being recovered.
    Recovering,
    /// Serving.
    Serving,
    /// New work is refused; running turns end.
    Draining,
}

impl PhaseWord {
    /// The word of `status`.
    pub fn word(self) -> &'static str {
        match self {
            Self::Recovering => "recovering",
            Self::Serving => "serving",
            Self::Draining => "draining",
        }
    }
}

impl Phase {
    /// Moves on.
    pub fn set(&self, word: PhaseWord) {
        let value = match word {
            PhaseWord::Recovering => 0,
            PhaseWord::Serving => 1,
            PhaseWord::Draining => 2,
        };
        self.0.store(value, Ordering::Release);
    }

    /// Where it stands; `Recovering` at first.
    pub fn get(&self) -> PhaseWord {
        match self.0.load(Ordering::Acquire) {
            0 => PhaseWord::Recovering,
            1 => PhaseWord::Serving,
            _ => PhaseWord::Draining,
        }
    }
}

/// Everything a door needs. Cheap to clone.
#[derive(Clone)]
pub struct Doors(Arc<Shared>);

impl Deref for Doors {
    type Target = DoorsParts;

    fn deref(&self) -> &DoorsParts {
        &self.0.parts
    }
}

struct Shared {
    parts: DoorsParts,
    /// Bytes of requests and frames that may be under way in the whole process.
    frame_bytes: Arc<Semaphore>,
    refusals: [Refusals; 5],
    open: OpenDoors,
    attached: Attached,
    rejections: AtomicU64,
    /// When they were put together.
    begun: Duration,
}

/// What [`Doors::new`] is made of.
pub struct DoorsParts {
    /// Takes messages.
    pub journal: Arc<dyn Journal>,
    /// Reaches sessions.
    pub sessions: Arc<dyn Sessions>,
    /// Transcripts of sessions that cannot be asked.
    pub transcripts: Arc<dyn TranscriptReader>,
    /// Shows events.
    pub hub: Arc<Hub>,
    /// Time, ids, blocking pool.
    pub ports: Ports,
    /// Counters.
    pub metrics: Metrics,
    /// The supervision log.
    pub log: Arc<dyn SupervisionLog>,
    /// Keeps the texts of crashes.
    pub kernel: Kernel,
    /// Where the process stands.
    pub phase: Arc<Phase>,
    /// What waits to be delivered.
    pub outbox: Arc<Board>,
    /// `runtime.frameBytesInFlight`.
    pub frame_bytes_in_flight: usize,
    /// Where attachments are kept.
    pub media: PathBuf,
    /// Jobs that are due at times, where they are followed.
    pub jobs: Option<Arc<dyn Jobs>>,
    /// What is remembered.
    pub memory: Arc<dyn Recall>,
    /// Keeps the runs of sub-agents, where there are any.
    pub runs: Option<Recipient<RunMail>>,
    /// Takes the order to restart, where that can be followed.
    pub restart: Option<Arc<Restart>>,
    /// Brings the gauges of the other parts up to date, before they are printed.
    pub show: Arc<dyn Fn() + Send + Sync>,
}

/// Refusals of one door that the supervision log was not told yet.
#[derive(Debug, Default)]
struct Refusals {
    last_ms: AtomicU64,
    untold: AtomicU64,
}

/// Which door.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Door {
    WebSocket,
    Api,
    Admin,
    Webhook,
    /// Hooks, on the port of the administration.
    Hook,
}

impl Door {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::WebSocket => "ws",
            Self::Api => "api",
            Self::Admin => "admin",
            Self::Webhook => "webhook",
            Self::Hook => "hook",
        }
    }

    pub(crate) const fn path(self) -> &'static str {
        match self {
            Self::WebSocket => "/channels/websocket",
            Self::Api => "/channels/api",
            Self::Admin | Self::Hook => "/channels/gateway",
            Self::Webhook => "/channels/webhook",
        }
    }

    /// The source of messages, if those who write at the door need not be the owner.
    pub(crate) fn strangers(self, source: &Source) -> Option<&Source> {
        match self {
            Self::Webhook | Self::Hook => Some(source),
            Self::WebSocket | Self::Api | Self::Admin => None,
        }
    }
}

/// One message, ready for the journal.
pub(crate) struct Submission {
    pub(crate) key: SessionKey,
    pub(crate) turn: TurnId,
    pub(crate) source: Source,
    pub(crate) message_id: MessageId,
    pub(crate) route: Route,
    pub(crate) body: Vec<u8>,
}

impl Doors {
    /// Puts the parts together.
    pub fn new(parts: DoorsParts) -> Self {
        let frame_bytes = Arc::new(Semaphore::new(parts.frame_bytes_in_flight.min(Semaphore::MAX_PERMITS)));
        let begun = parts.ports.clock.mono();
        Self(Arc::new(Shared {
            parts,
            frame_bytes,
            refusals: Default::default(),
            open: OpenDoors::default(),
            attached: Attached::default(),
            rejections: AtomicU64::new(0),
            begun,
        }))
    }

    /// For how long the process has been there.
    pub(crate) fn uptime(&self) -> Duration {
        self.ports.clock.mono().saturating_sub(self.0.begun)
    }

    /// Requests refused so far, at all doors.
    pub(crate) fn rejections(&self) -> u64 {
        self.0.rejections.load(Ordering::Relaxed)
    }

    /// The doors that are open.
    pub(crate) fn opened(&self) -> &OpenDoors {
        &self.0.open
    }

    /// What was attached lately.
    pub(crate) fn attached(&self) -> &Attached {
        &self.0.attached
    }

    /// Room for `bytes` of a request or frame, until dropped; `None` when the process has no more.
    pub(crate) fn reserve(&self, bytes: u32) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.0.frame_bytes).try_acquire_many_owned(bytes).ok()
    }

    /// Where such room comes from.
    pub(crate) fn frame_room(&self) -> &Arc<Semaphore> {
        &self.0.frame_bytes
    }

    /// Where the open connections of a door are counted.
    pub(crate) fn connections(&self, door: Door, max: usize) -> Gauge {
        let work = &self.metrics.work;
        let bound = match door {
            Door::WebSocket => "connections_ws",
            Door::Api => "connections_api",
            Door::Admin | Door::Hook => "connections_admin",
            Door::Webhook => "connections_webhook",
        };
        work.limit.get_or_create(&ByBound { bound }).set(gauge(max));
        work.connections.get_or_create_owned(&ByDoor { door: door.word() })
    }

    /// Where what waits for the clients of a door is counted.
    pub(crate) fn outflow(&self, door: Door) -> Outflow {
        let (work, labels) = (&self.metrics.work, ByDoor { door: door.word() });
        Outflow {
            bytes: work.send_buffer_bytes.get_or_create_owned(&labels),
            slow: work.slow_clients.get_or_create_owned(&labels),
        }
    }

    /// Brings the gauges that are not kept all the time up to date.
    pub(crate) fn show(&self) {
        let work = &self.metrics.work;
        let limit = |bound, value| {
            work.limit.get_or_create(&ByBound { bound }).set(gauge(value));
        };
        let frame_bytes_max = self.frame_bytes_in_flight.min(Semaphore::MAX_PERMITS);
        work.frame_bytes.set(gauge(frame_bytes_max - self.0.frame_bytes.available_permits()));
        limit("frame_bytes", frame_bytes_max);
        work.hub_sessions.set(gauge(self.hub.sessions()));
        let (hub_bytes, hub_bytes_max) = self.hub.bytes();
        work.cache_bytes.get_or_create(&ByCache { cache: "hub" }).set(gauge(hub_bytes));
        limit("hub_bytes", hub_bytes_max);
        (self.0.parts.show)();
    }

    /// A fresh turn id.
    pub(crate) fn turn_id(&self) -> TurnId {
        TurnId(self.ports.ids.uuid_v7())
    }

    /// Hands a message to the journal.
    pub(crate) fn submit(&self, submission: Submission) -> oneshot::Receiver<Enqueued> {
        let (told, verdict) = oneshot::channel();
        self.submit_and_tell(submission, told.into());
        verdict
    }

    /// Hands a message to the journal, which tells how it went in place.
    pub(crate) fn submit_and_tell(&self, submission: Submission, told: Told) {
        let Submission { key, turn, source, message_id, route, body } = submission;
        let body_hash = body_hash(&body);
        let (body, retry_of) = (body.into(), None);
        self.journal.admit(Enqueue { key, turn, source, message_id, route, body, body_hash, retry_of }, told);
    }

    /// Counts an accepted message.
    pub(crate) fn accepted(&self, door: Door, turn: TurnId) {
        self.span(door, turn);
        self.metrics.accepted.get_or_create(&ByDoor { door: door.word() }).inc();
    }

    /// The journal's verdict, as clients are told it. `None` stands for a journal that is gone.
    pub(crate) fn judged(&self, enqueued: Option<Enqueued>) -> Verdict {
        Verdict::from_journal(enqueued, self.ports.clock.wall_ms(), || self.journal.status().space)
    }

    /// Why a message that was taken does not run for now, as `/ready` names it.
    pub(crate) fn held(&self, key: &SessionKey) -> Option<&'static str> {
        (self.sessions.state(key) == Some(State::Held)).then_some("sessions_held")
    }

    /// What becomes of an accepted message, in a word. `lane`: to be taken up by the turn that runs it must be of its lane;
    /// that it is offered to it does not mean that it will be in time.
    pub(crate) fn state_word(&self, key: &SessionKey, state: AcceptedState, lane: Option<Lane>) -> &'static str {
        match state {
            AcceptedState::Running => "running",
            AcceptedState::Queued if lane.is_some() && lane == self.sessions.steers(key) => "steered",
            AcceptedState::Queued => "queued",
            AcceptedState::Quarantined => "quarantined",
        }
    }

    /// Waits for the journal's verdict, and counts it. `None` stands for a journal that is gone.
    pub(crate) fn verdict(&self, door: Door, key: &SessionKey, enqueued: Option<Enqueued>) -> Verdict {
        let verdict = self.judged(enqueued);
        match &verdict {
            Verdict::Accepted { turn, .. } => self.accepted(door, *turn),
            Verdict::Duplicate { .. } => {}
            Verdict::Refused(refusal) => self.refused(door, key, *refusal),
        }
        verdict
    }

    /// A message was taken. A door makes the turn's id when the message comes, so the id tells since when.
    fn span(&self, door: Door, turn: TurnId) {
        self.metrics.traces.end(|| Span {
            turn,
            step: Step::Accept,
            begun_us: born_us(turn),
            ended_us: self.ports.clock.wall_us(),
            error: None,
            fields: vec![("greenroom.door", Value::Word(door.word()))],
        });
    }

    /// Counts a refusal for a bound, and tells the supervision log.
    pub(crate) fn refused(&self, door: Door, key: &SessionKey, refusal: Refusal) {
        self.rejected(door, refusal.metric());
        let now_ms = self.ports.clock.wall_ms();
        let index = match door {
            Door::WebSocket => 0,
            Door::Api => 1,
            Door::Admin => 2,
            Door::Webhook => 3,
            Door::Hook => 4,
        };
        let Some(refusals) = self.0.refusals.get(index) else { return };
        let last = refusals.last_ms.load(Ordering::Relaxed);
        let due = now_ms.saturating_sub(last) >= REFUSAL_EVENT_EVERY_MS;
        if !due || refusals.last_ms.compare_exchange(last, now_ms, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            refusals.untold.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let untold = refusals.untold.swap(0, Ordering::Relaxed);
        let mut event = Event::new(EventName::Refused, ActorPath(door.path().into()), Kind::Channel);
        event.session = Some(key.clone());
        event.reason = Some(match untold {
            0 => refusal.metric().to_owned(),
            more => format!("{} ({more} more refusals since the last line)", refusal.metric()),
        });
        event.cause = match refusal {
            Refusal::Disk { .. } => self.log.latest(EventName::JournalReadOnly),
            Refusal::MemoryFull { .. } => self.log.latest(EventName::MemoryHigh),
            Refusal::Draining => self.log.latest(EventName::GatewayStopping),
            Refusal::Conflict
            | Refusal::SessionFull { .. }
            | Refusal::ProcessFull { .. }
            | Refusal::Transcript { .. }
            | Refusal::Quarantined { .. } => None,
        };
        self.log.record(event);
    }

    /// Counts what a client got wrong.
    pub(crate) fn rejected(&self, door: Door, reason: &'static str) {
        tracing::info!(door = door.word(), reason, "request refused");
        self.0.rejections.fetch_add(1, Ordering::Relaxed);
        self.metrics.refused.get_or_create(&ByDoorReason { door: door.word(), reason }).inc();
    }
}

/// A source that is a literal of ours.
pub(crate) fn source(text: &'static str) -> Source {
    Source::new(text).expect("a literal of letters")
}

/// A source of its own for each chat of a door whose chats share sessions: message ids are the chat's own.
pub(crate) fn source_of(door: &'static str, chat: &str) -> Source {
    let hash = Sha256::digest(chat).iter().take(SOURCE_BYTES).map(|byte| format!("{byte:02x}")).collect::<String>();
    Source::new(&format!("{door}:{hash}")).expect("letters, digits and a colon")
}

/// The bytes of a text message.
pub(crate) fn text_body(text: &str) -> Vec<u8> {
    TurnBody::text(text).encode()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_phase_begins_with_recovery() {
        let phase = Phase::default();
        assert_eq!(phase.get(), PhaseWord::Recovering);
        for word in [PhaseWord::Serving, PhaseWord::Draining, PhaseWord::Recovering] {
            phase.set(word);
            assert_eq!(phase.get(), word);
        }
    }
}
