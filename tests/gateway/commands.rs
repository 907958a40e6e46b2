//! Commands in chat: at every door they are answered by the program, and the model never hears of them.

use std::time::Duration;

use domain::history::spoken;
use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::Receiver;

use crate::support::{Gateway, Place, said};

fn place(model: &Model, receiver: &Receiver) -> Place {
    let webhook = json!({"enabled": true, "port": 0, "url": receiver.url(), "allowFrom": "*"});
    Place::with_model(&model.url(), json!({"channels": {"webhook": webhook}}))
}

async fn post(gateway: &Gateway, id: &str, text: &str) -> (u16, Value) {
    let (url, body) = (gateway.beacon().webhook_url.unwrap(), json!({"chat_id": "7", "message_id": id, "text": text}));
    let reply = provider::http_client().unwrap().post(url).json(&body).send().await.unwrap();
    (reply.status().as_u16(), reply.json().await.unwrap())
}

async fn chat(gateway: &Gateway, text: &str) -> String {
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": text}]});
    let (status, body) = gateway.chat(body, None).await;
    assert_eq!(status, 200, "{body}");
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// What the model was shown last, but for the instructions.
fn shown(model: &Model) -> Vec<String> {
    let asked = model.requests().pop().unwrap();
    let messages = asked["messages"].as_array().unwrap().iter().skip(1);
    messages.map(|message| spoken(message["content"].as_str().unwrap_or_default())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn commands_are_answered_at_every_door_and_kept_from_the_model() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver);
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "/history@bot", "m1").await;
    assert_eq!(socket.until("accepted").await["turn_id"], Value::Null, "nothing is kept");
    assert_eq!(socket.until("message").await["text"], "Nothing has been said here yet.");
    socket.say("room", "/status", "s1").await;
    let told = socket.until("message").await["text"].clone();
    assert!(told.as_str().unwrap().contains("Model: "), "{told}");
    socket.say("room", "/histroy", "m2").await;
    assert_eq!(socket.until("accepted").await["turn_id"], Value::Null);
    let told = socket.until("message").await["text"].clone();
    assert_eq!(told, "Unknown command /histroy. Did you mean /history? It was not sent to the model.");
    assert_eq!(
        chat(&gateway, "/new").await,
        "A new conversation begins. The model no longer sees what was said before."
    );
    assert_eq!(
        chat(&gateway, "/pairing list").await,
        "/pairing is not available in this version. It was not sent to the model."
    );
    let (status, reply) = post(&gateway, "m1", "/usage").await;
    assert_eq!((status, &reply["text"]), (200, &json!("Nothing has been said here yet.")), "{reply}");
    let out = place.run(&["agent", "-m", "/tree"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "Nothing has been said here yet.");
    let listed = gateway.admin("sessions").await["items"].clone();
    assert_eq!((listed.as_array().unwrap().len(), &listed[0]["key"]), (1, &json!("api:user:ann")), "{listed}");
    while gateway.admin("tree").await.to_string().contains("websocket:room") {
        // The one that told its status leaves memory again.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    let (status, reply) = post(&gateway, "m2", "/name x").await;
    assert_eq!((status, reply["turn_id"].is_string()), (202, true), "{reply}");
    gateway.delivered().await;
    assert_eq!(receiver.texts()["7"], ["This session is called x."]);
    assert!(model.requests().is_empty(), "{:?}", model.requests());
    // What was sent just before it was said.
    socket.say("other", "hello", "o1").await;
    socket.say("other", "/history", "o2").await;
    for id in ["o1", "o2"] {
        let accepted = socket.until("accepted").await;
        assert!(accepted["message_id"] == id && accepted["turn_id"].is_string(), "{accepted}");
    }
    socket.until("turn_end").await;
    socket.until("turn_end").await;

    assert_eq!(chat(&gateway, "hello").await, "echo:hello");
    assert_eq!(chat(&gateway, "/history").await, "user: hello\nassistant: echo:hello");
    assert_eq!(chat(&gateway, "more").await, "echo:more");
    assert_eq!(shown(&model), ["hello", "echo:hello", "more"]);
    gateway.terminate().await;
    let lines = place.transcript("api.user.ann");
    let said = said(&lines);
    assert_eq!(said.len(), 8, "commands and what they answer are kept: {said:?}");
    assert_eq!(lines.iter().filter(|line| line["message"]["command"] == true).count(), 4);
}

#[test]
fn at_rest_a_question_about_what_was_said_makes_no_session() {
    let place = Place::new(json!({}));
    for command in ["/history", "/tree", "/usage", "/context", "/status", "/help"] {
        let out = place.run(&["agent", "-m", command]);
        assert!(out.status.success() && !out.stdout.is_empty(), "{command}: {out:?}");
    }
    let files = std::fs::read_dir(place.path().join("workspace/sessions")).into_iter().flatten().flatten();
    let files: Vec<_> = files.map(|file| file.path()).filter(|path| path.extension().is_some()).collect();
    assert!(files.iter().all(|path| path.extension() != Some("jsonl".as_ref())), "{files:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_conversation_waits_for_its_turn() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("room", "first [[delay=300]]", "m1").await;
    socket.until("accepted").await;
    socket.say("room", "/new", "m2").await;
    socket.say("room", "fresh", "m3").await;
    for _ in 0..3 {
        socket.until("turn_end").await;
    }
    assert_eq!(shown(&model), ["fresh"]);
    gateway.terminate().await;
    let lines = place.transcript("websocket.room");
    let kinds: Vec<&str> = lines.iter().map(|line| line["type"].as_str().unwrap()).collect();
    assert_eq!(kinds, ["message", "message", "reset", "message", "message", "message", "message"]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_that_was_killed_is_followed_once() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    model.config(|config| config.delay = Duration::from_secs(3600));
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    for id in 0..10 {
        socket.say("room", "/name A name", &format!("n{id}")).await;
    }
    socket.say("room", "/new go on", "last").await;
    for _ in 0..11 {
        socket.until("accepted").await;
    }
    gateway.kill_nine();
    model.config(|config| config.delay = Duration::ZERO);
    let gateway = place.start().await;
    gateway.settle().await;
    gateway.terminate().await;
    let lines = place.transcript("websocket.room");
    let count = |of: &dyn Fn(&Value) -> bool| lines.iter().filter(|line| of(line)).count();
    assert_eq!(count(&|line| line["message"]["command"] == true), 20, "each command, each answer");
    assert_eq!(count(&|line| line["type"] == "reset"), 1);
    let said = said(&lines);
    assert_eq!(
        said[20..],
        [("user".to_owned(), "go on".to_owned()), ("assistant".to_owned(), "echo:go on".to_owned())]
    );
}
