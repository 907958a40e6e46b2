//! Makes the messages of entries legal: pairs results with calls, replaces what no provider takes.

use std::collections::HashSet;
use std::sync::Arc;

use super::render::{self, Said, joined};
use super::{CANCELLED_PLACEHOLDER, FAILED_PLACEHOLDER, NOT_RUN, Render, Runtime, SUMMARISED};
use crate::budget::{MESSAGE_TOKENS, message_tokens, text_tokens};
use crate::chat::{AssistantMessage, Content, Message, StopReason, ToolCall, ToolResult};
use crate::ids::ToolCallId;
use crate::transcript::{AssistantEntry, Entry, EntryKind};

/// All messages of a conversation in which no turn runs, repaired.
pub fn repair(path: &[&Entry]) -> Repaired {
    Render::default().repair(path, path.len())
}

// === impl Render ===

impl Render<'_> {
    /// All messages of a conversation, repaired. The entries from place `own_at` on are those of the running turn.
    pub fn repair(&self, path: &[&Entry], own_at: usize) -> Repaired {
        let (summary, kept) = since_boundary(path, own_at);
        let mut build = Build { runtime: self.runtime, ..Build::default() };
        for (at, Shown { entry, own }) in kept.iter().enumerate() {
            build.own = *own;
            match &entry.kind {
                EntryKind::User(user) if !user.is_command() => {
                    let said = Said { mark: user.mark.as_ref(), event: user.event.as_deref() };
                    build.user(&user.content, said);
                }
                EntryKind::Shown(content) => build.user(content, Said::default()),
                EntryKind::BranchSummary(summary) if !summary.trim().is_empty() => build.branch(summary),
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
        build.done(summary.map(Arc::from))
    }
}

/// Messages before they were cut to a budget.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Repaired {
    /// Oldest first.
    pub messages: Vec<Message>,
    /// Where those of the running turn begin.
    pub own_from: usize,
    /// Stands for what is not shown.
    pub summary: Option<Arc<str>>,
}

// === impl Repaired ===

impl Repaired {
    /// Tokens of the messages and of the summary.
    pub fn tokens(&self) -> u64 {
        let summary = self.summary.as_deref().map_or(0, |summary| MESSAGE_TOKENS + text_tokens(summary));
        self.messages.iter().map(message_tokens).fold(summary, u64::saturating_add)
    }
}

/// An entry that is shown, and whether it is the running turn's.
#[derive(Debug, Clone, Copy)]
struct Shown<'e> {
    entry: &'e Entry,
    own: bool,
}

/// What stands for the beginning of a conversation: what the latest boundary among these entries says, if there is one.
pub(super) fn boundary<'e>(path: &[&'e Entry]) -> Option<Boundary<'e>> {
    path.iter().enumerate().rev().find_map(|(at, entry)| match &entry.kind {
        EntryKind::Compaction { summary, first_kept } => {
            let summary = Some(summary.trim()).filter(|summary| !summary.is_empty());
            Some(Boundary { at, summary, first_kept })
        }
        EntryKind::Reset { first_kept } => Some(Boundary { at, summary: None, first_kept }),
        EntryKind::User(_)
        | EntryKind::Assistant(_)
        | EntryKind::ToolResult(_)
        | EntryKind::Shown(_)
        | EntryKind::BranchSummary(_)
        | EntryKind::Silent(_)
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => None,
    })
}

/// Where a conversation begins.
pub(super) struct Boundary<'e> {
    at: usize,
    /// In place of what was before.
    pub summary: Option<&'e str>,
    first_kept: &'e Option<Arc<str>>,
}

/// The summary that stands for the beginning, and the entries that are shown after it.
fn since_boundary<'e>(path: &[&'e Entry], own_at: usize) -> (Option<&'e str>, Vec<Shown<'e>>) {
    let shown = |(at, entry): (usize, &&'e Entry)| Shown { entry, own: at >= own_at };
    let all = path.iter().enumerate();
    let Some(Boundary { at, summary, first_kept }) = boundary(path) else {
        return (None, from_first_user(all.map(shown).collect()));
    };
    let before = path.get(..at).unwrap_or(&[]);
    let kept_from = first_kept.as_ref().and_then(|id| before.iter().position(|entry| is(entry, id))).unwrap_or(at);
    let entries: Vec<Shown<'_>> = all.skip(kept_from).filter(|(place, _)| *place != at).map(shown).collect();
    match summary {
        Some(_) => (summary, entries),
        None => (None, from_first_user(entries)),
    }
}

fn is(entry: &Entry, id: &Arc<str>) -> bool {
    entry.id == *id
}

/// Nothing but a user's message is a legal start.
fn from_first_user(mut entries: Vec<Shown<'_>>) -> Vec<Shown<'_>> {
    let legal = |shown: &Shown<'_>| match &shown.entry.kind {
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
struct Build<'a> {
    runtime: Option<Runtime<'a>>,
    /// Whether what comes next is the running turn's.
    own: bool,
    own_from: Option<usize>,
    messages: Vec<Message>,
    /// Call ids of the current user turn.
    ids: HashSet<Arc<str>>,
}

// === impl Build ===

impl Build<'_> {
    fn done(mut self, summary: Option<Arc<str>>) -> Repaired {
        if !matches!(self.messages.first(), None | Some(Message::User(_))) {
            self.messages.insert(0, Message::User([Content::text(SUMMARISED)].into()));
            self.own_from = self.own_from.map(|from| from + 1);
        }
        let own_from = self.own_from.unwrap_or(self.messages.len());
        Repaired { messages: self.messages, own_from, summary }
    }

    fn push(&mut self, message: Message) {
        if self.own {
            self.own_from.get_or_insert(self.messages.len());
        }
        self.messages.push(message);
    }

    /// Puts `whole`, of which the last message is the beginning, in the place of that.
    fn replace_last(&mut self, whole: Message) {
        self.messages.pop();
        self.push(whole);
    }

    fn user(&mut self, content: &Arc<[Content]>, said: Said<'_>) {
        let shown = render::user(content, self.own, self.runtime.as_ref(), said);
        self.say_of_user(shown);
    }

    fn branch(&mut self, summary: &str) {
        let summary = render::unforged(summary.trim());
        let text = format!("What happened in a branch that was left:\n<summary>\n{summary}\n</summary>");
        self.say_of_user(render::user(&Arc::from([Content::text(text)]), self.own, None, Said::default()));
    }

    fn say_of_user(&mut self, shown: Arc<[Content]>) {
        if let Some(Message::User(last)) = self.messages.last() {
            let whole = joined(last, &shown);
            self.replace_last(Message::User(whole));
            return;
        }
        self.ids.clear();
        self.push(Message::User(shown));
    }

    fn assistant(&mut self, entry: &AssistantEntry, rest: &[Shown<'_>]) {
        if entry.transcript_only {
            return;
        }
        let message = &render::imported(entry);
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
        let lead = if self.last_answer().is_some_and(|last| last.is_cut()) { "\n" } else { "" };
        self.say(Arc::new(AssistantMessage {
            usage: message.usage,
            asked_tokens: message.asked_tokens,
            ..AssistantMessage::new(format!("{lead}{text}"), Arc::clone(&message.provider), Arc::clone(&message.model))
        }));
    }

    fn answer(&mut self, message: &Arc<AssistantMessage>, rest: &[Shown<'_>]) {
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
            let name = render::tool_name(&call.name);
            let result = match found {
                Some(result) if self.own => Arc::clone(result),
                Some(result) => render::earlier(result),
                None => missing_result(call),
            };
            let same = result.call == id && result.name == name;
            let result = if same { result } else { renamed(&result, &id, &name) };
            results.push(Message::ToolResult(result));
            shown.calls.push(ToolCall { id, name: name.into_owned(), arguments: call.arguments.clone() });
        }
        self.say(Arc::new(shown));
        self.messages.append(&mut results);
    }

    /// The model's message, if one stands last.
    fn last_answer(&self) -> Option<&Arc<AssistantMessage>> {
        match self.messages.last() {
            Some(Message::Assistant(last)) => Some(last),
            Some(Message::User(_) | Message::ToolResult(_)) | None => None,
        }
    }

    /// Adds a message; it is one with that of the model which it follows.
    fn say(&mut self, message: Arc<AssistantMessage>) {
        let Some(begun) = self.last_answer() else {
            self.push(Message::Assistant(message));
            return;
        };
        let between = if begun.is_cut() || message.text.is_empty() { "" } else { "\n\n" };
        let whole = AssistantMessage {
            text: format!("{}{between}{}", begun.text, message.text),
            usage: begun.usage.plus(message.usage),
            asked_tokens: begun.asked_tokens + message.asked_tokens,
            ..AssistantMessage::clone(&message)
        };
        self.replace_last(Message::Assistant(Arc::new(whole)));
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
fn results_of<'e>(calls: &[&ToolCall], rest: &[Shown<'e>]) -> Vec<Option<&'e Arc<ToolResult>>> {
    let mut found: Vec<Option<&Arc<ToolResult>>> = vec![None; calls.len()];
    for Shown { entry, .. } in rest {
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
