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
    let turn = socket.until("accepted").await["turn_id"].clone();
    let told = socket.until("message").await;
    assert_eq!((&told["turn_id"], &told["text"]), (&turn, &json!("Nothing has been said here yet.")));
    assert_eq!(socket.until("turn_end").await["turn_id"], turn);
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
    assert_eq!((status, reply["turn_id"].is_string()), (202, true), "{reply}");
    gateway.delivered().await;
    assert_eq!(receiver.texts()["7"], ["Nothing has been said here yet."]);
    let out = place.run(&["agent", "-m", "/tree"]);
    assert_eq!(String::from_utf8_lossy(&out.stdout).trim(), "Nothing has been said here yet.");
    assert!(model.requests().is_empty(), "{:?}", model.requests());

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
