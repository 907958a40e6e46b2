//! Calls that a turn makes again and again: seen, and in the end not run. Pure.
//!
//! | call | from then on |
//! |---|---|
//! | the same one, with the same result, [`SAME_MAX`] times in a row | refused; [`LOOP_MAX`] times: no tools at all |
//! | the same path outside the workspace, refused [`REPEATS_MAX`] times in a turn | refused for good |

use std::collections::{BTreeMap, VecDeque};

use domain::chat::{Arguments, Content, Message, ToolCall, ToolResult, plain_text};
use domain::run::{STEPS_SHOWN, Step};
use domain::text::ellipsis;
use protocol::tools::{OUTSIDE_WORKSPACE, PERSISTED};

use super::calls::synthetic;
use super::recover::Written;

/// How often in a row a call may have the same result.
const SAME_MAX: u32 = 3;
/// How often in a row a call may be asked for, run or not, before no tool is offered any more.
const LOOP_MAX: u32 = 6;
/// How often in a turn the same path may be refused before it is not looked at any more.
const REPEATS_MAX: u32 = 2;
/// Characters of what a call failed with that are kept.
const STEP_CHARS_MAX: usize = 200;
/// The argument that says which file is meant.
const PATH: &str = "path";

const LOOPS: &str = "Error: this exact call was made 3 times with the same result. Do something else, or answer with what \
    you know.";
const STAYS_OUTSIDE: &str = "Error: this path is outside the workspace, and asking again will not change that. Tell the \
    person what you need.";

/// What a turn has called so far.
#[derive(Debug, Default)]
pub struct Guard {
    last: Option<(ToolCall, ToolResult)>,
    /// How often in a row it was asked for.
    same: u32,
    /// Paths that were refused.
    outside: BTreeMap<String, u32>,
    /// The last calls that ended, oldest first.
    steps: VecDeque<Step>,
}

// === impl Guard ===

impl Guard {
    /// Of a turn that was cut.
    pub fn rebuild(written: &Written) -> Self {
        let mut guard = Self::default();
        let mut calls: &[ToolCall] = &[];
        for message in &written.messages {
            match message {
                Message::Assistant(assistant) => calls = &assistant.calls,
                Message::ToolResult(result) => {
                    if let Some(call) = calls.iter().find(|call| call.id == result.call) {
                        guard.saw(call, result);
                    }
                }
                Message::User(_) => {}
            }
        }
        guard
    }

    /// The result of a call that is not to run.
    pub fn ask(&self, call: &ToolCall) -> Option<ToolResult> {
        if self.is_last(call) && self.same >= SAME_MAX {
            return Some(synthetic(call, LOOPS));
        }
        let refused = argument(call, PATH).and_then(|path| self.outside.get(path));
        refused.filter(|count| **count >= REPEATS_MAX).map(|_| synthetic(call, STAYS_OUTSIDE))
    }

    /// Takes the result of a call, also of one that was refused.
    pub fn saw(&mut self, call: &ToolCall, result: &ToolResult) {
        if let Some(path) = argument(call, PATH)
            && result.is_error
            && text(result).is_some_and(|text| text.contains(OUTSIDE_WORKSPACE))
        {
            *self.outside.entry(path.to_owned()).or_default() += 1;
        }
        self.step(call, result);
        let refused = text(result) == Some(LOOPS);
        if self.is_last(call) && (refused || self.last.as_ref().is_some_and(|(_, last)| is_same(last, result))) {
            self.same += 1;
        } else {
            self.same = 1;
            self.last = Some((call.clone(), result.clone()));
        }
    }

    /// The last calls that ended, oldest first.
    pub fn steps(&self) -> Vec<Step> {
        self.steps.iter().cloned().collect()
    }

    fn step(&mut self, call: &ToolCall, result: &ToolResult) {
        let failed = result.is_error.then(|| ellipsis(plain_text(&result.content).trim(), STEP_CHARS_MAX).into_owned());
        self.steps.push_back(Step { tool: call.name.as_str().into(), failed });
        if self.steps.len() > STEPS_SHOWN {
            self.steps.pop_front();
        }
    }

    /// Whether the turn goes round in circles, so that no tool helps it.
    pub fn withholds_tools(&self) -> bool {
        self.same >= LOOP_MAX
    }

    fn is_last(&self, call: &ToolCall) -> bool {
        self.last.as_ref().is_some_and(|(last, _)| last.name == call.name && last.arguments == call.arguments)
    }
}

fn argument<'c>(call: &'c ToolCall, name: &str) -> Option<&'c str> {
    match &call.arguments {
        Arguments::Object(arguments) => arguments.get(name)?.as_str(),
        Arguments::Malformed { .. } => None,
    }
}

/// Of a result that is one text.
fn text(result: &ToolResult) -> Option<&str> {
    match &*result.content {
        [Content::Text { text }] => Some(text),
        _ => None,
    }
}

/// Whether two results say the same; where they are kept, in files of their own, does not count.
fn is_same(one: &ToolResult, other: &ToolResult) -> bool {
    let kept = |result| Some(text(result)?.strip_prefix(PERSISTED)?.split_once("\npath: ")?.1.split_once('\n')?.1);
    let same = || one.content == other.content;
    one.is_error == other.is_error && kept(one).zip(kept(other)).map_or_else(same, |(one, other)| one == other)
}

#[cfg(test)]
mod tests;
