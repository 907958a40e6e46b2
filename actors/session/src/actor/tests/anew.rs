//! Sessions that begin anew by themselves, and what a kind of session is offered.

use domain::keys::SessionKind;
use domain::policy::{Pattern, Policies, Policy};
use domain::reset::{Rule, Rules};
use domain::transcript::{EntryKind, read_lines};

use super::*;

fn idle_after(minutes: u32) -> Stage {
    let general = Rule { daily_hour: None, idle_minutes: Some(minutes) };
    Stage::with(|config| config.reset = Rules { general, ..Rules::default() })
}

async fn pass(minutes: u64) {
    tokio::time::sleep(Duration::from_secs(60 * minutes)).await;
}

/// The `reason` of each reset in the file, and after how many lines it stands.
fn resets(stage: &Stage) -> Vec<(usize, String)> {
    let lines = stage.file();
    let rows = lines.lines().map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap()).enumerate();
    let resets = rows.filter(|(_, row)| row["type"] == "reset");
    resets.map(|(at, row)| (at, row["reason"].as_str().unwrap().to_owned())).collect()
}

#[test]
fn the_message_after_the_boundary_is_answered_without_what_was_before() {
    run_paused("idle reset", async {
        let mut stage = idle_after(60);
        stage.turn("one", "first").await;
        pass(59).await;
        let seq = stage.say("two");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["one", "first", "two"], "not idle for long enough");
        stage.complete(&call, answer("second"));
        assert_eq!(stage.finished().await.0, turn(seq));
        pass(61).await;
        let seq = stage.say("three");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["three"]);
        stage.complete(&call, calls(&["read"]));
        let run = stage.tools.next().await;
        end_tool(&run, "found");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["three", "let me look", "found"]);
        stage.complete(&call, answer("third"));
        let (id, finished) = stage.finished().await;
        assert_eq!((id, finished.text.as_str()), (turn(seq), "third"));
        // Header, two turns, the reset, the third turn's four messages.
        stage.filed(10).await;
        assert_eq!(resets(&stage), [(5, "idle".to_owned())]);
        let told = stage.log.named(EventName::SessionEdited);
        let told: Vec<_> = told.iter().map(|event| (event.turn, event.reason.as_deref())).collect();
        assert_eq!(told, [(Some(turn(seq)), Some("reset: idle"))]);
        let commits = stage.journal.books().commits.len();
        assert_eq!(commits, 5, "the reset needs no commit of its own");
        let file = stage.file();
        for said in ["one", "first", "two", "second", "three", "third"] {
            assert!(file.contains(&format!(r#""text":"{said}""#)), "{said} is kept");
        }
        let transcript = read_lines(file.as_bytes());
        let path = transcript.path_to_leaf();
        assert_eq!(path.len(), 9, "one conversation, in one tree");
        assert!(matches!(path[4].kind, EntryKind::Reset { first_kept: None }));
        stage.turn("four", "fourth").await;
        stage.filed(12).await;
        assert_eq!(resets(&stage).len(), 1, "it has just begun anew");
    });
}

#[test]
fn a_session_that_left_memory_knows_when_it_began() {
    run_paused("idle reset after sleep", async {
        let mut stage = idle_after(60);
        stage.turn("one", "first").await;
        pass(61).await;
        stage.turn("two", "second").await;
        stage.filed(6).await;
        stage.status().await;
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        pass(30).await;
        stage.say("three");
        let call = stage.called().await;
        assert_eq!(texts(&call), ["two", "second", "three"]);
        stage.complete(&call, answer("third"));
        stage.finished().await;
        stage.filed(8).await;
        stage.status().await;
        stage.mail(Mail::Passivate);
        stage.asleep().await;
        pass(61).await;
        stage.say("four");
        assert_eq!(texts(&stage.called().await), ["four"]);
    });
}

#[test]
fn automations_neither_begin_anew_nor_extend() {
    run_paused("automation", async {
        let mut stage = idle_after(60);
        stage.turn("one", "first").await;
        pass(61).await;
        stage.say_through("cron", &TurnBody::text("tick"));
        let call = stage.called().await;
        assert_eq!(texts(&call), ["one", "first", "tick"]);
        stage.complete(&call, answer("tock"));
        stage.finished().await;
        stage.say("two");
        assert_eq!(texts(&stage.called().await), ["two"], "the tick was no message of a person");
    });
}

#[test]
fn a_turn_that_crashes_before_its_first_line_begins_anew_once() {
    run_paused("crash and reset", async {
        let mut stage = idle_after(60);
        stage.turn("one", "first").await;
        pass(61).await;
        stage.say("two");
        let call = stage.called().await;
        stage.delta(&call, BOMB);
        let call = stage.called().await;
        assert_eq!((texts(&call), call.stamp.attempt), (vec!["two".to_owned()], Attempt(2)));
        stage.complete(&call, answer("second"));
        stage.finished().await;
        stage.filed(6).await;
        assert_eq!(resets(&stage), [(3, "idle".to_owned())]);
    });
}

#[test]
fn without_a_rule_nothing_begins_anew() {
    run_paused("no reset", async {
        let mut stage = Stage::new();
        stage.turn("one", "first").await;
        pass(60 * 24 * 30).await;
        stage.say("two");
        assert_eq!(texts(&stage.called().await), ["one", "first", "two"]);
    });
}

#[test]
fn a_session_is_offered_what_its_kind_may_use_and_its_model_answers() {
    run_paused("offer", async {
        let mut policy = Policy::default_of(SessionKind::WebSocket);
        policy.tools[0].deny = vec![Pattern::parse("exec").unwrap()];
        policy.model = Some("small".into());
        let own = [(SessionKind::WebSocket, policy)];
        let mut stage = Stage::with(|config| config.policies = Policies::new("main", own).into());
        stage.say("hello");
        let call = stage.called().await;
        let names = |call: &Complete| call.request.tools.iter().map(|tool| tool.name.clone()).collect::<Vec<_>>();
        assert_eq!((names(&call), &*call.request.model), (vec!["read".to_owned()], "small"));
        assert!(!call.request.system.contains("- exec"), "{}", call.request.system);
        stage.complete(&call, calls(&["exec"]));
        let run = stage.tools.next().await;
        assert_eq!((run.key.as_str(), run.source.as_str()), ("websocket:stage", "ws"));
        end_tool(&run, "refused");
        let call = stage.called().await;
        stage.complete(&call, answer("done"));
        stage.finished().await;
    });
}
