//! The short memory of a running turn: what a client that comes back must be shown. Pure.
//!
//! Neighboring pieces of text are kept as one string with marks for the latest event numbers; where marks were dropped,
//! a client whose cursor lies there is shown the whole text again after a restart notice.

use std::collections::VecDeque;
use std::mem;
use std::sync::Arc;

use protocol::turn::{FileEdit, TurnProgress};

/// Marks of one run of text: above this many the older half is dropped.
const MARKS_MAX: usize = 512;

/// What a piece costs besides its text.
const PIECE_BYTES: usize = 64;

/// What a mark costs.
const MARK_BYTES: usize = 16;

/// One event to show again.
#[derive(Debug, Clone)]
pub(crate) struct Again {
    /// Number of the last event in it.
    pub(crate) seq: u64,
    /// Model round.
    pub(crate) round: u32,
    /// What happened.
    pub(crate) what: TurnProgress,
    /// Whether the client has it.
    pub(crate) had: bool,
}

/// What a client with a cursor gets.
#[derive(Debug)]
pub(crate) struct Replay {
    /// Whether the client must forget what it has of this turn, as the memory does not join on to it.
    pub(crate) restart: bool,
    /// Whether the beginning of the text is missing here.
    pub(crate) gap: bool,
    /// The events, in order, those that the client has before the others.
    pub(crate) events: Vec<Again>,
}

#[derive(Debug)]
enum Piece {
    Text { reasoning: bool, round: u32, first: u64, text: String, marks: VecDeque<(u64, usize)> },
    Other(Again),
}

/// The memory of one attempt of one turn.
#[derive(Debug, Default)]
pub(crate) struct Ring {
    pieces: VecDeque<Piece>,
    bytes: usize,
    /// The last event that was dropped for space.
    cut: Option<u64>,
}

impl Ring {
    /// What it holds.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// Forgets everything up to and with `seq`.
    pub(crate) fn forget(&mut self, seq: u64) {
        *self = Self { cut: Some(seq), ..Self::default() };
    }

    /// Remembers one event, within `max` bytes.
    pub(crate) fn push(&mut self, seq: u64, round: u32, what: &TurnProgress, max: usize) {
        match what {
            TurnProgress::Delta(text) => self.push_text(seq, round, false, text),
            TurnProgress::Reasoning(text) => self.push_text(seq, round, true, text),
            TurnProgress::Started
            | TurnProgress::StreamEnd { .. }
            | TurnProgress::ToolStarted { .. }
            | TurnProgress::ToolEnded { .. }
            | TurnProgress::Notice(_)
            | TurnProgress::Goal(_)
            | TurnProgress::Finished(_) => {
                self.bytes += PIECE_BYTES + text_bytes(what);
                self.pieces.push_back(Piece::Other(Again { seq, round, what: what.clone(), had: false }));
            }
        }
        self.shrink(max);
    }

    fn push_text(&mut self, seq: u64, round: u32, reasoning: bool, more: &str) {
        self.bytes += more.len() + MARK_BYTES;
        if let Some(Piece::Text { reasoning: same, round: of, text, marks, .. }) = self.pieces.back_mut()
            && *same == reasoning
            && *of == round
        {
            text.push_str(more);
            marks.push_back((seq, text.len()));
            if marks.len() > MARKS_MAX {
                marks.drain(..MARKS_MAX / 2);
                self.bytes -= MARKS_MAX / 2 * MARK_BYTES;
            }
            return;
        }
        self.bytes += PIECE_BYTES;
        let marks = VecDeque::from([(seq, more.len())]);
        self.pieces.push_back(Piece::Text { reasoning, round, first: seq, text: more.to_owned(), marks });
    }

    fn shrink(&mut self, max: usize) {
        while self.bytes > max && self.pieces.len() > 1 {
            let Some(piece) = self.pieces.pop_front() else { return };
            let (bytes, seq) = match piece {
                Piece::Text { text, marks, first, .. } => {
                    (text.len() + marks.len() * MARK_BYTES, marks.back().map_or(first, |mark| mark.0))
                }
                Piece::Other(again) => (text_bytes(&again.what), again.seq),
            };
            self.bytes = self.bytes.saturating_sub(bytes + PIECE_BYTES);
            self.cut = Some(seq);
        }
        if self.bytes <= max {
            return;
        }
        if let Some(Piece::Text { text, marks, .. }) = self.pieces.front_mut() {
            let at = text.floor_char_boundary(text.len() / 2);
            text.drain(..at);
            let gone = marks.iter().take_while(|mark| mark.1 < at).count();
            marks.drain(..gone);
            // The event that lies across the cut cannot be joined on to either.
            self.cut = marks.front().map(|mark| mark.0);
            for mark in marks.iter_mut() {
                mark.1 -= at;
            }
            self.bytes -= at + gone * MARK_BYTES;
        }
    }

    /// What it holds, for a client that has everything up to and with event `after`; 0 for nothing.
    pub(crate) fn since(&self, after: u64) -> Replay {
        if after > 0 && self.cut.is_some_and(|cut| after < cut) {
            return Replay { restart: true, ..self.since(0) };
        }
        let mut events = Vec::with_capacity(self.pieces.len() + 1);
        for piece in &self.pieces {
            match piece {
                Piece::Other(again) => events.push(Again { had: again.seq <= after, ..again.clone() }),
                Piece::Text { reasoning, round, first, text, marks } => {
                    let Some((last, _)) = marks.back().copied() else { continue };
                    let had = match marks.iter().find(|mark| mark.0 == after) {
                        Some((_, end)) => *end,
                        None if last < after => text.len(),
                        None if after < *first => 0,
                        None => return Replay { restart: true, ..self.since(0) },
                    };
                    let (before, rest) = text.split_at_checked(had).unwrap_or((text, ""));
                    for (text, seq, had) in [(before, after.min(last), true), (rest, last, false)] {
                        if !text.is_empty() {
                            let text = text.to_owned();
                            let what =
                                if *reasoning { TurnProgress::Reasoning(text) } else { TurnProgress::Delta(text) };
                            events.push(Again { seq, round: *round, what, had });
                        }
                    }
                }
            }
        }
        if after > 0 && events.first().is_none_or(|again| !again.had) {
            // All that the client has was dropped. Whoever shows the rest must know that there was something.
            events.insert(0, Again { seq: after, round: 1, what: TurnProgress::Delta(String::new()), had: true });
        }
        Replay { restart: false, gap: self.cut.is_some(), events }
    }

    /// Empties it and says what it held.
    pub(crate) fn clear(&mut self) -> usize {
        mem::take(self).bytes
    }
}

fn text_bytes(what: &TurnProgress) -> usize {
    match what {
        TurnProgress::Started | TurnProgress::Finished(_) => 0,
        TurnProgress::Delta(text) | TurnProgress::Reasoning(text) => text.len(),
        TurnProgress::StreamEnd { text, .. } => text.len(),
        TurnProgress::ToolStarted { name, arguments, .. } => name.len() + arguments.len(),
        TurnProgress::ToolEnded { name, result, edit, .. } => name.len() + result.len() + edit_bytes(edit),
        TurnProgress::Notice(text) => text.len(),
        TurnProgress::Goal(goal) => goal.objective.len(),
    }
}

/// What an edit costs.
pub(super) fn edit_bytes(edit: &Option<Arc<FileEdit>>) -> usize {
    edit.as_ref().map_or(0, |edit| edit.path.len() + edit.diff.len())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn text(replay: &Replay) -> String {
        replay
            .events
            .iter()
            .filter(|again| !again.had)
            .filter_map(|again| match &again.what {
                TurnProgress::Delta(text) => Some(text.as_str()),
                TurnProgress::Started
                | TurnProgress::Reasoning(_)
                | TurnProgress::StreamEnd { .. }
                | TurnProgress::ToolStarted { .. }
                | TurnProgress::ToolEnded { .. }
                | TurnProgress::Notice(_)
                | TurnProgress::Goal(_)
                | TurnProgress::Finished(_) => None,
            })
            .collect()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn a_replay_joins_on_to_what_the_client_has(
            parts in prop::collection::vec("[a-zä€]{0,9}", 1..1500),
            after in 0u64..1500,
            max in 300usize..20_000,
        ) {
            let mut ring = Ring::default();
            let mut whole = String::new();
            let mut had = String::new();
            for (part, seq) in parts.iter().zip(1..) {
                ring.push(seq, 1, &TurnProgress::Delta(part.clone()), max);
                prop_assert!(ring.bytes() <= max + PIECE_BYTES);
                whole.push_str(part);
                if seq <= after {
                    had.push_str(part);
                }
            }
            let replay = ring.since(after);
            if replay.restart || after == 0 {
                prop_assert!(whole.ends_with(&text(&replay)));
                prop_assert!(replay.gap || text(&replay) == whole);
            } else {
                prop_assert_eq!(had + &text(&replay), whole);
            }
        }
    }

    #[test]
    fn other_events_keep_their_place() {
        let mut ring = Ring::default();
        ring.push(1, 1, &TurnProgress::Started, 1000);
        ring.push(2, 1, &TurnProgress::Delta("a".into()), 1000);
        ring.push(3, 1, &TurnProgress::StreamEnd { text: "a".into(), more: true, merge: false }, 1000);
        ring.push(4, 2, &TurnProgress::Delta("b".into()), 1000);
        let seqs = |after, had| {
            let events = ring.since(after).events.into_iter().filter(move |again| again.had == had);
            events.map(|again| again.seq).collect::<Vec<_>>()
        };
        assert_eq!(seqs(0, false), [1, 2, 3, 4]);
        assert_eq!((seqs(2, true), seqs(2, false)), (vec![1, 2], vec![3, 4]));
        assert_eq!((seqs(9, true), seqs(9, false)), (vec![1, 2, 3, 4], vec![]));
        ring.forget(4);
        assert_eq!((ring.since(4).gap, ring.since(4).events[0].had), (true, true));
        assert!(ring.since(2).restart);
        assert!(ring.since(0).gap);
    }
}
