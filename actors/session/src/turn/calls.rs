//! The tool calls of one round: which run together, which have run, which never will.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::chat::{AssistantMessage, Content, ToolCall, ToolResult};
use domain::ids::ToolCallId;
use domain::request::ToolSpec;
use domain::text::head_and_tail;

/// The calls of a round in the model's order.
#[derive(Debug, Default)]
pub struct Calls {
    list: Vec<(ToolCall, CallState)>,
    /// When those that run began.
    began: Vec<(ToolCallId, Duration)>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum CallState {
    Waiting,
    Running,
    Done,
}

// === impl Calls ===

impl Calls {
    /// The calls of a fresh message.
    pub fn new(calls: &[ToolCall]) -> Self {
        Self { list: calls.iter().map(|call| (call.clone(), CallState::Waiting)).collect(), began: Vec::new() }
    }

    /// Begins the next group: consecutive calls of parallel tools together, any other alone.
    /// Empty while one runs, and when none waits.
    pub fn begin_group(&mut self, tools: &[ToolSpec]) -> Vec<ToolCall> {
        let mut group = Vec::new();
        if self.running() > 0 {
            return group;
        }
        let parallel = |call: &ToolCall| spec(tools, &call.name).is_some_and(|spec| spec.parallel);
        for (call, state) in &mut self.list {
            if *state == CallState::Done && group.is_empty() {
                continue;
            }
            let joins = *state == CallState::Waiting && (group.is_empty() || (parallel(call) && parallel(&group[0])));
            if !joins {
                break;
            }
            *state = CallState::Running;
            group.push(call.clone());
        }
        group
    }

    /// The call of that id.
    pub fn get(&self, id: &ToolCallId) -> Option<&ToolCall> {
        self.list.iter().map(|(call, _)| call).find(|call| call.id == *id)
    }

    /// Notes when a call of a group was handed to its tool.
    pub fn began(&mut self, id: &ToolCallId, now: Duration) {
        self.began.push((id.clone(), now));
    }

    /// For how long a call that ends now has run.
    pub fn took(&mut self, id: &ToolCallId, now: Duration) -> Duration {
        let at = self.began.iter().position(|(begun, _)| begun == id);
        at.map_or(Duration::ZERO, |at| now.saturating_sub(self.began.swap_remove(at).1))
    }

    /// Notes the end of a call; whether it was running.
    pub fn finish(&mut self, id: &ToolCallId) -> bool {
        let running = self.list.iter_mut().find(|(call, state)| call.id == *id && *state == CallState::Running);
        if let Some((_, state)) = running {
            *state = CallState::Done;
            return true;
        }
        false
    }

    /// Notes that a call has its result already, or is given one without running.
    pub fn settle(&mut self, id: &ToolCallId) {
        for (call, state) in &mut self.list {
            if call.id == *id {
                *state = CallState::Done;
            }
        }
    }

    /// Notes that a call has no result after all; it does not run again by itself.
    pub fn reopen(&mut self, id: &ToolCallId) {
        for (call, state) in &mut self.list {
            if call.id == *id {
                *state = CallState::Waiting;
            }
        }
    }

    /// Gives up on every call that is not done; returns them.
    pub fn abandon(&mut self) -> Vec<ToolCall> {
        let mut open = Vec::new();
        for (call, state) in &mut self.list {
            if *state != CallState::Done {
                *state = CallState::Done;
                open.push(call.clone());
            }
        }
        open
    }

    /// Calls without a result.
    pub fn open(&self) -> impl Iterator<Item = &ToolCall> {
        self.list.iter().filter(|(_, state)| *state != CallState::Done).map(|(call, _)| call)
    }

    /// How many run.
    pub fn running(&self) -> usize {
        self.list.iter().filter(|(_, state)| *state == CallState::Running).count()
    }
}

/// The tool of that name.
pub fn spec<'a>(tools: &'a [ToolSpec], name: &str) -> Option<&'a ToolSpec> {
    tools.iter().find(|spec| spec.name == name)
}

/// An error result that no tool gave.
pub fn synthetic(call: &ToolCall, text: &str) -> ToolResult {
    ToolResult { call: call.id.clone(), name: call.name.clone(), content: vec![Content::text(text)], is_error: true }
}

/// Cuts the texts of a result to the limit.
pub fn shorten(result: &mut ToolResult, chars_max: usize) {
    for piece in &mut result.content {
        if let Content::Text { text } = piece
            && let std::borrow::Cow::Owned(short) = head_and_tail(text, chars_max)
        {
            *text = short;
        }
    }
}

/// Makes the ids of a message's calls unique, so that each result finds its call.
pub fn make_ids_unique(message: &mut AssistantMessage) {
    if message.calls.len() < 2 {
        return;
    }
    let mut seen: HashSet<ToolCallId> = HashSet::with_capacity(message.calls.len());
    for call in &mut message.calls {
        let mut number = 2;
        let original = Arc::clone(&call.id.0);
        while !seen.insert(call.id.clone()) {
            call.id = ToolCallId(format!("{original}_{number}").into());
            number += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use domain::chat::Arguments;
    use serde_json::{Map, Value};

    use super::*;

    fn call(id: &str, name: &str) -> ToolCall {
        ToolCall { id: ToolCallId(id.into()), name: name.to_owned(), arguments: Arguments::Object(Map::new()) }
    }

    fn tools() -> Vec<ToolSpec> {
        let spec = |name: &str, parallel| ToolSpec {
            name: name.to_owned(),
            description: String::new(),
            parameters: Value::Null,
            parallel,
            idempotent: false,
        };
        vec![spec("read", true), spec("exec", false)]
    }

    #[test]
    fn parallel_calls_run_together_and_others_alone() {
        let tools = tools();
        let names = ["read", "read", "exec", "nosuch", "read"];
        let list: Vec<ToolCall> = names.iter().enumerate().map(|(at, name)| call(&at.to_string(), name)).collect();
        let mut calls = Calls::new(&list);
        let mut groups = Vec::new();
        loop {
            let group = calls.begin_group(&tools);
            if group.is_empty() {
                break;
            }
            assert!(calls.begin_group(&tools).is_empty(), "a group begins while another one runs");
            groups.push(group.iter().map(|call| call.id.to_string()).collect::<String>());
            for call in group {
                assert!(calls.finish(&call.id));
                assert!(!calls.finish(&call.id));
            }
        }
        assert_eq!(groups, ["01", "2", "3", "4"]);
    }

    #[test]
    fn repeated_ids_are_told_apart() {
        let mut message = AssistantMessage {
            calls: vec![call("a", "x"), call("a", "x"), call("a_2", "x"), call("a", "x")],
            ..AssistantMessage::new("", "p", "m")
        };
        make_ids_unique(&mut message);
        let ids: HashSet<_> = message.calls.iter().map(|call| call.id.clone()).collect();
        assert_eq!(ids.len(), 4);
    }
}
