//! What `logs`, `logs --why`, `tree` and `top` tell of a real gateway, running, killed and stopped.

use serde_json::{Value, json};

use crate::follower::Follower;
use crate::support::Place;

fn told(place: &Place, arguments: &[&str]) -> String {
    let out = place.run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

fn events(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_running_gateway_is_shown_as_it_is() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=60000]]", "m1").await;
    let accepted = socket.until("accepted").await;
    let turn = accepted["turn_id"].as_str().unwrap();

    let tree: Value = serde_json::from_str(&told(&place, &["tree", "--json"])).unwrap();
    let paths: Vec<&str> =
        tree["children"].as_array().unwrap().iter().map(|node| node["path"].as_str().unwrap()).collect();
    for path in [
        "/channels/api",
        "/channels/gateway",
        "/channels/websocket",
        "/journal",
        "/provider/0",
        "/registry/0",
        "/tools/0",
    ] {
        assert!(paths.contains(&path), "{path} in {paths:?}");
    }
    assert!(
        told(&place, &["tree", "--path", "/channels/websocket"]).contains("channels/websocket  serving, 1 connection")
    );

    let top: Value = serde_json::from_str(&told(&place, &["top", "--json"])).unwrap();
    assert_eq!((&top["turns"]["open"], &top["phase"]), (&1.into(), &"serving".into()), "{top}");
    assert_eq!(top["items"][0]["session"], "websocket:a", "{top}");
    // No terminal: one snapshot, as text.
    let text = told(&place, &["top", "--path", "websocket"]);
    assert!(text.contains("1 open") && text.contains("websocket:a"), "{text}");

    let last = events(&told(&place, &["logs", "--kind", "session", "--tail", "1", "--json"]));
    assert_eq!((last.len(), &last[0]["event"]), (1, &"activated".into()));
    assert_eq!(told(&place, &["logs", "--until", "1h", "--json"]), "");
    let story = told(&place, &["logs", "--why", turn]);
    assert!(story.contains("The session was loaded"), "{story}");
    assert!(story.ends_with("runs again: this turn, now\n"), "{story}");
    assert!(story.contains("\nlost: nothing: "), "{story}");
    let out = place.run(&["logs", "--why", "websocket:b"]);
    assert_eq!(out.status.code(), Some(1));
    let error = String::from_utf8_lossy(&out.stderr);
    assert!(
        error.contains("nothing is known of \"websocket:b\"") && error.contains("did you mean websocket:a"),
        "{error}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_killed_gateway_is_told_of_by_its_files_and_by_its_successor() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=700]]", "m1").await;
    let turn = socket.until("accepted").await["turn_id"].as_str().unwrap().to_owned();
    gateway.kill_nine();

    let story = told(&place, &["logs", "--why", "websocket:a"]);
    assert!(story.contains("now: no gateway runs, 1 turn is open"), "{story}");
    assert!(story.ends_with("runs again: 1 turn, when a gateway starts\n"), "{story}");

    let gateway = place.start().await;
    gateway.settle().await;
    let story = told(&place, &["logs", "--why", &turn]);
    let killed = "; the process before it was killed or crashed)";
    for part in [
        killed,
        "The turn was taken up again (attempt 2) because the process ended, after the start",
        "now: it is answered",
    ] {
        assert!(story.contains(part), "{part} in\n{story}");
    }
    assert_eq!(gateway.terminate().await, Some(0));

    let recovered = events(&told(&place, &["logs", "--event", "turn_recovered", "--json"]));
    let started = events(&told(&place, &["logs", "--event", "process_started", "--json"]));
    assert_eq!(recovered.len(), 1);
    assert!(started.iter().any(|event| event["id"] == recovered[0]["cause"]), "{recovered:?} {started:?}");
    // Every cause is an event that stands before what it led to.
    let all = events(&told(&place, &["logs", "--json"]));
    for (at, event) in all.iter().enumerate() {
        let Some(cause) = event["cause"].as_str() else { continue };
        assert!(all[..at].iter().any(|before| before["id"] == cause), "{event} names {cause}");
    }
    let before_last = &started[started.len() - 1];
    assert!(before_last["reason"].as_str().unwrap().contains("gateway"), "{before_last}");
    for (command, code) in [(vec!["tree"], 6), (vec!["top"], 6)] {
        let out = place.run(&command);
        assert_eq!(out.status.code(), Some(code));
        assert!(String::from_utf8_lossy(&out.stderr).contains("no gateway runs on"), "{command:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_follower_sees_the_gateway_stop_and_the_next_one_begin() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut follower = Follower::start(&place, &["logs", "--follow", "--tail", "1000", "--json"]);
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(gateway.chat(body, None).await.0, 200);
    let mut seen = follower.until("activated").await;
    assert_eq!(seen.last().unwrap()["session"], "api:user:ann");
    assert_eq!(gateway.terminate().await, Some(0));
    seen.extend(follower.until("process_stopped").await);
    let gateway = place.start().await;
    seen.extend(follower.until("process_started").await);
    seen.extend(follower.until("gateway_started").await);
    gateway.kill_nine();
    let gateway = place.start().await;
    seen.extend(follower.until("process_started").await);
    seen.extend(follower.until("gateway_started").await);
    drop(gateway);
    let all = place.events();
    assert_eq!(seen, all[..seen.len()], "each event once, in order, none missing");
    assert!(seen.iter().any(|event| event["event"] == "gateway_stopping"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn turns_that_fail_or_are_stopped_are_told_and_counted_apart() {
    let model = testkit::model::Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    assert_eq!(gateway.say("cli:a", "fine", "m1").await, "done");
    assert_eq!(gateway.say("cli:a", "please [[error=401]]", "m2").await, "failed");
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("b", "[[hang]]", "m1").await;
    socket.say("b", "later", "m2").await;
    let waits = [socket.until("accepted").await, socket.until("accepted").await];
    let turns = waits.map(|accepted| accepted["turn_id"].as_str().unwrap().to_owned());
    shows_what_waits(&place, &gateway, &turns).await;
    let stop = |all: bool| gateway.post(format!("sessions/websocket%3Ab/stop?all={all}"));
    stop(true).await;
    gateway.settle().await;

    let status = gateway.admin("status").await;
    let count = |name: &str| status["journal"][name].as_u64().unwrap();
    assert_eq!(["accepted", "done", "failed", "cancelled", "dead", "open"].map(count), [4, 2, 1, 2, 0, 0]);
    let text = told(&place, &["status"]);
    assert!(
        text.contains("turns      4 accepted: 2 done (1 answered, 1 failed), 2 cancelled, 0 dead, 0 open"),
        "{text}"
    );
    let why = |key: &str, more: &[&str]| told(&place, &[&["logs", "--why", key], more].concat());
    let story = why("cli:a", &[]);
    assert!(
        story.contains("(attempt 1) failed, and its user was told: the model's provider did not take the key."),
        "{story}"
    );
    let story = why("websocket:b", &[]);
    for turn in &turns {
        assert!(story.contains(&format!("Turn {turn} was cancelled: it was stopped")), "{story}");
    }
    let last = why("websocket:b", &["--tail", "1"]);
    assert!(last.starts_with("… left out before: "), "{last}");
    assert_eq!(last.matches(" was cancelled: ").count(), 1, "{last}");
    let later = why("websocket:b", &["--until", "1h"]);
    assert!(later.starts_with("… left out after: ") && !later.contains("cancelled: "), "{later}");
    assert_eq!(gateway.terminate().await, Some(0));
    let left = why("cli:a", &["--json"]);
    assert!(left.contains("failed, and its user was told"), "{left}");
}

/// Of two turns, none of which has a line, the first one runs.
async fn shows_what_waits(place: &Place, gateway: &crate::support::Gateway, turns: &[String; 2]) {
    let runs = async {
        loop {
            let session = gateway.admin("sessions/websocket%3Ab").await;
            if session["open"][0]["state"] == "running" {
                return session;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    let session = testkit::deadline::with_deadline("a running turn", runs).await;
    let open = session["open"].as_array().unwrap();
    let place_of = |turn: &Value| (turn["turn_id"].clone(), turn["state"].clone(), turn["position"].clone());
    assert_eq!(place_of(&open[0]), (json!(turns[0]), json!("running"), json!(0)));
    assert_eq!(place_of(&open[1]), (json!(turns[1]), json!("queued"), json!(1)));
    assert_eq!((open.len(), &open[1]["message_id"]), (2, &json!("m2")));
    assert!(open[1]["accepted_ms"].as_u64().unwrap() > 1_000_000_000_000);
    let text = told(place, &["sessions", "show", "websocket:b"]);
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[lines.len() - 2].ends_with(&format!("turn {}  running", turns[0])), "{text}");
    assert!(lines[lines.len() - 1].ends_with(&format!("turn {}  queued, 1 turn before it", turns[1])), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_that_only_read_leave_the_log_as_it_is() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=60000]]", "m1").await;
    let turn = socket.until("accepted").await["turn_id"].as_str().unwrap().to_owned();
    gateway.kill_nine();
    let log = place.path().join("logs/supervision.jsonl");
    let before = std::fs::read_to_string(&log).unwrap();
    for (command, code) in [
        (vec!["deadletters", "list"], 0),
        (vec!["deadletters", "show", &turn], 1),
        (vec!["logs", "--why", "websocket:a"], 0),
        (vec!["logs", "--why", &turn], 0),
        (vec!["logs"], 0),
        (vec!["sessions", "list"], 0),
        (vec!["sessions", "show", "websocket:a"], 0),
        (vec!["sessions", "show", "websocket:none"], 1),
        (vec!["sessions", "release", "websocket:a"], 1),
        (vec!["deadletters", "drop", &turn], 1),
        (vec!["status"], 0),
        (vec!["tree"], 6),
        (vec!["journal", "check"], 0),
        (vec!["journal", "show"], 0),
        (vec!["journal", "repair"], 0),
    ] {
        let out = place.run(&command);
        assert_eq!(out.status.code(), Some(code), "{command:?}: {}", String::from_utf8_lossy(&out.stderr));
        assert_eq!(std::fs::read_to_string(&log).unwrap(), before, "{command:?}");
    }
    let shown = told(&place, &["sessions", "show", "websocket:a"]);
    assert!(shown.ends_with(&format!("turn {turn}  queued, next\n")), "{shown}");
    // One that runs a turn tells of the turn, and nobody takes it for the process that was killed.
    told(&place, &["agent", "-s", "cli:x", "-m", "hello"]);
    let added: Vec<Value> = place.events().split_off(before.lines().count());
    assert!(added.iter().all(|event| event["session"] == "cli:x"), "{added:?}");
    assert!(added.iter().any(|event| event["event"] == "activated"), "{added:?}");
    let gateway = place.start().await;
    let started = place.events().into_iter().rfind(|event| event["event"] == "process_started").unwrap();
    assert_eq!(started["reason"], "gateway; the process before it was killed or crashed");
    drop(gateway);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_configuration_that_is_refused_is_told_of_in_the_log() {
    let place = Place::new(json!({}));
    assert_eq!(place.start().await.terminate().await, Some(0));
    let good = std::fs::read_to_string(place.path().join("config.json")).unwrap();
    place.write_config(r#"{"runtime": {"idleSeconds": "soon"}}"#);
    assert_eq!(place.run(&["gateway"]).status.code(), Some(3));
    let events = place.events();
    let (stopped, rejected) = (&events[events.len() - 2], &events[events.len() - 1]);
    assert_eq!((&stopped["event"], &rejected["event"]), (&"process_stopped".into(), &"config_rejected".into()));
    assert_eq!(rejected["cause"], stopped["id"]);
    let reason = rejected["reason"].as_str().unwrap();
    assert!(reason.contains("runtime.idleSeconds"), "{reason}");
    place.write_config(&good);
    drop(place.start().await);
    let started = place.events().into_iter().rfind(|event| event["event"] == "process_started").unwrap();
    assert_eq!(started["reason"], "gateway; the process before it stopped in order");
}
