//! The session alone, among probes and a journal in memory, with the clock paused.

mod audience;
mod double;
mod foreign;
mod stall;

use std::path::Path;
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{Arguments, Content, Message, ToolCall, ToolResult, plain_text};
use domain::ids::{Attempt, ToolCallId};
use protocol::journal::{CommitOutcome, LeftBy};
use protocol::metrics::ByKind;
use protocol::provider::{Complete, Event, Failure, FailureKind};
use protocol::session::{Mail, State, TurnRecord};
use protocol::supervision::EventName;
use protocol::tools::{RunTool, ToolEnd, ToolFinished};
use protocol::turn::{TurnProgress, TurnResult};
use supervision::ports::{Disk, Open};
use supervision::tell;
use testkit::deadline::{run_paused, with_deadline};
use tokio::sync::oneshot;

use audience::BOMB;
use double::{Stage, answer, key, turn};

fn texts(call: &Complete) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User(content) => plain_text(content),
        Message::Assistant(assistant) => assistant.text.clone(),
        Message::ToolResult(result) => plain_text(&result.content),
    };
    call.request.messages.iter().map(text).collect()
}

fn calls(names: &[&str]) -> Box<domain::chat::AssistantMessage> {
    let call = |(at, name): (usize, &&str)| ToolCall {
        id: ToolCallId(format!("c{at}").into()),
        name: (*name).to_owned(),
        arguments: Arguments::Object(serde_json::Map::new()),
    };
    let mut message = answer("let me look");
    message.calls = names.iter().enumerate().map(call).collect();
    message
}

fn end_tool(run: &RunTool, text: &str) {
    let result = ToolResult {
        call: run.call.id.clone(),
        name: run.call.name.clone(),
        content: vec![Content::text(text)],
        is_error: false,
    };
    tell(&run.reply_to, ToolFinished { stamp: run.stamp, result, end: ToolEnd::Ok }).unwrap();
}

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
        assert!(lines[0].contains(r#""sessionKey":"api:stage""#));
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
fn a_failed_model_call_ends_the_turn_with_its_reason() {
    run_paused("failure", async {
        let mut stage = Stage::new();
        stage.say("hello");
        let call = stage.called().await;
        let failure = Failure { kind: FailureKind::Billing, detail: "the account is empty".to_owned() };
        tell(&call.reply_to, Event::Failed { stamp: call.stamp, failure }).unwrap();
        let (_, finished) = stage.finished().await;
        assert_eq!(finished.result, TurnResult::Failed);
        assert!(finished.text.contains("the account is empty"));
        stage.turn("again", "fine").await;
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
        assert!(stage.file().lines().next().unwrap().contains(r#""sessionKey":"api:stage""#));
        assert!(stage.tools.try_next().is_none());
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
fn the_transcript_answers_for_turns_that_ended() {
    run_paused("read turn", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.say("two");
        let call = stage.called().await;
        let ask = |stage: &Stage, seq| {
            let (reply, record) = oneshot::channel();
            stage.mail(Mail::ReadTurn { turn: turn(seq), reply });
            with_deadline("a record", record)
        };
        let record = ask(&stage, 1).await.unwrap();
        assert!(matches!(record, Some(TurnRecord::Ended { text, .. }) if text == "1"));
        assert!(matches!(ask(&stage, 2).await.unwrap(), Some(TurnRecord::Open)));
        assert!(ask(&stage, 3).await.unwrap().is_none());
        stage.complete(&call, answer("2"));
        stage.finished().await;
        tokio::time::sleep(Duration::from_secs(60)).await;
        let record = ask(&stage, 2).await.unwrap();
        assert!(matches!(record, Some(TurnRecord::Ended { text, .. }) if text == "2"));
    });
}

#[test]
fn a_full_disk_never_fails_a_turn_and_the_file_follows_later() {
    run_paused("full disk", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        stage.disk.set_full(true);
        stage.turn("two", "2").await;
        stage.turn("three", "3").await;
        assert_eq!(stage.file().lines().count(), 3);
        stage.mail(Mail::Passivate);
        stage.status().await;
        assert_eq!(stage.slots.len(), 1, "it stays until the file is written");
        stage.disk.set_full(false);
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(stage.file().lines().count(), 7);
        let books = stage.journal.books();
        assert_eq!(books.views.last().unwrap().commit, 3);
    });
}

#[test]
fn an_orderly_stop_tries_the_file_once_more_and_does_not_wait_for_a_full_disk() {
    for space in [true, false] {
        run_paused("stop after a full disk", async move {
            let mut stage = Stage::new();
            stage.turn("one", "1").await;
            stage.filed(3).await;
            stage.disk.set_full(true);
            stage.turn("two", "2").await;
            stage.status().await;
            stage.disk.set_full(!space);
            stage.mail(Mail::Interrupt);
            stage.asleep().await;
            assert_eq!(stage.file().lines().count(), if space { 5 } else { 3 });
        });
    }
}

#[test]
fn a_session_that_cannot_write_its_file_loads_all_the_same() {
    run_paused("load on a full disk", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        stage.filed(3).await;
        stage.status().await;
        stage.disk.remove(Path::new("/w/sessions/api.stage.jsonl")).unwrap();
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        stage.disk.set_full(true);
        stage.say("two");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["one", "1", "two"]);
    });
}

#[test]
fn what_somebody_else_wrote_into_the_file_is_seen_by_the_next_turn() {
    run_paused("foreign", async {
        let mut stage = Stage::new();
        stage.turn("one", "1").await;
        tokio::time::sleep(Duration::from_secs(3)).await;
        let parent = stage.journal.books().lines.last().unwrap().id.clone();
        let line = format!(
            "{{\"type\":\"message\",\"id\":\"feed\",\"parentId\":\"{parent}\",\"timestamp\":\"2026-01-01T00:00:00Z\",\
             \"message\":{{\"role\":\"user\",\"content\":\"by hand\"}}}}\n"
        );
        let file = stage.disk.open(Path::new("/w/sessions/api.stage.jsonl"), Open::Write).unwrap();
        file.write_at(line.as_bytes(), file.length().unwrap()).unwrap();
        stage.say("two");
        let call = stage.called().await;
        let seen = texts(&call);
        assert!(seen.iter().any(|text| text.contains("by hand")), "{seen:?}");
        stage.complete(&call, answer("2"));
        stage.finished().await;
        stage.filed(6).await;
        assert!(stage.file().contains(r#""parentId":"feed""#));
        assert!(stage.log.named(EventName::ViewRepaired).is_empty());
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
fn an_old_owner_leaves() {
    run_paused("fenced", async {
        let mut stage = Stage::new();
        stage.say("one");
        let call = stage.called().await;
        stage.journal.books().verdicts = vec![CommitOutcome::Fenced];
        stage.complete(&call, answer("1"));
        stage.asleep().await;
        assert_eq!(stage.journal.books().open.len(), 1);
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
        let closes: Vec<bool> = stage.journal.books().commits.iter().map(|commit| commit.closes_session).collect();
        assert_eq!(closes, [false, true], "the journal keeps the lines until the file is put away");
        assert!(stage.file().is_empty());
        assert_eq!(stage.disk.list(Path::new("/w/sessions/archive")).unwrap().len(), 1);
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
fn an_idle_session_is_small() {
    assert!(size_of::<super::Session>() < 300, "{}", size_of::<super::Session>());
    assert!(size_of::<super::Live>() < 600, "{}", size_of::<super::Live>());
    assert_eq!(key().as_str(), "api:stage");
}
