//! Who may work on the transcript file: one job at a time, and only jobs of the session's present life. A job that was
//! stuck in an earlier one must not touch what has become of the file since.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

/// The gate to one transcript file.
#[derive(Debug, Default)]
pub(super) struct Gate {
    life: AtomicU32,
    held: Mutex<()>,
}

/// The right to work on the file.
pub(super) struct Turn<'a>(#[expect(dead_code, reason = "held")] MutexGuard<'a, ()>);

// === impl Gate ===

impl Gate {
    /// Waits for the job that is at work. `None` for a life that has ended. Blocks.
    pub fn enter(&self, life: u32) -> Option<Turn<'_>> {
        let held = self.held.lock().unwrap_or_else(PoisonError::into_inner);
        (self.life.load(Ordering::Acquire) == life).then_some(Turn(held))
    }

    /// Begins a new life, which is returned. The job that is at work, if any, goes on to its end.
    pub fn begin_life(&self) -> u32 {
        self.life.fetch_add(1, Ordering::AcqRel).wrapping_add(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn jobs_of_an_earlier_life_are_turned_away() {
        let gate = Gate::default();
        assert!(gate.enter(0).is_some());
        let second = gate.begin_life();
        assert!(gate.enter(0).is_none());
        assert!(gate.enter(second).is_some(), "who was turned away holds nothing");
    }
}
