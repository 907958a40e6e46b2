use domain::ids::{Attempt, SessionKey, TurnId};
use protocol::journal::{LeftBy, Started, Unfinished};
use protocol::supervision::EventName;
use testkit::deadline::run_paused;

use crate::journal::Turn;
use crate::stage::{Stage, key, seconds};

fn left(stage: &Stage, key: &SessionKey, deaths: Option<u32>, bombs: u32) {
    let id = TurnId(stage.kernel.ports().ids.uuid_v7());
    stage.journal.open.lock().unwrap().entry(key.clone()).or_default().push(Turn { id, bombs });
    let started = |deaths| Started { turn: id, attempt: Attempt(1), crashes: 0, deaths, alone: false };
    stage.journal.unfinished.lock().unwrap().push(Unfinished {
        key: key.clone(),
        cut: deaths.map(|deaths| (started(deaths), LeftBy::Death)),
        turns: 1,
        quarantined_until_ms: None,
        quarantined_times: 0,
    });
}

#[test]
fn all_sessions_with_work_are_started_a_few_at_a_time() {
    run_paused("recovery", async {
        let stage = Stage::new();
        for n in 0..2000 {
            left(&stage, &key(n), (n % 2 == 0).then_some(0), 0);
        }
        let mut started_before = None;
        stage.registry.recover(|| started_before = Some(stage.live())).await;
        assert_eq!(started_before, Some(0), "the gateway is ready before the first of them starts");
        seconds(1).await;
        assert_eq!(stage.journal.done.lock().unwrap().len(), 2000);
        assert!(*stage.watched.loading_max.lock().unwrap() <= 256);
        assert_eq!(stage.log.named(EventName::Recovered).len(), 1);
    });
}

#[test]
fn suspects_run_last_and_alone_also_when_they_crash() {
    run_paused("suspects", async {
        let stage = Stage::new();
        for n in 0..10 {
            left(&stage, &key(n), Some(n % 2), u32::from(n % 4 == 3));
        }
        stage.registry.recover(|| ()).await;
        // A message for a suspect that waits does not start it.
        stage.enqueue(&key(9), 0);
        assert_eq!(stage.live(), 5);
        seconds(30).await;
        let alone = stage.watched.turns_alone.lock().unwrap().clone();
        let mut order: Vec<SessionKey> = alone.iter().map(|(key, _)| key.clone()).collect();
        order.dedup();
        assert_eq!(order, [1, 3, 5, 7, 9].map(key));
        let after_others = alone.iter().filter(|(of, _)| *of != key(1));
        assert!(after_others.clone().all(|(_, running)| *running == 1), "{alone:?}");
        assert_eq!(stage.journal.done.lock().unwrap().len(), 11);
    });
}

#[test]
fn a_quarantine_outlives_the_process() {
    run_paused("held", async {
        let stage = Stage::new();
        left(&stage, &key(1), None, 0);
        let until = stage.kernel.ports().clock.wall_ms() + 60_000;
        stage.journal.unfinished.lock().unwrap()[0].quarantined_until_ms = Some(until);
        stage.registry.recover(|| ()).await;
        seconds(50).await;
        assert_eq!((stage.done(&key(1)), stage.live()), (0, 0));
        seconds(15).await;
        assert_eq!(stage.done(&key(1)), 1);
    });
}

#[test]
fn a_quarantine_after_a_restart_is_longer_than_the_one_before_it() {
    run_paused("doubling", async {
        let stage = Stage::new();
        left(&stage, &key(1), None, 5);
        stage.journal.unfinished.lock().unwrap()[0].quarantined_times = 2;
        stage.registry.recover(|| ()).await;
        seconds(30).await;
        let entry = stage.journal.quarantines.lock().unwrap()[0].clone();
        assert_eq!(entry.times, 3);
        let lasts_ms = entry.until_ms - stage.kernel.ports().clock.wall_ms();
        assert!(lasts_ms > 3 * 600_000, "{lasts_ms}");
    });
}

#[test]
fn what_cannot_be_loaded_does_not_hold_up_the_others() {
    run_paused("unloadable", async {
        let stage = Stage::new();
        for n in 0..600 {
            left(&stage, &key(n), None, 0);
        }
        stage.watched.unloadable.lock().unwrap().extend((0..300).map(key));
        stage.registry.recover(|| ()).await;
        seconds(60).await;
        assert_eq!(stage.journal.done.lock().unwrap().len(), 300);
        assert_eq!(stage.journal.quarantines.lock().unwrap().len(), 300);
    });
}
