//! The process's counters, one handle each, shared by everybody who counts. No label is ever a session key.
//!
//! All names begin with `greenroom_`, those of the process itself with `process_`; counters end in `_total`, times in
//! `_seconds`, sizes in `_bytes`. The door that serves `/metrics` registers and prints them.

mod cron;
mod heartbeat;
mod kernel;
mod process;
mod trigger;
mod work;

use std::fmt;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use crate::trace::Traces;
pub use cron::CronMetrics;
pub use heartbeat::HeartbeatMetrics;
pub use kernel::{ByArbiter, ByKindEvent, HANDLER_SAMPLE, KernelMetrics};
pub use process::ProcessMetrics;
pub use trigger::TriggerMetrics;
pub use work::{
    BOUNDS, ByBound, ByCache, ByProviderDirection, ByProviderReason, ByProviderState, ByTool, ByToolResult,
    WorkMetrics, gauge,
};

/// `result`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByResult {
    /// `done`, `failed`, `dead_lettered`, `cancelled`.
    pub result: &'static str,
}

/// `state`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByState {
    /// State word.
    pub state: &'static str,
}

/// `door`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByDoor {
    /// `ws`, `api`, `webhook`, `admin`.
    pub door: &'static str,
}

/// `door`, `reason`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByDoorReason {
    /// `ws`, `api`, `webhook`, `admin`.
    pub door: &'static str,
    /// Refusal word.
    pub reason: &'static str,
}

/// `kind`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByKind {
    /// Actor or letter kind.
    pub kind: &'static str,
}

/// `kind`, `reason`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByKindReason {
    /// Actor kind.
    pub kind: &'static str,
    /// Exit reason.
    pub reason: &'static str,
}

/// `channel`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByChannel {
    /// Push channel, as in routes.
    pub channel: String,
}

/// `channel`, `result`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByChannelResult {
    /// Push channel, as in routes.
    pub channel: String,
    /// `delivered`, `refused`, `failed`.
    pub result: &'static str,
}

/// `provider`, `result`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByProviderResult {
    /// Provider name as configured.
    pub provider: String,
    /// `ok`, or the failure class.
    pub result: &'static str,
}

/// `provider`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByProvider {
    /// Provider name as configured.
    pub provider: String,
}

/// A gauge of seconds or bytes.
pub type FloatGauge = Gauge<f64, AtomicU64>;

/// Everything that is counted.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Sessions in memory, by state (`live`, `quarantined`).
    pub sessions: Family<ByState, Gauge>,
    /// Turns that ended.
    pub turns: Family<ByResult, Counter>,
    /// From accepted to finished.
    pub turn_seconds: Histogram,
    /// Turns running now.
    pub turns_running: Gauge,
    /// Messages accepted.
    pub accepted: Family<ByDoor, Counter>,
    /// Messages refused.
    pub refused: Family<ByDoorReason, Counter>,
    /// Turns that wait, over all sessions.
    pub inbox_messages: Gauge,
    /// Age of the oldest open turn.
    pub inbox_oldest_seconds: FloatGauge,
    /// Messages in mailboxes.
    pub mailbox_messages: Family<ByKind, Gauge>,
    /// Restarts.
    pub restarts: Family<ByKindReason, Counter>,
    /// Dead letters.
    pub dead_letters: Family<ByKind, Counter>,
    /// Events of an earlier incarnation or attempt that were dropped.
    pub stale_events: Family<ByKind, Counter>,
    /// Records per batch.
    pub journal_batch_records: Histogram,
    /// Duration of the sync of a batch.
    pub journal_sync_seconds: Histogram,
    /// Bytes in the log, by state (`live`, `total`).
    pub journal_bytes: Family<ByState, Gauge>,
    /// 1 when the journal can write.
    pub journal_writable: Gauge,
    /// Committed bytes that the transcript files do not yet have.
    pub view_lag_bytes: Gauge,
    /// Messages that wait to be delivered or are being sent.
    pub outbox_messages: Family<ByChannel, Gauge>,
    /// Age of the oldest of them.
    pub outbox_oldest_seconds: Family<ByChannel, FloatGauge>,
    /// Attempts to deliver a message.
    pub delivery_attempts: Family<ByChannelResult, Counter>,
    /// Model calls.
    pub provider_calls: Family<ByProviderResult, Counter>,
    /// Duration of model calls.
    pub provider_seconds: Family<ByProvider, Histogram>,
    /// Actors, arbiters, blocking pool, supervision log.
    pub kernel: KernelMetrics,
    /// Tools, model calls, connections, buffers, caches.
    pub work: WorkMetrics,
    /// Jobs that are due at times.
    pub cron: CronMetrics,
    /// The heartbeat.
    pub heartbeat: HeartbeatMetrics,
    /// Local triggers.
    pub triggers: TriggerMetrics,
    /// The process.
    pub process: ProcessMetrics,
    /// Where the spans of turns go.
    pub traces: Traces,
    /// Providers that are not asked for a while.
    pub providers_open: Gauge,
    /// Shards that start no sessions for a while.
    pub shards_paused: Gauge,
    /// Sessions that cannot begin because the transcript before theirs cannot be put away.
    pub sessions_held: Gauge,
    /// 0: enough memory; 1: sessions leave; 2: messages are refused.
    pub memory_pressure: Gauge,
    /// Turns that wait for a place among the running ones.
    pub turns_waiting: Gauge,
    /// Arbiters that have not come back to their queues for too long.
    pub arbiters_blocked: Gauge,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            sessions: Family::default(),
            turns: Family::default(),
            turn_seconds: Histogram::new(exponential_buckets(0.001, 2.0, 20)),
            turns_running: Gauge::default(),
            accepted: Family::default(),
            refused: Family::default(),
            inbox_messages: Gauge::default(),
            inbox_oldest_seconds: FloatGauge::default(),
            mailbox_messages: Family::default(),
            restarts: Family::default(),
            dead_letters: Family::default(),
            stale_events: Family::default(),
            journal_batch_records: Histogram::new(exponential_buckets(1.0, 2.0, 13)),
            journal_sync_seconds: Histogram::new(exponential_buckets(0.000_02, 2.0, 18)),
            journal_bytes: Family::default(),
            journal_writable: Gauge::default(),
            view_lag_bytes: Gauge::default(),
            outbox_messages: Family::default(),
            outbox_oldest_seconds: Family::default(),
            delivery_attempts: Family::default(),
            provider_calls: Family::default(),
            provider_seconds: Family::new_with_constructor(|| Histogram::new(exponential_buckets(0.001, 2.0, 20))),
            kernel: KernelMetrics::default(),
            work: WorkMetrics::default(),
            cron: CronMetrics::default(),
            heartbeat: HeartbeatMetrics::default(),
            triggers: TriggerMetrics::default(),
            process: ProcessMetrics::default(),
            traces: Traces::default(),
            providers_open: Gauge::default(),
            shards_paused: Gauge::default(),
            sessions_held: Gauge::default(),
            memory_pressure: Gauge::default(),
            turns_waiting: Gauge::default(),
            arbiters_blocked: Gauge::default(),
        };
        // What alerts ask for is there from the start, at zero.
        for result in ["done", "failed", "dead_lettered", "cancelled"] {
            drop(metrics.turns.get_or_create(&ByResult { result }));
        }
        drop(metrics.restarts.get_or_create(&ByKindReason { kind: "session", reason: "panicked" }));
        drop(metrics.stale_events.get_or_create(&ByKind { kind: "session" }));
        for kind in ["turn", "delivery"] {
            drop(metrics.dead_letters.get_or_create(&ByKind { kind }));
        }
        metrics
    }
}

impl Metrics {
    /// What is not as it should be, though messages are taken: words for `/ready` and `status`.
    pub fn degraded(&self) -> Vec<&'static str> {
        let ill = [
            (&self.providers_open, "provider_not_asked"),
            (&self.shards_paused, "sessions_paused"),
            (&self.sessions_held, "sessions_held"),
            (&self.memory_pressure, "memory_high"),
            (&self.arbiters_blocked, "arbiter_blocked"),
            (&self.work.memory_file_large, "memory_file_large"),
        ];
        ill.into_iter().filter(|(gauge, _)| gauge.get() > 0).map(|(_, word)| word).collect()
    }

    /// What prints all of them.
    pub fn page(&self) -> Page {
        let mut ours = Registry::with_prefix("greenroom");
        self.register(&mut ours);
        self.kernel.register(&mut ours);
        self.work.register(&mut ours);
        self.cron.register(&mut ours);
        self.heartbeat.register(&mut ours);
        self.triggers.register(&mut ours);
        let mut process = Registry::default();
        self.process.register(&mut process);
        Page([ours, process])
    }

    fn register(&self, to: &mut Registry) {
        to.register("sessions", "Sessions, by state: listed are all, live those in memory", self.sessions.clone());
        to.register("turns", "Turns that ended", self.turns.clone());
        to.register("turn_seconds", "From accepted to finished", self.turn_seconds.clone());
        to.register("turns_running", "Turns running now", self.turns_running.clone());
        to.register("accepted", "Messages accepted", self.accepted.clone());
        to.register("refused", "Messages refused", self.refused.clone());
        to.register("inbox_messages", "Turns that wait", self.inbox_messages.clone());
        to.register("inbox_oldest_seconds", "Age of the oldest open turn", self.inbox_oldest_seconds.clone());
        to.register("mailbox_messages", "Messages in mailboxes", self.mailbox_messages.clone());
        to.register("restarts", "Actor restarts", self.restarts.clone());
        to.register("dead_letters", "Turns or deliveries given up", self.dead_letters.clone());
        to.register("stale_events", "Late events dropped", self.stale_events.clone());
        to.register("journal_batch_records", "Records per batch", self.journal_batch_records.clone());
        to.register("journal_sync_seconds", "Duration of a batch's sync", self.journal_sync_seconds.clone());
        to.register("journal_bytes", "Bytes in the log", self.journal_bytes.clone());
        to.register("journal_writable", "1 when the journal can write", self.journal_writable.clone());
        to.register("view_lag_bytes", "Committed bytes not yet in files", self.view_lag_bytes.clone());
        to.register("outbox_messages", "Messages that wait to be delivered", self.outbox_messages.clone());
        to.register("outbox_oldest_seconds", "Age of the oldest of them", self.outbox_oldest_seconds.clone());
        to.register("delivery_attempts", "Attempts to deliver a message", self.delivery_attempts.clone());
        to.register("provider_calls", "Model calls", self.provider_calls.clone());
        to.register("provider_seconds", "Duration of model calls", self.provider_seconds.clone());
        to.register("providers_open", "Providers that are not asked for a while", self.providers_open.clone());
        to.register("shards_paused", "Shards that start no sessions for a while", self.shards_paused.clone());
        to.register("sessions_held", "Sessions that wait for their place in the directory", self.sessions_held.clone());
        to.register("memory_pressure", "0 enough memory, 1 high, 2 refusing", self.memory_pressure.clone());
        to.register("turns_waiting", "Turns that wait for a place to run", self.turns_waiting.clone());
        to.register("arbiters_blocked", "Arbiters that do not come back", self.arbiters_blocked.clone());
    }
}

/// Prints metrics in the OpenMetrics text format.
#[derive(Debug)]
pub struct Page([Registry; 2]);

impl Page {
    /// All of them, as they are now.
    pub fn print(&self) -> Result<String, fmt::Error> {
        use prometheus_client::encoding::text::{encode_eof, encode_registry};
        let mut text = String::new();
        for registry in &self.0 {
            encode_registry(&mut text, registry)?;
        }
        encode_eof(&mut text)?;
        Ok(text)
    }
}
