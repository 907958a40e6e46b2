//! How a turn begins: for the first time, again after a cut, or not at all.

use std::sync::Arc;
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::ToolCall;
use domain::prompt::dead_letter_notice;
use protocol::journal::Accepted;
use protocol::turn::TurnProgress;
use supervision::planted::{Bug, planted};

use super::{Machine, Place};
use crate::turn::calls;
use crate::turn::recover::{self, Cut, Decision};
use crate::turn::running::{Phase, Running, Why};
use crate::turn::{Batch, Effect, Now, Record};

const CONDENSED: &str = "Earlier messages were summarised meanwhile; the transcript still has them.";
const UNREADABLE: &str = "This message could not be read back and was given up.";
const MALFORMED: &str = "This message could not be understood.";
const OUTCOME_UNKNOWN: &str = "Error: the outcome of this call is unknown: the process was interrupted while it ran. \
     It may have taken effect; check before you repeat it.";

// === impl Machine ===

impl Machine {
    pub(super) fn begin_next(&mut self, now: Now, out: &mut Vec<Effect>) {
        if self.commit_close(out) {
            return;
        }
        let held = self.held && !self.runs_turn();
        let busy = held || self.turn.is_some() || self.view_busy.is_some() || !self.commits.is_empty();
        let why = self.inbox.next_cancelled();
        let cancelled = why.is_some();
        let leaves = self.leaving && (self.checkpointed || !cancelled);
        if busy || leaves || self.closed {
            return;
        }
        if self.inbox.is_empty() {
            if self.place == Place::Held {
                self.place = Place::None;
                out.push(Effect::LeavePlace);
            }
            if self.inbox.missed() {
                out.push(Effect::Reload);
            }
            return;
        }
        let more = if cancelled { Duration::ZERO } else { self.collects_for(now) };
        if !more.is_zero() {
            if !std::mem::replace(&mut self.sleeps, true) {
                out.push(Effect::Wake(more));
            }
            return;
        }
        // A turn that was cancelled while it waited does nothing that needs a place.
        match self.place {
            Place::None if !cancelled => {
                self.place = Place::Asked;
                out.push(Effect::EnterPlace);
                return;
            }
            Place::Asked if !cancelled => return,
            Place::None | Place::Asked | Place::Held => {}
        }
        let Some(item) = self.inbox.begin() else { return };
        self.prompt = false;
        let behind = self.inbox.last();
        let cut = self.cut.take().filter(|cut| cut.turn.started.turn == item.turn);
        let at = item.at;
        let inline = item.inline.clone();
        // Whatever waits behind one that goes on came after it had begun, as far as anybody knows.
        let behind = if cut.is_some() { Some(item.seq) } else { behind };
        let mut turn = Running::new(item, cut, now);
        turn.behind = behind;
        turn.stop = why.map(Why::Cancelled);
        self.turn = Some(Box::new(turn));
        match inline {
            Some(accepted) => self.begin(accepted, now, out),
            None => out.push(Effect::ReadBody(at)),
        }
    }

    /// Lets no further turn begin, until [`Input::Released`](crate::turn::Input::Released).
    pub fn hold(&mut self) {
        self.held = true;
    }

    /// Whether turns are held back.
    pub fn is_held(&self) -> bool {
        self.held
    }

    /// Whether a turn runs, or was cut and goes on first.
    pub fn runs_turn(&self) -> bool {
        self.turn.is_some() || (self.cut.is_some() && !self.inbox.is_empty())
    }

    /// Whether no turn runs, and everything is durable.
    pub fn is_settled(&self) -> bool {
        !self.runs_turn() && self.commits.is_empty()
    }

    /// Whether it is on its way out.
    pub fn is_leaving(&self) -> bool {
        self.leaving || self.closed || self.closing.is_some()
    }

    /// Whether it leaves because the process stops.
    pub fn is_stopping(&self) -> bool {
        self.leaving
    }

    pub(super) fn leave_if_done(&mut self, out: &mut Vec<Effect>) {
        // What was cancelled while it waited ends first: the next process must not run it.
        let ends_one = !self.checkpointed && self.inbox.next_cancelled().is_some();
        let closes = self.closing.is_some();
        if !self.leaving || ends_one || closes || self.turn.is_some() || !self.commits.is_empty() {
            return;
        }
        if self.checkpointed || self.inbox.is_empty() {
            out.push(Effect::Leave);
        } else {
            // The first turn of the queue counts as begun, though nothing has been done for it.
            self.commit(Batch { interrupted: true, ..Batch::default() }, out);
        }
    }

    /// The place that was asked for is there.
    pub(super) fn placed(&mut self, now: Now, out: &mut Vec<Effect>) {
        self.place = Place::Held;
        self.begin_next(now, out);
    }

    pub(super) fn begin(&mut self, accepted: Arc<Accepted>, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::Loading) else {
            out.push(Effect::Stale);
            return;
        };
        let body = TurnBody::decode(&accepted.body);
        turn.user_written = accepted.retry_of.is_some();
        turn.accepted = Some(accepted);
        let understood = body.is_ok();
        turn.body = body.unwrap_or_else(|_| TurnBody::text(""));
        turn.progress = now.mono;
        turn.take_command();
        if turn.refresh {
            out.push(Effect::Refresh);
        }
        if let Some(cut) = turn.cut.take() {
            self.begin_again(&cut, now, out);
            return;
        }
        out.push(Effect::Began(turn.id(), turn.attempt));
        turn.show_begin(out);
        if turn.is_of_session() && std::mem::take(&mut self.condensed) && turn.anew.is_none() {
            out.push(Effect::Emit(turn.show(TurnProgress::Notice(CONDENSED.into()))));
        }
        if !understood {
            let batch = turn.failure("malformed", MALFORMED.to_owned(), &self.rules);
            self.save(batch, out);
        } else {
            self.interrupt(now, out);
            self.go_on(now, out);
        }
    }

    fn begin_again(&mut self, cut: &Cut, now: Now, out: &mut Vec<Effect>) {
        self.interrupt(now, out);
        let Some(turn) = self.turn.as_deref_mut() else { return };
        turn.go_on_from(cut);
        let started = match recover::decide(cut, &self.rules) {
            Decision::Again(started) => started,
            Decision::GiveUp(counts) => {
                turn.attempt = counts.attempt.next();
                out.push(Effect::Began(turn.id(), turn.attempt));
                let text = dead_letter_notice(turn.id(), recover::own_crashes(&counts), counts.deaths);
                let batch = turn.dead_letter("crashes", text, &self.rules);
                self.save(batch, out);
                return;
            }
        };
        turn.attempt = started.attempt;
        out.push(Effect::Began(turn.id(), turn.attempt));
        out.push(Effect::Recovered(turn.id(), turn.attempt, cut.turn.left_by));
        let mut batch = Batch { turn: Some(turn.id()), started: Some(started), ..Batch::default() };
        let repeatable = |name: &str| {
            calls::spec(&self.rules.tools, name).is_some_and(|spec| spec.idempotent) || planted(Bug::ToolRerun)
        };
        let unknown: Vec<ToolCall> = turn
            .calls
            .open()
            .filter(|call| cut.turn.tools_started.contains(&call.id) && !repeatable(&call.name))
            .cloned()
            .collect();
        for call in unknown {
            turn.calls.settle(&call.id);
            batch.records.push(Record::Tool(calls::synthetic(&call, OUTCOME_UNKNOWN)));
        }
        if turn.stop.is_none() {
            turn.begin_calls(&self.rules.tools, &mut batch);
        }
        self.save(batch, out);
    }

    pub(super) fn unreadable(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::Loading) else {
            out.push(Effect::Stale);
            return;
        };
        turn.progress = now.mono;
        if let Some(cut) = turn.cut.take() {
            turn.go_on_from(&cut);
            turn.attempt = cut.turn.started.attempt.next();
        }
        turn.user_written = true;
        out.push(Effect::Began(turn.id(), turn.attempt));
        let batch = turn.dead_letter("unreadable", UNREADABLE.to_owned(), &self.rules);
        self.save(batch, out);
    }
}
