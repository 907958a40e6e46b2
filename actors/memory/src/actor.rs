//! The actor: asks the model for summaries, keeps them, and tells those who asked.
//!
//! ```text
//!  asked ──▶ waits for a place ──▶ model answers ──▶ kept on the blocking pool ──▶ told
//!    │ no request        │ cancelled    │ failed, unusable, too late     ▲           ▲
//!    │                   │              ├─ the last time ──▶ archived as it is       │
//!    └───────────────────┼──────────────┘                                            │
//!                        └──▶ forgotten ├─ not the last time ────────────────────────┘
//! ```
//!
//! A crash asks anew for what was asked, and keeps anew what was being kept; what it cuts a second time has failed. Whether
//! a failure is the last, the asker says, who counts them.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use actix::{
    Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Recipient, SpawnHandle, Supervised, WrapFuture,
};
use domain::compaction::archive::judge;
use protocol::memory::{Summarise, Summarised, Summary};
use protocol::metrics::{ByKind, ByResult, Metrics};
use protocol::provider::{AskPermit, Complete, Event, Permit, Urgency};
use protocol::supervision::Kind;
use protocol::turn::Stamp;
use supervision::ports::{Ports, offload};
use supervision::{Child, Kernel, Placement, RestartPolicy, tell};
use tokio_util::sync::CancellationToken;

use crate::archive::Archive;

/// Where it stands in the tree.
const PATH: &str = "/memory";
/// Where it runs.
pub const ARBITER: usize = 0;
/// How long a summary may take from the moment that the model may be called.
const TAKES_MAX: Duration = Duration::from_secs(180);
/// How often a line is offered to the disk.
const TRIES_MAX: u32 = 3;
/// The wait between two of them.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);
/// Rounds of model calls are counted from here, apart from those of turns.
const ROUNDS_FROM: u32 = 1 << 31;

/// What the actor needs.
pub struct Deps {
    /// The outside world.
    pub ports: Ports,
    /// The counters.
    pub metrics: Metrics,
    /// What it writes.
    pub archive: Arc<Archive>,
    /// Whom it asks.
    pub neighbours: Neighbours,
}

/// The provider front end on its own arbiter.
pub struct Neighbours {
    /// Grants the right to call the model.
    pub permits: Recipient<AskPermit>,
    /// Calls it.
    pub model: Recipient<Complete>,
}

/// The actor.
pub struct Memory {
    ports: Ports,
    metrics: Metrics,
    neighbours: Neighbours,
    archive: Arc<Archive>,
    /// What is under way, by number: at most one for each session.
    jobs: BTreeMap<u32, Job>,
    next: u32,
}

/// A summary under way.
struct Job {
    ask: Summarise,
    /// Ends the model call: at the latest when the asker gives up.
    call: CancellationToken,
    /// Sees to that, and to the limit.
    watch: Vec<SpawnHandle>,
    /// Whether a crash has cut it before.
    again: bool,
    /// What came of it, while that is being kept, and how often the disk refused it.
    kept: Option<(Summary, u32)>,
}

// === impl Memory ===

impl Memory {
    /// Starts the one actor of this process. It is restarted however often it crashes.
    pub fn start(kernel: &Kernel, place: &dyn Placement, policy: RestartPolicy, deps: Deps) -> Addr<Self> {
        let mut child = Child::new(PATH, Kind::Memory);
        child.policy = RestartPolicy { intensity: u32::MAX, ..policy };
        kernel.spawn(child, place, ARBITER, move |_| Self::new(deps))
    }

    /// With nothing under way.
    fn new(deps: Deps) -> Self {
        let Deps { ports, metrics, archive, neighbours } = deps;
        // What rules ask for is there from the start, at zero.
        for result in ["text", "nothing", "failed", "raw"] {
            drop(metrics.work.summaries.get_or_create(&ByResult { result }));
        }
        drop(metrics.mailbox_messages.get_or_create(&ByKind { kind: Kind::Memory.word() }));
        Self { ports, metrics, neighbours, archive, jobs: BTreeMap::new(), next: 0 }
    }

    fn begin(&mut self, ask: Summarise, again: bool, ctx: &mut Context<Self>) {
        if ask.cancel.is_cancelled() {
            return;
        }
        let number = self.next;
        self.next = (self.next + 1) % ROUNDS_FROM;
        if ask.request.is_none() {
            self.add(number, Job { call: CancellationToken::new(), watch: Vec::new(), again, kept: None, ask });
            self.end(number, Summary::Raw("too_large"), ctx);
            return;
        }
        let call = ask.cancel.child_token();
        let gone = ask.cancel.clone().cancelled_owned();
        let gone = ctx.spawn(gone.into_actor(self).map(move |(), memory, ctx| {
            memory.quiet(number, ctx);
            memory.jobs.remove(&number);
            memory.show();
        }));
        let permit = AskPermit {
            stamp: stamp(&ask, number),
            key: ask.key.clone(),
            urgency: Urgency::Turn,
            cancel: call.clone(),
            reply_to: ctx.address().recipient(),
        };
        self.add(number, Job { ask, call, watch: vec![gone], again, kept: None });
        self.provider_mail(1);
        if tell(&self.neighbours.permits, permit).is_err() {
            self.provider_mail(-1);
            self.fail(number, "stopping", ctx);
        }
    }

    fn permitted(&mut self, number: u32, permit: Permit, ctx: &mut Context<Self>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.ask.pulse.beat(self.ports.clock.mono());
        let late = ctx.run_later(TAKES_MAX, move |memory, ctx| memory.fail(number, "timeout", ctx));
        job.watch.push(late);
        let Some(request) = job.ask.request.clone() else { return };
        let complete = Complete {
            stamp: stamp(&job.ask, number),
            permit,
            request,
            cancel: job.call.clone(),
            reply_to: ctx.address().recipient(),
        };
        self.provider_mail(1);
        if tell(&self.neighbours.model, complete).is_err() {
            self.provider_mail(-1);
            self.fail(number, "stopping", ctx);
        }
    }

    /// Ends whatever runs for a job.
    fn quiet(&mut self, number: u32, ctx: &mut Context<Self>) {
        let Some(job) = self.jobs.get_mut(&number) else { return };
        job.call.cancel();
        for watch in job.watch.drain(..) {
            ctx.cancel_future(watch);
        }
    }

    fn fail(&mut self, number: u32, why: &'static str, ctx: &mut Context<Self>) {
        let is_last = self.jobs.get(&number).is_some_and(|job| job.ask.is_last);
        self.end(number, if is_last { Summary::Raw(why) } else { Summary::Failed(why) }, ctx);
    }

    /// Keeps what came of a job, then tells it. From here on it is too late to give it up.
    fn end(&mut self, number: u32, summary: Summary, ctx: &mut Context<Self>) {
        self.quiet(number, ctx);
        let Some(job) = self.jobs.get_mut(&number) else { return };
        if let Summary::Raw(why) | Summary::Failed(why) = summary {
            tracing::warn!(session = %job.ask.key, why, "a part of a conversation was not summarised by the model");
        }
        job.kept = Some((summary, 0));
        self.keep(number, ctx);
    }

    fn keep(&mut self, number: u32, ctx: &mut Context<Self>) {
        let Some(job) = self.jobs.get(&number) else { return };
        let content = match &job.kept {
            Some((Summary::Text(text), _)) => Arc::clone(text),
            Some((Summary::Raw(_), _)) => Arc::clone(&job.ask.raw),
            Some((Summary::Nothing | Summary::Failed(_), _)) | None => return self.tell(number),
        };
        let (archive, ports) = (Arc::clone(&self.archive), self.ports.clone());
        let (key, part) = (job.ask.key.clone(), job.ask.part.clone());
        let write = move || archive.append(&*ports.disk, (&key, &part), &content, ports.clock.wall_ms());
        let appended = offload(&*self.ports.offload, write);
        ctx.spawn(appended.into_actor(self).map(move |appended, memory, ctx| {
            let why = match appended {
                Ok(Ok(_)) => return memory.tell(number),
                Ok(Err(error)) => error.to_string(),
                Err(_) => "the write panicked".to_owned(),
            };
            memory.not_kept(number, &why, ctx);
        }));
    }

    fn not_kept(&mut self, number: u32, why: &str, ctx: &mut Context<Self>) {
        self.metrics.work.archive_failures.inc();
        let Some(job) = self.jobs.get_mut(&number) else { return };
        tracing::warn!(session = %job.ask.key, error = why, "a line of the archive of conversations cannot be written");
        let Some((_, tries)) = &mut job.kept else { return };
        *tries += 1;
        if *tries < TRIES_MAX {
            ctx.run_later(TRY_AGAIN_AFTER, move |memory, ctx| memory.keep(number, ctx));
        } else {
            // The transcript has it all.
            self.tell(number);
        }
    }

    fn tell(&mut self, number: u32) {
        let Some(Job { ask, kept: Some((summary, _)), .. }) = self.jobs.remove(&number) else { return };
        self.show();
        self.metrics.work.summaries.get_or_create(&ByResult { result: summary.word() }).inc();
        // A session that is gone asks again when it is needed.
        let _ = tell(&ask.reply_to, Summarised { stamp: ask.stamp, summary });
    }

    fn add(&mut self, number: u32, job: Job) {
        self.jobs.insert(number, job);
        self.show();
    }

    fn show(&self) {
        self.metrics.work.summaries_running.set(protocol::metrics::gauge(self.jobs.len()));
    }

    /// Front ends count down what they take from their mailboxes.
    fn provider_mail(&self, change: i64) {
        self.metrics.mailbox_messages.get_or_create(&ByKind { kind: Kind::Provider.word() }).inc_by(change);
    }
}

/// Of a job's own model call: no turn has that round.
fn stamp(ask: &Summarise, number: u32) -> Stamp {
    Stamp { round: ROUNDS_FROM + number, ..ask.stamp }
}

impl Actor for Memory {
    type Context = Context<Self>;
}

impl Supervised for Memory {
    fn restarting(&mut self, ctx: &mut Self::Context) {
        // What its life before waited for is forgotten.
        for (number, mut job) in std::mem::take(&mut self.jobs) {
            job.call.cancel();
            job.watch.clear();
            match (&job.kept, job.again) {
                (Some(_), false) => {
                    self.jobs.insert(number, Job { again: true, ..job });
                    self.keep(number, ctx);
                }
                (None, false) => self.begin(job.ask, true, ctx),
                (_, true) => {
                    self.jobs.insert(number, job);
                    self.fail(number, "crashed", ctx);
                }
            }
        }
        self.show();
    }
}

impl Handler<Summarise> for Memory {
    type Result = ();

    fn handle(&mut self, ask: Summarise, ctx: &mut Self::Context) {
        self.metrics.mailbox_messages.get_or_create(&ByKind { kind: Kind::Memory.word() }).dec();
        self.begin(ask, false, ctx);
    }
}

impl Handler<Event> for Memory {
    type Result = ();

    fn handle(&mut self, event: Event, ctx: &mut Self::Context) {
        let stamp_of = match &event {
            Event::Permitted { stamp, .. }
            | Event::Delta { stamp, .. }
            | Event::Completed { stamp, .. }
            | Event::Failed { stamp, .. } => *stamp,
        };
        let number = stamp_of.round.wrapping_sub(ROUNDS_FROM);
        let asked = |job: &&Job| job.kept.is_none() && stamp(&job.ask, number) == stamp_of;
        let Some(job) = self.jobs.get(&number).filter(asked) else {
            self.metrics.stale_events.get_or_create(&ByKind { kind: Kind::Memory.word() }).inc();
            return;
        };
        match event {
            Event::Permitted { permit, .. } => self.permitted(number, permit, ctx),
            Event::Delta { .. } => job.ask.pulse.beat(self.ports.clock.mono()),
            Event::Completed { message, .. } => match judge(&message) {
                Ok(Some(text)) => self.end(number, Summary::Text(text.into()), ctx),
                Ok(None) => self.end(number, Summary::Nothing, ctx),
                Err(why) => self.fail(number, why, ctx),
            },
            Event::Failed { failure, .. } => self.fail(number, failure.kind.word(), ctx),
        }
    }
}

#[cfg(test)]
mod tests;
