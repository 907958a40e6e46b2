mod commands;
mod world;
mod year;

use serde_json::json;

use super::*;
use crate::cron::job::{HISTORY_MAX, Running};
use crate::cron::schedule::Schedule;
use world::{HOUR, MINUTE, NOW, World, cron, every, file, job, zones};

/// Of the only job, after the file was read: enabled, next, last error, length of the history.
fn begun(job: serde_json::Value) -> (bool, Option<u64>, Option<String>, usize) {
    let mut world = World::new(file([job]));
    world.start();
    let job = world.job();
    (job.enabled, job.state.next_run_at_ms, job.state.last_error.clone(), job.state.run_history.len())
}

#[test]
fn what_a_process_that_begins_makes_of_the_next_moment() {
    let with = |schedule: serde_json::Value, missed: &str, state: serde_json::Value| {
        begun(json!({"id": "a", "name": "a", "schedule": schedule, "payload": {"sessionKey": "cli:x"}, "state": state, "missed": missed})).1
    };
    let hourly = json!({"kind": "every", "everyMs": HOUR});
    let daily = json!({"kind": "cron", "expr": "0 9 * * *"});
    let at = |ms: u64| json!({"kind": "at", "atMs": ms});
    let next = |ms: u64| json!({"nextRunAtMs": ms});
    let nine = NOW + HOUR;
    // Never due before; as others left it; what passed is missed.
    assert_eq!(with(hourly.clone(), "skip", json!({})), Some(NOW + HOUR));
    assert_eq!(with(hourly.clone(), "skip", next(NOW + 5)), Some(NOW + 5));
    assert_eq!(with(hourly.clone(), "skip", next(NOW - 5)), Some(NOW + HOUR));
    assert_eq!(with(hourly.clone(), "skip", next(NOW + 2 * HOUR)), Some(NOW + HOUR));
    assert_eq!(with(daily.clone(), "skip", next(NOW - 5)), Some(nine));
    assert_eq!(with(daily.clone(), "skip", json!({"nextRunAtMs": nine, "lastDueMs": nine})), Some(nine + 24 * HOUR));
    assert_eq!(with(at(NOW + 5), "skip", json!({})), Some(NOW + 5));
    assert_eq!(with(at(NOW - 5), "skip", next(NOW - 5)), None);
    assert_eq!(with(at(NOW + 5), "skip", json!({"lastDueMs": NOW + 5})), None);
    // A moment that is not one of the schedule is not made up for.
    assert_eq!(with(daily, "once", next(NOW - 5)), Some(nine));
    assert_eq!(with(at(NOW + 5), "once", next(NOW + 9)), Some(NOW + 5));
    // Off, of a program, or not to be followed.
    let base = json!({"id": "a", "name": "a", "schedule": hourly, "payload": {"sessionKey": "cli:x"}, "state": {"nextRunAtMs": 7}});
    let changed = |name: &str, value: serde_json::Value| {
        let mut job = base.clone();
        job[name] = value;
        begun(job)
    };
    assert_eq!(changed("enabled", json!(false)), (false, Some(7), None, 0));
    assert_eq!(changed("payload", json!({"kind": "system_event"})), (true, Some(7), None, 0));
    assert_eq!(changed("schedule", json!({"kind": "cron", "expr": "61 * * * *"})), (true, None, None, 0));
}

#[test]
fn a_moment_is_used_once_and_its_run_recorded() {
    let mut world = World::new(file([job("a", every(HOUR), None)]));
    world.start();
    assert_eq!(world.fired(), []);
    world.advance(HOUR - 1);
    assert_eq!(world.fired(), []);
    world.advance(1);
    assert_eq!(world.fired(), [("a", NOW + HOUR)]);
    world.advance(MINUTE);
    world.end("a", RunStatus::Ok, None);
    let state = &world.job().state;
    assert_eq!(state.next_run_at_ms, Some(NOW + 2 * HOUR));
    let run = state.run_history.last().unwrap();
    assert_eq!((run.run_at_ms, run.duration_ms, run.status), (NOW + HOUR, MINUTE, RunStatus::Ok));
    assert_eq!((&run.run_id, &state.running), (&Some(world.turn("a", NOW + HOUR).to_string()), &None));
    assert_eq!(world.on_disk(), world.scheduler.file());
}

#[test]
fn a_run_that_goes_on_is_not_joined_by_another() {
    let mut world = World::new(file([job("a", every(HOUR), None), job("b", every(HOUR), None)]));
    world.start();
    world.advance(HOUR);
    assert_eq!(world.fired(), [("a", NOW + HOUR), ("b", NOW + HOUR)]);
    world.end("b", RunStatus::Error, Some("no network"));
    for entry in &mut world.scheduler.entries {
        entry.job.timeout_ms = Some(24 * HOUR);
    }
    for _ in 0..3 {
        world.advance(HOUR);
    }
    let history: Vec<_> = world
        .job()
        .state
        .run_history
        .iter()
        .map(|run| (run.run_at_ms, run.error.clone(), run.extra.get("times").cloned()))
        .collect();
    assert_eq!(history, [(NOW + 4 * HOUR, Some("the run before had not ended".to_owned()), Some(json!(3)))]);
    assert_eq!(world.fired(), [("b", NOW + 2 * HOUR)], "the other one is not held up");
    world.end("a", RunStatus::Ok, None);
    world.advance(HOUR);
    assert_eq!(world.fired().first(), Some(&("a", NOW + 5 * HOUR)));
}

#[test]
fn what_was_missed_is_skipped_made_up_for_once_or_each() {
    for (missed, expect) in [
        (None, vec![NOW + 5 * HOUR]),
        (Some("once"), vec![NOW + HOUR, NOW + 5 * HOUR]),
        (Some("all"), vec![NOW + HOUR, NOW + 2 * HOUR, NOW + 3 * HOUR, NOW + 4 * HOUR, NOW + 5 * HOUR]),
    ] {
        // The clock jumps; and the process is gone for that time.
        for gone in [false, true] {
            let mut world = World::new(file([job("a", every(HOUR), missed)]));
            world.start();
            if gone {
                world.crash();
            }
            world.now_ms += 4 * HOUR + MINUTE * 30;
            let mut fired = Vec::new();
            if gone {
                world.start();
            }
            world.tick();
            loop {
                fired.extend(world.fired().into_iter().map(|(_, due)| due));
                if !world.running().is_empty() {
                    world.end("a", RunStatus::Ok, None);
                } else if let Some(wake) = world.scheduler.wake_ms().filter(|wake| *wake < NOW + 6 * HOUR) {
                    world.advance(wake.saturating_sub(world.now_ms));
                } else {
                    break;
                }
            }
            // A process that begins counts anew what it does not make up for.
            let expect = if gone && missed.is_none() { vec![NOW + 5 * HOUR + 30 * MINUTE] } else { expect.clone() };
            assert_eq!(fired, expect, "{missed:?}, gone: {gone}");
        }
    }
}

#[test]
fn of_too_many_missed_moments_the_last_are_made_up_for() {
    for schedule in [every(MINUTE), cron("* * * * *", "UTC"), every(1)] {
        let step = if schedule.every_ms == Some(1) { 1000 } else { MINUTE };
        let mut world = World::new(file([job("a", schedule, Some("all"))]));
        world.start();
        world.now_ms += 100_000 * MINUTE;
        world.tick();
        let first = world.fired()[0].1;
        let left = (world.now_ms - first) / step;
        assert!((CATCH_UP_MAX as u64 - 2..=CATCH_UP_MAX as u64).contains(&left), "{left} moments are left");
    }
}

#[test]
fn a_clock_that_is_put_back_uses_no_moment_twice() {
    let mut world = World::new(file([job("a", cron("0 * * * *", "UTC"), None)]));
    world.start();
    world.advance(HOUR);
    assert_eq!(world.fired().len(), 1);
    world.end("a", RunStatus::Ok, None);
    world.now_ms -= 2 * HOUR;
    for _ in 0..4 {
        world.advance(30 * MINUTE);
    }
    assert_eq!(world.fired(), []);
    // Nor does a process that begins then.
    world.now_ms -= HOUR;
    world.crash();
    world.start();
    world.advance(HOUR);
    assert_eq!(world.fired(), []);
    world.advance(HOUR);
    assert_eq!(world.fired(), [("a", NOW + 2 * HOUR)]);
}

#[test]
fn one_that_is_refused_is_offered_again_and_at_last_given_up() {
    let mut world = World::new(file([job("a", every(HOUR), None)]));
    world.start();
    world.refuse = Some(5000);
    world.advance(HOUR);
    assert_eq!(world.fired().len(), 1);
    world.advance(4999);
    assert_eq!(world.fired(), []);
    world.advance(1);
    assert_eq!(world.fired(), [("a", NOW + HOUR)]);
    world.refuse = None;
    world.advance(5000);
    assert_eq!(world.fired(), [("a", NOW + HOUR)]);
    world.end("a", RunStatus::Ok, None);
    world.refuse = Some(MINUTE);
    world.advance(HOUR);
    for _ in 0..20 {
        world.advance(MINUTE);
    }
    let run = world.job().state.run_history.last().unwrap().clone();
    assert_eq!((run.status, run.error.as_deref()), (RunStatus::Error, Some("not accepted: busy")));
    world.refuse = None;
    world.fired();
    world.advance(NOW + 3 * HOUR - world.now_ms);
    assert_eq!(world.fired(), [("a", NOW + 3 * HOUR)]);
}

#[test]
fn a_run_that_takes_too_long_is_cancelled_and_at_last_given_up() {
    let mut world = World::new(file([job("a", every(HOUR), None)]));
    world.start();
    world.scheduler.find(&JobId::new("a").unwrap()).unwrap().job.timeout_ms = Some(10 * MINUTE);
    world.advance(HOUR);
    world.advance(10 * MINUTE);
    assert_eq!(world.cancelled, [world.turn("a", NOW + HOUR)]);
    world.end("a", RunStatus::Error, Some("cancelled"));
    let error = world.job().state.last_error.clone();
    assert_eq!(error.as_deref(), Some("it did not end within 600 s and was cancelled"));
    world.fired();
    // One whose end is never told does not block its job for ever.
    world.advance(50 * MINUTE);
    world.advance(10 * MINUTE);
    world.advance(MINUTE);
    assert_eq!((world.cancelled.len(), world.job().state.running.as_ref()), (2, None));
    world.advance(49 * MINUTE);
    assert_eq!(world.fired().last(), Some(&("a", NOW + 3 * HOUR)));
}

#[test]
fn a_job_with_one_moment_goes_after_it_or_stays_switched_off() {
    let mut one = job("a", Schedule::at(NOW + HOUR), Some("once"));
    let stays = job("b", Schedule::at(NOW + HOUR), Some("once"));
    one["deleteAfterRun"] = json!(true);
    let mut world = World::new(file([one, stays]));
    world.start();
    world.advance(HOUR);
    assert_eq!(world.fired().len(), 2);
    assert_eq!(world.scheduler.count(), (2, 2));
    world.end("a", RunStatus::Ok, None);
    world.end("b", RunStatus::Ok, None);
    let left = world.on_disk().jobs;
    assert_eq!((left.len(), left[0].id.as_str(), left[0].enabled, left[0].state.next_run_at_ms), (1, "b", false, None));
}

#[test]
fn a_run_that_outlives_its_process_is_asked_about_and_not_run_again() {
    let mut world = World::new(file([job("a", every(HOUR), Some("all"))]));
    world.start();
    world.advance(HOUR);
    let turn = world.turn("a", NOW + HOUR);
    assert_eq!(world.fired().len(), 1);
    world.crash();
    world.watched.clear();
    world.start();
    assert_eq!((world.fired(), world.watched.clone()), (vec![], vec![turn]));
    world.end("a", RunStatus::Ok, None);
    assert_eq!(world.job().state.run_history.len(), 1);
    // What the file does not know yet is found by the journal.
    world.advance(HOUR - 1);
    world.lose_saves = true;
    world.advance(1);
    let turn = world.turn("a", NOW + 2 * HOUR);
    world.crash();
    world.lose_saves = false;
    world.fired();
    world.start();
    assert_eq!((world.fired(), world.turn("a", NOW + 2 * HOUR)), (vec![("a", NOW + 2 * HOUR)], turn));
}

#[test]
fn a_file_that_cannot_be_written_leaves_memory_in_charge() {
    let mut world = World::new(file([job("a", every(HOUR), None)]));
    world.start();
    world.fail_saves = true;
    world.advance(HOUR);
    assert_eq!(world.fired().len(), 1);
    assert_eq!(world.notes(Noted::Unsaved), 1);
    world.end("a", RunStatus::Ok, None);
    for _ in 0..130 {
        world.advance(30_000);
    }
    assert_eq!((world.fired(), world.notes(Noted::Unsaved)), (vec![("a", NOW + 2 * HOUR)], 0));
    world.fail_saves = false;
    world.advance(MINUTE);
    assert_eq!((world.notes(Noted::Saved), world.on_disk()), (1, world.scheduler.file()));
}

#[test]
fn a_file_that_cannot_be_read_is_no_reason_to_wake() {
    let mut world = World::new(file([]));
    world.step(Input::Unreadable("no".to_owned()));
    assert_eq!((world.scheduler.wake_ms(), world.notes(Noted::Unsaved)), (None, 1));
    world.step(Input::Unreadable("no".to_owned()));
    world.start();
    assert_eq!((world.notes(Noted::Unsaved), world.notes(Noted::Saved)), (0, 1));
}

#[test]
fn one_that_is_switched_off_while_it_is_refused_is_offered_no_more() {
    let mut world = World::new(file([job("a", every(HOUR), None)]));
    world.start();
    world.refuse = Some(5000);
    world.advance(HOUR);
    world.fired();
    let (_, effects) = world.scheduler.enable("a", false, world.now_ms).unwrap();
    world.perform(effects);
    world.advance(5000);
    assert_eq!((world.fired(), world.scheduler.wake_ms()), (vec![], None));
}

#[test]
fn a_file_that_others_change_is_merged_with_what_memory_knows_of_runs() {
    let mut world = World::new(file([job("a", every(HOUR), None), job("b", every(HOUR), None)]));
    world.start();
    world.advance(HOUR);
    world.fired();
    // Somebody with an old copy changes a name and a schedule, removes one, adds one.
    let mut a = job("a", every(2 * HOUR), None);
    a["name"] = json!("other");
    a["state"] = json!({"nextRunAtMs": NOW + HOUR});
    world.put(file([a, job("c", every(HOUR), None)]));
    world.read();
    assert_eq!(world.fired(), [], "neither the running one again nor the new one at once");
    let names: Vec<_> =
        world.scheduler.file().jobs.iter().map(|job| (job.name.clone(), job.state.next_run_at_ms)).collect();
    assert_eq!(names, [("other".to_owned(), Some(NOW + 3 * HOUR)), ("c".to_owned(), Some(NOW + 2 * HOUR))]);
    let turn = world.turn("a", NOW + HOUR).to_string();
    assert_eq!(world.job().state.running.as_ref().map(|running| &running.run_id), Some(&turn));
    world.end("b", RunStatus::Ok, None);
    world.end("a", RunStatus::Ok, None);
    assert_eq!(world.job().state.run_history.len(), 1);
    // A change that comes between a reading and a save is not written over.
    world.put(file([job("d", every(HOUR), None)]));
    world.changed_meanwhile = true;
    world.advance(HOUR);
    assert_eq!(world.on_disk().jobs.iter().map(|job| job.id.as_str()).collect::<Vec<_>>(), ["d"]);
}

#[test]
fn actions_of_others_are_done_once() {
    let mut world = World::new(file([job("a", every(HOUR), None), job("b", every(HOUR), None)]));
    world.start();
    let put = |text: serde_json::Value| world::action("update", text);
    let actions = vec![
        put(job("a", every(2 * HOUR), None)),
        put(job("c", every(HOUR), None)),
        world::action("del", json!({"job_id": "b"})),
    ];
    for _ in 0..2 {
        world.act(actions.clone());
        let jobs = world.on_disk().jobs;
        let found: Vec<_> = jobs.iter().map(|job| (job.id.as_str(), job.schedule.every_ms)).collect();
        assert_eq!(found, [("a", Some(2 * HOUR as i64)), ("c", Some(HOUR as i64))]);
    }
    let system = json!({"id": "dream", "name": "d", "schedule": {"kind": "every", "everyMs": 5}, "payload": {"kind": "system_event"}});
    world.act(vec![put(system), world::action("del", json!({"job_id": "dream"}))]);
    assert_eq!(world.on_disk().jobs.len(), 3, "jobs of programs stay");
}

#[test]
fn a_damaged_file_is_told_and_never_written_over_by_nothing() {
    let mut world = World::new(file([]));
    let effects = world.scheduler.step(Input::Damaged("it is damaged".to_owned()), NOW);
    assert!(matches!(effects.as_slice(), [Effect::Note(Note { what: Noted::Damaged, .. })]), "{effects:?}");
    assert_eq!(world.scheduler.list(), Err(Refusal::Damaged("it is damaged".to_owned())));
    // No file: it was set aside. A good one mends it.
    assert_eq!(world.scheduler.step(Input::Read { file: None, actions: vec![] }, NOW), []);
    assert!(world.scheduler.list().is_err());
    world.put(file([job("a", every(HOUR), None)]));
    world.read();
    assert_eq!(world.scheduler.list().unwrap().len(), 1);
    // Later, memory has it all.
    world.scheduler.step(Input::Damaged("again".to_owned()), NOW);
    let effects = world.scheduler.step(Input::Tick, NOW);
    let saved = world.scheduler.revision() > world.scheduler.saved();
    assert!(saved && effects.is_empty(), "the save is under way since the damage was told");
    world.scheduler.step(Input::Read { file: None, actions: vec![] }, NOW);
    assert_eq!(world.scheduler.list().unwrap().len(), 1);
}

#[test]
fn histories_and_errors_are_bounded() {
    let mut world = World::new(file([job("a", every(HOUR), None)]));
    world.start();
    for _ in 0..30 {
        world.advance(HOUR);
        world.end("a", RunStatus::Error, Some(&"x".repeat(5000)));
    }
    let state = &world.job().state;
    assert_eq!(state.run_history.len(), HISTORY_MAX);
    assert_eq!(state.last_error.as_ref().unwrap().chars().count(), ERROR_CHARS_MAX);
}

#[test]
fn a_run_with_a_turn_that_is_no_turn_is_given_up() {
    let mut one = job("a", every(HOUR), None);
    one["state"]["running"] = json!(Running { due_ms: 1, at_ms: NOW, run_id: "x".to_owned() });
    let mut world = World::new(file([one]));
    world.start();
    assert_eq!(world.job().state.last_error.as_deref(), Some("its turn is not known"));
    assert_eq!(world.scheduler.zones.local, zones().local);
}
