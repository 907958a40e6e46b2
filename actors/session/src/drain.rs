//! Tools of an earlier incarnation that may still run: a recovered turn calls none before they have ended.

use std::time::Duration;

use domain::chat::ToolCall;
use domain::ids::ToolCallId;
use protocol::turn::Stamp;

/// How long their end is awaited. They were cancelled, so their process groups die.
pub const WAIT_MAX: Duration = Duration::from_secs(30);

/// A tool call with its asker's stamp.
pub type Asked = (Stamp, ToolCallId);

/// The calls that are awaited, and those that wait for them.
#[derive(Debug, Default)]
pub struct Drain {
    awaited: Vec<Asked>,
    until: Duration,
    held: Vec<(u32, ToolCall)>,
}

// === impl Drain ===

impl Drain {
    /// Awaits `awaited`; `None` when there is nothing to await.
    pub fn new(awaited: Vec<Asked>, now: Duration) -> Option<Box<Self>> {
        (!awaited.is_empty()).then(|| Box::new(Self { awaited, until: now + WAIT_MAX, held: Vec::new() }))
    }

    /// Holds a call back.
    pub fn hold(&mut self, round: u32, call: ToolCall) {
        self.held.push((round, call));
    }

    /// A tool call ended; whether it was awaited.
    pub fn finished(&mut self, stamp: &Stamp, call: &ToolCallId) -> bool {
        let before = self.awaited.len();
        self.awaited.retain(|(asked, id)| asked != stamp || id != call);
        self.awaited.len() < before
    }

    /// Whether the calls held back may run.
    pub fn is_over(&self, now: Duration) -> bool {
        self.awaited.is_empty() || now >= self.until
    }

    /// The calls held back, which run now or never.
    pub fn take_held(&mut self) -> Vec<(u32, ToolCall)> {
        std::mem::take(&mut self.held)
    }

    /// What is still awaited.
    pub fn into_awaited(self) -> Vec<Asked> {
        self.awaited
    }
}
