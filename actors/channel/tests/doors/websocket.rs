//! The WebSocket door.

mod coming_back;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use channel::Secret;
use channel::websocket::{TokenIssue, WebsocketConfig, serve};
use domain::ids::SessionKey;
use futures::{SinkExt, StreamExt};
use protocol::journal::{BusyReason, Enqueued};
use protocol::turn::TurnResult;
use serde_json::{Value, json};
use testkit::deadline::with_deadline;
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

use crate::client;
use crate::world::{World, ended, finished, text_of};

struct Client(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Client {
    async fn connect(to: SocketAddr) -> Self {
        let mut client = Self::bare(to, "/").await;
        assert_eq!(client.event().await["event"], "ready");
        client
    }

    async fn bare(to: SocketAddr, path: &str) -> Self {
        let (socket, _) = tokio_tungstenite::connect_async(format!("ws://{to}{path}")).await.unwrap();
        Self(socket)
    }

    async fn send(&mut self, frame: Value) {
        self.0.send(Message::text(frame.to_string())).await.unwrap();
    }

    async fn say(&mut self, chat: &str, text: &str, id: &str) {
        self.send(json!({"type": "message", "chat_id": chat, "content": text, "message_id": id})).await;
    }

    async fn event(&mut self) -> Value {
        loop {
            match with_deadline("event", self.0.next()).await.unwrap().unwrap() {
                Message::Text(text) => return serde_json::from_str(&text).unwrap(),
                Message::Close(frame) => panic!("closed: {frame:?}"),
                Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_) => {}
            }
        }
    }

    async fn events(&mut self, count: usize) -> Vec<Value> {
        let mut events = Vec::new();
        for _ in 0..count {
            events.push(self.event().await);
        }
        events
    }

    async fn close_code(&mut self) -> u16 {
        with_deadline("close", async {
            loop {
                match self.0.next().await {
                    Some(Ok(Message::Close(Some(frame)))) => return frame.code.into(),
                    Some(Ok(_)) => {}
                    other => panic!("no close frame: {other:?}"),
                }
            }
        })
        .await
    }
}

fn names(events: &[Value]) -> Vec<&str> {
    events.iter().map(|event| event["event"].as_str().unwrap()).collect()
}

async fn open(config: WebsocketConfig) -> (Arc<World>, SocketAddr, JoinHandle<()>) {
    open_in(World::new(), config).await
}

async fn open_in(world: Arc<World>, config: WebsocketConfig) -> (Arc<World>, SocketAddr, JoinHandle<()>) {
    let (listener, address) = world.listen().await;
    let serving = tokio::spawn(serve(listener, world.doors.clone(), config, world.shutdown.clone()));
    (world, address, serving)
}

fn chat(name: &str) -> SessionKey {
    SessionKey::new(&format!("websocket:{name}")).unwrap()
}

#[tokio::test]
async fn a_message_is_accepted_then_streamed_then_ended() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    world.backend.hasty.store(true, Ordering::Relaxed);
    let mut client = Client::connect(address).await;
    client.say("c", "hi", "m1").await;
    let message = world.message().await;
    assert_eq!((text_of(&message).as_str(), message.source.as_str()), ("hi", "ws"));
    assert_eq!(message.key, chat("c"));
    let mut turn = world.play(&chat("c"), message.turn);
    turn.say("Hel").say("lo").end("Hello").finish(TurnResult::Done, "Hello");
    let mut events = client.events(3).await;
    assert_eq!(events[0]["event"], "accepted", "though the turn began first");
    assert_eq!(events[0]["message_id"], "m1");
    assert_eq!(events[0]["turn_id"], message.turn.to_string());
    assert_eq!(
        (&events[0]["seq"], &events[0]["position"], &events[0]["state"]),
        (&1.into(), &0.into(), &"running".into())
    );
    let mut text = String::new();
    while events.last().unwrap()["status"] != "idle" {
        events.push(client.event().await);
    }
    for event in events.iter().filter(|event| event["event"] == "delta") {
        text.push_str(event["text"].as_str().unwrap());
    }
    assert_eq!(text, "Hello");
    let end = &events[events.len() - 2];
    assert_eq!((&end["event"], &end["latency_ms"]), (&"turn_end".into(), &5.into()));
    assert!(!names(&events).contains(&"message"));
}

#[tokio::test]
async fn plain_text_goes_to_the_default_chat_and_is_not_acknowledged() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::bare(address, "/?client_id=ann").await;
    let ready = client.event().await;
    assert_eq!(ready["client_id"], "ann");
    for frame in [Message::text("one"), Message::text(r#"{"text":"two"}"#)] {
        client.0.send(frame).await.unwrap();
        let message = world.message().await;
        assert_eq!(message.key, chat(ready["chat_id"].as_str().unwrap()));
        world.play(&message.key, message.turn).answer("yes");
        assert_eq!(names(&client.events(5).await), ["goal_status", "delta", "stream_end", "turn_end", "goal_status"]);
    }
}

#[tokio::test]
async fn refusals_are_errors_that_leave_the_connection_open() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    for (refusal, reason, retry) in [
        (Enqueued::Busy { retry_after_ms: 250, why: BusyReason::Session }, "busy", json!(250)),
        (Enqueued::Draining, "draining", json!(5000)),
    ] {
        world.refuse(refusal);
        client.say("c", "hi", "m1").await;
        let error = client.event().await;
        assert_eq!(
            (&error["reason"], &error["message_id"], &error["retry_after_ms"]),
            (&reason.into(), &"m1".into(), &retry)
        );
    }
    client.say("c", "hi", "m1").await;
    assert_eq!(client.event().await["event"], "accepted");
}

#[tokio::test]
async fn a_repeat_for_a_session_that_is_held_back_gets_the_outcome() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    client.say("c", "hi", "m1").await;
    let message = world.message().await;
    assert_eq!(client.event().await["event"], "accepted");
    world.backend.held_back.store(true, Ordering::Relaxed);
    client.say("c", "hi", "m1").await;
    let open = client.event().await;
    assert_eq!((&open["event"], &open["state"]), (&"accepted".into(), &"duplicate".into()));
    world.backend.records.lock().unwrap().insert(message.turn, ended(finished(TurnResult::Done, "Hello")));
    client.say("c", "hi", "m1").await;
    let events = client.events(3).await;
    assert_eq!(names(&events), ["accepted", "message", "turn_end"]);
    assert_eq!(events[1]["text"], "Hello");
}

#[tokio::test]
async fn a_stop_finds_the_message_before_it_and_not_the_one_after() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    world.hold_verdicts();
    for (chat, text, id) in [("c", "one", "m1"), ("c", "/stop", "s1"), ("c", "two", "m2"), ("d", "/stop", "s2")] {
        client.say(chat, text, id).await;
    }
    assert_eq!(text_of(&world.message().await), "one");
    let other = client.events(2).await;
    assert_eq!((&other[0]["message_id"], &other[1]["chat_id"]), (&"s2".into(), &"d".into()), "another chat waits not");
    world.tell_verdicts();
    assert_eq!(text_of(&world.message().await), "two");
    assert_eq!(*world.backend.stops.lock().unwrap(), [1, 1]);
    let events = client.events(4).await;
    let first: Vec<_> = events.iter().filter_map(|event| event["message_id"].as_str()).collect();
    assert_eq!(first, ["m1", "s1", "m2"], "{events:?}");
}

#[tokio::test]
async fn what_a_client_said_before_it_left_takes_effect() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    world.hold_verdicts();
    for (text, id) in [("one", "m1"), ("/stop", "s1"), ("two", "m2")] {
        client.say("c", text, id).await;
    }
    assert_eq!(text_of(&world.message().await), "one");
    client.0.close(None).await.unwrap();
    let gone = async { while client.0.next().await.is_some() {} };
    with_deadline("the door hears that the client leaves", gone).await;
    world.tell_verdicts();
    assert_eq!(text_of(&world.message().await), "two");
    assert_eq!(*world.backend.stops.lock().unwrap(), [1]);
}

#[tokio::test]
async fn control_is_answered_at_once_and_never_journalled() {
    let (_world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    for (text, answer) in [
        ("/stop all", "Nothing was running. Dropped 1 waiting."),
        ("/status", "Thinking for 1.2 s, 3 waiting."),
        ("/help", "/help – this list"),
        ("/restart", "This process cannot restart itself."),
        ("/HLEP@bot me", "Unknown command /HLEP. Did you mean /help?"),
        ("/stop it", "Please write it so: /stop [all]."),
    ] {
        client.say("c", text, "m1").await;
        let events = client.events(2).await;
        assert_eq!(names(&events), ["accepted", "message"]);
        for event in &events {
            assert_eq!((&event["turn_id"], &event["control"]), (&Value::Null, &true.into()));
        }
        assert!(events[1]["text"].as_str().unwrap().starts_with(answer), "{}", events[1]);
    }
    client.say("asleep", "/stop", "m1").await;
    assert_eq!(client.events(2).await[1]["text"], "Nothing is running here.");
}

#[tokio::test]
async fn bad_frames_are_named_and_change_nothing() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    for (frame, detail) in [
        (Message::text("{\"type\":"), "the frame is not valid JSON"),
        (Message::text(r#"{"type":"dance"}"#), "unknown frame type \"dance\""),
        (Message::text(r#"{"type":"message","chat_id":"a b","content":"x"}"#), "\"chat_id\" must match"),
        (Message::binary(vec![1, 2]), "binary frames are not understood"),
    ] {
        client.0.send(frame).await.unwrap();
        let error = client.event().await;
        assert_eq!((&error["event"], &error["reason"]), (&"error".into(), &"bad_frame".into()));
        assert!(error["detail"].as_str().unwrap().starts_with(detail), "{error}");
    }
    client.send(json!({"type": "message", "chat_id": "c", "content": "x".repeat(70_000)})).await;
    assert_eq!(client.event().await["reason"], "too_large");
    client.say("c", "still here", "m").await;
    assert_eq!(text_of(&world.message().await), "still here");
}

#[tokio::test]
async fn a_frame_over_the_limit_and_broken_text_end_the_connection() {
    let config = WebsocketConfig { max_message_bytes: 1024, ..WebsocketConfig::default() };
    let (_world, address, _) = open(config).await;
    let mut client = Client::connect(address).await;
    client.0.send(Message::text("x".repeat(2000))).await.unwrap();
    assert_eq!(client.close_code().await, 1009);
    let mut client = Client::connect(address).await;
    // A masked text frame with one byte that is no UTF-8, past the client library.
    assert!(raw(&mut client, &[0x81, 0x81, 0, 0, 0, 0, 0xff]).await);
    assert_eq!(client.close_code().await, 1007);
}

/// Past the client library: bytes as they are; whether the door still took them.
async fn raw(client: &mut Client, bytes: &[u8]) -> bool {
    let MaybeTlsStream::Plain(socket) = client.0.get_mut() else { panic!("a plain socket") };
    tokio::io::AsyncWriteExt::write_all(socket, bytes).await.is_ok()
}

#[tokio::test]
async fn frames_that_are_not_complete_take_their_room_and_who_finds_none_is_told() {
    const FRAME: usize = 300 << 10;
    const BEGUN: usize = 200 << 10;
    let (_world, address, _) = open_in(World::with_frame_room(300 << 10), WebsocketConfig::default()).await;
    let (mut a, mut b) = (Client::connect(address).await, Client::connect(address).await);
    for client in [&mut a, &mut b] {
        // A masked text frame with a length of eight bytes, and two thirds of what it says.
        let head = [&[0x81, 0xff][..], &(FRAME as u64).to_be_bytes(), &[0; 4]].concat();
        raw(client, &[&head[..], &vec![b'x'; BEGUN]].concat()).await;
    }
    let a_was_last = tokio::select! {
        biased;
        code = a.close_code() => { assert_eq!(code, 1013); true }
        code = b.close_code() => { assert_eq!(code, 1013); false }
    };
    let (other, closed) = if a_was_last { (b, a) } else { (a, b) };
    drop(closed);
    let mut other = other;
    assert!(raw(&mut other, &vec![b'x'; FRAME - BEGUN]).await);
    assert_eq!(other.event().await["reason"], "too_large", "it was read to its end");
    other.0.send(Message::text("/help")).await.unwrap();
    assert_eq!(other.event().await["control"], true);
}

#[tokio::test]
async fn a_turn_never_waits_for_a_slow_client() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    client.say("c", "hi", "m1").await;
    let message = world.message().await;
    assert_eq!(client.event().await["event"], "accepted");
    let mut turn = world.play(&message.key, message.turn);
    turn.start();
    let piece = "x".repeat(64 * 1024);
    // More than every buffer on the way holds.
    for _ in 0..400 {
        turn.say(&piece);
        tokio::task::yield_now().await;
    }
    turn.finish(TurnResult::Done, "done");
    assert_eq!(client.close_code().await, 1013);
}

#[tokio::test]
async fn several_chats_share_a_connection() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    client.send(json!({"type": "new_chat"})).await;
    let new = client.event().await;
    assert_eq!(new["event"], "attached");
    let new = new["chat_id"].as_str().unwrap().to_owned();
    client.send(json!({"type": "attach", "chat_id": "b"})).await;
    assert_eq!(client.event().await["chat_id"], "b");
    for name in ["b", &new] {
        let turn = world.doors.ports.ids.uuid_v7();
        world.play(&chat(name), domain::ids::TurnId(turn)).answer("yes");
        for event in client.events(5).await {
            assert_eq!(event["chat_id"], name);
        }
    }
}

#[tokio::test]
async fn a_clients_own_turn_id_is_echoed() {
    let (world, address, _) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    let frame = json!({"type": "message", "chat_id": "c", "content": "hi", "turn_id": "mine", "webui": true});
    client.send(frame).await;
    let message = world.message().await;
    let accepted = client.event().await;
    assert_eq!((&accepted["event"], &accepted["client_turn_id"]), (&"message_accepted".into(), &"mine".into()));
    assert_eq!((&accepted["turn_id"], &accepted["starts_turn"]), (&message.turn.to_string().into(), &true.into()));
    world.play(&message.key, message.turn).answer("yes");
    for event in client.events(5).await {
        assert_eq!(event["client_turn_id"], "mine");
    }
}

#[tokio::test]
async fn the_handshake_checks_who_comes() {
    let config = WebsocketConfig {
        token: Secret::new("sesame"),
        issue: Some(TokenIssue { path: "/token".to_owned(), secret: Secret::new("key").unwrap() }),
        allow_from: vec!["ann".to_owned()],
        allowed_origins: vec!["https://app.example".to_owned()],
        ..WebsocketConfig::default()
    };
    let (_world, address, _) = open(config).await;
    let upgrade = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    for (path, headers, status) in [
        ("/?client_id=ann&token=sesame", String::new(), 426),
        ("/elsewhere", upgrade.to_owned(), 404),
        ("/?client_id=bob&token=sesame", upgrade.to_owned(), 403),
        ("/?client_id=ann&token=wrong", upgrade.to_owned(), 401),
        ("/?client_id=ann", upgrade.to_owned(), 401),
        ("/?client_id=ann&token=sesame", format!("{upgrade}origin: https://evil.example\r\n"), 403),
        ("/token", String::new(), 401),
        ("/token", "authorization: Bearer no\r\n".to_owned(), 401),
    ] {
        assert_eq!(client::get(address, path, &headers).await.status, status, "{path} {headers}");
    }
    Client::bare(address, "/?client_id=ann&token=sesame").await;
    let issued = client::get(address, "/token", "x-nanobot-auth: key\r\n").await.json();
    assert_eq!(issued["expires_in"], 300);
    let path = format!("/?client_id=ann&token={}", issued["token"].as_str().unwrap());
    Client::bare(address, &path).await;
    assert_eq!(client::get(address, &path, upgrade).await.status, 401, "a token works once");
}

#[tokio::test]
async fn at_the_end_running_turns_are_told_to_their_clients() {
    let (world, address, serving) = open(WebsocketConfig::default()).await;
    let (mut idle, mut busy) = (Client::connect(address).await, Client::connect(address).await);
    busy.say("c", "hi", "m1").await;
    let message = world.message().await;
    assert_eq!(busy.event().await["event"], "accepted");
    world.shutdown.cancel();
    assert_eq!(idle.close_code().await, 1001);
    world.play(&message.key, message.turn).answer("yes");
    let events = busy.events(5).await;
    assert_eq!(names(&events), ["goal_status", "delta", "stream_end", "turn_end", "goal_status"]);
    assert_eq!(busy.close_code().await, 1001);
    with_deadline("end of serving", serving).await.unwrap();
}

#[tokio::test]
async fn an_open_socket_keeps_its_place() {
    let (world, address, serving) = open(WebsocketConfig { connections_max: 1, ..WebsocketConfig::default() }).await;
    let mut client = Client::connect(address).await;
    let reply = client::get(address, "/", "").await;
    assert_eq!((reply.status, &reply.json()["error"]["code"]), (503, &"busy".into()));
    client.say("c", "hi", "m1").await;
    assert_eq!(client.event().await["event"], "accepted");
    world.hub.close();
    world.shutdown.cancel();
    with_deadline("end of serving", serving).await.unwrap();
}

#[tokio::test]
async fn a_silent_peer_is_dropped() {
    let (ping_interval, ping_timeout) = (Duration::from_millis(30), Duration::from_millis(30));
    let config = WebsocketConfig { ping_interval, ping_timeout, ..WebsocketConfig::default() };
    let (_world, address, _) = open(config).await;
    // One that answers no ping, as it does nothing at all.
    let upgrade = "upgrade: websocket\r\nconnection: upgrade\r\nsec-websocket-version: 13\r\n\
                   sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let head = format!("GET / HTTP/1.1\r\nhost: localhost\r\n{upgrade}\r\n");
    let mut socket = TcpStream::connect(address).await.unwrap();
    tokio::io::AsyncWriteExt::write_all(&mut socket, head.as_bytes()).await.unwrap();
    let mut bytes = Vec::new();
    with_deadline("end", tokio::io::AsyncReadExt::read_to_end(&mut socket, &mut bytes)).await.unwrap();
    assert!(bytes.windows(2).any(|two| two == 1011u16.to_be_bytes()));
}

#[tokio::test]
async fn turns_that_are_kept_for_the_next_start_hold_nobody_up() {
    let (world, address, serving) = open(WebsocketConfig::default()).await;
    let mut client = Client::connect(address).await;
    client.say("c", "hi", "m1").await;
    assert_eq!(client.event().await["event"], "accepted");
    world.hub.close();
    assert_eq!(client.close_code().await, 1001);
    world.shutdown.cancel();
    with_deadline("end of serving", serving).await.unwrap();
}
