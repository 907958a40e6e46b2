//! From the entries of a conversation to the messages that a model may be shown.

use std::collections::HashSet;

use crate::chat::Message;
use crate::ids::ToolCallId;
use crate::transcript::Entry;

/// What a model is shown of a conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// Oldest first.
    pub messages: Vec<Message>,
    /// Their tokens, by the estimate of [`crate::budget`].
    pub tokens: u64,
    /// How many of the conversation's user turns were left out to keep the budget.
    pub turns_left_out: usize,
}

/// Selects what fits in `budget_tokens`, newest first; `started` are calls that may have had an effect without a result.
pub fn select(path: &[&Entry], started: &HashSet<ToolCallId>, budget_tokens: u64) -> History {
    let _ = (path, started, budget_tokens);
    History::default()
}
