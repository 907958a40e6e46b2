//! A supervision log that counts what it is told.

use std::sync::Arc;

use protocol::metrics::{ByKindEvent, Metrics};
use protocol::supervision::{Event, EventName, SupervisionLog};

/// Counts each event, then passes it on.
pub struct CountedLog {
    to: Arc<dyn SupervisionLog>,
    metrics: Metrics,
}

impl CountedLog {
    /// In front of `to`.
    pub fn new(to: Arc<dyn SupervisionLog>, metrics: Metrics) -> Arc<Self> {
        Arc::new(Self { to, metrics })
    }
}

impl SupervisionLog for CountedLog {
    fn record(&self, event: Event) -> String {
        let labels = ByKindEvent { kind: event.kind.word(), event: event.event };
        self.metrics.kernel.events.get_or_create(&labels).inc();
        self.to.record(event)
    }

    fn latest(&self, name: EventName) -> Option<String> {
        self.to.latest(name)
    }
}
