//! Performs what the machine decides.

mod past;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, ActorFutureExt, Addr, AsyncContext, Context, Handler, Supervised, WrapFuture};
use domain::ids::{RunId, SessionKey, Source, TurnId};
use domain::run::{RunSpec, Saying, run_of};
use protocol::journal::Journal;
use protocol::metrics::{ByBound, ByKind, Metrics, gauge};
use protocol::registry::Sessions;
use protocol::session::{Mail, State, TurnRecord};
use protocol::subagent::{NotSpawned, RunMail, RunRow, Spawned};
use protocol::supervision::Kind;
use protocol::turn::{TurnEnded, TurnResult, TurnWatch};
use supervision::ports::{Ports, offload};
use supervision::{Child, Kernel, Placement, RestartPolicy, tell};
use tokio::sync::oneshot;

use crate::machine::{Ask, Effect, End, Input, Machine, OPEN_MAX, Verdict};
use crate::said;

/// Where it stands in the tree.
const PATH: &str = "/subagent";
/// Where it runs.
const ARBITER: usize = 0;
/// How often it is asked how open runs are, should their ends have been missed.
const LOOK_EVERY: Duration = Duration::from_secs(60);
/// How often a session that does not know yet what it was sent to do is asked again, and after how long.
const ASKS_MAX: u32 = 600;
const ASK_AGAIN: Duration = Duration::from_secs(1);
/// The longest message to a run, in bytes.
const SAID_BYTES_MAX: usize = 64 * 1024;

/// See [`Deps::fork`]; the error is for the model.
pub type Fork = Arc<dyn Fn(&RunSpec) -> Result<(), String> + Send + Sync>;

/// What the actor needs.
pub struct Deps {
    /// The outside world.
    pub ports: Ports,
    /// The counters.
    pub metrics: Metrics,
    /// Keeps messages.
    pub journal: Arc<dyn Journal>,
    /// Reaches sessions.
    pub sessions: Arc<dyn Sessions>,
    /// Tells of ends.
    pub watch: Arc<dyn TurnWatch>,
    /// Where notes of runs are kept.
    pub notes: PathBuf,
    /// Gives a run's session the conversation of its parent, once. Blocks.
    pub fork: Fork,
    /// Tokens that the runs of one turn may read and write together; 0: as many as each may.
    pub tree_tokens: u64,
}

/// The actor.
pub struct Keeper {
    deps: Arc<Deps>,
    machine: Machine,
    next: Ask,
    spawns: BTreeMap<Ask, oneshot::Sender<Result<Spawned, NotSpawned>>>,
    waits: BTreeMap<Ask, oneshot::Sender<Vec<RunRow>>>,
    cancels: BTreeMap<Ask, oneshot::Sender<bool>>,
    /// Whether it looks for the runs that the journal has from before.
    recovers: bool,
    /// Sessions that were asked what they are, and did not say.
    asked: usize,
    notes: past::Notes,
    /// The turns that were open when it looked last.
    seen_open: BTreeSet<TurnId>,
}

/// Sessions can be started now, and those with work go on.
#[derive(actix::Message)]
#[rtype(result = "()")]
struct Recover;

// === impl Keeper ===

impl Keeper {
    /// Starts the one keeper of this process. It is restarted however often it crashes.
    pub fn start(kernel: &Kernel, place: &dyn Placement, policy: RestartPolicy, deps: Deps) -> Addr<Self> {
        let mut child = Child::new(PATH, Kind::Subagent);
        child.policy = RestartPolicy { intensity: u32::MAX, ..policy };
        deps.metrics.work.limit.get_or_create(&ByBound { bound: "subagent_runs" }).set(gauge(OPEN_MAX));
        drop(deps.metrics.mailbox_messages.get_or_create(&ByKind { kind: Kind::Subagent.word() }));
        let deps = Arc::new(deps);
        kernel.spawn(child, place, ARBITER, move |_| Self::new(deps))
    }

    /// Lets it look for the runs that the journal has from before: sessions can be started from now on.
    pub fn recover(keeper: &Addr<Self>) {
        // One that is gone has nobody to tell.
        let _ = tell(&keeper.clone().recipient(), Recover);
    }

    fn new(deps: Arc<Deps>) -> Self {
        let (spawns, waits, cancels, notes, seen_open) = Default::default();
        let machine = Machine::new(deps.tree_tokens);
        Self { deps, machine, next: 0, spawns, waits, cancels, recovers: false, asked: 0, notes, seen_open }
    }

    fn ask(&mut self) -> Ask {
        self.next += 1;
        self.next
    }

    fn step(&mut self, input: Input, ctx: &mut Context<Self>) {
        for effect in self.machine.step(input) {
            self.perform(effect, ctx);
        }
        self.deps.metrics.work.subagent_runs.set(gauge(self.machine.open().count()));
        self.keep_notes(ctx);
    }

    fn perform(&mut self, effect: Effect, ctx: &mut Context<Self>) {
        match effect {
            Effect::Begin { spec, turn, waits } => self.begin(spec, turn, waits, ctx),
            Effect::Watch { key, turn } => {
                if self.deps.watch.watch(&key, turn, ctx.address().recipient()).is_err() {
                    tracing::warn!(session = %key, "too many turns are watched: the end of a run is looked for");
                }
                self.deps.watch.accepted(turn);
            }
            Effect::AskEnd { key, turn } => self.ask_end(&key, turn, ctx),
            Effect::Stop { key } => {
                // Nobody waits for the answer: its turn's end says how it went. One that sleeps has to be woken for it.
                let (reply, _) = oneshot::channel();
                if self.deps.sessions.tell(&key, Mail::Stop { all: true, reply }).is_err() {
                    tracing::warn!(session = %key, "a sub-agent cannot be stopped now");
                }
            }
            Effect::Drop { key, turn } => {
                if self.deps.sessions.tell(&key, Mail::CancelTurn { turn }).is_err() {
                    tracing::warn!(session = %key, "a sub-agent cannot be stopped now");
                }
            }
            Effect::Spawned(ask, answer) => drop(self.spawns.remove(&ask).map(|reply| reply.send(answer))),
            Effect::Rows(ask, rows) => drop(self.waits.remove(&ask).map(|reply| reply.send(rows))),
            Effect::Cancelled(ask, was) => drop(self.cancels.remove(&ask).map(|reply| reply.send(was))),
        }
    }

    fn spawn(
        &mut self,
        spec: Arc<RunSpec>,
        waits: bool,
        reply: oneshot::Sender<Result<Spawned, NotSpawned>>,
        ctx: &mut Context<Self>,
    ) {
        let (ask, turn) = (self.ask(), TurnId(self.deps.ports.ids.uuid_v7()));
        self.spawns.insert(ask, reply);
        let now_ms = self.deps.ports.clock.wall_ms();
        self.step(Input::Spawn { ask, spec, waits, turn, now_ms }, ctx);
    }

    /// Looks whether ends were missed, and whether parents are held back after crashes: their children end.
    fn look(&mut self, ctx: &mut Context<Self>) {
        let open: BTreeMap<_, _> = self.machine.open().map(|(key, turn)| (turn, key.clone())).collect();
        for (turn, key) in &open {
            // One that is new may not be with its session yet, which would know nothing of it.
            if self.seen_open.contains(turn) {
                self.ask_end(key, *turn, ctx);
            }
        }
        self.seen_open = open.into_keys().collect();
        let held = |parent: &&&SessionKey| self.deps.sessions.state(parent) == Some(State::Quarantined);
        let held: Vec<SessionKey> =
            self.machine.parents().iter().filter(held).map(|parent| (*parent).clone()).collect();
        for parent in held {
            self.step(Input::CancelChildren { parent, turn: None }, ctx);
        }
    }

    fn begin(&mut self, spec: Arc<RunSpec>, turn: TurnId, waits: bool, ctx: &mut Context<Self>) {
        if !spec.fork {
            return self.enqueue(spec, turn, waits, ctx);
        }
        let (fork, of) = (Arc::clone(&self.deps.fork), Arc::clone(&spec));
        let forked = offload(&*self.deps.ports.offload, move || fork(&of));
        ctx.spawn(forked.into_actor(self).map(move |forked, keeper, ctx| {
            match forked.unwrap_or_else(|_| Err("the copy panicked".to_owned())) {
                Ok(()) => keeper.enqueue(spec, turn, waits, ctx),
                Err(why) => {
                    let why = format!("the conversation could not be copied: {why}");
                    keeper.step(Input::Enqueued { run: spec.run, verdict: Verdict::Refused(why) }, ctx);
                }
            }
        }));
    }

    fn enqueue(&mut self, spec: Arc<RunSpec>, turn: TurnId, waits: bool, ctx: &mut Context<Self>) {
        let run = spec.run;
        let message = match said::first(&spec, turn, waits) {
            Ok(message) => message,
            Err(why) => return self.step(Input::Enqueued { run, verdict: Verdict::Refused(why) }, ctx),
        };
        if let Err(many) = self.deps.watch.watch(&message.key, turn, ctx.address().recipient()) {
            return self.step(Input::Enqueued { run, verdict: Verdict::Refused(many.to_string()) }, ctx);
        }
        // A stop or the end of the turn that asks is the end of its runs.
        if self.deps.watch.watch(&spec.parent, spec.turn, ctx.address().recipient()).is_err() {
            tracing::warn!(session = %spec.parent, "too many turns are watched: a run may outlive its parent's turn");
        }
        self.deps.watch.accepted(spec.turn);
        let verdict = self.deps.journal.enqueue(message);
        ctx.spawn(verdict.into_actor(self).map(move |verdict, keeper, ctx| {
            let verdict = said::verdict(verdict);
            if verdict != Verdict::Accepted {
                keeper.deps.watch.unwatch(turn);
            }
            keeper.step(Input::Enqueued { run, verdict }, ctx);
        }));
    }

    fn ask_end(&mut self, key: &SessionKey, turn: TurnId, ctx: &mut Context<Self>) {
        let (reply, record) = oneshot::channel();
        if self.deps.sessions.tell(key, Mail::ReadTurn { turn, reply }).is_err() {
            return;
        }
        let key = key.clone();
        ctx.spawn(record.into_actor(self).map(move |record, keeper, ctx| {
            let end = match record {
                Ok(Some(TurnRecord::Ended { result, text, usage, .. })) => End { result, text: text.into(), usage },
                // It runs, or it is not known how it stands: its end is told, or looked for later.
                Ok(Some(TurnRecord::Open)) | Err(_) => return,
                Ok(None) => End { result: TurnResult::Cancelled, text: "".into(), usage: Default::default() },
            };
            // Nobody else tells it any more.
            let (text, model) = (Arc::clone(&end.text), "".into());
            keeper.deps.watch.ended(TurnEnded {
                key: key.clone(),
                turn,
                result: end.result,
                text,
                usage: end.usage,
                model,
            });
            keeper.ended(key, turn, end, ctx);
        }));
    }

    /// The turn of a run ended, or one that asked for runs: these are stopped if it did not come to a good end.
    fn ended(&mut self, key: SessionKey, turn: TurnId, end: End, ctx: &mut Context<Self>) {
        let stopped = matches!(end.result, TurnResult::Cancelled | TurnResult::DeadLettered);
        let input = if stopped && run_of(&key).is_none() {
            Input::CancelChildren { parent: key, turn: Some(turn) }
        } else {
            Input::Ended { turn, end }
        };
        self.step(input, ctx);
    }

    /// Finds the runs that the journal has from before.
    fn look_for_runs(&mut self, ctx: &mut Context<Self>) {
        self.machine.looks();
        let unfinished = self.deps.journal.unfinished();
        ctx.spawn(unfinished.into_actor(self).map(|unfinished, keeper, ctx| {
            let keys = unfinished.unwrap_or_default().into_iter().map(|one| one.key);
            let runs: Vec<SessionKey> = keys.filter(|key| run_of(key).is_some()).collect();
            keeper.asked = runs.len() + 1;
            for key in runs {
                keeper.ask_run(key, ASKS_MAX, ctx);
            }
            keeper.answered(ctx);
        }));
    }

    /// One of those that were asked what they are has answered, or never will.
    fn answered(&mut self, ctx: &mut Context<Self>) {
        self.asked -= 1;
        if self.asked == 0 {
            self.step(Input::AllFound, ctx);
        }
    }

    fn ask_run(&mut self, key: SessionKey, tries: u32, ctx: &mut Context<Self>) {
        let (reply, answer) = oneshot::channel();
        // One that is quarantined is asked again, as is one that has not read its message.
        let _ = self.deps.sessions.tell(&key, Mail::Run { reply });
        ctx.spawn(answer.into_actor(self).map(move |answer, keeper, ctx| match answer {
            Ok((spec, Some(turn))) => {
                let now_ms = keeper.deps.ports.clock.wall_ms();
                keeper.step(Input::Found { spec, turn, now_ms }, ctx);
                keeper.answered(ctx);
            }
            // It has ended since.
            Ok((_, None)) => keeper.answered(ctx),
            Err(_) if tries > 0 => {
                ctx.run_later(ASK_AGAIN, move |keeper, ctx| keeper.ask_run(key, tries - 1, ctx));
            }
            Err(_) => {
                tracing::warn!(session = %key, "a sub-agent does not say what it is");
                keeper.answered(ctx);
            }
        }));
    }

    fn say(
        &mut self,
        (parent, run): (&SessionKey, RunId),
        (id, saying, text): (&str, Saying, &str),
        by: Option<&Source>,
        (reply, ctx): (oneshot::Sender<Result<(), String>>, &mut Context<Self>),
    ) {
        let turn = TurnId(self.deps.ports.ids.uuid_v7());
        let spec = match self.machine.say((parent, run), (saying, by), turn) {
            Err(why) => Err(why.to_string()),
            Ok(_) if text.len() > SAID_BYTES_MAX => Err(format!("the message is longer than {SAID_BYTES_MAX} bytes")),
            Ok(spec) => Ok(spec),
        };
        let message = match spec.and_then(|spec| said::later(&spec, turn, (id, saying), text)) {
            Ok(message) => message,
            Err(why) => {
                self.machine.unsaid(run, turn);
                return drop(reply.send(Err(why)));
            }
        };
        // Without a watch its end is not known before the run's session is asked to stop.
        let watched = self.deps.watch.watch(&message.key, turn, ctx.address().recipient());
        let verdict = self.deps.journal.enqueue(message);
        ctx.spawn(verdict.into_actor(self).map(move |verdict, keeper, _| {
            let verdict = said::verdict(verdict);
            if verdict != Verdict::Accepted || watched.is_err() {
                keeper.deps.watch.unwatch(turn);
                keeper.machine.unsaid(run, turn);
            }
            let taken = match verdict {
                Verdict::Accepted | Verdict::Open(_) | Verdict::Over(_) => Ok(()),
                Verdict::Refused(why) => Err(why),
            };
            // Whoever asked may be gone.
            let _ = reply.send(taken);
        }));
    }
}

impl Actor for Keeper {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        if self.recovers {
            self.look_for_runs(ctx);
        }
        ctx.run_interval(LOOK_EVERY, Self::look);
    }
}

impl Supervised for Keeper {
    fn restarting(&mut self, _: &mut Self::Context) {
        // Those who waited ask again, or are told that it is not known.
        *self = Self { recovers: self.recovers, ..Self::new(Arc::clone(&self.deps)) };
    }
}

impl Handler<RunMail> for Keeper {
    type Result = ();

    fn handle(&mut self, mail: RunMail, ctx: &mut Self::Context) {
        let Some(mail) = self.with_notes(mail, ctx) else { return };
        match mail {
            RunMail::Spawn { spec, waits, reply } => self.spawn(spec, waits, reply, ctx),
            RunMail::Retry { run, reply } => match self.machine.spec_of(run) {
                Some(spec) => {
                    let again = RunId(self.deps.ports.ids.uuid_v7());
                    let spec = RunSpec { run: again, retry_of: Some(run), ..RunSpec::clone(spec) };
                    self.spawn(spec.into(), false, reply, ctx);
                }
                None => drop(reply.send(Err(NotSpawned::Refused("it is not known any more".to_owned())))),
            },
            // Whoever asked may be gone, here as below.
            RunMail::List { parent, reply } => self.list(parent, reply, ctx),
            RunMail::Say { parent, run, id, saying, text, by, reply } => {
                self.say((&parent, run), (&id, saying, &text), by.as_ref(), (reply, ctx));
            }
            RunMail::Wait { runs, any, reply } => {
                let ask = self.ask();
                self.waits.insert(ask, reply);
                self.waits.retain(|_, reply| !reply.is_closed());
                self.step(Input::Wait { ask, runs, any }, ctx);
            }
            RunMail::Cancel { parent, run, reply } => {
                let ask = self.ask();
                self.cancels.insert(ask, reply);
                self.step(Input::Cancel { ask, parent, run }, ctx);
            }
            RunMail::CancelChildren { parent } => self.step(Input::CancelChildren { parent, turn: None }, ctx),
            RunMail::Reported { run } => self.step(Input::Reported { run }, ctx),
        }
    }
}

impl Handler<Recover> for Keeper {
    type Result = ();

    fn handle(&mut self, _: Recover, ctx: &mut Self::Context) {
        self.recovers = true;
        self.look_for_runs(ctx);
    }
}

impl Handler<TurnEnded> for Keeper {
    type Result = ();

    fn handle(&mut self, ended: TurnEnded, ctx: &mut Self::Context) {
        let TurnEnded { key, turn, result, text, usage, .. } = ended;
        self.ended(key, turn, End { result, text, usage }, ctx);
    }
}
