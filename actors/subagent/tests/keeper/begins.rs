//! What is begun, what is not, and how it ends.

use std::time::Duration;

use domain::run::RunSpec;
use protocol::journal::{BusyReason, DeadLetter, Enqueued, LetterKind};
use protocol::metrics::ByBound;
use protocol::subagent::{DELIVERED, NotSpawned, PENDING, REPORTS, RunMail, UNDELIVERED};
use protocol::turn::{Route, TurnResult};
use subagent::{OPEN_MAX, OPEN_OF_SESSION_MAX};
use testkit::deadline::run_paused;
use tokio::sync::oneshot;

use crate::stage::{Stage, id, key, parent_turn, spec};
use crate::world::Told;

#[test]
fn a_session_has_so_many_at_a_time_and_the_end_of_one_makes_room() {
    run_paused("limits", async {
        let stage = Stage::new();
        for number in 1..=OPEN_OF_SESSION_MAX as u128 {
            stage.spawn(spec("cli:a", number)).await.unwrap();
        }
        let open = OPEN_OF_SESSION_MAX;
        assert_eq!(stage.spawn(spec("cli:a", 90)).await, Err(NotSpawned::OfSession { open }));
        stage.spawn(spec("cli:b", 91)).await.unwrap();
        assert_eq!(stage.metrics.work.subagent_runs.get(), 1 + open as i64);
        let bound = stage.metrics.work.limit.get_or_create(&ByBound { bound: "subagent_runs" }).get();
        assert_eq!(bound, OPEN_MAX as i64);
        stage.world.end(stage.turn(1), TurnResult::Done, "5");
        stage.spawn(spec("cli:a", 90)).await.unwrap();
        let child = spec("cli:a", 90).key().unwrap();
        assert_eq!(stage.spawn(spec(child.as_str(), 92)).await, Err(NotSpawned::TooDeep));
        let [first, ..] = &stage.world.books().taken[..] else { panic!("they were enqueued") };
        let Route::Push(route) = &first.route else { panic!("its end is reported") };
        assert_eq!((&*route.channel, &*route.chat), (REPORTS, "cli:a"));
        assert_eq!(*route.account, parent_turn().to_string(), "only the conversation with this turn is told");
    });
}

#[test]
fn what_the_journal_has_no_room_for_is_refused_and_leaves_nothing_behind() {
    run_paused("full", async {
        let stage = Stage::new();
        for (verdict, said) in [
            (Enqueued::Busy { retry_after_ms: 9, why: BusyReason::Disk }, "too busy"),
            (Enqueued::Quarantined { until_ms: 9 }, "held back"),
            (Enqueued::Draining, "stopping"),
        ] {
            stage.world.books().verdict = Some(verdict);
            let refused = stage.spawn(spec("cli:a", 1)).await.unwrap_err().to_string();
            assert!(refused.contains(said), "{refused}");
        }
        assert!(stage.list().await.is_empty());
        assert!(stage.world.books().watched.keys().all(|turn| *turn == parent_turn()));
        stage.world.books().verdict = None;
        assert!(!stage.spawn(spec("cli:a", 1)).await.unwrap().again);
    });
}

#[test]
fn a_stop_of_the_parent_and_a_bad_end_of_its_turn_end_its_children() {
    run_paused("cancel", async {
        let stage = Stage::new();
        for spec in [spec("cli:a", 1), RunSpec { detached: true, ..spec("cli:a", 2) }, spec("cli:b", 3)] {
            stage.spawn(spec).await.unwrap();
        }
        let told = async || {
            stage.list().await;
            std::mem::take(&mut stage.world.books().told)
        };
        stage.tell(RunMail::CancelChildren { parent: key("cli:a") });
        let of_a = Told::Cancel(spec("cli:a", 1).key().unwrap(), stage.turn(1));
        assert_eq!(told().await, [of_a]);
        stage.world.end(stage.turn(1), TurnResult::Cancelled, "");
        // Both sessions have a turn of that id here; the end is that of the one that watched last.
        stage.world.end(parent_turn(), TurnResult::DeadLettered, "given up");
        let of_b = Told::Cancel(spec("cli:b", 3).key().unwrap(), stage.turn(3));
        assert_eq!(told().await, [of_b]);
        let (reply, was) = oneshot::channel();
        stage.tell(RunMail::Cancel { parent: None, run: id(2), reply });
        assert!(was.await.unwrap());
        assert_eq!(told().await, [Told::Stop(spec("cli:a", 2).key().unwrap())]);
    });
}

#[test]
fn an_end_that_nobody_told_is_found_within_two_looks() {
    run_paused("missed end", async {
        let stage = Stage::new();
        stage.spawn(spec("cli:a", 1)).await.unwrap();
        stage.world.ended(stage.turn(1), TurnResult::Failed, "no");
        assert_eq!(stage.states().await, [("running", None)]);
        tokio::time::sleep(Duration::from_secs(121)).await;
        let reported = stage.list().await.remove(0);
        assert_eq!((reported.state, reported.text.as_deref()), ("failed", Some("no")));
    });
}

#[test]
fn children_of_a_session_that_is_held_back_end() {
    run_paused("held", async {
        let stage = Stage::new();
        stage.spawn(spec("cli:a", 1)).await.unwrap();
        stage.world.books().quarantined.push(key("cli:a"));
        tokio::time::sleep(Duration::from_secs(61)).await;
        let dropped = Told::Cancel(spec("cli:a", 1).key().unwrap(), stage.turn(1));
        assert_eq!(stage.world.books().told, [dropped]);
    });
}

#[test]
fn what_became_of_a_report_is_known() {
    run_paused("delivery", async {
        let stage = Stage::new();
        for number in [1, 2, 3] {
            stage.spawn(spec("cli:a", number)).await.unwrap();
            stage.world.books().reporting.push(spec("cli:a", number).key().unwrap());
            stage.world.end(stage.turn(number), TurnResult::Done, "5");
        }
        stage.tell(RunMail::Reported { run: id(1) });
        let key = spec("cli:a", 2).key().unwrap();
        let letter = DeadLetter {
            id: "00000000-0000-0000-0000-000000000001:1".parse().unwrap(),
            kind: LetterKind::Delivery,
            turn: stage.turn(2),
            key,
            message_id: None,
            channel: Some(REPORTS.into()),
            reason: "deleted".into(),
            at_ms: 1,
        };
        stage.world.books().letters.push(letter);
        let mut deliveries: Vec<_> = stage.list().await.iter().map(|row| (row.run, row.delivery)).collect();
        deliveries.sort();
        assert_eq!(deliveries, [(id(1), Some(DELIVERED)), (id(2), Some(UNDELIVERED)), (id(3), Some(PENDING))]);
    });
}
