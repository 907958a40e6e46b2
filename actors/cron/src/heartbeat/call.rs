//! The second call: whether a person is told. All that goes wrong with it is silence, and a line in the log.

use std::time::Duration;

use actix::{AsyncContext, Context, Handler, SpawnHandle};
use domain::heartbeat::{judge, request};
use domain::ids::{Attempt, Epoch, TurnId};
use protocol::metrics::ByKind;
use protocol::provider::{AskPermit, Complete, Event, Permit, Urgency};
use protocol::supervision::Kind;
use protocol::turn::Stamp;
use supervision::tell;
use tokio_util::sync::CancellationToken;

use super::actor::{Beat, Heartbeat, Stage};

/// How long the call may take, the wait for a place included.
const TAKES_MAX: Duration = Duration::from_secs(120);
/// Rounds of model calls are counted from here, apart from those of turns and of the memory.
const ROUND: u32 = u32::MAX;

/// A call under way.
pub(super) struct Call {
    pub(super) stamp: Stamp,
    cancel: CancellationToken,
    late: SpawnHandle,
}

impl Heartbeat {
    /// Asks whether a report is told.
    pub(super) fn evaluate(&mut self, beat: Beat, turn: TurnId, report: String, ctx: &mut Context<Self>) {
        let stamp = Stamp { epoch: Epoch(0), turn, attempt: Attempt::FIRST, round: ROUND };
        let cancel = CancellationToken::new();
        let ask = AskPermit {
            stamp,
            key: self.key.clone(),
            urgency: Urgency::Turn,
            cancel: cancel.clone(),
            reply_to: ctx.address().recipient(),
        };
        let late =
            ctx.run_later(TAKES_MAX, |heart, ctx| heart.silent("nobody decided in time whether it is told", ctx));
        self.stage = Stage::Asking { beat, report, call: Call { stamp, cancel, late } };
        self.provider_mail(1);
        if tell(&self.deps.permits, ask).is_err() {
            self.provider_mail(-1);
            self.silent("the model cannot be asked", ctx);
        }
    }

    fn permitted(&mut self, permit: Permit, ctx: &mut Context<Self>) {
        let Stage::Asking { beat, report, call } = &self.stage else { return };
        let rules = &self.deps.rules;
        let request = request(rules.model.clone(), rules.max_tokens, &beat.evaluator, &beat.tasks, report);
        let (stamp, cancel) = (call.stamp, call.cancel.clone());
        let complete = Complete { stamp, permit, request, cancel, reply_to: ctx.address().recipient() };
        self.provider_mail(1);
        if tell(&self.deps.model, complete).is_err() {
            self.provider_mail(-1);
            self.silent("the model cannot be asked", ctx);
        }
    }

    /// Ends a call, if one is under way.
    pub(super) fn hang_up(&mut self, ctx: &mut Context<Self>) {
        if let Stage::Asking { call, .. } = &self.stage {
            call.cancel.cancel();
            ctx.cancel_future(call.late);
        }
    }

    /// Front ends count down what they take from their mailboxes.
    fn provider_mail(&self, change: i64) {
        self.deps.metrics.mailbox_messages.get_or_create(&ByKind { kind: Kind::Provider.word() }).inc_by(change);
    }
}

impl Handler<Event> for Heartbeat {
    type Result = ();

    fn handle(&mut self, event: Event, ctx: &mut Self::Context) {
        let stamp = match &event {
            Event::Permitted { stamp, .. }
            | Event::Delta { stamp, .. }
            | Event::Completed { stamp, .. }
            | Event::Failed { stamp, .. } => *stamp,
        };
        if !matches!(&self.stage, Stage::Asking { call, .. } if call.stamp == stamp) {
            self.deps.metrics.stale_events.get_or_create(&ByKind { kind: Kind::Cron.word() }).inc();
            return;
        }
        match event {
            Event::Permitted { permit, .. } => self.permitted(permit, ctx),
            Event::Delta { .. } => {}
            Event::Completed { message, .. } => match judge(&message) {
                Ok(verdict) => self.judged(verdict.notify, ctx),
                Err(why) => self.silent(&format!("the model did not decide whether it is told: {why}"), ctx),
            },
            Event::Failed { failure, .. } => {
                self.silent(&format!("the model did not decide whether it is told: {}", failure.kind.word()), ctx);
            }
        }
    }
}
