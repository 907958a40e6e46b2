//! Counters of the heartbeat.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::registry::Registry;

use super::ByResult;

/// What becomes of heartbeats.
#[derive(Debug, Clone, Default)]
pub struct HeartbeatMetrics {
    /// Moments that were due and not used (`no_tasks`, `inactive_hours`, `no_target`, `running`), and how the others ended:
    /// `silent`, `told`, `failed`.
    pub beats: Family<ByResult, Counter>,
}

impl HeartbeatMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register("heartbeats", "What became of heartbeats", self.beats.clone());
    }
}
