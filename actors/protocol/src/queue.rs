//! What becomes of a message that comes while a turn of its session runs.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// How waiting messages are taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueMode {
    /// By the running turn, between its tool calls; a turn of its own where it has no more of them.
    Steer,
    /// Each by a turn of its own.
    Followup,
    /// All that wait by one turn.
    Collect,
    /// The running turn is cancelled for it.
    Interrupt,
}

/// What happens when too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueDrop {
    /// The new one is refused.
    Refuse,
    /// The oldest of them ends as cancelled.
    Old,
    /// The same, and the next turn is told its first words.
    Summarize,
}

/// The rules of one session's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRules {
    /// How waiting messages are taken up.
    pub mode: QueueMode,
    /// How many may wait.
    pub cap: u32,
    /// What happens when more would.
    pub drop: QueueDrop,
    /// For [`QueueMode::Collect`]: how long no new one has come when they are taken up.
    pub debounce: Duration,
}

// === impl QueueRules ===

impl Default for QueueRules {
    fn default() -> Self {
        let debounce = Duration::from_millis(500);
        Self { mode: QueueMode::Steer, cap: 20, drop: QueueDrop::Refuse, debounce }
    }
}
