//! From the entries of a conversation to the messages that a model may be shown. What is stored is never changed.
//!
//! **Invariant:** the messages begin with a user's; every assistant message with calls is followed at once by exactly
//! one result for each call, in the order of the calls; within a user turn no two calls share an id.
//!
//! | in the transcript | shown |
//! |---|---|
//! | a call without result | a result that says it was not run |
//! | a result without call, or a second one for a call | nothing |
//! | a call without name | nothing, and nothing of its result |
//! | a failed or cancelled assistant message | its text, if cancelled, and a short note in place of the rest |
//! | the latest compaction | its summary, then the entries that it keeps |
//! | the latest reset | only the entries that it keeps, and what follows |

mod kept;
mod repair;
mod window;

use crate::budget::message_tokens;
use crate::chat::Message;
use crate::request::Messages;
use crate::transcript::Entry;

pub use kept::Kept;
pub use repair::{Repaired, repair};
pub(crate) use window::begins_turn;
pub use window::{entry_tokens, newest, suffices};

/// Answers a call that has no result: one that may have had an effect gets its own in the transcript.
pub const NOT_RUN: &str = "This call was not run.";
/// Stands for a model's message that failed.
pub const FAILED_PLACEHOLDER: &str = "(There was no answer: the attempt failed.)";
/// Ends a model's message that was cancelled.
pub const CANCELLED_PLACEHOLDER: &str = "(Stopped before the answer was complete.)";
/// Stands for a user message without any content, which no provider takes.
pub const EMPTY_MESSAGE: &str = "(an empty message)";

/// What a model is shown of a conversation.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct History {
    /// Oldest first.
    pub messages: Messages,
    /// Their tokens, by the estimate of [`crate::budget`].
    pub tokens: u64,
    /// How many of the conversation's user turns were left out to keep the budget.
    pub turns_left_out: usize,
}

/// Selects what fits in `budget_tokens`, newest first. The newest user turn is always there, even if it alone is over
/// the budget.
pub fn select(path: &[&Entry], budget_tokens: u64) -> History {
    cut(repair(path), budget_tokens)
}

/// Keeps the newest user turns that fit. A summary at the start stays if it fits beside the newest turn.
pub fn cut(repaired: Repaired, budget_tokens: u64) -> History {
    let Repaired { mut messages, summarised } = repaired;
    let summary = (summarised && !messages.is_empty()).then(|| messages.remove(0));
    let turns = turns_of(&messages);
    let summary_tokens = summary.as_ref().map_or(0, message_tokens);
    let newest = turns.last().map_or(0, |turn| turn.tokens);
    // What follows a summary before the first user message hangs on it.
    let has_user = messages.iter().any(|message| matches!(message, Message::User(_)));
    let summary = summary.filter(|_| newest.saturating_add(summary_tokens) <= budget_tokens || !has_user);
    let lead_tokens = summary.as_ref().map_or(0, message_tokens);
    let Fitting { first, mut tokens, taken } = fitting(turns.iter().rev().copied(), lead_tokens, budget_tokens);
    messages.drain(..first.unwrap_or(messages.len()));
    // Without its summary, a turn that was cut in the middle has no legal start.
    if summary.is_none() {
        let illegal = messages.iter().take_while(|message| !matches!(message, Message::User(_))).count();
        tokens -= messages.drain(..illegal).map(|message| message_tokens(&message)).sum::<u64>();
    }
    if let Some(summary) = summary {
        messages.insert(0, summary);
    }
    History { messages: messages.into(), tokens, turns_left_out: turns.len() - taken }
}

/// A user's message and everything up to the next one.
#[derive(Debug, Clone, Copy)]
struct Turn {
    /// Place of its first message.
    at: usize,
    tokens: u64,
}

impl Turn {
    /// The same behind `count` other messages.
    fn behind(self, count: usize) -> Self {
        Self { at: self.at + count, ..self }
    }
}

fn turns_of(messages: &[Message]) -> Vec<Turn> {
    let mut turns: Vec<Turn> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let tokens = message_tokens(message);
        match (message, turns.last_mut()) {
            (Message::User(_), _) | (_, None) => turns.push(Turn { at, tokens }),
            (Message::Assistant(_) | Message::ToolResult(_), Some(turn)) => turn.tokens += tokens,
        }
    }
    turns
}

/// Which turns fit.
struct Fitting {
    /// Place of the first message that fits.
    first: Option<usize>,
    tokens: u64,
    taken: usize,
}

/// Takes turns, newest first and at least one, as long as they fit beside `tokens`.
fn fitting(newest_first: impl Iterator<Item = Turn>, tokens: u64, budget_tokens: u64) -> Fitting {
    let mut fits = Fitting { first: None, tokens, taken: 0 };
    for turn in newest_first {
        let tokens = fits.tokens.saturating_add(turn.tokens);
        if tokens > budget_tokens && fits.first.is_some() {
            break;
        }
        fits = Fitting { first: Some(turn.at), tokens, taken: fits.taken + 1 };
    }
    fits
}

#[cfg(test)]
pub(crate) mod tests;
