//! The messages of a conversation, made of its entries once and kept while it grows.
//!
//! Requests share them, so that the cost of one does not grow with the conversation.
//! **Invariant:** what is given is what [`Render::select`] gives of the whole path.

use std::sync::Arc;

use super::repair::{Repaired, boundary};
use super::{Before, History, Render, fit, turns_of};
use crate::budget::message_tokens;
use crate::chat::Message;
use crate::ids::TurnId;
use crate::transcript::{Entry, EntryKind, Transcript};

/// The messages of everything before the running turn. All that is asked of it has to be asked with the same
/// [`Runtime`](super::Runtime).
#[derive(Debug, Default)]
pub struct Kept {
    before: Before,
    /// Stands for what is not shown.
    summary: Option<Arc<str>>,
    /// How many of the transcript's entries they were made of.
    entries: usize,
    read: u64,
}

// === impl Kept ===

impl Kept {
    /// Takes in what stands before the first entry of `turn`, which runs; gives the path from there on.
    /// From call to call, the transcript may only grow.
    pub fn follow<'t>(&mut self, transcript: &'t Transcript, turn: TurnId, render: &Render<'_>) -> Vec<&'t Entry> {
        let Some(new) = transcript.chain_from(self.entries) else {
            // Somebody branched off: what was on the path may have left it.
            let mut path = transcript.path_to_leaf();
            let own = path.split_off(begin_of(&path, turn));
            self.make(&path, render);
            return own;
        };
        let begin = new.iter().position(|entry| entry.turn() == Some(turn)).unwrap_or(new.len());
        let (before, own) = new.split_at(begin);
        let before: Vec<&Entry> = before.iter().filter(|entry| entry.is_node()).collect();
        let entries = self.entries + begin;
        self.read += before.len() as u64;
        let added = render.repair(&before, before.len()).messages;
        if self.before.messages.is_empty() || hangs_on(&before) || self.would_join(&added) {
            let whole = transcript.entries().iter().take(entries);
            self.make(&whole.filter(|entry| entry.is_node()).collect::<Vec<_>>(), render);
        } else {
            self.add(added);
        }
        self.entries = entries;
        own.iter().filter(|entry| entry.is_node()).collect()
    }

    /// What stands for the part of the conversation that is not shown, when `own` is what [`follow`](Self::follow) gave.
    pub fn summary<'s>(&'s self, own: &[&'s Entry]) -> Option<&'s str> {
        boundary(own).map_or(self.summary.as_deref(), |boundary| boundary.summary)
    }

    /// How many entries were read so far to keep up with the transcript: about as many as it has.
    pub fn read(&self) -> u64 {
        self.read
    }

    /// What fits in `budget_tokens` when `tail` stands in place of what [`follow`](Self::follow) gave. From place
    /// `own_at` of it on, it is the running turn.
    pub fn select(&self, place: Place<'_>, tail: &[&Entry], own_at: usize, budget_tokens: u64) -> History {
        let Place { transcript, turn, render } = place;
        if !hangs_on(tail) {
            let Repaired { messages, own_from, .. } = render.repair(tail, own_at);
            if !self.would_join(&messages) {
                return fit(&self.before, messages, own_from, render.trim, budget_tokens);
            }
        }
        let mut path = transcript.path_to_leaf();
        path.truncate(begin_of(&path, turn));
        let own_at = path.len() + own_at;
        path.extend(tail);
        render.select(&path, own_at, budget_tokens)
    }

    fn make(&mut self, path: &[&Entry], render: &Render<'_>) {
        self.read += path.len() as u64;
        let repaired = render.repair(path, path.len());
        self.before = Before::default();
        self.summary = repaired.summary;
        self.add(repaired.messages);
    }

    /// Costs nothing but the new ones, unless a request of before is still held.
    fn add(&mut self, messages: Vec<Message>) {
        let Before { messages: kept, turns, tokens } = &mut self.before;
        let new = turns_of(&messages);
        *tokens += messages.iter().map(message_tokens).sum::<u64>();
        turns.extend(new.into_iter().map(|turn| turn.behind(kept.len())));
        Arc::make_mut(kept).extend(messages);
    }

    /// Whether the first of these messages and the last that is kept would be one.
    fn would_join(&self, behind: &[Message]) -> bool {
        matches!((self.before.messages.last(), behind.first()), (Some(Message::User(_)), Some(Message::User(_))))
    }
}

/// What a request is made for.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// The conversation.
    pub transcript: &'a Transcript,
    /// The running turn.
    pub turn: TurnId,
    /// How it is shown.
    pub render: &'a Render<'a>,
}

/// Where the part of `turn` begins.
fn begin_of(path: &[&Entry], turn: TurnId) -> usize {
    path.iter().position(|entry| entry.turn() == Some(turn)).unwrap_or(path.len())
}

/// Whether what these entries show depends on those before them.
fn hangs_on(entries: &[&Entry]) -> bool {
    let mut called = false;
    let is_shown = |entry: &&&Entry| match &entry.kind {
        EntryKind::User(user) => !user.is_command(),
        EntryKind::Assistant(assistant) => !assistant.transcript_only,
        EntryKind::Silent(_) => false,
        EntryKind::ToolResult(_)
        | EntryKind::Shown(_)
        | EntryKind::Compaction { .. }
        | EntryKind::BranchSummary(_)
        | EntryKind::Reset { .. }
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => true,
    };
    let user = |first: &&Entry| matches!(first.kind, EntryKind::User(_) | EntryKind::Shown(_));
    !entries.iter().find(is_shown).is_none_or(user)
        || entries.iter().any(|entry| match &entry.kind {
            EntryKind::Compaction { .. } | EntryKind::Reset { .. } => true,
            EntryKind::ToolResult(_) => !called,
            EntryKind::Assistant(assistant) => {
                called |= !assistant.transcript_only;
                false
            }
            EntryKind::User(_)
            | EntryKind::Shown(_)
            | EntryKind::BranchSummary(_)
            | EntryKind::Silent(_)
            | EntryKind::Leaf { .. }
            | EntryKind::Opaque => false,
        })
}
