//! Restarts of the process and of the keeper: what was open is followed, what ended is known.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::TurnId;
use domain::run::RunSpec;
use protocol::journal::Unfinished;
use protocol::subagent::{DELIVERED, PENDING, RunMail};
use protocol::supervision::{EventName, Kind};
use protocol::turn::TurnResult;
use subagent::Keeper;
use supervision::memory::Fault;
use supervision::ports::Disk;
use supervision::tell;
use testkit::deadline::run_paused;
use tokio::sync::oneshot;
use uuid::Uuid;

use crate::stage::{Crash, NOTES, Stage, id, key, parent_turn, spec};
use crate::world::{Child, Told, World};

/// The journal and the sessions of a world in which that run is open from before.
fn open(world: &World, spec: RunSpec, turn: TurnId, silent: u32) {
    let key = spec.key().unwrap();
    let unfinished =
        Unfinished { key: key.clone(), cut: None, turns: 1, quarantined_until_ms: None, quarantined_times: 0 };
    let mut books = world.books();
    books.unfinished.push(unfinished);
    books.children.insert(key, Child { spec: spec.into(), turn: Some(turn), silent });
}

fn turn(number: u128) -> TurnId {
    TurnId(Uuid::from_u128(number))
}

#[test]
fn runs_of_before_are_followed_as_soon_as_their_sessions_say_what_they_are() {
    run_paused("boot", async {
        let stage = Stage::new();
        open(&stage.world, spec("cli:a", 1), turn(11), 3);
        open(&stage.world, spec("cli:b", 2), turn(12), 0);
        let no_run = Unfinished { key: key("cli:a"), ..stage.world.books().unfinished[0].clone() };
        stage.world.books().unfinished.push(no_run);
        Keeper::recover(&stage.keeper);
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(stage.states().await, [("running", None)]);
        // One that is not found yet is stopped all the same.
        stage.tell(RunMail::CancelChildren { parent: key("cli:a") });
        tokio::time::sleep(Duration::from_secs(4)).await;
        assert_eq!(stage.states().await, [("running", None); 2]);
        assert_eq!(stage.world.books().told, [Told::Cancel(spec("cli:a", 1).key().unwrap(), turn(11))]);
        stage.world.end(turn(12), TurnResult::Done, "5");
        assert_eq!(stage.list().await.iter().filter(|row| row.state == "done").count(), 1);
    });
}

#[test]
fn a_parents_turn_that_was_given_up_before_the_restart_ends_its_children_behind_it() {
    run_paused("dead parent", async {
        let stage = Stage::new();
        open(&stage.world, spec("cli:a", 1), turn(11), 0);
        stage.world.ended(parent_turn(), TurnResult::DeadLettered, "given up");
        Keeper::recover(&stage.keeper);
        stage.list().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        assert_eq!(stage.world.books().told, [Told::Cancel(spec("cli:a", 1).key().unwrap(), turn(11))]);
    });
}

#[test]
fn the_next_process_knows_the_runs_of_this_one() {
    run_paused("notes", async {
        let stage = Stage::new();
        for number in [1, 2, 3] {
            stage.spawn(spec("cli:a", number)).await.unwrap();
        }
        for (number, text) in [(1, "5"), (2, "7")] {
            stage.world.end(stage.turn(number), TurnResult::Done, text);
        }
        stage.tell(RunMail::Reported { run: id(1) });
        stage.list().await;
        let (disk, cut) = (Arc::clone(&stage.disk), stage.turn(3));
        drop(stage);
        // The end of the third was not told before the process died; the report of the second had been taken.
        let world = Arc::<World>::default();
        world.ended(cut, TurnResult::Failed, "no");
        let next = Stage::on(disk, world);
        next.list().await;
        tokio::time::sleep(Duration::from_millis(1)).await;
        next.world.books().reporting.push(spec("cli:a", 3).key().unwrap());
        assert_eq!(
            next.states().await,
            [("done", Some(DELIVERED)), ("done", Some(DELIVERED)), ("failed", Some(PENDING))]
        );
        let (reply, again) = oneshot::channel();
        next.tell(RunMail::Retry { run: id(1), reply });
        let again = again.await.unwrap().unwrap();
        let rows = next.list().await;
        assert!(rows.iter().any(|row| row.run == again.run && row.state == "running"));
    });
}

#[test]
fn a_crash_of_the_keeper_is_seen_and_costs_its_waiters_alone() {
    run_paused("crash", async {
        let stage = Stage::new();
        stage.spawn(spec("cli:a", 1)).await.unwrap();
        stage.spawn(spec("cli:a", 2)).await.unwrap();
        stage.world.end(stage.turn(1), TurnResult::Done, "5");
        Keeper::recover(&stage.keeper);
        stage.list().await;
        open(&stage.world, spec("cli:a", 2), stage.turn(2), 0);
        let (reply, waits) = oneshot::channel();
        stage.tell(RunMail::Wait { runs: vec![id(2)], any: false, reply });
        tell(&stage.keeper.clone().recipient(), Crash).unwrap();
        assert!(waits.await.is_err(), "whoever waits asks again");
        assert_eq!(stage.states().await, [("done", Some(DELIVERED)), ("running", None)]);
        let restarted = stage.log.named(EventName::Restarted);
        let [event] = &restarted[..] else { panic!("{restarted:?}") };
        assert_eq!((&*event.path.0, event.kind), ("/subagent", Kind::Subagent));
        assert!(event.panic.as_ref().unwrap().text.contains("a handler fails"));
        let tree = stage.kernel.actors();
        let node = tree.iter().find(|node| &*node.path.0 == "/subagent").unwrap();
        assert_eq!(node.restarts, 1);
        stage.world.end(stage.turn(2), TurnResult::Done, "7");
        assert_eq!(stage.list().await.iter().filter(|row| row.state == "done").count(), 2);
    });
}

#[test]
fn a_disk_that_takes_no_notes_costs_nothing_but_the_notes() {
    run_paused("full disk", async {
        let stage = Stage::new();
        stage.list().await;
        stage.disk.fail_next(Fault::WriteEnospc);
        stage.spawn(spec("cli:a", 1)).await.unwrap();
        stage.world.end(stage.turn(1), TurnResult::Done, "5");
        assert_eq!(stage.list().await.len(), 1);
        stage.spawn(spec("cli:a", 2)).await.unwrap();
        stage.list().await;
        let kept = stage.disk.read(NOTES.as_ref()).unwrap();
        let began = String::from_utf8(kept).unwrap().matches("\"began\"").count();
        assert_eq!(began, 2, "all are written with the next one");
    });
}
