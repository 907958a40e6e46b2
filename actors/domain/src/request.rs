//! What a provider is asked: a pure value, built anew for every model call.

use std::sync::Arc;

use serde_json::Value;

use crate::chat::{Content, Message};
use crate::history::joined;

/// A tool as the model sees it.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolSpec {
    /// `[a-zA-Z0-9_-]{1,64}`.
    pub name: String,
    /// What it does, for the model.
    pub description: String,
    /// JSON Schema of its arguments, an object schema.
    pub parameters: Value,
    /// Whether consecutive calls of such tools may run at the same time (read-only tools).
    pub parallel: bool,
    /// Whether a call cut by a crash may simply run again.
    pub idempotent: bool,
}

/// Stands between the parts of a system prompt.
pub const SYSTEM_SEPARATOR: &str = "\n\n---\n\n";

/// Whether the model may call the tools that it is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToolChoice {
    /// When it wants to.
    Auto,
    /// It may not: an answer is wanted. The tools are shown all the same, since calls of before stand in the messages, and
    /// what the provider has in its cache begins with them.
    None,
}

/// One model call.
/// **Invariant:** every tool call in `messages` has exactly one result after it, and the first message is a user's.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// Model name, as the provider knows it.
    pub model: Arc<str>,
    /// System prompt, as most requests have it.
    pub system: Arc<str>,
    /// What belongs to this conversation or request alone: follows `system`, behind [`SYSTEM_SEPARATOR`].
    pub system_tail: Option<Arc<str>>,
    /// The conversation, oldest first.
    pub messages: Messages,
    /// Tools, in a fixed order; without any, no call is possible.
    pub tools: Arc<[ToolSpec]>,
    /// Whether they may be called.
    pub choice: ToolChoice,
    /// How hard the model is to think, in the provider's word; `None` leaves that to it.
    pub effort: Option<Arc<str>>,
    /// About how many tokens all of that has, by the estimate of [`crate::budget`].
    pub tokens: u64,
    /// Upper bound of the answer, in tokens.
    pub max_tokens: u32,
    /// Sampling temperature.
    pub temperature: f32,
}

/// The messages of a request, oldest first. What earlier requests had as well is shared with them.
#[derive(Debug, Clone, Default)]
pub struct Messages {
    shared: Arc<Vec<Message>>,
    /// The first of them that is shown.
    from: usize,
    own: Vec<Message>,
}

// === impl Messages ===

impl Messages {
    /// Those of `shared` from place `from` on, and `own` behind them.
    pub(crate) fn behind(shared: &Arc<Vec<Message>>, from: usize, own: Vec<Message>) -> Self {
        Self { shared: Arc::clone(shared), from: from.min(shared.len()), own }
    }

    /// All of them.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = &Message> {
        self.shared.iter().skip(self.from).chain(&self.own)
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.shared.len() - self.from + self.own.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Adds a text as a user's message, or as the end of the one that stands last.
    pub(crate) fn push_text(&mut self, text: String) {
        let text = [Content::text(text)];
        match self.own.last_mut() {
            Some(Message::User(last)) => *last = joined(last, &text),
            Some(Message::Assistant(_) | Message::ToolResult(_)) | None => self.own.push(Message::User(text.into())),
        }
    }
}

impl From<Vec<Message>> for Messages {
    fn from(own: Vec<Message>) -> Self {
        Self { own, ..Self::default() }
    }
}

impl PartialEq for Messages {
    fn eq(&self, other: &Self) -> bool {
        self.iter().eq(other.iter())
    }
}
