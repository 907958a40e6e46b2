//! The whole request of a model call.

use std::sync::Arc;

use super::past::recent_history;
use super::{Frame, Nudge, Past};
use crate::body::{ContextRole, HistorySource, TurnBody};
use crate::budget::{Ratio, budget, message_tokens, text_tokens};
use crate::chat::{AssistantMessage, Content, Message, StopReason, Usage};
use crate::history::{self, Kept};
use crate::ids::TurnId;
use crate::request::{ChatRequest, SYSTEM_SEPARATOR, ToolChoice};
use crate::transcript::{AssistantEntry, Entry, EntryKind, Head, Transcript, UserEntry};

/// Told to the model when its tool rounds are used up.
pub const LAST_ROUND_INSTRUCTION: &str = "You have used all tool rounds of this turn, so no tool can be called now. \
    Answer with what you know: what was done, what was found, and what is still open.";

/// Which round of a turn is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Tools are on offer.
    Open,
    /// No tool may be called: the rounds are used up, and the model is asked to sum up, or the nudge says why.
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
    /// The most tokens that a request is to have, if less than the window allows.
    pub context_block_limit: Option<u64>,
    /// System prompt and tools.
    pub frame: &'a Frame,
    /// What was kept of earlier conversations of the session.
    pub past: &'a [&'a Past],
    /// The conversation.
    pub transcript: &'a Transcript,
    /// The running turn.
    pub turn: TurnId,
    /// What it was asked.
    pub body: &'a TurnBody,
    /// Which round.
    pub round: Round,
    /// What is told to the model last, if not what the round says.
    pub nudge: Option<&'a Nudge>,
    /// Whether the conversation begins anew with this turn, which the transcript does not say yet.
    pub begins_anew: bool,
}

/// A request, and how it fits.
#[derive(Debug, Clone, PartialEq)]
pub struct Built {
    /// It.
    pub request: ChatRequest,
    /// About how many tokens it has.
    pub tokens: u64,
    /// The most that it was to have, counted in the same way. More only where the running turn alone has more.
    pub budget: u64,
    /// How many of the conversation's user turns were left out to keep the budget.
    pub turns_left_out: usize,
}

/// Builds the request. If the running turn has no user entry in the transcript (it repeats one that was given up), its
/// body is shown in that place. `kept` belongs to the transcript.
pub fn chat_request(parts: &RequestParts<'_>, kept: &mut Kept) -> Built {
    let system_tail = system_tail(parts);
    let (choice, told) = match parts.round {
        Round::Open => (ToolChoice::Auto, None),
        Round::Last => (ToolChoice::None, Some(LAST_ROUND_INSTRUCTION.to_owned())),
    };
    let told = parts.nudge.map(Nudge::text).or(told);
    let instruction = told.map(|text| Message::User([Content::text(text)].into()));
    let tail_tokens = system_tail.as_ref().map_or(0, |tail| text_tokens(SYSTEM_SEPARATOR) + text_tokens(tail));
    let asked = parts.frame.tokens + tail_tokens + instruction.as_ref().map_or(0, message_tokens);
    let replies = parts.transcript.entries().iter().rev().filter_map(Entry::assistant);
    let budget = Ratio::of(replies.map(|reply| &*reply.message)).estimated(budget(
        parts.context_window_tokens,
        parts.max_tokens,
        parts.context_block_limit,
    ));
    let room = budget.saturating_sub(asked);
    let own = kept.follow(parts.transcript, parts.turn);
    let added = added_entries(parts, &own);
    let tail: Vec<&Entry> = added.iter().chain(own).collect();
    let mut history = match parts.body.history {
        HistorySource::Session if !parts.begins_anew => kept.select(parts.transcript, parts.turn, &tail, room),
        HistorySource::Session | HistorySource::Request => history::select(&tail, room),
    };
    instruction.into_iter().for_each(|message| history.messages.push(message));
    let tokens = asked + history.tokens;
    let request = ChatRequest {
        model: Arc::clone(parts.model),
        system: Arc::clone(&parts.frame.system),
        system_tail: system_tail.map(Arc::from),
        messages: history.messages,
        tools: Arc::clone(&parts.frame.tools),
        choice,
        effort: None,
        tokens,
        max_tokens: parts.max_tokens,
        temperature: parts.temperature,
    };
    Built { request, tokens, budget, turns_left_out: history.turns_left_out }
}

/// What belongs to this session or request alone.
fn system_tail(parts: &RequestParts<'_>) -> Option<String> {
    let recent = match parts.body.history {
        HistorySource::Session if !parts.past.is_empty() => recent_history(parts.past, summary(parts.transcript)),
        HistorySource::Session | HistorySource::Request => None,
    };
    let own = parts.body.context.iter().filter(|message| message.role == ContextRole::System);
    let texts: Vec<&str> = own.map(|message| message.text.trim()).collect();
    let own = (!texts.is_empty()).then(|| format!("# Instructions for this request\n\n{}", texts.join("\n\n")));
    let all: Vec<String> = recent.into_iter().chain(own).collect();
    (!all.is_empty()).then(|| all.join(SYSTEM_SEPARATOR))
}

/// What stands in the conversation for its beginning.
fn summary(transcript: &Transcript) -> Option<&str> {
    let boundary = |entry: &Entry| matches!(entry.kind, EntryKind::Compaction { .. } | EntryKind::Reset { .. });
    match &transcript.entries().iter().rev().find(|entry| boundary(entry))?.kind {
        EntryKind::Compaction { summary, .. } => Some(summary.as_str()),
        EntryKind::Reset { .. }
        | EntryKind::User(_)
        | EntryKind::Assistant(_)
        | EntryKind::ToolResult(_)
        | EntryKind::Shown(_)
        | EntryKind::BranchSummary(_)
        | EntryKind::Silent(_)
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => None,
    }
}

/// Entries that are only in the request: its context, and its message if the transcript has it not under this turn.
fn added_entries(parts: &RequestParts<'_>, own: &[&Entry]) -> Vec<Entry> {
    let mut added = Vec::new();
    for message in &parts.body.context {
        match message.role {
            ContextRole::System => {}
            ContextRole::User => added.push(user_entry([Content::text(message.text.as_str())].into())),
            ContextRole::Assistant => added.push(assistant_entry(&message.text, parts.model)),
        }
    }
    let said = |entry: &&Entry| entry.user().is_some() && entry.turn() == Some(parts.turn);
    if !own.iter().any(said) {
        added.push(user_entry(Arc::clone(&parts.body.content)));
    }
    added
}

fn user_entry(content: Arc<[Content]>) -> Entry {
    Entry::new(nowhere(), EntryKind::User(UserEntry { content, mark: None }))
}

pub(super) fn assistant_entry(text: &str, model: &Arc<str>) -> Entry {
    let message = AssistantMessage {
        text: text.to_owned(),
        reasoning: None,
        calls: Vec::new(),
        stop: StopReason::Stop,
        usage: Usage::default(),
        asked_tokens: 0,
        provider: Arc::from("request"),
        model: model.clone(),
        error: None,
    };
    let entry = AssistantEntry { message: message.into(), turn: None, end: None, transcript_only: false };
    Entry::new(nowhere(), EntryKind::Assistant(Box::new(entry)))
}

fn nowhere() -> Head {
    Head { id: Arc::from(""), parent: None, timestamp_ms: 0 }
}
