//! What others end: one turn, or all of them with the transcript. Then one commit ends the
//! running turn, all that wait, and the transcript.

use std::sync::Arc;

use domain::chat::{StopReason, Usage};
use domain::ids::{Attempt, TurnId};
use domain::prompt::CANCELLED_NOTICE;
use protocol::journal::{Closes, InboxItem, Move, TurnEnd};
use protocol::turn::{Finished, Route, TurnProgress, TurnResult};

use super::Machine;
use crate::inbox::Cancelled;
use crate::turn::replies::replies;
use crate::turn::running::Why;
use crate::turn::{Batch, Effect, Now, Shown, Verdict};

/// A transcript that is to end.
#[derive(Debug)]
pub(super) struct Closing {
    place: Move,
    /// Turns that end with it before they began, once they are in a commit.
    waiting: Vec<InboxItem>,
    /// Whether a turn that ran ended with it.
    ran: bool,
}

// === impl Machine ===

impl Machine {
    /// Cancels a turn whose asker went away.
    pub(super) fn cancel(&mut self, id: TurnId, now: Now, out: &mut Vec<Effect>) {
        if self.turn.as_ref().is_some_and(|turn| turn.id() == id) {
            self.stop_running(Why::Cancelled(Cancelled::Left), now, out);
        } else if self.inbox.cancel(id, Cancelled::Left) {
            self.begin_next(now, out);
        }
    }

    /// Cancels the cut turn while it waits: to those outside it is the one that runs.
    pub(super) fn cancel_cut(&mut self) -> Option<TurnId> {
        let cut = self.cut.as_ref()?.turn.started.turn;
        (self.turn.is_none() && self.inbox.cancel(cut, Cancelled::Stopped)).then_some(cut)
    }

    /// Whether no turn waits or runs.
    pub fn is_quiet(&self) -> bool {
        self.turn.is_none() && self.inbox.running().is_none() && self.inbox.is_empty()
    }

    /// Ends everything. A checkpointed session is as good as gone, and is not closed any more.
    pub(super) fn close(&mut self, place: Move, now: Now, out: &mut Vec<Effect>) {
        if self.closing.is_some() || self.closed || self.checkpointed {
            return;
        }
        self.closing = Some(Box::new(Closing { place, waiting: Vec::new(), ran: false }));
        self.stop_running(Why::Cancelled(Cancelled::Deleted), now, out);
        self.begin_next(now, out);
    }

    /// Lets the end of the running turn be that of all turns.
    pub(super) fn end_waiting(&mut self, batch: &mut Batch) {
        let Some(closing) = self.closing.as_deref_mut() else { return };
        closing.ran |= batch.turn.is_some();
        closing.waiting.extend(self.inbox.take_all());
        for item in &closing.waiting {
            batch.ended.push((item.turn, TurnEnd::Cancelled { why: Cancelled::Deleted.word().into() }));
            if let Some(route) = item.push_route() {
                batch.out.extend(replies(item.turn, route, CANCELLED_NOTICE, &self.rules.push_limits));
            }
        }
        batch.closes = Some(Closes::Moves(closing.place));
        self.closed = true;
    }

    /// Commits the end of a transcript in which no turn runs; whether one is to end.
    pub(super) fn commit_close(&mut self, out: &mut Vec<Effect>) -> bool {
        if self.closing.is_none() {
            return false;
        }
        if self.turn.is_none() && self.commits.is_empty() && !self.closed {
            // What stands in the transcript already gets its end there, and the others end with it.
            if self.cancel_cut().is_some() {
                return false;
            }
            let mut batch = Batch::default();
            self.end_waiting(&mut batch);
            self.commit(batch, out);
        }
        true
    }

    /// The end is durable.
    pub(super) fn close_ended(&mut self, place: Move, now: Now, out: &mut Vec<Effect>) {
        let Some(closing) = self.closing.take() else { return };
        let cancelled = closing.waiting.len() + usize::from(closing.ran);
        for item in closing.waiting {
            self.show_cancelled(&item, now, out);
        }
        out.push(Effect::MoveAway(place, u32::try_from(cancelled).unwrap_or(u32::MAX)));
    }

    /// Tells of the end of a turn that never began here.
    fn show_cancelled(&mut self, item: &InboxItem, now: Now, out: &mut Vec<Effect>) {
        let cut = self.cut.take_if(|cut| cut.turn.started.turn == item.turn);
        let attempt = cut.map_or(Attempt::FIRST, |cut| cut.turn.started.attempt.next());
        let accepted_ms = item.inline.as_ref().map_or(now.wall_ms, |accepted| accepted.accepted_ms);
        let latency_ms = now.wall_ms.saturating_sub(accepted_ms);
        let finished = Finished {
            result: TurnResult::Cancelled,
            into: None,
            text: CANCELLED_NOTICE.to_owned(),
            stop: StopReason::Aborted,
            model: Arc::clone(&self.rules.model),
            usage: Usage::default(),
            latency_ms,
            standing: None,
        };
        let what = TurnProgress::Finished(Arc::new(finished));
        out.push(Effect::Emit(Shown { turn: item.turn, attempt, seq: 1, what }));
        let route = match item.inline.as_ref().map(|accepted| &accepted.route) {
            Some(Route::Push(_)) => "push",
            Some(Route::Reply) => "reply",
            Some(Route::Live) => "live",
            None if item.push_route().is_some() => "push",
            None => "live",
        };
        let (result, reason) = (TurnResult::Cancelled, Some(Cancelled::Deleted.reason()));
        out.push(Effect::Ended(Verdict { turn: item.turn, attempt, result, reason, route, latency_ms }));
    }
}
