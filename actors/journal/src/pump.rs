//! Turns the engine: on a thread of its own, or by whoever makes a call.

use std::collections::VecDeque;
use std::io;
use std::sync::mpsc::{self, RecvTimeoutError, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError, Weak};

use supervision::ports::Offload;

use prometheus_client::metrics::gauge::Gauge;
use protocol::metrics::{ByState, Metrics};

use crate::call::Call;
use crate::engine::{Engine, PROBE_INTERVAL};

/// The way into the thread's queue, with the number of calls that wait there.
#[derive(Clone)]
pub struct Inlet {
    to: mpsc::Sender<Call>,
    waiting: Gauge,
}

impl Inlet {
    /// To the thread that takes from the other end.
    pub fn new(to: mpsc::Sender<Call>, metrics: &Metrics) -> Self {
        Self { to, waiting: metrics.work.journal_calls.get_or_create_owned(&ByState { state: "queue" }) }
    }

    fn send(&self, call: Call) -> Result<(), Box<Call>> {
        self.waiting.inc();
        self.to.send(call).map_err(|mpsc::SendError(call)| {
            self.waiting.dec();
            Box::new(call)
        })
    }
}

/// The way into the engine's queue for work that it started elsewhere.
#[derive(Clone)]
pub enum Post {
    /// To the thread.
    Thread(Inlet),
    /// To the local form.
    Local(Weak<Local>),
}

impl Post {
    /// Puts a result into the queue; when the engine is gone nobody needs it.
    pub fn post(&self, call: Call) {
        match self {
            Self::Thread(to) => drop(to.send(call)),
            Self::Local(to) => {
                if let Some(local) = to.upgrade() {
                    local.post(call);
                }
            }
        }
    }
}

/// A running engine.
pub enum Pump {
    /// On a thread of its own.
    Thread(Inlet),
    /// Turned by its callers.
    Local(Arc<Local>),
}

/// The engine without a thread: each call asks the pool to turn it, and whoever finds it free does so until the queue is
/// empty. Where the pool works in place, that is the caller.
pub struct Local {
    me: Weak<Self>,
    pool: Arc<dyn Offload>,
    queue: Mutex<VecDeque<Call>>,
    engine: Mutex<Option<Engine>>,
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Nothing that holds these locks leaves half a change behind: a panic there is a bug that surfaces by itself.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Pump {
    /// Starts the thread.
    pub fn thread(make: Box<dyn FnOnce(Post) -> Engine + Send>, metrics: &Metrics) -> io::Result<Self> {
        let (to, calls) = mpsc::channel();
        let post = Inlet::new(to, metrics);
        let waiting = post.waiting.clone();
        let own = Post::Thread(post.clone());
        std::thread::Builder::new().name("journal".to_owned()).spawn(move || run(make(own), &calls, &waiting))?;
        Ok(Self::Thread(post))
    }

    /// Makes the local form.
    pub fn local(make: Box<dyn FnOnce(Post) -> Engine + Send>, pool: Arc<dyn Offload>) -> Self {
        let local = Arc::new_cyclic(|me: &Weak<Local>| Local {
            me: me.clone(),
            pool,
            queue: Mutex::default(),
            engine: Mutex::new(None),
        });
        let engine = make(Post::Local(Arc::downgrade(&local)));
        *locked(&local.engine) = Some(engine);
        local.turn();
        Self::Local(local)
    }

    /// Puts a call into the queue; gives it back when the engine is closed.
    pub fn post(&self, call: Call) -> Result<(), Box<Call>> {
        match self {
            Self::Thread(to) => to.send(call),
            Self::Local(local) => {
                local.post(call);
                Ok(())
            }
        }
    }
}

impl Local {
    fn post(&self, call: Call) {
        locked(&self.queue).push_back(call);
        if let Some(me) = self.me.upgrade() {
            self.pool.run(Box::new(move || me.turn()));
        }
    }

    /// A call made while the engine turns (by the sink, or by work that runs in place) only joins the queue: the
    /// outer turn takes it. Looking at the queue again after letting the engine go closes the gap between the two.
    fn turn(&self) {
        while !locked(&self.queue).is_empty() {
            let mut engine = match self.engine.try_lock() {
                Ok(engine) => engine,
                Err(TryLockError::WouldBlock) => return,
                Err(TryLockError::Poisoned(broken)) => {
                    if let Some(mut engine) = broken.into_inner().take() {
                        engine.fail("the journal panicked");
                    }
                    return;
                }
            };
            let Some(running) = engine.as_mut() else { return };
            loop {
                let calls = std::mem::take(&mut *locked(&self.queue));
                if calls.is_empty() {
                    break;
                }
                for call in calls {
                    running.take(call);
                    if running.batch_is_full() {
                        running.turn();
                    }
                }
                running.turn();
                while running.has_work() {
                    running.turn();
                }
            }
        }
    }
}

fn run(mut engine: Engine, calls: &mpsc::Receiver<Call>, waiting: &Gauge) {
    while !engine.ended() {
        let first = if engine.has_work() {
            Call::Tick
        } else if engine.waits_for_space() {
            match calls.recv_timeout(PROBE_INTERVAL) {
                Ok(call) => taken(call, waiting),
                Err(RecvTimeoutError::Timeout) => Call::Tick,
                Err(RecvTimeoutError::Disconnected) => return,
            }
        } else {
            match calls.recv() {
                Ok(call) => taken(call, waiting),
                Err(mpsc::RecvError) => return,
            }
        };
        engine.take(first);
        while !engine.batch_is_full() {
            match calls.try_recv() {
                Ok(call) => engine.take(taken(call, waiting)),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => break,
            }
        }
        engine.turn();
    }
    // Whatever came after the close is answered, not dropped.
    for call in calls.try_iter() {
        Engine::refuse(taken(call, waiting), "the journal is closed");
    }
}

fn taken(call: Call, waiting: &Gauge) -> Call {
    waiting.dec();
    call
}
