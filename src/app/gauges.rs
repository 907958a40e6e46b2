//! Gauges that nobody keeps up to date all the time: they are set when metrics are printed.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use protocol::metrics::{BOUNDS, ByBound, ByCache, ByKind, ByState, Metrics, gauge};
use protocol::registry::Sessions;
use protocol::supervision::Kind;
use protocol::turn::WATCHED_MAX;
use registry::Registry;
use session::{LISTED_MAX, Shared, Transcripts};
use supervision::Kernel;
use supervision::log::{LogWriter, QUEUED_EVENTS_MAX};

use super::process;
use crate::config::Config;

/// Where the values come from.
pub struct Gauges {
    /// The actors.
    pub kernel: Kernel,
    /// The sessions.
    pub registry: Arc<Registry>,
    /// What the sessions share.
    pub sessions: Arc<Shared>,
    /// The list of all sessions.
    pub transcripts: Arc<Transcripts>,
    /// What the provider front ends share.
    pub provider: Arc<provider::Shared>,
    /// The supervision log, in the real world.
    pub log: Option<Arc<LogWriter>>,
    /// Events that are missing in the log, as far as they are counted.
    pub lost: AtomicU64,
}

impl Gauges {
    /// Shows the bounds that the configuration sets; the others are shown by those who keep them.
    pub fn show_limits(metrics: &Metrics, config: &Config) {
        let (runtime, journal) = (&config.runtime, &config.journal);
        for (bound, value) in [
            ("context_bytes", runtime.context_cache_bytes),
            ("inbox_messages", runtime.inbox_max as u64),
            ("journal_bytes", journal.max_bytes),
            ("listed_sessions", LISTED_MAX as u64),
            ("live_sessions", runtime.max_live_sessions as u64),
            ("log_queue_events", QUEUED_EVENTS_MAX as u64),
            ("queued_bytes", runtime.queued_max_bytes),
            ("watched_turns", WATCHED_MAX as u64),
        ] {
            debug_assert!(BOUNDS.contains(&bound));
            metrics.work.limit.get_or_create(&ByBound { bound }).set(gauge(value));
        }
    }

    /// Brings all of them up to date.
    pub fn show(&self) {
        let metrics = self.kernel.metrics();
        let mut actors = BTreeMap::from([(Kind::Session.word(), self.registry.live())]);
        for actor in self.kernel.actors() {
            *actors.entry(actor.kind.word()).or_default() += 1;
        }
        for (kind, count) in actors {
            metrics.kernel.actors.get_or_create(&ByKind { kind }).set(gauge(count));
        }
        let context = ByCache { cache: "context" };
        metrics.work.cache_bytes.get_or_create(&context).set(gauge(self.sessions.cached_bytes()));
        let listed = ByState { state: "listed" };
        metrics.sessions.get_or_create(&listed).set(gauge(self.transcripts.index().count()));
        self.provider.show();
        if let Some(log) = &self.log {
            let (queued, lost) = log.backlog();
            metrics.kernel.log_queue_events.set(gauge(queued));
            let before = self.lost.fetch_max(lost, Ordering::Relaxed);
            metrics.kernel.log_lost_events.inc_by(lost.saturating_sub(before));
        }
        process::show(&metrics.process, Duration::from_micros(self.kernel.ports().clock.wall_us()));
    }
}
