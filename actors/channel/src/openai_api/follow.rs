//! One growing answer made of a turn's events, for a client that can only append. Pure.
//!
//! A turn may say something before it calls tools, may be cut and run again, and may be joined late. What was sent
//! cannot be taken back: a new attempt that says the same is followed silently up to where the first one was, one that
//! says something else begins below it.

use std::fmt;
use std::str::FromStr;

use domain::ids::{Attempt, TurnId};
use protocol::turn::{Finished, TurnProgress};

use crate::hub::Shown;
use crate::hub::cursor::Cursor;

/// Between two texts of a turn.
const BREAK: &str = "\n\n";

/// What a client has of an answer, the id of an event of its stream: `<turn id>.<attempt>.<seq>.<bytes>.<bytes of the
/// last message>.<CRC-32C of that>`. The last three find the place also in a transcript, and in another attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Mark {
    cursor: Cursor,
    had: Had,
}

/// How much text of an attempt a client has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Had {
    /// Bytes of all of it.
    all: usize,
    /// Bytes of its last message.
    message: usize,
    /// CRC-32C of that.
    crc: u32,
}

/// Text of an attempt.
#[derive(Debug, Default)]
struct Said {
    text: String,
    /// Where its last message begins.
    message: usize,
    crc: u32,
}

/// The answer so far.
#[derive(Debug)]
pub(crate) struct Follow {
    attempt: Attempt,
    seq: u64,
    /// All that was sent.
    sent: Said,
    /// What was sent by an earlier stream, until its place is found.
    had: Option<Had>,
    /// What this attempt said while it is behind what was sent; `None` when both are the same.
    behind: Option<Said>,
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

// === impl Mark ===

impl Mark {
    /// Whose answer it is.
    pub(crate) fn turn(&self) -> TurnId {
        self.cursor.turn
    }
}

impl fmt::Display for Mark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Had { all, message, crc } = self.had;
        write!(f, "{}.{all}.{message}.{crc:08x}", self.cursor)
    }
}

impl FromStr for Mark {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let mut parts = text.rsplitn(4, '.');
        let (Some(crc), Some(message), Some(all), Some(cursor)) =
            (parts.next(), parts.next(), parts.next(), parts.next())
        else {
            return Err(());
        };
        let crc = u32::from_str_radix(crc, 16).map_err(drop)?;
        let (all, message) = (all.parse().map_err(drop)?, message.parse().map_err(drop)?);
        if message > all {
            return Err(());
        }
        Ok(Self { cursor: cursor.parse().map_err(drop)?, had: Had { all, message, crc } })
    }
}

// === impl Had ===

impl Had {
    /// What comes behind it in the text of an attempt; `None` when that is another text.
    fn rest(self, text: &str) -> Option<&str> {
        let last = text.get(self.all.checked_sub(self.message)?..self.all)?;
        (crc32c::crc32c(last.as_bytes()) == self.crc).then(|| text.get(self.all..)).flatten()
    }

    /// What comes behind it in a message, if that is the last one it has something of.
    fn rest_of_message(self, message: &str) -> Option<&str> {
        Self { all: self.message, ..self }.rest(message)
    }
}

// === impl Said ===

impl Said {
    fn push(&mut self, text: &str) {
        self.crc = crc32c::crc32c_append(self.crc, text.as_bytes());
        self.text.push_str(text);
    }

    /// The next message begins.
    fn part(&mut self) {
        self.text.push_str(BREAK);
        (self.message, self.crc) = (self.text.len(), 0);
    }
}

// === impl Follow ===

impl Follow {
    /// From the start, or behind what the client has.
    pub(crate) fn new(mark: Option<Mark>) -> Self {
        let had = mark.map(|mark| mark.had).filter(|had| had.all > 0);
        Self {
            attempt: Attempt(0),
            seq: 0,
            sent: Said::default(),
            had,
            behind: had.map(|_| Said::default()),
            round: 0,
            gap: false,
            broken: false,
            merge: false,
            last_end: None,
        }
    }

    /// What the client has now.
    pub(crate) fn mark(&self, turn: TurnId) -> Mark {
        let cursor = Cursor { turn, attempt: self.attempt, seq: self.seq };
        let Said { text, message, crc } = &self.sent;
        let now = Had { all: text.len(), message: text.len() - message, crc: *crc };
        Mark { cursor, had: self.had.unwrap_or(now) }
    }

    /// What to append for this event; empty for nothing.
    pub(crate) fn see(&mut self, shown: &Shown) -> String {
        if shown.restart || shown.event.attempt != self.attempt {
            self.attempt = shown.event.attempt;
            self.behind = (self.had.is_some() || !self.sent.text.is_empty()).then(Said::default);
            (self.round, self.gap, self.broken, self.merge, self.last_end) = (0, false, false, false, None);
        }
        self.seq = shown.event.seq;
        self.gap |= shown.gap;
        match &shown.event.what {
            TurnProgress::Delta(_) if self.gap => String::new(),
            TurnProgress::Delta(text) => {
                self.round += text.len();
                self.say(text)
            }
            TurnProgress::StreamEnd { text, merge, .. } => {
                let said = match (self.gap, self.had) {
                    (true, Some(had)) => self.say_behind(had, text),
                    (true, None) => self.say(text),
                    (false, _) => text.get(self.round..).map(|rest| self.say(rest)).unwrap_or_default(),
                };
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
            | TurnProgress::Notice(_)
            | TurnProgress::Goal(_) => String::new(),
        }
    }

    /// What to append when the turn has ended, and its last message is all that is known of it.
    pub(crate) fn past(&mut self, finished: &Finished) -> String {
        match self.had {
            Some(had) => self.say_behind(had, &finished.text),
            None => self.say(&finished.text),
        }
    }

    fn finish(&mut self, finished: &Finished) -> String {
        let mut last = String::new();
        if self.last_end.as_deref() != Some(&*finished.text) {
            self.broken |= self.round > 0;
            last = self.say(&finished.text);
        }
        // An attempt that said less than was sent has said its last; of another stream one knows no more than how much
        // it was.
        match (self.had.take(), self.behind.take()) {
            (Some(_), Some(said)) if !said.text.is_empty() => {
                let below = format!("{BREAK}{}", said.text);
                self.sent = said;
                below
            }
            (_, behind) => {
                self.behind = behind;
                last
            }
        }
    }

    fn say(&mut self, text: &str) -> String {
        if text.is_empty() {
            return String::new();
        }
        let to = self.behind.as_mut().unwrap_or(&mut self.sent);
        let before = to.text.len();
        if std::mem::take(&mut self.broken) {
            to.part();
        }
        to.push(text);
        let Some(behind) = self.behind.take() else {
            return self.sent.text.get(before..).unwrap_or_default().to_owned();
        };
        let rest = match self.had {
            Some(had) if behind.text.len() < had.all => {
                self.behind = Some(behind);
                return String::new();
            }
            Some(had) => had.rest(&behind.text),
            None if self.sent.text.starts_with(&behind.text) && behind.text != self.sent.text => {
                self.behind = Some(behind);
                return String::new();
            }
            None => behind.text.strip_prefix(&self.sent.text),
        };
        let more = rest.map_or_else(|| format!("{BREAK}{}", behind.text), str::to_owned);
        self.had = None;
        self.sent = behind;
        more
    }

    /// A message that is known whole, where nothing is known of what came before it.
    fn say_behind(&mut self, had: Had, message: &str) -> String {
        if message.is_empty() {
            return String::new();
        }
        (self.had, self.behind) = (None, None);
        self.sent = Said::default();
        self.sent.push(message);
        had.rest_of_message(message).map_or_else(|| format!("{BREAK}{message}"), str::to_owned)
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
        let mut follow = Follow::new(None);
        let said = events.into_iter().map(|(attempt, gap, what)| {
            let turn = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
            let key = SessionKey::new("api:x").unwrap();
            let event = TurnEvent { key, turn, attempt: Attempt(attempt), seq: 1, what };
            follow.see(&Shown { event, round: 1, gap, had: false, restart: false })
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
        let (text, usage) = (text.to_owned(), Usage::default());
        let finished = Finished { result, into: None, text, stop, model, usage, latency_ms: 1, standing: None };
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

    const TURN: &str = "01890a5d-ac96-774b-bcce-b302099a8057";

    #[test]
    fn marks_print_and_parse() {
        let text = format!("{TURN}.2.17.120.7.0000ab12");
        assert_eq!(text.parse::<Mark>().unwrap().to_string(), text);
        for bad in
            ["", "x", TURN, &format!("{TURN}.2.17"), &format!("{TURN}.2.17.7.120.0"), &format!("{TURN}.2.17.1.1.g")]
        {
            assert!(bad.parse::<Mark>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_turn_that_ended_goes_on_behind_what_the_client_has() {
        let had = |parts: &[&str]| {
            let mut said = Said::default();
            for (at, part) in parts.iter().enumerate() {
                if at > 0 {
                    said.part();
                }
                said.push(part);
            }
            let follow = Follow { sent: said, ..Follow::new(None) };
            follow.mark(TURN.parse().unwrap())
        };
        let TurnProgress::Finished(ended) = finished("the answer") else { panic!() };
        for (parts, rest) in [
            (&[][..], "the answer"),
            (&["the "], "answer"),
            (&["the answer"], ""),
            (&["let me look", "the a"], "nswer"),
            (&["let me l"], "\n\nthe answer"),
            (&["the answer, and more"], "\n\nthe answer"),
        ] {
            assert_eq!(Follow::new(Some(had(parts))).past(&ended), rest, "{parts:?}");
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
