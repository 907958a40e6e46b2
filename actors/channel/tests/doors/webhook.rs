//! The webhook door.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use channel::Secret;
use channel::webhook::{WebhookConfig, serve};
use protocol::journal::{BusyReason, Enqueued};
use protocol::turn::{PushRoute, Route};
use serde_json::{Value, json};

use crate::client::{Reply, get, post};
use crate::world::{World, text_of};

async fn open(token: Option<&str>, allow_from: &[&str]) -> (Arc<World>, SocketAddr) {
    let world = World::new();
    let (listener, address) = world.listen().await;
    let config = WebhookConfig {
        router: None,
        token: token.and_then(Secret::new),
        allow_from: allow_from.iter().map(|&name| name.to_owned()).collect(),
        connections_max: 10,
        drain: Duration::from_secs(1),
    };
    tokio::spawn(serve(listener, world.doors.clone(), config, world.shutdown.clone()));
    (world, address)
}

fn message(text: &str) -> Value {
    json!({"chat_id": "7", "message_id": "m1", "text": text})
}

async fn say(address: SocketAddr, headers: &str, body: &Value) -> Reply {
    post(address, "/webhook", headers, body.to_string().as_bytes()).await
}

#[tokio::test]
async fn a_message_is_accepted_with_its_route_and_a_repeat_starts_nothing() {
    let (world, address) = open(None, &["*"]).await;
    let body = json!({"chat_id": "7", "message_id": "m1", "text": "hi", "thread": "t", "sender": "ann"});
    let reply = say(address, "", &body).await;
    let taken = world.message().await;
    assert_eq!((taken.key.as_str(), taken.source.as_str()), ("webhook:7:thread:t", "webhook"));
    assert_eq!((taken.message_id.as_str(), text_of(&taken).as_str()), ("m1", "hi"));
    let (channel, account) = ("webhook".into(), "default".into());
    let route = PushRoute { channel, account, chat: "7".into(), thread: Some("t".into()) };
    assert_eq!(taken.route, Route::Push(route));
    assert_eq!(reply.status, 202);
    assert_eq!(reply.json(), json!({"turn_id": taken.turn, "seq": 1, "position": 0, "state": "running"}));
    let again = say(address, "", &body).await;
    assert_eq!(again.status, 202);
    assert_eq!(again.json(), json!({"turn_id": taken.turn, "position": 0, "state": "duplicate"}));
    let other = json!({"chat_id": "7", "message_id": "m1", "text": "other", "thread": "t"});
    let conflict = say(address, "", &other).await;
    assert_eq!((conflict.status, &conflict.json()["error"]["code"]), (422, &json!("message_id_conflict")));
}

#[tokio::test]
async fn bounds_are_told_with_a_time_to_come_back() {
    let (world, address) = open(None, &["*"]).await;
    for (refusal, status, code, after) in [
        (Enqueued::Busy { retry_after_ms: 1500, why: BusyReason::Session }, 429, "session_full", Some("2")),
        (Enqueued::Busy { retry_after_ms: 1000, why: BusyReason::Process }, 503, "process_full", Some("1")),
        (Enqueued::Busy { retry_after_ms: 9000, why: BusyReason::Disk }, 503, "disk", Some("9")),
        (Enqueued::Draining, 503, "draining", Some("5")),
    ] {
        world.refuse(refusal);
        let reply = say(address, "", &message("hi")).await;
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (status, Some(code)));
        assert_eq!(reply.header("retry-after"), after, "{code}");
    }
}

#[tokio::test]
async fn commands_are_answered_at_the_door() {
    let (_world, address) = open(None, &["*"]).await;
    let reply = say(address, "", &message("/stop all")).await;
    assert_eq!(reply.status, 200);
    assert_eq!(reply.json()["control"], true);
    assert_eq!(reply.json()["text"], "Nothing was running. Dropped 1 waiting.");
    let reply = say(address, "", &message("/status")).await;
    assert!(reply.json()["text"].as_str().unwrap().starts_with("Thinking for 1.2 s"), "{}", reply.body);
    let reply = say(address, "", &message("/statsu")).await;
    assert_eq!((reply.status, &reply.json()["turn_id"]), (200, &Value::Null));
    assert!(reply.json()["text"].as_str().unwrap().contains("Did you mean /status?"), "{}", reply.body);
}

#[tokio::test]
async fn who_may_not_write_is_told() {
    let (_world, address) = open(Some("t0ken"), &["ann"]).await;
    let bearer = "authorization: Bearer t0ken\r\n";
    let from = |sender: &str| {
        let mut body = message("hi");
        body["sender"] = sender.into();
        body
    };
    for (headers, body, status) in [
        ("", from("ann"), 401),
        ("authorization: Bearer other\r\n", from("ann"), 401),
        (bearer, from("bob"), 403),
        (bearer, message("hi"), 403),
        (bearer, from("ann"), 202),
        ("authorization: Bearer t0ken\r\norigin: https://evil.example\r\n", from("ann"), 202),
    ] {
        assert_eq!(say(address, headers, &body).await.status, status, "{headers:?} {body}");
    }
    let (_world, address) = open(None, &["*"]).await;
    for headers in ["origin: https://evil.example\r\n", "host: evil.example\r\n"] {
        assert_eq!(say(address, headers, &message("hi")).await.status, 403, "{headers}");
    }
}

#[tokio::test]
async fn what_cannot_be_read_is_told() {
    let (_world, address) = open(None, &["*"]).await;
    let long = json!({"chat_id": "7", "message_id": "m", "text": "x".repeat(1024 * 1024)}).to_string();
    for (headers, body, status, code) in [
        ("", r#"{"chat_id": "7"}"#, 400, "bad_body"),
        ("", "{", 400, "bad_body"),
        ("content-type: text/plain\r\n", "{}", 415, "unsupported_media_type"),
        ("", long.as_str(), 413, "request_too_large"),
    ] {
        let reply = post(address, "/webhook", headers, body.as_bytes()).await;
        assert_eq!((reply.status, reply.json()["error"]["code"].as_str()), (status, Some(code)), "{}", reply.body);
    }
    assert_eq!(get(address, "/webhook", "").await.status, 405);
    assert_eq!(get(address, "/other", "").await.status, 404);
    assert_eq!(get(address, "/health", "").await.status, 200);
}
