//! The ports in memory, for tests and simulation: a disk whose power can be cut, a clock that is set by hand, seeded ids,
//! and blocking work that runs at once. Same seed, same run.

mod disk;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use uuid::Uuid;

pub use disk::{Fault, MemoryDisk, PowerCutDisk, SECTOR_BYTES};

use crate::ports::{Clock, Ids, Offload, Ports};
use crate::real::run_caught;

/// Ports over `disk`, `clock` and the ids of `seed`, with blocking work done inline.
pub fn memory_ports(disk: Arc<PowerCutDisk>, clock: Arc<dyn Clock>, seed: u64) -> Ports {
    Ports { disk, clock, ids: Arc::new(SeededIds::new(seed)), offload: Arc::new(InlineOffload) }
}

/// Wall time at which memory clocks begin: 2026-01-01T00:00:00Z, in microseconds.
const WALL_BEGIN_US: u64 = 1_767_225_600_000_000;

/// A clock that moves only when told to.
#[derive(Debug, Default)]
pub struct TestClock(AtomicU64);

impl TestClock {
    /// At zero, on the first of January 2026.
    pub fn new() -> Arc<Self> {
        Arc::default()
    }

    /// Moves both times on.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_micros()).unwrap_or(u64::MAX), Ordering::SeqCst);
    }
}

impl Clock for TestClock {
    fn mono(&self) -> Duration {
        Duration::from_micros(self.0.load(Ordering::SeqCst))
    }

    fn wall_us(&self) -> u64 {
        WALL_BEGIN_US + self.0.load(Ordering::SeqCst)
    }
}

/// Follows the clock of the tokio runtime that made it, which a test may have paused. Use it on that runtime only.
#[derive(Debug)]
pub struct RuntimeClock(tokio::time::Instant);

impl RuntimeClock {
    /// At zero, on the first of January 2026.
    #[expect(clippy::disallowed_methods, reason = "this is a clock that others ask")]
    pub fn new() -> Arc<Self> {
        Arc::new(Self(tokio::time::Instant::now()))
    }
}

impl Clock for RuntimeClock {
    fn mono(&self) -> Duration {
        self.0.elapsed()
    }

    fn wall_us(&self) -> u64 {
        WALL_BEGIN_US + u64::try_from(self.mono().as_micros()).unwrap_or(u64::MAX)
    }
}

/// Ids and random numbers that depend on the seed only.
#[derive(Debug)]
pub struct SeededIds {
    state: AtomicU64,
    millis: AtomicU64,
}

impl SeededIds {
    /// The sequence of `seed`.
    pub fn new(seed: u64) -> Self {
        Self { state: AtomicU64::new(seed), millis: AtomicU64::new(WALL_BEGIN_US / 1000) }
    }
}

impl Ids for SeededIds {
    fn uuid_v7(&self) -> Uuid {
        let millis = self.millis.fetch_add(1, Ordering::SeqCst);
        let mut random = [0; 10];
        for (to, from) in random.iter_mut().zip(self.random().to_le_bytes()) {
            *to = from;
        }
        uuid::Builder::from_unix_timestamp_millis(millis, &random).into_uuid()
    }

    fn random(&self) -> u64 {
        let state = self.state.fetch_add(0x9e37_79b9_7f4a_7c15, Ordering::SeqCst);
        mix(state.wrapping_add(0x9e37_79b9_7f4a_7c15))
    }
}

/// The output function of splitmix64.
fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// Runs each job at once, on the caller's thread.
#[derive(Debug, Clone, Copy)]
pub struct InlineOffload;

impl Offload for InlineOffload {
    fn run(&self, job: Box<dyn FnOnce() + Send>) {
        run_caught(job);
    }
}

#[cfg(test)]
mod tests;
