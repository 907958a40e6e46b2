//! The part of a conversation that has to be in memory: whatever a request can show of it, and no more.
//!
//! **Invariant:** where [`suffices`] says so of a part that [`newest`] chose, [`select`](super::select) gives of the
//! part what it gives of the whole conversation.

use super::repair;
use crate::budget::{content_tokens, message_tokens, text_tokens};
use crate::chat::Message;
use crate::ids::TurnId;
use crate::transcript::{Entry, EntryKind, Kind, Position, TreeIndex};

/// Of `shown` (what [`TreeIndex::shown`] gives), the newest entries that together weigh at most `limit`. Begins with a
/// message that a person or a program said; has at least the newest of those with all that follows it, all that belongs
/// to `turn`, and the boundary.
pub fn newest(
    tree: &TreeIndex,
    shown: &[Position],
    weight: impl Fn(Position) -> u64,
    limit: u64,
    turn: Option<TurnId>,
) -> Vec<Position> {
    let begins = |at: &Position| begins_turn(tree.kind(*at));
    let mut room = limit;
    let fits = |at: &&Position| {
        let weight = weight(**at);
        let fits = weight <= room;
        room = room.saturating_sub(weight);
        fits
    };
    let fitting = shown.len() - shown.iter().rev().take_while(fits).count();
    let from = |first: usize| shown.iter().skip(first).position(begins).map(|behind| first + behind);
    let last = shown.iter().rposition(begins).unwrap_or(0);
    let own = turn.and_then(|turn| shown.iter().position(|at| tree.turn(*at) == Some(turn)));
    let first = if fitting == 0 { 0 } else { from(fitting).unwrap_or(last).min(own.unwrap_or(usize::MAX)) };
    let boundary = shown.iter().take(first).filter(|at| tree.kind(**at).is_boundary());
    boundary.chain(shown.iter().skip(first)).copied().collect()
}

/// Whether a part with these entries shows all that fits in `budget_tokens`, whatever was before it and however little
/// of `turn` is shown.
pub fn suffices(part: &[&Entry], turn: Option<TurnId>, budget_tokens: u64) -> bool {
    let own_at = turn.and_then(|turn| part.iter().position(|entry| entry.turn() == Some(turn))).unwrap_or(part.len());
    let before = repair(part.get(..own_at).unwrap_or(part)).messages;
    // The first message may be one with what was before it.
    let second = before.iter().skip(1).skip_while(|message| !matches!(message, Message::User(_)));
    second.map(message_tokens).fold(0, u64::saturating_add) > budget_tokens
}

/// About how many tokens an entry costs when it is shown.
pub fn entry_tokens(entry: &Entry) -> u64 {
    match &entry.kind {
        EntryKind::User(user) => content_tokens(&user.content),
        EntryKind::Shown(content) => content_tokens(content),
        EntryKind::Assistant(assistant) => message_tokens(&Message::Assistant(assistant.message.clone())),
        EntryKind::ToolResult(result) => content_tokens(&result.result.content),
        EntryKind::Compaction { summary, .. } | EntryKind::BranchSummary(summary) => text_tokens(summary),
        EntryKind::Reset { .. } | EntryKind::Silent(_) | EntryKind::Leaf { .. } | EntryKind::Opaque => 0,
    }
}

/// Whether what stands before such an entry has no part in how it and what follows are shown.
pub(crate) fn begins_turn(kind: Kind) -> bool {
    match kind {
        Kind::User | Kind::Event | Kind::Bash | Kind::CustomRole | Kind::CustomMessage => true,
        Kind::Assistant
        | Kind::Command
        | Kind::ToolResult
        | Kind::OtherRole
        | Kind::Compaction
        | Kind::BranchSummary
        | Kind::Reset
        | Kind::Label
        | Kind::SessionInfo
        | Kind::ModelChange
        | Kind::ThinkingLevelChange
        | Kind::Custom
        | Kind::Leaf
        | Kind::Opaque => false,
    }
}
