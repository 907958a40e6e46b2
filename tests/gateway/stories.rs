//! What `logs`, `logs --why`, `tree` and `top` tell of a real gateway, running, killed and stopped.

use serde_json::{Value, json};

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
        told(&place, &["tree", "--path", "/channels/websocket"]).contains("channels/websocket  serving, 1 connections")
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
async fn a_follower_sees_what_happens_until_the_gateway_ends() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut follower = place.command(&["logs", "--follow", "--json", "--event", "activated"]);
    let mut follower = follower.stdout(std::process::Stdio::piped()).spawn().unwrap();
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(gateway.chat(body, None).await.0, 200);
    let out = follower.stdout.take().unwrap();
    let line = tokio::task::spawn_blocking(move || {
        let mut line = String::new();
        std::io::BufRead::read_line(&mut std::io::BufReader::new(out), &mut line).unwrap();
        line
    });
    let line = testkit::deadline::with_deadline("followed event", line).await.unwrap();
    let event: Value = serde_json::from_str(&line).unwrap();
    assert_eq!((&event["event"], &event["session"]), (&"activated".into(), &"api:user:ann".into()));
    assert_eq!(gateway.terminate().await, Some(0));
    let ended = tokio::task::spawn_blocking(move || follower.wait().unwrap());
    assert!(testkit::deadline::with_deadline("end of the follower", ended).await.unwrap().success());
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
    assert!(reason.contains("runtime.idleSeconds") && !reason.contains("soon"), "{reason}");
    place.write_config(&good);
    drop(place.start().await);
    let started = place.events().into_iter().rfind(|event| event["event"] == "process_started").unwrap();
    assert_eq!(started["reason"], "gateway; the process before it stopped in order");
}
