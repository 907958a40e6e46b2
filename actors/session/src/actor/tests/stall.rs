//! Turns, loads and writes that do not get on.

use protocol::tools::{ToolEnd, ToolFinished};

use super::double::*;
use super::*;

const STALL: Duration = Duration::from_secs(300);

async fn pass(time: Duration) {
    tokio::time::sleep(time).await;
}

#[test]
fn a_permit_that_nobody_is_granted_is_not_waited_for_longer() {
    run_paused("permit", async {
        let mut stage = Stage::new();
        stage.say("one");
        let ask = stage.permits.next().await;
        for _ in 0..3 {
            pass(STALL - Duration::from_secs(10)).await;
            stage.moves.beat(stage.now());
        }
        assert!(!ask.cancel.is_cancelled(), "the queue moves");
        let (_, finished) = stage.finished().await;
        assert_eq!(finished.result, TurnResult::Failed);
        assert!(finished.text.contains("the right to call the model"), "{}", finished.text);
        stage.turn("two", "2").await;
    });
}

#[test]
fn a_tool_that_prints_is_not_stuck_and_one_that_is_silent_is() {
    run_paused("tool", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        stage.complete(&call, calls(&["exec"]));
        let run = stage.tools.next().await;
        for _ in 0..3 {
            pass(STALL - Duration::from_secs(10)).await;
            run.pulse.beat(stage.now());
        }
        assert!(!run.cancel.is_cancelled());
        pass(STALL + Duration::from_secs(10)).await;
        assert!(run.cancel.is_cancelled());
        let reason = stage.logged(EventName::TurnStuck).await.reason.unwrap();
        assert!(reason.ends_with("its tools: exec"), "{reason}");
        end_tool(&run, "killed");
        assert_eq!(stage.finished().await.1.result, TurnResult::Failed);
        stage.turn("two", "2").await;
    });
}

#[test]
fn an_answer_of_the_journal_that_got_lost_is_asked_for_again() {
    run_paused("commit", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        stage.journal.books().mute = true;
        stage.complete(&call, answer("1"));
        pass(STALL + Duration::from_secs(20)).await;
        let stuck = stage.logged(EventName::TurnStuck).await;
        assert_eq!(stuck.verdict.as_deref(), Some("loaded again"));
        assert!(stuck.reason.unwrap().ends_with("the journal"));
        // It had been written, so nothing runs again.
        assert_eq!(stage.finished().await.1.text, "1");
        stage.turn("two", "2").await;
        assert!(stage.log.named(EventName::Restarted).is_empty());
    });
}

#[test]
fn a_journal_that_says_that_it_cannot_write_is_waited_for() {
    run_paused("read only", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        stage.journal.books().read_only = true;
        stage.journal.books().hold = true;
        stage.complete(&call, answer("1"));
        pass(STALL * 10).await;
        assert!(stage.log.named(EventName::TurnStuck).is_empty());
        stage.journal.books().read_only = false;
        stage.journal.let_go();
        assert_eq!(stage.finished().await.1.text, "1");
    });
}

#[test]
fn a_load_that_does_not_end_begins_anew_and_at_last_the_session_is_given_up() {
    run_paused("load", async {
        let stage = Stage::new();
        stage.journal.books().hold = true;
        stage.mail(Mail::Passivate);
        pass(STALL * 4).await;
        let verdicts: Vec<_> =
            stage.log.named(EventName::TurnStuck).into_iter().map(|event| event.verdict.unwrap()).collect();
        assert_eq!(verdicts, ["loaded again", "loaded again", "held back"]);
        stage.asleep().await;
        let exited = stage.log.named(EventName::Exited).remove(0);
        assert_eq!(exited.reason.as_deref(), Some("panicked"));
    });
}

#[test]
fn a_load_that_is_answered_late_is_good_all_the_same() {
    run_paused("late load", async {
        let mut stage = Stage::new();
        stage.journal.books().hold = true;
        stage.say("one");
        pass(STALL + Duration::from_secs(20)).await;
        stage.journal.let_go();
        let call = stage.called().await;
        stage.complete(&call, answer("1"));
        assert_eq!(stage.finished().await.1.text, "1");
    });
}

#[test]
fn a_crash_ends_what_the_turn_has_started_at_once_and_not_after_the_backoff() {
    run_paused("links", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        stage.complete(&call, calls(&["read", "read"]));
        let (first, second) = (stage.tools.next().await, stage.tools.next().await);
        let finished = ToolFinished {
            stamp: first.stamp,
            result: domain::chat::ToolResult {
                call: first.call.id.clone(),
                name: "read".to_owned(),
                content: vec![],
                is_error: false,
            },
            end: ToolEnd::Ok,
            edit: None,
        };
        stage.arm();
        tell(&first.reply_to, finished).unwrap();
        stage.logged(EventName::Restarted).await;
        assert!(second.cancel.is_cancelled(), "the restart waits, the tool does not");
    });
}

#[test]
fn a_session_without_a_place_waits_and_answers_control() {
    run_paused("place", async {
        let mut stage = Stage::new();
        let taken: Vec<_> = (0..2).map(|_| stage.take_place().unwrap()).collect();
        stage.say("one");
        while stage.status().await.state == State::Loading {
            tokio::task::yield_now().await;
        }
        let status = stage.status().await;
        assert_eq!((status.state, status.turn, status.inbox), (State::Waiting, None, 1));
        assert!(stage.permits.try_next().is_none());
        drop(taken);
        let call = stage.called().await;
        stage.complete(&call, answer("1"));
        assert_eq!(stage.finished().await.1.text, "1");
        assert!(stage.take_place().is_some() && stage.take_place().is_some(), "the place is free again");
        let status = stage.status().await;
        assert_eq!((status.state, status.turn), (State::Idle, None), "nothing runs, and it says so");
    });
}

#[test]
fn sub_agents_find_places_while_all_others_wait_for_them() {
    run_paused("places of sub-agents", async {
        let stage = Stage::new();
        let _waiting: Vec<_> = (0..2).map(|_| stage.take_place().unwrap()).collect();
        assert!(stage.take_place().is_none());
        let child =
            domain::run::child_key(&super::double::key(), domain::ids::RunId(uuid::Uuid::from_u128(7))).unwrap();
        let own = [(); 2].map(|()| stage.take_place_of(&child));
        assert!(own.iter().all(Option::is_some) && stage.take_place_of(&child).is_none());
    });
}
