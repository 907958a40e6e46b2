//! What a run reports to its parent, made of how its turn ended, never of what its text says about that.

use std::fmt::Write as _;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::RunSpec;
use crate::chat::Usage;
use crate::event::{Event, EventKind};
use crate::text::{counted, ellipsis, first_bytes, one_line};

/// Bytes of a report; what is longer is cut.
pub const REPORT_BYTES_MAX: usize = 100 * 1024;
/// How many of its last steps a run that was not done tells.
pub const STEPS_SHOWN: usize = 4;
/// Characters of a task that are told back.
const TASK_CHARS_MAX: usize = 500;
/// Ends a report that was cut.
const CUT: &str = "\n[The rest of the report was cut; the sub-agent's transcript has all of it.]";
/// Answers with which a sub-agent says that there is nothing to report.
const SILENCE: [&str; 3] = ["NO_REPLY", "ANNOUNCE_SKIP", "REPLY_SKIP"];

/// How a run ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It gave its report.
    Done,
    /// It could not go on.
    Failed,
    /// Its time was over.
    TimedOut,
    /// Its tokens were used up.
    OverBudget,
    /// Somebody stopped it.
    Cancelled,
}

/// One step: a tool call that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Step {
    /// The tool.
    pub tool: Arc<str>,
    /// What it failed with, if it did.
    pub failed: Option<String>,
}

/// How a run's turn ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// The verdict.
    pub status: Status,
    /// The last message, or the notice in its place.
    pub text: String,
    /// The rounds with tools that it had, if they were used up before it was done.
    pub rounds_used_up: Option<u32>,
    /// Its last steps, oldest first.
    pub steps: Vec<Step>,
    /// Of all its model calls.
    pub usage: Usage,
}

/// What the parent is told: the text of an outbox row, as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// Whom it is of.
    pub event: Event,
    /// Where the parent's answer goes; see [`RunSpec::route`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<Value>,
    /// Whether it is of something that the run was told when it had begun: a run may have several of these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub later: bool,
    /// What it says.
    pub text: String,
}

/// Whether a sub-agent says with this answer that there is nothing to report.
pub fn is_silent(text: &str) -> bool {
    SILENCE.contains(&text.trim())
}

// === impl Status ===

impl Status {
    /// As it is told.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::TimedOut => "timed out",
            Self::OverBudget => "over its budget",
            Self::Cancelled => "cancelled",
        }
    }
}

// === impl RunSpec ===

impl RunSpec {
    /// What a run reports; nothing if it says that there is nothing to report.
    pub fn report(&self, ended: &Ended) -> Option<Report> {
        let silent = ended.status == Status::Done && is_silent(&ended.text);
        (!silent).then(|| Report {
            event: self.event(ended.status),
            route: self.route.clone(),
            later: false,
            text: self.told(ended),
        })
    }

    /// The event of its report.
    pub fn event(&self, status: Status) -> Event {
        Event {
            kind: EventKind::Subagent,
            id: self.run.to_string().into(),
            name: Arc::clone(&self.label),
            status: Some(status.word().into()),
        }
    }

    /// The report as text.
    pub fn told(&self, ended: &Ended) -> String {
        let task = ellipsis(self.task.trim(), TASK_CHARS_MAX);
        let mut text = format!("Sub-agent {:?} (run {}): {}.", self.label, self.run, ended.status.word());
        let mut push = |part: std::fmt::Arguments<'_>| {
            // Writing to a string cannot fail.
            text.write_fmt(part).unwrap_or_default();
        };
        if let Some(rounds) = ended.rounds_used_up {
            push(format_args!(
                "\nIt used up its {}: the result may be incomplete.",
                counted(u64::from(rounds), "round")
            ));
        }
        push(format_args!("\n\nTask: {task}"));
        let (heading, steps) = match ended.status {
            Status::Done => ("Result", &[][..]),
            Status::Failed | Status::TimedOut | Status::OverBudget | Status::Cancelled => ("Notice", &ended.steps[..]),
        };
        push(format_args!("\n\n{heading}:\n{}", ended.text.trim()));
        if !steps.is_empty() {
            push(format_args!("\n\nIts last steps:"));
        }
        for Step { tool, failed } in steps.iter().skip(steps.len().saturating_sub(STEPS_SHOWN)) {
            match failed {
                None => push(format_args!("\n- {tool}: done")),
                Some(why) => push(format_args!("\n- {tool}: failed: {}", one_line(why))),
            }
        }
        let Usage { input_tokens, output_tokens, .. } = ended.usage;
        let usage = format!("\n\nUsage: {input_tokens} tokens read, {output_tokens} written.");
        let room = REPORT_BYTES_MAX.saturating_sub(usage.len() + CUT.len());
        if text.len() > room {
            text.truncate(first_bytes(&text, room).len());
            text.push_str(CUT);
        }
        text + &usage
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::run::tests::spec;

    fn ended(status: Status, text: &str) -> Ended {
        let step = |tool: &str, failed: Option<&str>| Step { tool: tool.into(), failed: failed.map(str::to_owned) };
        Ended {
            status,
            text: text.to_owned(),
            rounds_used_up: None,
            steps: vec![step("read_file", None), step("exec", Some("exit 1\nno toads"))],
            usage: Usage { input_tokens: 12, output_tokens: 3, cached_tokens: 0 },
        }
    }

    #[track_caller]
    fn check(ended: &Ended, expected: &str) {
        let report = spec("cli:direct", "cli").report(ended).unwrap();
        let head = "Sub-agent \"toads\" (run 00000000-0000-0000-0000-000000000007): ";
        assert_eq!(report.text, format!("{head}{expected}\n\nUsage: 12 tokens read, 3 written."));
        assert_eq!(report.event.status.as_deref(), Some(ended.status.word()));
    }

    #[test]
    fn the_end_decides_and_not_what_the_text_says() {
        let task = "\n\nTask: Count the toads.";
        check(&ended(Status::Done, "It failed. 5 toads."), &format!("done.{task}\n\nResult:\nIt failed. 5 toads."));
        let steps = "\n\nIts last steps:\n- read_file: done\n- exec: failed: exit 1 no toads";
        for status in [Status::Failed, Status::TimedOut, Status::OverBudget, Status::Cancelled] {
            let word = status.word();
            check(&ended(status, "All done!"), &format!("{word}.{task}\n\nNotice:\nAll done!{steps}"));
        }
        let used_up = Ended { rounds_used_up: Some(3), ..ended(Status::Done, "4 toads") };
        let incomplete = "\nIt used up its 3 rounds: the result may be incomplete.";
        check(&used_up, &format!("done.{incomplete}{task}\n\nResult:\n4 toads"));
    }

    #[test]
    fn a_long_one_is_frozen_at_its_bound() {
        let long = spec("a:b", "ws").report(&ended(Status::Done, &"ä".repeat(80_000))).unwrap();
        assert!(long.text.len() <= REPORT_BYTES_MAX && long.text.len() > REPORT_BYTES_MAX - 8);
        assert!(long.text.contains(CUT) && long.text.ends_with("3 written."));
    }

    #[test]
    fn only_one_that_is_done_can_be_silent() {
        for token in SILENCE {
            assert_eq!(spec("a:b", "ws").report(&ended(Status::Done, &format!(" {token}\n"))), None);
            assert!(spec("a:b", "ws").report(&ended(Status::Failed, token)).is_some());
        }
    }
}
