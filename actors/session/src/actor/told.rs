//! What the outside is told: turn events, and how a turn ended.

use std::sync::Arc;

use actix::Context as Ctx;
use domain::ids::{Attempt, MessageId, TurnId};
use protocol::journal::LeftBy;
use protocol::metrics::{ByKind, ByResult};
use protocol::supervision::EventName;
use protocol::turn::{Standing, TurnEvent, TurnProgress, TurnResult};
use tokio::sync::oneshot;

use super::live::Live;
use super::{Life, Session, answer};
use crate::turn::{Shown, Verdict};

// === impl Session ===

impl Session {
    pub(super) fn emit(&self, shown: Shown) {
        let Shown { turn, attempt, seq, mut what } = shown;
        if let (TurnProgress::Finished(finished), Life::Live(live)) = (&mut what, &self.state) {
            Arc::make_mut(finished).standing = Some(self.standing(live));
        }
        self.shared.events.emit(TurnEvent { key: self.lease.key().clone(), turn, attempt, seq, what });
    }

    pub(super) fn tell_standing(&self, reply: oneshot::Sender<Standing>) {
        if let Life::Live(live) = &self.state {
            answer(reply, self.standing(live));
        }
    }

    fn standing(&self, live: &Live) -> Standing {
        let window_tokens = self.settings_of(live).preset.context_window_tokens;
        Standing { window_tokens, goal: live.ledger.tally().goal.clone() }
    }

    /// Tells of a turn that was cut and goes on.
    pub(super) fn recovered(&self, turn: TurnId, attempt: Attempt, left_by: LeftBy) {
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

    pub(super) fn ended(&mut self, verdict: Verdict, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let metrics = &self.shared.metrics;
        metrics.turns.get_or_create(&ByResult { result: verdict.result.word() }).inc();
        self.shared.span_of_delivery(&verdict);
        self.shared.span_of_turn(&verdict, verdict.result.word());
        let Life::Live(live) = &mut self.state else { return };
        let (message, mut asked) = (self.crash.message(), None);
        if let Some(work) = live.work.as_mut().filter(|work| work.turn == verdict.turn) {
            work.result = Some(verdict.result.word());
            metrics.turn_seconds.observe(verdict.latency_ms as f64 / 1000.0);
            asked = work.asked.filter(|_| verdict.result == TurnResult::Done);
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
            TurnResult::Done | TurnResult::Joined => {}
        }
        if let Some(fill) = asked {
            self.compact_behind_turn(fill, ctx);
        }
    }

    /// Tells of a turn that ended in order, but not with an answer.
    pub(super) fn ended_otherwise(&self, name: EventName, verdict: Verdict, message: Option<MessageId>) {
        let mut event = self.event(name, Some(verdict.turn));
        event.attempt = Some(verdict.attempt);
        event.message_id = message;
        event.reason = verdict.reason.map(str::to_owned);
        self.shared.log.record(event);
    }

    pub(super) fn dead_lettered(&self, verdict: Verdict, message: Option<MessageId>) {
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

    /// What comes for a transcript that has ended, or that a newer incarnation owns, is never appended: it is told.
    pub(super) fn tell_fenced(&self) {
        let mut event = self.event(EventName::Undeliverable, None);
        event.reason = Some("its transcript has ended, or a newer incarnation owns it".to_owned());
        self.shared.log.record(event);
        self.stale();
    }
}
