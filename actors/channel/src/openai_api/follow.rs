//! One growing answer made of a turn's events, for a client that can only append. Pure.
//!
//! A turn may say something before it calls tools, may be cut and run again, and may be joined late. What was sent
//! cannot be taken back: a new attempt that says the same is followed silently up to where the first one was, one that
//! says something else begins below it.

use domain::ids::Attempt;
use protocol::turn::{Finished, TurnProgress};

use crate::hub::Shown;

/// Between two texts of a turn.
const BREAK: &str = "\n\n";

/// The answer so far.
#[derive(Debug)]
pub(crate) struct Follow {
    attempt: Attempt,
    /// All that was sent.
    sent: String,
    /// What this attempt said while it is behind what was sent; `None` when both are the same.
    behind: Option<String>,
    /// Bytes of this round's text that were seen.
    round: usize,
    /// Text of this round was missed: only its end tells.
    gap: bool,
    /// A round before said something, so the next one's text begins with a break.
    broken: bool,
    /// The message before goes on in the next one.
    merge: bool,
    last_end: Option<String>,
}

impl Follow {
    pub(crate) fn new() -> Self {
        Self {
            attempt: Attempt(0),
            sent: String::new(),
            behind: None,
            round: 0,
            gap: false,
            broken: false,
            merge: false,
            last_end: None,
        }
    }

    /// What to append for this event; empty for nothing.
    pub(crate) fn see(&mut self, shown: &Shown) -> String {
        if shown.restart || shown.event.attempt != self.attempt {
            self.attempt = shown.event.attempt;
            self.behind = (!self.sent.is_empty()).then(String::new);
            (self.round, self.gap, self.broken, self.merge, self.last_end) = (0, false, false, false, None);
        }
        self.gap |= shown.gap;
        match &shown.event.what {
            TurnProgress::Delta(_) if self.gap => String::new(),
            TurnProgress::Delta(text) => {
                self.round += text.len();
                self.say(text)
            }
            TurnProgress::StreamEnd { text, merge, .. } => {
                let rest = if self.gap { Some(&**text) } else { text.get(self.round..) };
                let said = rest.map(|rest| self.say(rest)).unwrap_or_default();
                (self.round, self.gap) = (0, false);
                if !text.is_empty() {
                    match self.last_end.as_mut().filter(|_| self.merge) {
                        Some(end) => end.push_str(text),
                        None => self.last_end = Some(text.to_string()),
                    }
                    (self.broken, self.merge) = (!merge, *merge);
                }
                said
            }
            TurnProgress::Finished(finished) => self.finish(finished),
            TurnProgress::Started
            | TurnProgress::Reasoning(_)
            | TurnProgress::ToolStarted { .. }
            | TurnProgress::ToolEnded { .. }
            | TurnProgress::Notice(_) => String::new(),
        }
    }

    fn finish(&mut self, finished: &Finished) -> String {
        if self.last_end.as_deref() == Some(&*finished.text) {
            // An attempt that said less than was sent has said its last.
            return String::new();
        }
        self.broken |= self.round > 0;
        self.say(&finished.text)
    }

    fn say(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let mut more = String::new();
        if std::mem::take(&mut self.broken) {
            more.push_str(BREAK);
        }
        more.push_str(text);
        let Some(mut behind) = self.behind.take() else {
            self.sent.push_str(&more);
            return more;
        };
        behind.push_str(&more);
        if let Some(rest) = behind.strip_prefix(&self.sent) {
            let rest = rest.to_owned();
            self.sent = behind;
            return rest;
        }
        if self.sent.starts_with(&behind) {
            self.behind = Some(behind);
            return String::new();
        }
        let below = format!("{BREAK}{behind}");
        self.sent = behind;
        below
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::chat::{StopReason, Usage};
    use domain::ids::SessionKey;
    use proptest::prelude::*;
    use protocol::turn::{TurnEvent, TurnResult};

    use super::*;

    fn all(events: Vec<(u32, bool, TurnProgress)>) -> Vec<String> {
        let mut follow = Follow::new();
        let said = events.into_iter().map(|(attempt, gap, what)| {
            let turn = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
            let key = SessionKey::new("api:x").unwrap();
            let event = TurnEvent { key, turn, attempt: Attempt(attempt), seq: 1, what };
            follow.see(&Shown { event, round: 1, gap, restart: false })
        });
        said.filter(|text| !text.is_empty()).collect()
    }

    fn delta(text: &str) -> TurnProgress {
        TurnProgress::Delta(text.to_owned())
    }

    fn end(text: &str) -> TurnProgress {
        TurnProgress::StreamEnd { text: text.into(), more: false, merge: false }
    }

    fn finished(text: &str) -> TurnProgress {
        let (result, stop, model) = (TurnResult::Done, StopReason::Stop, "m".into());
        let finished = Finished { result, text: text.to_owned(), stop, model, usage: Usage::default(), latency_ms: 1 };
        TurnProgress::Finished(Arc::new(finished))
    }

    #[test]
    fn answers_grow() {
        let one = |what| (1, false, what);
        for (name, events, said) in [
            ("plain", vec![one(delta("a")), one(delta("b")), one(end("ab")), one(finished("ab"))], vec!["a", "b"]),
            ("not streamed", vec![one(finished("ab"))], vec!["ab"]),
            ("a tail came with the end", vec![one(delta("a")), one(end("ab")), one(finished("ab"))], vec!["a", "b"]),
            (
                "two rounds",
                vec![one(delta("a")), one(end("a")), one(end("")), one(delta("b")), one(end("b")), one(finished("b"))],
                vec!["a", "\n\nb"],
            ),
            (
                "one message in two parts",
                vec![
                    one(delta("a")),
                    one(TurnProgress::StreamEnd { text: "a".into(), more: true, merge: true }),
                    one(delta("b")),
                    one(end("b")),
                    one(finished("ab")),
                ],
                vec!["a", "b"],
            ),
            ("joined late", vec![(1, true, delta("b")), one(end("ab")), one(finished("ab"))], vec!["ab"]),
            (
                "the same again",
                vec![
                    one(delta("abc")),
                    (2, false, TurnProgress::Started),
                    (2, false, delta("a")),
                    (2, false, delta("bcd")),
                    (2, false, end("abcd")),
                    (2, false, finished("abcd")),
                ],
                vec!["abc", "d"],
            ),
            (
                "something else",
                vec![one(delta("abc")), (2, false, delta("ax")), (2, false, end("axy")), (2, false, finished("axy"))],
                vec!["abc", "\n\nax", "y"],
            ),
        ] {
            assert_eq!(all(events), said, "{name}");
        }
    }

    /// The events of one attempt: each round in pieces of `size` characters.
    fn attempt(number: u32, rounds: &[String], size: usize) -> Vec<(u32, bool, TurnProgress)> {
        let mut events = vec![(number, false, TurnProgress::Started)];
        for round in rounds {
            let chars: Vec<char> = round.chars().collect();
            events.extend(chars.chunks(size).map(|piece| (number, false, delta(&piece.iter().collect::<String>()))));
            events.push((number, false, end(round)));
        }
        let last = rounds.iter().rfind(|round| !round.is_empty()).cloned().unwrap_or_default();
        events.push((number, false, finished(&last)));
        events
    }

    proptest! {
        #[test]
        fn a_turn_that_says_the_same_again_is_heard_once(
            rounds in prop::collection::vec("[a-zé]{0,12}", 1..4),
            sizes in (1usize..5, 1usize..5),
            cut in 0usize..40,
        ) {
            let mut events = attempt(1, &rounds, sizes.0);
            events.pop();
            events.truncate(cut);
            events.extend(attempt(2, &rounds, sizes.1));
            let texts: Vec<&str> = rounds.iter().map(String::as_str).filter(|round| !round.is_empty()).collect();
            prop_assert_eq!(all(events).concat(), texts.join(BREAK));
        }
    }
}
