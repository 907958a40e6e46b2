//! Where actors run: arbiters in production, the current thread in tests.

use std::io;
use std::sync::{Mutex, PoisonError};

use actix_rt::{Arbiter, ArbiterHandle};
use domain::ids::SessionKey;
use tokio::sync::mpsc;

use crate::panic::fnv1a;

/// Blocking threads of an arbiter's own runtime. Blocking work goes to the offload port, so this stays small.
const ARBITER_BLOCKING_THREADS_MAX: usize = 2;

/// Runs jobs on numbered arbiters.
pub trait Placement: Send + Sync {
    /// How many there are; at least one.
    fn arbiters(&self) -> usize;
    /// Runs `job` on an arbiter, `index` modulo their number. Returns at once. A job for an arbiter that has ended is
    /// dropped.
    fn run_on(&self, index: usize, job: Box<dyn FnOnce() + Send>);
}

/// The arbiter that owns a session: the same in every process.
pub fn shard_of(key: &SessionKey, arbiters: usize) -> usize {
    let hash = fnv1a(key.as_str().as_bytes());
    // FNV's low bits are weak for short keys; fold the high half in.
    let mixed = (hash ^ (hash >> 32)) % arbiters.max(1) as u64;
    usize::try_from(mixed).unwrap_or(0)
}

/// One thread per arbiter.
#[derive(Debug)]
pub struct ArbiterPlacement {
    handles: Vec<ArbiterHandle>,
    arbiters: Mutex<Vec<Arbiter>>,
}

impl ArbiterPlacement {
    /// Starts `n` arbiters (at least one).
    ///
    /// # Panics
    /// Outside of an actix system.
    pub fn new(n: usize) -> io::Result<Self> {
        let arbiters = (0..n.max(1)).map(|_| Arbiter::try_with_tokio_rt(runtime)).collect::<io::Result<Vec<_>>>()?;
        Ok(Self { handles: arbiters.iter().map(Arbiter::handle).collect(), arbiters: Mutex::new(arbiters) })
    }

    /// Stops the arbiters and waits for their threads: every actor on them is dropped when this returns. Blocks.
    pub fn stop_and_join(&self) {
        let arbiters = std::mem::take(&mut *self.arbiters.lock().unwrap_or_else(PoisonError::into_inner));
        for arbiter in &arbiters {
            arbiter.stop();
        }
        for arbiter in arbiters {
            if arbiter.join().is_err() {
                tracing::error!(target: "supervision", "an arbiter's thread panicked");
            }
        }
    }
}

fn runtime() -> io::Result<tokio::runtime::Runtime> {
    tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(ARBITER_BLOCKING_THREADS_MAX)
        .build()
}

impl Placement for ArbiterPlacement {
    fn arbiters(&self) -> usize {
        self.handles.len()
    }

    fn run_on(&self, index: usize, job: Box<dyn FnOnce() + Send>) {
        // False when the arbiter has ended: the job is dropped, and with it whatever it would have started.
        let _ = self.handles[index % self.handles.len()].spawn_fn(job);
    }
}

/// Everything on the thread that made it, as `n` arbiters or one: paused clocks and seeded runs.
#[derive(Debug)]
pub struct LocalPlacement {
    arbiters: usize,
    jobs: mpsc::UnboundedSender<Job>,
}

struct Job(Box<dyn FnOnce() + Send>);

impl std::fmt::Debug for Job {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Job")
    }
}

impl LocalPlacement {
    /// One arbiter: the current `LocalSet` or actix system, on which it must be called.
    pub fn new() -> Self {
        Self::with_arbiters(1)
    }

    /// Pretends to be `n` arbiters.
    pub fn with_arbiters(n: usize) -> Self {
        let (jobs, mut queue) = mpsc::unbounded_channel::<Job>();
        actix_rt::spawn(async move {
            while let Some(Job(job)) = queue.recv().await {
                job();
            }
        });
        Self { arbiters: n.max(1), jobs }
    }
}

impl Default for LocalPlacement {
    fn default() -> Self {
        Self::new()
    }
}

impl Placement for LocalPlacement {
    fn arbiters(&self) -> usize {
        self.arbiters
    }

    fn run_on(&self, _: usize, job: Box<dyn FnOnce() + Send>) {
        // The thread may have ended; so have its actors.
        let _ = self.jobs.send(Job(job));
    }
}
