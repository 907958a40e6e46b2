//! Messages that wait: for a place among the turns that run, and behind each other where several doors share a session.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, PATIENCE, Place, Socket, said};

const LONG: Duration = Duration::from_secs(3600);

async fn until(what: &str, is: impl AsyncFn() -> bool) {
    let waiting = async {
        while !is().await {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    assert!(tokio::time::timeout(PATIENCE, waiting).await.is_ok(), "{what} does not come");
}

async fn metric(gateway: &Gateway, name: &str) -> f64 {
    let (_, text) = gateway.get("/metrics").await;
    let line = text.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name}")).parse().unwrap()
}

/// What is answered to a word of control.
async fn told(socket: &mut Socket, chat: &str, word: &str) -> String {
    socket.say(chat, word, word).await;
    loop {
        let message = socket.until("message").await;
        if message["control"] == true {
            assert_eq!(message["chat_id"], chat);
            return message["text"].as_str().unwrap().to_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn control_is_answered_while_sixty_four_messages_wait_for_the_only_place() {
    let model = Model::start_on_thread();
    model.config(|config| config.delay = LONG);
    let config = json!({"runtime": {"maxRunningTurns": 1}, "queue": {"mode": "followup", "cap": 64}});
    let place = Place::with_model(&model.url(), config);
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("runs", "long", "m").await;
    socket.until("accepted").await;
    until("the call", async || model.stats().concurrent == 1).await;
    for n in 0..32 {
        for chat in ["b", "c"] {
            socket.say(chat, &format!("message {n}"), &format!("m{n}")).await;
            socket.until("accepted").await;
        }
    }
    assert_eq!(metric(&gateway, "greenroom_inbox_messages").await, 64.0);
    let oldest = metric(&gateway, "greenroom_inbox_oldest_seconds").await;
    until("its age to be told", async || metric(&gateway, "greenroom_inbox_oldest_seconds").await > oldest).await;
    // No turn has ended, and none will: whoever stood behind one would wait for ever.
    let mut control = gateway.client().await;
    assert!(told(&mut control, "b", "/status").await.starts_with("Waiting for other conversations, "));
    assert!(told(&mut control, "c", "/help").await.contains("/stop"));
    assert_eq!(told(&mut control, "b", "/stop all").await, "Nothing was running. Dropped 32 waiting.");
    until("the queue to be cleared", async || gateway.admin("status").await["journal"]["open"] == 33).await;
    assert_eq!((model.stats().concurrent, model.requests().len()), (1, 1), "the first turn still runs");
    model.config(|config| config.delay = Duration::ZERO);
    assert!(told(&mut control, "runs", "/stop").await.starts_with("Stopped"));
    gateway.settle().await;
    assert_eq!(metric(&gateway, "greenroom_inbox_messages").await, 0.0);
    assert_eq!(metric(&gateway, "greenroom_inbox_oldest_seconds").await, 0.0);
    let journal = gateway.admin("status").await["journal"].clone();
    assert_eq!((&journal["done"], &journal["cancelled"]), (&json!(32), &json!(33)), "{journal}");
    assert_eq!(gateway.terminate().await, Some(0));
}

/// The verdicts over the messages of a chat, in order; every event has to be the chat's own.
async fn verdicts(socket: &mut Socket, chat: &str, count: usize) -> Vec<String> {
    let mut verdicts = Vec::new();
    while verdicts.len() < count {
        let event = socket.next().await.unwrap();
        assert_eq!(event["chat_id"], chat, "another chat's event: {event}");
        if event["event"] == "turn_end" {
            verdicts.push(event["result"].as_str().unwrap().to_owned());
        }
    }
    verdicts
}

async fn watch(gateway: &Gateway, chat: &str) -> Socket {
    let mut socket = gateway.client().await;
    socket.send(json!({"type": "attach", "chat_id": chat})).await;
    socket.until("attached").await;
    socket
}

/// Two chats and an API request wait behind a turn of one session: the verdicts over the messages of desk and phone, and
/// what was said in the end.
async fn wait_in_one_session(mode: &str) -> ([Vec<String>; 2], Vec<(String, String)>) {
    let model = Model::start_on_thread();
    model.config(|config| config.delay = LONG);
    let config = json!({"agents": {"defaults": {"unifiedSession": true}}, "queue": {"mode": mode, "debounceMs": 0}});
    let place = Place::with_model(&model.url(), config);
    let gateway = place.start().await;
    let (mut desk, mut phone) = (gateway.client().await, gateway.client().await);
    // They read no acceptances, and so pass over no verdict.
    let (mut at_desk, mut at_phone) = (watch(&gateway, "desk").await, watch(&gateway, "phone").await);
    desk.say("desk", "first", "m1").await;
    desk.until("accepted").await;
    until("the call", async || model.stats().concurrent == 1).await;
    if mode == "interrupt" {
        // The next message is what ends the first turn.
        model.config(|config| config.delay = Duration::ZERO);
    }
    for (chat, text, id) in [("desk", "second", "m2"), ("desk", "third", "m3"), ("phone", "fourth", "m4")] {
        let socket = if chat == "desk" { &mut desk } else { &mut phone };
        socket.say(chat, text, id).await;
        socket.until("accepted").await;
    }
    let asked = json!({"messages": [{"role": "user", "content": "fifth"}]});
    let ((status, body), ()) = tokio::join!(gateway.chat(asked, None), async {
        until("all to be accepted", async || gateway.admin("status").await["journal"]["accepted"] == 5).await;
        model.config(|config| config.delay = Duration::ZERO);
        if mode != "interrupt" {
            assert_eq!(gateway.admin("status").await["journal"]["open"], 5, "{mode}: they wait");
            gateway.post("sessions/unified%3Adefault/stop".to_owned()).await;
        }
    });
    assert_eq!(status, 200, "{mode}: {body}");
    let answer: &Value = &body["choices"][0]["message"]["content"];
    assert_eq!(answer, "echo:fifth", "{mode}");
    gateway.settle().await;
    let verdicts = [verdicts(&mut at_desk, "desk", 3).await, verdicts(&mut at_phone, "phone", 1).await];
    assert_eq!(gateway.terminate().await, Some(0));
    (verdicts, said(&place.transcript("unified.default")))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn chats_and_a_request_that_wait_in_one_session_end_as_the_mode_says_and_hear_only_their_own() {
    let (done, cancelled, joined) = ("done", "cancelled", "joined");
    for (mode, desk, phone) in [
        ("steer", [cancelled, done, done], Some(done)),
        ("followup", [cancelled, done, done], Some(done)),
        ("collect", [cancelled, joined, done], Some(done)),
        ("interrupt", [cancelled, "", ""], None),
    ] {
        let ([of_desk, of_phone], said) = wait_in_one_session(mode).await;
        for (found, wanted) in of_desk.iter().zip(desk).chain(of_phone.iter().zip(phone)) {
            assert!(wanted.is_empty() || found == wanted, "{mode}: {of_desk:?} {of_phone:?}");
        }
        let users: Vec<&str> = said.iter().filter(|(role, _)| role == "user").map(|(_, text)| text.as_str()).collect();
        assert_eq!(users, ["first", "second", "third", "fourth", "fifth"], "{mode}: each once, in order");
    }
}
