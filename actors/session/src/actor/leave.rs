//! Leaving memory.

use actix::{ActorContext, ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use protocol::supervision::{EventName, ExitReason};

use super::live::Exit;
use super::{Life, Session};
use crate::file;
use crate::turn::Input;

// === impl Session ===

impl Session {
    /// Leaves if there is nothing to do; otherwise stays, and is asked again later.
    pub(super) fn passivate(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let idle = live.machine.is_idle() && live.view.is_clean() && live.drain.is_none() && live.readers == 0;
        let idle = idle && self.compaction.is_none();
        if idle && live.exit == Exit::No && self.lease.try_release() {
            self.go(ExitReason::Passivated, Some("idle"), ctx);
        }
    }

    /// Joins the line of those that have a conversation in memory.
    pub(super) fn stand_in_line(&mut self, ctx: &mut Ctx<Self>) {
        if self.lined_at.is_none() {
            self.lined_at = Some(self.now().mono);
            self.shared.hot.join(ctx.address().downgrade().recipient());
        }
    }

    /// It was first in line: lets the conversation go, unless it was used since it joined. A turn that runs needs it.
    pub(super) fn trimmed(&mut self, ctx: &mut Ctx<Self>) {
        let joined = self.lined_at.take();
        let Life::Live(live) = &mut self.state else { return };
        if live.context.is_some() {
            let runs = live.work.is_some();
            if runs || Some(live.used_at) > joined {
                self.stand_in_line(ctx);
            } else {
                live.context = None;
            }
            if runs {
                return;
            }
        }
        self.shared.hot.trim();
    }

    /// Takes the next step of an exit that was decided. A life whose file has lost lines ends here too.
    pub(super) fn leave_if_wanted(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        if live.view.is_behind() {
            // What the file has lost is asked of the journal before anything is told to be written.
            self.reload(ctx);
            return;
        }
        match live.exit {
            Exit::No => {}
            Exit::Wanted => {
                // What the file lacks is in the journal.
                let written = live.view.is_clean() || live.view.is_failing();
                if written && live.submitted.is_empty() && live.edits.is_none() && self.lease.try_release() {
                    self.go(ExitReason::Shutdown, None, ctx);
                }
            }
            Exit::Closing => {
                if live.view.is_clean() && live.submitted.is_empty() {
                    live.exit = Exit::Closed;
                    self.archive(ctx);
                }
            }
            Exit::Moving => {
                // A write that comes after the move would make the file anew.
                let written = live.view.is_clean() || (live.view.is_failing() && !live.view.is_writing());
                if written && live.submitted.is_empty() {
                    live.exit = Exit::Closed;
                    self.shared.metrics.view_lag_bytes.dec_by(live.view.give_up() as i64);
                    self.move_away(ctx);
                }
            }
            Exit::Closed => {}
        }
    }

    fn archive(&mut self, ctx: &mut Ctx<Self>) {
        let life = self.life;
        let moved = self.on_file(|ports, path| file::archive(&*ports.disk, path));
        ctx.spawn(moved.into_actor(self).map(move |outcome, session, ctx| {
            if session.life != life {
                return;
            }
            if let Ok(Err(error)) = outcome {
                tracing::warn!(session = %session.lease.key(), %error, "closed transcript cannot be moved away");
            }
            session.step(Input::Archived, ctx);
        }));
    }

    /// The transcript is closed for good, `how` in a word: the session leaves, or begins a new one for what has come
    /// meanwhile.
    pub(super) fn closed(&mut self, how: &str, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        self.shared.transcripts.index().ended(self.lease.key());
        if live.machine.waiting() == 0 && self.lease.try_release() {
            self.go(ExitReason::Passivated, Some(how), ctx);
        } else if live.machine.is_stopping() {
            live.exit = Exit::Wanted;
            self.leave_if_wanted(ctx);
        } else {
            self.reload(ctx);
        }
    }

    /// The slot is given up: whatever crashes from here on, there is no life after it. `why` it leaves memory is told.
    fn go(&mut self, reason: ExitReason, why: Option<&str>, ctx: &mut Ctx<Self>) {
        self.crash.exit_reason(reason);
        if let Life::Live(live) = &self.state
            && live.machine.is_idle()
        {
            self.shared.journal.release(self.lease.key().clone(), live.ledger.epoch);
        }
        if let Some(why) = why {
            let mut event = self.event(EventName::Passivated, None);
            event.reason = Some(why.to_owned());
            event.cause = self.crash.last_event();
            self.crash.because_of(self.shared.log.record(event));
        }
        self.state = Life::Gone;
        ctx.stop();
    }
}
