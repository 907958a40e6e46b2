//! The model's side of a turn: permit, conversation, call, answer.

use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::body::Reader;
use domain::budget::text_tokens;
use domain::prompt::failed_notice;
use domain::scope::Scope;
use domain::tally::Tally;
use protocol::provider::{AskPermit, Complete, Event, FailureKind, Urgency};
use protocol::turn::Stamp;
use tokio_util::sync::CancellationToken;

use super::live::Fill;
use super::perform::NO_FRONT_END;
use super::{Life, Session};
use crate::context::{Asked, Context, FRESH_FOR};
use crate::file;
use crate::gather;
use crate::ledger::mark_of;
use crate::reading::{self, Reading};
use crate::shared::tell_front;
use crate::turn::{Call, Input};

/// A transcript that was read again, and how its file stands.
type Reread = (Reading, file::Standing);

// === impl Session ===

impl Session {
    pub(super) fn ask_permit(&mut self, round: u32, ctx: &mut Ctx<Self>) {
        let Some((stamp, cancel)) = self.asker(round) else { return };
        let (key, urgency, reply_to) = (self.lease.key().clone(), Urgency::Turn, ctx.address().recipient());
        let ask = AskPermit { stamp, key, urgency, cancel, reply_to };
        if tell_front(&self.neighbours.permits, &self.shared.mail.provider, ask).is_err() {
            self.step(Input::Failed("stopping", failed_notice(NO_FRONT_END)), ctx);
        }
    }

    pub(super) fn asker(&self, round: u32) -> Option<(Stamp, CancellationToken)> {
        let Life::Live(live) = &self.state else { return None };
        let work = live.work.as_ref()?;
        let stamp = Stamp { epoch: live.ledger.epoch, turn: work.turn, attempt: work.attempt, round };
        Some((stamp, work.cancel.clone()))
    }

    pub(super) fn call_model(&mut self, call: Call, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let Life::Live(live) = &mut self.state else { return };
        let Some(work) = &mut live.work else { return };
        // Within a turn, and right after the last one, nobody else is expected to have written.
        let trusted = |context: &Context| {
            call.round > 1 || !live.view.is_clean() || now.mono.saturating_sub(context.checked_at) < FRESH_FOR
        };
        if live.context.as_deref().is_some_and(trusted) {
            self.send_call(call, ctx);
        } else {
            work.call = Some(call);
            self.refresh(ctx);
        }
    }

    fn send_call(&mut self, call: Call, ctx: &mut Ctx<Self>) {
        let Some((stamp, cancel)) = self.asker(call.round) else { return };
        self.begin_anew_if_due();
        let Life::Live(live) = &mut self.state else { return };
        let Some((_, body, _)) = live.machine.body() else { return };
        let run = body.run.as_ref().or(live.ledger.tally().run.as_ref()).cloned();
        // Before its first answer a sub-agent has the goal that its parent's conversation had.
        let goal = live.ledger.tally().goal.as_ref().filter(|_| run.is_none() || live.ledger.tally().run.is_some());
        live.machine.follow_goal(goal);
        let (Some(context), Some((accepted, body, _))) = (&mut live.context, live.machine.body()) else { return };
        let policies = &self.shared.config.policies;
        let kind = match &run {
            Some(run) => policies.kind(&run.parent, &run.source),
            None => policies.kind(self.lease.key(), &accepted.source),
        };
        let scope = live.ledger.scope().or(run.as_ref().and_then(|run| run.scope.as_ref()));
        // Before its first answer, the transcript of a sub-agent does not say for which model it was made.
        let own = run.as_ref().filter(|_| live.ledger.tally().run.is_none());
        let own = own.map(|run| Tally { preset: run.model.clone(), ..live.ledger.tally().clone() });
        let asked = Asked {
            key: self.lease.key(),
            tools: call.tools,
            nudge: call.nudge,
            kind,
            project: scope.map(|scope| &*scope.project_path),
            run: run.as_deref(),
            mark: mark_of(accepted),
            trim: call.trim,
            tally: own.as_ref().unwrap_or(live.ledger.tally()),
            goal: live.machine.goal(),
            begins_anew: live.machine.begins_anew(),
        };
        let built = context.request(stamp.turn, body, asked);
        let Some(work) = live.work.as_mut() else { return };
        let Some(permit) = work.permit.take() else { return };
        work.asked = Some(Fill { tokens: built.tokens, budget: built.budget, kind });
        if (built.turns_left_out > 0 || built.tokens >= built.budget) && live.machine.may_compact() {
            // Nobody waits for it meanwhile.
            drop(permit);
            self.step(Input::OverBudget, ctx);
            return;
        }
        let complete = Complete { stamp, permit, request: built.request, cancel, reply_to: ctx.address().recipient() };
        if tell_front(&self.neighbours.model, &self.shared.mail.provider, complete).is_err() {
            self.step(Input::Failed("stopping", failed_notice(NO_FRONT_END)), ctx);
        }
    }

    /// Decides it anew for each call until the user's line is kept; from then on the transcript says it.
    pub(super) fn begin_anew_if_due(&mut self) {
        let now_ms = self.shared.ports.clock.wall_ms();
        let Life::Live(live) = &mut self.state else { return };
        let Some((accepted, body, false)) = live.machine.body() else { return };
        // A sub-agent that begins with the conversation of its parent begins with that.
        if body.run.is_some() {
            return;
        }
        let rules = &self.shared.config.reset;
        let due = rules.due(self.lease.key(), accepted.source.as_str(), live.ledger.times(), now_ms);
        live.machine.begin_anew(due);
    }

    /// Makes sure that the conversation in memory is what the file says, then calls the model.
    fn refresh(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        let (life, number) = (self.life, live.ledger.next_commit);
        let known = live.context.is_some().then_some(live.view.stamp());
        // What is under way counts too: the next line stands behind it, whenever it becomes durable.
        let submitted = live.submitted.iter().flat_map(|submitted| &submitted.lines);
        let pending: Vec<_> = live.view.pending().iter().chain(submitted).cloned().collect();
        let at = live.view.length();
        let turn = live.work.as_ref().map(|work| work.turn);
        let (shared, scope) = (Arc::clone(&self.shared), live.ledger.scope().cloned());
        let window_tokens = self.shared.window_tokens;
        let read = self.on_file_soon(move |ports, path| {
            let look = |scope: &Option<Arc<Scope>>| {
                scope.iter().for_each(|scope| shared.system.refresh_project(&scope.project_path, ports));
            };
            if let Some(stamp) = known
                && file::stamp(&*ports.disk, path)? == stamp
            {
                look(&scope);
                return Ok(None);
            }
            let (standing, source) = file::peek(&*ports.disk, path, at, &pending)?;
            let read = reading::read(&source, window_tokens, turn)?;
            look(&read.tally.scope);
            Ok(Some((read, standing)))
        });
        gather::hurry(&self.shared.ports.offload);
        ctx.spawn(read.into_actor(self).map(move |outcome, session, ctx| {
            if session.life == life {
                let outcome = outcome.unwrap_or_else(|_| Err(std::io::Error::other("the read panicked")));
                session.refreshed(outcome, (number, at), ctx);
                session.note();
            }
        }));
    }

    /// Takes what was read when the next commit was `number` and `at` bytes of the file were known.
    fn refreshed(&mut self, outcome: std::io::Result<Option<Reread>>, (number, at): (u64, u64), ctx: &mut Ctx<Self>) {
        let now = self.now();
        let Life::Live(live) = &mut self.state else { return };
        let Some(call) = live.work.as_mut().and_then(|work| work.call.take()) else { return };
        match outcome {
            // Something was committed meanwhile, and what was read is older than that.
            Ok(_) if live.ledger.next_commit != number => {
                if let Some(work) = &mut live.work {
                    work.call = Some(call);
                }
                self.refresh(ctx);
                return;
            }
            Ok(None) => {
                if let Some(context) = &mut live.context {
                    context.checked_at = now.mono;
                }
            }
            Ok(Some((read, standing))) => {
                live.view.found(at, &standing);
                if live.view.is_behind() {
                    self.report_found(standing.found, None);
                    self.reload(ctx);
                    return;
                }
                live.ledger.follow(&read);
                live.context = Some(Box::new(Context::new(read.window, now.mono, &self.shared)));
                self.stand_in_line(ctx);
            }
            Err(error) => {
                tracing::warn!(session = %self.lease.key(), %error, "transcript cannot be read");
                self.step(Input::Failed("transcript", failed_notice("the conversation so far cannot be read")), ctx);
                return;
            }
        }
        self.send_call(call, ctx);
    }

    pub(super) fn model_event(&mut self, event: Event, ctx: &mut Ctx<Self>) {
        let stamp = match &event {
            Event::Permitted { stamp, .. }
            | Event::Delta { stamp, .. }
            | Event::Completed { stamp, .. }
            | Event::Failed { stamp, .. } => *stamp,
        };
        let Life::Live(live) = &mut self.state else {
            self.stale();
            return;
        };
        if self.title.as_ref().is_some_and(|title| title.is(stamp)) {
            self.title_event(event, ctx);
            return;
        }
        if live.stamp() != Some(stamp) {
            self.stale();
            return;
        }
        match event {
            Event::Permitted { permit, .. } => {
                if live.machine.awaits_permit()
                    && let Some(work) = &mut live.work
                {
                    work.permit = Some(permit);
                }
                self.step(Input::Permitted, ctx);
            }
            Event::Delta { delta, .. } => self.step(Input::Delta(delta), ctx),
            Event::Completed { message, .. } => {
                if let Some(fill) = live.work.as_mut().and_then(|work| work.asked.as_mut()) {
                    fill.tokens = fill.tokens.saturating_add(text_tokens(&message.text));
                }
                self.step(Input::Completed(message), ctx);
            }
            Event::Failed { failure, .. } => {
                let reader = live.machine.body().map_or(Reader::Chat, |(_, body, _)| body.reader());
                let text = failure.told(&self.shared.config.provider, &self.model_of_turn(), reader);
                if failure.kind == FailureKind::ContextTooLong {
                    self.step(Input::TooLong(text), ctx);
                    return;
                }
                self.step(Input::Failed(failure.kind.word(), text), ctx);
            }
        }
    }
}
