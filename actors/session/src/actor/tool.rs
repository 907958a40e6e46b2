//! Tool calls: asked for, awaited, cancelled.

use actix::{AsyncContext, Context as Ctx};
use domain::chat::{Content, ToolCall, ToolResult};
use protocol::tools::{RunTool, ToolFinished};

use super::perform::NO_FRONT_END;
use super::{Life, Session};
use crate::shared::tell_front;
use crate::turn::Input;

// === impl Session ===

impl Session {
    pub(super) fn run_tool(&mut self, round: u32, call: ToolCall, ctx: &mut Ctx<Self>) {
        if let Life::Live(live) = &mut self.state
            && let Some(drain) = &mut live.drain
        {
            drain.hold(round, call);
            return;
        }
        let Some((stamp, cancel)) = self.asker(round) else { return };
        let Life::Live(live) = &self.state else { return };
        let Some((accepted, body, _)) = live.machine.body() else { return };
        let (source, route) = (accepted.source.clone(), accepted.route.clone());
        let run = body.run.as_ref().or(live.ledger.tally().run.as_ref()).cloned();
        let scope = live.ledger.scope().or(run.as_ref().and_then(|run| run.scope.as_ref())).cloned();
        let id = call.id.clone();
        let name = call.name.clone();
        let key = self.lease.key().clone();
        let pulse = self.pulse();
        let reply_to = ctx.address().recipient();
        let ask = RunTool { stamp, key, source, scope, run, route, call, pulse, cancel, reply_to };
        if tell_front(&self.neighbours.tools, &self.shared.mail.tools, ask).is_err() {
            let content = vec![Content::text(format!("Error: {NO_FRONT_END}."))];
            self.step(Input::ToolFinished(ToolResult { call: id, name, content, is_error: true }, None), ctx);
            return;
        }
        if let Life::Live(live) = &mut self.state
            && let Some(work) = &mut live.work
        {
            work.tools.push((stamp, id));
        }
    }

    pub(super) fn tool_event(&mut self, finished: ToolFinished, ctx: &mut Ctx<Self>) {
        let ToolFinished { stamp, result, edit, .. } = finished;
        match &mut self.state {
            Life::Loading(loading) => {
                loading.awaited.retain(|(asked, id)| *asked != stamp || *id != result.call);
            }
            Life::Live(live) => {
                if live.drain.as_mut().is_some_and(|drain| drain.finished(&stamp, &result.call)) {
                    self.end_drain(ctx);
                    return;
                }
                let work = live.work.as_mut().filter(|work| (work.turn, work.attempt) == (stamp.turn, stamp.attempt));
                let Some(work) = work else {
                    self.stale();
                    return;
                };
                let before = work.tools.len();
                work.tools.retain(|(asked, id)| *asked != stamp || *id != result.call);
                if work.tools.len() == before {
                    self.stale();
                    return;
                }
                self.step(Input::ToolFinished(result, edit), ctx);
            }
            Life::Gone => self.stale(),
        }
    }

    /// Runs the tools that were held back, once those of the earlier incarnation have ended.
    pub(super) fn end_drain(&mut self, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let Life::Live(live) = &mut self.state else { return };
        if let Some(mut drain) = live.drain.take_if(|drain| drain.is_over(now.mono)) {
            for (round, call) in drain.take_held() {
                self.run_tool(round, call, ctx);
            }
        }
    }

    pub(super) fn cancel_work(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        if let Some(work) = &mut live.work {
            work.cancel.cancel();
            work.permit = None;
            work.call = None;
        }
        self.compaction = None;
        let held = live.drain.as_mut().map(|drain| drain.take_held()).unwrap_or_default();
        for (_, call) in held {
            let content = vec![Content::text("Error: the turn was stopped before this call ran.")];
            let result = ToolResult { call: call.id, name: call.name, content, is_error: true };
            self.step(Input::ToolFinished(result, None), ctx);
        }
    }
}
