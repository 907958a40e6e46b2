//! The surroundings of a log that nobody works on.

use std::io;

use domain::ids::SessionKey;
use protocol::journal::{OutRow, OutSink, Queued, QueuedSink, RecentId, RecentIds};
use protocol::supervision::{Event, EventName, SupervisionLog};

/// Nobody to hand anything to: for a log that is opened to be read or repaired.
#[derive(Debug, Clone, Copy)]
pub struct Nobody;

impl QueuedSink for Nobody {
    fn queued(&self, _: Queued) {}
}

impl OutSink for Nobody {
    fn out(&self, _: OutRow) {}
}

impl RecentIds for Nobody {
    fn recent(&self, _: &SessionKey) -> io::Result<Vec<RecentId>> {
        Ok(Vec::new())
    }
}

impl SupervisionLog for Nobody {
    fn latest(&self, _: EventName) -> Option<String> {
        None
    }
    fn record(&self, _: Event) -> String {
        String::new()
    }
}
