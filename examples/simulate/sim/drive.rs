//! The life of one process: start on what the one before has left, let the plan happen, end.

use std::path::Path;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use channel::hub::{Keep, Watch};
use domain::body::{TurnBody, body_hash};
use domain::ids::{SessionKey, Source, TurnId};
use domain::queue::QueueRules;
use greenroom::app::{App, Options, World as Outside};
use greenroom::config::{LoadRequest, Loaded, ToolProfile, load};
use protocol::journal::{Enqueue, Enqueued};
use protocol::session::Mail;
use protocol::turn::{PushRoute, Route};
use supervision::LocalPlacement;
use supervision::memory::{Fault, PowerCutDisk};
use tokio::sync::oneshot;
use uuid::Uuid;

use super::books::POISON_ATTEMPTS;
use super::doubles::{SimModel, SimTool};
use super::outside::{Quiet, Screen, SimLog, ports};
use super::plan::{Act, How};
use super::process::{Process, World, locked};
use super::pusher::{NAME, SimChannel};
use super::{following, replay, settle};

/// Where the simulated files lie; nothing of it exists.
pub const HOME: &str = "/simulated";
/// How often a client tries when it is refused.
const TRIES: u32 = 3;
/// How long sessions may take to find out that the journal was closed under them: the pool may be slow.
const LATE_MS: u32 = 60_000;
/// After so many seconds a message that cannot be pushed is given up.
const OLD_S: i64 = 24 * 60 * 60;
/// How long nobody needs a process.
const DOWNTIME_US: u64 = 3_000_000;

/// How a process ended.
pub enum End {
    /// With this on its disk, for the next one.
    Left(Arc<PowerCutDisk>),
    /// The run is over.
    Over,
}

/// A process at work.
pub struct Running {
    /// Its outside.
    pub process: Arc<Process>,
    /// Its actors.
    pub app: Arc<App>,
    /// What its clients hold.
    pub watches: Arc<Mutex<Vec<Watch>>>,
}

/// The configuration of a run.
pub fn config(world: &World) -> anyhow::Result<Loaded> {
    let env = [("GREENROOM_HOME".to_owned(), HOME.to_owned())].into();
    let mut loaded = load(&LoadRequest { config: None, workspace: None, env })?;
    // Chats of a channel have no tools by themselves.
    loaded.config.session.policies.group.profile = Some(ToolProfile::Full);
    let config = &mut loaded.config;
    config.runtime.idle_seconds = 20;
    config.runtime.context_seconds = 5;
    config.runtime.stall_seconds = 40;
    config.runtime.drain_seconds = 10;
    config.runtime.inbox_max = world.plan.inbox_max;
    let QueueRules { mode, cap, drop, debounce } = world.plan.queue;
    config.queue.mode = mode;
    config.queue.cap = cap;
    config.queue.drop = drop;
    config.queue.debounce_ms = u64::try_from(debounce.as_millis()).unwrap_or(0);
    config.runtime.max_running_turns = world.plan.running_max;
    // Its turns are nobody's here.
    config.gateway.heartbeat.enabled = false;
    config.supervision.quarantine_seconds = 60;
    config.supervision.quarantine_max_seconds = 240;
    config.supervision.poison_attempts = POISON_ATTEMPTS;
    config.journal.segment_bytes = world.plan.segment_bytes;
    config.journal.max_bytes = world.plan.journal_bytes;
    Ok(loaded)
}

/// Runs one process.
pub async fn process(world: Arc<World>, number: u32, disk: Arc<PowerCutDisk>) -> End {
    let before = disk.copy();
    let process = Process::new(world.clone(), number, disk);
    world.books().process_begins();
    check_jobs(&process, &before);
    let end = match start(&process).await {
        Ok(app) => {
            let app = Arc::new(app);
            process.watch(&app);
            let watches = Arc::default();
            let running = Running { process: process.clone(), app, watches };
            running.attach();
            running.watch_jobs();
            replay::check(&running, &before).await;
            running.live().await
        }
        Err(error) => {
            let struck = !process.is_alive() || process.disk.is_off();
            process.note(|books| {
                if !struck {
                    books.wrong(format!("the process does not start: {error:#}"));
                }
                "the process does not start".to_owned()
            });
            process.die(How::Kill);
            End::Over
        }
    };
    let orderly = process.left().is_none() && world.books().writable;
    world.books().process_ended(!orderly);
    let (soon_us, until_us) = (process.wall_us() + DOWNTIME_US, world.until_ms.swap(0, Ordering::SeqCst) * 1000);
    world.books().aged |= until_us > soon_us;
    world.wall_us.store(soon_us.max(until_us), Ordering::SeqCst);
    match (end, process.left()) {
        (_, Some(left)) => End::Left(left),
        (end, None) => end,
    }
}

/// The file of the jobs is whole, whatever ended the process before.
fn check_jobs(process: &Process, disk: &PowerCutDisk) {
    let now_ms = process.wall_ms();
    let mut books = process.world.books();
    books.jobs.disturbed(now_ms, Some(now_ms));
    if let Err(wrong) = following::file_of(disk) {
        books.wrong(wrong);
    }
}

async fn start(process: &Arc<Process>) -> anyhow::Result<App> {
    let outside = Outside {
        ports: ports(process),
        placement: Arc::new(LocalPlacement::new()),
        log: SimLog::new(process.clone()),
        model: Some(Arc::new(SimModel(process.clone()))),
    };
    let tool = |idempotent| Arc::new(SimTool { process: process.clone(), idempotent });
    let loaded = config(&process.world)?;
    // Only a gateway does what nobody asks for just now.
    let options = if process.world.plan.work.is_some() { Options::gateway(loaded) } else { Options::embedded(loaded) };
    let options = options.with_tool(tool(false)).with_tool(tool(true));
    let options = options.with_channel(Arc::new(SimChannel(process.clone())));
    App::start(options.in_world(outside)).await
}

impl Running {
    /// Shows everything that sessions show, from the first event on.
    fn attach(&self) {
        let screen = Arc::new(Screen(self.process.clone()));
        let of_work = self.process.world.books().of_work.clone();
        for key in self.process.world.plan.keys.iter().chain(&of_work) {
            locked(&self.watches).push(self.app.hub().attach_chat(key, None, screen.clone()).watch);
        }
    }

    async fn live(self) -> End {
        let process = self.process.clone();
        let failed = self.app.failed();
        let life = async {
            if self.follow_plan().await {
                return true;
            }
            settle::settle(&self).await;
            false
        };
        let restarts = tokio::select! {
            biased;
            () = process.died() => return End::Over,
            why = failed => {
                process.note(|books| {
                    books.counts.disk_failures += 1;
                    format!("the journal gives up: {why}")
                });
                // What the device did not take is lost with the process or without it.
                process.die(How::Power);
                return End::Over;
            }
            restarts = life => restarts,
        };
        if !process.is_alive() {
            return End::Over;
        }
        let left = self.stop().await;
        match left {
            Some(left) if restarts => End::Left(left),
            Some(_) | None => End::Over,
        }
    }

    /// Stops in order. The answer is what is on the disk then, unless the process died on its way.
    async fn stop(self) -> Option<Arc<PowerCutDisk>> {
        let Self { process, app, watches } = self;
        process.note(|books| {
            books.counts.orderly_stops += 1;
            "the process is stopped in order".to_owned()
        });
        locked(&watches).clear();
        let failed = app.failed();
        let app = Arc::try_unwrap(app).ok();
        let Some(app) = app else {
            process.world.books().wrong("somebody holds the application");
            return None;
        };
        tokio::select! {
            biased;
            () = process.died() => return None,
            _ = failed => {
                process.die(How::Power);
                return None;
            }
            () = app.stop() => {}
        }
        // Actors that were told to stop end when they are polled. Those that a stop without an answer from the disk has
        // left behind find the journal closed; the real process ends their threads.
        let late = process.world.books().stopped_late;
        for _ in 0..if late { LATE_MS } else { 1 } {
            tokio::time::sleep(Duration::from_millis(1)).await;
            if !process.is_alive() {
                return None;
            }
            if !process.world.books().any_lives() {
                break;
            }
        }
        process.note(|books| {
            books.check_all_ended();
            "the process has ended".to_owned()
        });
        process.stopped();
        Some(process.disk.copy())
    }

    /// Lets the plan happen from where it stands. The answer is whether the process is to be restarted.
    async fn follow_plan(&self) -> bool {
        loop {
            let world = &self.process.world;
            let at = world.step.fetch_add(1, Ordering::SeqCst);
            let Some(step) = world.plan.steps.get(at) else { return false };
            tokio::time::sleep(Duration::from_millis(step.pause_ms)).await;
            if !self.process.is_alive() {
                return false;
            }
            self.process.note(|_| format!("step {at}: {:?}", step.act));
            if world.plan.work.is_some() {
                tokio::task::spawn_local(self.look_at_runs());
            }
            match step.act {
                Act::Restart => return true,
                Act::Send(message) => self.send(message, false),
                Act::Conflict(message) => self.send(message, true),
                Act::SendToLeaver(message) => {
                    let key = self.key(world.plan.messages[message].key);
                    if message.is_multiple_of(2) {
                        // One that is not live need not leave.
                        let _ = self.app.sessions().tell_live(key, Mail::Passivate);
                    } else {
                        // Between its decision and its leave, the message comes.
                        self.process.leave_at_sync(key);
                    }
                    self.send(message, false);
                }
                Act::Stop { key, all } => self.stop_session(key, all),
                Act::Cancel(message) => self.cancel(message),
                Act::Status(key) => self.status(key),
                Act::Release(key) => drop(self.app.sessions().release(self.key(key))),
                Act::JumpWall(seconds) => {
                    world.books().aged |= seconds >= OLD_S;
                    self.process.jump_wall(seconds);
                }
                Act::Panic { kind, after } => self.process.set_fuse(kind, after),
                Act::Die(how) => self.process.die(how),
                Act::DieAtChange(how, n) => self.process.die_at_change(how, n),
                Act::Fault(fault) => {
                    world.books().read_faults += u32::from(fault == Fault::ReadEio);
                    self.process.disturb();
                    self.process.disk.fail_next(fault);
                }
                Act::Full(full) => self.process.set_full(full),
                Act::Edit { key, change, pick } => self.edit(key, change, pick, at),
                Act::Close { key, to, if_quiet } => self.close(key, to, if_quiet),
                Act::Restore(key) => self.restore(key),
                Act::Queue { key, ask } => self.ask_queue(key, ask),
                Act::HandIn(n) => self.hand_in(n),
                Act::Job(act) => self.change_job(act),
                Act::Until(at_ms) => world.until_ms.store(at_ms, Ordering::SeqCst),
                Act::Wait => {}
            }
        }
    }

    /// A session by its number.
    pub fn key(&self, index: usize) -> &SessionKey {
        &self.process.world.plan.keys[index]
    }

    // --- clients ---

    /// A client sends a message, and tries again when it is refused.
    pub fn send(&self, message: usize, other: bool) {
        let mut client = Client { process: self.process.clone(), message, other, ended: None };
        let (app, watches) = (Arc::downgrade(&self.app), Arc::downgrade(&self.watches));
        let first = client.submit(&self.app, &self.watches);
        tokio::task::spawn_local(client.follow(first, app, watches));
    }

    fn stop_session(&self, index: usize, all: bool) {
        let (reply, stopped) = oneshot::channel();
        let key = self.key(index);
        if self.app.sessions().tell_live(key, Mail::Stop { all, reply }).is_err() {
            return;
        }
        let process = self.process.clone();
        process.world.books().unwanted(|_| true);
        process.world.books().halted.insert(key.clone());
        tokio::task::spawn_local(async move {
            if let Ok(stopped) = stopped.await {
                process.note(|_| format!("stopped: {} dropped, {} wait", stopped.dropped, stopped.waiting));
            }
        });
    }

    fn cancel(&self, message: usize) {
        let turn = self.process.world.books().said[message].turn;
        let Some(turn) = turn else { return };
        self.process.world.books().unwanted(|turn| turn.message == message);
        let key = self.key(self.process.world.plan.messages[message].key);
        self.process.world.books().halted.insert(key.clone());
        // A session that is not live has nothing to cancel.
        let _ = self.app.sessions().tell_live(key, Mail::CancelTurn { turn });
    }

    /// Asks a session what it does, which wakes it.
    pub fn status(&self, index: usize) {
        let (reply, status) = oneshot::channel();
        // One in quarantine says so by itself.
        let _ = self.app.sessions().tell(self.key(index), Mail::Status { reply });
        let process = self.process.clone();
        tokio::task::spawn_local(async move {
            if let Ok(status) = status.await {
                process.note(|_| format!("status: {:?}, {} wait", status.state, status.inbox));
            }
        });
    }
}

/// One send of a message.
struct Client {
    process: Arc<Process>,
    message: usize,
    other: bool,
    /// The message's turn whose end was shown before it was sent this time.
    ended: Option<TurnId>,
}

type Watches = Mutex<Vec<Watch>>;

impl Client {
    /// Submits the message under a fresh turn id, as a door does.
    fn submit(&mut self, app: &App, watches: &Watches) -> oneshot::Receiver<Enqueued> {
        let plan = &self.process.world.plan;
        let message = &plan.messages[self.message];
        let turn = TurnId(Uuid::from_u64_pair(self.process.clients.bits(), self.process.clients.bits()));
        let key = &plan.keys[message.key];
        let text = if self.other { &message.other } else { &message.text };
        let body = TurnBody::text(text.as_str()).encode();
        self.ended = self.process.world.books().sent(self.message, self.other, turn, message.pushed);
        let route = if message.pushed { Route::Push(chat(message.key)) } else { Route::Live };
        locked(watches).push(app.hub().watch_turn(key, turn, Keep::Yes, Arc::new(Quiet)));
        app.journal().enqueue(Enqueue {
            key: key.clone(),
            turn,
            source: Source::new("sim").expect("a short printable word"),
            message_id: message.id.clone(),
            route,
            body_hash: body_hash(&body),
            body: body.into(),
            retry_of: None,
        })
    }

    async fn follow(mut self, first: oneshot::Receiver<Enqueued>, app: Weak<App>, watches: Weak<Watches>) {
        let mut answer = first;
        for _ in 0..TRIES {
            // Without an answer it is not known whether the message was accepted.
            let Ok(enqueued) = answer.await else { return };
            let wait_ms = match &enqueued {
                Enqueued::Busy { retry_after_ms, .. } => *retry_after_ms,
                Enqueued::Quarantined { .. } => 10_000,
                Enqueued::Accepted { .. }
                | Enqueued::Duplicate { .. }
                | Enqueued::Conflict { .. }
                | Enqueued::Draining => u64::MAX,
            };
            self.process.note(|books| {
                books.answered(self.message, self.other, self.ended, &enqueued);
                books.check_order(&self.process.world.plan.keys[self.process.world.plan.messages[self.message].key]);
                format!("m{} other={} is answered: {}", self.message, self.other, tell(&enqueued))
            });
            if wait_ms == u64::MAX {
                return;
            }
            tokio::time::sleep(Duration::from_millis(wait_ms)).await;
            let (Some(app), Some(watches)) = (app.upgrade(), watches.upgrade()) else { return };
            answer = self.submit(&app, &watches);
        }
    }
}

/// Where answers of a session are pushed to. Two sessions may share a chat.
fn chat(key: usize) -> PushRoute {
    PushRoute { channel: NAME.into(), account: "a".into(), chat: format!("c{}", key % 2).into(), thread: None }
}

fn tell(answer: &Enqueued) -> String {
    match answer {
        Enqueued::Accepted { seq, position, state, .. } => {
            format!("accepted, {seq:?}, {position} before it, {state:?}")
        }
        Enqueued::Duplicate { state, .. } => format!("a repeat, {state:?}"),
        Enqueued::Conflict { .. } => "a conflict".to_owned(),
        Enqueued::Busy { why, .. } => format!("busy, {why:?}"),
        Enqueued::Quarantined { .. } => "quarantined".to_owned(),
        Enqueued::Draining => "draining".to_owned(),
    }
}

/// The file of a session's transcript.
pub fn transcript(key: &SessionKey) -> std::path::PathBuf {
    Path::new(HOME).join(format!("workspace/sessions/{}.jsonl", key.as_str().replace(':', ".")))
}
