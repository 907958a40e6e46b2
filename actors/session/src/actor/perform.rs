//! Carries out what the machine decided.

use actix::{ActorContext, ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::chat::{Content, ToolCall, ToolResult};
use domain::ids::{Attempt, EntryId, MessageId, TurnId};
use protocol::journal::{CommitOutcome, JournalError, LeftBy, LogPosition};
use protocol::metrics::{ByKind, ByResult};
use protocol::supervision::{EventName, ExitReason};
use protocol::tools::{RunTool, ToolFinished};
use protocol::turn::{TurnEvent, TurnResult};

use super::live::{Exit, Submitted, Work};
use super::{Life, Session};
use crate::file::{self, Spare};
use crate::ledger::Setting;
use crate::shared::tell_front;
use crate::turn::{Batch, Effect, Input, Shown, Verdict};

/// How often in a row a session loads again by itself before the supervisor has to pause it.
const RELOADS_MAX: u8 = 3;

pub(super) const NO_FRONT_END: &str = "the gateway is stopping";

// === impl Session ===

impl Session {
    pub(super) fn perform(&mut self, effects: Vec<Effect>, ctx: &mut Ctx<Self>) {
        for effect in effects {
            match effect {
                Effect::ReadBody(at) => self.read_body(at, ctx),
                Effect::Began(turn, attempt) => self.began(turn, attempt, ctx),
                Effect::AskPermit(round) => self.ask_permit(round, ctx),
                Effect::CallModel(call) => self.call_model(call, ctx),
                Effect::RunTool(round, call) => self.run_tool(round, call, ctx),
                Effect::Commit(batch) => self.commit(batch, ctx),
                Effect::WriteView => self.write_view(ctx),
                Effect::Emit(shown) => self.emit(shown),
                Effect::CancelWork => self.cancel_work(ctx),
                Effect::Ended(verdict) => self.ended(verdict),
                Effect::Recovered(turn, attempt, left_by) => self.recovered(turn, attempt, left_by),
                Effect::EnterPlace => self.enter(ctx),
                Effect::LeavePlace => {
                    if let Life::Live(live) = &mut self.state {
                        live.place = None;
                    }
                }
                Effect::Stuck(turn, attempt, waits) => self.stuck(turn, attempt, waits),
                Effect::FileStuck => self.file_stuck(),
                Effect::Stale => self.stale(),
                Effect::Reload => {
                    self.reload_unsure(ctx);
                    return;
                }
                Effect::Edited => self.edit_done(ctx),
                Effect::Archive => self.set_exit(Exit::Closing),
                Effect::MoveAway(place, cancelled) => {
                    self.transcript_ended(place, cancelled);
                    self.set_exit(Exit::Moving);
                }
                Effect::Closed => {
                    self.closed("ended", ctx);
                    return;
                }
                Effect::Leave => {
                    if let Life::Live(live) = &mut self.state {
                        live.work = None;
                    }
                    self.crash.clear_turn();
                    self.set_exit(Exit::Wanted);
                    self.write_view_once_more(ctx);
                }
            }
        }
        if let Life::Live(live) = &self.state
            && live.machine.is_held()
        {
            self.next_edit(ctx);
        }
        self.leave_if_wanted(ctx);
    }

    /// Tells of a turn that was cut and goes on.
    fn recovered(&self, turn: TurnId, attempt: Attempt, left_by: LeftBy) {
        let mut event = self.event(EventName::TurnRecovered, Some(turn));
        let reason = match left_by {
            LeftBy::Crash => "its session crashed",
            LeftBy::Death => "the process ended",
            LeftBy::Interrupted => "interrupted by an orderly stop",
        };
        event.reason = Some(reason.to_owned());
        event.attempt = Some(attempt);
        event.message_id = self.message_id();
        event.cause = match left_by {
            LeftBy::Crash => self.crash.last_crash().map(|crash| crash.event),
            LeftBy::Death | LeftBy::Interrupted => self.shared.log.latest(EventName::ProcessStarted),
        };
        self.shared.log.record(event);
        self.span_of_cut(turn, attempt, left_by);
    }

    /// A turn begins to be worked on.
    fn began(&mut self, turn: TurnId, attempt: Attempt, ctx: &mut Ctx<Self>) {
        self.crash.set_turn(turn, attempt);
        if let Some(message) = self.message_id() {
            self.crash.set_message(message);
        }
        if let Life::Live(live) = &mut self.state {
            let session = live.ledger.session;
            let work = Work::new(turn, attempt, session, &self.shared);
            self.crash.link(work.cancel.clone());
            live.work = Some(Box::new(work));
        }
        self.join_sweep(ctx);
    }

    fn set_exit(&mut self, exit: Exit) {
        if let Life::Live(live) = &mut self.state {
            live.exit = exit;
        }
        self.hurry_file();
    }

    fn read_body(&mut self, at: LogPosition, ctx: &mut Ctx<Self>) {
        let life = self.life;
        let read = self.shared.journal.accepted(at);
        ctx.spawn(read.into_actor(self).map(move |outcome, session, ctx| {
            if session.life != life {
                return;
            }
            match outcome {
                Ok(Ok(accepted)) => session.step(Input::Read(accepted), ctx),
                Ok(Err(JournalError::Unreadable(_))) => session.step(Input::Unreadable, ctx),
                Ok(Err(JournalError::Closed)) | Err(_) => session.halt(ctx),
            }
            session.note();
        }));
    }

    // --- journal ---

    fn commit(&mut self, batch: Batch, ctx: &mut Ctx<Self>) {
        let wall_ms = self.shared.ports.clock.wall_ms();
        let Life::Live(live) = &mut self.state else { return };
        let cwd = self.shared.config.workspace.to_string_lossy();
        let said = live.machine.body().map(|(accepted, body, _)| (&**accepted, body));
        let setting = Setting { key: self.lease.key(), cwd: &cwd, said, wall_ms };
        let before = live.ledger.clone();
        let (edits, anew) = (batch.edit.is_some(), batch.anew());
        let (commit, entries) = live.ledger.enter(batch, &setting, &*self.shared.ports.ids);
        if edits {
            // What the model is shown may be another part of the tree from now on.
            live.context = None;
        } else if let Some(context) = &mut live.context {
            context.push(entries, commit.lines.iter().map(|line| line.text.len() as u64 + 1).sum());
        }
        let (number, life) = (commit.number, self.life);
        let progress = !commit.lines.is_empty() || !commit.ended.is_empty() || commit.closes.is_some();
        let lines = commit.lines.clone();
        let work = live.work.as_ref().map(|work| (work.turn, work.attempt));
        let begun = self.shared.begin_span();
        live.submitted.push_back(Submitted { number, lines, durable: false, progress, before, work, anew, begun });
        let outcome = self.shared.journal.commit(commit);
        ctx.spawn(outcome.into_actor(self).map(move |outcome, session, ctx| {
            if session.life == life {
                session.committed(number, outcome.ok(), ctx);
                session.note();
            }
        }));
    }

    fn committed(&mut self, number: u64, outcome: Option<CommitOutcome>, ctx: &mut Ctx<Self>) {
        match outcome {
            Some(CommitOutcome::Done) => {}
            Some(CommitOutcome::Fenced) => {
                self.tell_fenced();
                self.crash.exit_reason(ExitReason::Normal);
                self.state = Life::Gone;
                ctx.stop();
                return;
            }
            Some(CommitOutcome::TooLarge) => {
                self.refused(number, ctx);
                return;
            }
            Some(CommitOutcome::Unknown { why }) => {
                tracing::warn!(session = %self.lease.key(), why, "outcome of a commit is unknown; loading again");
                self.reload_unsure(ctx);
                return;
            }
            None => {
                self.halt(ctx);
                return;
            }
        }
        if let Life::Live(live) = &mut self.state
            && let Some(submitted) = live.submitted.iter_mut().find(|submitted| submitted.number == number)
        {
            submitted.durable = true;
        }
        // Answers may be seen out of order; what they mean is not.
        while let Life::Live(live) = &mut self.state
            && let Some(submitted) = live.submitted.pop_front_if(|submitted| submitted.durable)
        {
            if submitted.progress {
                self.reloads = 0;
            }
            self.shared.span_of_commit(&submitted);
            let before = live.view.lag_bytes();
            let only_number = submitted.lines.is_empty() && live.view.is_clean();
            if let Some(row) = live.row.as_ref().filter(|_| !submitted.lines.is_empty()) {
                row.grew(&submitted.lines, live.ledger.last_ms());
            }
            live.view.push(submitted.number, submitted.lines);
            self.shared.metrics.view_lag_bytes.inc_by((live.view.lag_bytes() - before) as i64);
            if only_number {
                self.tell_written(submitted.number);
            }
            self.tell_anew(submitted.anew, submitted.work);
            self.step(Input::Committed, ctx);
        }
    }

    /// What comes for a transcript that has ended, or that a newer incarnation owns, is never appended: it is told.
    fn tell_fenced(&self) {
        let mut event = self.event(EventName::Undeliverable, None);
        event.reason = Some("its transcript has ended, or a newer incarnation owns it".to_owned());
        self.shared.log.record(event);
        self.stale();
    }

    /// The journal will never hold that commit. The machine finds something smaller, unless other commits build on it.
    fn refused(&mut self, number: u64, ctx: &mut Ctx<Self>) {
        tracing::warn!(session = %self.lease.key(), "a commit is larger than the journal takes");
        let Life::Live(live) = &mut self.state else { return };
        let Some(submitted) = live.submitted.pop_back_if(|submitted| submitted.number == number) else {
            self.reload_unsure(ctx);
            return;
        };
        live.ledger = submitted.before;
        // It holds entries that were not kept.
        live.context = None;
        let bytes = submitted.lines.iter().map(|line| line.text.len() as u64).sum();
        self.step(Input::Refused { bytes }, ctx);
    }

    /// Loads again, but not for ever: where nothing is made durable in between, it counts as a crash.
    fn reload_unsure(&mut self, ctx: &mut Ctx<Self>) {
        assert!(self.reloads < RELOADS_MAX, "loaded {RELOADS_MAX} times without getting on");
        self.reloads += 1;
        self.shared.metrics.work.session_reloads.inc();
        self.reload(ctx);
    }

    // --- file ---

    pub(super) fn write_view(&mut self, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let Life::Live(live) = &mut self.state else { return };
        let Some(job) = live.view.next_job(now.mono) else {
            if live.view.lets_turns_start() {
                self.step(Input::ViewWritten, ctx);
            }
            return;
        };
        let (life, through) = (self.life, job.through);
        let written = self.on_file_soon(move |ports, path| {
            let now_ms = ports.clock.wall_ms();
            let spare = Spare { id: EntryId(ports.ids.random()), now_ms };
            file::append(&*ports.disk, path, job.at, &job.lines, &spare)
        });
        self.hurry_file();
        ctx.spawn(written.into_actor(self).map(move |outcome, session, ctx| {
            if session.life == life {
                let outcome = outcome.unwrap_or_else(|_| Err(std::io::Error::other("the write panicked")));
                session.view_written(outcome, through, ctx);
                session.note();
            }
        }));
    }

    /// Before leaving for good: a disk that was full may have space by now, whatever the wait.
    fn write_view_once_more(&mut self, ctx: &mut Ctx<Self>) {
        if let Life::Live(live) = &mut self.state
            && live.view.is_failing()
        {
            live.view.wait_no_longer();
            self.write_view(ctx);
        }
    }

    fn view_written(&mut self, outcome: std::io::Result<file::Standing>, through: u64, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let Life::Live(live) = &mut self.state else { return };
        match outcome {
            Ok(standing) => {
                let before = live.view.lag_bytes();
                live.view.written(&standing);
                if let Some(row) = &live.row {
                    row.filed(standing.length, standing.found.as_ref().map_or(0, |found| found.foreign_lines));
                }
                self.shared.metrics.view_lag_bytes.dec_by((before - live.view.lag_bytes()) as i64);
                if standing.found.is_some() {
                    // The conversation in memory lacks what somebody else said.
                    live.context = None;
                } else if let Some(context) = &mut live.context {
                    context.checked_at = now.mono;
                }
                self.tell_written(through);
                self.report_found(standing.found, None);
            }
            Err(error) => {
                tracing::warn!(session = %self.lease.key(), %error, "transcript cannot be written; it is tried again");
                self.shared.metrics.work.view_retries.inc();
                live.view.failed(now.mono);
                self.join_sweep(ctx);
            }
        }
        self.write_view(ctx);
        self.leave_if_wanted(ctx);
    }

    // --- tools ---

    fn run_tool(&mut self, round: u32, call: ToolCall, ctx: &mut Ctx<Self>) {
        if let Life::Live(live) = &mut self.state
            && let Some(drain) = &mut live.drain
        {
            drain.hold(round, call);
            return;
        }
        let Some((stamp, cancel)) = self.asker(round) else { return };
        let Life::Live(live) = &self.state else { return };
        let Some(source) = live.machine.body().map(|(accepted, ..)| accepted.source.clone()) else { return };
        let id = call.id.clone();
        let name = call.name.clone();
        let key = self.lease.key().clone();
        let pulse = self.pulse();
        let run = RunTool { stamp, key, source, call, pulse, cancel, reply_to: ctx.address().recipient() };
        if tell_front(&self.neighbours.tools, &self.shared.mail.tools, run).is_err() {
            let content = vec![Content::text(format!("Error: {NO_FRONT_END}."))];
            self.step(Input::ToolFinished(ToolResult { call: id, name, content, is_error: true }), ctx);
            return;
        }
        if let Life::Live(live) = &mut self.state
            && let Some(work) = &mut live.work
        {
            work.tools.push((stamp, id));
        }
    }

    pub(super) fn tool_event(&mut self, finished: ToolFinished, ctx: &mut Ctx<Self>) {
        let ToolFinished { stamp, result, .. } = finished;
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
                self.step(Input::ToolFinished(result), ctx);
            }
            Life::Gone => self.stale(),
        }
    }

    /// Runs the tools that were held back, once those of the earlier incarnation have ended.
    fn end_drain(&mut self, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let Life::Live(live) = &mut self.state else { return };
        if let Some(mut drain) = live.drain.take_if(|drain| drain.is_over(now.mono)) {
            for (round, call) in drain.take_held() {
                self.run_tool(round, call, ctx);
            }
        }
    }

    fn cancel_work(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        if let Some(work) = &mut live.work {
            work.cancel.cancel();
            work.permit = None;
            work.call = None;
        }
        let held = live.drain.as_mut().map(|drain| drain.take_held()).unwrap_or_default();
        for (_, call) in held {
            let content = vec![Content::text("Error: the turn was stopped before this call ran.")];
            let result = ToolResult { call: call.id, name: call.name, content, is_error: true };
            self.step(Input::ToolFinished(result), ctx);
        }
    }

    // --- outside ---

    pub(super) fn emit(&self, shown: Shown) {
        let Shown { turn, attempt, seq, what } = shown;
        self.shared.events.emit(TurnEvent { key: self.lease.key().clone(), turn, attempt, seq, what });
    }

    pub(super) fn ended(&mut self, verdict: Verdict) {
        let now = self.now();
        let metrics = &self.shared.metrics;
        metrics.turns.get_or_create(&ByResult { result: word(verdict.result) }).inc();
        self.shared.span_of_delivery(&verdict);
        self.shared.span_of_turn(&verdict, word(verdict.result));
        let Life::Live(live) = &mut self.state else { return };
        let message = self.crash.message();
        if let Some(work) = live.work.as_mut().filter(|work| work.turn == verdict.turn) {
            work.result = Some(word(verdict.result));
            metrics.turn_seconds.observe(verdict.latency_ms as f64 / 1000.0);
            live.work = None;
            live.place = None;
            live.used_at = now.mono;
            live.context.iter_mut().for_each(|context| context.trim());
            self.shared.hot.trim();
            self.crash.clear_turn();
        }
        match verdict.result {
            TurnResult::DeadLettered => {
                metrics.dead_letters.get_or_create(&ByKind { kind: "turn" }).inc();
                self.dead_lettered(verdict, message);
            }
            TurnResult::Failed => self.ended_otherwise(EventName::TurnFailed, verdict, message),
            TurnResult::Cancelled => self.ended_otherwise(EventName::TurnCancelled, verdict, message),
            TurnResult::Done => {}
        }
    }

    /// Tells of a turn that ended in order, but not with an answer.
    fn ended_otherwise(&self, name: EventName, verdict: Verdict, message: Option<MessageId>) {
        let mut event = self.event(name, Some(verdict.turn));
        event.attempt = Some(verdict.attempt);
        event.message_id = message;
        event.reason = verdict.reason.map(str::to_owned);
        self.shared.log.record(event);
    }

    fn dead_lettered(&self, verdict: Verdict, message: Option<MessageId>) {
        let mut event = self.event(EventName::DeadLettered, Some(verdict.turn));
        event.attempt = Some(verdict.attempt);
        event.message_id = message;
        event.reason = verdict.reason.map(str::to_owned);
        event.verdict = Some("its user is told".to_owned());
        let crash = self.crash.last_crash().map(|crash| crash.event);
        event.cause = crash.or_else(|| self.shared.log.latest(EventName::ProcessStarted));
        self.shared.log.record(event);
        self.crash.forgive();
    }

    pub(super) fn tick(&mut self, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let idle = self.shared.config.context_idle;
        if matches!(self.state, Life::Loading(_)) {
            self.watch_load(ctx);
            return;
        }
        let heard = self.heard();
        self.step(Input::Tick { heard }, ctx);
        self.end_drain(ctx);
        if let Life::Live(live) = &mut self.state
            && live.view.is_failing()
        {
            self.write_view(ctx);
        }
        let Life::Live(live) = &mut self.state else { return };
        if live.work.is_none() && now.mono.saturating_sub(live.used_at) >= idle {
            live.context = None;
            live.submitted.shrink_to_fit();
        }
        let file = live.view.is_failing() || live.machine.awaits_file();
        if file || live.work.is_some() || live.context.is_some() || live.drain.is_some() {
            self.join_sweep(ctx);
        }
    }
}

fn word(result: TurnResult) -> &'static str {
    match result {
        TurnResult::Done => "done",
        TurnResult::Failed => "failed",
        TurnResult::DeadLettered => "dead_lettered",
        TurnResult::Cancelled => "cancelled",
    }
}
