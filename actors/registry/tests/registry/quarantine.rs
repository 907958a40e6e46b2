use std::time::Duration;

use protocol::registry::{Sessions, Unreachable};
use protocol::session::{Mail, State};
use protocol::supervision::EventName;
use testkit::deadline::run_paused;
use tokio::sync::oneshot;

use crate::stage::{QUARANTINE, Stage, key, pass, seconds};

#[test]
fn a_session_that_gives_up_waits_and_keeps_its_messages() {
    run_paused("quarantine", async {
        let stage = Stage::new();
        stage.enqueue(&key(1), 5);
        stage.enqueue(&key(1), 0);
        stage.enqueue(&key(2), 0);
        seconds(30).await;
        assert_eq!((stage.done(&key(1)), stage.done(&key(2)), stage.live()), (0, 1, 1), "others do not notice");
        let entry = stage.journal.quarantines.lock().unwrap()[0].clone();
        assert_eq!((&entry.key, entry.times, &*entry.reason), (&key(1), 1, "crashes"));

        let gave_up = stage.log.named(EventName::GaveUp).remove(0);
        let quarantined = stage.log.named(EventName::Quarantined).remove(0);
        assert_eq!(quarantined.cause.as_deref(), Some(&*gave_up.id));
        assert_eq!((quarantined.lost.as_str(), quarantined.inbox), ("nothing", Some(1)));

        stage.enqueue(&key(1), 0);
        let (reply, _answer) = oneshot::channel();
        let read = Mail::ReadTurn { turn: domain::ids::TurnId(uuid::Uuid::nil()), reply };
        assert_eq!(stage.registry.tell(&key(1), read), Err(Unreachable::Quarantined));
        assert_eq!(stage.live(), 1);

        pass(QUARANTINE).await;
        assert_eq!(stage.done(&key(1)), 3, "released by time, nothing lost");
        assert!(stage.journal.unquarantined.lock().unwrap().is_empty(), "it has yet to do well");
        let released = stage.log.named(EventName::Released).remove(0);
        assert_eq!(released.cause.as_deref(), Some(&*quarantined.id));
        let started = stage.log.named(EventName::Started).pop().unwrap();
        assert_eq!(started.cause, Some(released.id), "and that led to its start");
        pass(crate::stage::IDLE * 2).await;
        assert_eq!(*stage.journal.unquarantined.lock().unwrap(), [key(1)]);
    });
}

#[test]
fn quarantines_in_a_row_double() {
    run_paused("double", async {
        let stage = Stage::new();
        stage.enqueue(&key(1), 15);
        seconds(30).await;
        pass(QUARANTINE).await;
        seconds(30).await;
        pass(QUARANTINE).await;
        assert_eq!(stage.journal.quarantines.lock().unwrap().len(), 2, "the second one is longer");
        pass(QUARANTINE).await;
        seconds(30).await;
        let times: Vec<u32> = stage.journal.quarantines.lock().unwrap().iter().map(|entry| entry.times).collect();
        assert_eq!(times, [1, 2, 3]);
        pass(QUARANTINE * 4 + Duration::from_secs(60)).await;
        assert_eq!(stage.done(&key(1)), 1);
    });
}

#[test]
fn a_quarantine_ends_by_hand() {
    run_paused("hand", async {
        let stage = Stage::new();
        assert!(!stage.registry.release(&key(1)));
        stage.enqueue(&key(1), 5);
        seconds(30).await;
        assert!(stage.registry.release(&key(1)));
        assert!(!stage.registry.release(&key(1)));
        seconds(1).await;
        assert_eq!(stage.done(&key(1)), 1);
    });
}

#[test]
fn a_session_that_cannot_be_loaded_waits_with_that_reason() {
    run_paused("load", async {
        let stage = Stage::new();
        stage.watched.unloadable.lock().unwrap().push(key(1));
        stage.enqueue(&key(1), 0);
        seconds(30).await;
        assert_eq!(&*stage.journal.quarantines.lock().unwrap()[0].reason, "load");
        stage.watched.unloadable.lock().unwrap().clear();
        pass(QUARANTINE).await;
        assert_eq!(stage.done(&key(1)), 1);
    });
}

#[test]
fn many_crashing_sessions_escalate_and_one_does_not() {
    run_paused("escalate", async {
        let stage = Stage::with(1000, 1);
        stage.enqueue(&key(1), 4);
        seconds(20).await;
        assert!(stage.log.named(EventName::Escalated).is_empty());
        for n in 10..15 {
            stage.enqueue(&key(n), 1);
        }
        seconds(1).await;
        let escalated = stage.log.named(EventName::Escalated);
        assert_eq!(escalated.len(), 1);
        assert_eq!(&*escalated[0].path.0, "/registry/0");
    });
}

#[test]
fn a_shard_that_escalates_starts_no_sessions_for_a_while_and_resumes_by_itself() {
    run_paused("pause", async {
        let stage = Stage::with(1000, 1);
        for n in 10..15 {
            stage.enqueue(&key(n), 1);
        }
        pass(Duration::from_millis(500)).await;
        let escalated = stage.log.named(EventName::Escalated).remove(0);
        assert_eq!((escalated.backoff_ms, escalated.cause.is_some()), (Some(2000), true));
        assert_eq!(escalated.verdict.as_deref(), Some("no session is started for 2 s"));
        assert_eq!(stage.kernel.metrics().degraded(), ["sessions_paused"]);
        let live = stage.live();
        for n in 20..25 {
            stage.enqueue(&key(n), 0);
        }
        let (reply, _answer) = oneshot::channel();
        assert_eq!(stage.registry.tell(&key(99), Mail::Status { reply }), Err(Unreachable::Paused));
        pass(Duration::from_secs(1)).await;
        assert_eq!((stage.live(), stage.done(&key(20))), (live, 0), "accepted and not started");
        assert_eq!(stage.registry.tree().children[0].state, "paused");
        seconds(10).await;
        let resumed = stage.log.named(EventName::Resumed).remove(0);
        assert_eq!(resumed.cause.as_deref(), Some(&*escalated.id));
        for n in (10..15).chain(20..25) {
            assert_eq!(stage.done(&key(n)), 1, "{n}");
        }
        assert!(stage.kernel.metrics().degraded().is_empty());
    });
}

#[test]
fn control_is_answered_while_a_session_waits_for_its_restart_or_the_end_of_its_quarantine() {
    run_paused("control", async {
        let stage = Stage::new();
        stage.enqueue(&key(1), 5);
        stage.enqueue(&key(1), 0);
        let mut seen = Vec::new();
        for _ in 0..3000 {
            pass(Duration::from_millis(10)).await;
            let (reply, mut status) = oneshot::channel();
            stage.registry.tell_live(&key(1), Mail::Status { reply }).unwrap();
            let Ok(status) = status.try_recv() else { continue };
            let (reply, mut stopped) = oneshot::channel();
            stage.registry.tell_live(&key(1), Mail::Stop { all: false, reply }).unwrap();
            let stopped = stopped.try_recv().unwrap();
            assert!(stopped.later && stopped.cancelled.is_none());
            seen.push((status.state, status.inbox, stopped.waiting));
        }
        seen.dedup();
        assert_eq!(seen, [(State::Restarting, 1, 1), (State::Quarantined, 2, 2)]);
        let before = stage.watched.stops.lock().unwrap().len();
        assert!(stage.registry.release(&key(1)));
        seconds(1).await;
        assert_eq!(stage.watched.stops.lock().unwrap()[before..], [false], "remembered, once");
    });
}
