//! A turn from its message to its end, and control beside it.

use protocol::provider::Permit;

use super::*;

#[test]
fn a_plain_turn_is_answered_saved_and_written() {
    run_paused("plain turn", async {
        let mut stage = Stage::new();
        let seq = stage.say("hello");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["hello"]);
        stage.delta(&call, "wor");
        stage.complete(&call, answer("world"));
        let (id, finished) = stage.finished().await;
        assert_eq!((id, finished.result, finished.text.as_str()), (turn(seq), TurnResult::Done, "world"));
        assert_eq!(stage.journal.books().commits.len(), 1);
        stage.turn("again", "yes").await;
        assert_eq!(stage.status().await.state, State::Idle);
        stage.filed(5).await;
        stage.status().await;
        let file = stage.file();
        let lines: Vec<&str> = file.lines().collect();
        assert_eq!(lines.len(), 5, "a header and four messages");
        assert!(lines[0].contains(r#""sessionKey":"websocket:stage""#));
        let books = stage.journal.books();
        assert_eq!(books.lines.iter().map(|line| &*line.text).collect::<Vec<_>>(), lines);
        let view = books.views.last().unwrap();
        assert_eq!((view.commit, view.mark.length), (2, file.len() as u64));
    });
}

#[test]
fn events_of_a_turn_are_numbered_and_end_once() {
    run_paused("events", async {
        let mut stage = Stage::new();
        stage.say("hello");
        let call = stage.called().await;
        stage.delta(&call, "a");
        stage.complete(&call, answer("a"));
        let mut seen = Vec::new();
        for _ in 0..4 {
            let event = stage.event().await;
            seen.push((event.seq, event.attempt));
            let expected = match event.seq {
                1 => matches!(event.what, TurnProgress::Started),
                2 => matches!(event.what, TurnProgress::Delta(_)),
                3 => matches!(event.what, TurnProgress::StreamEnd { more: false, .. }),
                _ => matches!(event.what, TurnProgress::Finished(_)),
            };
            assert!(expected, "{event:?}");
        }
        assert_eq!(seen, [1, 2, 3, 4].map(|seq| (seq, Attempt::FIRST)));
    });
}

#[test]
fn control_is_answered_while_a_turn_thinks_and_while_the_session_loads() {
    run_paused("control", async {
        let mut stage = Stage::new();
        stage.journal.books().hold = true;
        stage.say("one");
        let status = stage.status().await;
        assert_eq!((status.state, status.inbox), (State::Loading, 1));
        stage.journal.let_go();
        let call = stage.called().await;
        stage.say("two");
        let status = stage.status().await;
        assert_eq!((status.state, status.turn, status.inbox), (State::Thinking, Some(turn(1)), 1));
        let (reply, stopped) = oneshot::channel();
        stage.mail(Mail::Stop { all: false, reply });
        let stopped = with_deadline("the stop", stopped).await.unwrap();
        assert_eq!((stopped.cancelled, stopped.waiting), (Some(turn(1)), 1));
        assert!(call.cancel.is_cancelled());
        assert_eq!(stage.finished().await.1.result, TurnResult::Cancelled);
        let call = stage.called().await;
        stage.complete(&call, answer("2"));
        assert_eq!(stage.finished().await.0, turn(2));
        assert_eq!(stage.logged(EventName::TurnCancelled).await.reason.as_deref(), Some("it was stopped by hand"));
    });
}

#[test]
fn a_turn_whose_asker_went_away_says_so_whether_it_runs_or_waits() {
    run_paused("asker gone", async {
        let mut stage = Stage::new();
        let seqs = [stage.say("one"), stage.say("two")];
        stage.called().await;
        stage.mail(Mail::CancelTurn { turn: turn(seqs[1]) });
        stage.mail(Mail::CancelTurn { turn: turn(seqs[0]) });
        for seq in seqs {
            let (id, finished) = stage.finished().await;
            assert_eq!((id, finished.result), (turn(seq), TurnResult::Cancelled));
        }
        let told = stage.log.named(EventName::TurnCancelled);
        let told: Vec<_> = told.iter().map(|event| event.reason.as_deref()).collect();
        assert_eq!(told, [Some("whoever asked went away, or waits no longer"); 2]);
    });
}

#[test]
fn a_stop_that_comes_while_loading_is_remembered() {
    run_paused("early stop", async {
        let mut stage = Stage::new();
        stage.journal.books().hold = true;
        stage.say("one");
        let (reply, stopped) = oneshot::channel();
        stage.mail(Mail::Stop { all: true, reply });
        let stopped = with_deadline("the stop", stopped).await.unwrap();
        assert!(stopped.later && stopped.waiting == 1, "{stopped:?}");
        stage.journal.let_go();
        assert_eq!(stage.finished().await.1.result, TurnResult::Cancelled);
    });
}

#[test]
fn a_failed_model_call_ends_the_turn_with_its_reason() {
    run_paused("failure", async {
        let mut stage = Stage::new();
        stage.say("hello");
        let call = stage.called().await;
        let failure = Failure { kind: FailureKind::Billing, detail: "the account is empty".to_owned() };
        tell(&call.reply_to, Event::Failed { stamp: call.stamp, failure }).unwrap();
        let (_, finished) = stage.finished().await;
        assert_eq!(finished.result, TurnResult::Failed);
        assert!(finished.text.contains("has no credit left") && finished.text.ends_with("(the account is empty)"));
        stage.turn("again", "fine").await;
    });
}

#[test]
fn an_answer_that_the_journal_cannot_hold_is_replaced_by_a_notice_once() {
    run_paused("too large", async {
        let mut stage = Stage::new();
        stage.turn("first", "1").await;
        stage.say("write a book");
        let call = stage.called().await;
        stage.journal.books().verdicts = vec![CommitOutcome::TooLarge];
        stage.complete(&call, answer(&"x".repeat(2_500_000)));
        let (id, finished) = stage.finished().await;
        assert_eq!((id, finished.result), (turn(2), TurnResult::Failed));
        assert!(finished.text.contains("too large to be kept (3 MB)"), "{}", finished.text);
        // The conversation goes on, and holds nothing of what was refused.
        stage.say("next");
        let call = stage.called().await;
        assert_eq!(texts(&call)[..3], ["first", "1", "write a book"]);
        assert!(texts(&call).iter().all(|text| text.len() < 1000));
        stage.complete(&call, answer("2"));
        assert_eq!(stage.finished().await.1.result, TurnResult::Done);
        stage.filed(7).await;
        let file = stage.file();
        let transcript = domain::transcript::read_lines(file.as_bytes());
        assert_eq!((transcript.problems_total, transcript.path_to_leaf().len()), (0, 6), "{file}");
        assert_eq!(file.matches(r#""turnEnd":"failed""#).count(), 1);
        assert!(stage.log.named(EventName::TurnRecovered).is_empty());
        assert_eq!(stage.journal.books().commits.len(), 3);
    });
}

#[test]
fn a_first_answer_that_cannot_be_held_leaves_a_whole_transcript() {
    run_paused("too large at first", async {
        let mut stage = Stage::new();
        stage.say("write a book");
        let call = stage.called().await;
        stage.journal.books().verdicts = vec![CommitOutcome::TooLarge];
        stage.complete(&call, calls(&["exec"]));
        assert_eq!(stage.finished().await.1.result, TurnResult::Failed);
        stage.filed(3).await;
        assert!(stage.file().lines().next().unwrap().contains(r#""sessionKey":"websocket:stage""#));
        assert!(stage.tools.try_next().is_none());
    });
}

#[test]
fn tools_run_once_it_is_durable_and_in_groups() {
    run_paused("tools", async {
        let mut stage = Stage::new();
        stage.say("look");
        let call = stage.called().await;
        stage.journal.books().hold = true;
        stage.complete(&call, calls(&["read", "read", "exec"]));
        assert_eq!(stage.status().await.state, State::Saving);
        assert!(stage.tools.try_next().is_none());
        stage.journal.let_go();
        let first = stage.tools.next().await;
        let second = stage.tools.next().await;
        end_tool(&second, "2");
        assert_eq!(stage.status().await.state, State::RunningTools);
        assert!(stage.tools.try_next().is_none());
        end_tool(&first, "1");
        let third = stage.tools.next().await;
        assert_eq!(&*third.call.id.0, "c2");
        end_tool(&third, "3");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["look", "let me look", "1", "2", "3"]);
        stage.complete(&call, answer("done"));
        assert_eq!(stage.finished().await.1.usage.output_tokens, 2);
        assert_eq!(stage.journal.books().commits.len(), 5);
    });
}

#[test]
fn a_turn_without_progress_is_stopped_and_reported() {
    run_paused("stall", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        let (_, finished) = stage.finished().await;
        assert_eq!(finished.result, TurnResult::Failed);
        assert!(call.cancel.is_cancelled());
        let stuck = stage.logged(EventName::TurnStuck).await;
        assert_eq!((stuck.turn, stuck.verdict.as_deref()), (Some(turn(1)), Some("cancelled")));
        assert!(stuck.reason.unwrap().ends_with("it waited for the model") && finished.text.contains("the model"));
        stage.turn("two", "2").await;
    });
}

#[test]
fn a_long_message_is_read_from_the_log() {
    run_paused("long", async {
        let mut stage = Stage::new();
        let text = "x".repeat(5000);
        stage.say(&text);
        let call = stage.called().await;
        assert_eq!(texts(&call), [text]);
    });
}

#[test]
fn no_place_at_the_model_is_held_while_tools_run() {
    run_paused("permit", async {
        let mut stage = Stage::new();
        stage.say("look");
        let place = std::sync::Arc::new(());
        let ask = stage.permits.next().await;
        let permit = Permit::new(std::sync::Arc::clone(&place));
        tell(&ask.reply_to, Event::Permitted { stamp: ask.stamp, permit }).unwrap();
        let call = stage.model.next().await;
        assert_eq!(std::sync::Arc::strong_count(&place), 2);
        stage.complete(&call, calls(&["exec"]));
        drop(call);
        let run = stage.tools.next().await;
        assert_eq!(std::sync::Arc::strong_count(&place), 1, "whoever runs a tool waits without a place");
        end_tool(&run, "done");
        assert_ne!(stage.permits.next().await.stamp, ask.stamp, "the next round asks again");
    });
}
