//! The session actor: receives, asks the machine, has the effects performed. Decides nothing itself.
//!
//! ```text
//!   Loading ──loaded──▶ Live ──idle, asked to leave──▶ Gone
//!      ▲                  │
//!      └── crash, reload ─┘
//! ```
//!
//! A future that the session spawned reports to the life that began it; a later life ignores it.

mod close;
mod command;
mod compact;
mod edit;
mod file;
mod gate;
mod held;
mod leave;
mod live;
mod load;
mod model;
mod perform;
mod queue;
mod read;
mod spans;
mod stall;
#[cfg(test)]
mod tests;
mod title;
mod told;
mod tool;

pub(crate) use compact::KEPT_MESSAGES;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, AsyncContext, Context, Handler, Supervised};
use domain::goal::Goal;
use domain::ids::{MessageId, TurnId};
use protocol::metrics::ByKind;
use protocol::provider::Event;
use protocol::session::{Mail, State, Status, Stopped};
use protocol::supervision::{self as log, ActorPath, EventName, Kind};
use protocol::tools::ToolFinished;
use supervision::lease::Note;
use supervision::ports::Ports;
use supervision::{CrashCell, Lease};
use tokio::sync::oneshot;

use self::gate::Gate;
use crate::gather;
use crate::hot::Trim;
use crate::inbox::Inbox;
use crate::index::Row;
use crate::places::Placed;
use crate::shared::{Neighbours, Shared};
use crate::sweep::{self, Tick};
use crate::turn::{Input, Now, Shown, Verdict};

use live::{Exit, Live};

/// How much control mail is kept while a session loads. What is beyond is dropped, and its asker sees that.
const KEPT_MAX: usize = 1024;

/// One conversation.
pub struct Session {
    shared: Arc<Shared>,
    neighbours: Arc<Neighbours>,
    path: ActorPath,
    lease: Lease,
    crash: CrashCell,
    /// Passed by the one job that works on the transcript file.
    file: Arc<Gate>,
    life: u32,
    /// Loads by itself since something was last made durable; a crash does not end the count.
    reloads: u8,
    /// Loads in a row that took too long.
    stuck_loads: u8,
    swept: bool,
    /// A part of the conversation that is being summarised.
    compaction: Option<Box<compact::Compaction>>,
    /// Since when it stands in the line of those with a conversation.
    lined_at: Option<Duration>,
    noted: Note,
    /// While a name for the session is asked for.
    title: Option<Box<title::Title>>,
    state: Life,
}

enum Life {
    Loading(Box<Loading>),
    Live(Box<Live>),
    Gone,
}

/// What came, or was left over, before the session was loaded.
#[derive(Default)]
struct Loading {
    early: Inbox,
    kept: Vec<Mail>,
    awaited: Vec<crate::drain::Asked>,
    since: Duration,
    /// The end of a turn of which it is not known whether it is durable.
    ending: Option<(Shown, Verdict)>,
    /// Whoever wants the archived transcript back before the load.
    restore: Option<close::Restoring>,
    /// Why it cannot begin yet.
    held: Option<held::Held>,
}

impl Loading {
    fn keep(&mut self, mail: Mail) {
        if self.kept.len() < KEPT_MAX {
            self.kept.push(mail);
        }
    }
}

// === impl Session ===

impl Session {
    /// A session that loads as soon as it is started.
    pub fn new(
        shared: Arc<Shared>,
        neighbours: Arc<Neighbours>,
        path: ActorPath,
        lease: Lease,
        crash: CrashCell,
    ) -> Self {
        let file = Arc::default();
        let loading = Loading::default();
        Self {
            shared,
            neighbours,
            path,
            lease,
            crash,
            file,
            life: 0,
            reloads: 0,
            stuck_loads: 0,
            swept: false,
            compaction: None,
            lined_at: None,
            noted: Note { state: State::Loading, turn: None, inbox: 0, steers: None },
            title: None,
            state: Life::Loading(Box::new(loading)),
        }
    }

    fn now(&self) -> Now {
        let clock = &self.shared.ports.clock;
        Now { mono: clock.mono(), wall_ms: clock.wall_ms() }
    }

    /// Gives the machine an input and does what it says.
    fn step(&mut self, input: Input, ctx: &mut Context<Self>) {
        let now = self.now();
        if let Life::Live(live) = &mut self.state {
            let effects = live.machine.step(input, now);
            self.perform(effects, ctx);
        }
    }

    fn mail(&mut self, mail: Mail, ctx: &mut Context<Self>) {
        match &mut self.state {
            Life::Loading(loading) if loading.refuses(&mail) => self.refuse_held(mail, ctx),
            Life::Loading(loading) => match mail {
                Mail::Queued(item) => {
                    // Whether it was new does not matter: the load sorts it out.
                    let _ = loading.early.offer(item);
                    self.shared.transcripts.index().expect(self.lease.key(), self.shared.ports.clock.wall_ms());
                }
                Mail::Status { reply } => answer(reply, self.status()),
                Mail::Passivate => {}
                Mail::Stop { all, reply } => {
                    let waiting = count(loading.early.len());
                    answer(reply, Stopped { cancelled: None, dropped: 0, waiting, goal_paused: false, later: true });
                    loading.keep(Mail::Stop { all, reply: oneshot::channel().0 });
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
                | Mail::Restore { .. }
                | Mail::Drain
                | Mail::Interrupt => {
                    loading.keep(mail);
                }
            },
            Life::Live(_) => self.live_mail(mail, ctx),
            Life::Gone => {}
        }
    }

    fn live_mail(&mut self, mail: Mail, ctx: &mut Context<Self>) {
        match mail {
            Mail::Queued(item) => {
                self.list();
                self.step(Input::Queued(item), ctx);
                self.hurry_file();
            }
            Mail::Stop { all, reply } => {
                let now = self.now();
                if let Life::Live(live) = &mut self.state {
                    let works =
                        live.ledger.tally().goal.as_deref().or(live.machine.goal()).is_some_and(Goal::is_active);
                    let works = works && !live.machine.answers_command();
                    let (mut stopped, effects) = live.machine.stop(all, now);
                    stopped.goal_paused = works && stopped.cancelled.is_some();
                    answer(reply, stopped);
                    self.cancel_title_call();
                    self.perform(effects, ctx);
                }
            }
            Mail::Queue { ask, reply } => self.ask_queue(ask, reply, ctx),
            Mail::Status { reply } => answer(reply, self.status()),
            Mail::CancelTurn { turn } => self.step(Input::Cancel(turn), ctx),
            Mail::ReadTurn { turn, reply } => self.read_turn(turn, reply, ctx),
            Mail::Has { turn, reply } => self.has_turn(turn, reply, ctx),
            Mail::Standing { reply } => self.tell_standing(reply),
            Mail::Run { reply } => self.tell_run(reply),
            Mail::Edit { edit, patience, reply } => self.edit(edit, patience, reply, ctx),
            Mail::Condense { reply } => self.condense(reply, ctx),
            Mail::Close { to, if_quiet, reply } => self.close(to, if_quiet, reply, ctx),
            Mail::Restore { reply } => self.restore(reply, ctx),
            Mail::Passivate => self.passivate(ctx),
            Mail::Drain => self.step(Input::Drain, ctx),
            Mail::Interrupt => self.step(Input::Interrupt, ctx),
        }
    }

    fn status(&self) -> Status {
        let key = self.lease.key().clone();
        let mut status = Status {
            key,
            session: None,
            state: State::Loading,
            epoch: domain::ids::Epoch::default(),
            turn: None,
            attempt: None,
            running_ms: None,
            inbox: 0,
            why: None,
            about: None,
        };
        match &self.state {
            Life::Loading(loading) => {
                status.state = loading.state();
                status.inbox = u32::try_from(loading.early.len()).unwrap_or(u32::MAX);
                status.why = loading.held.as_ref().map(|held| held.why().into());
            }
            Life::Live(live) => {
                status.session = Some(live.ledger.session);
                status.epoch = live.ledger.epoch;
                status.state = live.machine.state();
                status.inbox = u32::try_from(live.machine.waiting()).unwrap_or(u32::MAX);
                status.about = Some(Box::new(self.about(live)));
                if let Some((turn, attempt, _, began)) = live.machine.running() {
                    let running = self.shared.ports.clock.mono().saturating_sub(began);
                    status.turn = Some(turn);
                    status.attempt = Some(attempt);
                    status.running_ms = Some(u64::try_from(running.as_millis()).unwrap_or(u64::MAX));
                }
            }
            Life::Gone => status.state = State::Idle,
        }
        status
    }

    /// Shows the tree what the session does.
    fn note(&mut self) {
        let note = match &self.state {
            Life::Loading(loading) => {
                Note { state: loading.state(), turn: None, inbox: count(loading.early.len()), steers: None }
            }
            Life::Live(live) => Note {
                state: live.machine.state(),
                turn: live.machine.running().map(|(turn, ..)| turn),
                inbox: count(live.machine.waiting()),
                steers: live.machine.steers(),
            },
            Life::Gone => return,
        };
        if note != self.noted {
            self.noted = note;
            self.lease.note(note);
        }
    }

    /// Asks for a tick, unless one is coming.
    fn join_sweep(&mut self, ctx: &mut Context<Self>) {
        if !std::mem::replace(&mut self.swept, true) {
            let config = &self.shared.config;
            let me = ctx.address().downgrade().recipient();
            sweep::join(me, sweep::period([config.stall, config.context_idle]));
        }
    }

    /// Runs `job` on the blocking pool, alone with the transcript file.
    fn on_file<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Ports, &Path) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (shared, file, key) = (Arc::clone(&self.shared), Arc::clone(&self.file), self.lease.key().clone());
        let (life, (tx, rx)) = (self.life, oneshot::channel());
        self.shared.ports.offload.run(Box::new(move || {
            if let Some(_turn) = file.enter(life) {
                // The asker may be gone; then nobody needs the answer.
                let _ = tx.send(job(&shared.ports, &shared.transcripts.file_of(&key)));
            }
        }));
        rx
    }

    /// Like [`on_file`](Self::on_file), together with the jobs of other sessions.
    fn on_file_soon<T: Send + 'static>(
        &self,
        job: impl FnOnce(&Ports, &Path) -> T + Send + 'static,
    ) -> oneshot::Receiver<T> {
        let (shared, file, key) = (Arc::clone(&self.shared), Arc::clone(&self.file), self.lease.key().clone());
        let (life, (tx, rx)) = (self.life, oneshot::channel());
        let job = move || -> gather::Outcome {
            let Some(_turn) = file.enter(life) else { return Box::new(|| ()) };
            // A session that is busy looks at no other file.
            shared.system.refresh(&shared.ports);
            let outcome = job(&shared.ports, &shared.transcripts.file_of(&key));
            // The session may have crashed meanwhile; the next life looks at the file itself.
            Box::new(move || drop(tx.send(outcome)))
        };
        gather::run_soon(&self.shared.ports.offload, Box::new(job));
        rx
    }

    /// A turn or an exit that waits for the file waits for no other session.
    fn hurry_file(&self) {
        if let Life::Live(live) = &self.state
            && (live.machine.waiting() > 0 || live.exit != Exit::No)
            && !live.view.is_clean()
        {
            gather::hurry(&self.shared.ports.offload);
        }
    }

    /// A session with a message is listed, also before it has a transcript.
    fn list(&mut self) {
        if let Life::Live(live) = &mut self.state
            && live.row.is_none()
        {
            let row = Row::fresh(Some(live.ledger.session), self.shared.ports.clock.wall_ms());
            live.row = Some(self.shared.transcripts.index().loaded(self.lease.key(), row));
        }
    }

    fn event(&self, name: EventName, turn: Option<TurnId>) -> log::Event {
        let mut event = log::Event::new(name, self.path.clone(), Kind::Session);
        event.session = Some(self.lease.key().clone());
        event.turn = turn;
        if let Life::Live(live) = &self.state {
            event.epoch = Some(live.ledger.epoch);
        }
        event
    }

    /// Sender's id of the message that the running turn answers.
    fn message_id(&self) -> Option<MessageId> {
        match &self.state {
            Life::Live(live) => live.machine.body().map(|(accepted, ..)| accepted.message_id.clone()),
            Life::Loading(_) | Life::Gone => None,
        }
    }

    fn stale(&self) {
        self.shared.metrics.stale_events.get_or_create(&ByKind { kind: "session" }).inc();
    }
}

/// Answers an asker, who may be gone.
fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    let _ = reply.send(value);
}

fn count(number: usize) -> u32 {
    u32::try_from(number).unwrap_or(u32::MAX)
}

impl Actor for Session {
    type Context = Context<Self>;

    fn started(&mut self, ctx: &mut Self::Context) {
        self.begin_load(ctx);
    }
}

impl Supervised for Session {
    fn restarting(&mut self, _: &mut Self::Context) {
        self.forget();
    }
}

impl Drop for Session {
    fn drop(&mut self) {
        // The next incarnation of the key has a gate of its own.
        self.file.begin_life();
    }
}

impl Handler<Mail> for Session {
    type Result = ();

    fn handle(&mut self, mail: Mail, ctx: &mut Self::Context) {
        self.lease.received();
        self.mail(mail, ctx);
        self.note();
        self.leave_if_wanted(ctx);
    }
}

impl Handler<Event> for Session {
    type Result = ();

    fn handle(&mut self, event: Event, ctx: &mut Self::Context) {
        self.model_event(event, ctx);
        self.note();
    }
}

impl Handler<ToolFinished> for Session {
    type Result = ();

    fn handle(&mut self, finished: ToolFinished, ctx: &mut Self::Context) {
        self.tool_event(finished, ctx);
        self.note();
    }
}

impl Handler<Placed> for Session {
    type Result = ();

    fn handle(&mut self, Placed(place): Placed, ctx: &mut Self::Context) {
        self.placed(place, ctx);
        self.note();
    }
}

impl Handler<Tick> for Session {
    type Result = ();

    fn handle(&mut self, _: Tick, ctx: &mut Self::Context) {
        self.swept = false;
        self.tick(ctx);
        self.note();
    }
}

impl Handler<Trim> for Session {
    type Result = ();

    fn handle(&mut self, _: Trim, ctx: &mut Self::Context) {
        self.trimmed(ctx);
    }
}
