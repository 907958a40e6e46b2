//! The watchdog: a thread of its own that finds arbiters which do not come back to their queues, and looks at the memory.
//!
//! An arbiter is blocked when a job that was given to it has not run for [`BLOCKED_AFTER`]: some actor or tool holds its
//! thread, and all others on it wait. Nothing can be done about that from outside but to say so, and by whom.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use protocol::supervision::{ActorPath, Event, EventName, Kind};

use crate::placement::Placement;
use crate::pressure::{Level, Pressure, next};
use crate::running::{Found, Running};
use crate::spawn::Kernel;

/// Between two looks.
const LOOK_EVERY: Duration = Duration::from_millis(500);
/// How long an arbiter may take to come back.
pub const BLOCKED_AFTER: Duration = Duration::from_secs(2);

/// The memory of this process.
pub struct Memory {
    /// What others read.
    pub pressure: Arc<Pressure>,
    /// Bytes in use; `None` when it cannot be told.
    pub used: Box<dyn Fn() -> Option<u64> + Send>,
    /// Bytes that it may use.
    pub limit: u64,
}

/// The running thread.
pub struct Watch {
    stop: Mutex<Option<Sender<()>>>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

// === impl Watch ===

impl Watch {
    /// Starts it.
    pub fn start(kernel: Kernel, placement: Arc<dyn Placement>, memory: Memory) -> std::io::Result<Self> {
        let (stop, stopped) = channel();
        let arbiters: Vec<Arbiter> = (0..placement.arbiters()).map(|_| Arbiter::default()).collect();
        for (at, arbiter) in arbiters.iter().enumerate() {
            let running = Arc::clone(&arbiter.running);
            placement.run_on(
                at,
                Box::new(move || {
                    running.get_or_init(Running::here);
                }),
            );
        }
        let watcher = Watcher { kernel, placement, memory, arbiters, told: None };
        let thread = std::thread::Builder::new().name("greenroom-watch".to_owned());
        let thread = thread.spawn(move || watcher.watch(&stopped))?;
        Ok(Self { stop: Mutex::new(Some(stop)), thread: Mutex::new(Some(thread)) })
    }

    /// Ends it. Blocks for a moment.
    pub fn stop(&self) {
        drop(self.stop.lock().unwrap_or_else(PoisonError::into_inner).take());
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if thread.is_some_and(|thread| thread.join().is_err()) {
            tracing::error!(target: "supervision", "the watchdog panicked");
        }
    }
}

struct Watcher {
    kernel: Kernel,
    placement: Arc<dyn Placement>,
    memory: Memory,
    arbiters: Vec<Arbiter>,
    /// The event that told of high memory.
    told: Option<String>,
}

#[derive(Default)]
struct Arbiter {
    /// What its thread runs; known once it has run its first job.
    running: Arc<OnceLock<Running>>,
    /// The job that it was given last: since when, and whether it has run.
    asked: Option<(Duration, Arc<AtomicBool>)>,
    /// Blocked; the event that told so.
    blocked: Option<String>,
}

// === impl Watcher ===

impl Watcher {
    fn watch(mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(LOOK_EVERY) == Err(RecvTimeoutError::Timeout) {
            for at in 0..self.arbiters.len() {
                self.look(at);
            }
            self.look_at_memory();
        }
    }

    fn look(&mut self, at: usize) {
        let now = self.kernel.ports().clock.mono();
        let Some(arbiter) = self.arbiters.get_mut(at) else { return };
        let waits = match &arbiter.asked {
            Some((since, ran)) if !ran.load(Ordering::Acquire) => Some(now.saturating_sub(*since)),
            Some(_) | None => None,
        };
        if let Some(waits) = waits {
            if waits >= BLOCKED_AFTER && arbiter.blocked.is_none() {
                let found = arbiter.running.get().map_or(Found::Nobody, Running::look);
                let id = self.blocked(at, waits, &found);
                if let Some(arbiter) = self.arbiters.get_mut(at) {
                    arbiter.blocked = Some(id);
                }
            }
            return;
        }
        let ran = Arc::<AtomicBool>::default();
        arbiter.asked = Some((now, Arc::clone(&ran)));
        let cause = arbiter.blocked.take();
        self.placement.run_on(at, Box::new(move || ran.store(true, Ordering::Release)));
        if cause.is_some() {
            self.kernel.metrics().arbiters_blocked.dec();
            let mut event = arbiter_event(EventName::ArbiterFreed, at);
            event.cause = cause;
            self.kernel.log().record(event);
        }
    }

    fn blocked(&self, at: usize, waits: Duration, found: &Found) -> String {
        let who = match found {
            Found::Nobody => "something that is no actor".to_owned(),
            Found::Work(name) => name.to_string(),
            Found::Actor(birth) => self
                .kernel
                .monitors()
                .path_of(*birth)
                .map_or("an actor that has ended".to_owned(), |path| path.to_string()),
        };
        self.kernel.metrics().arbiters_blocked.inc();
        let mut event = arbiter_event(EventName::ArbiterBlocked, at);
        event.reason = Some(format!("its thread has been held for {} s by {who}", waits.as_secs()));
        event.verdict = Some("all sessions on it wait".to_owned());
        self.kernel.log().record(event)
    }

    fn look_at_memory(&mut self) {
        let Some(used) = (self.memory.used)() else { return };
        let before = self.memory.pressure.level();
        let level = next(before, used, self.memory.limit);
        if level == before {
            return;
        }
        self.memory.pressure.set(level);
        let (name, gauge, verdict) = match level {
            Level::Calm => (EventName::MemoryCalm, 0, "everything is taken again"),
            Level::High => (EventName::MemoryHigh, 1, "idle sessions leave"),
            Level::Refusing => (EventName::MemoryHigh, 2, "idle sessions leave, new messages are refused"),
        };
        self.kernel.metrics().memory_pressure.set(gauge);
        let mut event = Event::new(name, ActorPath("/".into()), Kind::Registry);
        event.reason = Some(format!("{} of {} MiB are in use", used >> 20, self.memory.limit >> 20));
        event.verdict = Some(verdict.to_owned());
        event.cause = self.told.take();
        let id = self.kernel.log().record(event);
        self.told = (level != Level::Calm).then_some(id);
    }
}

fn arbiter_event(name: EventName, at: usize) -> Event {
    Event::new(name, ActorPath(format!("/registry/{at}").into()), Kind::Registry)
}
