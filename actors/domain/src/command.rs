//! Commands in chat: a message whose first word is `/word` asks the program for something, and never reaches the model.
//!
//! `/word@bot` is `/word`; case does not count. `/usr/bin is what?` is no command: a command's name is one word of
//! letters, digits, `-` and `_`, perhaps with a punctuation mark behind it. What looks like a command and is none is
//! refused, with the nearest one.

mod nearest;

use std::fmt::{self, Write as _};

use crate::body::{HistorySource, TurnBody};
use crate::chat::plain_text;

pub use nearest::ratio;

/// Characters of an unknown word that are shown again.
const WORD_SHOWN_MAX: usize = 40;

/// A text, understood.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Parsed {
    /// A message.
    Text,
    /// What a door does itself, at once.
    Control(Control),
    /// What nobody does.
    Refused(Refused),
}

/// A command that is answered at once, whatever the session is doing. Never kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Control {
    /// Cancel the running turn.
    Stop {
        /// And the waiting ones.
        all: bool,
    },
    /// Say what the session does.
    Status,
    /// Say what commands there are.
    Help,
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
];

/// Commands of other versions.
const ABSENT: &[&str] = &[
    "/branch",
    "/compact",
    "/context",
    "/dream",
    "/dream-log",
    "/dream-prompt",
    "/dream-restore",
    "/evaluator-prompt",
    "/goal",
    "/history",
    "/label",
    "/model",
    "/name",
    "/new",
    "/pairing",
    "/queue",
    "/reset",
    "/restart",
    "/skill",
    "/think",
    "/title",
    "/tree",
    "/trigger",
    "/usage",
];

const fn entry(name: &'static str, usage: &'static str, what: &'static str) -> Entry {
    Entry { name, usage, what }
}

/// Understands a message.
pub fn parse(text: &str) -> Parsed {
    let Some((word, rest)) = split(text) else { return Parsed::Text };
    let lower = word.to_lowercase();
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

/// Understands a turn's message. One that brings its own conversation, or has no session to command, is text.
pub fn of_body(body: &TurnBody) -> Parsed {
    match body.history {
        HistorySource::Session if !body.ephemeral => parse(&plain_text(&body.content)),
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
        ("/status", "") => Control::Status,
        ("/stop", "") => Control::Stop { all: false },
        ("/stop", all) if all.eq_ignore_ascii_case("all") => Control::Stop { all: true },
        (_, _) => return None,
    };
    Some(Parsed::Control(control))
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
