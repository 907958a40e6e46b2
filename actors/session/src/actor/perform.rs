//! Carries out what the machine decided.

use std::time::Duration;

use actix::{ActorContext, ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::ids::{Attempt, TurnId};
use protocol::journal::{CommitOutcome, JournalError, LogPosition};
use protocol::supervision::ExitReason;
use protocol::turn::TurnResult;

use super::live::{Exit, Submitted, Work};
use super::{Life, Session};
use crate::ledger::Setting;
use crate::turn::{Batch, Effect, Input};

/// How often in a row a session loads again by itself before the supervisor has to pause it.
const RELOADS_MAX: u8 = 3;

pub(super) const NO_FRONT_END: &str = "the gateway is stopping";

// === impl Session ===

impl Session {
    pub(super) fn perform(&mut self, effects: Vec<Effect>, ctx: &mut Ctx<Self>) {
        for effect in effects {
            match effect {
                Effect::ReadBody(at) => self.read_body(at, ctx),
                Effect::Refresh => self.distrust(),
                Effect::AskAnew => {
                    self.begin_anew_if_due();
                    self.step(Input::AnewKnown, ctx);
                }
                Effect::Wake(after) => self.wake_after(after, ctx),
                Effect::Began(turn, attempt) => self.began(turn, attempt, ctx),
                Effect::AskPermit(round) => self.ask_permit(round, ctx),
                Effect::CallModel(call) => self.call_model(call, ctx),
                Effect::RunTool(round, call) => self.run_tool(round, call, ctx),
                Effect::Compact => self.compact(ctx),
                Effect::Command(command) => self.follow(command, ctx),
                Effect::Commit(batch) => self.commit(batch, ctx),
                Effect::WriteView => self.write_view(ctx),
                Effect::Emit(shown) => self.emit(shown),
                Effect::CancelWork => self.cancel_work(ctx),
                Effect::Ended(verdict) => {
                    let answered = (verdict.result == TurnResult::Done).then_some((verdict.turn, verdict.attempt));
                    self.ended(verdict, ctx);
                    if let Some((turn, attempt)) = answered {
                        self.want_title(turn, attempt, ctx);
                    }
                }
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
                Effect::QueueKept => self.queue_kept(),
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
                    self.crash.clear_turn();
                    let Life::Live(live) = &mut self.state else { return };
                    live.work = None;
                    // Whose transcript has ended leaves once that is put away.
                    if live.exit == Exit::No {
                        self.set_exit(Exit::Wanted);
                        self.write_view_once_more(ctx);
                    }
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
                Ok(Err(JournalError::Unreadable(_))) => session.step(Input::Unreadable(at), ctx),
                Ok(Err(JournalError::Closed)) | Err(_) => session.halt(ctx),
            }
            session.note();
        }));
    }

    fn wake_after(&self, after: Duration, ctx: &mut Ctx<Self>) {
        let life = self.life;
        ctx.run_later(after, move |session, ctx| {
            if session.life == life {
                session.step(Input::Woke, ctx);
                session.note();
            }
        });
    }

    // --- journal ---

    fn commit(&mut self, batch: Batch, ctx: &mut Ctx<Self>) {
        let wall_ms = self.shared.ports.clock.wall_ms();
        let Life::Live(live) = &mut self.state else { return };
        let cwd = self.shared.config.workspace.to_string_lossy();
        let said = live.machine.body().map(|(accepted, body, _)| (&**accepted, body));
        let hidden = live.machine.answers_command() || batch.is_of_dropped();
        let setting = Setting { key: self.lease.key(), cwd: &cwd, said, hidden, wall_ms };
        let before = live.ledger.clone();
        let (edits, changes) = (batch.edit.is_some(), batch.changes());
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
        live.submitted.push_back(Submitted { number, lines, durable: false, progress, before, work, changes, begun });
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
            self.tell_changes(submitted.changes, submitted.work);
            self.step(Input::Committed, ctx);
        }
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
