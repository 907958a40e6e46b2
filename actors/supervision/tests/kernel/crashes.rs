use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::ids::{Attempt, Epoch, MessageId, TurnId};
use protocol::metrics::ByKindReason;
use protocol::supervision::{EventName, ExitReason};
use supervision::crash_file::CRASH_FILES_MAX;
use supervision::panic::Caught;
use supervision::ports::{Disk, Open};
use testkit::deadline::run_paused;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::child::{Do, Said, Stage, kernel};

#[test]
fn a_crash_keeps_mailbox_and_address() {
    run_paused("restart", async {
        let mut stage = Stage::new();
        for message in [Do::Work(1), Do::Boom, Do::Work(2), Do::Boom, Do::Work(3)] {
            stage.tell(message);
        }
        let said = stage.until(Said::Worked(3)).await;
        let expect = [
            Said::Started,
            Said::Worked(1),
            Said::OwnerTold,
            Said::Started,
            Said::Worked(2),
            Said::OwnerTold,
            Said::Started,
        ];
        assert_eq!(said, expect);
    });
}

#[test]
fn a_crash_is_told_with_text_place_and_turn() {
    run_paused("crash", async {
        let mut stage = Stage::new();
        let turn = TurnId(Uuid::from_u128(7));
        stage.kernel.keep_crashes_in("/logs/crash".into());
        stage.cell.set_turn(turn, Attempt(2));
        stage.cell.set_epoch(Epoch(9));
        stage.tell(Do::Boom);
        let down = stage.downs.next().await;
        assert_eq!((down.reason, down.restarts, down.incarnation), (ExitReason::Panicked, true, 1));
        let crash = down.crash.unwrap();
        assert_eq!(crash.panic.text, "boom with \"…\" in it");
        assert!(crash.panic.at.contains("child.rs:"));
        assert_eq!(crash.turn, Some((turn, Attempt(2))));

        let event = stage.log.named(EventName::Restarted).remove(0);
        assert_eq!((event.turn, event.attempt, event.epoch), (Some(turn), Some(Attempt(2)), Some(Epoch(9))));
        assert_eq!(event.restarts_in_window, Some(1));
        assert_eq!(event.verdict.as_deref(), Some("restart"));
        assert!((50..=100).contains(&event.backoff_ms.unwrap()));
        let last = stage.cell.last_crash().unwrap();
        assert_eq!((last.event, last.crash.panic), (event.id, crash.panic));

        let file = stage.disk.read(Path::new(&format!("/logs/crash/{}.txt", crash.backtrace))).unwrap();
        let text = String::from_utf8(file).unwrap();
        assert!(text.starts_with("boom with \"a long quoted piece of a chat\" in it\nat "), "{text}");
        assert!(text.contains("child::"), "a resolved backtrace");
        let labels = ByKindReason { kind: "tools", reason: "panicked" };
        assert_eq!(stage.kernel.metrics().restarts.get_or_create(&labels).get(), 1);
        assert_eq!(stage.kernel.vitals(&stage.path).unwrap().0, 1);
    });
}

#[test]
fn the_backoff_is_waited_for_and_grows() {
    run_paused("backoff", async {
        let mut stage = Stage::new();
        let begun = stage.kernel.ports().clock.mono();
        for _ in 0..4 {
            stage.tell(Do::Boom);
        }
        stage.tell(Do::Work(1));
        stage.until(Said::Worked(1)).await;
        let took = stage.kernel.ports().clock.mono() - begun;
        // 100 + 200 + 400 + 800 ms, of which half is random.
        assert!((Duration::from_millis(750)..=Duration::from_millis(1510)).contains(&took), "{took:?}");
    });
}

#[test]
fn every_way_to_crash_is_survived() {
    for way in [Do::Boom, Do::BoomInFuture, Do::BoomInTimer, Do::BoomInRestart, Do::BoomInStarted] {
        run_paused("crash", async {
            let mut stage = Stage::new();
            stage.tell(way);
            // Whatever was spawned runs before a message that comes after the crash.
            assert!(stage.downs.next().await.restarts, "{way:?}");
            stage.tell(Do::Work(1));
            stage.until(Said::Worked(1)).await;
        });
    }
}

#[test]
fn what_is_linked_ends_with_its_incarnation_and_not_with_the_backoff() {
    run_paused("links", async {
        let mut stage = Stage::new();
        let first = CancellationToken::new();
        stage.cell.link(first.clone());
        stage.tell(Do::Boom);
        assert!(stage.downs.next().await.restarts);
        assert!(first.is_cancelled(), "before the backoff is over");
        let (done, second) = (CancellationToken::new(), CancellationToken::new());
        stage.cell.link(done.clone());
        stage.cell.clear_turn();
        stage.cell.link(second.clone());
        stage.tell(Do::Leave(ExitReason::Normal));
        stage.downs.next().await;
        assert_eq!((done.is_cancelled(), second.is_cancelled()), (false, true), "what had ended before is left alone");
    });
}

#[test]
fn forgiven_crashes_do_not_add_up() {
    run_paused("forgiven", async {
        let mut stage = Stage::new();
        for round in 0..5 {
            for _ in 0..3 {
                stage.tell(Do::Boom);
            }
            stage.tell(Do::Forgive);
            stage.tell(Do::Work(round));
            stage.until(Said::Worked(round)).await;
        }
        assert_eq!(stage.log.named(EventName::Restarted).len(), 15);
        assert!(stage.log.named(EventName::GaveUp).is_empty());
    });
}

#[test]
fn every_event_names_the_one_that_led_to_it() {
    run_paused("causes", async {
        let mut stage = Stage::new();
        stage.cell.set_message(MessageId::new("m-1").unwrap());
        for _ in 0..5 {
            stage.tell(Do::Boom);
        }
        stage.until(Said::Dropped).await;
        let events = stage.log.events();
        let names: Vec<EventName> = events.iter().map(|event| event.event).collect();
        let restarted = EventName::Restarted;
        let expect =
            [EventName::Started, restarted, restarted, restarted, restarted, EventName::GaveUp, EventName::Exited];
        assert_eq!(names, expect);
        assert_eq!(events[0].cause, None);
        for pair in events.windows(2) {
            assert_eq!(pair[1].cause.as_ref(), Some(&pair[0].id));
        }
        assert_eq!(events[1].message_id, MessageId::new("m-1").ok(), "of the message at which it crashed");
        assert_eq!(events[2].message_id, None, "and of that one only");
    });
}

#[test]
fn the_number_of_crash_files_is_bounded_over_all_processes() {
    let (kernel, _, disk) = kernel();
    let dir = Path::new("/logs/crash");
    disk.create_dir_all(dir).unwrap();
    for n in 0..CRASH_FILES_MAX + 10 {
        disk.open(&dir.join(format!("{n:016x}.txt")), Open::Create).unwrap().write_at(b"of before", 0).unwrap();
    }
    kernel.keep_crashes_in(dir.into());
    let caught = |full: &str| Caught { full: full.to_owned(), at: "a.rs:1:1".to_owned(), backtrace: None };
    kernel.keep_crash(Arc::new(caught("one")));
    kernel.keep_crash(Arc::new(caught("one")));
    kernel.keep_crash(Arc::new(caught(&"long ".repeat(1_000_000))));
    let files = disk.list(dir).unwrap();
    assert_eq!(files.len(), CRASH_FILES_MAX);
    assert!(files.contains(&dir.join(format!("{}.txt", caught("one").hash()))), "the newest stay");
    assert!(!files.contains(&dir.join(format!("{:016x}.txt", 0))), "the oldest go");
    assert!(files.iter().all(|file| disk.stat(file).unwrap().length < 1 << 20));
}
