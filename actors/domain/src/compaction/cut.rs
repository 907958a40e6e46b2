//! Which part of a conversation is summarised next, when it has grown too large or has rested.

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

/// A part from the beginning of what the model is shown. It ends between two turns of a person.
#[derive(Debug, Clone, PartialEq)]
pub struct Cut {
    /// The id of its first message.
    pub first: String,
    /// The id of its last one.
    pub last: String,
    /// What the model is shown of it, in order, with the summary of what came before.
    pub shown: Vec<Entry>,
    /// Tokens of its messages.
    pub tokens: u64,
}

/// The part of the conversation of `tree` that has to go so that what is wanted `stays`; `None` if nothing has. It has at
/// most `room_tokens`, unless its first turn alone has more: then it is that turn. `entry` reads an entry; tokens are those
/// of messages as they are shown.
pub fn cut<E>(
    tree: &TreeIndex,
    stays: Stays,
    spared: Spared,
    room_tokens: u64,
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
    let (mut end, mut tokens) = (0, 0_u64);
    for (its_end, own) in turns.iter().take(wanted.min(most)) {
        if end > 0 && tokens.saturating_add(*own) > room_tokens {
            break;
        }
        (end, tokens) = (*its_end, tokens.saturating_add(*own));
    }
    let part = messages.get(..end).unwrap_or(&[]);
    let (Some(first), Some(last)) = (part.first(), part.last()) else { return Ok(None) };
    let place = shown.iter().position(|at| at == last).unwrap_or(shown.len());
    let some = shown.iter().enumerate().filter(|(at, one)| *at <= place || tree.kind(**one).is_boundary());
    let read = some.map(|(_, at)| entry(*at)).collect::<Result<Vec<_>, E>>()?;
    let shown = read.into_iter().flatten().collect();
    Ok(Some(Cut { first: tree.id(*first).to_owned(), last: tree.id(*last).to_owned(), shown, tokens }))
}
