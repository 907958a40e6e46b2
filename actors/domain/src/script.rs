//! Directives: how the text of a user message tells a scripted model what to do.
//!
//! The built-in offline model and the scripted model server of the tests understand the same ones. A directive stands
//! between double square brackets, `[[key]]` or `[[key=value]]`; several may share a pair with `;` between them. For
//! example `read it [[tool=read_file {"path":"a.txt"}]] [[tokens=3;delay=50]]`. Directives are cut out of the text;
//! brackets that hold none stay in it.

use std::borrow::Cow;

use crate::history::spoken;
use crate::prompt::Nudge;

/// Longest answer, in pieces.
pub const PIECES_MAX: usize = 1_000_000;

/// A tool call that the text asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ScriptedCall {
    /// In which round of the turn, from 0.
    pub round: usize,
    /// Tool name.
    pub name: String,
    /// Arguments as written; meant to be JSON.
    pub arguments: String,
}

/// Everything that a text asks for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Script {
    /// The text without the directives, trimmed.
    pub rest: String,
    /// `say=TEXT`: the answer is TEXT.
    pub say: Option<String>,
    /// `echo=TEXT`: echo TEXT in place of the rest.
    pub echo: Option<String>,
    /// `delay=MS` or `delay=MIN..MAX`: time before the first token.
    pub delay_ms: Option<(u64, u64)>,
    /// `tokens=N`: the answer has N pieces.
    pub tokens: Option<usize>,
    /// `itd=MS`: time between two pieces.
    pub piece_delay_ms: Option<u64>,
    /// `tool=NAME {JSON}`, `tool@K=NAME {JSON}`: calls of round 1 or K.
    pub calls: Vec<ScriptedCall>,
    /// `rounds=N`: repeat the last round of calls until N rounds were made.
    pub rounds: Option<usize>,
    /// `badargs`: the calls' arguments lack their closing brace.
    pub bad_arguments: bool,
    /// `show_results`: the answer holds the last tool result.
    pub show_results: bool,
    /// `reasoning=TEXT`: reasoning before the answer.
    pub reasoning: Option<String>,
    /// `usage=IN,OUT,CACHED`: token counts to report.
    pub usage: Option<(u64, u64, u64)>,
    /// `finish=REASON`: finish reason to report.
    pub finish: Option<String>,
    /// `error=STATUS`, `error=context`, `error=quota`: answer with an error.
    pub error: Option<String>,
    /// `retry_after=S`: seconds in the `Retry-After` header.
    pub retry_after_s: Option<u64>,
    /// `times=N`: the error, or else the finish reason, is given the first N times for this text.
    pub times: Option<u64>,
    /// `drop=N`: break the connection after N pieces.
    pub drop_after: Option<usize>,
    /// `truncate`: end the stream without finish reason and end mark.
    pub truncate: bool,
    /// `garbage`: a line in the stream that is no JSON.
    pub garbage: bool,
    /// `empty`: an answer without text.
    pub empty: bool,
    /// `hang`: no answer at all.
    pub hang: bool,
    /// `seq=KEY:N`: this is request number N of KEY.
    pub seq: Option<(String, i64)>,
}

/// One message of a conversation, as far as [`turn_of`] needs it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Line<'a> {
    /// A user message.
    User(Cow<'a, str>),
    /// An assistant message that called tools.
    Calls,
    /// An assistant message that called none.
    Answer,
    /// A tool result.
    Result(Cow<'a, str>),
}

/// The user message that is being answered, and what came after it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ScriptedTurn<'a> {
    /// Its text.
    pub text: Cow<'a, str>,
    /// How many rounds of tool calls followed.
    pub round: usize,
    /// How many tool results followed.
    pub results: usize,
    /// The last of them.
    pub last_result: Cow<'a, str>,
}

/// Finds the turn that is being answered in a conversation given newest first. It begins after the last assistant
/// message without calls. What was told with a user's message is no part of it. Of its user messages the last one with a directive counts, or else the last one, so notes
/// may stand behind what the user said. An answer that is asked to go on ends no turn.
pub fn turn_of<'a>(newest_first: impl IntoIterator<Item = Line<'a>>) -> ScriptedTurn<'a> {
    let mut turn = ScriptedTurn::default();
    let mut last_result = None;
    let (mut found, mut rounds, mut results) = (false, 0, 0);
    let mut goes_on = false;
    for line in newest_first {
        match line {
            Line::User(text) if Nudge::asks_to_go_on(&text) => goes_on = true,
            Line::User(text) => {
                let text = match spoken(&text) {
                    spoken if spoken.len() < text.len() => Cow::Owned(spoken),
                    _ => text,
                };
                goes_on = false;
                let directed = text.contains("[[");
                if !found || directed {
                    found = true;
                    (turn.text, turn.round, turn.results) = (text, rounds, results);
                }
                if directed {
                    break;
                }
            }
            Line::Calls => rounds += 1,
            // The turn is still being answered.
            Line::Answer if goes_on => {}
            Line::Answer => break,
            Line::Result(text) => {
                results += 1;
                last_result.get_or_insert(text);
            }
        }
    }
    turn.last_result = last_result.unwrap_or_default();
    turn
}

// === impl Script ===

impl Script {
    /// Reads the directives of `text`.
    pub fn parse(text: &str) -> Self {
        let mut script = Self::default();
        let mut rest = String::with_capacity(text.len());
        let mut left = text;
        while let Some((before, inside)) = left.split_once("[[") {
            rest.push_str(before);
            left = match cut_directive(inside) {
                Some((directive, after)) if script.read(directive) => after,
                Some(_) | None => {
                    rest.push_str("[[");
                    inside
                }
            };
        }
        rest.push_str(left);
        script.rest = rest.trim().to_owned();
        script
    }

    /// The calls of `round`, with their arguments as they shall be sent. None when the turn has come to its answer.
    pub fn calls_of(&self, round: usize) -> Vec<(&str, Cow<'_, str>)> {
        let last = self.calls.iter().map(|call| call.round).max().unwrap_or(0);
        let rounds = self.rounds.unwrap_or(if self.calls.is_empty() { 0 } else { last + 1 });
        if round >= rounds {
            return Vec::new();
        }
        let calls = self.calls.iter().filter(|call| call.round == round.min(last));
        calls
            .map(|call| {
                let whole = call.arguments.as_str();
                let cut = whole.strip_suffix('}').filter(|_| self.bad_arguments);
                (call.name.as_str(), Cow::Borrowed(cut.unwrap_or(whole)))
            })
            .collect()
    }

    /// Reads what stands inside one pair of brackets; whether any of it was understood.
    fn read(&mut self, directive: &str) -> bool {
        let (head, value) = directive.split_once('=').unwrap_or((directive, ""));
        match head.trim() {
            "say" => self.say = Some(value.to_owned()),
            "echo" => self.echo = Some(value.to_owned()),
            "reasoning" => self.reasoning = Some(value.to_owned()),
            tool if tool == "tool" || tool.starts_with("tool@") => self.read_call(tool, value.trim()),
            _ => {
                let mut any = false;
                for pair in directive.split(';') {
                    let (key, value) = pair.split_once('=').unwrap_or((pair, ""));
                    any |= self.read_pair(key.trim(), value.trim());
                }
                return any;
            }
        }
        true
    }

    fn read_call(&mut self, head: &str, value: &str) {
        let number = head.strip_prefix("tool@").and_then(|round| round.parse::<usize>().ok()).unwrap_or(1);
        let (name, arguments) = value.split_once(char::is_whitespace).unwrap_or((value, "{}"));
        let round = number.saturating_sub(1);
        self.calls.push(ScriptedCall { round, name: name.to_owned(), arguments: arguments.trim().to_owned() });
    }

    fn read_pair(&mut self, key: &str, value: &str) -> bool {
        match key {
            "delay" => self.delay_ms = range(value),
            "tokens" => self.tokens = value.parse().ok().map(|count: usize| count.clamp(1, PIECES_MAX)),
            "itd" => self.piece_delay_ms = value.parse().ok(),
            "rounds" => self.rounds = value.parse().ok(),
            "badargs" => self.bad_arguments = true,
            "show_results" => self.show_results = true,
            "usage" => self.usage = Some(usage(value)),
            "finish" => self.finish = Some(value.to_owned()),
            "error" => self.error = Some(value.to_owned()),
            "retry_after" => self.retry_after_s = value.parse().ok(),
            "times" => self.times = value.parse().ok(),
            "drop" => self.drop_after = Some(value.parse().unwrap_or(1)),
            "truncate" => self.truncate = true,
            "garbage" => self.garbage = true,
            "empty" => self.empty = true,
            "hang" => self.hang = true,
            "seq" => match value.rsplit_once(':') {
                Some((key, number)) => self.seq = number.parse().ok().map(|number| (key.to_owned(), number)),
                None => return false,
            },
            _ => return false,
        }
        true
    }
}

/// Splits at the end of a directive. The arguments of a tool are read as JSON, so `]]` may occur in them.
fn cut_directive(inside: &str) -> Option<(&str, &str)> {
    if inside.starts_with("tool")
        && let Some(brace) = inside.find('{')
        && inside.find("]]").is_none_or(|close| brace < close)
    {
        let json = inside.get(brace..)?;
        let mut values = serde_json::Deserializer::from_str(json).into_iter::<serde::de::IgnoredAny>();
        if let Some(Ok(_)) = values.next() {
            let end = brace + values.byte_offset();
            let close = end + inside.get(end..)?.find("]]")?;
            return Some((inside.get(..close)?, inside.get(close + 2..)?));
        }
    }
    inside.split_once("]]")
}

fn range(value: &str) -> Option<(u64, u64)> {
    let (low, high) = value.split_once("..").unwrap_or((value, value));
    Some((low.trim().parse().ok()?, high.trim().parse().ok()?))
}

fn usage(value: &str) -> (u64, u64, u64) {
    let mut counts = value.split(',').map(|count| count.trim().parse().unwrap_or(0));
    let mut next = || counts.next().unwrap_or(0);
    (next(), next(), next())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn directives_are_read_and_cut_out() {
        let script = Script::parse("hello [[tokens=3;itd=50;delay=200..300]] you [[seq=a:b:7]]");
        assert_eq!(script.rest, "hello  you");
        assert_eq!((script.tokens, script.piece_delay_ms, script.delay_ms), (Some(3), Some(50), Some((200, 300))));
        assert_eq!(script.seq, Some(("a:b".to_owned(), 7)));
        assert_eq!(Script::parse("[[say=a=b; c]]").say.as_deref(), Some("a=b; c"));
        assert_eq!(Script::parse("[[usage=5,7]]").usage, Some((5, 7, 0)));
    }

    #[test]
    fn brackets_without_a_directive_stay() {
        for text in ["see [[wiki page]] there", "open [[ and no close", "[[", "]]", "a [[[[b]]"] {
            let script = Script::parse(text);
            assert_eq!(script, Script { rest: text.to_owned(), ..Script::default() });
        }
    }

    #[test]
    fn tool_calls_have_rounds_and_json_may_hold_brackets() {
        let script = Script::parse(r#"[[tool=a {"x":[[1]]}]][[tool=b]] go [[tool@3=c {"y":"]]"}]]"#);
        assert_eq!(script.rest, "go");
        assert_eq!(script.calls_of(0), [("a", r#"{"x":[[1]]}"#.into()), ("b", "{}".into())]);
        assert!(script.calls_of(1).is_empty());
        assert_eq!(script.calls_of(2), [("c", r#"{"y":"]]"}"#.into())]);
        assert!(script.calls_of(3).is_empty());
        let endless = Script::parse("[[tool=a {}]][[rounds=9]][[badargs]]");
        assert_eq!(endless.calls_of(8), [("a", "{".into())]);
        assert!(endless.calls_of(9).is_empty());
    }

    #[test]
    fn the_turn_is_what_came_after_the_last_answer() {
        let user = |text: &'static str| Line::User(text.into());
        let result = |text: &'static str| Line::Result(text.into());
        let turn = turn_of([result("r2"), result("r1"), Line::Calls, user("b"), Line::Answer, user("[[a]]")]);
        assert_eq!(turn, ScriptedTurn { text: "b".into(), round: 1, results: 2, last_result: "r2".into() });
        let rest = Nudge::go_on("half").text();
        let cut =
            turn_of([Line::User(rest.into()), Line::Answer, Line::Answer, user("long"), Line::Answer, user("[[a]]")]);
        assert_eq!(cut.text, "long");
        let noted = turn_of([user("a note"), result("r"), Line::Calls, user("[[tokens=2]]"), user("old")]);
        assert_eq!((noted.text.as_ref(), noted.round, noted.results), ("[[tokens=2]]", 1, 1));
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in r"(\[\[|\]\]|tool=|tool@|\{|\}|;|=|seq=|delay=|.){0,40}") {
            let script = Script::parse(&text);
            let _ = script.calls_of(0);
        }
    }
}
