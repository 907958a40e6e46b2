//! The transcript file follows the durable commits.

use actix::{ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};

use super::{Life, Session};
use crate::file;
use crate::turn::Input;

// === impl Session ===

impl Session {
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
            file::append(&*ports.disk, path, job.at, &job.lines, now_ms)
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
    pub(super) fn write_view_once_more(&mut self, ctx: &mut Ctx<Self>) {
        if let Life::Live(live) = &mut self.state
            && live.view.is_failing()
        {
            live.view.wait_no_longer();
            self.write_view(ctx);
        }
    }

    pub(super) fn view_written(&mut self, outcome: std::io::Result<file::Standing>, through: u64, ctx: &mut Ctx<Self>) {
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
}
