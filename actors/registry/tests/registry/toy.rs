//! A toy session: loads, does its turns one by one, crashes where the journal says so, leaves when asked and idle.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use actix::{Actor, ActorContext, AsyncContext, Context, Handler, Supervised};
use domain::ids::{Attempt, SessionKey, TurnId};
use protocol::session::{Address, Mail, State, Status, Stopped};
use protocol::supervision::{ExitReason, Kind};
use registry::{SessionFactory, SessionStart};
use supervision::lease::Note;
use supervision::{Child, CrashCell, Kernel, Lease, Placement};

use crate::journal::ToyJournal;

pub const LOAD: Duration = Duration::from_millis(20);
pub const TURN: Duration = Duration::from_millis(50);

/// What a test may want to know, or to break.
#[derive(Default)]
pub struct Watched {
    pub live: Mutex<BTreeMap<SessionKey, u32>>,
    pub live_max: Mutex<u32>,
    pub loading: Mutex<u32>,
    pub loading_max: Mutex<u32>,
    pub activations: Mutex<u32>,
    pub turns_alone: Mutex<Vec<(SessionKey, u32)>>,
    pub turns_running: Mutex<u32>,
    /// These keys panic while they load.
    pub unloadable: Mutex<Vec<SessionKey>>,
    /// These keys stop on their first mail without releasing their lease.
    pub rude: Mutex<Vec<SessionKey>>,
    /// Stops that came, and whether they meant all turns.
    pub stops: Mutex<Vec<bool>>,
}

pub struct Toys {
    pub kernel: Kernel,
    pub placement: Arc<dyn Placement>,
    pub journal: Arc<ToyJournal>,
    pub watched: Arc<Watched>,
}

impl SessionFactory for Toys {
    fn start(&self, start: SessionStart) -> Address {
        let mut child = Child::new(start.path.0.clone(), Kind::Session);
        child.session = Some(start.key);
        child.lease = Some(start.lease.clone());
        child.crash = start.crash.clone();
        child.on_down = Some(start.on_down);
        let (journal, watched) = (Arc::clone(&self.journal), Arc::clone(&self.watched));
        let make = move |_: &mut Context<Toy>| Toy::new(start.lease, start.crash, journal, watched);
        self.kernel.spawn(child, &*self.placement, start.shard, make).recipient()
    }
}

struct Toy {
    lease: Lease,
    crash: CrashCell,
    journal: Arc<ToyJournal>,
    watched: Arc<Watched>,
    loaded: bool,
    running: Option<TurnId>,
    interrupted: bool,
}

impl Toy {
    fn new(lease: Lease, crash: CrashCell, journal: Arc<ToyJournal>, watched: Arc<Watched>) -> Self {
        {
            let mut live = watched.live.lock().unwrap();
            let count = live.entry(lease.key().clone()).or_default();
            *count += 1;
            let mut max = watched.live_max.lock().unwrap();
            *max = (*max).max(*count);
            *watched.activations.lock().unwrap() += 1;
        }
        Self { lease, crash, journal, watched, loaded: false, running: None, interrupted: false }
    }

    fn key(&self) -> SessionKey {
        self.lease.key().clone()
    }

    fn note(&self, state: State) {
        let waiting = self.journal.open_turns(self.lease.key()) - u32::from(self.running.is_some());
        self.lease.note(Note { state, turn: self.running, inbox: waiting, steers: None });
    }

    fn load(&mut self, ctx: &mut Context<Self>) {
        *self.watched.loading.lock().unwrap() -= 1;
        assert!(!self.watched.unloadable.lock().unwrap().contains(self.lease.key()), "cannot be loaded");
        self.loaded = true;
        self.note(State::Idle);
        self.pump(ctx);
    }

    fn pump(&mut self, ctx: &mut Context<Self>) {
        if !self.loaded || self.running.is_some() {
            return;
        }
        if self.interrupted {
            self.leave(ExitReason::Shutdown, ctx);
            return;
        }
        let Some(turn) = self.journal.first(self.lease.key()) else {
            self.note(State::Idle);
            return;
        };
        self.running = Some(turn.id);
        self.note(State::Thinking);
        self.crash.set_turn(turn.id, Attempt::FIRST);
        *self.watched.turns_running.lock().unwrap() += 1;
        if self.lease.alone() {
            let running = *self.watched.turns_running.lock().unwrap();
            self.watched.turns_alone.lock().unwrap().push((self.key(), running));
        }
        ctx.run_later(TURN, |this, ctx| this.end_turn(ctx));
    }

    fn end_turn(&mut self, ctx: &mut Context<Self>) {
        *self.watched.turns_running.lock().unwrap() -= 1;
        assert!(!self.journal.explodes(self.lease.key()), "bomb");
        self.journal.end_first(self.lease.key());
        self.running = None;
        self.crash.clear_turn();
        self.pump(ctx);
    }

    fn leave(&self, reason: ExitReason, ctx: &mut Context<Self>) {
        if self.lease.try_release() {
            self.crash.exit_reason(reason);
            ctx.stop();
        }
    }
}

impl Actor for Toy {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        let loading = {
            let mut loading = self.watched.loading.lock().unwrap();
            *loading += 1;
            *loading
        };
        let mut max = self.watched.loading_max.lock().unwrap();
        *max = (*max).max(loading);
        drop(max);
        ctx.run_later(LOAD, |this, ctx| this.load(ctx));
    }
}

impl Supervised for Toy {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.loaded = false;
        self.running = None;
        self.interrupted = false;
        self.note(State::Loading);
    }
}

impl Drop for Toy {
    fn drop(&mut self) {
        *self.watched.live.lock().unwrap().get_mut(self.lease.key()).unwrap() -= 1;
    }
}

impl Handler<Mail> for Toy {
    type Result = ();

    fn handle(&mut self, mail: Mail, ctx: &mut Self::Context) {
        {
            let mut rude = self.watched.rude.lock().unwrap();
            if let Some(at) = rude.iter().position(|key| key == self.lease.key()) {
                rude.remove(at);
                ctx.stop();
                return;
            }
        }
        self.lease.received();
        match mail {
            Mail::Queued(_) => self.pump(ctx),
            Mail::Passivate => {
                if self.loaded && self.running.is_none() && self.journal.open_turns(self.lease.key()) == 0 {
                    self.leave(ExitReason::Passivated, ctx);
                }
            }
            Mail::Drain | Mail::Interrupt => {
                self.interrupted = true;
                self.pump(ctx);
            }
            Mail::Stop { all, reply } => {
                self.watched.stops.lock().unwrap().push(all);
                let _ =
                    reply.send(Stopped { cancelled: None, dropped: 0, waiting: 0, goal_paused: false, later: false });
            }
            Mail::Status { reply } => {
                let status = Status {
                    key: self.key(),
                    session: None,
                    state: State::Idle,
                    epoch: Default::default(),
                    turn: self.running,
                    attempt: None,
                    running_ms: None,
                    why: None,
                    about: None,
                    inbox: 0,
                };
                let _ = reply.send(status);
            }
            Mail::CancelTurn { .. }
            | Mail::Queue { .. }
            | Mail::ReadTurn { .. }
            | Mail::Has { .. }
            | Mail::Standing { .. }
            | Mail::Run { .. }
            | Mail::Edit { .. }
            | Mail::Condense { .. }
            | Mail::Close { .. }
            | Mail::Restore { .. } => {}
        }
        if self.interrupted {
            self.pump(ctx);
        }
    }
}
