//! What becomes of messages that come while a turn of their session runs: the rules of its queue, and how they are set.
//!
//! A session's own rules stand in its transcript as a `custom` line of the type [`NOTE`], whose data is a [`QueueSet`]; the
//! last one counts. What they leave open is as configured.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::transcript::Entry;

/// The type of the line that keeps the rules of a session.
pub const NOTE: &str = "greenroom.queue";

/// How many may wait at most, whatever is set.
const CAP_MAX: u32 = 100_000;
/// The longest debounce.
const DEBOUNCE_MS_MAX: u64 = 600_000;

/// How waiting messages are taken up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueMode {
    /// By the running turn, between its tool calls; a turn of its own where it has no more of them.
    Steer,
    /// Each by a turn of its own.
    Followup,
    /// All that wait by one turn.
    Collect,
    /// The running turn is cancelled for it.
    Interrupt,
}

/// What happens when too many wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum QueueDrop {
    /// The new one is refused.
    Refuse,
    /// The oldest of them ends as cancelled.
    Old,
    /// The same, and the next turn is told its first words.
    Summarize,
}

/// The rules of one session's queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct QueueRules {
    /// How waiting messages are taken up.
    pub mode: QueueMode,
    /// How many may wait; the turn that runs, or is next, does not count.
    pub cap: u32,
    /// What happens when more would.
    pub drop: QueueDrop,
    /// For [`QueueMode::Collect`]: how long no new one has come when they are taken up.
    pub debounce: Duration,
}

/// What a session sets of its rules.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct QueueSet {
    /// How waiting messages are taken up.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<QueueMode>,
    /// How many may wait.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cap: Option<u32>,
    /// What happens when more would.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub drop: Option<QueueDrop>,
    /// How long no new one has come when they are collected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub debounce_ms: Option<u64>,
}

/// What `/queue` asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum QueueAsk {
    /// What the rules are.
    Show,
    /// These, in place of those that it had of the kind.
    Set(QueueSet),
    /// Those that are configured.
    Default,
}

// === impl QueueMode ===

impl QueueMode {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Steer => "steer",
            Self::Followup => "followup",
            Self::Collect => "collect",
            Self::Interrupt => "interrupt",
        }
    }

    /// Two words are of earlier versions of OpenClaw.
    fn parse(word: &str) -> Option<Self> {
        Some(match word {
            "steer" | "queue" => Self::Steer,
            "followup" | "steer-backlog" => Self::Followup,
            "collect" => Self::Collect,
            "interrupt" => Self::Interrupt,
            _ => return None,
        })
    }
}

// === impl QueueDrop ===

impl QueueDrop {
    /// As it is written.
    pub fn word(self) -> &'static str {
        match self {
            Self::Refuse => "refuse",
            Self::Old => "old",
            Self::Summarize => "summarize",
        }
    }

    fn parse(word: &str) -> Option<Self> {
        [Self::Refuse, Self::Old, Self::Summarize].into_iter().find(|drop| drop.word() == word)
    }
}

// === impl QueueRules ===

impl Default for QueueRules {
    fn default() -> Self {
        let debounce = Duration::from_millis(500);
        Self { mode: QueueMode::Steer, cap: 20, drop: QueueDrop::Refuse, debounce }
    }
}

impl QueueRules {
    /// How many may wait before a new message is refused; without it, none is.
    pub fn refuses_above(&self) -> Option<u32> {
        match self.drop {
            QueueDrop::Refuse => Some(self.cap),
            QueueDrop::Old | QueueDrop::Summarize => None,
        }
    }
}

/// As people are told.
impl fmt::Display for QueueRules {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { mode, cap, drop, debounce } = self;
        write!(out, "{}, cap {cap}, drop {}, debounce {} ms", mode.word(), drop.word(), debounce.as_millis())
    }
}

// === impl QueueSet ===

impl QueueSet {
    /// The rules, where `usual` are those that it does not set.
    pub fn over(&self, usual: &QueueRules) -> QueueRules {
        QueueRules {
            mode: self.mode.unwrap_or(usual.mode),
            cap: self.cap.unwrap_or(usual.cap),
            drop: self.drop.unwrap_or(usual.drop),
            debounce: self.debounce_ms.map_or(usual.debounce, Duration::from_millis),
        }
    }

    /// What `self` does not set is as `before` set it.
    pub fn or(self, before: Self) -> Self {
        Self {
            mode: self.mode.or(before.mode),
            cap: self.cap.or(before.cap),
            drop: self.drop.or(before.drop),
            debounce_ms: self.debounce_ms.or(before.debounce_ms),
        }
    }
}

/// What an entry sets, if it is a [`NOTE`]; one that cannot be read sets nothing.
pub fn set_by(entry: &Entry) -> Option<QueueSet> {
    let data = entry.custom(NOTE)?;
    Some(data.and_then(|data| serde_json::from_str(data).ok()).unwrap_or_default())
}

/// Understands what stands behind `/queue`: `[mode] [cap:n] [drop:x] [debounce:n|nms|ns]`, or `default`.
pub fn parse(text: &str) -> Option<QueueAsk> {
    let text = text.to_lowercase();
    let mut words = text.split_whitespace().peekable();
    match words.peek() {
        None => return Some(QueueAsk::Show),
        Some(&"default") => {
            words.next();
            return words.next().is_none().then_some(QueueAsk::Default);
        }
        Some(_) => {}
    }
    let mut set = QueueSet::default();
    for word in words {
        let again = match word.split_once(':') {
            None => set.mode.replace(QueueMode::parse(word)?).is_some(),
            Some(("cap", count)) => {
                let count = count.parse().ok().filter(|count| (1..=CAP_MAX).contains(count))?;
                set.cap.replace(count).is_some()
            }
            Some(("drop", word)) => set.drop.replace(QueueDrop::parse(word)?).is_some(),
            Some(("debounce", time)) => set.debounce_ms.replace(milliseconds(time)?).is_some(),
            Some(_) => return None,
        };
        if again {
            return None;
        }
    }
    Some(QueueAsk::Set(set))
}

fn milliseconds(text: &str) -> Option<u64> {
    let (number, unit) = match text.strip_suffix("ms") {
        Some(number) => (number, 1),
        None => text.strip_suffix('s').map_or((text, 1), |number| (number, 1000)),
    };
    number.parse::<u64>().ok()?.checked_mul(unit).filter(|ms| *ms <= DEBOUNCE_MS_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::Head;
    use crate::transcript::{EntryKind, Note};

    #[test]
    fn what_stands_behind_the_command_is_understood_or_refused() {
        let set = |set: QueueSet| Some(QueueAsk::Set(set));
        let mode = |mode| QueueSet { mode: Some(mode), ..QueueSet::default() };
        for (text, asked) in [
            ("", Some(QueueAsk::Show)),
            ("default", Some(QueueAsk::Default)),
            ("Collect", set(mode(QueueMode::Collect))),
            ("queue", set(mode(QueueMode::Steer))),
            ("steer-backlog", set(mode(QueueMode::Followup))),
            ("cap:5 interrupt", set(QueueSet { cap: Some(5), ..mode(QueueMode::Interrupt) })),
            ("drop:summarize", set(QueueSet { drop: Some(QueueDrop::Summarize), ..QueueSet::default() })),
            ("debounce:250", set(QueueSet { debounce_ms: Some(250), ..QueueSet::default() })),
            ("debounce:250ms", set(QueueSet { debounce_ms: Some(250), ..QueueSet::default() })),
            ("debounce:2s", set(QueueSet { debounce_ms: Some(2000), ..QueueSet::default() })),
            ("default cap:2", None),
            ("steer collect", None),
            ("cap:0", None),
            ("cap:x", None),
            ("drop:new", None),
            ("debounce:3h", None),
            ("debounce:601s", None),
            ("colour:red", None),
            ("please", None),
        ] {
            assert_eq!(parse(text), asked, "{text:?}");
        }
    }

    #[test]
    fn what_a_session_sets_stands_over_what_is_configured() {
        let first = QueueSet { cap: Some(5), debounce_ms: Some(2000), ..QueueSet::default() };
        let then = QueueSet { mode: Some(QueueMode::Collect), cap: Some(7), ..QueueSet::default() };
        let own = then.or(first);
        let text = serde_json::to_string(&own).unwrap();
        assert_eq!(text, r#"{"mode":"collect","cap":7,"debounceMs":2000}"#);
        let note = |kind: &str, data: &str| {
            let note = Note::Custom { kind: kind.into(), data: Some(data.into()) };
            let head = Head { id: "1".into(), parent: None, timestamp_ms: 0 };
            set_by(&Entry::new(head, EntryKind::Silent(note)))
        };
        assert_eq!(note(NOTE, &text), Some(own));
        assert_eq!(note(NOTE, "{\"mode\":\"shout\"}"), Some(QueueSet::default()));
        assert_eq!(note("greenroom.other", &text), None);
        let rules = own.over(&QueueRules::default());
        assert_eq!(rules.to_string(), "collect, cap 7, drop refuse, debounce 2000 ms");
        assert_eq!(QueueRules::default().to_string(), "steer, cap 20, drop refuse, debounce 500 ms");
    }
}
