//! `agents.defaults.unifiedSession`: one conversation through all of the owner's doors.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::Receiver;

use crate::support::{Gateway, Place, Socket, said};

/// A gateway whose owner has one session, and whose channel's direct messages share the main session.
fn place(model: &Model, receiver: &Receiver) -> Place {
    let webhook = json!({"enabled": true, "port": 0, "url": receiver.url(), "allowFrom": "*"});
    let extra = json!({
        "agents": {"defaults": {"unifiedSession": true}}, "channels": {"webhook": webhook},
        "session": {"dmScope": "main"},
    });
    Place::with_model(&model.url(), extra)
}

async fn ask(gateway: &Gateway, body: Value) -> String {
    let (status, body) = gateway.chat(body, None).await;
    assert_eq!(status, 200, "{body}");
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// Everything that is said in the chat, up to the end of its turn.
async fn answer(socket: &mut Socket, chat: &str) -> String {
    let mut text = String::new();
    loop {
        let event = socket.next().await.unwrap();
        assert_eq!(event["chat_id"], chat, "another chat's event: {event}");
        if event["event"] == "delta" || event["event"] == "message" {
            text += event["text"].as_str().unwrap();
        }
        if event["event"] == "turn_end" {
            // `goal_status` is the last.
            socket.until("goal_status").await;
            return text;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_comes_through_the_owners_doors_is_one_transcript_and_each_reply_goes_to_its_own() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver);
    let gateway = place.start().await;
    let (mut desk, mut phone) = (gateway.client().await, gateway.client().await);
    desk.send(json!({"type": "attach", "chat_id": "desk"})).await;
    desk.until("attached").await;
    phone.say("phone", "one", "m1").await;
    assert_eq!(answer(&mut phone, "phone").await, "echo:one");
    // Message ids are the chat's own. Nothing of the other chat was shown here.
    desk.say("desk", "two", "m1").await;
    assert_eq!(answer(&mut desk, "desk").await, "echo:two");
    let user = |text: &str| json!([{"role": "user", "content": text}]);
    assert_eq!(ask(&gateway, json!({"messages": user("three")})).await, "echo:three");
    let webhook = gateway.beacon().webhook_url.unwrap();
    for body in [
        json!({"chat_id": "7", "message_id": "m1", "text": "four"}),
        json!({"chat_id": "g", "message_id": "m1", "text": "aside", "sender": "bob"}),
    ] {
        let reply = provider::http_client().unwrap().post(&webhook).json(&body).send().await.unwrap();
        assert_eq!(reply.status().as_u16(), 202);
        gateway.delivered().await;
    }
    let pushed = receiver.requests().into_iter().map(|request| {
        (request.body["chat_id"].as_str().unwrap().to_owned(), request.body["text"].as_str().unwrap().to_owned())
    });
    assert_eq!(
        pushed.collect::<Vec<_>>(),
        [("7", "echo:four"), ("g", "echo:aside")].map(|(chat, text)| (chat.into(), text.into()))
    );
    assert_eq!(ask(&gateway, json!({"user": "ann", "messages": user("for ann")})).await, "echo:for ann");
    phone.say("phone", "five", "m2").await;
    assert_eq!(answer(&mut phone, "phone").await, "echo:five");
    let asked: Value = model.requests().pop().unwrap();
    let texts = asked["messages"].as_array().unwrap().iter().filter(|message| message["role"] == "user");
    assert_eq!(
        texts.map(|m| through(m["content"].as_str().unwrap())).collect::<Vec<_>>(),
        ["one (websocket)", "two (websocket)", "three (api)", "four (webhook)", "five (websocket)"]
    );
    let out = place.run(&["agent", "-m", "six"]);
    assert!(String::from_utf8_lossy(&out.stdout).contains("echo:six"), "{out:?}");
    let out = place.run(&["agent", "-m", "apart", "-s", "cli:work"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(gateway.terminate().await, Some(0));
    let users = |stem: &str| -> Vec<String> {
        let said = said(&place.transcript(stem)).into_iter();
        said.filter(|(role, _)| role == "user").map(|(_, text)| text).collect()
    };
    assert_eq!(users("unified.default"), ["one", "two", "three", "four", "five", "six"]);
    for (stem, text) in [("api.user.ann", "for ann"), ("agent.main.webhook.group.g", "aside"), ("cli.work", "apart")] {
        assert_eq!(users(stem), [text]);
    }
    let sessions = std::fs::read_dir(place.path().join("workspace/sessions")).unwrap();
    let files = sessions.filter(|entry| entry.as_ref().unwrap().path().extension().is_some_and(|kind| kind == "jsonl"));
    assert_eq!(files.count(), 4, "nothing else was opened");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_chat_gets_its_answer_also_when_the_gateway_was_killed_meanwhile() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    model.config(|config| config.delay = Duration::from_secs(600));
    let place = place(&model, &receiver);
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("phone", "one", "m1").await;
    let first = socket.until("accepted").await;
    socket.until("goal_status").await;
    gateway.kill_nine();
    model.config(|config| config.delay = Duration::ZERO);
    let gateway = place.start().await;
    let (mut phone, mut other) = (gateway.client().await, gateway.client().await);
    phone.say("phone", "one", "m1").await;
    let again = phone.until("accepted").await;
    assert_eq!((&again["turn_id"], &again["state"]), (&first["turn_id"], &json!("duplicate")));
    assert_eq!(phone.until("turn_end").await["turn_id"], first["turn_id"]);
    // One that comes back with its place is told, too; nobody else was.
    let after = format!("{}.1.1", first["turn_id"].as_str().unwrap());
    other.send(json!({"type": "attach", "chat_id": "phone", "after": after})).await;
    assert_eq!(other.next().await.unwrap()["event"], "attached");
    let told = other.next().await.unwrap();
    assert_eq!((&told["event"], &told["text"]), (&json!("message"), &json!("echo:one")));
    assert_eq!(gateway.terminate().await, Some(0));
    assert_eq!(said(&place.transcript("unified.default")).len(), 2, "it was answered once");
}

/// What was said, and through which door, as the model is told.
fn through(content: &str) -> String {
    let door = content.split_once("\nChannel: ").and_then(|(_, rest)| rest.lines().next());
    format!("{} ({})", domain::history::spoken(content), door.unwrap_or("?"))
}
