//! The actor: keeps the time, hands due messages over, learns how their turns end, and keeps the file.
//!
//! ```text
//!  timer ─┐                             ┌─▶ journal (a message that is due) ──▶ verdict ─┐
//!  file ──┼──▶ step(input) -> effects ──┼─▶ who tells of ends, or the transcript ──▶ end ─┼──▶ step
//!  asked ─┘                             └─▶ blocking pool (read, save) ──▶ how it went ───┘
//! ```
//!
//! A crash forgets everything but the files: they are read again, and the journal knows what was handed over.

mod files;
mod turns;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Addr, AsyncContext, Context, Handler, SpawnHandle, Supervised};
use domain::cron::scheduler::{Effect, Input, JobView, Note, Noted, Refusal};
use domain::cron::{JobId, Scheduler, Zones};
use domain::ids::{SessionKey, TurnId};
use protocol::cron::{Answer, Ask, AskCron};
use protocol::journal::Journal;
use protocol::metrics::{ByResult, Metrics, gauge};
use protocol::registry::Sessions;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use protocol::turn::{TurnEnded, TurnWatch};
use supervision::ports::Ports;
use supervision::{Child, Kernel, Placement, RestartPolicy};
use tokio::sync::oneshot;

use crate::desk::Desk;
use crate::runs::{Run, Runs};
use crate::store::Store;
use files::Files;
use turns::Ended;

/// Where it stands in the tree.
const PATH: &str = "/cron";
/// Where it runs.
pub const ARBITER: usize = 0;
/// How often the files and the clock are looked at: a clock that jumps is noticed within this time.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// How many askers wait for a save.
const ASKERS_MAX: usize = 1000;

/// What the actor needs.
#[derive(Clone)]
pub struct Deps {
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
    /// Where the files lie.
    pub workspace: PathBuf,
    /// How names of zones are understood.
    pub zones: Zones,
    /// The channels that are told.
    pub channels: BTreeSet<Arc<str>>,
    /// Where others ask.
    pub desk: Arc<Desk>,
}

/// The actor.
pub struct Cron {
    deps: Deps,
    scheduler: Scheduler,
    files: Files,
    timer: Option<SpawnHandle>,
    /// What is kept of runs.
    runs: Arc<Runs>,
    /// Turns whose end is awaited.
    turns: BTreeMap<TurnId, Run>,
    /// Turns that are told of since before their messages were handed over.
    fresh: BTreeSet<TurnId>,
    /// Those whose messages are with the journal. A turn may end before its verdict is heard.
    offered: BTreeMap<TurnId, Option<Ended>>,
    askers: Vec<Asker>,
    /// Those who asked before the files were read.
    early: Vec<AskCron>,
}

/// One who waits until the file has what he asked for.
struct Asker {
    revision: u64,
    job: JobView,
    reply: oneshot::Sender<Result<Answer, Refusal>>,
}

// === impl Cron ===

impl Cron {
    /// Starts the one actor of this process. It is restarted however often it crashes.
    pub fn start(kernel: &Kernel, place: &dyn Placement, policy: RestartPolicy, deps: Deps) -> Addr<Self> {
        let mut child = Child::new(PATH, Kind::Cron);
        child.policy = RestartPolicy { intensity: u32::MAX, ..policy };
        let desk = Arc::clone(&deps.desk);
        let address = kernel.spawn(child, place, ARBITER, move |_| Self::new(deps));
        desk.open(address.clone().recipient());
        address
    }

    fn new(deps: Deps) -> Self {
        let store = Arc::new(Store::new(deps.workspace.clone()));
        let runs = Arc::new(Runs::new(deps.workspace.clone(), deps.ports.clone()));
        let scheduler = Scheduler::new(deps.zones.clone());
        for result in ["accepted", "refused", "ok", "error", "skipped"] {
            drop(deps.metrics.cron.runs.get_or_create(&ByResult { result }));
        }
        Self {
            deps,
            scheduler,
            files: Files::new(store),
            timer: None,
            runs,
            turns: BTreeMap::new(),
            fresh: BTreeSet::new(),
            offered: BTreeMap::new(),
            askers: Vec::new(),
            early: Vec::new(),
        }
    }

    fn now_ms(&self) -> u64 {
        self.deps.ports.clock.wall_ms()
    }

    fn step(&mut self, input: Input, ctx: &mut Context<Self>) {
        let effects = self.scheduler.step(input, self.now_ms());
        self.perform(effects, ctx);
    }

    fn perform(&mut self, effects: Vec<Effect>, ctx: &mut Context<Self>) {
        for effect in effects {
            match effect {
                Effect::Fire(fire) => self.fire(*fire, ctx),
                Effect::Watch { job, key, turn } => self.watch(job, key, turn, ctx),
                Effect::Cancel { key, turn } => self.cancel(&key, turn),
                Effect::Read => self.files.want_read(true),
                Effect::Save { revision, file } => self.files.want_save(revision, file),
                Effect::Note(note) => self.note(note),
            }
        }
        self.work_on_files(ctx);
        self.show();
        self.set_timer(ctx);
    }

    /// Wakes when something is due, and often enough to notice a clock that jumps.
    fn set_timer(&mut self, ctx: &mut Context<Self>) {
        let wait = self.scheduler.wake_ms().map(|wake| Duration::from_millis(wake.saturating_sub(self.now_ms())));
        let wait = wait.map_or(LOOK_EVERY, |wait| wait.min(LOOK_EVERY));
        if let Some(timer) = self.timer.take() {
            ctx.cancel_future(timer);
        }
        self.timer = Some(ctx.run_later(wait, |cron, ctx| {
            cron.timer = None;
            cron.look(ctx);
            cron.step(Input::Tick, ctx);
        }));
    }

    fn note(&self, note: Note) {
        let Note { what, job, turn, text } = note;
        let name = match what {
            Noted::Skipped => EventName::CronSkipped,
            Noted::Failed => EventName::CronFailed,
            Noted::Damaged => EventName::CronDamaged,
            Noted::Unsaved => EventName::CronUnsaved,
            Noted::Saved => EventName::CronSaved,
        };
        let mut event = Event::new(name, ActorPath(PATH.into()), Kind::Cron);
        let of = job.as_ref().and_then(|job| self.scheduler.show(job.as_str()).ok());
        event.session = of.and_then(|job| job.session).and_then(|key| SessionKey::new(&key).ok());
        event.turn = turn;
        event.reason = Some(job.map_or_else(|| text.clone(), |job| format!("job {job}: {text}")));
        self.deps.log.record(event);
        match what {
            Noted::Skipped => self.count("skipped"),
            Noted::Failed | Noted::Damaged | Noted::Unsaved | Noted::Saved => {}
        }
    }

    fn count(&self, result: &'static str) {
        self.deps.metrics.cron.runs.get_or_create(&ByResult { result }).inc();
    }

    fn show(&self) {
        let (jobs, running) = self.scheduler.count();
        self.deps.metrics.cron.jobs.set(gauge(jobs));
        self.deps.metrics.cron.running.set(gauge(running));
    }

    fn asked(&mut self, ask: Ask, reply: oneshot::Sender<Result<Answer, Refusal>>, ctx: &mut Context<Self>) {
        let now_ms = self.now_ms();
        let scheduler = &mut self.scheduler;
        let done = match ask {
            Ask::List => {
                // Who stops waiting needs no answer; so below.
                let _ = reply.send(scheduler.list().map(|jobs| Answer { jobs, unsaved: None }));
                return;
            }
            Ask::Show(id) => {
                let _ = reply.send(scheduler.show(&id).map(|job| Answer { jobs: vec![job], unsaved: None }));
                return;
            }
            Ask::Add(draft) => self.new_id().and_then(|id| self.scheduler.add(id, *draft, now_ms)),
            Ask::Remove(id) => scheduler.remove(&id, now_ms),
            Ask::Enable { id, enabled } => scheduler.enable(&id, enabled, now_ms),
            Ask::Run(id) => scheduler.run(&id, now_ms),
        };
        match done {
            Ok((job, effects)) => {
                let revision = self.scheduler.revision();
                self.askers.push(Asker { revision, job, reply });
                self.perform(effects, ctx);
                let over = self.askers.len().saturating_sub(ASKERS_MAX);
                self.answer(u64::MAX, Some("too many wait for the file"), over);
                self.answer(self.scheduler.saved(), None, usize::MAX);
                if self.scheduler.waits_to_save() {
                    self.answer(u64::MAX, Some("the file of the jobs cannot be written at present"), usize::MAX);
                }
            }
            Err(refusal) => drop(reply.send(Err(refusal))),
        }
    }

    /// Eight hex digits that no job has.
    fn new_id(&self) -> Result<JobId, Refusal> {
        let free = |id: &JobId| self.scheduler.show(id.as_str()).is_err();
        let ids = (0..100).map(|_| format!("{:08x}", self.deps.ports.ids.random() & 0xffff_ffff));
        let id = ids.filter_map(|id| JobId::new(&id).ok()).find(free);
        id.ok_or_else(|| Refusal::Bad("no id is free".to_owned()))
    }

    /// Answers up to `most` of those whose revision is reached, the first ones first.
    fn answer(&mut self, revision: u64, unsaved: Option<&str>, most: usize) {
        let mut left = most;
        let mut waiting = Vec::new();
        for asker in std::mem::take(&mut self.askers) {
            if asker.revision <= revision && left > 0 {
                left -= 1;
                let unsaved = unsaved.map(str::to_owned);
                let _ = asker.reply.send(Ok(Answer { jobs: vec![asker.job], unsaved }));
            } else {
                waiting.push(asker);
            }
        }
        self.askers = waiting;
    }
}

impl Actor for Cron {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.files.want_read(true);
        self.perform(Vec::new(), ctx);
    }
}

impl Supervised for Cron {
    fn restarting(&mut self, _: &mut Self::Context) {
        *self = Self::new(self.deps.clone());
    }
}

impl Handler<AskCron> for Cron {
    type Result = ();

    fn handle(&mut self, AskCron { ask, reply }: AskCron, ctx: &mut Self::Context) {
        self.deps.desk.taken();
        if self.files.were_read() || self.early.len() >= ASKERS_MAX {
            self.asked(ask, reply, ctx);
        } else {
            self.early.push(AskCron { ask, reply });
        }
    }
}

impl Handler<TurnEnded> for Cron {
    type Result = ();

    fn handle(&mut self, ended: TurnEnded, ctx: &mut Self::Context) {
        self.turn_ended(&ended, ctx);
    }
}

#[cfg(test)]
pub(crate) mod tests;
