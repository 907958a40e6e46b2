//! Supervision as data: why actors end, what the supervisor decided, and the events that the on-call person reads.
//!
//! Events go to [`SupervisionLog`], which writes one JSON line each (`logs/supervision.jsonl`) and mirrors them to
//! `tracing`. Absent fields are omitted. One literal line:
//!
//! ```json
//! {"ts":"2026-11-29T20:53:29.000001Z","id":"5f2c-17","event":"restarted","path":"/registry/0/session/api:7","kind":"session","epoch":4,"session":"api:7","turn":"0193…","attempt":2,"reason":"panicked","panic":{"text":"index out of bounds","at":"actors/x.rs:10:5"},"backtrace":"9f3a","restarts_in_window":1,"backoff_ms":100,"verdict":"restart","inbox":3,"cause":"5f2c-12","lost":"nothing"}
//! ```

use std::fmt::{self, Write as _};
use std::sync::Arc;

use domain::ids::{Attempt, DeliveryId, Epoch, MessageId, SessionKey, TurnId};
use prometheus_client::encoding::{EncodeLabelValue, LabelValueEncoder};
use serde::{Deserialize, Serialize};

/// Where an actor stands in the tree: `/registry/0/session/<key>`, with `/` and `%` inside a key percent-encoded.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct ActorPath(pub Arc<str>);

impl ActorPath {
    /// The path of a session below its shard.
    pub fn session(shard: usize, key: &SessionKey) -> Self {
        let key = key.as_str().replace('%', "%25").replace('/', "%2F");
        Self(format!("/registry/{shard}/session/{key}").into())
    }
}

impl fmt::Display for ActorPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What sort of actor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// The process itself.
    Process,
    /// The supervision log.
    Log,
    /// The durable log.
    Journal,
    /// The registry and its shards.
    Registry,
    /// A conversation.
    Session,
    /// A provider front end.
    Provider,
    /// A tool front end.
    Tools,
    /// A single tool call's task.
    ToolCall,
    /// A door.
    Channel,
    /// The deliverer of replies.
    Outbox,
    /// The keeper of what conversations said.
    Memory,
    /// Who follows the jobs.
    Cron,
    /// The keeper of the runs of sub-agents.
    Subagent,
}

impl Kind {
    /// The word that logs and metric labels use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Process => "process",
            Self::Log => "log",
            Self::Journal => "journal",
            Self::Registry => "registry",
            Self::Session => "session",
            Self::Provider => "provider",
            Self::Tools => "tools",
            Self::ToolCall => "tool_call",
            Self::Channel => "channel",
            Self::Outbox => "outbox",
            Self::Memory => "memory",
            Self::Cron => "cron",
            Self::Subagent => "subagent",
        }
    }
}

/// Why an incarnation ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExitReason {
    /// It stopped by itself.
    Normal,
    /// It left memory for being idle.
    Passivated,
    /// The process is stopping.
    Shutdown,
    /// It panicked and was restarted or given up.
    Panicked,
    /// It panicked too often within the window.
    IntensityExceeded,
    /// Its runtime was dropped under it.
    Killed,
    /// There was no such actor.
    Noproc,
}

impl ExitReason {
    /// The word that logs and metric labels use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Normal => "normal",
            Self::Passivated => "passivated",
            Self::Shutdown => "shutdown",
            Self::Panicked => "panicked",
            Self::IntensityExceeded => "intensity_exceeded",
            Self::Killed => "killed",
            Self::Noproc => "noproc",
        }
    }
}

/// A panic, as caught.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Panic {
    /// First line of the text, shortened; quoted parts longer than 16 characters become `…`.
    pub text: String,
    /// `file:line:column`.
    pub at: String,
}

/// What is known of a crash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Crash {
    /// Text and place.
    pub panic: Panic,
    /// Hash of the backtrace; the full text lies in `logs/crash/<hash>.txt`.
    pub backtrace: String,
    /// The turn that was being worked on.
    pub turn: Option<(TurnId, Attempt)>,
}

/// The end of one incarnation; sent exactly once for each.
#[derive(Debug, Clone, actix::Message)]
#[rtype(result = "()")]
pub struct Down {
    /// Who.
    pub path: ActorPath,
    /// Counts from 1 over the starts and restarts under this path's supervision.
    pub incarnation: u64,
    /// Why.
    pub reason: ExitReason,
    /// For crashes.
    pub crash: Option<Crash>,
    /// Whether the supervisor restarts it in place: then another incarnation follows.
    pub restarts: bool,
}

/// What happened; the name in the log is the snake_case form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventName {
    /// An actor began.
    Started,
    /// An incarnation ended for good; once per activation.
    Exited,
    /// An incarnation crashed and another begins; once per crash.
    Restarted,
    /// The supervisor stopped restarting.
    GaveUp,
    /// A session is held back.
    Quarantined,
    /// A quarantine ended.
    Released,
    /// A turn was given up and its user told.
    DeadLettered,
    /// A budget of the level above was used up: the shard starts no sessions for a while.
    Escalated,
    /// A shard that had escalated starts sessions again.
    Resumed,
    /// A session was loaded.
    Activated,
    /// A session left memory.
    Passivated,
    /// A message or command was refused.
    Refused,
    /// A turn that a crash or a stop had cut runs again.
    TurnRecovered,
    /// A turn made no progress for its limit and was cancelled.
    TurnStuck,
    /// A turn ended with a failure that its user was told.
    TurnFailed,
    /// A turn was cancelled, while it ran or before it began.
    TurnCancelled,
    /// A model provider is not asked for a while: its calls failed in a row, or the account has no credit.
    ProviderOpened,
    /// A model provider answers again.
    ProviderClosed,
    /// A thread that runs actors has not come back to its queue for too long.
    ArbiterBlocked,
    /// That thread runs on.
    ArbiterFreed,
    /// The process uses more memory than it should: sessions leave, and at last messages are refused.
    MemoryHigh,
    /// There is enough memory again.
    MemoryCalm,
    /// A message is sent again though an earlier attempt may have been delivered; once per message and process.
    DeliveryRepeated,
    /// An attempt to deliver a message failed; `attempt` says which one. The first one of a message is told, and after it
    /// each one whose number is twice that of the last one told.
    DeliveryFailed,
    /// A message was refused for good, or could not be delivered for too long; kept as a dead letter. Without `delivery`:
    /// a result came for a transcript that has ended, and stands nowhere.
    Undeliverable,
    /// Somebody let a dead letter be worked on again.
    LetterRetried,
    /// Somebody dropped a dead letter.
    LetterDropped,
    /// There were too many dead letters: the oldest is not kept any more.
    LetterShed,
    /// Recovery at boot is complete.
    Recovered,
    /// The journal cannot write; messages are refused.
    JournalReadOnly,
    /// The journal can write again.
    JournalWritable,
    /// Somebody let the journal go on after damage; `lost` says what is missing since, of a session or altogether.
    JournalRepaired,
    /// A transcript file was damaged or changed by somebody else, and repaired.
    ViewRepaired,
    /// A transcript that was loaded has lines that cannot be read. They stay as they are; everything else is used.
    ViewDamaged,
    /// A session was deleted: its turns ended as cancelled, its file is a tombstone.
    SessionDeleted,
    /// A session was put into the archive.
    SessionArchived,
    /// A session was taken back from the archive.
    SessionRestored,
    /// A conversation was changed between its turns, copied, or brought in; `reason` says which edit it was, or, where
    /// `session.reset` let it begin anew, `reset: daily` or `reset: idle`.
    SessionEdited,
    /// Old sessions and files were pruned, or would be; `reason` has the counts.
    SessionsPruned,
    /// Attachments that nothing names were removed; `reason` has the counts.
    AttachmentsRemoved,
    /// A process took the data directory; `reason` says how the one before it ended.
    ProcessStarted,
    /// A process ended in order; without it, the process was killed or crashed.
    ProcessStopped,
    /// The gateway began to serve.
    GatewayStarted,
    /// The gateway stops in order.
    GatewayStopping,
    /// The sessions of a gateway that stops in order have ended; what is kept for the next start is told.
    GatewayStopped,
    /// A job was due and did not run: its run before had not ended, nobody was there, or its message was refused.
    CronSkipped,
    /// A run of a job did not end well.
    CronFailed,
    /// The file of the jobs was damaged and set aside.
    CronDamaged,
    /// The file of the jobs cannot be written; what is in memory counts.
    CronUnsaved,
    /// It can be written again.
    CronSaved,
    /// Configuration was refused.
    ConfigRejected,
    /// More events came than the log could keep; `lost` says how many are missing here.
    EventsLost,
}

impl EncodeLabelValue for EventName {
    fn encode(&self, encoder: &mut LabelValueEncoder) -> fmt::Result {
        encoder.write_str(self.word())
    }
}

impl EventName {
    /// The snake_case name, as in the file.
    pub fn word(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Exited => "exited",
            Self::Restarted => "restarted",
            Self::GaveUp => "gave_up",
            Self::Quarantined => "quarantined",
            Self::Released => "released",
            Self::DeadLettered => "dead_lettered",
            Self::Escalated => "escalated",
            Self::Activated => "activated",
            Self::Passivated => "passivated",
            Self::Refused => "refused",
            Self::TurnRecovered => "turn_recovered",
            Self::TurnStuck => "turn_stuck",
            Self::TurnFailed => "turn_failed",
            Self::TurnCancelled => "turn_cancelled",
            Self::DeliveryRepeated => "delivery_repeated",
            Self::DeliveryFailed => "delivery_failed",
            Self::Undeliverable => "undeliverable",
            Self::LetterRetried => "letter_retried",
            Self::LetterDropped => "letter_dropped",
            Self::LetterShed => "letter_shed",
            Self::Recovered => "recovered",
            Self::JournalReadOnly => "journal_read_only",
            Self::JournalWritable => "journal_writable",
            Self::JournalRepaired => "journal_repaired",
            Self::ViewRepaired => "view_repaired",
            Self::ViewDamaged => "view_damaged",
            Self::SessionDeleted => "session_deleted",
            Self::SessionArchived => "session_archived",
            Self::SessionRestored => "session_restored",
            Self::SessionEdited => "session_edited",
            Self::SessionsPruned => "sessions_pruned",
            Self::AttachmentsRemoved => "attachments_removed",
            Self::ProcessStarted => "process_started",
            Self::ProcessStopped => "process_stopped",
            Self::GatewayStarted => "gateway_started",
            Self::GatewayStopping => "gateway_stopping",
            Self::GatewayStopped => "gateway_stopped",
            Self::Resumed => "resumed",
            Self::ProviderOpened => "provider_opened",
            Self::ProviderClosed => "provider_closed",
            Self::ArbiterBlocked => "arbiter_blocked",
            Self::ArbiterFreed => "arbiter_freed",
            Self::MemoryHigh => "memory_high",
            Self::MemoryCalm => "memory_calm",
            Self::CronSkipped => "cron_skipped",
            Self::CronFailed => "cron_failed",
            Self::CronDamaged => "cron_damaged",
            Self::CronUnsaved => "cron_unsaved",
            Self::CronSaved => "cron_saved",
            Self::ConfigRejected => "config_rejected",
            Self::EventsLost => "events_lost",
        }
    }
}

/// One event. Build with [`Event::new`] and set what applies.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Event {
    /// UTC with microseconds; set by the log.
    #[serde(default)]
    pub ts: String,
    /// `<boot>-<n>`; set by the log.
    #[serde(default)]
    pub id: String,
    /// What happened.
    pub event: EventName,
    /// To whom.
    pub path: ActorPath,
    /// What sort of actor.
    pub kind: Kind,
    /// Ownership number or incarnation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub epoch: Option<Epoch>,
    /// Session.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// Turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Message on its way out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivery: Option<DeliveryId>,
    /// Attempt at the turn; of a [`EventName::DeliveryFailed`], at the delivery in this process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attempt: Option<Attempt>,
    /// Sender's message id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message_id: Option<MessageId>,
    /// Why, in one or a few words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// The panic.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub panic: Option<Panic>,
    /// Backtrace hash.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backtrace: Option<String>,
    /// Restarts within the window, this one included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub restarts_in_window: Option<u32>,
    /// How long the supervisor waits.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_ms: Option<u64>,
    /// What was decided.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub verdict: Option<String>,
    /// Messages in the mailbox.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mailbox: Option<u64>,
    /// Waiting turns.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inbox: Option<u64>,
    /// Id of the event that led to this one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What was lost: `nothing`, or what.
    pub lost: String,
}

impl Event {
    /// An event about `path` that lost nothing.
    pub fn new(event: EventName, path: ActorPath, kind: Kind) -> Self {
        Self {
            ts: String::new(),
            id: String::new(),
            event,
            path,
            kind,
            epoch: None,
            session: None,
            turn: None,
            delivery: None,
            attempt: None,
            message_id: None,
            reason: None,
            panic: None,
            backtrace: None,
            restarts_in_window: None,
            backoff_ms: None,
            verdict: None,
            mailbox: None,
            inbox: None,
            cause: None,
            lost: LOST_NOTHING.to_owned(),
        }
    }
}

/// Where events go. Never blocks: the writer has a thread of its own.
pub trait SupervisionLog: Send + Sync + 'static {
    /// Records one event and returns its id, to be named as the `cause` of what follows.
    fn record(&self, event: Event) -> String;

    /// Id of the last event of this name in this process, to be named as the cause of what it led to. Kept for events
    /// about the whole process only.
    fn latest(&self, name: EventName) -> Option<String>;
}

/// What all events that lost nothing say.
pub const LOST_NOTHING: &str = "nothing";

/// A node of the live tree.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TreeNode {
    /// Path.
    pub path: ActorPath,
    /// Kind.
    pub kind: Kind,
    /// State word of that kind.
    pub state: String,
    /// Ownership number or incarnation.
    pub epoch: u64,
    /// Session key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session: Option<SessionKey>,
    /// Running turn.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub turn: Option<TurnId>,
    /// Messages in the mailbox.
    pub mailbox: u64,
    /// Waiting turns.
    pub inbox: u64,
    /// Restarts so far.
    pub restarts: u64,
    /// Since when, ms since 1970.
    pub since: u64,
    /// For doors: open connections.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connections: Option<u64>,
    /// Children.
    pub children: Vec<TreeNode>,
}

impl TreeNode {
    /// A node about which nothing else is known yet.
    pub fn new(path: ActorPath, kind: Kind, state: &str) -> Self {
        Self {
            path,
            kind,
            state: state.to_owned(),
            epoch: 0,
            session: None,
            turn: None,
            mailbox: 0,
            inbox: 0,
            restarts: 0,
            since: 0,
            connections: None,
            children: Vec::new(),
        }
    }
}
