//! The simulation of the whole system (`examples/simulate`): on fixed seeds, on seeds that failed once, and with bugs
//! planted, each of which it has to find.

#[path = "../../examples/simulate/sim/mod.rs"]
mod sim;

use sim::plan::{CHANGES_FROM, QUEUES_FROM, RULES_FROM};
use sim::{Counts, WORK_FROM};
use supervision::planted::Bug;

/// Seeds that failed once, one a line.
const FAILED_ONCE: &str = include_str!("simulation/seeds.txt");

/// Runs a seed that should pass.
fn passes(seed: u64) -> Counts {
    let outcome = sim::run(seed, None, false);
    let again = format!("cargo run --release --example simulate -- --seed {} --trace", outcome.seed);
    assert_eq!(outcome.failure, None, "{again}");
    outcome.counts
}

#[test]
fn nothing_is_lost_or_doubled_under_the_faults_of_fixed_seeds() {
    let mut counts = Counts::default();
    for seed in 1..=40 {
        counts.add(&passes(seed));
    }
    // A simulation in which nothing goes wrong would show nothing.
    let rare = [counts.kills, counts.power_cuts, counts.crashes, counts.dead, counts.cancelled, counts.duplicates];
    let rare = rare.into_iter().chain([counts.receipts, counts.repeats, counts.undeliverable]).collect::<Vec<_>>();
    assert!(rare.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn edits_and_ends_of_sessions_lose_nothing_under_the_faults_of_fixed_seeds() {
    let mut counts = Counts::default();
    for seed in CHANGES_FROM..CHANGES_FROM + 40 {
        counts.add(&passes(seed));
    }
    let rare = [counts.kills, counts.power_cuts, counts.edits, counts.forks, counts.closes, counts.restores];
    assert!(rare.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn messages_that_come_while_turns_run_stand_once_in_every_mode_under_the_faults_of_fixed_seeds() {
    let mut counts = Counts::default();
    for seed in QUEUES_FROM..QUEUES_FROM + 60 {
        counts.add(&passes(seed));
    }
    let rare = [counts.joined, counts.kills, counts.power_cuts, counts.crashes, counts.cancelled, counts.refusals];
    assert!(rare.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn rules_of_queues_that_change_while_sessions_run_lose_nothing_under_the_faults_of_fixed_seeds() {
    let mut counts = Counts::default();
    for seed in RULES_FROM..RULES_FROM + 40 {
        counts.add(&passes(seed));
    }
    let rare = [counts.queues_set, counts.joined, counts.kills, counts.power_cuts, counts.crashes, counts.cancelled];
    assert!(rare.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn jobs_triggers_and_sub_agents_are_told_of_once_under_the_faults_of_fixed_seeds() {
    let mut counts = Counts::default();
    for seed in WORK_FROM..WORK_FROM + 5 {
        counts.add(&passes(seed));
    }
    let rare = [
        counts.jobs_run,
        counts.handed_in,
        counts.runs,
        counts.reports,
        counts.kills,
        counts.power_cuts,
        counts.crashes,
    ];
    assert!(rare.iter().all(|count| *count > 0), "{counts:?}");
}

#[test]
fn seeds_that_failed_once_pass() {
    let seeds: Vec<u64> =
        FAILED_ONCE.lines().filter(|line| !line.starts_with('#')).map(|line| line.trim().parse().unwrap()).collect();
    assert!(!seeds.is_empty());
    for seed in seeds {
        passes(seed);
    }
}

#[test]
fn the_same_seed_gives_the_same_events() {
    for seed in [3, 7] {
        let first = sim::run(seed, None, true);
        assert!(first.counts.events > 50 && first.counts.events == first.trace.len() as u64);
        for _ in 0..2 {
            let again = sim::run(seed, None, true);
            let differs = first.trace.iter().zip(&again.trace).find(|(first, again)| first != again);
            assert_eq!(differs, None, "seed {seed}");
            assert_eq!(first.hash, again.hash, "seed {seed}");
        }
    }
    assert_ne!(sim::run(3, None, false).hash, sim::run(7, None, false).hash);
}

/// Each bug with a seed that finds it today, and how many may be tried from there when the code has changed.
const PLANTED: [(Bug, u64, u64); 16] = [
    (Bug::AckBeforeSync, 12, 40),
    (Bug::NoFsync, 4, 20),
    (Bug::NoDirSync, 731, 600),
    (Bug::NoChecksum, 44, 60),
    (Bug::UnsyncedView, 5, 40),
    (Bug::NoViewRepair, 1, 20),
    (Bug::NoDedupe, 1, 10),
    (Bug::LostPoke, 1, 20),
    (Bug::NaivePassivation, 381, 200),
    (Bug::NewestFirst, 2, 10),
    (Bug::ToolRerun, 14, 20),
    (Bug::DoubleReply, 1, 20),
    (Bug::ForgottenCrashes, 7, 60),
    (Bug::EarlyDelete, CHANGES_FROM + 16, 60),
    (Bug::ForgottenMove, CHANGES_FROM + 11, 60),
    (Bug::FreshMoment, WORK_FROM + 1, 60),
];

#[test]
fn each_planted_bug_is_found_and_the_same_seed_passes_without_it() {
    assert!(Bug::ALL.iter().all(|bug| PLANTED.iter().any(|(listed, ..)| listed == bug)));
    for (bug, first, within) in PLANTED {
        let found = (first..first + within).find(|seed| sim::run(*seed, Some(bug), false).failure.is_some());
        let Some(seed) = found else { panic!("{bug:?} is not found by {within} seeds from {first} on") };
        passes(seed);
    }
}
