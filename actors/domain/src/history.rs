//! From the entries of a conversation to the messages that a model may be shown. What is stored is never changed.
//!
//! **Invariant:** the messages begin with a user's; no two of users, and no two of the model, stand behind each other;
//! every assistant message with calls is followed at once by exactly one result for each call, in the order of the
//! calls; within a user turn no two calls share an id.
//!
//! | in the transcript | shown |
//! |---|---|
//! | a call without result | a result that says it was not run |
//! | a result without call, or a second one for a call | nothing |
//! | a call without name | nothing, and nothing of its result |
//! | a failed or cancelled assistant message | its text, if cancelled, and a short note in place of the rest |
//! | several messages of users in a row | one |
//! | parts of an answer in a row | one |
//! | a message that came through a door | itself, then when and where it was said ([`Runtime`]) |
//! | an event | the same, in a fence that says that it is data and no words of the user |
//! | a picture of an earlier turn | its place, `[image: <path>]` |
//! | a failed result of an earlier turn | its beginning, and that it failed at that time |
//! | results of the running turn for which there is no room | what [`trim`] makes of them |
//! | the latest compaction | the entries that it keeps; its summary goes into the system prompt |
//! | the latest reset | only the entries that it keeps, and what follows |

mod kept;
mod render;
mod repair;
mod trim;
mod window;

use std::sync::Arc;

use crate::budget::message_tokens;
use crate::chat::Message;
use crate::request::Messages;
use crate::transcript::Entry;

pub use kept::{Kept, Place};
pub(crate) use render::joined;
pub use render::{Render, Runtime, spoken, unforged};
pub use repair::{Repaired, repair};
pub use trim::{PERSISTED, Trim, trim};
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
/// Begins the messages where a summary replaced the user's that was answered.
pub const SUMMARISED: &str = "(What was said before this is summarised in the system prompt.)";
/// Stands before what a call of an earlier turn failed with.
pub const FAILED_EARLIER: &str = "(This call failed at that time.)";
/// Ends what is shown of a longer result.
const RESULT_CUT: &str = " […]";

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

/// Selects what fits in `budget_tokens`, newest first, of a conversation in which no turn runs. The newest user turn is
/// always there, even if it alone is over the budget.
pub fn select(path: &[&Entry], budget_tokens: u64) -> History {
    Render::default().select(path, path.len(), budget_tokens)
}

// === impl Render ===

impl Render<'_> {
    /// Selects what fits in `budget_tokens`, newest first. The entries from place `own_at` on are those of the running
    /// turn: it is always there as a whole, cut to size by [`trim`].
    pub fn select(&self, path: &[&Entry], own_at: usize, budget_tokens: u64) -> History {
        let Repaired { messages, own_from, summary: _ } = self.repair(path, own_at);
        fit(&Before::default(), messages, own_from, self.trim, budget_tokens)
    }
}

/// Messages that are kept in memory, all of them from before the running turn.
#[derive(Debug, Default)]
struct Before {
    messages: Arc<Vec<Message>>,
    turns: Vec<Turn>,
    tokens: u64,
}

/// Keeps the newest user turns that fit of what was `before` and of `tail`, which stands behind it. The running turn,
/// from place `own_from` of the tail on, counts as one. Its results may be left out to make room for what was before, up
/// to half of the budget.
fn fit(before: &Before, mut tail: Vec<Message>, own_from: usize, how: Trim, budget_tokens: u64) -> History {
    let kept = before.messages.len();
    let mut own = tail.split_off(own_from.min(tail.len()));
    let mut turns: Vec<Turn> = turns_of(&tail).into_iter().map(|turn| turn.behind(kept)).collect();
    let earlier = turns.iter().map(|turn| turn.tokens).fold(before.tokens, u64::saturating_add);
    trim(&mut own, budget_tokens.saturating_sub(earlier.min(budget_tokens / 2)), how);
    let tokens = own.iter().map(message_tokens).sum();
    match (own.first(), turns.last_mut()) {
        (None, _) => {}
        (Some(Message::Assistant(_) | Message::ToolResult(_)), Some(turn)) => turn.tokens += tokens,
        (Some(_), _) => turns.push(Turn { at: kept + tail.len(), tokens }),
    }
    tail.append(&mut own);
    let newest_first = turns.iter().rev().chain(before.turns.iter().rev()).copied();
    let fits = fitting(newest_first, budget_tokens);
    let first = fits.first.unwrap_or(kept);
    let tail = tail.into_iter().skip(first.saturating_sub(kept)).collect();
    let turns_left_out = before.turns.len() + turns.len() - fits.taken;
    History { messages: Messages::behind(&before.messages, first, tail), tokens: fits.tokens, turns_left_out }
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

/// Takes turns, newest first and at least one, as long as they fit.
fn fitting(newest_first: impl Iterator<Item = Turn>, budget_tokens: u64) -> Fitting {
    let mut fits = Fitting { first: None, tokens: 0, taken: 0 };
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
