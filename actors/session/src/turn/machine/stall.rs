//! What becomes of a turn that does not get on. Progress is the turn's own: new messages do not count.

use std::time::Duration;

use super::Machine;
use crate::inbox::Cancelled;
use crate::turn::running::{Phase, Why};
use crate::turn::{Effect, Now, Waits};

// === impl Machine ===

impl Machine {
    /// What the running turn waits for, if it has not got on for its limit as far as the machine knows.
    pub fn overdue(&self, now: Now) -> Option<Waits> {
        let turn = self.turn.as_deref()?;
        self.is_over(turn.progress, now).then(|| turn.phase.waits())
    }

    /// The names of the tools that the running turn waits for.
    pub fn open_tools(&self) -> String {
        let calls = self.turn.as_deref().map(|turn| &turn.calls);
        let names: Vec<&str> = calls.into_iter().flat_map(|calls| calls.open()).map(|call| &*call.name).collect();
        names.join(", ")
    }

    /// Whether a turn waits for the file.
    pub fn awaits_file(&self) -> bool {
        self.view_busy.is_some() && self.turn.is_none() && !self.inbox.is_empty()
    }

    fn is_over(&self, progress: Duration, now: Now) -> bool {
        now.mono.saturating_sub(progress) >= self.rules.stall
    }

    pub(super) fn tick(&mut self, heard: Duration, now: Now, out: &mut Vec<Effect>) {
        if self.awaits_file() && self.view_busy.is_some_and(|since| self.is_over(since, now)) {
            out.push(Effect::FileStuck);
            self.view_busy = None;
            self.begin_next(now, out);
            return;
        }
        let Some(turn) = self.turn.as_deref() else { return };
        if turn.stop.is_none() && turn.is_late(now) {
            self.stop_running(Why::Cancelled(Cancelled::TimedOut), now, out);
            return;
        }
        if !self.is_over(turn.progress.max(heard), now) {
            return;
        }
        let waits = turn.phase.waits();
        match (turn.phase, turn.stop) {
            (
                Phase::WaitingForPermit | Phase::Thinking | Phase::RunningTools | Phase::Compacting | Phase::Commanding,
                None,
            ) => {
                out.push(Effect::Stuck(turn.id(), turn.attempt, waits));
                self.stop_running(Why::Stuck(waits), now, out);
            }
            // A tool that does not even end when it is cancelled is left behind.
            (Phase::RunningTools, Some(_)) => self.wind_up(out),
            // Only the journal knows how far it got, so it is asked anew.
            (Phase::Loading | Phase::Steering | Phase::Saving, _) => {
                out.push(Effect::Stuck(turn.id(), turn.attempt, waits));
                out.push(Effect::Reload);
            }
            // A stop ends these phases at once.
            (Phase::WaitingForPermit | Phase::Thinking | Phase::Compacting | Phase::Commanding, Some(_)) => {}
        }
    }
}
