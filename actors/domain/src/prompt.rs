//! What the model is told: the system prompt and the whole request of a model call.

use std::collections::HashSet;
use std::sync::Arc;

use crate::body::TurnBody;
use crate::ids::{ToolCallId, TurnId};
use crate::request::{ChatRequest, ToolSpec};
use crate::transcript::Entry;

/// A file of the workspace that is part of the system prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BootstrapFile {
    /// Its name: one of [`BOOTSTRAP_FILES`].
    pub name: String,
    /// Its text.
    pub content: String,
}

/// Names of these files, in prompt order.
pub const BOOTSTRAP_FILES: [&str; 4] = ["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md"];

/// What the system prompt is made of.
#[derive(Debug, Clone, Copy)]
pub struct SystemParts<'a> {
    /// The workspace directory.
    pub workspace: &'a str,
    /// Tools on offer.
    pub tools: &'a [ToolSpec],
    /// Bootstrap files that exist.
    pub bootstrap: &'a [BootstrapFile],
}

/// The system prompt.
pub fn system_prompt(parts: &SystemParts<'_>) -> String {
    parts.workspace.to_owned()
}

/// Which round of a turn is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Tools are on offer.
    Open,
    /// The tool rounds are used up: no tools, and the model is asked to sum up.
    Last,
}

/// Everything that one model call is made of.
#[derive(Debug, Clone, Copy)]
pub struct RequestParts<'a> {
    /// Model name.
    pub model: &'a Arc<str>,
    /// Upper bound of the answer.
    pub max_tokens: u32,
    /// Sampling temperature.
    pub temperature: f32,
    /// The model's window: prompt and answer together.
    pub context_window_tokens: u64,
    /// [`system_prompt`], made once.
    pub system: &'a str,
    /// Tools on offer.
    pub tools: &'a Arc<[ToolSpec]>,
    /// The conversation: [`crate::transcript::Transcript::path_to_leaf`].
    pub path: &'a [&'a Entry],
    /// The running turn.
    pub turn: TurnId,
    /// What it was asked.
    pub body: &'a TurnBody,
    /// Calls that were started and may have had an effect.
    pub started: &'a HashSet<ToolCallId>,
    /// Which round.
    pub round: Round,
}

/// Builds the request: same parts, same bytes.
pub fn chat_request(parts: &RequestParts<'_>) -> ChatRequest {
    ChatRequest {
        model: parts.model.clone(),
        system: parts.system.to_owned(),
        messages: Vec::new(),
        tools: parts.tools.clone(),
        max_tokens: parts.max_tokens,
        temperature: parts.temperature,
    }
}

/// Told to the user in place of an answer when a turn was given up.
pub fn dead_letter_notice(turn: TurnId, crashes: u32) -> String {
    format!("{turn} {crashes}")
}

/// Told to the user when a turn was cancelled.
pub const CANCELLED_NOTICE: &str = "Stopped before an answer was complete.";
/// Told to the user when the model answered nothing.
pub const EMPTY_ANSWER: &str = "The model gave no answer to this. Please try again, or say it differently.";
