//! The actor: keeps the time, and takes one beat after the other through its stages.

use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Supervised, WrapFuture};
use domain::body::{TurnBody, body_hash};
use domain::event::{Event as Said, EventKind};
use domain::heartbeat::message;
use domain::ids::{MessageId, SessionKey, Source, TurnId};
use protocol::edit::{Edit, Keep, Patience};
use protocol::journal::{Enqueue, Enqueued};
use protocol::metrics::{ByResult, Metrics};
use protocol::session::Mail;
use protocol::supervision::{ActorPath, Event, EventName, Kind};
use protocol::turn::{PushRoute, Route, TurnEnded, TurnResult};
use supervision::ports::offload;
use supervision::{Child, Kernel, Placement, RestartPolicy};
use tokio::sync::oneshot;

use super::HeartbeatDeps;
use super::call::Call;
use super::look::{Found, look};
use crate::ARBITER;

/// Where it stands in the tree.
const PATH: &str = "/heartbeat";
/// The session in which it beats.
const SESSION: &str = "heartbeat";
/// What people are told that it is.
const NAME: &str = "heartbeat";
/// How long a turn may take before it is cancelled.
const TURN_MAX: Duration = Duration::from_secs(3600);
/// How often a report is offered to the session that is told.
const OFFERS_MAX: u32 = 10;
/// The wait between two of them, unless the journal asks for more.
const OFFER_AGAIN: Duration = Duration::from_secs(5);
const OFFER_AGAIN_MAX: Duration = Duration::from_secs(300);
/// What becomes of beats.
const RESULTS: [&str; 7] = ["no_tasks", "inactive_hours", "no_target", "running", "silent", "told", "failed"];

/// The actor.
pub struct Heartbeat {
    pub(super) deps: HeartbeatDeps,
    pub(super) key: SessionKey,
    pub(super) stage: Stage,
}

/// One beat.
#[derive(Debug, Clone)]
pub(super) struct Beat {
    /// When it was due, ms since 1970: its name.
    pub(super) due_ms: u64,
    pub(super) tasks: String,
    pub(super) target: SessionKey,
    pub(super) evaluator: String,
}

pub(super) enum Stage {
    /// Nothing is due.
    Rests,
    /// The files are being read, or the message is on its way.
    Begins,
    /// The turn runs.
    Runs { beat: Beat, turn: TurnId, since: Duration },
    /// It is asked whether the report is told.
    Asking { beat: Beat, report: String, call: Call },
    /// The report is being handed over.
    Tells,
}

// === impl Heartbeat ===

impl Heartbeat {
    /// Starts the one actor of this process. It is restarted however often it crashes.
    pub fn start(kernel: &Kernel, place: &dyn Placement, policy: RestartPolicy, deps: HeartbeatDeps) -> Addr<Self> {
        let mut child = Child::new(PATH, Kind::Cron);
        child.policy = RestartPolicy { intensity: u32::MAX, ..policy };
        kernel.spawn(child, place, ARBITER, move |_| Self::new(deps))
    }

    /// What rules ask for is there from the start, at zero, also where it does not beat.
    pub fn count_from_zero(metrics: &Metrics) {
        for result in RESULTS {
            drop(metrics.heartbeat.beats.get_or_create(&ByResult { result }));
        }
    }

    fn new(deps: HeartbeatDeps) -> Self {
        let key = SessionKey::new(SESSION).expect("a literal of letters");
        Self { deps, key, stage: Stage::Rests }
    }

    fn count(&self, result: &'static str) {
        self.deps.metrics.heartbeat.beats.get_or_create(&ByResult { result }).inc();
    }

    fn due(&mut self, ctx: &mut Context<Self>) {
        ctx.run_later(self.deps.rules.every, |heart, ctx| heart.due(ctx));
        match &self.stage {
            Stage::Rests => {}
            Stage::Runs { turn, since, .. } if self.deps.ports.clock.mono().saturating_sub(*since) >= TURN_MAX => {
                let turn = *turn;
                self.deps.ends.unwatch(turn);
                // One that cannot be reached now is looked after when it is.
                let _ = self.deps.sessions.tell(&self.key, Mail::CancelTurn { turn });
                self.failed(Some(turn), "it did not end within an hour and was cancelled");
                return;
            }
            Stage::Begins | Stage::Runs { .. } | Stage::Asking { .. } | Stage::Tells => return self.count("running"),
        }
        let (now_ms, rules) = (self.deps.ports.clock.wall_ms(), &self.deps.rules);
        if rules.hours.is_some_and(|hours| !hours.contain(now_ms, &rules.zone)) {
            return self.count("inactive_hours");
        }
        self.stage = Stage::Begins;
        let deps = self.deps.clone();
        let looked = offload(&*self.deps.ports.offload, move || look(&deps));
        ctx.spawn(looked.into_actor(self).map(move |found, heart, ctx| match found {
            Ok(Ok(Found::NoTasks)) => heart.rest("no_tasks"),
            Ok(Ok(Found::NoTarget)) => heart.rest("no_target"),
            Ok(Ok(Found::Beat { tasks, target, evaluator })) => {
                heart.begin(Beat { due_ms: now_ms, tasks, target: target.key, evaluator }, ctx);
            }
            Ok(Err(error)) => heart.failed(None, &format!("HEARTBEAT.md cannot be read: {error}")),
            Err(_) => heart.failed(None, "the look at HEARTBEAT.md failed"),
        }));
    }

    fn rest(&mut self, result: &'static str) {
        self.stage = Stage::Rests;
        self.count(result);
    }

    /// It ends without a word to anybody but the log.
    fn failed(&mut self, turn: Option<TurnId>, why: &str) {
        self.rest("failed");
        let mut event = Event::new(EventName::CronFailed, ActorPath(PATH.into()), Kind::Cron);
        event.session = Some(self.key.clone());
        event.turn = turn;
        event.reason = Some(format!("heartbeat: {why}"));
        self.deps.log.record(event);
    }

    /// As it is: who should have been told is not.
    pub(super) fn silent(&mut self, why: &str, ctx: &mut Context<Self>) {
        self.hang_up(ctx);
        self.failed(None, why);
    }

    fn enqueue(
        &self,
        key: &SessionKey,
        id: &str,
        turn: TurnId,
        route: Route,
        body: TurnBody,
    ) -> Option<oneshot::Receiver<Enqueued>> {
        let event = Said { kind: EventKind::Heartbeat, id: SESSION.into(), name: NAME.into(), status: None };
        let body: Arc<[u8]> = TurnBody { event: Some(Arc::new(event)), ..body }.encode().into();
        let message = Enqueue {
            key: key.clone(),
            turn,
            source: Source::new(EventKind::Heartbeat.source()).ok()?,
            message_id: MessageId::new(id).ok()?,
            route,
            body_hash: body_hash(&body),
            body,
            retry_of: None,
        };
        Some(self.deps.journal.enqueue(message))
    }

    fn begin(&mut self, beat: Beat, ctx: &mut Context<Self>) {
        let turn = TurnId(self.deps.ports.ids.uuid_v7());
        if self.deps.ends.watch(&self.key, turn, ctx.address().recipient()).is_err() {
            return self.failed(None, "too many turns are watched");
        }
        let since = self.deps.ports.clock.mono();
        let body = TurnBody::text(message(&beat.tasks));
        let verdict = self.enqueue(&self.key, &format!("beat:{}", beat.due_ms), turn, Route::Live, body);
        // Its end may be told before its acceptance is.
        self.stage = Stage::Runs { beat, turn, since };
        let Some(verdict) = verdict else { return self.failed(None, "its message has no name") };
        ctx.spawn(verdict.into_actor(self).map(move |verdict, heart, _| {
            if !matches!(verdict, Ok(Enqueued::Accepted { .. })) {
                heart.deps.ends.unwatch(turn);
                heart.failed(None, "its message was not taken");
            }
        }));
    }

    fn ended(&mut self, ended: &TurnEnded, ctx: &mut Context<Self>) {
        let Stage::Runs { beat, .. } = std::mem::replace(&mut self.stage, Stage::Rests) else { return };
        self.trim();
        match ended.result {
            TurnResult::Done if ended.text.trim().is_empty() => self.rest("silent"),
            TurnResult::Done => self.evaluate(beat, ended.turn, ended.text.to_string(), ctx),
            TurnResult::Failed | TurnResult::DeadLettered | TurnResult::Cancelled | TurnResult::Joined => {
                self.failed(Some(ended.turn), &format!("its turn ended as {}", ended.result.word()));
            }
        }
    }

    /// The next beat is shown the last messages of this and earlier ones, and no more.
    fn trim(&self) {
        let edit = Edit::Compact { keep: Keep::Messages(self.deps.rules.keep), summary: None };
        // Where it does not take place, the next one does more.
        let (reply, _) = oneshot::channel();
        let _ = self.deps.sessions.tell(&self.key, Mail::Edit { edit, patience: Patience::Wait, reply });
    }

    pub(super) fn judged(&mut self, notify: bool, ctx: &mut Context<Self>) {
        self.hang_up(ctx);
        match std::mem::replace(&mut self.stage, Stage::Rests) {
            Stage::Asking { beat, report, .. } if notify => {
                self.stage = Stage::Tells;
                self.offer(beat, report, 1, ctx);
            }
            Stage::Asking { .. } | Stage::Rests | Stage::Begins | Stage::Runs { .. } | Stage::Tells => {
                self.count("silent")
            }
        }
    }

    /// Hands the report to the session that is told. It is one message, however often it is offered.
    fn offer(&mut self, beat: Beat, report: String, number: u32, ctx: &mut Context<Self>) {
        let told = |channel: &str| self.deps.told.contains(channel);
        let route = PushRoute::of_session(&beat.target, told).map_or(Route::Live, Route::Push);
        let text = "Nobody wrote to you just now: the heartbeat has something to say here, as follows.";
        let body = TurnBody { says: Some(report.as_str().into()), ..TurnBody::text(text) };
        let turn = TurnId(self.deps.ports.ids.uuid_v7());
        let Some(verdict) = self.enqueue(&beat.target, &format!("told:{}", beat.due_ms), turn, route, body) else {
            return self.failed(None, "its message has no name");
        };
        ctx.spawn(verdict.into_actor(self).map(move |verdict, heart, ctx| {
            let wait_ms = match verdict {
                Ok(Enqueued::Accepted { .. } | Enqueued::Duplicate { .. } | Enqueued::Conflict { .. }) => {
                    return heart.rest("told");
                }
                Ok(Enqueued::Busy { retry_after_ms, .. }) => retry_after_ms,
                Ok(Enqueued::Quarantined { until_ms }) => until_ms.saturating_sub(heart.deps.ports.clock.wall_ms()),
                Ok(Enqueued::Draining) | Err(_) => 0,
            };
            if number >= OFFERS_MAX {
                return heart.failed(None, "the session that should be told takes no message");
            }
            let wait = Duration::from_millis(wait_ms).clamp(OFFER_AGAIN, OFFER_AGAIN_MAX);
            ctx.run_later(wait, move |heart, ctx| heart.offer(beat, report, number + 1, ctx));
        }));
    }
}

impl Actor for Heartbeat {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        ctx.run_later(self.deps.rules.every, |heart, ctx| heart.due(ctx));
    }
}

impl Supervised for Heartbeat {
    fn restarting(&mut self, ctx: &mut Self::Context) {
        self.hang_up(ctx);
        *self = Self::new(self.deps.clone());
    }
}

impl Handler<TurnEnded> for Heartbeat {
    type Result = ();

    fn handle(&mut self, ended: TurnEnded, ctx: &mut Self::Context) {
        if matches!(&self.stage, Stage::Runs { turn, .. } if *turn == ended.turn) {
            self.ended(&ended, ctx);
        }
    }
}
