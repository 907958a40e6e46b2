//! What follows when a commit is durable.

use protocol::journal::Closes;
use protocol::turn::TurnProgress;

use super::{Machine, Place};
use crate::turn::running::Phase;
use crate::turn::{Effect, Now, Shown, Verdict};

// === impl Machine ===

impl Machine {
    pub(super) fn committed(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(pending) = self.commits.pop_front() else {
            out.push(Effect::Stale);
            return;
        };
        if pending.starts
            && let Some(turn) = &mut self.turn
        {
            turn.show_begin(out);
            if !turn.runner.begun().is_empty() {
                // Who follows this attempt sees all of the answer.
                let text = turn.runner.begun().into();
                out.push(Effect::Emit(turn.show(TurnProgress::StreamEnd { text, more: true, merge: true })));
            }
        }
        self.tell_goal(out);
        let into = self.turn.as_ref().map(|turn| turn.id());
        self.show_joined(&pending.joined, into, now, out);
        if pending.ends_turn {
            self.finish(now, out);
        }
        if pending.leaves {
            self.turn = None;
            self.checkpointed = true;
        }
        match pending.closes {
            None => {}
            Some(Closes::Moved) => out.push(Effect::Closed),
            Some(Closes::Moves(place)) => self.close_ended(place, now, out),
        }
        if pending.lines {
            self.view_busy = Some(now.mono);
            out.push(Effect::WriteView);
        }
        if pending.edits {
            out.push(Effect::Edited);
        }
        if pending.queue {
            out.push(Effect::QueueKept);
        }
        self.leave_if_done(out);
        if self.commits.is_empty() && self.turn.as_ref().is_some_and(|turn| turn.phase == Phase::Saving) {
            self.go_on(now, out);
        }
        self.begin_next(now, out);
    }

    /// What is told of the goal holds: nothing that was written of it waits for its commit any more.
    fn tell_goal(&mut self, out: &mut Vec<Effect>) {
        if self.commits.is_empty()
            && let Some(turn) = self.turn.as_deref_mut()
            && let Some(goal) = turn.pursuit.take_news()
        {
            out.push(Effect::Emit(turn.show(TurnProgress::Goal(goal))));
        }
    }

    /// Everything of the running turn is durable: what next?
    pub(super) fn go_on(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.ending.is_none()) else { return };
        if turn.stop.is_some() {
            self.wind_up(out);
        } else if turn.next_group.is_empty() {
            self.tell_dropped();
            if !self.take_up(out) {
                self.begin_held_back(out);
            }
        } else {
            self.run_group(now, out);
        }
    }

    /// Nothing is taken up after all: calls that waited for that begin, or else the next round.
    fn begin_held_back(&mut self, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut() else { return };
        if !std::mem::take(&mut turn.boundary) || turn.calls.open().next().is_none() {
            self.proceed(out);
            return;
        }
        let mut batch = turn.batch();
        turn.begin_calls(&self.rules.tools, &mut batch);
        self.save(batch, out);
    }

    /// The end that the last commit of the running turn has, should it be durable.
    pub fn take_ending(&mut self, now: Now) -> Option<(Shown, Verdict)> {
        let turn = self.turn.as_deref_mut()?;
        let ending = turn.ending.take()?;
        let (result, reason, route) = (ending.result, ending.reason, turn.route());
        let (latency_ms, shown) = turn.finished(*ending, now);
        Some((shown, Verdict { turn: turn.id(), attempt: turn.attempt, result, reason, route, latency_ms }))
    }

    pub(super) fn finish(&mut self, now: Now, out: &mut Vec<Effect>) {
        let end = self.take_ending(now);
        let Some(turn) = self.turn.take() else { return };
        self.condensed = false;
        let Some((shown, verdict)) = end else { return };
        out.push(Effect::Emit(shown));
        out.push(Effect::Ended(verdict));
        self.inbox.end_running();
        self.place = Place::None;
        if turn.body.ephemeral && self.closing.is_none() {
            self.closed = true;
            out.push(Effect::Archive);
        }
    }
}
