//! The log of tests.

use std::sync::{Arc, Mutex, PoisonError};

use protocol::supervision::{Event, EventName, SupervisionLog};

/// Keeps events in memory, for tests.
#[derive(Debug, Default)]
pub struct MemoryLog(Mutex<Vec<Event>>);

impl MemoryLog {
    /// An empty one.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Everything recorded so far, in order; ids are `memory-<n>`.
    pub fn events(&self) -> Vec<Event> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The events of one name.
    pub fn named(&self, name: EventName) -> Vec<Event> {
        self.events().into_iter().filter(|event| event.event == name).collect()
    }
}

impl SupervisionLog for MemoryLog {
    fn record(&self, mut event: Event) -> String {
        let mut events = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let id = format!("memory-{}", events.len() + 1);
        event.id.clone_from(&id);
        events.push(event);
        id
    }

    fn latest(&self, name: EventName) -> Option<String> {
        self.named(name).pop().map(|event| event.id)
    }
}
