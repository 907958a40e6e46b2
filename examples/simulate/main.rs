//! Simulates the whole system under faults, seed by seed.
//!
//! `cargo run --release --example simulate -- --seeds 1000` tries fresh seeds; `--seed S --trace` shows what happens in
//! one. The last line is one JSON object; the exit code is 1 when a seed failed.

mod sim;

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Context;
use clap::Parser;
use serde::Serialize;
use sim::{Counts, Outcome, WORK_FROM};
use supervision::planted::Bug;

/// Simulates the whole system under faults.
#[derive(Parser)]
struct Arguments {
    /// Runs this seed only.
    #[arg(long)]
    seed: Option<u64>,
    /// How many seeds to run, from a random one on.
    #[arg(long, default_value_t = 1000)]
    seeds: u64,
    /// The first of them, in place of a random one.
    #[arg(long)]
    from: Option<u64>,
    /// Prints every event.
    #[arg(long)]
    trace: bool,
    /// How many seeds run at the same time.
    #[arg(long)]
    jobs: Option<usize>,
    /// Plants a bug, by its name: `AckBeforeSync`.
    #[arg(long)]
    bug: Option<String>,
}

/// The last line.
#[derive(Serialize)]
struct Report {
    seeds: u64,
    first: u64,
    failed: Vec<u64>,
    seconds: f64,
    /// Over the events of all seeds: equal for equal seeds.
    hash: String,
    #[serde(flatten)]
    counts: Counts,
}

fn main() -> anyhow::Result<std::process::ExitCode> {
    let arguments = Arguments::parse();
    // Fresh seeds have everything that can happen.
    let random = || WORK_FROM + u64::from(uuid_seed());
    let (first, seeds) = match arguments.seed {
        Some(seed) => (seed, 1),
        None => (arguments.from.unwrap_or_else(random), arguments.seeds),
    };
    println!("seeds {first} to {}", first + seeds.saturating_sub(1));
    let bug = arguments.bug.as_deref().map(bug_named).transpose()?;
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    let jobs = arguments.jobs.unwrap_or(cores).max(1);
    let began = began();
    let next = AtomicU64::new(0);
    let report = Mutex::new((Counts::default(), Vec::new(), 0_u64));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if at >= seeds {
                        return;
                    }
                    let outcome = sim::run(first + at, bug, arguments.trace);
                    let mut report = report.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    report.0.add(&outcome.counts);
                    report.2 ^= outcome.hash;
                    if tell(&outcome) {
                        report.1.push(outcome.seed);
                    }
                }
            });
        }
    });
    let (counts, mut failed, hash) = report.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    failed.sort_unstable();
    let failures = !failed.is_empty();
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{}",
        serde_json::to_string(&Report { seeds, first, failed, seconds, hash: format!("{hash:016x}"), counts })?
    );
    Ok(if failures { std::process::ExitCode::FAILURE } else { std::process::ExitCode::SUCCESS })
}

fn bug_named(name: &str) -> anyhow::Result<Bug> {
    let found = Bug::ALL.into_iter().find(|bug| format!("{bug:?}") == name);
    found.with_context(|| format!("there is no bug {name}; there are {:?}", Bug::ALL))
}

/// Prints what is to be told of a run; whether it failed.
fn tell(outcome: &Outcome) -> bool {
    for line in &outcome.trace {
        println!("{line}");
    }
    let Some(failure) = &outcome.failure else { return false };
    println!("seed {} failed: {failure}", outcome.seed);
    println!("  cargo run --release --example simulate -- --seed {} --trace", outcome.seed);
    true
}

#[expect(clippy::disallowed_methods, reason = "the run itself is timed, not what it simulates")]
fn began() -> Instant {
    Instant::now()
}

fn uuid_seed() -> u32 {
    use std::hash::{BuildHasher, Hasher};
    // The standard library seeds its hash maps at random.
    let bits = std::collections::hash_map::RandomState::new().build_hasher().finish();
    u32::try_from(bits >> 32).unwrap_or(0)
}
