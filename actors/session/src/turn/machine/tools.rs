//! The calls of a turn: groups that run side by side, and their results.

use std::sync::Arc;
use std::time::Duration;

use domain::chat::{Arguments, ToolResult, plain_text};
use domain::text::ellipsis;
use protocol::turn::{FileEdit, RESULT_CHARS_SHOWN, TurnProgress};

use super::Machine;
use crate::turn::calls;
use crate::turn::running::Phase;
use crate::turn::{Effect, Now, Record};

// === impl Machine ===

impl Machine {
    pub(super) fn run_group(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut() else { return };
        turn.phase = Phase::RunningTools;
        turn.progress = now.mono;
        for call in std::mem::take(&mut turn.next_group) {
            let arguments = match &call.arguments {
                Arguments::Object(map) => serde_json::to_string(map).unwrap_or_default(),
                Arguments::Malformed { text, .. } => text.clone(),
            };
            let what = TurnProgress::ToolStarted { call: call.id.clone(), name: call.name.clone(), arguments };
            out.push(Effect::Emit(turn.show(what)));
            turn.calls.began(&call.id, now.mono);
            out.push(Effect::RunTool(turn.round, call));
        }
    }

    pub(super) fn tool_finished(
        &mut self,
        mut result: ToolResult,
        edit: Option<Arc<FileEdit>>,
        now: Now,
        out: &mut Vec<Effect>,
    ) {
        let rules = &self.rules;
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::RunningTools) else {
            out.push(Effect::Stale);
            return;
        };
        if !turn.calls.finish(&result.call) {
            out.push(Effect::Stale);
            return;
        }
        turn.progress = now.mono;
        calls::shorten(&mut result, rules.max_tool_result_chars);
        if let Some(call) = turn.calls.get(&result.call) {
            turn.guard.saw(call, &result);
        }
        let took = turn.calls.took(&result.call, now.mono);
        out.push(Effect::Emit(turn.show(ended(&result, took, edit))));
        let mut batch = turn.batch();
        batch.records.push(Record::Tool(result));
        if turn.calls.running() > 0 {
            self.commit(batch, out);
            return;
        }
        turn.boundary = true;
        // What waits goes before the calls that have not begun.
        if turn.stop.is_none() && !self.awaits_steering() {
            let Some(turn) = self.turn.as_deref_mut() else { return };
            turn.begin_calls(&self.rules.tools, &mut batch);
            turn.boundary = turn.next_group.is_empty();
        }
        self.save(batch, out);
    }
}

/// What people are told of a call that ended.
fn ended(result: &ToolResult, took: Duration, edit: Option<Arc<FileEdit>>) -> TurnProgress {
    TurnProgress::ToolEnded {
        call: result.call.clone(),
        name: result.name.clone(),
        is_error: result.is_error,
        result: ellipsis(&plain_text(&result.content), RESULT_CHARS_SHOWN).into(),
        took_ms: u64::try_from(took.as_millis()).unwrap_or(u64::MAX),
        edit,
    }
}
