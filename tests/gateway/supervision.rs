//! What the supervisor does about trouble, on the real program: deaths, quarantines, crowds, memory, an orderly stop.

use std::sync::Arc;
use std::time::Duration;

use channel::hub::{Shown, Sink};
use domain::ids::SessionKey;
use greenroom::app::{App, Options};
use greenroom::config::{LoadRequest, load};
use protocol::turn::TurnProgress;
use serde_json::{Value, json};
use testkit::deadline::with_deadline;
use testkit::model::Model;
use tools::{Call, Outcome, Tool, ToolSpec};

use crate::support::{Gateway, Place, said};

async fn until(what: &str, is_so: impl AsyncFn() -> bool) {
    let wait = async {
        while !is_so().await {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    };
    with_deadline(what, wait).await;
}

const KILLS: usize = 30;
const TURNS: usize = 500;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn thirty_kills_with_five_hundred_running_turns_condemn_none_of_them() {
    let model = Model::start_on_thread();
    model.config(|config| config.delay = Duration::from_secs(3600));
    let place = Place::with_model(&model.url(), json!({}));
    for kill in 0..KILLS {
        let gateway = place.start().await;
        let mut running = TURNS;
        if kill == 0 {
            let mut socket = gateway.websocket("").await;
            socket.until("ready").await;
            for turn in 0..TURNS {
                socket.say(&format!("c{turn}"), "wait", "m1").await;
            }
            for _ in 0..TURNS {
                socket.until("accepted").await;
            }
        } else if kill >= 2 {
            // All are suspects now: one runs at a time, and each death finds another one.
            running = 1;
        }
        until("running turns", async || model.stats().concurrent >= running as u64).await;
        gateway.kill_nine();
        until("the model to see the end", async || model.stats().concurrent == 0).await;
    }
    model.config(|config| config.delay = Duration::ZERO);
    let gateway = place.start().await;
    gateway.settle().await;
    let journal = gateway.admin("status").await["journal"].clone();
    assert_eq!((&journal["done"], &journal["dead"]), (&json!(TURNS), &json!(0)), "{journal}");
    assert_eq!(gateway.terminate().await, Some(0));
    for turn in 0..TURNS {
        assert_eq!(said(&place.transcript(&format!("websocket.c{turn}"))).len(), 2, "{turn}");
    }
    assert!(!place.events().iter().any(|event| event["event"] == "dead_lettered"));
}

/// Panics inside the session at the first word of an answer.
struct Bomb;

impl Sink for Bomb {
    fn show(&self, shown: &Shown) {
        assert!(!matches!(shown.event.what, TurnProgress::Delta(_)), "the bomb went off");
    }
}

async fn embedded(place: &Place) -> App {
    let env = [("GREENROOM_HOME".to_owned(), place.path().display().to_string())].into();
    App::start(Options::embedded(load(&LoadRequest { config: None, workspace: None, env }).unwrap())).await.unwrap()
}

#[test]
fn a_quarantine_outlives_the_process_and_is_released_by_command() {
    let place = Place::new(json!({"supervision": {"intensity": 2, "poisonAttempts": 10, "quarantineSeconds": 3600}}));
    let key = SessionKey::new("cli:victim").unwrap();
    greenroom::run(async {
        let app = embedded(&place).await;
        let _bomb = app.hub().attach_chat(&key, None, Arc::new(Bomb));
        let _stream = app.submit(&key, "hello").await?;
        until("the quarantine", async || place.events().iter().any(|event| event["event"] == "quarantined")).await;
        app.stop().await;
        Ok(())
    })
    .unwrap();
    let before = place.run(&["sessions", "release", "cli:nobody"]);
    assert_eq!(before.status.code(), Some(1));
    greenroom::run(async {
        let app = embedded(&place).await;
        until("recovery", async || place.events().iter().filter(|event| event["event"] == "recovered").count() == 2)
            .await;
        assert_eq!(app.journal().status().open, 1, "it is held back");
        let status = app.status(&key).await?;
        assert_eq!(serde_json::to_value(status.state)?, "quarantined");
        app.stop().await;
        Ok(())
    })
    .unwrap();
    let released = place.run(&["sessions", "release", "cli:victim", "--json"]);
    assert_eq!(serde_json::from_slice::<Value>(&released.stdout).unwrap(), json!({"released": true}));
    assert_eq!(place.run(&["sessions", "release", "cli:victim"]).status.code(), Some(1), "it is free");
    greenroom::run(async {
        let app = embedded(&place).await;
        until("the answer", async || app.journal().status().open == 0).await;
        app.stop().await;
        Ok(())
    })
    .unwrap();
    let messages = said(&place.transcript("cli.victim"));
    assert_eq!(messages.len(), 2, "{messages:?}");
}

async fn told(gateway: &Gateway, chat: &str, text: &str) -> String {
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say(chat, text, "control").await;
    socket.until("message").await["text"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_turns_than_may_run_wait_in_turn_and_control_does_not() {
    let model = Model::start_on_thread();
    model.config(|config| config.delay = Duration::from_secs(3600));
    let place = Place::with_model(&model.url(), json!({"runtime": {"maxRunningTurns": 2}}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    for (chat, calls) in [("a", 1), ("b", 2), ("c", 2)] {
        socket.say(chat, &format!("wait {chat}"), "m1").await;
        socket.until("accepted").await;
        // Sessions begin side by side: who comes first is certain only once it has begun.
        until("the call", async || model.stats().concurrent == calls).await;
    }
    until("the third one to wait", async || gateway.admin("status").await["turns_waiting"] == 1).await;
    let told_c = told(&gateway, "c", "/status").await;
    assert!(told_c.starts_with("Waiting for other conversations, 1 waiting.\nModel: scripted."), "{told_c}");
    model.config(|config| config.delay = Duration::ZERO);
    assert!(told(&gateway, "a", "/stop").await.starts_with("Stopped"));
    until("the third one to end", async || gateway.admin("status").await["journal"]["open"] == 1).await;
    assert_eq!(model.stats().concurrent, 1, "the second one still runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_memory_messages_are_refused_until_something_ends() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"runtime": {"memoryHighBytes": 1024 * 1024}}));
    let gateway = place.start().await;
    until("the watchdog", async || gateway.admin("status").await["degraded"] == json!(["memory_high"])).await;
    assert!(gateway.get("/ready").await.1.contains("memory_high"));
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=3600000]]", "m1").await;
    socket.until("accepted").await;
    socket.say("b", "refused", "m1").await;
    let error = socket.until("error").await;
    assert_eq!((&error["reason"], error["retry_after_ms"].as_u64() >= Some(2000)), (&json!("busy"), true), "{error}");
    until("the first one to run", async || gateway.admin("status").await["turns_running"] == 1).await;
    assert!(told(&gateway, "a", "/stop").await.starts_with("Stopped"));
    gateway.settle().await;
    socket.say("b", "taken", "m2").await;
    socket.until("accepted").await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn drain_refuses_finishes_what_runs_tells_how_far_it_is_and_ends() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=1500]]", "m1").await;
    socket.until("accepted").await;
    socket.say("a", "kept", "m2").await;
    socket.until("accepted").await;
    let mut command = place.command(&["gateway", "drain", "--wait"]);
    let drained = tokio::task::spawn_blocking(move || command.output().unwrap());
    until("draining", async || gateway.get("/ready").await.1.contains("draining")).await;
    socket.say("b", "too late", "m1").await;
    let error = socket.until("error").await;
    assert_eq!((&error["reason"], &error["retry_after_ms"]), (&json!("draining"), &json!(5000)), "{error}");
    let output = with_deadline("drain", drained).await.unwrap();
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    assert!(text.starts_with("draining: 1 turn running, 2 open\n"), "{text}");
    assert!(text.ends_with("; 1 open turn goes on at the next start\n"), "{text}");
    let events = place.events();
    let stopped = events.iter().find(|event| event["event"] == "gateway_stopped").unwrap();
    assert_eq!(stopped["reason"], "1 turn ended, 1 kept for the next start");
    assert_eq!(said(&place.transcript("websocket.a")).len(), 2);
    assert_eq!(place.run(&["gateway", "drain"]).status.code(), Some(6), "no gateway runs");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_turn_that_hangs_is_stopped_told_and_logged_and_its_chat_goes_on() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"runtime": {"stallSeconds": 1}}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "hang [[delay=3600000]]", "m1").await;
    let message = socket.until("message").await;
    assert!(message["text"].as_str().unwrap().contains("while it waited for the model"), "{message}");
    socket.until("turn_end").await;
    socket.say("a", "again", "m2").await;
    socket.until("accepted").await;
    socket.until("turn_end").await;
    let stuck = place.events().into_iter().find(|event| event["event"] == "turn_stuck").unwrap();
    assert_eq!(stuck["verdict"], "cancelled");
}

/// Holds its thread until a file is there, as no tool should.
struct Blocks(std::path::PathBuf);

impl Tool for Blocks {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "block".to_owned(),
            description: "Blocks.".to_owned(),
            parameters: json!({"type": "object", "properties": {}}),
            parallel: false,
            idempotent: true,
        }
    }

    fn call(&self, _: Call) -> futures::future::BoxFuture<'static, Outcome> {
        let file = self.0.clone();
        Box::pin(async move {
            while !file.exists() {
                std::thread::yield_now();
            }
            Outcome::text("done")
        })
    }
}

#[test]
fn a_tool_that_blocks_a_thread_is_named_and_health_is_served_meanwhile() {
    let place = Place::new(json!({"runtime": {"arbiters": 2}}));
    let file = place.path().join("go-on");
    greenroom::run(async {
        let env = [("GREENROOM_HOME".to_owned(), place.path().display().to_string())].into();
        let loaded = load(&LoadRequest { config: None, workspace: None, env })?;
        let options = Options::gateway(loaded).with_tool(Arc::new(Blocks(file.clone())));
        let mut app = App::start(options).await?;
        app.serve().await?;
        let stream = app.submit(&SessionKey::new("cli:direct")?, "[[tool=block {}]]").await?;
        let url = greenroom::app::beacon::Beacon::read(&place.path().join("run")).unwrap().admin_url;
        let get = async |path: &str| {
            let reply = provider::http_client().unwrap().get(format!("{url}{path}")).send().await.unwrap();
            reply.text().await.unwrap()
        };
        until("the watchdog", async || get("/ready").await.contains("arbiter_blocked")).await;
        assert_eq!(get("/health").await, r#"{"status":"ok"}"#);
        std::fs::write(&file, "")?;
        with_deadline("the turn", stream.finished()).await?;
        until("the end", async || !get("/ready").await.contains("arbiter_blocked")).await;
        app.stop().await;
        Ok(())
    })
    .unwrap();
    let blocked = place.events().into_iter().find(|event| event["event"] == "arbiter_blocked").unwrap();
    assert!(blocked["reason"].as_str().unwrap().ends_with("by the tool block"), "{blocked}");
}
