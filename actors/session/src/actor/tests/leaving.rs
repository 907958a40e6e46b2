//! Leaving memory, and waking up again.

use super::*;

#[test]
fn a_sleeping_session_wakes_with_its_history() {
    run_paused("passivation", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        stage.status().await;
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        assert_eq!(stage.journal.books().released, 1);
        stage.say("two");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["one", "1", "two"]);
        assert_eq!(call.stamp.attempt, Attempt::FIRST);
    });
}

#[test]
fn a_busy_session_does_not_leave() {
    run_paused("busy", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        stage.mail(Mail::Passivate);
        stage.complete(&call, answer("1"));
        assert_eq!(stage.finished().await.1.text, "1");
        assert_eq!(stage.slots.len(), 1);
    });
}

#[test]
fn an_orderly_stop_checkpoints_the_turn_and_leaves() {
    run_paused("interrupt", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        stage.mail(Mail::Interrupt);
        stage.asleep().await;
        assert!(call.cancel.is_cancelled());
        {
            let mut books = stage.journal.books();
            assert!(books.commits.last().unwrap().interrupted);
            assert_eq!(books.left_by, Some(LeftBy::Interrupted));
            assert_eq!((books.released, books.open.len()), (0, 1));
            books.hold = false;
        }
        let status = stage.status().await;
        assert_eq!(status.state, State::Loading);
        let call = stage.called().await;
        assert_eq!(call.stamp.attempt, Attempt(2));
        assert_eq!(stage.journal.books().started.unwrap().crashes, 0);
    });
}

#[test]
fn a_conversation_that_is_too_much_is_let_go_and_read_again() {
    run_paused("trimmed", async {
        let mut stage = Stage::new();
        let long = "x".repeat(100_000);
        stage.turn(&long, "1").await;
        stage.filed(3).await;
        stage.status().await;
        assert_eq!(stage.conversation_bytes(), 0);
        stage.say("two");
        let call = stage.called().await;
        assert_eq!(texts(&call), [&long, "1", "two"]);
        assert!(stage.conversation_bytes() > 100_000, "a turn that runs has its conversation");
    });
}

#[test]
fn an_old_owner_leaves() {
    run_paused("fenced", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        stage.journal.books().verdicts = vec![CommitOutcome::Fenced];
        stage.complete(&call, answer("1"));
        stage.asleep().await;
        assert_eq!(stage.journal.books().open.len(), 1);
        let told = stage.logged(EventName::Undeliverable).await;
        assert_eq!((told.session, told.delivery), (Some(key()), None), "what it had to say stands nowhere");
    });
}

#[test]
fn a_stateless_session_is_moved_away_after_its_turn() {
    run_paused("ephemeral", async {
        let mut stage = Stage::new();
        let body = TurnBody { ephemeral: true, ..TurnBody::text("once") };
        stage.say_body(&body);
        let call = stage.called().await;
        stage.complete(&call, answer("only"));
        stage.finished().await;
        stage.asleep().await;
        let closes: Vec<bool> = stage.journal.books().commits.iter().map(|commit| commit.closes.is_some()).collect();
        assert_eq!(closes, [false, true], "the journal keeps the lines until the file is put away");
        assert!(stage.file().is_empty());
        assert_eq!(stage.disk.list(Path::new("/w/sessions/archive")).unwrap().len(), 1);
    });
}

#[test]
fn an_idle_session_is_small() {
    assert!(size_of::<crate::Session>() < 300, "{}", size_of::<crate::Session>());
    assert!(size_of::<super::super::Live>() < 640, "{}", size_of::<super::super::Live>());
    assert_eq!(key().as_str(), "websocket:stage");
}
