//! From the entries of a conversation to the messages that a model may be shown. What is stored is never changed.
//!
//! **Invariant:** the messages begin with a user's; every assistant message with calls is followed at once by exactly
//! one result for each call, in the order of the calls; within a user turn no two calls share an id.
//!
//! | in the transcript | shown |
//! |---|---|
//! | a call without result, known to have started | a result that says the outcome is unknown |
//! | a call without result otherwise | a result that says it was not run |
//! | a result without call, or a second one for a call | nothing |
//! | a call without name | nothing, and nothing of its result |
//! | a failed or cancelled assistant message | its text, if cancelled, and a short note in place of the rest |
//! | the latest compaction | its summary, then the entries that it keeps |
//! | the latest reset | only the entries that it keeps, and what follows |

use std::collections::HashSet;
use std::sync::Arc;

use crate::budget::message_tokens;
use crate::chat::{AssistantMessage, Content, Message, StopReason, ToolCall, ToolResult};
use crate::ids::ToolCallId;
use crate::transcript::{AssistantEntry, Entry, EntryKind};

/// Answers a call that had started when its turn was cut.
pub const OUTCOME_UNKNOWN: &str = "This call was interrupted while it ran. Its outcome is unknown: it may have taken \
    effect fully, partly or not at all. Check before you repeat it.";
/// Answers a call that never started.
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
    pub messages: Vec<Message>,
    /// Their tokens, by the estimate of [`crate::budget`].
    pub tokens: u64,
    /// How many of the conversation's user turns were left out to keep the budget.
    pub turns_left_out: usize,
}

/// Selects what fits in `budget_tokens`, newest first; `started` are calls that may have had an effect without a
/// result. The newest user turn is always there, even if it alone is over the budget.
pub fn select(path: &[&Entry], started: &HashSet<ToolCallId>, budget_tokens: u64) -> History {
    cut(repair(path, started), budget_tokens)
}

/// All messages of a conversation, repaired.
pub fn repair(path: &[&Entry], started: &HashSet<ToolCallId>) -> Repaired {
    let (summary, kept) = since_boundary(path);
    let mut build = Build { started, out: Repaired::default(), ids: HashSet::new() };
    if let Some(summary) = summary {
        build.user(vec![Content::text(summary_text("The conversation before this point, in short", summary))]);
        build.out.summarised = true;
    }
    for (at, entry) in kept.iter().enumerate() {
        match &entry.kind {
            EntryKind::User(user) => build.user(user.content.clone()),
            EntryKind::Shown(content) => build.user(content.clone()),
            EntryKind::BranchSummary(summary) if !summary.trim().is_empty() => {
                build.user(vec![Content::text(summary_text("What happened in a branch that was left", summary))]);
            }
            EntryKind::Assistant(assistant) => build.assistant(assistant, kept.get(at + 1..).unwrap_or(&[])),
            // Results stand right behind their calls already.
            EntryKind::ToolResult(_)
            | EntryKind::BranchSummary(_)
            | EntryKind::Compaction { .. }
            | EntryKind::Reset { .. }
            | EntryKind::Silent
            | EntryKind::Leaf { .. }
            | EntryKind::Opaque { .. } => {}
        }
    }
    build.out
}

/// Messages before they were cut to a budget.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Repaired {
    /// Oldest first.
    pub messages: Vec<Message>,
    /// Whether the first of them is a summary of what is not shown.
    pub summarised: bool,
}

/// Keeps the newest user turns that fit. A summary at the start stays if it fits beside the newest turn.
pub fn cut(repaired: Repaired, budget_tokens: u64) -> History {
    let Repaired { mut messages, summarised } = repaired;
    let summary = (summarised && !messages.is_empty()).then(|| messages.remove(0));
    let mut turns: Vec<(usize, u64)> = Vec::new();
    for (at, message) in messages.iter().enumerate() {
        let tokens = message_tokens(message);
        match (message, turns.last_mut()) {
            (Message::User(_), _) | (_, None) => turns.push((at, tokens)),
            (Message::Assistant(_) | Message::ToolResult(_), Some(turn)) => turn.1 += tokens,
        }
    }
    let summary_tokens = summary.as_ref().map_or(0, message_tokens);
    let newest = turns.last().map_or(0, |turn| turn.1);
    // What follows a summary before the first user message hangs on it.
    let has_user = messages.iter().any(|message| matches!(message, Message::User(_)));
    let summary = summary.filter(|_| newest.saturating_add(summary_tokens) <= budget_tokens || !has_user);
    let mut tokens = summary.as_ref().map_or(0, message_tokens);
    let (mut first, mut left_out) = (messages.len(), turns.len());
    for (at, turn_tokens) in turns.iter().rev() {
        let sum = tokens.saturating_add(*turn_tokens);
        if sum > budget_tokens && left_out < turns.len() {
            break;
        }
        (tokens, first, left_out) = (sum, *at, left_out - 1);
    }
    messages.drain(..first);
    // Without its summary, a turn that was cut in the middle has no legal start.
    if summary.is_none() {
        let illegal = messages.iter().take_while(|message| !matches!(message, Message::User(_))).count();
        tokens -= messages.drain(..illegal).map(|message| message_tokens(&message)).sum::<u64>();
    }
    if let Some(summary) = summary {
        messages.insert(0, summary);
    }
    History { messages, tokens, turns_left_out: left_out }
}

/// The summary that stands for the beginning, and the entries that are shown after it.
fn since_boundary<'e>(path: &[&'e Entry]) -> (Option<&'e str>, Vec<&'e Entry>) {
    let boundary = path.iter().enumerate().rev().find_map(|(at, entry)| match &entry.kind {
        EntryKind::Compaction { summary, first_kept } => Some((at, Some(summary.as_str()), first_kept)),
        EntryKind::Reset { first_kept } => Some((at, None, first_kept)),
        EntryKind::User(_)
        | EntryKind::Assistant(_)
        | EntryKind::ToolResult(_)
        | EntryKind::Shown(_)
        | EntryKind::BranchSummary(_)
        | EntryKind::Silent
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque { .. } => None,
    });
    let Some((at, summary, first_kept)) = boundary else {
        return (None, from_first_user(path.to_vec()));
    };
    let before = path.get(..at).unwrap_or(&[]);
    let kept_from = first_kept.as_ref().and_then(|id| before.iter().position(|entry| is(entry, id)));
    let kept = kept_from.and_then(|from| before.get(from..)).unwrap_or(&[]);
    let entries: Vec<&Entry> = kept.iter().chain(path.get(at + 1..).unwrap_or(&[])).copied().collect();
    match summary.filter(|summary| !summary.trim().is_empty()) {
        Some(summary) => (Some(summary), entries),
        None => (None, from_first_user(entries)),
    }
}

fn is(entry: &Entry, id: &Arc<str>) -> bool {
    entry.id == *id
}

/// Nothing but a user's message is a legal start.
fn from_first_user(mut entries: Vec<&Entry>) -> Vec<&Entry> {
    let legal = |entry: &&Entry| match &entry.kind {
        EntryKind::User(_) | EntryKind::Shown(_) => true,
        EntryKind::BranchSummary(summary) => !summary.trim().is_empty(),
        EntryKind::Assistant(_)
        | EntryKind::ToolResult(_)
        | EntryKind::Compaction { .. }
        | EntryKind::Reset { .. }
        | EntryKind::Silent
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque { .. } => false,
    };
    let first = entries.iter().position(legal).unwrap_or(entries.len());
    entries.drain(..first);
    entries
}

fn summary_text(lead: &str, summary: &str) -> String {
    format!("{lead}:\n<summary>\n{}\n</summary>", summary.trim())
}

struct Build<'a> {
    started: &'a HashSet<ToolCallId>,
    out: Repaired,
    /// Call ids of the current user turn.
    ids: HashSet<Arc<str>>,
}

// === impl Build ===

impl Build<'_> {
    fn user(&mut self, mut content: Vec<Content>) {
        let blank = |piece: &Content| match piece {
            Content::Text { text } => text.trim().is_empty(),
            Content::Image { .. } => false,
        };
        content.retain(|piece| !blank(piece));
        if content.is_empty() {
            content.push(Content::text(EMPTY_MESSAGE));
        }
        self.ids.clear();
        self.out.messages.push(Message::User(content));
    }

    fn assistant(&mut self, entry: &AssistantEntry, rest: &[&Entry]) {
        if entry.transcript_only {
            return;
        }
        let message = &entry.message;
        match message.stop {
            StopReason::Error => self.placeholder(message, FAILED_PLACEHOLDER.to_owned()),
            StopReason::Aborted => {
                let text = match message.text.trim() {
                    "" => CANCELLED_PLACEHOLDER.to_owned(),
                    partial => format!("{partial}\n{CANCELLED_PLACEHOLDER}"),
                };
                self.placeholder(message, text);
            }
            StopReason::Stop | StopReason::Length | StopReason::ToolUse => self.answer(message, rest),
        }
    }

    fn placeholder(&mut self, message: &AssistantMessage, text: String) {
        self.out.messages.push(Message::Assistant(AssistantMessage {
            text,
            reasoning: None,
            calls: Vec::new(),
            stop: StopReason::Stop,
            error: None,
            ..message.clone()
        }));
    }

    fn answer(&mut self, message: &AssistantMessage, rest: &[&Entry]) {
        let named: Vec<&ToolCall> = message.calls.iter().filter(|call| !call.name.trim().is_empty()).collect();
        if named.is_empty() && message.text.trim().is_empty() {
            return;
        }
        let found = results_of(&named, rest);
        let mut shown = AssistantMessage { calls: Vec::with_capacity(named.len()), ..without_calls(message) };
        let mut results = Vec::with_capacity(named.len());
        for (call, found) in named.into_iter().zip(found) {
            let id = self.unused_id(&call.id);
            let result = found.cloned().unwrap_or_else(|| self.missing_result(call));
            results.push(Message::ToolResult(ToolResult { call: id.clone(), name: call.name.clone(), ..result }));
            shown.calls.push(ToolCall { id, ..call.clone() });
        }
        self.out.messages.push(Message::Assistant(shown));
        self.out.messages.append(&mut results);
    }

    fn missing_result(&self, call: &ToolCall) -> ToolResult {
        let text = if self.started.contains(&call.id) { OUTCOME_UNKNOWN } else { NOT_RUN };
        ToolResult {
            call: call.id.clone(),
            name: call.name.clone(),
            content: vec![Content::text(text)],
            is_error: true,
        }
    }

    /// Some models count their calls anew in each message.
    fn unused_id(&mut self, id: &ToolCallId) -> ToolCallId {
        let wanted: Arc<str> = if id.0.is_empty() { "call".into() } else { id.0.clone() };
        let mut unused = wanted.clone();
        let mut number = 2_u64;
        while !self.ids.insert(unused.clone()) {
            unused = format!("{wanted}_{number}").into();
            number += 1;
        }
        ToolCallId(unused)
    }
}

fn without_calls(message: &AssistantMessage) -> AssistantMessage {
    AssistantMessage {
        text: message.text.clone(),
        reasoning: message.reasoning.clone(),
        calls: Vec::new(),
        stop: message.stop,
        usage: message.usage,
        provider: message.provider.clone(),
        model: message.model.clone(),
        error: message.error.clone(),
    }
}

/// For each call its first result among what follows, up to the next assistant message.
fn results_of<'e>(calls: &[&ToolCall], rest: &[&'e Entry]) -> Vec<Option<&'e ToolResult>> {
    let mut found: Vec<Option<&ToolResult>> = vec![None; calls.len()];
    for entry in rest {
        if entry.assistant().is_some_and(|assistant| !assistant.transcript_only) {
            break;
        }
        let Some(result) = entry.tool_result() else { continue };
        let open = |(call, slot): &(&&ToolCall, &mut Option<_>)| slot.is_none() && call.id == result.result.call;
        if let Some((_, slot)) = calls.iter().zip(&mut found).find(open) {
            *slot = Some(&result.result);
        }
    }
    found
}

#[cfg(test)]
mod tests;
