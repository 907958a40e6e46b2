//! The actor: looks for deliveries, hands each to the journal, tries again what was refused, and writes down how it ended.
//!
//! It holds no truth: what it has claimed lies in `processing`, and after a crash it claims that again.

mod ends;

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Supervised, WrapFuture};
use domain::body::{TurnBody, body_hash};
use domain::event::{Event as Said, EventKind};
use domain::ids::{Source, TurnId};
use domain::trigger::{Delivery, Target, Trigger};
use protocol::journal::{Enqueue, Enqueued, Journal};
use protocol::metrics::{ByResult, Metrics, gauge};
use protocol::registry::Sessions;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use protocol::turn::{DEFAULT_ACCOUNT, PushRoute, Route, TurnEnded, TurnWatch};
use supervision::ports::{Ports, offload};
use supervision::{Child, Kernel, Placement, RestartPolicy};

use super::store::{Claimed, Told, TriggerStore};
use crate::ARBITER;

/// Where it stands in the tree.
const PATH: &str = "/triggers";
/// How often the inbox is looked at.
const POLL_EVERY: Duration = Duration::from_millis(500);
/// How long a look may take; what it claims later is claimed again.
const POLL_MAX: Duration = Duration::from_secs(10);
/// The wait after a look that failed.
const POLL_AGAIN: Duration = Duration::from_secs(30);
/// Deliveries of one look.
const BATCH: usize = 20;
/// Deliveries that are claimed at a time.
const OPEN_MAX: usize = 100;
/// Turns whose ends are awaited.
const TURNS_MAX: usize = 1000;
/// How soon a message is offered again that the journal could not judge.
const OFFER_AGAIN_MS: u64 = 1000;

/// What the actor needs.
#[derive(Clone)]
pub struct TriggersDeps {
    /// The outside world.
    pub ports: Ports,
    /// The counters.
    pub metrics: Metrics,
    /// Where people look.
    pub log: Arc<dyn SupervisionLog>,
    /// Takes messages.
    pub journal: Arc<dyn Journal>,
    /// Reaches sessions.
    pub sessions: Arc<dyn Sessions>,
    /// Tells of the ends of turns.
    pub ends: Arc<dyn TurnWatch>,
    /// The files.
    pub store: Arc<TriggerStore>,
    /// The channels that are told.
    pub channels: BTreeSet<Arc<str>>,
}

/// The actor.
pub struct Triggers {
    deps: TriggersDeps,
    /// What is claimed, by the names of the files.
    open: BTreeMap<String, Claim>,
    /// What was taken and has not ended.
    turns: BTreeMap<TurnId, Told>,
    /// The last look failed, and that was told.
    failing: bool,
}

#[derive(Clone)]
struct Claim {
    delivery: Delivery,
    trigger: Trigger,
    target: Target,
}

/// What becomes of an offer.
enum Offered {
    Taken(TurnId),
    Refused {
        why: &'static str,
        retry_after_ms: u64,
    },
    /// Nobody judged it.
    Unheard,
}

// === impl Triggers ===

impl Triggers {
    /// Starts the one actor of this process. It is restarted however often it crashes.
    pub fn start(kernel: &Kernel, place: &dyn Placement, policy: RestartPolicy, deps: TriggersDeps) -> Addr<Self> {
        let mut child = Child::new(PATH, Kind::Cron);
        child.policy = RestartPolicy { intensity: u32::MAX, ..policy };
        kernel.spawn(child, place, ARBITER, move |_| Self::new(deps))
    }

    fn new(deps: TriggersDeps) -> Self {
        for result in ["accepted", "refused", "failed", "bad", "ok", "error"] {
            drop(deps.metrics.triggers.deliveries.get_or_create(&ByResult { result }));
        }
        Self { deps, open: BTreeMap::new(), turns: BTreeMap::new(), failing: false }
    }

    fn count(&self, result: &'static str) {
        self.deps.metrics.triggers.deliveries.get_or_create(&ByResult { result }).inc();
    }

    fn show(&self) {
        self.deps.metrics.triggers.open.set(gauge(self.open.len()));
    }

    fn tell(&self, claim: Option<&Claim>, reason: String) {
        let mut event = Event::new(EventName::CronFailed, ActorPath(PATH.into()), Kind::Cron);
        event.session = claim.map(|claim| claim.target.key.clone());
        event.reason = Some(reason);
        self.deps.log.record(event);
    }

    /// Looks for deliveries, and again a little later.
    fn poll(&mut self, ctx: &mut Context<Self>) {
        let room = BATCH.min(OPEN_MAX.saturating_sub(self.open.len()));
        if room == 0 {
            self.poll_in(POLL_EVERY, ctx);
            return;
        }
        let (store, known) = (Arc::clone(&self.deps.store), self.open.keys().cloned().collect());
        let look = offload(&*self.deps.ports.offload, move || store.claim(room, &known));
        let look = tokio::time::timeout(POLL_MAX, look);
        ctx.spawn(look.into_actor(self).map(|claimed, triggers, ctx| {
            let claimed = match claimed {
                Ok(Ok(claimed)) => claimed.map_err(|error| error.to_string()),
                Ok(Err(_)) => Err("the look at the inbox failed".to_owned()),
                Err(_) => Err(format!("the look at the inbox took more than {} s", POLL_MAX.as_secs())),
            };
            match claimed {
                Ok(claimed) => {
                    triggers.failing = false;
                    triggers.claimed(claimed, ctx);
                    triggers.poll_in(POLL_EVERY, ctx);
                }
                Err(why) => {
                    triggers.deps.metrics.triggers.poll_failures.inc();
                    if !std::mem::replace(&mut triggers.failing, true) {
                        triggers.tell(None, format!("deliveries cannot be looked for, which is tried again: {why}"));
                    }
                    triggers.poll_in(POLL_AGAIN, ctx);
                }
            }
        }));
    }

    fn poll_in(&mut self, wait: Duration, ctx: &mut Context<Self>) {
        ctx.run_later(wait, |triggers, ctx| triggers.poll(ctx));
    }

    fn claimed(&mut self, claimed: Claimed, ctx: &mut Context<Self>) {
        for (name, why) in claimed.bad {
            self.count("bad");
            self.tell(None, format!("triggers/inbox/{name} is no delivery, and is in triggers/failed now: {why}"));
        }
        for (name, delivery, trigger) in claimed.deliveries {
            let target = trigger.and_then(|trigger| {
                let target = Target::of(&trigger).map_err(|bad| format!("its session is none: {bad}"))?;
                Ok((trigger, target))
            });
            match target {
                Ok((trigger, target)) => {
                    self.open.insert(name.clone(), Claim { delivery, trigger, target });
                    self.offer(name, ctx);
                }
                Err(why) => self.fail(&name, delivery, None, &why, ctx),
            }
        }
        self.show();
    }

    /// Hands a delivery to the journal. Its end is told from before on, so that it cannot be missed.
    fn offer(&mut self, name: String, ctx: &mut Context<Self>) {
        let Some(claim) = self.open.get(&name) else { return };
        let turn = TurnId(self.deps.ports.ids.uuid_v7());
        let Some(message) = self.message(&name, claim, turn) else { return };
        let told =
            self.turns.len() < TURNS_MAX && self.deps.ends.watch(&message.key, turn, ctx.address().recipient()).is_ok();
        let verdict = self.deps.journal.enqueue(message);
        ctx.spawn(verdict.into_actor(self).map(move |enqueued, triggers, ctx| {
            let enqueued = enqueued.ok();
            match triggers.offered(enqueued) {
                Offered::Taken(taken) => {
                    if taken != turn {
                        triggers.deps.ends.unwatch(turn);
                    }
                    triggers.taken(&name, taken, told && taken == turn, ctx);
                }
                Offered::Refused { why, retry_after_ms } => {
                    triggers.deps.ends.unwatch(turn);
                    triggers.refused(name, why, retry_after_ms, ctx);
                }
                Offered::Unheard => {
                    triggers.deps.ends.unwatch(turn);
                    let wait = Duration::from_millis(OFFER_AGAIN_MS);
                    ctx.run_later(wait, move |triggers, ctx| triggers.offer(name, ctx));
                }
            }
            triggers.show();
        }));
    }

    fn message(&self, name: &str, claim: &Claim, turn: TurnId) -> Option<Enqueue> {
        let Claim { delivery, trigger, target } = claim;
        let event = Said {
            kind: EventKind::Trigger,
            id: trigger.id.as_str().into(),
            name: trigger.name.as_str().into(),
            status: None,
        };
        let body = TurnBody { event: Some(Arc::new(event)), ..TurnBody::text(delivery.content.clone()) };
        let body: Arc<[u8]> = body.encode().into();
        Some(Enqueue {
            key: target.key.clone(),
            turn,
            source: Source::new(EventKind::Trigger.source()).ok()?,
            message_id: Delivery::message_id(name)?,
            route: route(target, &self.deps.channels),
            body_hash: body_hash(&body),
            body,
            retry_of: None,
        })
    }

    fn offered(&self, enqueued: Option<Enqueued>) -> Offered {
        match enqueued {
            // The same file with another message: it was taken as it was before.
            Some(Enqueued::Accepted { turn, .. } | Enqueued::Duplicate { turn, .. } | Enqueued::Conflict { turn }) => {
                Offered::Taken(turn)
            }
            Some(Enqueued::Busy { retry_after_ms, .. }) => {
                Offered::Refused { why: "too much is waiting, or the journal cannot be written", retry_after_ms }
            }
            Some(Enqueued::Quarantined { until_ms }) => {
                let retry_after_ms = until_ms.saturating_sub(self.deps.ports.clock.wall_ms());
                Offered::Refused { why: "the session is quarantined and full", retry_after_ms }
            }
            Some(Enqueued::Draining) | None => Offered::Unheard,
        }
    }

    fn taken(&mut self, name: &str, turn: TurnId, told: bool, ctx: &mut Context<Self>) {
        let Some(Claim { delivery, trigger, target }) = self.open.remove(name) else { return };
        self.count("accepted");
        let told_of = Told { name: name.to_owned(), trigger: trigger.id.clone(), key: target.key, turn };
        if told {
            self.turns.insert(turn, told_of);
        } else {
            self.follow(told_of, ctx);
        }
        let file = name.to_owned();
        self.on_files(ctx, move |store| store.taken(&file, &delivery, &trigger, &turn.to_string()));
    }

    fn refused(&mut self, name: String, why: &'static str, retry_after_ms: u64, ctx: &mut Context<Self>) {
        let Some(claim) = self.open.get_mut(&name) else { return };
        let again = claim.delivery.refused(why);
        let (wait_ms, claim) = (claim.delivery.wait_ms(retry_after_ms), claim.clone());
        self.count("refused");
        if again {
            let file = name.clone();
            self.on_files(ctx, move |store| store.keep(&file, &claim.delivery));
            ctx.run_later(Duration::from_millis(wait_ms), move |triggers, ctx| triggers.offer(name, ctx));
        } else {
            self.fail(&name, claim.delivery, Some((claim.trigger, claim.target)), why, ctx);
        }
    }

    fn fail(
        &mut self,
        name: &str,
        delivery: Delivery,
        of: Option<(Trigger, Target)>,
        why: &str,
        ctx: &mut Context<Self>,
    ) {
        self.open.remove(name);
        self.count("failed");
        let claim = of.map(|(trigger, target)| Claim { delivery: delivery.clone(), trigger, target });
        self.tell(
            claim.as_ref(),
            format!("trigger {}: delivery {} is given up: {why}", delivery.trigger_id, delivery.id),
        );
        let (file, why) = (name.to_owned(), why.to_owned());
        let trigger = claim.map(|claim| claim.trigger);
        self.on_files(ctx, move |store| store.fail(&file, &delivery, trigger.as_ref(), &why));
    }

    /// Writes something down. What fails is done again when the delivery is claimed again.
    fn on_files(&self, ctx: &mut Context<Self>, job: impl FnOnce(&TriggerStore) -> io::Result<()> + Send + 'static) {
        let store = Arc::clone(&self.deps.store);
        let done = offload(&*self.deps.ports.offload, move || job(&store));
        ctx.spawn(done.into_actor(self).map(|done, triggers, _| {
            if let Ok(Err(error)) = done {
                triggers.deps.metrics.triggers.write_failures.inc();
                tracing::warn!(%error, "the files of triggers cannot be written");
            }
        }));
    }
}

/// Where the answer goes: to a chat of a channel that is told, or to whoever watches.
fn route(target: &Target, channels: &BTreeSet<Arc<str>>) -> Route {
    let Some(channel) = channels.get(target.channel.as_str()) else { return Route::Live };
    Route::Push(PushRoute::of_session(&target.key, |known| known == &**channel).unwrap_or_else(|| PushRoute {
        channel: Arc::clone(channel),
        account: target.account.as_deref().unwrap_or(DEFAULT_ACCOUNT).into(),
        chat: target.chat.as_str().into(),
        thread: target.thread.as_deref().map(Arc::from),
    }))
}

impl Actor for Triggers {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.look_for_ends(ctx);
        self.poll(ctx);
    }
}

impl Supervised for Triggers {
    fn restarting(&mut self, _: &mut Self::Context) {
        *self = Self::new(self.deps.clone());
    }
}

impl Handler<TurnEnded> for Triggers {
    type Result = ();

    fn handle(&mut self, ended: TurnEnded, ctx: &mut Self::Context) {
        self.ended(ended.turn, ended.result, &ended.text, ctx);
    }
}

#[cfg(test)]
mod tests;
