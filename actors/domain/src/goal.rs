//! Goals: what a session works on until it is reached, over as many answers as that takes.
//!
//! A goal is kept in the transcript as a `custom` entry of type [`GOAL`]; the latest one counts, and a new conversation has
//! none. The model ends it with a line of its answer, see [`declared`].
//!
//! **Source:** `goal_state` of nanobot 0.3.5: `status`, `objective`, `recap`, and at most 12 invisible continuations.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::{ellipsis, one_line};
use crate::transcript::{Entry, EntryKind};

/// The `customType` of its entries.
pub const GOAL: &str = "greenroom.goal";
/// How often the model is sent on in one turn.
pub const CONTINUATIONS_MAX: u32 = 12;
/// Characters of an objective.
pub const OBJECTIVE_CHARS_MAX: usize = 4000;
/// Characters of what is kept of how it ended.
const RECAP_CHARS_MAX: usize = 500;
/// How the line begins with which the model ends it.
const MARK: &str = "GOAL:";

/// What is to be reached.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goal {
    /// How it stands.
    pub status: Status,
    /// What it is.
    pub objective: Arc<str>,
    /// How it ended, in the model's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recap: Option<Arc<str>>,
}

/// How a goal stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Status {
    /// It is worked on.
    Active,
    /// It was reached.
    Completed,
    /// It was given up by a person.
    Cancelled,
    /// The model cannot go on without a person.
    Blocked,
    /// A person stopped the work on it.
    Paused,
}

// === impl Status ===

impl Status {
    /// As it is written down and shown.
    pub fn word(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Blocked => "blocked",
            Self::Paused => "paused",
        }
    }
}

// === impl Goal ===

impl Goal {
    /// One that was just set.
    pub fn new(objective: &str) -> Self {
        Self { status: Status::Active, objective: objective.into(), recap: None }
    }

    /// While it is worked on.
    pub fn is_active(&self) -> bool {
        self.status == Status::Active
    }

    /// While it can be taken up again: it was neither reached nor given up.
    pub fn is_open(&self) -> bool {
        match self.status {
            Status::Active | Status::Blocked | Status::Paused => true,
            Status::Completed | Status::Cancelled => false,
        }
    }

    /// After the work on it ended.
    #[must_use]
    pub fn ended(&self, status: Status, recap: Option<Arc<str>>) -> Self {
        Self { status, recap, objective: Arc::clone(&self.objective) }
    }

    /// What the model is told of it in each request.
    pub fn instruction(&self) -> String {
        format!(
            "# Goal\n\n{}\n\nWork on it until it is reached; you are asked to go on after each answer. When it is reached, end \
             your answer with a line `{MARK} completed` and what came of it, in one sentence. When you cannot go on without \
             the person, end it with `{MARK} blocked` and what you need.",
            self.objective
        )
    }

    /// What `/goal` shows. It is a turn itself, so nothing works on an active goal while it is answered.
    pub fn told(&self) -> String {
        let recap = self.recap.as_ref().map(|recap| format!(" {recap}")).unwrap_or_default();
        let (status, how) = match self.status {
            Status::Active => ("Paused", "\nThe next message goes on with it; `/goal stop` gives it up."),
            Status::Completed => ("Reached", ""),
            Status::Cancelled => ("Given up", ""),
            Status::Blocked => ("Blocked", "\n`/goal resume` goes on with it; `/goal stop` gives it up."),
            Status::Paused => ("Paused", "\n`/goal resume` goes on with it; `/goal stop` gives it up."),
        };
        format!("{status}: {}{recap}{how}", self.objective)
    }
}

/// The goal that `entry` sets; `Some(None)` when it ends that there is one.
pub fn set_by(entry: &Entry) -> Option<Option<Arc<Goal>>> {
    if matches!(entry.kind, EntryKind::Reset { .. }) {
        return Some(None);
    }
    let data = entry.custom(GOAL)?;
    Some(data.and_then(|data| serde_json::from_str(data).ok()).map(Arc::new))
}

/// How an answer says that the goal ended: its last line that begins with `GOAL:`.
pub fn declared(answer: &str) -> Option<(Status, Option<Arc<str>>)> {
    let line =
        answer.lines().rev().map(|line| line.trim().trim_matches(['`', '*'])).find(|line| line.starts_with(MARK))?;
    let said = line.strip_prefix(MARK)?.trim_start();
    let (word, rest) = said.split_once(|letter: char| !letter.is_alphabetic()).unwrap_or((said, ""));
    let status = match word.to_lowercase().as_str() {
        "completed" => Status::Completed,
        "blocked" => Status::Blocked,
        _ => return None,
    };
    let recap = one_line(rest.trim_matches(|letter: char| letter.is_whitespace() || "-:–—,.".contains(letter)));
    Some((status, (!recap.is_empty()).then(|| ellipsis(&recap, RECAP_CHARS_MAX).as_ref().into())))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_line_with_the_mark_ends_it() {
        let recap = |text: &str| Some(Arc::from(text));
        for (answer, expected) in [
            ("All done.\nGOAL: completed The site is up", Some((Status::Completed, recap("The site is up")))),
            ("GOAL: completed", Some((Status::Completed, None))),
            ("**GOAL: blocked — I need the password.**\n", Some((Status::Blocked, recap("I need the password")))),
            ("GOAL: Completed.", Some((Status::Completed, None))),
            ("GOAL: blocked a\nno\nGOAL: completed: b", Some((Status::Completed, recap("b")))),
            ("The GOAL: completed is far", None),
            ("GOAL: soon", None),
            ("GOAL: completedly", None),
            ("", None),
        ] {
            assert_eq!(declared(answer), expected, "{answer:?}");
        }
        let (_, long) = declared(&format!("GOAL: completed {}", "x".repeat(1000))).unwrap();
        assert!(long.unwrap().chars().count() <= RECAP_CHARS_MAX);
    }

    #[test]
    fn it_is_read_as_it_was_written() {
        let goal = Goal::new("a site");
        assert_eq!(serde_json::to_string(&goal).unwrap(), r#"{"status":"active","objective":"a site"}"#);
        let ended = goal.ended(Status::Blocked, Some("no key".into()));
        assert_eq!(serde_json::from_str::<Goal>(&serde_json::to_string(&ended).unwrap()).unwrap(), ended);
        assert_eq!(
            (goal.told(), ended.told()),
            (
                "Paused: a site\nThe next message goes on with it; `/goal stop` gives it up.".to_owned(),
                "Blocked: a site no key\n`/goal resume` goes on with it; `/goal stop` gives it up.".to_owned()
            )
        );
        assert!(goal.is_active() && !ended.is_active());
        let paused = goal.ended(Status::Paused, None);
        assert_eq!(serde_json::to_string(&paused).unwrap(), r#"{"status":"paused","objective":"a site"}"#);
        assert!(paused.told().starts_with("Paused: a site\n`/goal resume` "));
        let open = |status| goal.ended(status, None).is_open();
        assert_eq!([Status::Paused, Status::Completed, Status::Cancelled].map(open), [true, false, false]);
        assert!(goal.instruction().contains("`GOAL: completed`"), "what is told is what is understood");
    }
}
