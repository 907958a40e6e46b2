use serde_json::{Map, json};

use super::world::{HOUR, MINUTE, NOW, World, every, file, job};
use super::*;
use crate::cron::job::{MESSAGE_BYTES_MAX, Missed};
use crate::cron::schedule::Schedule;
use crate::ids::SessionKey;

fn draft(schedule: Schedule) -> Draft {
    Draft {
        name: None,
        message: "look after\nthe compost heap in the garden".to_owned(),
        schedule,
        key: Some(SessionKey::new("websocket:1").unwrap()),
        origin: None,
        metadata: Map::new(),
        missed: None,
        timeout_ms: None,
        keep: false,
    }
}

fn add(world: &mut World, id: &str, draft: Draft) -> Result<JobView, String> {
    let added = world.scheduler.add(JobId::new(id).unwrap(), draft, world.now_ms);
    added.map_err(|refusal| refusal.to_string()).map(|(view, effects)| {
        world.perform(effects);
        view
    })
}

#[test]
fn a_job_is_made_saved_and_run() {
    let mut world = World::new(file([]));
    assert_eq!(add(&mut world, "a", draft(every(HOUR))), Err("the jobs are being read; try again".to_owned()));
    world.start();
    let view = add(&mut world, "a", draft(every(HOUR))).unwrap();
    assert_eq!((view.name.as_str(), view.next_run_at_ms), ("look after the compost heap in", Some(NOW + HOUR)));
    assert_eq!((view.missed, view.session.as_deref()), (Missed::Skip, Some("websocket:1")));
    let made = world.on_disk().jobs.remove(0).payload;
    assert_eq!((made.origin_channel.as_deref(), made.origin_chat_id.as_deref()), (Some("websocket"), Some("1")));
    world.advance(HOUR);
    assert_eq!(world.fired(), [("a", NOW + HOUR)]);
    // One of its own, once: late is better than never, and it goes.
    let own = Draft { key: None, name: Some("tea\ntime".to_owned()), ..draft(Schedule::at(NOW + 3 * HOUR)) };
    let view = add(&mut world, "b", own.clone()).unwrap();
    assert_eq!((view.name.as_str(), view.missed, view.session.as_deref()), ("tea time", Missed::Once, Some("cron:b")));
    assert!(world.on_disk().jobs[1].delete_after_run);
    add(&mut world, "c", Draft { keep: true, missed: Some(Missed::Skip), ..own }).unwrap();
    assert_eq!((world.on_disk().jobs[2].delete_after_run, world.on_disk().jobs[2].missed()), (false, Missed::Skip));
    let order: Vec<_> = world.scheduler.list().unwrap().into_iter().map(|view| view.id.as_str().to_owned()).collect();
    assert_eq!(order, ["a", "b", "c"]);
}

#[test]
fn what_can_never_run_is_not_made() {
    let mut world = World::new(file([]));
    world.start();
    for (draft, expect) in [
        (Draft { message: " ".to_owned(), ..draft(every(HOUR)) }, "message is empty"),
        (Draft { message: "x".repeat(MESSAGE_BYTES_MAX + 1), ..draft(every(HOUR)) }, "message has more than"),
        (draft(every(999)), "schedule.everyMs is below 1000"),
        (draft(Schedule::at(NOW)), "schedule.atMs is in the past"),
        (
            draft(Schedule::cron("0 0 30 2 *", None)),
            "schedule.expr is right in form, and names a time that never comes",
        ),
        (draft(Schedule::cron("0 25 * * *", None)), "schedule.expr: the hour `25`"),
        (draft(Schedule::cron("0 9 * * *", Some("Nowhere"))), "schedule.tz `Nowhere` is not a known time zone"),
        (draft(Schedule { tz: Some("UTC".into()), ..every(HOUR) }), "schedule.tz can be given for patterns only"),
    ] {
        let refused = add(&mut world, "a", draft).unwrap_err();
        assert!(refused.starts_with(expect), "{refused}");
    }
    assert_eq!(world.scheduler.count(), (0, 0));
}

#[test]
fn there_are_so_many_jobs_at_most() {
    let mut world = World::new(file([]));
    world.start();
    world.fail_saves = true;
    let made = (0..=command::JOBS_MAX).map(|n| add(&mut world, &format!("n{n}"), draft(every(HOUR))));
    let refused: Vec<_> = made.filter_map(Result::err).collect();
    assert_eq!(refused, ["there are 1000 jobs already; remove some"]);
}

#[test]
fn jobs_are_removed_switched_and_run_by_hand() {
    let system = json!({"id": "dream", "name": "d", "schedule": {"kind": "every", "everyMs": 5}, "payload": {"kind": "system_event"}});
    let mut bad = job("c", every(HOUR), None);
    bad["schedule"]["everyMs"] = json!(null);
    bad["enabled"] = json!(false);
    let mut world = World::new(file([job("a", every(HOUR), None), job("b", every(HOUR), None), bad, system]));
    world.start();
    let refused = |result: Result<(JobView, Vec<Effect>), Refusal>| result.unwrap_err().to_string();
    let protected = "job dream belongs to the system and cannot be changed";
    assert_eq!(refused(world.scheduler.remove("dream", NOW)), protected);
    assert_eq!(refused(world.scheduler.run("dream", NOW)), protected);
    assert_eq!(refused(world.scheduler.enable("nope", true, NOW)), "there is no job nope; `cron list` shows all");
    assert_eq!(refused(world.scheduler.enable("c", true, NOW)), "schedule.everyMs is missing");

    let (view, effects) = world.scheduler.enable("a", false, NOW).unwrap();
    world.perform(effects);
    assert_eq!((view.enabled, view.next_run_at_ms), (false, None));
    world.advance(HOUR);
    assert_eq!(world.fired(), [("b", NOW + HOUR)]);
    let (view, effects) = world.scheduler.enable("a", true, world.now_ms).unwrap();
    world.perform(effects);
    assert_eq!((view.enabled, view.next_run_at_ms), (true, Some(NOW + 2 * HOUR)));
    assert_eq!(world.on_disk(), world.scheduler.file());

    // By hand, it changes nothing of the schedule, and does not overlap either.
    world.advance(MINUTE);
    let (_, effects) = world.scheduler.run("a", world.now_ms).unwrap();
    world.perform(effects);
    assert_eq!(world.fired(), [("a", NOW + HOUR + MINUTE)]);
    assert_eq!(refused(world.scheduler.run("a", world.now_ms)), "job a runs at present");
    world.end("a", RunStatus::Ok, None);
    assert_eq!(world.job().state.next_run_at_ms, Some(NOW + 2 * HOUR));

    // One that runs while it is removed is no trouble, and a copy of the file does not bring it back.
    world.fail_saves = true;
    let (_, effects) = world.scheduler.remove("b", world.now_ms).unwrap();
    world.perform(effects);
    world.read();
    world.end("b", RunStatus::Ok, None);
    assert!(world.scheduler.show("b").is_err());
    world.fail_saves = false;
    world.advance(MINUTE);
    assert_eq!(world.on_disk().jobs.len(), 3);
}

#[test]
fn what_a_command_changed_is_not_undone_by_an_older_file() {
    let mut world = World::new(file([job("a", every(HOUR), None)]));
    world.start();
    world.fail_saves = true;
    add(&mut world, "b", draft(every(HOUR))).unwrap();
    let (_, effects) = world.scheduler.enable("a", false, NOW).unwrap();
    world.perform(effects);
    world.read();
    let views = world.scheduler.list().unwrap();
    assert_eq!(
        views.iter().map(|view| (view.id.as_str(), view.enabled)).collect::<Vec<_>>(),
        [("b", true), ("a", false)]
    );
}
