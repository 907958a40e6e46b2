//! Which part of a conversation is summarised next, when it has grown too large or has rested.
//!
//! What has to go is summarised part by part, each as large as a request allows. Of a conversation that is many times
//! larger than that, brought along from elsewhere perhaps, everything but the last parts goes at once and without a
//! summary: for each part the model reads all of the part, and the program the whole transcript.

use super::{is_legal, says_something};
use crate::history::Render;
use crate::ids::TurnId;
use crate::transcript::{Entry, Position, TreeIndex};

/// How much stays.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stays {
    /// At least so many of the last messages.
    Messages(u32),
    /// No more than so many tokens, as far as whole turns allow.
    Tokens(u64),
}

/// What stays in any case.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spared {
    /// The last turn that stands there.
    Last,
    /// What stands there of the turn that is under way: it may be nothing yet.
    Running(TurnId),
}

/// How much is summarised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Tokens of one part.
    pub part: u64,
    /// Tokens of all parts together. What is more goes first, as it is.
    pub all: u64,
}

/// A part from the beginning of what the model is shown. It ends between two turns of a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The id of its first message.
    pub first: String,
    /// The id of its last one.
    pub last: String,
    /// How many it has.
    pub messages: usize,
    /// What the model is shown of it, in order, with the summary of what came before.
    pub shown: Vec<Entry>,
    /// Tokens of its messages.
    pub tokens: u64,
    /// Whether it is to be left out without a summary: then only its beginning is shown.
    pub as_it_is: bool,
}

/// The part of the conversation of `tree` that has to go so that what is wanted `stays`; `None` if nothing has. It has at
/// most the tokens that there is `room` for, unless its first turn alone has more: then it is that turn. `entry` reads an
/// entry; tokens are those of messages as they are shown.
pub fn cut<E>(
    tree: &TreeIndex,
    stays: Stays,
    spared: Spared,
    room: Room,
    render: &Render<'_>,
    mut entry: impl FnMut(Position) -> Result<Option<Entry>, E>,
) -> Result<Option<Cut>, E> {
    let shown = tree.shown(&tree.path());
    let messages: Vec<Position> = shown.iter().copied().filter(|at| says_something(tree.kind(*at))).collect();
    // Where turns begin, and what stands between that and the next.
    let begins: Vec<usize> = (0..messages.len()).filter(|place| is_legal(tree, &messages, *place)).collect();
    let ends = begins.iter().skip(1).copied().chain([messages.len()]);
    let mut turns: Vec<(usize, u64)> = Vec::with_capacity(begins.len());
    for (begin, end) in begins.iter().zip(ends) {
        // What comes before the first legal place goes with it.
        let begin = if turns.is_empty() { 0 } else { *begin };
        let some = messages.get(begin..end).unwrap_or(&[]);
        let read = some.iter().map(|at| entry(*at)).collect::<Result<Vec<_>, E>>()?;
        let read: Vec<&Entry> = read.iter().flatten().collect();
        turns.push((end, render.repair(&read, read.len()).tokens()));
    }
    let most = match spared {
        Spared::Last => turns.len().saturating_sub(1),
        Spared::Running(turn) => {
            let own = messages.iter().position(|at| tree.turn(*at) == Some(turn)).unwrap_or(messages.len());
            turns.iter().take_while(|(end, _)| *end <= own).count()
        }
    };
    let wanted = match stays {
        Stays::Messages(count) => {
            let gone = messages.len().saturating_sub(usize::try_from(count).unwrap_or(usize::MAX));
            turns.iter().take_while(|(end, _)| *end <= gone).count()
        }
        Stays::Tokens(tokens) => {
            let mut rest: u64 = turns.iter().map(|(_, tokens)| tokens).sum();
            let goes = |(_, own): &&(usize, u64)| {
                let goes = rest > tokens;
                rest = rest.saturating_sub(*own);
                goes
            };
            turns.iter().take_while(goes).count()
        }
    };
    let goes = turns.get(..wanted.min(most)).unwrap_or(&[]);
    let ((end, tokens), (shown_end, _)) = (part_of(goes, room), first_of(goes, room.part));
    let part = messages.get(..end).unwrap_or(&[]);
    let (Some(first), Some(last)) = (part.first(), part.last()) else { return Ok(None) };
    let shown_last = part.get(..shown_end).unwrap_or(part).last();
    let place = shown.iter().position(|at| Some(at) == shown_last).unwrap_or(shown.len());
    let some = shown.iter().enumerate().filter(|(at, one)| *at <= place || tree.kind(**one).is_boundary());
    let read = some.map(|(_, at)| entry(*at)).collect::<Result<Vec<_>, E>>()?;
    Ok(Some(Cut {
        first: tree.id(*first).to_owned(),
        last: tree.id(*last).to_owned(),
        messages: part.len(),
        shown: read.into_iter().flatten().collect(),
        tokens,
        as_it_is: end > shown_end,
    }))
}

/// The next part of turns that all have to go, each with its end and its tokens: where it ends, and its tokens.
fn part_of(goes: &[(usize, u64)], room: Room) -> (usize, u64) {
    let mut rest: u64 = goes.iter().map(|(_, tokens)| tokens).sum();
    let too_many = goes.iter().take_while(|(_, own)| {
        let too_many = rest > room.all;
        rest = rest.saturating_sub(*own);
        too_many
    });
    let (as_it_is, first) = (too_many.fold((0, 0), add), first_of(goes, room.part));
    if as_it_is.0 > first.0 { as_it_is } else { first }
}

/// As many of the first turns as have so many tokens, and at least one.
fn first_of(turns: &[(usize, u64)], room_tokens: u64) -> (usize, u64) {
    let mut part = (0, 0);
    for turn in turns {
        let more = add(part, turn);
        if part.0 > 0 && more.1 > room_tokens {
            break;
        }
        part = more;
    }
    part
}

fn add((_, tokens): (usize, u64), (end, own): &(usize, u64)) -> (usize, u64) {
    (*end, tokens.saturating_add(*own))
}
