//! What becomes of a turn whose progress the journal will never hold: something smaller takes its place.

use domain::ids::ToolCallId;

use super::Machine;
use crate::turn::calls::Calls;
use crate::turn::running::{Phase, Why};
use crate::turn::{Batch, Effect, Record};

/// What a batch of a turn claims, to be taken back when it is refused.
#[derive(Debug, Default)]
pub(super) struct Claims {
    /// It has the user's line.
    user: bool,
    /// It has the goal that the turn sets.
    goal: bool,
    /// It has a message with calls that are not known to the transcript before.
    calls: bool,
    /// Calls whose results it has.
    results: Vec<ToolCallId>,
}

/// How often a smaller batch takes the place of a refused one: without what was too large, then without the user's line.
const SMALLER_MAX: u32 = 2;

// === impl Claims ===

impl Claims {
    /// Those of `batch`.
    pub fn of(batch: &Batch) -> Self {
        let mut claims = Self::default();
        for record in &batch.records {
            match record {
                Record::Reset(_) | Record::PauseGoal | Record::Said(_) | Record::Queue(_) | Record::Run(_) => {}
                Record::Goal(goal) => claims.goal |= goal.is_active(),
                Record::User => claims.user = true,
                Record::Assistant(message, _) => claims.calls |= !message.calls.is_empty(),
                Record::Tool(result) => claims.results.push(result.call.clone()),
            }
        }
        claims
    }
}

// === impl Machine ===

impl Machine {
    /// The newest commit under way, of about `bytes`, fits into no record.
    pub(super) fn refused(&mut self, bytes: u64, out: &mut Vec<Effect>) {
        let Some(pending) = self.commits.pop_back() else {
            out.push(Effect::Stale);
            return;
        };
        let (Some(claims), Some(turn)) = (pending.claims, self.turn.as_deref_mut()) else {
            out.push(Effect::Reload);
            return;
        };
        self.inbox.unjoin(pending.joined);
        turn.refusals += 1;
        // The end of the waiting turns, and so of the transcript, was a part of it.
        self.closed &= pending.closes.is_none();
        if turn.refusals > SMALLER_MAX {
            out.push(Effect::Reload);
            return;
        }
        // The user's line is never what is too large by itself, unless leaving out all else did not help.
        turn.user_written &= !claims.user || turn.refusals == SMALLER_MAX;
        if claims.goal {
            turn.pursuit.give_back();
        }
        if claims.calls {
            turn.calls = Calls::default();
            turn.next_group = Vec::new();
        }
        claims.results.iter().for_each(|call| turn.calls.reopen(call));
        turn.partial = String::new();
        turn.ending = None;
        if turn.stop.is_none() {
            turn.stop = Some(Why::TooLarge { bytes });
            out.push(Effect::CancelWork);
        }
        match turn.phase {
            // The other calls of the group end first; then the stop is seen.
            Phase::RunningTools => {}
            Phase::Loading
            | Phase::Steering
            | Phase::WaitingForPermit
            | Phase::Thinking
            | Phase::Compacting
            | Phase::Commanding
            | Phase::Saving => self.wind_up(out),
        }
    }
}
