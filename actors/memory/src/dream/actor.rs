//! The actor: waits until it is time, begins the turn, and keeps what came of it.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, SpawnHandle, Supervised, WrapFuture};
use domain::command::DreamAsk;
use domain::ids::SessionKey;
use domain::memory::dream::{Running, Standing};
use domain::text::counted;
use protocol::memory::AskDream;
use protocol::metrics::{ByKind, ByResult, gauge};
use protocol::session::TurnRecord;
use protocol::supervision::Kind;
use protocol::turn::{TurnEnded, TurnResult};
use supervision::ports::offload;
use supervision::{Child, Kernel, Placement, RestartPolicy};
use tokio::sync::oneshot;

use super::disk::{Look, Plan};
use super::{DreamDeps, Pace};
use crate::ARBITER;
use crate::archive::Archive;

/// Where it stands in the tree.
const PATH: &str = "/dream";
/// The longest time between two looks at the clock: that may jump.
const LOOK_AFTER_MAX: Duration = Duration::from_secs(300);
/// Where somebody waits for an answer.
type Asker = oneshot::Sender<Result<String, String>>;

const NOT_READY: &str = "Dream is not ready yet; please try again in a moment.";

/// The actor.
pub struct Dreamer {
    deps: DreamDeps,
    archive: Arc<Archive>,
    phase: Phase,
    last_ms: u64,
    timer: Option<SpawnHandle>,
    /// Whether it was said that `memory/MEMORY.md` is too large.
    warned: bool,
}

/// What it does.
#[derive(Debug)]
enum Phase {
    /// It looks how it stands.
    Looking,
    /// Until it is time.
    Waiting,
    /// It begins or ends one.
    Busy,
    /// The turn runs.
    Running(Running),
}

// === impl Dreamer ===

impl Dreamer {
    /// Starts the one actor of this process, which shares the archive with the memory. It is restarted however often it
    /// crashes.
    pub fn start(
        kernel: &Kernel,
        place: &dyn Placement,
        policy: RestartPolicy,
        deps: DreamDeps,
        archive: Arc<Archive>,
    ) -> Addr<Self> {
        let mut child = Child::new(PATH, Kind::Memory);
        child.policy = RestartPolicy { intensity: u32::MAX, ..policy };
        kernel.spawn(child, place, ARBITER, move |_| {
            for result in ["done", "failed", "nothing", "refused"] {
                drop(deps.metrics.work.dreams.get_or_create(&ByResult { result }));
            }
            Self { deps, archive, phase: Phase::Looking, last_ms: 0, timer: None, warned: false }
        })
    }

    /// Runs `job` on the blocking pool, then hands on what came of it.
    fn on_disk<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Archive, &DreamDeps) -> io::Result<T> + Send + 'static,
        then: impl FnOnce(&mut Self, io::Result<T>, &mut Context<Self>) + 'static,
        ctx: &mut Context<Self>,
    ) {
        let (archive, deps) = (Arc::clone(&self.archive), self.deps.clone());
        let done = offload(&*self.deps.ports.offload, move || job(&archive, &deps));
        ctx.spawn(done.into_actor(self).map(move |done, dreamer, ctx| {
            then(dreamer, done.unwrap_or_else(|_| Err(io::Error::other("the work panicked"))), ctx);
        }));
    }

    /// Looks how it stands: at the start, and again when something failed. Who does not dream here reads and writes nothing.
    fn look(&mut self, first: bool, ctx: &mut Context<Self>) {
        let is_off = match self.deps.pace {
            Pace::Not(_) => {
                self.phase = Phase::Waiting;
                return;
            }
            Pace::Off => true,
            Pace::By(_) => false,
        };
        self.phase = Phase::Looking;
        let job = move |archive: &Archive, deps: &DreamDeps| {
            let disk = &*deps.ports.disk;
            if first {
                archive.migrate(disk, deps.ports.clock.wall_ms())?;
            }
            if is_off {
                archive.skip_all(disk)?;
                archive.compact(disk)?;
            }
            archive.look(&deps.ports)
        };
        self.on_disk(job, Self::looked, ctx);
    }

    fn looked(&mut self, look: io::Result<Look>, ctx: &mut Context<Self>) {
        match look {
            Ok(look) => {
                self.show(look.memory_bytes);
                match (look.standing.running.clone(), &self.deps.pace) {
                    (Some(running), Pace::By(_)) => self.resume(running, ctx),
                    // Whoever dreams again goes on with it.
                    (Some(_) | None, Pace::By(_) | Pace::Off | Pace::Not(_)) => self.wait(&look.standing, ctx),
                }
            }
            Err(error) => self.failed("looked at", &error, ctx),
        }
    }

    /// Waits until it is time, or for the next look at the clock.
    fn wait(&mut self, standing: &Standing, ctx: &mut Context<Self>) {
        self.phase = Phase::Waiting;
        self.last_ms = standing.last_ms;
        self.set_timer(ctx);
    }

    fn set_timer(&mut self, ctx: &mut Context<Self>) {
        let now_ms = self.deps.ports.clock.wall_ms();
        let wait = self.due_ms(now_ms).map_or(LOOK_AFTER_MAX, |due| Duration::from_millis(due.saturating_sub(now_ms)));
        if let Some(old) = self.timer.replace(ctx.run_later(wait.min(LOOK_AFTER_MAX), Self::tick)) {
            ctx.cancel_future(old);
        }
    }

    /// When the next Dream is due. A clock that was set back makes it due as late as one that was not.
    fn due_ms(&self, now_ms: u64) -> Option<u64> {
        match &self.deps.pace {
            Pace::By(timing) => timing.next_after(self.last_ms.min(now_ms)),
            Pace::Off | Pace::Not(_) => None,
        }
    }

    fn tick(&mut self, ctx: &mut Context<Self>) {
        self.timer = None;
        let now_ms = self.deps.ports.clock.wall_ms();
        match &self.phase {
            Phase::Looking => self.look(false, ctx),
            Phase::Waiting if self.due_ms(now_ms).is_some_and(|due| due <= now_ms) => self.begin(None, ctx),
            // Its end may have been told to nobody.
            Phase::Running(running) => self.resume(running.clone(), ctx),
            Phase::Waiting | Phase::Busy => self.set_timer(ctx),
        }
    }

    fn begin(&mut self, asked: Option<Asker>, ctx: &mut Context<Self>) {
        self.phase = Phase::Busy;
        self.on_disk(
            move |archive, deps| archive.plan(&deps.ports, deps.memory_bytes_max),
            move |dreamer, planned, ctx| match planned {
                Ok((_, Some(plan))) => dreamer.submit(plan, asked, ctx),
                Ok((standing, None)) => {
                    dreamer.count("nothing");
                    answer(asked, Ok("There is nothing new to work into the memory.".to_owned()));
                    dreamer.wait(&standing, ctx);
                }
                Err(error) => {
                    answer(asked, Err(format!("Dream cannot begin: {error}.")));
                    dreamer.failed("begun", &error, ctx);
                }
            },
            ctx,
        );
    }

    fn submit(&mut self, plan: Plan, asked: Option<Asker>, ctx: &mut Context<Self>) {
        let Plan { running, text, lines, waiting } = plan;
        let (key, turn) = (running.key.clone(), running.turn);
        if let Err(error) = self.deps.ends.watch(&key, turn, ctx.address().recipient()) {
            // It is looked at from time to time, too.
            tracing::warn!(%error, "the end of a Dream is not told");
        }
        let begun = self.deps.turns.begin(&key, turn, text);
        ctx.spawn(begun.into_actor(self).map(move |begun, dreamer, ctx| match begun {
            Ok(()) => {
                tracing::info!(session = %key, lines, waiting, "Dream begins");
                let more = if waiting > 0 { format!(" {waiting} more wait for the next one.") } else { String::new() };
                let told = format!("Dream begins with {} in session {key}.{more}", counted(lines, "line"));
                answer(asked, Ok(told));
                dreamer.phase = Phase::Running(running);
                dreamer.set_timer(ctx);
            }
            Err(why) => {
                tracing::warn!(session = %key, %why, "Dream was refused");
                dreamer.count("refused");
                dreamer.deps.ends.unwatch(turn);
                answer(asked, Err(format!("Dream cannot begin: {why}.")));
                dreamer.forget(ctx);
            }
        }));
    }

    fn forget(&mut self, ctx: &mut Context<Self>) {
        self.phase = Phase::Busy;
        let forgotten = |dreamer: &mut Self, standing: io::Result<Standing>, ctx: &mut Context<Self>| match standing {
            Ok(standing) => dreamer.wait(&standing, ctx),
            Err(error) => dreamer.failed("given up", &error, ctx),
        };
        self.on_disk(|archive, deps| archive.forget(&deps.ports), forgotten, ctx);
    }

    /// Asks how a turn stands that was begun in a life before.
    fn resume(&mut self, running: Running, ctx: &mut Context<Self>) {
        // Told twice is told once.
        let _ = self.deps.ends.watch(&running.key, running.turn, ctx.address().recipient());
        let read = self.deps.turns.read(&running.key, running.turn);
        self.phase = Phase::Running(running.clone());
        ctx.spawn(read.into_actor(self).map(move |read, dreamer, ctx| {
            if !dreamer.runs(&running) {
                return;
            }
            match read {
                Ok(Some(TurnRecord::Ended { result, .. })) => {
                    dreamer.deps.ends.unwatch(running.turn);
                    dreamer.ended(running, result, ctx);
                }
                Ok(Some(TurnRecord::Open)) => dreamer.set_timer(ctx),
                Ok(None) => {
                    dreamer.deps.ends.unwatch(running.turn);
                    dreamer.forget(ctx);
                }
                Err(why) => {
                    tracing::warn!(session = %running.key, %why, "the session of a Dream does not say how it stands");
                    dreamer.set_timer(ctx);
                }
            }
        }));
    }

    fn runs(&self, running: &Running) -> bool {
        matches!(&self.phase, Phase::Running(known) if known.turn == running.turn)
    }

    fn ended(&mut self, running: Running, result: TurnResult, ctx: &mut Context<Self>) {
        self.phase = Phase::Busy;
        let answered = result == TurnResult::Done;
        self.count(if answered { "done" } else { "failed" });
        if answered {
            tracing::info!(session = %running.key, "Dream has ended");
        } else {
            tracing::warn!(session = %running.key, result = result.word(), "Dream was not answered; its lines wait for the next");
        }
        self.on_disk(
            move |archive, deps| archive.finish(&deps.ports, &running, answered),
            |dreamer, finished, ctx| match finished {
                Ok((look, gone)) => {
                    dreamer.show(look.memory_bytes);
                    dreamer.delete(gone, ctx);
                    dreamer.wait(&look.standing, ctx);
                }
                Err(error) => dreamer.failed("ended", &error, ctx),
            },
            ctx,
        );
    }

    fn delete(&self, keys: Vec<SessionKey>, ctx: &mut Context<Self>) {
        for key in keys {
            let deleted = self.deps.turns.delete(&key);
            ctx.spawn(deleted.into_actor(self).map(move |deleted, _, _| {
                if let Err(why) = deleted {
                    tracing::warn!(session = %key, %why, "the session of an old Dream stays");
                }
            }));
        }
    }

    /// Something could not be read or written: looks again later.
    fn failed(&mut self, what: &str, error: &io::Error, ctx: &mut Context<Self>) {
        tracing::warn!(%error, "Dream could not be {what}");
        self.count("failed");
        self.phase = Phase::Looking;
        if let Some(old) = self.timer.replace(ctx.run_later(LOOK_AFTER_MAX, Self::tick)) {
            ctx.cancel_future(old);
        }
    }

    fn count(&self, result: &'static str) {
        self.deps.metrics.work.dreams.get_or_create(&ByResult { result }).inc();
    }

    fn show(&mut self, memory_bytes: u64) {
        let (work, max) = (&self.deps.metrics.work, self.deps.memory_bytes_max);
        work.memory_file_bytes.set(gauge(memory_bytes));
        let is_large = memory_bytes > max;
        work.memory_file_large.set(is_large.into());
        if is_large && !self.warned {
            tracing::warn!(
                bytes = memory_bytes,
                max,
                "memory/MEMORY.md is too large; the next Dream is asked to shorten it"
            );
        }
        self.warned = is_large;
    }
}

impl Actor for Dreamer {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.look(true, ctx);
    }
}

impl Supervised for Dreamer {
    fn restarting(&mut self, _: &mut Self::Context) {
        // What its life before waited for is forgotten; `started` looks how it stands.
        self.timer = None;
        self.phase = Phase::Looking;
    }
}

impl Handler<AskDream> for Dreamer {
    type Result = ();

    fn handle(&mut self, AskDream { ask, reply }: AskDream, ctx: &mut Self::Context) {
        self.deps.metrics.mailbox_messages.get_or_create(&ByKind { kind: Kind::Memory.word() }).dec();
        match (&ask, &self.phase, &self.deps.pace) {
            (DreamAsk::Begin, _, Pace::Off) => {
                let why = "Dream is switched off: agents.defaults.dream.enabled is false.".to_owned();
                answer(Some(reply), Err(why));
            }
            (DreamAsk::Begin, _, Pace::Not(why)) => answer(Some(reply), Err((*why).to_owned())),
            (DreamAsk::Begin, Phase::Waiting, Pace::By(_)) => self.begin(Some(reply), ctx),
            (DreamAsk::Begin | DreamAsk::Restore(Some(_)), Phase::Running(running), _) => {
                let why = format!("Dream is under way in session {}. Nothing was changed.", running.key);
                answer(Some(reply), Err(why));
            }
            (DreamAsk::Begin | DreamAsk::Restore(Some(_)), Phase::Looking | Phase::Busy, _) => {
                answer(Some(reply), Err(NOT_READY.to_owned()));
            }
            (DreamAsk::Log(_) | DreamAsk::Restore(_) | DreamAsk::Prompt { .. }, _, _) => self.on_disk(
                move |archive, deps| archive.tell(&deps.ports, &ask),
                |_, told, _| answer(Some(reply), told.map_err(|why| why.to_string())),
                ctx,
            ),
        }
    }
}

impl Handler<TurnEnded> for Dreamer {
    type Result = ();

    fn handle(&mut self, ended: TurnEnded, ctx: &mut Self::Context) {
        match &self.phase {
            Phase::Running(running) if running.turn == ended.turn => self.ended(running.clone(), ended.result, ctx),
            Phase::Running(_) | Phase::Looking | Phase::Waiting | Phase::Busy => {
                self.deps.metrics.stale_events.get_or_create(&ByKind { kind: Kind::Memory.word() }).inc();
            }
        }
    }
}

/// Whoever asked may be gone.
fn answer(to: Option<Asker>, told: Result<String, String>) {
    if let Some(to) = to {
        let _ = to.send(told);
    }
}

#[cfg(test)]
mod tests;
