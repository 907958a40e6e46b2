//! A year of virtual time in three zones, with processes that die at any moment.

use super::world::{HOUR, MINUTE, World, cron, every, file, job};
use super::*;
use crate::cron::schedule::Schedule;

/// 2026-01-01T00:00:00Z.
const BEGIN: u64 = 1_767_225_600_000;
const END: u64 = BEGIN + 365 * 24 * HOUR;

/// splitmix64.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (z ^ (z >> 31)) % bound
    }
}

fn schedules() -> Vec<(String, Schedule)> {
    let zones = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe"];
    let exprs = ["30 2 * * *", "15,45 1-2 * * *", "0 9 * * mon-fri"];
    let cron = zones.into_iter().enumerate().flat_map(|(zone, tz)| {
        exprs.into_iter().enumerate().map(move |(expr, text)| (format!("z{zone}e{expr}"), cron(text, tz)))
    });
    cron.chain([("every".to_owned(), every(7 * HOUR))]).collect()
}

/// Each moment that the schedules name in that year, told by walking through them without any process.
fn moments(dead: &[(u64, u64)]) -> Vec<(String, u64)> {
    let mut all = Vec::new();
    for (id, schedule) in schedules() {
        let timing = schedule.timing(&super::world::zones()).unwrap();
        let mut at = BEGIN;
        while let Some(next) = timing.next_after(at).filter(|next| *next <= END) {
            if !dead.iter().any(|(from, to)| (*from..*to).contains(&next)) {
                all.push((id.clone(), next));
            }
            at = next;
        }
    }
    all.sort();
    all
}

/// Runs the year; the times at which nobody was there come back.
fn year(seed: u64, missed: &str) -> (World, Vec<(u64, u64)>) {
    let mut dice = Dice(seed);
    let mut disk = file([]);
    for (id, schedule) in schedules() {
        let mut one = job(&id, schedule.clone(), Some(missed));
        one["state"]["nextRunAtMs"] = schedule.timing(&super::world::zones()).unwrap().next_after(BEGIN).into();
        disk.jobs.extend(file([one]).jobs);
    }
    let mut world = World::new(disk);
    let mut dead = Vec::new();
    world.now_ms = BEGIN;
    world.start();
    while world.now_ms < END {
        // Runs end before anything else is due, and at last in the order in which they were begun.
        for job in world.running() {
            world.end(&job, RunStatus::Ok, None);
        }
        match dice.below(40) {
            // It dies, perhaps with the last saves, and is away for a while.
            0 => {
                let from = world.now_ms;
                world.crash();
                world.lose_saves = false;
                world.now_ms += 1 + dice.below(5 * HOUR);
                dead.push((from + 1, world.now_ms + 1));
                world.start();
            }
            1 => world.lose_saves = true,
            // The clock is put back, and comes again.
            2 => world.now_ms = world.now_ms.saturating_sub(dice.below(90 * MINUTE)).max(BEGIN),
            3 => world.refuse = Some(1000),
            4 => world.read(),
            _ => {
                world.refuse = None;
                let wake = world.scheduler.wake_ms().unwrap_or(world.now_ms + HOUR);
                world.now_ms = world.now_ms.max(wake.min(world.now_ms + 6 * HOUR));
                world.tick();
            }
        }
        // What is saved is not lost for long: a process saves again with its next change.
        world.lose_saves = world.lose_saves && dice.below(3) > 0;
    }
    (world, dead)
}

#[test]
fn each_moment_of_a_year_is_used_once_whatever_dies() {
    let all = moments(&[]);
    assert!(all.len() > 7000);
    let (world, _) = year(7, "all");
    let used: Vec<_> = world.accepted().into_iter().filter(|(_, due)| *due <= END).collect();
    let lacks: Vec<_> =
        all.iter().filter(|moment| moment.1 < END - 6 * HOUR && used.binary_search(moment).is_err()).collect();
    assert!(lacks.is_empty(), "{lacks:?}");
    let odd: Vec<_> = used.iter().filter(|moment| all.binary_search(moment).is_err()).collect();
    assert!(odd.is_empty(), "{odd:?}");
}

#[test]
fn without_making_up_for_it_each_moment_at_which_a_process_runs_is_used_once() {
    let (world, dead) = year(7, "skip");
    assert!(dead.len() > 20);
    let used: Vec<_> = world.accepted().into_iter().filter(|(id, due)| *due <= END && id != "every").collect();
    let all: Vec<_> = moments(&[]).into_iter().filter(|(id, _)| id != "every").collect();
    let odd: Vec<_> = used.iter().filter(|moment| all.binary_search(moment).is_err()).collect();
    assert!(odd.is_empty(), "{odd:?}");
    let alive = moments(&dead);
    let lacks: Vec<_> = alive
        .iter()
        .filter(|(id, due)| id != "every" && *due < END - 6 * HOUR)
        .filter(|moment| used.binary_search(moment).is_err())
        .collect();
    assert!(lacks.is_empty(), "{lacks:?}");
}
