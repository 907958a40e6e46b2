//! Makes the messages of entries legal: pairs results with calls, replaces what no provider takes.

use std::collections::HashSet;
use std::sync::Arc;

use super::{CANCELLED_PLACEHOLDER, EMPTY_MESSAGE, FAILED_PLACEHOLDER, NOT_RUN};
use crate::chat::{AssistantMessage, Content, Message, StopReason, ToolCall, ToolResult};
use crate::ids::ToolCallId;
use crate::transcript::{AssistantEntry, Entry, EntryKind};

/// All messages of a conversation, repaired.
pub fn repair(path: &[&Entry]) -> Repaired {
    let (summary, kept) = since_boundary(path);
    let mut build = Build::default();
    if let Some(summary) = summary {
        build.summary("The conversation before this point, in short", summary);
        build.out.summarised = true;
    }
    for (at, entry) in kept.iter().enumerate() {
        match &entry.kind {
            EntryKind::User(user) if !user.is_command() => build.user(&user.content),
            EntryKind::Shown(content) => build.user(content),
            EntryKind::BranchSummary(summary) if !summary.trim().is_empty() => {
                build.summary("What happened in a branch that was left", summary);
            }
            EntryKind::Assistant(assistant) => build.assistant(assistant, kept.get(at + 1..).unwrap_or(&[])),
            // Results stand right behind their calls already.
            EntryKind::ToolResult(_)
            | EntryKind::User(_)
            | EntryKind::BranchSummary(_)
            | EntryKind::Compaction { .. }
            | EntryKind::Reset { .. }
            | EntryKind::Silent(_)
            | EntryKind::Leaf { .. }
            | EntryKind::Opaque => {}
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
        | EntryKind::Silent(_)
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => None,
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
        EntryKind::User(user) => !user.is_command(),
        EntryKind::Shown(_) => true,
        EntryKind::BranchSummary(summary) => !summary.trim().is_empty(),
        EntryKind::Assistant(_)
        | EntryKind::ToolResult(_)
        | EntryKind::Compaction { .. }
        | EntryKind::Reset { .. }
        | EntryKind::Silent(_)
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => false,
    };
    let first = entries.iter().position(legal).unwrap_or(entries.len());
    entries.drain(..first);
    entries
}

#[derive(Default)]
struct Build {
    out: Repaired,
    /// Call ids of the current user turn.
    ids: HashSet<Arc<str>>,
}

// === impl Build ===

impl Build {
    fn user(&mut self, content: &Arc<[Content]>) {
        let said = |piece: &&Content| match piece {
            Content::Text { text } => !text.trim().is_empty(),
            Content::Image { .. } => true,
        };
        let shown = match content.iter().filter(said).count() {
            0 => Arc::from([Content::text(EMPTY_MESSAGE)]),
            all if all == content.len() => Arc::clone(content),
            _ => content.iter().filter(said).cloned().collect(),
        };
        self.ids.clear();
        self.out.messages.push(Message::User(shown));
    }

    fn summary(&mut self, lead: &str, summary: &str) {
        let text = format!("{lead}:\n<summary>\n{}\n</summary>", summary.trim());
        self.user(&Arc::from([Content::text(text)]));
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
        let lead = if self.cut().is_some() { "\n" } else { "" };
        self.say(Arc::new(AssistantMessage {
            text: format!("{lead}{text}"),
            reasoning: None,
            calls: Vec::new(),
            stop: StopReason::Stop,
            usage: message.usage,
            asked_tokens: message.asked_tokens,
            provider: Arc::clone(&message.provider),
            model: Arc::clone(&message.model),
            error: None,
        }));
    }

    fn answer(&mut self, message: &Arc<AssistantMessage>, rest: &[&Entry]) {
        if message.calls.is_empty() {
            if !message.text.trim().is_empty() {
                self.say(Arc::clone(message));
            }
            return;
        }
        let named: Vec<&ToolCall> = message.calls.iter().filter(|call| !call.name.trim().is_empty()).collect();
        if named.is_empty() && message.text.trim().is_empty() {
            return;
        }
        let found = results_of(&named, rest);
        let mut shown = AssistantMessage { calls: Vec::with_capacity(named.len()), ..without_calls(message) };
        let mut results = Vec::with_capacity(named.len());
        for (call, found) in named.into_iter().zip(found) {
            let id = self.unused_id(&call.id);
            let result = found.cloned().unwrap_or_else(|| missing_result(call));
            let same = result.call == id && result.name == call.name;
            let result = if same { result } else { renamed(&result, &id, &call.name) };
            results.push(Message::ToolResult(result));
            shown.calls.push(ToolCall { id, ..call.clone() });
        }
        self.say(Arc::new(shown));
        self.out.messages.append(&mut results);
    }

    /// The beginning of an answer that was cut, if that stands last.
    fn cut(&self) -> Option<&Arc<AssistantMessage>> {
        match self.out.messages.last() {
            Some(Message::Assistant(last)) if last.is_cut() => Some(last),
            Some(Message::Assistant(_) | Message::User(_) | Message::ToolResult(_)) | None => None,
        }
    }

    /// Adds a message; it is one with the beginning of its answer.
    fn say(&mut self, message: Arc<AssistantMessage>) {
        let Some(begun) = self.cut() else {
            self.out.messages.push(Message::Assistant(message));
            return;
        };
        let whole = AssistantMessage {
            text: format!("{}{}", begun.text, message.text),
            usage: begun.usage.plus(message.usage),
            asked_tokens: begun.asked_tokens + message.asked_tokens,
            ..AssistantMessage::clone(&message)
        };
        self.out.messages.pop();
        self.out.messages.push(Message::Assistant(Arc::new(whole)));
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
        asked_tokens: message.asked_tokens,
        provider: message.provider.clone(),
        model: message.model.clone(),
        error: message.error.clone(),
    }
}

fn missing_result(call: &ToolCall) -> Arc<ToolResult> {
    let content = vec![Content::text(NOT_RUN)];
    Arc::new(ToolResult { call: call.id.clone(), name: call.name.clone(), content, is_error: true })
}

fn renamed(result: &ToolResult, call: &ToolCallId, name: &str) -> Arc<ToolResult> {
    let content = result.content.clone();
    Arc::new(ToolResult { call: call.clone(), name: name.to_owned(), content, is_error: result.is_error })
}

/// For each call its first result among what follows, up to the next assistant message.
fn results_of<'e>(calls: &[&ToolCall], rest: &[&'e Entry]) -> Vec<Option<&'e Arc<ToolResult>>> {
    let mut found: Vec<Option<&Arc<ToolResult>>> = vec![None; calls.len()];
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
