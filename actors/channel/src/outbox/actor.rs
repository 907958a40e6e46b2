//! The deliverer: performs what the machine decided. Decides nothing itself.
//!
//! A crash loses nothing: the next life reads the open rows again and ignores whatever the last one had begun; attempts
//! that were under way are given up with it and count as such that may have been delivered.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, AsyncContext, Context, Handler, Recipient, SpawnHandle, Supervised, WrapFuture};
use futures::FutureExt;
use protocol::journal::{Journal, OutRow};
use protocol::metrics::{ByBound, ByChannelResult, ByKind, gauge};
use protocol::supervision::{ActorPath, Event, EventName, Kind};
use protocol::trace::{Span, Step, Value};
use supervision::{Child, CrashCell, Kernel, Placement, RestartPolicy, tell};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;
use tokio_util::task::AbortOnDropHandle;

use super::board::Failing;
use super::inlet::Hint;
use super::machine::{Effect, FailedAttempt, Input, Machine, Now};
use super::{Attempt, Board, Inlet, Outcome, PushChannels, Rules};

/// Where it stands in the tree.
const PATH: &str = "/outbox";

/// Everything that a deliverer needs.
pub struct Parts {
    /// Has the rows.
    pub journal: Arc<dyn Journal>,
    /// The ways out.
    pub channels: PushChannels,
    /// Bounds and waits.
    pub rules: Rules,
    /// Where rows come in.
    pub inlet: Arc<Inlet>,
    /// What waits, for others to see.
    pub board: Arc<Board>,
}

/// Reaches the deliverer.
pub struct Deliverer(Recipient<Drain>);

/// Try nothing again; answer when nothing is under way any more.
#[derive(actix::Message)]
#[rtype(result = "()")]
struct Drain(oneshot::Sender<()>);

/// The actor.
pub struct Outbox {
    kernel: Kernel,
    parts: Arc<Parts>,
    machine: Machine,
    first: Vec<Effect>,
    life: u32,
    /// Ends the attempts of this life, at once when it crashes.
    cancel: CancellationToken,
    crash: CrashCell,
    timer: Option<(Duration, SpawnHandle)>,
    drained: Vec<oneshot::Sender<()>>,
}

// === impl Deliverer ===

impl Deliverer {
    /// Starts the one deliverer of this process. It is restarted however often it crashes.
    pub fn start(kernel: &Kernel, place: &dyn Placement, policy: RestartPolicy, parts: Parts) -> Self {
        let mut child = Child::new(PATH, Kind::Outbox);
        child.policy = RestartPolicy { intensity: u32::MAX, ..policy };
        let its_kernel = kernel.clone();
        let bound = ByBound { bound: "outbox_messages" };
        kernel.metrics().work.limit.get_or_create(&bound).set(gauge(parts.rules.rows_max));
        let crash = child.crash.clone();
        let address = kernel.spawn(child, place, 0, move |ctx: &mut Context<Outbox>| {
            // Before the rows are read, so that none falls between.
            parts.inlet.attach(ctx.address().recipient());
            Outbox::new(its_kernel, Arc::new(parts), crash)
        });
        Self(address.recipient())
    }

    /// Lets the attempts that are under way or due end, and starts none a second time.
    pub fn drain(&self) -> impl Future<Output = ()> + use<> {
        let (tx, rx) = oneshot::channel();
        // A deliverer that is gone has nothing under way.
        let _ = tell(&self.0, Drain(tx));
        rx.map(|_| ())
    }
}

// === impl Outbox ===

impl Outbox {
    fn new(kernel: Kernel, parts: Arc<Parts>, crash: CrashCell) -> Self {
        let (machine, first) = begin(&parts);
        let cancel = CancellationToken::new();
        crash.link(cancel.clone());
        Self { kernel, parts, machine, first, life: 0, cancel, crash, timer: None, drained: Vec::new() }
    }

    fn now(&self) -> Now {
        let ports = self.kernel.ports();
        Now { mono: ports.clock.mono(), wall_ms: ports.clock.wall_ms(), random: ports.ids.random() }
    }

    fn step(&mut self, input: Input, ctx: &mut Context<Self>) {
        if let Input::Closed(id) = &input {
            self.parts.board.closed(*id);
        }
        let effects = self.machine.step(input, self.now());
        self.perform(effects, ctx);
        self.parts.board.show(self.machine.loads());
        self.set_timer(ctx);
        if self.machine.is_quiet() {
            for drained in self.drained.drain(..) {
                // Whoever asked may have stopped waiting.
                let _ = drained.send(());
            }
        }
    }

    fn perform(&mut self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        for effect in effects {
            let journal = &self.parts.journal;
            match effect {
                Effect::Channels => self.when(journal.outbox_channels(), ctx, |_, channels| Input::Channels(channels)),
                Effect::Read(ask) => {
                    let channel = Arc::clone(&ask.channel);
                    self.when(journal.outbox(ask), ctx, move |_, rows| Input::Rows(channel, rows));
                }
                Effect::Mark(id) => self.when(journal.sending(id), ctx, move |_, ()| Input::Marked(id)),
                Effect::Send(attempt) => self.send(attempt, ctx),
                Effect::Failed(failed) => self.failed(&failed),
                Effect::Sent(id) => self.when(journal.sent(id), ctx, move |_, ()| Input::Closed(id)),
                Effect::GiveUp(row, reason) => {
                    let given_up = journal.undeliverable(row.out.id, Arc::clone(&reason));
                    self.when(given_up, ctx, move |outbox, ()| {
                        outbox.given_up(&row, &reason);
                        Input::Closed(row.out.id)
                    });
                }
            }
        }
    }

    /// Makes an input of what the journal answers. A journal that does not answer has failed, and the process ends.
    fn when<T: 'static>(
        &self,
        answer: oneshot::Receiver<T>,
        ctx: &mut Context<Self>,
        input: impl FnOnce(&Self, T) -> Input + 'static,
    ) {
        let life = self.life;
        ctx.spawn(answer.into_actor(self).map(move |answer, outbox, ctx| {
            if let Ok(answer) = answer
                && outbox.life == life
            {
                let input = input(outbox, answer);
                outbox.step(input, ctx);
            }
        }));
    }

    fn send(&mut self, attempt: Attempt, ctx: &mut Context<Self>) {
        if attempt.first_repeat {
            let mut event = event(EventName::DeliveryRepeated, &attempt.row);
            event.reason = Some("the outcome of an earlier attempt is not known".to_owned());
            self.kernel.log().record(event);
        }
        let (life, id) = (self.life, attempt.row.out.id);
        let name = attempt.row.out.route.channel.to_string();
        let Some(channel) = self.parts.channels.get(&attempt.row.out.route.channel) else { return };
        let (channel, delivery) = (Arc::clone(channel), attempt.delivery());
        let begun = self.kernel.metrics().traces.begin(|| self.kernel.ports().clock.wall_us());
        let (patience, cancel) = (channel.patience(), self.cancel.clone());
        // A task of its own: a channel that panics fails this attempt and nothing else.
        let task = actix_rt::spawn(async move {
            tokio::select! {
                biased;
                () = cancel.cancelled() => Outcome::unknown("the deliverer crashed"),
                () = tokio::time::sleep(patience) => {
                    Outcome::unknown(format!("no answer within {} s", patience.as_secs_f64()))
                }
                outcome = async { channel.send(delivery).await } => outcome,
            }
        });
        ctx.spawn(AbortOnDropHandle::new(task).into_actor(self).map(move |outcome, outbox, ctx| {
            let outcome = outcome.unwrap_or_else(|_| Outcome::unknown("the channel crashed"));
            let labels = ByChannelResult { channel: name, result: outcome.word() };
            outbox.kernel.metrics().delivery_attempts.get_or_create(&labels).inc();
            outbox.span(&attempt, begun.us(), &outcome);
            if outbox.life == life {
                outbox.step(Input::Tried(id, outcome), ctx);
            }
        }));
    }

    /// The attempt's part of the turn's trace.
    fn span(&self, attempt: &Attempt, begun_us: u64, outcome: &Outcome) {
        self.kernel.metrics().traces.end(|| {
            let out = &attempt.row.out;
            let error = match outcome {
                Outcome::Delivered => None,
                Outcome::Refused { .. } | Outcome::Failed { .. } => Some(outcome.word()),
            };
            Span {
                turn: out.turn,
                step: Step::Push { part: out.id.n, begun_us },
                begun_us,
                ended_us: self.kernel.ports().clock.wall_us(),
                error,
                fields: vec![
                    ("messaging.operation.type", Value::Word("send")),
                    ("messaging.destination.name", Value::Text(Arc::clone(&out.route.channel))),
                    ("messaging.message.id", Value::Text(out.id.to_string().into())),
                    ("greenroom.delivery.repeat", Value::Word(if attempt.repeat { "yes" } else { "no" })),
                ],
            }
        });
    }

    /// Shows the failure, and tells the log of the first one and then of each doubling.
    fn failed(&self, failed: &FailedAttempt) {
        let FailedAttempt { row, number, reason, wait } = failed;
        let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
        let next_ms = self.kernel.ports().clock.wall_ms().saturating_add(wait_ms);
        self.parts.board.failed(row.out.id, Failing { tries: *number, error: Arc::clone(reason), next_ms });
        if number.is_power_of_two() {
            let mut event = event(EventName::DeliveryFailed, row);
            event.attempt = Some(domain::ids::Attempt(*number));
            event.reason = Some(reason.to_string());
            event.backoff_ms = Some(wait_ms);
            self.kernel.log().record(event);
        }
    }

    fn given_up(&self, row: &OutRow, reason: &str) {
        self.kernel.metrics().dead_letters.get_or_create(&ByKind { kind: "delivery" }).inc();
        let mut event = event(EventName::Undeliverable, row);
        event.reason = Some(reason.to_owned());
        self.kernel.log().record(event);
    }

    fn set_timer(&mut self, ctx: &mut Context<Self>) {
        let due = self.machine.due();
        if self.timer.map(|(at, _)| at) == due {
            return;
        }
        if let Some((_, timer)) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        if let Some(at) = due {
            let wait = at.saturating_sub(self.kernel.ports().clock.mono());
            let timer = ctx.run_later(wait, |outbox, ctx| {
                outbox.timer = None;
                outbox.step(Input::Tick, ctx);
            });
            self.timer = Some((at, timer));
        }
    }
}

fn begin(parts: &Parts) -> (Machine, Vec<Effect>) {
    Machine::start(parts.rules.clone(), parts.channels.keys().cloned())
}

fn event(name: EventName, row: &OutRow) -> Event {
    let mut event = Event::new(name, ActorPath(PATH.into()), Kind::Outbox);
    event.session = Some(row.key.clone());
    event.turn = Some(row.out.turn);
    event.delivery = Some(row.out.id);
    event
}

impl Actor for Outbox {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let first = std::mem::take(&mut self.first);
        self.perform(first, ctx);
    }
}

impl Supervised for Outbox {
    fn restarting(&mut self, _: &mut Self::Context) {
        let (mut machine, first) = begin(&self.parts);
        if !self.drained.is_empty() {
            machine.drain();
        }
        (self.machine, self.first) = (machine, first);
        self.life = self.life.wrapping_add(1);
        self.cancel = CancellationToken::new();
        self.crash.link(self.cancel.clone());
        self.timer = None;
        self.parts.board.forget();
    }
}

impl Handler<Hint> for Outbox {
    type Result = ();

    fn handle(&mut self, hint: Hint, ctx: &mut Self::Context) {
        self.parts.inlet.received(&hint);
        let input = match hint {
            Hint::Row(row) => Input::Row(*row),
            Hint::Missed => Input::Missed,
        };
        self.step(input, ctx);
    }
}

impl Handler<Drain> for Outbox {
    type Result = ();

    fn handle(&mut self, Drain(reply): Drain, ctx: &mut Self::Context) {
        self.drained.push(reply);
        self.step(Input::Drain, ctx);
    }
}
