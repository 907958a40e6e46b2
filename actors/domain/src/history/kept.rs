//! The messages of a conversation, made of its entries once and kept while it grows.
//!
//! Requests share them, so that the cost of one does not grow with the conversation.
//! **Invariant:** what is given is what [`select`] gives of the whole path.

use std::sync::Arc;

use super::{History, Turn, fitting, repair, select, turns_of};
use crate::chat::Message;
use crate::ids::TurnId;
use crate::request::Messages;
use crate::transcript::{Entry, EntryKind, Transcript};

/// The messages of everything before the running turn.
#[derive(Debug, Default)]
pub struct Kept {
    messages: Arc<Vec<Message>>,
    turns: Vec<Turn>,
    /// Whether the first message is a summary.
    summarised: bool,
    /// How many of the transcript's entries they were made of.
    entries: usize,
}

// === impl Kept ===

impl Kept {
    /// Takes in what stands before the first entry of `turn`, which runs; gives the path from there on.
    /// From call to call, the transcript may only grow.
    pub fn follow<'t>(&mut self, transcript: &'t Transcript, turn: TurnId) -> Vec<&'t Entry> {
        let Some(new) = transcript.chain_from(self.entries) else {
            // Somebody branched off: what was on the path may have left it.
            let mut path = transcript.path_to_leaf();
            let own = path.split_off(begin_of(&path, turn));
            self.make(&path);
            return own;
        };
        let begin = new.iter().position(|entry| entry.turn() == Some(turn)).unwrap_or(new.len());
        let (before, own) = new.split_at(begin);
        let before: Vec<&Entry> = before.iter().filter(|entry| entry.is_node()).collect();
        let entries = self.entries + begin;
        if self.messages.is_empty() || hangs_on(&before) {
            let whole = transcript.entries().iter().take(entries);
            self.make(&whole.filter(|entry| entry.is_node()).collect::<Vec<_>>());
        } else {
            self.add(repair(&before).messages);
        }
        self.entries = entries;
        own.iter().filter(|entry| entry.is_node()).collect()
    }

    /// What fits in `budget_tokens` when `tail` stands in place of what [`follow`](Self::follow) gave.
    pub fn select(&self, transcript: &Transcript, turn: TurnId, tail: &[&Entry], budget_tokens: u64) -> History {
        if self.summarised || hangs_on(tail) {
            let mut path = transcript.path_to_leaf();
            path.truncate(begin_of(&path, turn));
            path.extend(tail);
            return select(&path, budget_tokens);
        }
        let kept = self.messages.len();
        let tail = repair(tail).messages;
        let in_tail: Vec<Turn> = turns_of(&tail).into_iter().map(|turn| turn.behind(kept)).collect();
        let newest_first = in_tail.iter().rev().chain(self.turns.iter().rev()).copied();
        let fits = fitting(newest_first, 0, budget_tokens);
        let first = fits.first.unwrap_or(kept);
        let tail = tail.into_iter().skip(first.saturating_sub(kept)).collect();
        let turns_left_out = self.turns.len() + in_tail.len() - fits.taken;
        History { messages: Messages::behind(&self.messages, first, tail), tokens: fits.tokens, turns_left_out }
    }

    fn make(&mut self, path: &[&Entry]) {
        let repaired = repair(path);
        *self = Self { summarised: repaired.summarised, ..Self::default() };
        self.add(repaired.messages);
    }

    /// Costs nothing but the new ones, unless a request of before is still held.
    fn add(&mut self, messages: Vec<Message>) {
        let kept = self.messages.len();
        self.turns.extend(turns_of(&messages).into_iter().map(|turn| turn.behind(kept)));
        Arc::make_mut(&mut self.messages).extend(messages);
    }
}

/// Where the part of `turn` begins.
fn begin_of(path: &[&Entry], turn: TurnId) -> usize {
    path.iter().position(|entry| entry.turn() == Some(turn)).unwrap_or(path.len())
}

/// Whether what these entries show depends on those before them.
fn hangs_on(entries: &[&Entry]) -> bool {
    let mut called = false;
    let user = |first: &&Entry| match first.user() {
        Some(user) => !user.is_command(),
        None => matches!(first.kind, EntryKind::Shown(_)),
    };
    !entries.first().is_none_or(user)
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
