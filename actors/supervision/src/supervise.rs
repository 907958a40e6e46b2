//! The future that an actor lives in: catches its panics, restarts it in place, and reports each incarnation's end.
//!
//! ```text
//!            panic, below intensity: Down{restarts}             backoff over: restarting(), started()
//!  running ─────────────────────────────────────────▶ waiting ───────────────────────────────────────▶ running
//!     │  panic, intensity reached: Down{intensity}       (mailbox and addresses are kept)
//!     │  panic after it gave its slot up, or
//!     │  ctx.stop(): Down{normal | what the actor said}
//!     └─▶ ended
//! ```
//!
//! What an incarnation has linked ([`crate::CrashCell::link`]) ends with it, at once.
//!
//! **Invariant:** exactly one `Down` for each incarnation. At the last one, in this order: `on_down` (the owner removes
//! the slot, so that nobody sends any more), the actor and its mailbox are dropped, the watchers are told. Its `exited`
//! event is recorded before all of that, so that whatever follows from it can name it.

use std::cell::Cell;
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use actix::dev::ContextFut;
use actix::dev::channel::AddressReceiver;
use actix::{Actor, ActorContext, Context, Supervised};
use domain::ids::Epoch;
use protocol::metrics::{ByKind, ByKindReason, HANDLER_SAMPLE};
use protocol::supervision::{Crash, Down, Event, EventName, ExitReason};
use tokio::time::Sleep;

use crate::monitor::Vitals;
use crate::panic::{Caught, catch};
use crate::planted::act;
use crate::restart::{CrashHistory, Verdict};
use crate::running::as_actor;
use crate::spawn::{Child, Kernel};

/// The part of supervision that does not depend on the actor's type. Its drop reports the end of an actor that never ran.
pub(crate) struct Watch {
    kernel: Kernel,
    child: Child,
    vitals: Arc<Vitals>,
    /// From the first crash on.
    history: Option<CrashHistory>,
    incarnation: u64,
    ended: Option<(ExitReason, Option<Crash>)>,
    reported: bool,
}

impl Watch {
    pub fn new(kernel: Kernel, child: Child) -> Self {
        let vitals = kernel.monitors().born(&child.path, child.kind, kernel.ports().clock.wall_ms());
        Self { kernel, child, vitals, history: None, incarnation: 1, ended: None, reported: false }
    }

    fn event(&self, name: EventName) -> Event {
        let mut event = Event::new(name, self.child.path.clone(), self.child.kind);
        event.epoch = Some(self.child.crash.epoch().unwrap_or(Epoch(self.incarnation)));
        event.session.clone_from(&self.child.session);
        event.cause = self.child.crash.last_event();
        event
    }

    fn record(&self, event: Event) -> String {
        let id = self.kernel.log().record(event);
        self.child.crash.because_of(id.clone());
        id
    }

    fn down(&self, reason: ExitReason, crash: Option<Crash>, restarts: bool) -> Down {
        Down { path: self.child.path.clone(), incarnation: self.incarnation, reason, crash, restarts }
    }

    /// Decides about a panic: the backoff, or `None` to give up.
    fn crashed(&mut self, caught: Caught) -> Option<Duration> {
        self.child.crash.sever();
        let history = self.history.get_or_insert_with(|| self.kernel.past_crashes(&self.child.path));
        if self.child.crash.take_forgiven() {
            history.forgive();
        }
        let (now, random) = (self.kernel.ports().clock.mono(), self.kernel.ports().ids.random());
        let verdict = history.crashed(&self.child.policy, now, random);
        let (turn, message) = self.child.crash.take_turn();
        let crash = Crash { panic: caught.panic(), backtrace: caught.hash(), turn };
        self.kernel.keep_crash(Arc::new(caught));
        // Somebody else may live in its place by now.
        let left = self.child.lease.as_ref().is_some_and(|lease| !lease.is_held());
        let mut event = self.crash_event(&crash, verdict);
        if left {
            (event.event, event.backoff_ms, event.verdict) = (EventName::GaveUp, None, Some("left".to_owned()));
        }
        event.message_id = message;
        let id = self.record(event);
        self.child.crash.crashed(crash.clone(), id);
        if left {
            self.ended = Some((self.child.crash.exit().unwrap_or(ExitReason::Normal), Some(crash)));
            return None;
        }
        match verdict {
            Verdict::Restart { backoff, .. } => {
                let labels = ByKindReason { kind: self.child.kind.word(), reason: ExitReason::Panicked.word() };
                self.kernel.metrics().restarts.get_or_create(&labels).inc();
                self.kernel.monitors().restarted(&self.vitals);
                let down = self.down(ExitReason::Panicked, Some(crash), true);
                self.incarnation += 1;
                self.call_owner(down.clone());
                self.kernel.monitors().down(&self.vitals, &down);
                Some(backoff)
            }
            Verdict::GiveUp { .. } => {
                self.ended = Some((ExitReason::IntensityExceeded, Some(crash)));
                None
            }
        }
    }

    /// Leaves its crashes to whoever comes back to its path. One that gave up is held back by its owner, and begins anew
    /// when it is let go.
    fn keep_history(&mut self) {
        let given_up = self.ended.as_ref().is_some_and(|(reason, _)| *reason == ExitReason::IntensityExceeded);
        let forgiven = self.child.crash.take_forgiven();
        if let Some(history) = self.history.take().filter(|_| !given_up && !forgiven) {
            self.kernel.keep_crashes_of(&self.child.path, &self.child.policy, history);
        }
    }

    fn crash_event(&self, crash: &Crash, verdict: Verdict) -> Event {
        let (name, backoff, in_window, word) = match verdict {
            Verdict::Restart { backoff, in_window } => (EventName::Restarted, Some(backoff), in_window, "restart"),
            Verdict::GiveUp { in_window } => (EventName::GaveUp, None, in_window, "give_up"),
        };
        let mut event = self.event(name);
        event.turn = crash.turn.map(|(turn, _)| turn);
        event.attempt = crash.turn.map(|(_, attempt)| attempt);
        event.reason = Some(ExitReason::Panicked.word().to_owned());
        event.panic = Some(crash.panic.clone());
        event.backtrace = Some(crash.backtrace.clone());
        event.restarts_in_window = Some(in_window);
        event.backoff_ms = backoff.map(|backoff| u64::try_from(backoff.as_millis()).unwrap_or(u64::MAX));
        event.verdict = Some(word.to_owned());
        if let Some(lease) = &self.child.lease {
            let (mailbox, inbox) = lease.waiting();
            event.mailbox = Some(mailbox);
            event.inbox = Some(inbox);
        }
        event
    }

    /// Notes how long a poll took.
    fn took(&self, begun: Duration) {
        let took = self.kernel.ports().clock.mono().saturating_sub(begun);
        let labels = ByKind { kind: self.child.kind.word() };
        self.kernel.metrics().kernel.handler_seconds.get_or_create(&labels).observe(took.as_secs_f64());
    }

    fn call_owner(&mut self, down: Down) {
        if let Some(on_down) = &mut self.child.on_down
            && let Err(caught) = catch(|| on_down(down))
        {
            let panic = caught.panic();
            tracing::error!(target: "supervision", text = panic.text, at = panic.at, "panic while an actor's end was handled");
        }
    }

    /// Reports the last incarnation's end; `drop_actor` runs between owner and watchers.
    fn report(&mut self, drop_actor: impl FnOnce()) {
        if std::mem::replace(&mut self.reported, true) {
            return;
        }
        self.child.crash.sever();
        self.keep_history();
        let (reason, crash) = self.ended.take().unwrap_or_else(|| {
            // Dropped while it ran: its runtime ended, in order or not.
            let dropped = if self.kernel.is_stopping() { ExitReason::Shutdown } else { ExitReason::Killed };
            (self.child.crash.exit().unwrap_or(dropped), None)
        });
        let mut event = self.event(EventName::Exited);
        event.reason = Some(reason.word().to_owned());
        if reason == ExitReason::Shutdown {
            event.cause = self.kernel.log().latest(EventName::GatewayStopping).or(event.cause);
        }
        self.record(event);
        let down = self.down(reason, crash, false);
        self.call_owner(down.clone());
        drop_actor();
        self.kernel.monitors().down(&self.vitals, &down);
    }
}

impl Drop for Watch {
    fn drop(&mut self) {
        self.report(|| ());
    }
}

thread_local! {
    static POLLS: Cell<u8> = const { Cell::new(0) };
}

/// Whether this poll is one of those that are measured; over all actors of an arbiter.
fn sampled() -> bool {
    let polls = POLLS.get().wrapping_add(1) % HANDLER_SAMPLE;
    POLLS.set(polls);
    polls == 0
}

/// The future of one actor.
pub(crate) struct Supervise<A: Actor<Context = Context<A>> + Supervised> {
    actor: Option<ContextFut<A, Context<A>>>,
    backoff: Option<Pin<Box<Sleep>>>,
    watch: Watch,
}

impl<A: Actor<Context = Context<A>> + Supervised> Supervise<A> {
    /// Makes the actor; `None` when that panicked (which has been reported then).
    pub fn start(
        mut watch: Watch,
        mailbox: AddressReceiver<A>,
        make: impl FnOnce(&mut Context<A>) -> A,
    ) -> Option<Self> {
        let mut context = Context::with_receiver(mailbox);
        match catch(|| make(&mut context)) {
            Ok(actor) => {
                watch.record(watch.event(EventName::Started));
                Some(Self { actor: Some(context.into_future(actor)), backoff: None, watch })
            }
            Err(caught) => {
                // There is no value to restart, so the first crash is the last.
                watch.child.policy.intensity = 1;
                watch.crashed(caught);
                None
            }
        }
    }

    /// Handles a panic; true when the actor has ended.
    fn crashed(&mut self, caught: Caught) -> bool {
        let Some(backoff) = self.watch.crashed(caught) else {
            if let Some(actor) = &mut self.actor {
                // So that its drop does not call `stopping` on a broken value.
                actor.ctx().terminate();
            }
            return true;
        };
        self.backoff = Some(Box::pin(tokio::time::sleep(backoff)));
        false
    }

    fn step(&mut self, task: &mut TaskContext<'_>) -> Poll<()> {
        loop {
            let Some(actor) = &mut self.actor else { return Poll::Ready(()) };
            if let Some(backoff) = &mut self.backoff {
                std::task::ready!(backoff.as_mut().poll(task));
                self.backoff = None;
                match catch(|| {
                    let _acting = act(self.watch.child.kind);
                    actor.restart()
                }) {
                    Ok(true) => {}
                    Ok(false) => {
                        // Nobody has its address any more.
                        self.watch.ended = Some((ExitReason::Normal, None));
                        actor.ctx().terminate();
                        return Poll::Ready(());
                    }
                    Err(caught) => {
                        if self.crashed(caught) {
                            return Poll::Ready(());
                        }
                        continue;
                    }
                }
            }
            let begun = sampled().then(|| self.watch.kernel.ports().clock.mono());
            let polled = as_actor(self.watch.vitals.birth, || {
                catch(|| {
                    let _acting = act(self.watch.child.kind);
                    Pin::new(actor).poll(task)
                })
            });
            if let Some(begun) = begun {
                self.watch.took(begun);
            }
            match polled {
                Ok(Poll::Pending) => return Poll::Pending,
                Ok(Poll::Ready(())) => {
                    let reason = self.watch.child.crash.exit().unwrap_or(ExitReason::Normal);
                    self.watch.ended = Some((reason, None));
                    return Poll::Ready(());
                }
                Err(caught) => {
                    if self.crashed(caught) {
                        return Poll::Ready(());
                    }
                }
            }
        }
    }
}

impl<A: Actor<Context = Context<A>> + Supervised> Future for Supervise<A> {
    type Output = ();

    fn poll(self: Pin<&mut Self>, task: &mut TaskContext<'_>) -> Poll<()> {
        self.get_mut().step(task)
    }
}

impl<A: Actor<Context = Context<A>> + Supervised> Drop for Supervise<A> {
    fn drop(&mut self) {
        let actor = self.actor.take();
        self.watch.report(|| {
            if let Err(caught) = catch(|| drop(actor)) {
                let panic = caught.panic();
                tracing::error!(target: "supervision", text = panic.text, at = panic.at, "panic while an actor was dropped");
            }
        });
    }
}
