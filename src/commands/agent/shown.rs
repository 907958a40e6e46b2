//! What the terminal shows of turns: the model's messages on lines of their own, all else in brackets. Pure.

use domain::text::one_line;
use protocol::turn::TurnResult;

/// What the terminal is told of a turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Piece {
    /// An attempt began.
    Began,
    /// A part of a message of the model's.
    Delta(String),
    /// A message of the model's is complete; with `merge` the next one goes on in the middle of it.
    Whole { text: String, merge: bool },
    /// Something happened that is no part of the answer.
    Note(String),
    /// The end. A turn that `joined` another has its answer there.
    Finished { result: TurnResult, text: String },
}

/// What is written.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Out {
    /// To standard output, as it is.
    Text(String),
    /// A line to standard error, in brackets.
    Note(String),
}

/// What stands on the terminal. Of several turns at most one is in the middle of a message.
#[derive(Debug, Default)]
pub(super) struct Shown {
    /// The message that is being shown, so far.
    said: String,
    /// Whether the cursor is behind a part of it.
    open: bool,
    /// The last message that was shown whole.
    last: String,
}

impl Shown {
    /// Shows a piece.
    pub(super) fn step(&mut self, piece: Piece) -> Vec<Out> {
        let mut out = Vec::new();
        match piece {
            Piece::Began => {
                self.end(&mut out);
                self.last.clear();
            }
            Piece::Delta(text) => self.add(text, &mut out),
            Piece::Whole { text, merge } => {
                if self.said.is_empty() {
                    self.add(text, &mut out);
                }
                if !merge {
                    self.end(&mut out);
                }
            }
            Piece::Note(text) => {
                out.extend(self.interrupt());
                out.push(Out::Note(one_line(&text)));
            }
            Piece::Finished { text, .. } => {
                self.end(&mut out);
                // What stands behind the last message is not said by the model: only that is new.
                let last = std::mem::take(&mut self.last);
                let behind = text.trim().strip_prefix(last.trim());
                let new = behind.filter(|rest| rest.is_empty() || rest.starts_with('\n') || last.is_empty());
                let new = new.unwrap_or(&text).trim_start();
                if !new.is_empty() {
                    out.push(Out::Text(format!("{new}\n")));
                }
            }
        }
        out
    }

    /// Makes room for something else on a line of its own; a message that is being shown goes on behind it.
    pub(super) fn interrupt(&mut self) -> Option<Out> {
        std::mem::take(&mut self.open).then(|| Out::Text("\n".to_owned()))
    }

    fn add(&mut self, text: String, out: &mut Vec<Out>) {
        if !text.is_empty() {
            self.said.push_str(&text);
            self.open = true;
            out.push(Out::Text(text));
        }
    }

    /// The message that is being shown is complete.
    fn end(&mut self, out: &mut Vec<Out>) {
        out.extend(self.interrupt());
        if !self.said.is_empty() {
            self.last = std::mem::take(&mut self.said);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(pieces: Vec<Piece>, shown: &str) {
        let mut state = Shown::default();
        let mut all = String::new();
        for out in pieces.into_iter().flat_map(|piece| state.step(piece)) {
            match out {
                Out::Text(text) => all.push_str(&text),
                Out::Note(text) => all.push_str(&format!("[{text}]\n")),
            }
        }
        assert_eq!(all, shown);
    }

    fn delta(text: &str) -> Piece {
        Piece::Delta(text.to_owned())
    }

    fn whole(text: &str, merge: bool) -> Piece {
        Piece::Whole { text: text.to_owned(), merge }
    }

    fn note(text: &str) -> Piece {
        Piece::Note(text.to_owned())
    }

    fn finished(text: &str) -> Piece {
        Piece::Finished { result: TurnResult::Done, text: text.to_owned() }
    }

    #[test]
    fn each_message_stands_on_its_own_lines_and_once() {
        check(vec![delta("Hel"), delta("lo"), whole("Hello", false), finished("Hello")], "Hello\n");
        check(vec![delta("Hello"), finished("Hello")], "Hello\n");
        check(vec![whole("Hello", false), finished("Hello")], "Hello\n");
        check(vec![finished("Nothing was running.")], "Nothing was running.\n");
        let rounds = ["one", "two"].into_iter().flat_map(|text| [delta(text), whole(text, false)]);
        check(rounds.chain([finished("two")]).collect(), "one\ntwo\n");
        check(vec![delta("a"), whole("a", true), delta("b"), whole("b", false), finished("ab")], "ab\n");
        let look = [delta("I look"), whole("I look", false), note("$ ls\n-l"), delta("done"), finished("done")];
        check(look.into(), "I look\n[$ ls -l]\ndone\n");
        let amid = [delta("in"), note("queued"), delta("deed"), whole("indeed", false), finished("indeed")];
        check(amid.into(), "in\n[queued]\ndeed\n");
        check(vec![delta("half"), finished("Stopped.")], "half\nStopped.\n");
        check(vec![delta("half"), Piece::Began, delta("half a"), finished("half a")], "half\nhalf a\n");
        check(vec![delta("same"), finished("same"), finished("same")], "same\nsame\n");
        check(vec![finished("")], "");
        check(vec![delta("said"), finished("said\n\n(It rests.)")], "said\n(It rests.)\n");
        check(vec![delta("I"), finished("I gave up.")], "I\nI gave up.\n");
    }
}
