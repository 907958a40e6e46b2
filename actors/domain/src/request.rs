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
    pub system: String,
    /// The conversation, oldest first.
    pub messages: Vec<Message>,
    /// Tools on offer, in a fixed order; empty forbids tool calls.
    pub tools: Arc<[ToolSpec]>,
    /// Upper bound of the answer, in tokens.
    pub max_tokens: u32,
    /// Sampling temperature.
    pub temperature: f32,
}
