//! Counters of local triggers.

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::Registry;

use super::ByResult;

/// What becomes of deliveries.
#[derive(Debug, Clone, Default)]
pub struct TriggerMetrics {
    /// Deliveries that are claimed and that the journal does not have yet.
    pub open: Gauge,
    /// Deliveries that were handed over (`accepted`), refused for now (`refused`), given up (`failed`), or none at all
    /// (`bad`), and ends of their turns (`ok`, `error`).
    pub deliveries: Family<ByResult, Counter>,
    /// Looks for deliveries that failed, or took too long.
    pub poll_failures: Counter,
    /// Changes of files that failed.
    pub write_failures: Counter,
}

impl TriggerMetrics {
    pub(super) fn register(&self, to: &mut Registry) {
        to.register("trigger_open", "Deliveries that are claimed", self.open.clone());
        to.register("trigger_deliveries", "What became of deliveries", self.deliveries.clone());
        to.register("trigger_poll_failures", "Looks for deliveries that failed", self.poll_failures.clone());
        to.register("trigger_write_failures", "Changes of files that failed", self.write_failures.clone());
    }
}
