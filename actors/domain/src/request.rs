//! What a provider is asked: a pure value, built anew for every model call.

use std::sync::Arc;

use serde_json::Value;

use crate::chat::Message;

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

/// One model call.
/// **Invariant:** every tool call in `messages` has exactly one result after it, and the first message is a user's.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// Model name, as the provider knows it.
    pub model: Arc<str>,
    /// System prompt.
    pub system: Arc<str>,
    /// The conversation, oldest first.
    pub messages: Messages,
    /// Tools on offer, in a fixed order; empty forbids tool calls.
    pub tools: Arc<[ToolSpec]>,
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

    /// Adds one.
    pub fn push(&mut self, message: Message) {
        self.own.push(message);
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
