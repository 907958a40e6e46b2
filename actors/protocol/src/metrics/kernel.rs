//! What the kernel counts: actors, their events, the arbiters, the blocking pool, the supervision log.

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::{Histogram, exponential_buckets};
use prometheus_client::registry::Registry;

use super::{ByKind, ByState};
use crate::supervision::EventName;

/// `kind`, `event`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByKindEvent {
    /// Actor kind.
    pub kind: &'static str,
    /// Name of the supervision event.
    pub event: EventName,
}

/// `arbiter`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct ByArbiter {
    /// Its number, from 0.
    pub arbiter: u32,
}

/// What the kernel counts.
#[derive(Debug, Clone)]
pub struct KernelMetrics {
    /// Live actors; set when metrics are printed.
    pub actors: Family<ByKind, Gauge>,
    /// Supervision events.
    pub events: Family<ByKindEvent, Counter>,
    /// How long one poll of an actor took (its handlers and what they spawned). One poll in
    /// [`HANDLER_SAMPLE`] is measured.
    pub handler_seconds: Family<ByKind, Histogram>,
    /// How late a timer of each arbiter fired; once a second.
    pub arbiter_delay_seconds: Family<ByArbiter, Histogram>,
    /// Actors that left after crashes which still count, should they come back.
    pub crash_histories: Gauge,
    /// Jobs of the blocking pool (`waiting`, `running`).
    pub pool_jobs: Family<ByState, Gauge>,
    /// How long jobs waited for a thread of the blocking pool.
    pub pool_wait_seconds: Histogram,
    /// Jobs that the blocking pool did not take.
    pub pool_refused: Counter,
    /// Events that wait for the supervision log's thread.
    pub log_queue_events: Gauge,
    /// Events that are missing in the supervision log.
    pub log_lost_events: Counter,
}

/// One poll in so many is measured.
pub const HANDLER_SAMPLE: u8 = 16;

impl Default for KernelMetrics {
    fn default() -> Self {
        let from_10_us = || Histogram::new(exponential_buckets(0.000_01, 4.0, 10));
        let from_1_ms = || Histogram::new(exponential_buckets(0.001, 4.0, 8));
        Self {
            actors: Family::default(),
            events: Family::default(),
            handler_seconds: Family::new_with_constructor(from_10_us),
            arbiter_delay_seconds: Family::new_with_constructor(from_1_ms),
            crash_histories: Gauge::default(),
            pool_jobs: Family::default(),
            pool_wait_seconds: from_10_us(),
            pool_refused: Counter::default(),
            log_queue_events: Gauge::default(),
            log_lost_events: Counter::default(),
        }
    }
}

impl KernelMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register("actors", "Live actors", self.actors.clone());
        to.register("events", "Supervision events", self.events.clone());
        to.register("handler_seconds", "Duration of one poll of an actor, sampled", self.handler_seconds.clone());
        to.register("arbiter_delay_seconds", "How late timers fire", self.arbiter_delay_seconds.clone());
        to.register(
            "crash_histories",
            "Actors that left after crashes which still count",
            self.crash_histories.clone(),
        );
        to.register("pool_jobs", "Jobs of the blocking pool", self.pool_jobs.clone());
        to.register("pool_wait_seconds", "Wait for a thread of the blocking pool", self.pool_wait_seconds.clone());
        to.register("pool_refused", "Jobs that the blocking pool did not take", self.pool_refused.clone());
        to.register("log_queue_events", "Events waiting for the supervision log", self.log_queue_events.clone());
        to.register("log_lost_events", "Events missing in the supervision log", self.log_lost_events.clone());
    }
}
