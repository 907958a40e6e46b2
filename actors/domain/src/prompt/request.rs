//! The whole request of a model call.

use std::sync::Arc;

use super::past::recent_history;
use super::{Frame, Nudge, Past};
use crate::body::{ContextRole, HistorySource, TurnBody};
use crate::budget::{MESSAGE_TOKENS, Ratio, budget, text_tokens};
use crate::chat::{AssistantMessage, Content};
use crate::goal::Goal;
use crate::history::{Kept, Place, Render, unforged};
use crate::ids::TurnId;
use crate::request::{ChatRequest, SYSTEM_SEPARATOR, ToolChoice};
use crate::transcript::{AssistantEntry, Entry, EntryKind, Head, Transcript, UserEntry, UserMark};

/// Told to the model when its tool rounds are used up.
pub const LAST_ROUND_INSTRUCTION: &str = "You have used all tool rounds of this turn, so no tool can be called now. \
    Answer with what you know: what was done, what was found, and what is still open.";

/// Stands above the summary of what the messages no longer say.
const SUMMARY_HEADING: &str = "[Archived Context Summary]";

/// Which round of a turn is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Round {
    /// Tools are on offer.
    Open,
    /// No tool may be called: the rounds are used up, and the model is asked to sum up, or the nudge says why.
    Last,
    /// No tool may be called, and nothing is told besides the message itself: it asks for a summary of the conversation.
    Archive,
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
    /// How hard the model is to think, in the provider's word.
    pub effort: Option<&'a Arc<str>>,
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
    /// What the session works on.
    pub goal: Option<&'a Goal>,
    /// Which round.
    pub round: Round,
    /// What is told to the model last, if not what the round says.
    pub nudge: Option<&'a Nudge>,
    /// How the conversation is shown.
    pub render: Render<'a>,
    /// What ties the running turn to its message; `None` if it came through no door.
    pub mark: Option<&'a UserMark>,
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
    let Render { runtime, trim } = parts.render;
    let own = kept.follow(parts.transcript, parts.turn, &parts.render);
    let is_whole = parts.body.history == HistorySource::Session && !parts.begins_anew;
    let summary = if is_whole { kept.summary(&own) } else { None };
    let system_tail = system_tail(parts, summary);
    let (choice, told) = match parts.round {
        Round::Open => (ToolChoice::Auto, None),
        Round::Last => (ToolChoice::None, Some(LAST_ROUND_INSTRUCTION.to_owned())),
        Round::Archive => (ToolChoice::None, None),
    };
    let told = parts.nudge.map(Nudge::text).or(told);
    let tail_tokens = system_tail.as_ref().map_or(0, |tail| text_tokens(SYSTEM_SEPARATOR) + text_tokens(tail));
    let instruction_tokens = told.as_deref().map_or(0, |text| MESSAGE_TOKENS + text_tokens(text) + 1);
    let asked = parts.frame.tokens + tail_tokens + instruction_tokens;
    let replies = parts.transcript.entries().iter().rev().filter_map(Entry::assistant);
    let budget = Ratio::of(replies.map(|reply| &*reply.message)).estimated(budget(
        parts.context_window_tokens,
        parts.max_tokens,
        parts.context_block_limit,
    ));
    let room = budget.saturating_sub(asked);
    let (added, own_at) = added_entries(parts, &own);
    let tail: Vec<&Entry> = added.iter().chain(own.iter().copied()).collect();
    let mut history = if is_whole {
        let place = Place { transcript: parts.transcript, turn: parts.turn, render: &parts.render };
        kept.select(place, &tail, own_at, room)
    } else {
        // A client that brings its own history says what it wants to say.
        let runtime = runtime.filter(|_| parts.body.history == HistorySource::Session);
        Render { runtime, trim }.select(&tail, own_at, room)
    };
    if let Some(text) = told {
        history.messages.push_text(text);
    }
    let tokens = asked + history.tokens;
    let request = ChatRequest {
        model: Arc::clone(parts.model),
        system: Arc::clone(&parts.frame.system),
        system_tail: system_tail.map(Arc::from),
        messages: history.messages,
        tools: Arc::clone(&parts.frame.tools),
        choice,
        effort: parts.effort.cloned(),
        tokens,
        max_tokens: parts.max_tokens,
        temperature: parts.temperature,
    };
    Built { request, tokens, budget, turns_left_out: history.turns_left_out }
}

/// What belongs to this session or request alone.
fn system_tail(parts: &RequestParts<'_>, summary: Option<&str>) -> Option<String> {
    let recent = match parts.body.history {
        HistorySource::Session if !parts.past.is_empty() => recent_history(parts.past, summary),
        HistorySource::Session | HistorySource::Request => None,
    };
    let own = parts.body.context.iter().filter(|message| message.role == ContextRole::System);
    let texts: Vec<&str> = own.map(|message| message.text.trim()).collect();
    let own = (!texts.is_empty()).then(|| format!("# Instructions for this request\n\n{}", texts.join("\n\n")));
    let summary = summary.map(|summary| format!("{SUMMARY_HEADING}\n\n{summary}"));
    let goal = parts.goal.map(Goal::instruction);
    let all: Vec<String> = recent.into_iter().chain(summary).chain(goal).chain(own).collect();
    // Much of it repeats what others said.
    (!all.is_empty()).then(|| unforged(&all.join(SYSTEM_SEPARATOR)))
}

/// Entries that are only in the request: its context, and its message if the transcript has it not under this turn.
/// And how many of them are context.
fn added_entries(parts: &RequestParts<'_>, own: &[&Entry]) -> (Vec<Entry>, usize) {
    let mut added = Vec::new();
    for message in &parts.body.context {
        match message.role {
            ContextRole::System => {}
            ContextRole::User => added.push(user_entry([Content::text(message.text.as_str())].into(), None)),
            ContextRole::Assistant => added.push(assistant_entry(&message.text, parts.model)),
        }
    }
    let context = added.len();
    let said = |entry: &&Entry| entry.user().is_some() && entry.turn() == Some(parts.turn);
    if !own.iter().any(said) {
        let (content, mark) = (Arc::clone(&parts.body.content), parts.mark.cloned());
        let user = UserEntry { content, mark, event: parts.body.event.clone() };
        added.push(Entry::new(nowhere(), EntryKind::User(user)));
    }
    (added, context)
}

fn user_entry(content: Arc<[Content]>, mark: Option<UserMark>) -> Entry {
    Entry::new(nowhere(), EntryKind::User(UserEntry { content, mark, event: None }))
}

pub(super) fn assistant_entry(text: &str, model: &Arc<str>) -> Entry {
    let message = AssistantMessage::new(text, "request", model.clone());
    let entry = AssistantEntry { message: message.into(), turn: None, end: None, transcript_only: false };
    Entry::new(nowhere(), EntryKind::Assistant(Box::new(entry)))
}

fn nowhere() -> Head {
    Head { id: Arc::from(""), parent: None, timestamp_ms: 0 }
}
