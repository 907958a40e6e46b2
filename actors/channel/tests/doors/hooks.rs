//! Hooks on the gateway's port.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use channel::Secret;
use channel::doors::PhaseWord;
use channel::gateway::hooks::{Hook, Rate, Template};
use channel::gateway::{Addresses, GatewayConfig, serve};
use channel::webhook::SigningSecret;
use domain::body::TurnBody;
use domain::event::EventKind;
use domain::ids::SessionKey;
use protocol::journal::{BusyReason, Enqueued};
use protocol::turn::Route;
use serde_json::{Value, json};
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

use crate::client::{Reply, get, post};
use crate::gateway::Files;
use crate::world::{World, text_of};

const TOKEN: &str = "authorization: Bearer t\r\n";

fn hook(per_minute: u32) -> Hook {
    Hook {
        name: "Deploys".into(),
        key: SessionKey::new("websocket:7").unwrap(),
        route: Route::Live,
        message: Template::parse("Deployed: {{/app}}\n{{body}}").unwrap(),
        secret: Some(SigningSecret::new("s").unwrap()),
        token: Secret::new("t"),
        rate: Rate::per_minute(per_minute),
    }
}

async fn open(per_minute: u32) -> (Arc<World>, SocketAddr) {
    let world = World::new();
    let (listener, address) = world.listen().await;
    let only_signed = Hook { token: None, ..hook(per_minute) };
    let config = GatewayConfig {
        admin_token: Secret::new("admin"),
        hosts: Vec::new(),
        version: "1".to_owned(),
        pid: 7,
        addresses: Addresses::default(),
        connections_max: 64,
        drain: Duration::from_secs(5),
        transcripts: Arc::new(Files(watch::Sender::new(true))),
        pruning: Default::default(),
        hooks: Arc::new([("deploys".into(), hook(per_minute)), ("signed".into(), only_signed)].into()),
        logs: "/logs".into(),
        stop: CancellationToken::new(),
    };
    tokio::spawn(serve(listener, world.doors.clone(), config, world.shutdown.clone()));
    (world, address)
}

async fn call(to: SocketAddr, headers: &str, body: &str) -> Reply {
    post(to, "/hooks/deploys", headers, body.as_bytes()).await
}

fn code(reply: &Reply) -> (u16, Value) {
    (reply.status, reply.json()["error"]["code"].clone())
}

#[tokio::test]
async fn a_call_is_an_event_of_its_session_and_taken_once() {
    let (world, address) = open(60).await;
    let body = r#"{"app":"shop"}"#;
    let reply = call(address, &format!("{TOKEN}x-github-delivery: d1\r\n"), body).await;
    let taken = world.message().await;
    assert_eq!((taken.key.as_str(), taken.source.as_str()), ("websocket:7", "hook"));
    assert_eq!((taken.message_id.as_str(), &taken.route), ("deploys:d1", &Route::Live));
    assert_eq!(text_of(&taken), "Deployed: shop\n{\"app\":\"shop\"}");
    let event = TurnBody::decode(&taken.body).unwrap().event.unwrap();
    assert_eq!((event.kind, &*event.id, &*event.name), (EventKind::Webhook, "deploys", "Deploys"));
    assert_eq!(reply.status, 202);
    assert_eq!(reply.json(), json!({"turn_id": taken.turn, "seq": 1, "position": 0, "state": "running"}));
    // Again, also with another body: what names a delivery is its id.
    for body in [body, r#"{"app":"other"}"#] {
        let again = call(address, &format!("{TOKEN}x-github-delivery: d1\r\n"), body).await;
        assert_eq!(again.status, 202);
        assert_eq!(again.json(), json!({"turn_id": taken.turn, "position": 0, "state": "duplicate"}));
    }
    let unnamed = [call(address, TOKEN, body).await, call(address, TOKEN, body).await];
    assert_eq!(unnamed.map(|reply| reply.json()["state"].clone()), ["running", "duplicate"]);
    let counted = get(address, "/metrics", "").await.body;
    assert!(counted.contains(r#"greenroom_accepted_total{door="hook"} 2"#), "{counted}");
}

#[tokio::test]
async fn who_may_not_call_is_told_and_nothing_is_taken() {
    let (world, address) = open(60).await;
    // Of `x` with the secret `s`.
    let signature = "x-signature-256: sha256=cefb105ee22996fb167ed606478d2931b87aa3ab99b4b04b68c4fc16c8b49a30\r\n";
    for headers in ["", "authorization: Bearer u\r\n", signature, "x-signature-256: sha256=\r\n"] {
        let reply = call(address, headers, "y").await;
        assert_eq!(code(&reply), (401, json!("unauthorized")), "{headers}");
        assert!(!reply.body.contains("Deploys"), "{}", reply.body);
    }
    assert_eq!(post(address, "/hooks/signed", TOKEN, b"x").await.status, 401);
    for path in ["/hooks/other", "/hooks/", "/hooks/deploys/x", "/hooks/%ff"] {
        assert_eq!(post(address, path, TOKEN, b"x").await.status, 404, "{path}");
    }
    assert_eq!(code(&get(address, "/hooks/deploys", TOKEN).await), (405, json!("method_not_allowed")));
    assert_eq!(code(&post(address, "/hooks/deploys", TOKEN, b"\xff").await), (400, json!("bad_body")));
    assert_eq!(post(address, "/hooks/signed", signature, b"x").await.status, 202);
    assert_eq!(text_of(&world.message().await), "Deployed: \nx", "it is the first that was taken");
}

#[tokio::test]
async fn bounds_are_told_with_a_time_to_come_back() {
    let (world, address) = open(2).await;
    let large = "x".repeat(256 * 1024);
    assert_eq!(code(&call(address, TOKEN, &format!("{large}x")).await), (413, json!("request_too_large")));
    assert_eq!(call(address, TOKEN, &large).await.status, 202);
    world.refuse(Enqueued::Busy { retry_after_ms: 1500, why: BusyReason::Session });
    let busy = call(address, TOKEN, "y").await;
    assert_eq!((code(&busy), busy.header("retry-after")), ((429, json!("session_full")), Some("2")));
    let often = call(address, TOKEN, "z").await;
    assert_eq!((code(&often), often.header("retry-after")), ((429, json!("rate_limited")), Some("30")));
    assert_eq!(call(address, "authorization: Bearer u\r\n", "z").await.status, 401, "who may not call is told so");
    world.phase.set(PhaseWord::Draining);
    let draining = call(address, TOKEN, "z").await;
    assert_eq!((code(&draining), draining.header("retry-after")), ((503, json!("draining")), Some("5")));
}
