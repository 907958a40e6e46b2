use std::time::Duration;

use protocol::metrics::ByState;
use protocol::registry::{Sessions, Unreachable};
use protocol::session::Mail;
use protocol::supervision::{EventName, TreeNode};
use protocol::top::{TopQuery, TopRow, TopSort};
use supervision::pressure::Level;
use testkit::deadline::run_paused;
use tokio::sync::oneshot;

use crate::stage::{IDLE, Stage, key, pass, seconds};
use crate::toy::{LOAD, TURN};

#[test]
fn a_message_starts_its_session_once() {
    run_paused("start", async {
        let stage = Stage::new();
        for _ in 0..10 {
            stage.enqueue(&key(1), 0);
        }
        stage.enqueue(&key(2), 0);
        seconds(2).await;
        assert_eq!((stage.done(&key(1)), stage.done(&key(2)), stage.live()), (10, 1, 2));
        assert_eq!(*stage.watched.activations.lock().unwrap(), 2);
    });
}

#[test]
fn idle_sessions_leave_memory_and_come_back() {
    run_paused("idle", async {
        let stage = Stage::new();
        stage.enqueue(&key(1), 0);
        pass(IDLE - Duration::from_secs(2)).await;
        assert_eq!(stage.live(), 1);
        stage.enqueue(&key(1), 0);
        seconds(10).await;
        assert_eq!(stage.live(), 1, "use keeps it");
        pass(IDLE).await;
        assert_eq!(stage.live(), 0);
        stage.enqueue(&key(1), 0);
        seconds(1).await;
        assert_eq!((stage.done(&key(1)), stage.live()), (3, 1));
        let reasons: Vec<_> =
            stage.log.named(EventName::Exited).into_iter().map(|event| event.reason.unwrap()).collect();
        assert_eq!(reasons, ["passivated"]);
    });
}

#[test]
fn over_the_limit_the_longest_idle_leave() {
    run_paused("limit", async {
        let stage = Stage::with(10, 1);
        for n in 0..30 {
            stage.enqueue(&key(n), 0);
            pass(Duration::from_millis(10)).await;
        }
        seconds(5).await;
        assert_eq!(stage.live(), 10);
        let live =
            |n| stage.registry.tell_live(&key(n), Mail::CancelTurn { turn: domain::ids::TurnId(uuid::Uuid::nil()) });
        assert!(live(0).is_err() && live(19).is_err());
        assert!(live(20).is_ok() && live(29).is_ok());
    });
}

#[test]
fn control_reaches_sleeping_sessions_only_when_it_should_wake_them() {
    run_paused("control", async {
        let stage = Stage::new();
        let (reply, _answer) = oneshot::channel();
        assert!(stage.registry.tell_live(&key(1), Mail::Status { reply }).is_err());
        assert_eq!(stage.live(), 0);
        let (reply, answer) = oneshot::channel();
        stage.registry.tell(&key(1), Mail::Status { reply }).unwrap();
        assert_eq!(answer.await.unwrap().key, key(1));
        assert_eq!(stage.live(), 1);
    });
}

#[test]
fn a_session_that_ends_with_mail_under_way_is_started_again() {
    run_paused("rude", async {
        let stage = Stage::new();
        stage.watched.rude.lock().unwrap().push(key(1));
        stage.enqueue(&key(1), 0);
        stage.enqueue(&key(1), 0);
        seconds(1).await;
        assert_eq!((stage.done(&key(1)), *stage.watched.activations.lock().unwrap()), (2, 2));
    });
}

#[test]
fn a_stop_interrupts_all_and_starts_none() {
    run_paused("stop", async {
        let stage = Stage::new();
        for n in 0..50 {
            stage.enqueue(&key(n), 0);
            stage.enqueue(&key(n), 0);
        }
        pass(Duration::from_millis(30)).await;
        assert_eq!(stage.registry.stop(Duration::from_secs(30)).await, 0);
        stage.enqueue(&key(1), 0);
        let (reply, _answer) = oneshot::channel();
        assert_eq!(stage.registry.tell(&key(99), Mail::Status { reply }), Err(Unreachable::Stopping));
        seconds(1).await;
        assert_eq!(stage.live(), 0);
        let exits = stage.log.named(EventName::Exited);
        assert_eq!(exits.len(), 50);
        assert!(exits.iter().all(|event| event.reason.as_deref() == Some("shutdown")));
    });
}

#[test]
fn a_stop_without_patience_checkpoints_what_runs() {
    run_paused("no patience", async {
        let stage = Stage::new();
        stage.enqueue(&key(1), 0);
        assert_eq!(stage.registry.stop(Duration::ZERO).await, 0);
        let exits = stage.log.named(EventName::Exited);
        assert_eq!(exits.iter().map(|event| event.reason.as_deref()).collect::<Vec<_>>(), [Some("shutdown")]);
    });
}

fn find<'a>(node: &'a TreeNode, path: &str) -> Option<&'a TreeNode> {
    if *node.path.0 == *path { Some(node) } else { node.children.iter().find_map(|child| find(child, path)) }
}

#[test]
fn the_tree_and_the_counters_show_sessions() {
    run_paused("tree", async {
        let stage = Stage::with(100, 1);
        let turn = stage.enqueue(&key(1), 0);
        stage.enqueue(&key(1), 0);
        stage.enqueue(&key(2), 0);
        pass(Duration::from_millis(40)).await;
        let tree = stage.registry.tree();
        let busy = find(&tree, "/registry/0/session/api:1").unwrap();
        assert_eq!((busy.state.as_str(), busy.turn, busy.inbox), ("thinking", Some(turn), 1));
        assert!(busy.since > 0);
        assert_eq!(find(&tree, "/registry/0").unwrap().inbox, 1);
        stage.enqueue(&key(3), 100);
        seconds(60).await;
        let tree = stage.registry.tree();
        assert_eq!(find(&tree, "/registry/0/session/api:1").unwrap().state, "idle");
        assert_eq!(find(&tree, "/registry/0/session/api:3").unwrap().state, "quarantined");
        let gauge = |state| stage.kernel.metrics().sessions.get_or_create(&ByState { state }).get();
        assert_eq!((gauge("live"), gauge("quarantined")), (2, 1));
    });
}

#[test]
fn the_busiest_sessions_are_found_among_many() {
    run_paused("top", async {
        let stage = Stage::new();
        for n in 0..40 {
            for _ in 0..=n % 7 {
                stage.enqueue(&key(n), 0);
            }
        }
        let query = |sort, path: Option<&str>, limit| TopQuery { path: path.map(str::to_owned), sort, limit };
        let top = stage.registry.top(&query(TopSort::Inbox, None, 5));
        assert_eq!(top.states.values().sum::<u64>(), 40);
        assert_eq!(top.rows.len(), 5);
        let all = stage.registry.top(&query(TopSort::Inbox, None, 500));
        assert_eq!((all.rows.len(), all.inbox), (40, top.inbox));
        assert_eq!(all.rows.iter().map(|row| row.inbox).sum::<u64>(), all.inbox);
        assert!(all.rows.is_sorted_by(|a, b| a.inbox >= b.inbox));
        let depths = |rows: &[TopRow]| rows.iter().map(|row| row.inbox).collect::<Vec<_>>();
        assert_eq!(depths(&top.rows), depths(&all.rows[..5]));
        let one = stage.registry.top(&query(TopSort::Running, Some("*/session/api:7"), 500));
        assert_eq!(one.rows.iter().map(|row| row.session.clone()).collect::<Vec<_>>(), [Some(key(7))]);
        assert!(stage.registry.top(&query(TopSort::Running, None, 0)).rows.is_empty());

        seconds(1).await;
        pass(TURN / 2).await;
        let running = stage.registry.top(&query(TopSort::Running, None, 500));
        for row in &running.rows {
            assert_eq!(row.turn.is_some(), row.running_ms.is_some());
            assert!(row.running_ms.is_none_or(|ms| ms <= TURN.as_millis() as u64), "{row:?}");
        }
    });
}

#[test]
fn for_want_of_memory_the_idle_leave_at_once_and_those_with_work_stay() {
    run_paused("memory", async {
        let stage = Stage::new();
        for n in 0..20 {
            stage.enqueue(&key(n), 0);
        }
        seconds(10).await;
        assert_eq!(stage.live(), 20);
        stage.memory.set(Level::High);
        pass(Duration::from_millis(900)).await;
        for _ in 0..1000 {
            stage.enqueue(&key(1), 0);
        }
        seconds(2).await;
        assert_eq!(stage.live(), 1);
        stage.memory.set(Level::Calm);
        stage.enqueue(&key(2), 0);
        seconds(60).await;
        assert_eq!((stage.done(&key(1)), stage.done(&key(2)), stage.live()), (1001, 2, 2));
    });
}

#[test]
fn a_session_that_crashes_while_the_process_stops_leaves_in_its_next_life() {
    run_paused("crash at the stop", async {
        let stage = Stage::new();
        stage.enqueue(&key(1), 1);
        pass(LOAD + TURN / 2).await;
        let stopped = tokio::time::timeout(Duration::from_secs(10), stage.registry.stop(Duration::from_secs(30))).await;
        assert_eq!(stopped, Ok(0), "nobody waits for the deadline");
        assert_eq!(stage.done(&key(1)), 0, "its turn is kept for the next start");
        assert_eq!(stage.log.named(EventName::Restarted).len(), 1);
    });
}
