//! What a crash leaves, and what the next life makes of it.

use domain::chat::{AssistantMessage, StopReason};
use supervision::memory::Fault;

use super::*;

#[test]
fn events_of_an_earlier_attempt_are_dropped_and_counted() {
    run_paused("stale", async {
        let mut stage = Stage::new();
        stage.say("hello");
        let call = stage.called().await;
        let mut old = call.stamp;
        old.epoch.0 += 7;
        stage.delta_as(&call, old, "old");
        stage.complete(&call, answer("new"));
        let (_, finished) = stage.finished().await;
        assert_eq!(finished.text, "new");
        assert_eq!(stage.metrics.stale_events.get_or_create(&ByKind { kind: "session" }).get(), 1);
    });
}

#[test]
fn a_crash_cancels_the_call_and_the_turn_runs_again() {
    run_paused("crash", async {
        let mut stage = Stage::new();
        stage.turn("before", "ok").await;
        stage.say("boom");
        let call = stage.called().await;
        stage.delta(&call, BOMB);
        let second = stage.called().await;
        assert!(call.cancel.is_cancelled());
        assert_eq!(second.stamp.attempt, Attempt(2));
        assert!(second.stamp.epoch > call.stamp.epoch);
        assert_eq!(texts(&second), ["before", "ok", "boom"]);
        stage.complete(&call, answer("late"));
        stage.complete(&second, answer("in time"));
        assert_eq!(stage.finished().await.1.text, "in time");
        let recovered = stage.logged(EventName::TurnRecovered).await;
        assert_eq!((recovered.turn, recovered.attempt), (Some(turn(2)), Some(Attempt(2))));
        assert_eq!(recovered.cause, Some(stage.log.named(EventName::Restarted)[0].id.clone()));
        stage.filed(5).await;
    });
}

#[test]
fn an_answer_that_was_cut_goes_on_behind_a_crash_and_is_told_as_one() {
    run_paused("crash between two parts", async {
        let mut stage = Stage::new();
        stage.say("long");
        let call = stage.called().await;
        let part = |text: &str| Box::new(AssistantMessage { stop: StopReason::Length, ..*answer(text) });
        stage.complete(&call, part("one "));
        let second = stage.called().await;
        stage.complete(&second, part("two "));
        let third = stage.called().await;
        stage.delta(&third, BOMB);
        let again = stage.called().await;
        let go_on = domain::prompt::Nudge::go_on("one two ").text();
        assert_eq!(texts(&again), ["long", "one two ", &go_on]);
        stage.complete(&again, answer("three"));
        assert_eq!(stage.finished().await.1.text, "one two three");
        stage.filed(5).await;
        let transcript = domain::transcript::read_lines(stage.file().as_bytes());
        let record = domain::transcript::turn_record(&transcript, turn(1)).unwrap();
        assert_eq!((record.text.as_str(), record.end), ("one two three", Some(domain::transcript::TurnClose::Done)));
        // The next request has it as one message.
        stage.say("next");
        assert_eq!(texts(&stage.called().await), ["long", "one two three", "next"]);
    });
}

#[test]
fn a_message_that_crashes_three_times_is_given_up_and_the_queue_goes_on() {
    run_paused("poison", async {
        let mut stage = Stage::new();
        stage.say("boom");
        stage.say("after");
        for _ in 0..3 {
            let call = stage.called().await;
            stage.delta(&call, BOMB);
        }
        let (id, finished) = stage.finished().await;
        assert_eq!((id, finished.result), (turn(1), TurnResult::DeadLettered));
        let call = stage.called().await;
        stage.complete(&call, answer("fine"));
        assert_eq!(stage.finished().await.1.text, "fine");
        let event = stage.logged(EventName::DeadLettered).await;
        assert_eq!((event.turn, event.reason.as_deref()), (Some(turn(1)), Some("crashes")));
        assert_eq!(event.cause, Some(stage.log.named(EventName::Restarted)[2].id.clone()));
        assert!(event.message_id.is_some());
        for crash in stage.log.named(EventName::Restarted) {
            assert_eq!((crash.message_id, crash.inbox), (event.message_id.clone(), Some(1)), "one message waited");
        }
        stage.filed(5).await;
        assert!(stage.file().contains(r#""turnEnd":"dead""#));
    });
}

#[test]
fn a_turn_whose_commits_are_never_known_to_be_kept_is_given_up() {
    run_paused("unknown", async {
        let mut stage = Stage::new();
        stage.say("boom");
        // Three loads by itself, then each counts as a crash.
        for _ in 0..6 {
            let call = stage.called().await;
            stage.journal.books().verdicts = vec![CommitOutcome::Unknown { why: "test".to_owned() }];
            stage.complete(&call, answer("lost"));
        }
        let (id, finished) = stage.finished().await;
        assert_eq!((id, finished.result), (turn(1), TurnResult::DeadLettered));
        assert_eq!(stage.log.named(EventName::Restarted).len(), 3);
        stage.turn("after", "fine").await;
    });
}

#[test]
fn a_recovered_turn_waits_for_the_tools_of_the_crashed_one() {
    run_paused("drain", async {
        let mut stage = Stage::new();
        stage.say("look");
        let call = stage.called().await;
        stage.complete(&call, calls(&["read", "read"]));
        let (first, old) = (stage.tools.next().await, stage.tools.next().await);
        stage.journal.books().verdicts = vec![CommitOutcome::Unknown { why: "test".to_owned() }];
        end_tool(&first, "lost");
        // The session loads again; the tool of the earlier life is cancelled and still runs.
        stage.logged(EventName::TurnRecovered).await;
        assert!(old.cancel.is_cancelled());
        stage.status().await;
        assert!(stage.tools.try_next().is_none());
        end_tool(&old, "old");
        for text in ["new 1", "new 2"] {
            let new = stage.tools.next().await;
            assert_eq!(new.stamp.attempt, Attempt(2));
            end_tool(&new, text);
        }
        let call = stage.called().await;
        assert_eq!(texts(&call), ["look", "let me look", "new 1", "new 2"]);
    });
}

#[test]
fn a_crash_while_it_loads_does_not_clear_the_turn_that_crashed_before() {
    run_paused("blame", async {
        let mut stage = Stage::new();
        stage.turn("before", "ok").await;
        stage.filed(3).await;
        stage.say("boom");
        let call = stage.called().await;
        // The transcript cannot be read, in neither of the two ways.
        stage.disk.fail_next(Fault::ReadEio);
        stage.disk.fail_next(Fault::ReadEio);
        stage.delta(&call, BOMB);
        for _ in 0..2 {
            let call = stage.called().await;
            stage.delta(&call, BOMB);
        }
        let (id, finished) = stage.finished().await;
        assert_eq!((id, finished.result), (turn(2), TurnResult::DeadLettered));
        let crashed: Vec<_> = stage.log.named(EventName::Restarted).into_iter().map(|event| event.turn).collect();
        assert_eq!(crashed, [Some(turn(2)), None, Some(turn(2)), Some(turn(2))]);
    });
}

#[test]
fn an_end_that_a_crash_kept_from_being_told_is_told_by_the_next_life() {
    run_paused("late end", async {
        let mut stage = Stage::new();
        stage.say("hello");
        let call = stage.called().await;
        stage.arm();
        stage.complete(&call, answer("world"));
        let event = loop {
            let event = stage.event().await;
            if let TurnProgress::Finished(finished) = &event.what {
                assert_eq!((finished.result, finished.text.as_str()), (TurnResult::Done, "world"));
                break event;
            }
        };
        assert_eq!((event.turn, event.attempt, event.seq), (turn(1), Attempt(2), 1));
        assert_eq!(stage.log.named(EventName::Restarted).len(), 1);
        stage.turn("again", "yes").await;
        assert!(stage.log.named(EventName::TurnRecovered).is_empty(), "it did not run again");
    });
}

#[test]
fn a_turn_that_no_transcript_knows_is_told_as_cancelled_unless_it_has_come_just_now() {
    run_paused("unknown turns", async {
        let mut stage = Stage::new();
        stage.follow(turn(1));
        stage.follow(turn(9));
        stage.journal.books().hold = true;
        let (reply, _status) = oneshot::channel();
        stage.mail(Mail::Status { reply });
        while stage.journal.books().held.is_empty() {
            tokio::task::yield_now().await;
        }
        // What is loaded lacks the message that comes behind it.
        stage.journal.let_go();
        assert_eq!(stage.say("hello"), 1);
        let call = stage.called().await;
        stage.complete(&call, answer("world"));
        let ends = [stage.finished().await, stage.finished().await].map(|(id, finished)| (id, finished.result));
        assert_eq!(ends, [(turn(9), TurnResult::Cancelled), (turn(1), TurnResult::Done)]);
    });
}
