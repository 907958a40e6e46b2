//! WebSocket and API as their clients see them.

use domain::history::spoken;
use serde_json::{Value, json};

use crate::support::{Place, said};

fn user(text: &str) -> Value {
    json!({"role": "user", "content": text})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_websocket_message_is_accepted_streamed_and_ended() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("?client_id=ann").await;
    let ready = socket.next().await.unwrap();
    assert_eq!((ready["event"].as_str(), ready["client_id"].as_str()), (Some("ready"), Some("ann")));
    socket.say("room", "hello", "m1").await;
    let accepted = socket.until("accepted").await;
    assert_eq!(accepted["chat_id"], "room");
    assert_eq!(accepted["message_id"], "m1");
    assert_eq!(accepted["position"], 0);
    let turn = accepted["turn_id"].clone();
    let delta = socket.until("delta").await;
    assert_eq!(delta["turn_id"], turn);
    socket.until("stream_end").await;
    let end = socket.until("turn_end").await;
    assert_eq!(end["turn_id"], turn);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_same_message_id_gets_the_same_turn_and_starts_nothing_also_after_a_restart() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "hello", "m1").await;
    let first = socket.until("accepted").await;
    socket.until("turn_end").await;
    socket.say("room", "hello", "m1").await;
    let second = socket.until("accepted").await;
    assert_eq!(second["turn_id"], first["turn_id"]);
    assert_eq!(second["state"], "duplicate");
    socket.say("room", "something else", "m1").await;
    let conflict = socket.until("error").await;
    assert_eq!(conflict["reason"], "message_id_conflict");
    gateway.kill_nine();
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "hello", "m1").await;
    let third = socket.until("accepted").await;
    assert_eq!(third["turn_id"], first["turn_id"]);
    let replay = socket.until("message").await;
    assert_eq!(replay["turn_id"], first["turn_id"]);
    socket.until("turn_end").await;
    gateway.terminate().await;
    assert_eq!(said(&place.transcript("websocket.room")).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idempotency_key_returns_the_first_outcome_also_after_a_restart() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let body = json!({"user": "ann", "messages": [user("hello")]});
    let (status, first) = gateway.chat(body.clone(), Some("k1")).await;
    assert_eq!(status, 200, "{first}");
    assert!(first["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let (_, second) = gateway.chat(body.clone(), Some("k1")).await;
    assert_eq!(second["id"], first["id"]);
    assert_eq!(second["choices"], first["choices"]);
    let (status, conflict) = gateway.chat(json!({"user": "ann", "messages": [user("other")]}), Some("k1")).await;
    assert_eq!(status, 422, "{conflict}");
    gateway.kill_nine();
    let gateway = place.start().await;
    let (status, third) = gateway.chat(body, Some("k1")).await;
    assert_eq!(status, 200);
    assert_eq!((&third["id"], &third["choices"]), (&first["id"], &first["choices"]));
    gateway.terminate().await;
    assert_eq!(said(&place.transcript("api.user.ann")).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_requests_with_one_key_at_once_start_one_turn() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let body = json!({"user": "ann", "messages": [user("hello [[delay=300]]")]});
    let (first, second) = tokio::join!(gateway.chat(body.clone(), Some("k")), gateway.chat(body, Some("k")));
    assert_eq!((first.0, second.0), (200, 200));
    assert_eq!(first.1["id"], second.1["id"]);
    gateway.terminate().await;
    assert_eq!(said(&place.transcript("api.user.ann")).len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_may_bring_system_text_and_their_own_history() {
    let model = testkit::model::Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let messages = json!([
        {"role": "system", "content": "be brief"},
        user("my name is Ann"),
        {"role": "assistant", "content": "hello Ann"},
        user("what is my name?"),
    ]);
    let (status, body) = gateway.chat(json!({"session_id": "s", "messages": messages}), None).await;
    assert_eq!(status, 200, "{body}");
    let asked: Value = model.requests().pop().unwrap();
    let asked = asked["messages"].as_array().unwrap().clone();
    assert!(asked[0]["content"].as_str().unwrap().contains("be brief"));
    let roles: Vec<&str> = asked.iter().map(|message| message["role"].as_str().unwrap()).collect();
    assert_eq!(roles, ["system", "user", "assistant", "user"]);
    gateway.terminate().await;
    let said = said(&place.transcript("api.s"));
    assert_eq!(said[0], ("user".to_owned(), "what is my name?".to_owned()));
    assert_eq!(said.len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_session_keeps_the_history_between_requests_and_over_a_restart() {
    let model = testkit::model::Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    gateway.chat(json!({"user": "ann", "messages": [user("one")]}), None).await;
    gateway.chat(json!({"user": "ann", "messages": [user("two")]}), None).await;
    gateway.kill_nine();
    let gateway = place.start().await;
    gateway.chat(json!({"user": "ann", "messages": [user("three")]}), None).await;
    let asked: Value = model.requests().pop().unwrap();
    let messages = asked["messages"].as_array().unwrap().iter().skip(1);
    let texts: Vec<String> = messages.map(|m| spoken(m["content"].as_str().unwrap_or("?"))).collect();
    assert_eq!(texts, ["one", "echo:one", "two", "echo:two", "three"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn stop_is_answered_while_a_turn_runs_and_the_queue_goes_on() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "slow [[delay=600000]]", "m1").await;
    socket.until("goal_status").await;
    socket.say("room", "next", "m2").await;
    let queued = socket.until("accepted").await;
    assert_eq!((&queued["position"], &queued["state"]), (&json!(1), &json!("steered")), "it may join the running turn");
    socket.send(json!({"type": "message", "chat_id": "room", "content": "/stop", "message_id": "m3"})).await;
    let control = socket.until("accepted").await;
    assert_eq!((&control["turn_id"], &control["control"]), (&Value::Null, &json!(true)));
    socket.until("turn_end").await;
    let end = socket.until("turn_end").await;
    assert_eq!(end["turn_id"], queued["turn_id"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_chats_share_a_connection_and_do_not_mix() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    for chat in ["a", "b", "c"] {
        socket.say(chat, &format!("for {chat}"), chat).await;
    }
    let mut ended = Vec::new();
    while ended.len() < 3 {
        let event = socket.next().await.unwrap();
        if event["event"] == "message" || event["event"] == "stream_end" {
            let chat = event["chat_id"].as_str().unwrap();
            assert!(event["text"].as_str().is_none_or(|text| text.contains(&format!("for {chat}"))), "{event}");
        }
        if event["event"] == "turn_end" {
            ended.push(event["chat_id"].as_str().unwrap().to_owned());
        }
    }
    ended.sort();
    assert_eq!(ended, ["a", "b", "c"]);
}
