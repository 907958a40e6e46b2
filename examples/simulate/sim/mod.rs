//! A simulation of the whole system: real actors on one thread under a paused clock, in a world that a seed makes.
//!
//! | file | what |
//! |---|---|
//! | `dice.rs`, `plan.rs` | pure: what a seed makes happen |
//! | `books.rs`, `whole.rs`, `receipts.rs`, `files.rs` | what was seen, and what must be true of it |
//! | `process.rs`, `outside.rs`, `doubles.rs` | the world of one process: clock, disk, pool, log, model, tools |
//! | `drive.rs`, `changes.rs`, `rules.rs` | the life of one process, and those who change its sessions |
//! | `work.rs`, `due.rs` | pure: jobs that are due at times, and when they are |
//! | `jobs.rs`, `following.rs` | what was seen of them, and those who change them |
//! | `family.rs` | what was seen of sub-agents |
//! | `handing.rs` | those who hand something in as a trigger |
//! | `telling.rs` | what is traced |
//! | `replay.rs`, `settle.rs` | what must be true of a log that was left, and at the end |
//!
//! **Invariant:** the same seed gives the same events, whatever else the machine does.

#[expect(clippy::wildcard_enum_match_arm, reason = "of many events, the invariants speak of a few")]
pub mod books;
mod changes;
mod counts;
mod dice;
mod doubles;
mod drive;
mod due;
#[expect(clippy::wildcard_enum_match_arm, reason = "of many entries, a few are about runs")]
mod family;
mod files;
mod following;
#[expect(clippy::wildcard_enum_match_arm, reason = "of many entries, messages are about what was handed in")]
mod handing;
#[expect(clippy::wildcard_enum_match_arm, reason = "of many events and entries, a few are about jobs")]
mod jobs;
mod joins;
mod outside;
pub mod plan;
mod process;
mod pusher;
#[expect(clippy::wildcard_enum_match_arm, reason = "of many events, two are about messages on their way out")]
mod receipts;
mod replay;
mod rules;
mod settle;
mod telling;
mod whole;
mod work;

use std::sync::Arc;

use supervision::memory::PowerCutDisk;
use supervision::planted::{Bug, plant};

pub use counts::Counts;
use drive::End;
pub use plan::WORK_FROM;
use process::World;

/// More processes than any plan can use up.
const PROCESSES_MAX: u32 = 200;

/// How a run went.
#[derive(Debug)]
pub struct Outcome {
    /// Its seed.
    pub seed: u64,
    /// What was wrong, if anything was.
    pub failure: Option<String>,
    /// Over all events.
    pub hash: u64,
    /// What was counted.
    pub counts: Counts,
    /// The events, if they were to be kept.
    pub trace: Vec<String>,
}

/// Runs a seed, with `bug` planted.
pub fn run(seed: u64, bug: Option<Bug>, trace: bool) -> Outcome {
    let world = World::new(seed, trace);
    let mut disk = PowerCutDisk::new();
    for number in 1.. {
        if number > PROCESSES_MAX {
            world.books().wrong(format!("{PROCESSES_MAX} processes were not enough"));
        }
        if world.books().failure.is_some() {
            break;
        }
        // Each process has a thread of its own: what a thread keeps goes with it.
        let (of, on) = (world.clone(), disk.clone());
        let lived = std::thread::spawn(move || {
            let _planted = plant(bug);
            live(&of, number, on)
        });
        match lived.join() {
            Ok(End::Left(left)) => disk = left,
            Ok(End::Over) => break,
            Err(panic) => {
                let text = panic.downcast_ref::<&str>().map(ToString::to_string);
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default();
                world.books().wrong(format!("process {number} panicked: {text}"));
            }
        }
    }
    let mut books = world.books();
    Outcome {
        seed,
        failure: books.failure.take(),
        hash: books.hash,
        counts: books.counts,
        trace: books.trace.take().unwrap_or_default(),
    }
}

/// Runs one process to its end, on a runtime of its own.
fn live(world: &Arc<World>, number: u32, disk: Arc<PowerCutDisk>) -> End {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build();
    match runtime {
        Ok(runtime) => tokio::task::LocalSet::new().block_on(&runtime, drive::process(world.clone(), number, disk)),
        Err(error) => {
            world.books().wrong(format!("no runtime: {error}"));
            End::Over
        }
    }
}
