//! Chat messages as Greenroom thinks of them: no wire or file format shows through here.
//! The transcript codec and the provider's wire modules translate.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ids::ToolCallId;

/// A piece of what a person (or a tool) said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Content {
    /// Plain text.
    Text {
        /// The text.
        text: String,
    },
    /// A picture.
    Image {
        /// Base64.
        data: Arc<str>,
        /// For example `image/png`.
        mime: String,
        /// The file in the media directory that it is; `None` if there is none.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        path: Option<Arc<str>>,
    },
}

impl Content {
    /// A text piece.
    pub fn text(text: impl Into<String>) -> Self {
        Self::Text { text: text.into() }
    }
}

/// One tool call of an assistant message.
#[derive(Debug, Clone, PartialEq)]
pub struct ToolCall {
    /// Pairs the call with its result.
    pub id: ToolCallId,
    /// Tool name as the model wrote it; may name no tool at all.
    pub name: String,
    /// What the model passed.
    pub arguments: Arguments,
}

/// The arguments of a tool call.
#[derive(Debug, Clone, PartialEq)]
pub enum Arguments {
    /// A JSON object.
    Object(Map<String, Value>),
    /// Text that is no JSON object; the tool error that answers the call quotes `problem`, not the text.
    Malformed {
        /// As received.
        text: String,
        /// What is wrong with it.
        problem: String,
    },
}

/// Token counts of one model call, or the sum of several.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Usage {
    /// Prompt tokens, cached ones included.
    pub input_tokens: u64,
    /// Completion tokens.
    pub output_tokens: u64,
    /// Prompt tokens that came from the provider's cache.
    pub cached_tokens: u64,
}

impl Usage {
    /// Sums two counts.
    pub fn plus(self, other: Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_add(other.input_tokens),
            output_tokens: self.output_tokens.saturating_add(other.output_tokens),
            cached_tokens: self.cached_tokens.saturating_add(other.cached_tokens),
        }
    }
}

/// Why the model stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum StopReason {
    /// It was done.
    Stop,
    /// It ran into its token limit.
    Length,
    /// It wants tools to run.
    ToolUse,
    /// The call failed, or the turn was given up.
    Error,
    /// The turn was cancelled.
    Aborted,
}

/// What a model answered.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantMessage {
    /// The visible text.
    pub text: String,
    /// Reasoning text, as the provider gave it.
    pub reasoning: Option<String>,
    /// Tool calls in the model's order.
    pub calls: Vec<ToolCall>,
    /// Why it ended.
    pub stop: StopReason,
    /// Tokens of this call.
    pub usage: Usage,
    /// How many its request was estimated to have, by [`crate::budget`]; 0 if that is not known.
    pub asked_tokens: u64,
    /// Provider name as configured.
    pub provider: Arc<str>,
    /// Model name.
    pub model: Arc<str>,
    /// For [`StopReason::Error`]: what a user may be told.
    pub error: Option<String>,
}

// === impl AssistantMessage ===

impl AssistantMessage {
    /// A whole answer of nothing but this text; what it cost is not known.
    pub fn new(text: impl Into<String>, provider: impl Into<Arc<str>>, model: impl Into<Arc<str>>) -> Self {
        Self {
            text: text.into(),
            reasoning: None,
            calls: Vec::new(),
            stop: StopReason::Stop,
            usage: Usage::default(),
            asked_tokens: 0,
            provider: provider.into(),
            model: model.into(),
            error: None,
        }
    }

    /// Whether it is the beginning of an answer that ran into the token limit.
    pub fn is_cut(&self) -> bool {
        self.stop == StopReason::Length && self.calls.is_empty()
    }
}

/// The result of one tool call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResult {
    /// The call it answers.
    pub call: ToolCallId,
    /// Name of the tool.
    pub name: String,
    /// What the model is shown.
    pub content: Vec<Content>,
    /// Whether it failed.
    pub is_error: bool,
}

/// A message of a conversation; shares what it says with the transcript entry that it was made of.
#[derive(Debug, Clone, PartialEq)]
pub enum Message {
    /// From a person.
    User(Arc<[Content]>),
    /// From the model.
    Assistant(Arc<AssistantMessage>),
    /// From a tool.
    ToolResult(Arc<ToolResult>),
}

/// The texts among `content`, joined by newlines.
pub fn plain_text(content: &[Content]) -> String {
    let mut out = String::new();
    for piece in content {
        if let Content::Text { text } = piece {
            if !out.is_empty() {
                out.push('\n');
            }
            out.push_str(text);
        }
    }
    out
}
