use std::time::Duration;

use protocol::registry::{Sessions, Unreachable};
use protocol::session::Mail;
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
        assert_eq!(stage.registry.tell(&key(1), Mail::Status { reply }), Err(Unreachable::Quarantined));
        assert_eq!(stage.live(), 1);

        pass(QUARANTINE).await;
        assert_eq!(stage.done(&key(1)), 3, "released by time, nothing lost");
        assert_eq!(*stage.journal.unquarantined.lock().unwrap(), [key(1)]);
        let released = stage.log.named(EventName::Released).remove(0);
        assert_eq!(released.cause.as_deref(), Some(&*quarantined.id));
        let started = stage.log.named(EventName::Started).pop().unwrap();
        assert_eq!(started.cause, Some(released.id), "and that led to its start");
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
