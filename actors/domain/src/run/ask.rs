//! What `/subagents` asks for. Pure.

use super::Saying;

/// Messages that a log shows if it is not told otherwise, and at most.
const LOG_MESSAGES: usize = 10;
const LOG_MESSAGES_MAX: usize = 50;

/// How it is written.
pub const USAGE: &str = "/subagents [list|inspect id|log id [number]|send id text|steer id text|cancel id|cancel all]";

/// What is asked of the sub-agents of a session. `run` is an id, how one begins, or a label without white space.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RunAsk {
    /// Which there are.
    List,
    /// What one was sent to do, and what it said last.
    Inspect {
        /// Which.
        run: String,
    },
    /// The last messages of its conversation.
    Log {
        /// Whose.
        run: String,
        /// How many.
        messages: usize,
    },
    /// Say something to one.
    Say {
        /// Which.
        run: String,
        /// How.
        saying: Saying,
        /// What.
        text: String,
    },
    /// Stop one, or all of them.
    Cancel {
        /// Which; `None`: all of them.
        run: Option<String>,
    },
}

/// Understands what stands behind `/subagents`; `None`: it is not written so.
pub fn parse(rest: &str) -> Option<RunAsk> {
    let (verb, rest) = first_word(rest);
    let (run, behind) = first_word(rest);
    let named = |only: bool| (!run.is_empty() && (!only || behind.is_empty())).then(|| run.to_owned());
    let say = |saying| {
        let text = behind.to_owned();
        named(false).filter(|_| !text.is_empty()).map(|run| RunAsk::Say { run, saying, text })
    };
    match verb.to_lowercase().as_str() {
        "" | "list" if rest.is_empty() => Some(RunAsk::List),
        "inspect" | "info" | "show" => named(true).map(|run| RunAsk::Inspect { run }),
        "log" if behind.is_empty() => named(true).map(|run| RunAsk::Log { run, messages: LOG_MESSAGES }),
        "log" => {
            let messages: usize = behind.parse().ok().filter(|messages| *messages > 0)?;
            named(false).map(|run| RunAsk::Log { run, messages: messages.min(LOG_MESSAGES_MAX) })
        }
        "send" => say(Saying::Send),
        "steer" => say(Saying::Steer),
        "cancel" | "stop" | "kill" => {
            named(true).map(|run| RunAsk::Cancel { run: Some(run).filter(|run| !run.eq_ignore_ascii_case("all")) })
        }
        _ => None,
    }
}

/// And what stands behind it.
fn first_word(text: &str) -> (&str, &str) {
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    (word, rest.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(written: &str, asked: Option<RunAsk>) {
        assert_eq!(parse(written), asked, "{written:?}");
    }

    #[test]
    fn spellings() {
        let run = || "toads".to_owned();
        let say = |saying| Some(RunAsk::Say { run: run(), saying, text: "count  the\nnewts".to_owned() });
        check("", Some(RunAsk::List));
        check("LIST", Some(RunAsk::List));
        check("list them", None);
        check("info toads", Some(RunAsk::Inspect { run: run() }));
        check("inspect", None);
        check("inspect toads newts", None);
        check("log toads", Some(RunAsk::Log { run: run(), messages: 10 }));
        check("log toads 900", Some(RunAsk::Log { run: run(), messages: 50 }));
        check("log toads 0", None);
        check("log toads all", None);
        check("send toads count  the\nnewts", say(Saying::Send));
        check("Steer  toads\ncount  the\nnewts", say(Saying::Steer));
        check("send toads", None);
        check("cancel toads", Some(RunAsk::Cancel { run: Some(run()) }));
        check("cancel ALL", Some(RunAsk::Cancel { run: None }));
        check("cancel", None);
        check("frobnicate toads", None);
    }
}
