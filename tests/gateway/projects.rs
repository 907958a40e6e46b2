//! A chat of the WebSocket that works in a project.

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::Place;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_works_in_its_project_and_goes_on_there_after_a_restart() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let project = tempfile::tempdir().unwrap();
    let path = project.path().canonicalize().unwrap();
    std::fs::write(path.join("AGENTS.md"), "Use tabs.").unwrap();
    let scope = json!({"project_path": path, "access_mode": "restricted"});
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.send(json!({"type": "set_workspace_scope", "chat_id": "room", "workspace_scope": scope})).await;
    socket.say("room", r#"go [[tool=write_file {"path":"made","content":"here"}]]"#, "m1").await;
    let updated = socket.until("session_updated").await;
    assert_eq!((&updated["scope"], &updated["workspace_scope"]), (&json!("metadata"), &scope));
    socket.until("turn_end").await;
    assert_eq!(std::fs::read_to_string(path.join("made")).unwrap(), "here");
    let system = |model: &Model| model.requests().pop().unwrap()["messages"][0]["content"].to_string();
    assert!(system(&model).contains("Use tabs."), "{}", system(&model));
    socket.say("other", "and here?", "m2").await;
    socket.until("turn_end").await;
    assert!(!system(&model).contains("Use tabs."), "other chats are not in it");
    gateway.kill_nine();

    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "/new", "m3").await;
    socket.until("turn_end").await;
    socket.say("room", r#"go [[tool=write_file {"path":"again","content":"here"}]]"#, "m4").await;
    socket.until("turn_end").await;
    assert_eq!(std::fs::read_to_string(path.join("again")).unwrap(), "here");
    assert!(system(&model).contains("Use tabs."));
    socket.send(json!({"type": "set_workspace_scope", "chat_id": "room", "workspace_scope": null})).await;
    assert_eq!(socket.until("session_updated").await["workspace_scope"], Value::Null);
    socket.say("room", "back", "m5").await;
    socket.until("turn_end").await;
    assert!(!system(&model).contains("Use tabs."));
    gateway.terminate().await;
    let lines = place.transcript("websocket.room");
    let scopes: Vec<&Value> = lines.iter().filter(|line| line["customType"] == "greenroom.scope").collect();
    assert_eq!(scopes.len(), 2, "{lines:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_project_is_refused_and_a_message_for_it_too() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    let of = |path: &str| json!({"project_path": place.path().join(path)});
    for (path, reason) in [("nowhere", "bad_scope"), ("journal", "bad_scope"), ("workspace/sessions", "bad_scope")] {
        let frame = json!({"type": "message", "chat_id": "room", "message_id": "m", "content": "x",
            "workspace_scope": of(path)});
        socket.send(frame).await;
        let error = socket.until("error").await;
        assert_eq!((&error["reason"], &error["message_id"]), (&json!(reason), &json!("m")), "{error}");
    }
    let frame = json!({"type": "message", "chat_id": "room", "message_id": "m", "content": "x [[delay=300]]",
        "workspace_scope": of("workspace")});
    socket.send(frame).await;
    socket.until("session_updated").await;
    socket.until("accepted").await;
    socket.until("goal_status").await;
    socket.send(json!({"type": "set_workspace_scope", "chat_id": "room", "workspace_scope": null})).await;
    assert_eq!(socket.until("error").await["reason"], "busy", "not while a turn runs");
    socket.until("turn_end").await;
    assert_eq!(model.requests().len(), 1);
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn from_elsewhere_access_can_only_be_reduced() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let scope = |mode: &str| {
        let scope = json!({"project_path": place.path().join("workspace"), "access_mode": mode});
        json!({"type": "set_workspace_scope", "chat_id": "room", "workspace_scope": scope})
    };
    let mut here = gateway.websocket("").await;
    let mut there = gateway.websocket_through_a_proxy().await;
    there.send(scope("full")).await;
    assert_eq!(there.until("error").await["reason"], "forbidden");
    here.send(scope("full")).await;
    here.until("session_updated").await;
    there.send(scope("restricted")).await;
    there.until("session_updated").await;
    there.send(scope("full")).await;
    assert_eq!(there.until("error").await["reason"], "forbidden");
    gateway.terminate().await;
}
