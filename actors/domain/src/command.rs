//! Commands in chat: a message whose first word is `/word` asks the program for something, and never reaches the model.
//!
//! `/word@bot` is `/word`; case does not count. `/usr/bin is what?` is no command: a command's name is one word of
//! letters, digits, `-` and `_`, perhaps with a punctuation mark behind it. What looks like a command and is none is
//! refused, with the one that is spelled much like it.

mod nearest;

use std::fmt::{self, Write as _};

use crate::attachment;
use crate::body::{HistorySource, TurnBody};
use crate::chat::plain_text;
use crate::goal::{OBJECTIVE_CHARS_MAX, Status};
use crate::queue::{self, QueueAsk};
use crate::run::{self, RunAsk};
use crate::tally::{DEFAULT, LEVELS};
use crate::text::one_line;

/// Messages that `/history` shows if it is not told otherwise.
const HISTORY_MESSAGES: usize = 10;
/// Messages that it shows at most.
const HISTORY_MESSAGES_MAX: usize = 50;

/// What is told where something is asked about what was said, and nothing was.
pub const NOTHING_SAID: &str = "Nothing has been said here yet.";

/// Characters of an unknown word that are shown again.
const WORD_SHOWN_MAX: usize = 40;

/// A text, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// A message.
    Text,
    /// What a door does itself, at once.
    Control(Control),
    /// What the session does in its turn.
    Turn(Command),
    /// What nobody does.
    Refused(Refused),
}

/// A command that is answered at once, whatever the session is doing. Never kept.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Control {
    /// Cancel the running turn.
    Stop {
        /// And the waiting ones.
        all: bool,
    },
    /// Say what the session does.
    Status,
    /// Show or set what becomes of messages that come while a turn runs.
    Queue(QueueAsk),
    /// Something of the sub-agents of the session.
    Subagents(RunAsk),
    /// Say what commands there are.
    Help,
    /// Stop the process in order, and start it again.
    Restart,
}

/// A command that waits for its turn, like a message. Kept in the transcript, but never shown to the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Command {
    /// Begin the conversation anew.
    New {
        /// Its first message, for the model; that is no command any more.
        rest: Option<String>,
    },
    /// Go on with the conversation, and read everything anew that the model is told besides.
    Refresh {
        /// A message for the model; that is no command any more.
        rest: Option<String>,
    },
    /// Have the model sum up all but the last messages.
    Compact {
        /// What the summary is to keep above all.
        asked: Option<String>,
    },
    /// Show so many of the last messages.
    History(usize),
    /// Go on behind this entry.
    Branch {
        /// Its id, how that begins, or its label.
        entry: String,
    },
    /// Give an entry a name; without a text, take it away.
    Label {
        /// Its id, how that begins, or its label if that is one word.
        entry: String,
        /// The name.
        text: Option<String>,
    },
    /// Give the session a name.
    Name(String),
    /// Use the model of that preset, or the configured one (`default`); without a name, say which it is.
    Model(Option<String>),
    /// Think that hard, or as configured (`default`); without a level, say how hard.
    Think(Option<&'static str>),
    /// Show the entries of all branches.
    Tree,
    /// Work on something until it is reached, show what that is, or end it.
    Goal(GoalAsk),
    /// Something of Dream, which works what was said into the memory, or of what it made or follows.
    Dream(DreamAsk),
    /// The skills that there are.
    Skills,
    /// Make a trigger of that name for this session; without one, say which it has.
    Trigger(Option<String>),
    /// Say how many tokens were used.
    Usage,
    /// Say how much of the model's window is used.
    Context,
}

/// What is asked of the session's goal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum GoalAsk {
    /// Which it is.
    Show,
    /// That it be this, of at most [`OBJECTIVE_CHARS_MAX`] characters; the model begins with it.
    Set(String),
    /// That it end so.
    End(Status),
    /// That the work on it go on.
    Resume,
}

/// What is asked of Dream, or of the texts that it and the heartbeat follow.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DreamAsk {
    /// That it begin.
    Begin,
    /// What the newest version of the memory changed, or the one of that id.
    Log(Option<String>),
    /// That the version of that id be undone; without one, which there are.
    Restore(Option<String>),
    /// What is followed there.
    Prompt {
        /// Where.
        of: Guide,
        /// And that it be written to a file, to be changed.
        init: bool,
    },
}

/// A text of the program that a file of the workspace takes the place of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Guide {
    /// What Dream follows.
    Dream,
    /// What the model follows that decides whether a person is told what the heartbeat found.
    Evaluator,
}

/// A command that cannot be followed; shown as what its sender is told.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is none of that name.
    Unknown {
        /// The name, as it was written, cut.
        word: String,
        /// One that is spelled much like it.
        nearest: Option<&'static str>,
    },
    /// It is not written so.
    Malformed {
        /// How it is.
        usage: &'static str,
    },
    /// This version does not have it.
    Absent {
        /// Its name.
        name: &'static str,
    },
}

/// A command, as `/help` shows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// With its `/`.
    pub name: &'static str,
    /// Name and arguments.
    pub usage: &'static str,
    /// What it does.
    pub what: &'static str,
}

/// All commands there are.
pub const TABLE: &[Entry] = &[
    entry("/help", "/help", "this list"),
    entry("/status", "/status", "what this session is doing"),
    entry("/stop", "/stop [all]", "cancel the running turn; with `all` the waiting messages too"),
    entry("/restart", "/restart", "stop the gateway in order and start it again"),
    entry(
        "/queue",
        "/queue [steer|followup|collect|interrupt] [cap:1-100000] [drop:refuse|old|summarize] [debounce:0-600000ms]",
        "what becomes of messages that come while a turn runs; `/queue default` as configured",
    ),
    entry("/subagents", run::ask::USAGE, "look after the sub-agents of this session"),
    entry("/new", "/new [message]", "begin a new conversation, with that message or the next"),
    entry(
        "/reset",
        "/reset [message]",
        "the same; `/reset soft [message]` goes on, and reads instructions and skills anew",
    ),
    entry("/compact", "/compact [instructions]", "sum up all but the last 8 messages, to make room"),
    entry("/history", "/history [number]", "the last messages, 10 if no number is given, at most 50"),
    entry("/tree", "/tree", "the entries of the conversation and its branches"),
    entry("/branch", "/branch entry", "go on behind that entry, by id or label; what came after it stays, as a branch"),
    entry("/label", "/label entry [text]", "name an entry; without a text, take its name away"),
    entry("/name", "/name text", "name this session"),
    entry("/title", "/title text", "the same"),
    entry("/model", "/model [preset]", "which model answers here; with a preset, or `default`, that one from now on"),
    entry(
        "/think",
        "/think [off|minimal|low|medium|high|xhigh|default]",
        "how hard the model thinks; with a level, that hard from now on",
    ),
    entry(
        "/goal",
        "/goal [objective|resume|done|stop]",
        "work on something over as many answers as it takes; without an objective, what that is",
    ),
    entry("/dream", "/dream", "work what was said lately into the memory now"),
    entry("/dream-log", "/dream-log [version]", "what the newest version of the memory changed, or that one"),
    entry(
        "/dream-restore",
        "/dream-restore [version]",
        "the newest versions; with one, the memory as it was before it",
    ),
    entry("/dream-prompt", "/dream-prompt [init]", "what Dream follows; with `init`, as a file to be changed"),
    entry(
        "/evaluator-prompt",
        "/evaluator-prompt [init]",
        "what decides whether you are told what the heartbeat found; with `init`, as a file to be changed",
    ),
    entry("/skill", "/skill", "the skills of this workspace"),
    entry(
        "/trigger",
        "/trigger [name]",
        "let other programs tell this session something; without a name, its triggers",
    ),
    entry("/usage", "/usage", "how many tokens this conversation used"),
    entry("/context", "/context", "how much of the model's window it fills"),
];

/// Commands of other versions.
const ABSENT: &[&str] = &["/pairing"];

/// What chat programs send when somebody opens a chat with a bot; whatever stands behind it, they are told what there is.
const START: &str = "/start";

const fn entry(name: &'static str, usage: &'static str, what: &'static str) -> Entry {
    Entry { name, usage, what }
}

/// Understands a message.
pub fn parse(text: &str) -> Parsed {
    let Some((word, rest)) = split(text) else { return Parsed::Text };
    let lower = word.to_lowercase();
    if lower == START {
        return Parsed::Control(Control::Help);
    }
    if let Some(name) = ABSENT.iter().find(|name| **name == lower) {
        return Parsed::Refused(Refused::Absent { name });
    }
    let Some(entry) = TABLE.iter().find(|entry| entry.name == lower) else {
        let nearest = nearest::nearest(&lower, TABLE.iter().map(|entry| entry.name));
        let mut shown: String = word.chars().take(WORD_SHOWN_MAX).collect();
        if shown.len() < word.len() {
            shown.push('…');
        }
        return Parsed::Refused(Refused::Unknown { word: shown, nearest });
    };
    match understand(entry.name, rest) {
        Some(parsed) => parsed,
        None => Parsed::Refused(Refused::Malformed { usage: entry.usage }),
    }
}

/// Understands a turn's message, without the files that came with it. One that brings its own conversation, or has no session to command, is text, and so is what
/// a sub-agent is told.
pub fn of_body(body: &TurnBody) -> Parsed {
    match body.history {
        HistorySource::Session if !body.ephemeral && body.event.is_none() && body.run.is_none() => {
            parse(attachment::split(&plain_text(&body.content)).0)
        }
        HistorySource::Session | HistorySource::Request => Parsed::Text,
    }
}

/// What `/help` answers.
pub fn help() -> String {
    let mut text = String::new();
    for entry in TABLE {
        let newline = if text.is_empty() { "" } else { "\n" };
        // Writing to a string cannot fail.
        write!(text, "{newline}{} – {}", entry.usage, entry.what).unwrap_or_default();
    }
    text
}

/// The command's name as it was written, without `@bot`, and what stands behind it.
fn split(text: &str) -> Option<(&str, &str)> {
    let text = text.trim();
    let (word, rest) = text.split_once(char::is_whitespace).unwrap_or((text, ""));
    let word = word.split_once('@').map_or(word, |(name, _)| name);
    let name = word.strip_prefix('/')?.trim_end_matches(['!', '?', '.', ',', ':', ';']);
    let is_name = name.chars().all(|letter| letter.is_alphanumeric() || matches!(letter, '-' | '_'));
    is_name.then_some((word, rest.trim()))
}

/// `None`: it is not written so.
fn understand(name: &str, rest: &str) -> Option<Parsed> {
    let control = match (name, rest) {
        ("/help", "") => Control::Help,
        ("/restart", "") => Control::Restart,
        ("/status", "") => Control::Status,
        ("/queue", rest) => Control::Queue(queue::parse(rest)?),
        ("/subagents", rest) => Control::Subagents(run::ask::parse(rest)?),
        ("/stop", "") => Control::Stop { all: false },
        ("/stop", all) if all.eq_ignore_ascii_case("all") => Control::Stop { all: true },
        (_, _) => return understand_turn(name, rest).map(Parsed::Turn),
    };
    Some(Parsed::Control(control))
}

/// `None`: it is not written so, or is no command of a turn.
fn understand_turn(name: &str, rest: &str) -> Option<Command> {
    let text = (!rest.is_empty()).then(|| rest.to_owned());
    match (name, text) {
        ("/reset", Some(rest)) => Some(match soft(&rest) {
            Some(rest) => Command::Refresh { rest: (!rest.is_empty()).then(|| rest.to_owned()) },
            None => Command::New { rest: Some(rest) },
        }),
        ("/new" | "/reset", rest) => Some(Command::New { rest }),
        ("/compact", asked) => Some(Command::Compact { asked }),
        ("/history", None) => Some(Command::History(HISTORY_MESSAGES)),
        ("/history", Some(count)) => {
            let count = count.parse().ok().filter(|count| *count > 0)?;
            Some(Command::History(HISTORY_MESSAGES_MAX.min(count)))
        }
        ("/tree", None) => Some(Command::Tree),
        ("/branch", Some(entry)) => Some(Command::Branch { entry }),
        ("/label", Some(rest)) => {
            let (entry, text) = rest.split_once(char::is_whitespace).unwrap_or((&rest, ""));
            let text = Some(text.trim()).filter(|text| !text.is_empty());
            Some(Command::Label { entry: entry.to_owned(), text: text.map(str::to_owned) })
        }
        ("/name" | "/title", Some(name)) => Some(Command::Name(one_line(&name))),
        ("/model", preset) => match preset {
            Some(preset) if preset.contains(char::is_whitespace) => None,
            preset => Some(Command::Model(preset)),
        },
        ("/think", None) => Some(Command::Think(None)),
        ("/think", Some(level)) => {
            let level = level.to_lowercase();
            LEVELS.iter().chain([&DEFAULT]).find(|known| **known == level).map(|known| Command::Think(Some(known)))
        }
        ("/goal", None) => Some(Command::Goal(GoalAsk::Show)),
        ("/goal", Some(goal)) => match goal.to_lowercase().as_str() {
            "done" => Some(Command::Goal(GoalAsk::End(Status::Completed))),
            "stop" => Some(Command::Goal(GoalAsk::End(Status::Cancelled))),
            "resume" => Some(Command::Goal(GoalAsk::Resume)),
            _ => (goal.chars().count() <= OBJECTIVE_CHARS_MAX).then_some(Command::Goal(GoalAsk::Set(goal))),
        },
        ("/dream", None) => Some(Command::Dream(DreamAsk::Begin)),
        ("/dream-log", id) => one_word(id).map(|id| Command::Dream(DreamAsk::Log(id))),
        ("/dream-restore", id) => one_word(id).map(|id| Command::Dream(DreamAsk::Restore(id))),
        ("/dream-prompt", init) => prompt(Guide::Dream, init.as_deref()),
        ("/evaluator-prompt", init) => prompt(Guide::Evaluator, init.as_deref()),
        ("/skill", None) => Some(Command::Skills),
        ("/trigger", name) => Some(Command::Trigger(name.map(|name| one_line(&name)))),
        ("/usage", None) => Some(Command::Usage),
        ("/context", None) => Some(Command::Context),
        (_, _) => None,
    }
}

/// Asks what is followed there; `None` for another word than `init`.
fn prompt(of: Guide, init: Option<&str>) -> Option<Command> {
    let is_known = init.is_none_or(|word| word.eq_ignore_ascii_case("init"));
    is_known.then_some(Command::Dream(DreamAsk::Prompt { of, init: init.is_some() }))
}

/// Nothing, or one word; `None` for more.
fn one_word(text: Option<String>) -> Option<Option<String>> {
    text.as_ref().is_none_or(|text| !text.contains(char::is_whitespace)).then_some(text)
}

/// What stands behind the word `soft`, if the text begins with it.
fn soft(rest: &str) -> Option<&str> {
    let (word, rest) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
    word.eq_ignore_ascii_case("soft").then(|| rest.trim_start())
}

// === impl Command ===

impl Command {
    /// Whether it is about what was said: where nothing was, there is nothing to show or to change.
    pub fn is_about_what_was_said(&self) -> bool {
        match self {
            Self::History(_) | Self::Tree | Self::Usage | Self::Context | Self::Branch { .. } | Self::Label { .. } => {
                true
            }
            Self::New { .. }
            | Self::Refresh { .. }
            | Self::Compact { .. }
            | Self::Name(_)
            | Self::Model(_)
            | Self::Think(_)
            | Self::Goal(_)
            | Self::Dream(_)
            | Self::Skills
            | Self::Trigger(_) => false,
        }
    }
}

// === impl Refused ===

impl fmt::Display for Refused {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { word, nearest } => {
                let hint = nearest.map_or("See /help.".to_owned(), |name| format!("Did you mean {name}?"));
                write!(out, "Unknown command {word}. {hint}")?;
            }
            Self::Malformed { usage } => write!(out, "Please write it so: {usage}.")?,
            Self::Absent { name } => write!(out, "{name} is not available in this version.")?,
        }
        out.write_str(" It was not sent to the model.")
    }
}

#[cfg(test)]
mod tests;
