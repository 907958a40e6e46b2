//! A turn that crashes its session is retried, then set aside; nobody else notices.

use std::sync::Arc;

use channel::hub::{Shown, Sink};
use domain::ids::SessionKey;
use greenroom::app::{App, Options};
use greenroom::config::{LoadRequest, load};
use protocol::supervision::{EventName, ExitReason};
use protocol::turn::{TurnProgress, TurnResult};
use supervision::log_read::Events;
use supervision::real::RealDisk;
use testkit::deadline::with_deadline;
use tools::{Call, Outcome, Tool, ToolSpec};

use crate::support::{Place, said};

/// Panics inside the session, when its turn reports that the tool `explode` begins.
struct Bomb;

impl Sink for Bomb {
    fn show(&self, shown: &Shown) {
        if let TurnProgress::ToolStarted { name, .. } = &shown.event.what
            && name == "explode"
        {
            panic!("the bomb went off");
        }
    }
}

/// A tool that panics by itself.
struct Panics(&'static str);

impl Tool for Panics {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: self.0.to_owned(),
            description: "Panics.".to_owned(),
            parameters: serde_json::json!({"type": "object", "properties": {}}),
            parallel: false,
            idempotent: true,
        }
    }

    fn call(&self, _: Call) -> futures::future::BoxFuture<'static, Outcome> {
        Box::pin(async { panic!("this tool is broken") })
    }
}

async fn start(place: &Place) -> App {
    let env = [("GREENROOM_HOME".to_owned(), place.path().display().to_string())].into();
    let loaded = load(&LoadRequest { config: None, workspace: None, env }).unwrap();
    let options = Options::embedded(loaded).with_tool(Arc::new(Panics("explode"))).with_tool(Arc::new(Panics("break")));
    App::start(options).await.unwrap()
}

#[test]
fn a_turn_that_crashes_its_session_becomes_a_dead_letter_and_the_queue_goes_on() {
    let place = Place::empty();
    greenroom::run(async {
        let app = start(&place).await;
        let (victim, neighbour) = (SessionKey::new("cli:victim")?, SessionKey::new("cli:neighbour")?);
        let _bomb = app.hub().attach_chat(&victim, None, Arc::new(Bomb));
        let slow = app.submit(&neighbour, "unharmed [[delay=400]]").await?;
        let poisoned = app.submit(&victim, "[[tool=explode {}]]").await?;
        let next = app.submit(&victim, "still here").await?;
        let poisoned = with_deadline("dead letter", poisoned.finished()).await?;
        assert_eq!(poisoned.result, TurnResult::DeadLettered);
        let next = with_deadline("the message behind it", next.finished()).await?;
        assert_eq!(next.result, TurnResult::Done);
        assert!(next.text.contains("still here"));
        let unharmed = with_deadline("the neighbour", slow.finished()).await?;
        assert_eq!(unharmed.result, TurnResult::Done);
        let letters = app.dead_letters().await?;
        assert_eq!(letters.len(), 1);
        assert_eq!(letters[0].key, victim);
        app.stop().await;
        Ok(())
    })
    .unwrap();
    let messages = said(&place.transcript("cli.victim"));
    assert_eq!(messages.iter().filter(|(role, _)| role == "user").count(), 2, "{messages:?}");
    check_log(&place);
}

fn check_log(place: &Place) {
    let events: Vec<_> =
        Events::open(Arc::new(RealDisk), &place.path().join("logs")).unwrap().map(Result::unwrap).collect();
    let restarted: Vec<_> = events.iter().filter(|event| event.event == EventName::Restarted).collect();
    assert_eq!(restarted.len(), 3, "one restart for each of the three crashes");
    for event in &restarted {
        assert_eq!(event.session.as_ref().unwrap().as_str(), "cli:victim");
        let panic = event.panic.as_ref().unwrap();
        assert_eq!(panic.text, "the bomb went off");
        assert!(panic.at.contains("tests/gateway/poison.rs:"), "{}", panic.at);
        assert!(event.turn.is_some() && event.backtrace.is_some());
    }
    let dead: Vec<_> = events.iter().filter(|event| event.event == EventName::DeadLettered).collect();
    assert_eq!(dead.len(), 1);
    assert_eq!((dead[0].lost.as_str(), dead[0].turn), ("nothing", restarted[0].turn));
    assert!(dead[0].cause.is_some(), "a dead letter names the crash that led to it");
    assert!(!events.iter().any(|event| event.session.as_ref().is_some_and(|key| key.as_str() == "cli:neighbour")
        && event.reason.as_deref() == Some(reason_word(ExitReason::Panicked).as_str())));
}

fn reason_word(reason: ExitReason) -> String {
    serde_json::to_value(reason).unwrap().as_str().unwrap().to_owned()
}

#[test]
fn a_panic_in_a_tool_is_an_error_result_and_the_turn_goes_on() {
    let place = Place::empty();
    greenroom::run(async {
        let app = start(&place).await;
        let key = SessionKey::new("cli:direct")?;
        let finished = with_deadline("turn", app.ask(&key, "[[tool=break {}]] [[show_results]]")).await?;
        assert_eq!(finished.result, TurnResult::Done);
        app.stop().await;
        Ok(())
    })
    .unwrap();
    let lines = place.transcript("cli.direct");
    let result = lines.iter().find(|line| line["message"]["role"] == "toolResult").unwrap();
    assert_eq!(result["message"]["isError"], true);
    assert!(!place.events().iter().any(|event| event["event"] == "restarted"));
    let tool = place.events().into_iter().find(|event| event["kind"] == "tool_call").unwrap();
    assert_eq!(tool["panic"]["text"], "this tool is broken");
}

/// Ends the whole process, as a fault in foreign code would.
struct Aborts;

impl Tool for Aborts {
    fn spec(&self) -> ToolSpec {
        ToolSpec { name: "abort".to_owned(), ..Panics("abort").spec() }
    }

    fn call(&self, _: Call) -> futures::future::BoxFuture<'static, Outcome> {
        std::process::abort()
    }
}

const CHILD_DIRECTORY: &str = "GREENROOM_TEST_CHILD_DIRECTORY";

/// Not a test of its own: the process that the test below starts again and again until it lives.
#[test]
fn child_that_runs_an_aborting_turn() {
    let Some(directory) = std::env::var_os(CHILD_DIRECTORY) else { return };
    greenroom::run(async {
        let options = Options::in_directory(std::path::Path::new(&directory))?.with_tool(Arc::new(Aborts));
        let app = App::start(options).await?;
        for (key, text) in [("cli:innocent", "innocent [[delay=50]]"), ("cli:guilty", "[[tool=abort {}]]")] {
            // In later lives the message is known.
            let _ = app.submit_as(&SessionKey::new(key)?, text, domain::ids::MessageId::new("m1")?).await;
        }
        while app.journal().status().open > 0 {
            tokio::time::sleep(std::time::Duration::from_millis(10)).await;
        }
        app.stop().await;
        Ok(())
    })
    .unwrap();
}

#[test]
fn a_turn_that_aborts_the_process_is_given_up_after_five_deaths_at_most_and_alone() {
    let place = Place::empty();
    let mut deaths = 0;
    loop {
        let status = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "poison::child_that_runs_an_aborting_turn"])
            .env(CHILD_DIRECTORY, place.path())
            .stdout(std::process::Stdio::null())
            .stderr(std::process::Stdio::null())
            .status()
            .unwrap();
        if status.success() {
            break;
        }
        deaths += 1;
        assert!(deaths <= 5, "the turn took the process down more than five times");
    }
    assert!(deaths >= 3, "{deaths} deaths are too few to tell the guilty one from the innocent");
    let events = place.events();
    let dead: Vec<_> = events.iter().filter(|event| event["event"] == "dead_lettered").collect();
    assert_eq!(dead.len(), 1, "{dead:?}");
    assert_eq!(dead[0]["session"], "cli:guilty");
    // Its transcript is brought up to the journal when it is used again.
    assert!(place.run(&["agent", "-m", "again", "-s", "cli:innocent"]).status.success());
    let innocent = said(&place.transcript("cli.innocent"));
    assert_eq!(innocent.len(), 4, "{innocent:?}");
    assert!(innocent[1].1.contains("innocent"), "{innocent:?}");
}
