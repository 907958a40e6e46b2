//! Compaction: what of a conversation the model is still shown, and what is said in place of the rest. Nothing is cut
//! out of the file: a plan is one `compaction` entry, written by [`Pen::compact`](crate::transcript::Pen::compact).
//!
//! | [`Keep`] | the first entry that is kept |
//! |---|---|
//! | `Nothing` | none: the summary stands for all |
//! | `Messages(n)` | the newest legal place that has at least the last `n` messages behind it |
//! | `Since(t)` | the newest legal place that has all messages since `t` behind it; none if there are none |
//! | `Behind(part)` | the message behind that part, if the conversation still begins with it |
//!
//! A legal place is a message of a person or a program that stands between no call and its result.
//!
//! Entries with a label are marked as important. Those that the boundary hides are quoted in the summary, so that the
//! model still sees them; at most [`EXCERPT_CHARS_MAX`] characters of each and [`EXCERPTS_CHARS_MAX`] together, the
//! newest first. What stands before the latest reset is not quoted: that conversation is over.
//!
//! What is summarised by the model is chosen by [`cut`]; its words are asked for and judged by [`archive`]; what follows
//! where it gives none is in [`failed`].
//!
//! **Invariant:** a request after a compaction is legal, and smaller than the one before.

pub mod archive;
mod cut;
pub mod failed;

use std::fmt::Write as _;
use std::sync::Arc;

use crate::chat::plain_text;
use crate::history::{begins_turn, repair};
use crate::text::ellipsis;
use crate::time::iso_ms;
use crate::transcript::{Entry, EntryKind, Head, Kind, Position, TreeIndex};

pub use cut::{Cut, Room, Spared, Stays, cut};

/// Characters that are quoted of one entry.
pub const EXCERPT_CHARS_MAX: usize = 2000;
/// Characters that are quoted of all entries together.
pub const EXCERPTS_CHARS_MAX: usize = 16_000;

const IMPORTANT: &str = "Marked as important:";
const LEFT_OUT: &str = "Messages left out here: ";

/// What stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep<'a> {
    /// Only the summary.
    Nothing,
    /// At least so many of the last messages.
    Messages(u32),
    /// All messages since then, in milliseconds since 1970.
    Since(u64),
    /// What follows the part whose first and last message have these ids.
    Behind(&'a str, &'a str),
}

/// What a `compaction` entry is to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Plan {
    /// The first entry that the model is still shown; `None` for none.
    pub first_kept: Option<Arc<str>>,
    /// In place of what was before.
    pub summary: String,
    /// Tokens of the conversation as the model was shown it, by the estimate of [`crate::budget`].
    pub tokens_before: u64,
    /// Tokens of what it is shown from now on.
    pub tokens_after: u64,
}

/// Why a conversation is not compacted.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
pub enum CompactError<E> {
    /// Everything is kept.
    #[error("everything would be kept: the conversation has no more than that")]
    NothingToLeaveOut,
    /// The conversation no longer begins with that part.
    #[error("the conversation has changed meanwhile")]
    Changed,
    /// The summary and what is marked as important take more than what they stand for.
    #[error("the conversation would not get shorter: it has about {before} tokens, and would have {after}")]
    NotShorter {
        /// Tokens now.
        before: u64,
        /// Tokens then.
        after: u64,
    },
    /// An entry could not be read.
    #[error("the conversation cannot be read")]
    Read(E),
}

/// Plans a compaction of the conversation that `tree` has. `entry` reads an entry; it is asked for each that the model
/// is shown, in order, and for those that are marked. `summary` is the caller's; without one, the summary that there is
/// stays, and says how many messages were left out.
pub fn plan<E>(
    tree: &TreeIndex,
    keep: Keep<'_>,
    summary: Option<&str>,
    mut entry: impl FnMut(Position) -> Result<Option<Entry>, E>,
) -> Result<Plan, CompactError<E>> {
    let path = tree.path();
    let boundary = path.iter().rposition(|at| tree.kind(*at).is_boundary()).and_then(|place| path.get(place)).copied();
    let mut messages = tree.shown(&path);
    messages.retain(|at| says_something(tree.kind(*at)));
    let first = first_kept(tree, &messages, keep).ok_or(CompactError::Changed)?;
    if first == 0 {
        return Err(CompactError::NothingToLeaveOut);
    }
    let kept = messages.get(first).copied();
    let mut read = |at| entry(at).map_err(CompactError::Read);
    let old = boundary.map(&mut read).transpose()?.flatten();
    let (gone, rest) = messages.split_at_checked(first).unwrap_or((&messages, &[]));
    let left_out = tokens(tree, gone, old.as_ref(), &mut read)?;
    let stays = tokens(tree, rest, None, &mut read)?;
    let hidden = hidden(tree, &path, kept);
    let mut text = match (summary.map(str::trim).filter(|summary| !summary.is_empty()), &old) {
        (Some(summary), _) => summary.to_owned(),
        (None, old) => carried(tree, &hidden, old.as_ref()),
    };
    push_excerpts(tree, &hidden, &mut text, read)?;
    let head = Head { id: "".into(), parent: None, timestamp_ms: 0 };
    let boundary = Entry::new(head, EntryKind::Compaction { summary: text.clone(), first_kept: None });
    let (before, after) = (left_out.saturating_add(stays), cost(&[&boundary]).saturating_add(stays));
    if after >= before {
        return Err(CompactError::NotShorter { before, after });
    }
    let first_kept = kept.map(|at| tree.id(at).into());
    Ok(Plan { first_kept, summary: text, tokens_before: before, tokens_after: after })
}

/// How many messages of the conversation stand behind its last boundary.
pub fn behind_boundary(tree: &TreeIndex) -> usize {
    let path = tree.path();
    let behind = path.iter().rev().take_while(|at| !tree.kind(**at).is_boundary());
    behind.filter(|at| says_something(tree.kind(**at))).count()
}

/// Whether the conversation, as the model is shown it, begins with the message of that id.
pub fn begins_with(tree: &TreeIndex, id: &str) -> bool {
    let shown = tree.shown(&tree.path());
    shown.iter().find(|at| says_something(tree.kind(**at))).is_some_and(|at| tree.id(*at) == id)
}

/// Where in `messages` begins what is kept.
fn first_kept(tree: &TreeIndex, messages: &[Position], keep: Keep<'_>) -> Option<usize> {
    let wanted = match keep {
        Keep::Nothing | Keep::Messages(0) => messages.len(),
        Keep::Messages(count) => messages.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX)),
        Keep::Since(ms) => messages.iter().position(|at| tree.timestamp_ms(*at) >= ms).unwrap_or(messages.len()),
        Keep::Behind(first, last) => {
            messages.first().filter(|at| tree.id(**at) == first)?;
            let place = messages.iter().position(|at| tree.id(*at) == last)? + 1;
            let legal = place == messages.len() || is_legal(tree, messages, place);
            return legal.then_some(place);
        }
    };
    if wanted == messages.len() {
        return Some(wanted);
    }
    (0..=wanted).rev().find(|place| is_legal(tree, messages, *place)).or(Some(0))
}

/// Whether a conversation may begin there: what a call before it has as results stands before it too.
fn is_legal(tree: &TreeIndex, messages: &[Position], place: usize) -> bool {
    let mut kinds = messages.iter().skip(place).map(|at| tree.kind(*at));
    kinds.next().is_some_and(begins_turn)
        && kinds.find(|kind| matches!(kind, Kind::Assistant | Kind::ToolResult)) != Some(Kind::ToolResult)
}

/// What those messages cost when they are shown behind `boundary`. Reads one legal piece at a time.
fn tokens<E>(
    tree: &TreeIndex,
    some: &[Position],
    boundary: Option<&Entry>,
    read: &mut impl FnMut(Position) -> Result<Option<Entry>, E>,
) -> Result<u64, E> {
    let mut piece: Vec<Entry> = boundary.into_iter().cloned().collect();
    let mut sum = 0_u64;
    for (place, at) in some.iter().enumerate() {
        if is_legal(tree, some, place) {
            sum = sum.saturating_add(cost(&piece.iter().collect::<Vec<_>>()));
            piece.clear();
        }
        piece.extend(read(*at)?);
    }
    Ok(sum.saturating_add(cost(&piece.iter().collect::<Vec<_>>())))
}

fn cost(entries: &[&Entry]) -> u64 {
    repair(entries).tokens()
}

/// The part of the conversation that is not shown once `kept` is the first that is: from the latest reset on.
fn hidden(tree: &TreeIndex, path: &[Position], kept: Option<Position>) -> Vec<Position> {
    let reset = path.iter().rposition(|at| tree.kind(*at) == Kind::Reset);
    let place = |at: Position| path.iter().position(|on_path| *on_path == at);
    let kept_by_reset =
        reset.and_then(|reset| path.get(reset)).and_then(|reset| tree.first_kept(*reset)).and_then(place);
    let from = kept_by_reset.or(reset).unwrap_or(0);
    let to = kept.and_then(place).unwrap_or(path.len());
    path.get(from..to).unwrap_or(&[]).to_vec()
}

/// The summary that there was, without what it quotes, and how much is left out.
fn carried(tree: &TreeIndex, hidden: &[Position], old: Option<&Entry>) -> String {
    let mut text = match old.map(|old| &old.kind) {
        Some(EntryKind::Compaction { summary, .. }) => own_words(summary).to_owned(),
        Some(_) | None => String::new(),
    };
    let said = || hidden.iter().filter(|at| says_something(tree.kind(**at)));
    let last_ms = said().next_back().map_or(0, |at| tree.timestamp_ms(*at));
    let note = format!("{LEFT_OUT}{}, the last of {}.", said().count(), iso_ms(last_ms));
    if !text.is_empty() {
        text.push_str("\n\n");
    }
    text.push_str(&note);
    text
}

/// What a summary says besides what [`plan`] adds to it.
fn own_words(summary: &str) -> &str {
    let words = summary.split_once(IMPORTANT).map_or(summary, |(words, _)| words).trim_end();
    let last_line = words.lines().next_back().filter(|line| line.starts_with(LEFT_OUT));
    last_line.and_then(|line| words.strip_suffix(line)).unwrap_or(words).trim_end()
}

/// Quotes what is marked, the newest as far as there is room, in the order of the conversation.
fn push_excerpts<E>(
    tree: &TreeIndex,
    hidden: &[Position],
    text: &mut String,
    mut read: impl FnMut(Position) -> Result<Option<Entry>, E>,
) -> Result<(), E> {
    let is_marked = |at: &&Position| tree.position(tree.id(**at)) == Some(**at) && tree.label(tree.id(**at)).is_some();
    let (mut excerpts, mut room, mut more) = (Vec::new(), EXCERPTS_CHARS_MAX, 0_usize);
    for at in hidden.iter().rev().filter(is_marked) {
        let Some(excerpt) = read(*at)?.and_then(|entry| excerpt(tree, &entry)) else { continue };
        let length = excerpt.chars().count();
        if more > 0 || length > room {
            more += 1;
            continue;
        }
        room -= length;
        excerpts.push(excerpt);
    }
    if excerpts.is_empty() && more == 0 {
        return Ok(());
    }
    // Writing to a string cannot fail.
    write!(text, "\n\n{IMPORTANT}").unwrap_or_default();
    if more > 0 {
        write!(text, "\n({more} more that came earlier)").unwrap_or_default();
    }
    for excerpt in excerpts.iter().rev() {
        write!(text, "\n{excerpt}").unwrap_or_default();
    }
    Ok(())
}

/// A quote: `- <label> (<role>, <time>):`, then the text, each line behind `> `.
fn excerpt(tree: &TreeIndex, entry: &Entry) -> Option<String> {
    let (who, said) = match &entry.kind {
        EntryKind::User(user) if user.event.is_some() => ("event", plain_text(&user.content)),
        EntryKind::User(user) => ("user", plain_text(&user.content)),
        EntryKind::Assistant(assistant) => ("assistant", assistant.message.text.clone()),
        EntryKind::ToolResult(result) => ("tool", plain_text(&result.result.content)),
        EntryKind::Shown(content) => ("program", plain_text(content)),
        EntryKind::BranchSummary(summary) => ("summary of a branch", summary.clone()),
        EntryKind::Compaction { summary, .. } => ("summary", own_words(summary).to_owned()),
        EntryKind::Reset { .. } | EntryKind::Silent(_) | EntryKind::Leaf { .. } | EntryKind::Opaque => return None,
    };
    let said = said.trim();
    if said.is_empty() {
        return None;
    }
    let label = ellipsis(&tree.label(&entry.id)?.text, crate::transcript::view::PREVIEW_CHARS_MAX).into_owned();
    let quoted = ellipsis(said, EXCERPT_CHARS_MAX).replace('\n', "\n> ");
    Some(format!("- {} ({who}, {}):\n> {quoted}", label.replace('\n', " "), iso_ms(entry.timestamp_ms)))
}

/// Whether the model may be shown such an entry as a message of its own.
fn says_something(kind: Kind) -> bool {
    match kind {
        Kind::User
        | Kind::Event
        | Kind::Assistant
        | Kind::ToolResult
        | Kind::Bash
        | Kind::CustomRole
        | Kind::CustomMessage
        | Kind::BranchSummary => true,
        Kind::OtherRole
        | Kind::Command
        | Kind::Compaction
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

#[cfg(test)]
mod tests;
