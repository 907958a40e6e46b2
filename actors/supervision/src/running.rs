//! Which actor a thread is running right now, so that whoever finds the thread blocked can say by whom.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

/// Nobody.
const IDLE: u64 = 0;
/// Marks a label instead of an actor.
const LABEL: u64 = 1 << 63;

static LABELS: Mutex<Vec<Arc<str>>> = Mutex::new(Vec::new());

thread_local! {
    static RUNNING: Arc<AtomicU64> = Arc::default();
}

/// What a thread runs, for others to read.
#[derive(Debug, Clone)]
pub(crate) struct Running(Arc<AtomicU64>);

/// Who was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Found {
    /// None that says so.
    Nobody,
    /// The actor with this birth number.
    Actor(u64),
    /// Work with this name.
    Work(Arc<str>),
}

impl Running {
    /// Of the calling thread.
    pub fn here() -> Self {
        Self(RUNNING.with(Arc::clone))
    }

    /// Who it is.
    pub fn look(&self) -> Found {
        let value = self.0.load(Ordering::Relaxed);
        if value == IDLE {
            return Found::Nobody;
        }
        if value & LABEL == 0 {
            return Found::Actor(value - 1);
        }
        let labels = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(value & !LABEL).unwrap_or(usize::MAX);
        labels.get(at).map_or(Found::Nobody, |label| Found::Work(Arc::clone(label)))
    }
}

/// Runs `work` as the actor with this birth number.
pub(crate) fn as_actor<T>(birth: u64, work: impl FnOnce() -> T) -> T {
    mark(birth + 1, work)
}

fn mark<T>(value: u64, work: impl FnOnce() -> T) -> T {
    // The thread may be ending.
    let before = RUNNING.try_with(|running| running.swap(value, Ordering::Relaxed)).unwrap_or(IDLE);
    let result = work();
    let _ = RUNNING.try_with(|running| running.store(before, Ordering::Relaxed));
    result
}

/// A name for work that is no actor's, for example the calls of a tool. Make one for each kind of work, once: they are
/// kept for ever.
#[derive(Debug, Clone, Copy)]
pub struct Label(u64);

impl Label {
    /// A new one; the same name twice is one label.
    pub fn new(name: &str) -> Self {
        let mut labels = LABELS.lock().unwrap_or_else(PoisonError::into_inner);
        let at = labels.iter().position(|label| &**label == name).unwrap_or_else(|| {
            labels.push(name.into());
            labels.len() - 1
        });
        Self(LABEL | at as u64)
    }

    /// Runs `work`, which must not panic, under this name.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        mark(self.0, work)
    }
}
