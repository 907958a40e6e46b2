//! Replies that are pushed: through crashes of the gateway and whims of the receiver.

use std::collections::BTreeMap;
use std::time::Duration;

use channel::webhook::SigningSecret;
use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::{Answer, Receiver, Request};

use crate::support::{Gateway, PATIENCE, Place, merge, said, with_model};

const SECRET: &str = "whsec_c2hhcmVkIGJ5IGJvdGg=";

/// A place whose replies go to `url`.
fn place(model: &Model, url: &str, extra: Value) -> Place {
    let mut webhook =
        json!({"enabled": true, "port": 0, "url": url, "secret": SECRET, "timeout": 30, "allowFrom": "*"});
    merge(&mut webhook, extra);
    Place::new(with_model(&model.url(), json!({"channels": {"webhook": webhook}})))
}

async fn post(gateway: &Gateway, body: Value) -> (u16, Value) {
    let url = gateway.beacon().webhook_url.unwrap();
    let reply = provider::http_client().unwrap().post(url).json(&body).send().await.unwrap();
    (reply.status().as_u16(), reply.json().await.unwrap())
}

/// Says something in a chat; returns the turn.
async fn say(gateway: &Gateway, chat: &str, id: &str, text: &str) -> String {
    let (status, reply) = post(gateway, json!({"chat_id": chat, "message_id": id, "text": text})).await;
    assert_eq!(status, 202, "{reply}");
    reply["turn_id"].as_str().unwrap().to_owned()
}

/// What waits for the webhook.
async fn waiting(gateway: &Gateway) -> Value {
    let outbox = gateway.admin("status").await["outbox"].clone();
    let mut channels = outbox.as_array().unwrap().iter();
    channels.find(|channel| channel["channel"] == "webhook").cloned().unwrap_or_default()
}

fn in_chat<'a>(requests: &'a [Request], chat: &str) -> Vec<&'a Request> {
    requests.iter().filter(|request| request.body["chat_id"] == chat).collect()
}

fn echoes(texts: &[(&str, &[&str])]) -> BTreeMap<String, Vec<String>> {
    let echo = |text: &&str| format!("echo:{text}");
    texts.iter().map(|(chat, texts)| ((*chat).to_owned(), texts.iter().map(echo).collect())).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_is_pushed_signed_and_once() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver.url(), json!({}));
    let gateway = place.start().await;
    let turn = say(&gateway, "7", "m1", "hello").await;
    let (status, again) = post(&gateway, json!({"chat_id": "7", "message_id": "m1", "text": "hello"})).await;
    assert_eq!((status, &again["turn_id"], &again["state"]), (202, &json!(turn), &json!("duplicate")));
    gateway.delivered().await;
    let requests = receiver.requests();
    let [request] = requests.as_slice() else { panic!("{requests:?}") };
    let id = format!("{turn}:1");
    let expected = json!({
        "id": id, "chat_id": "7", "text": "echo:hello", "turn_id": turn, "part": 1, "parts": 1, "repeat": false,
    });
    assert_eq!(request.body, expected);
    assert_eq!((request.header("idempotency-key"), request.header("webhook-id")), (id.as_str(), id.as_str()));
    let timestamp_s = request.header("webhook-timestamp").parse().unwrap();
    let signature = SigningSecret::new(SECRET).unwrap().sign(&id, timestamp_s, &request.raw);
    assert_eq!(request.header("webhook-signature"), signature);
    let said = said(&place.transcript("webhook.7"));
    assert_eq!(said, [("user".into(), "hello".into()), ("assistant".into(), "echo:hello".into())]);
    assert_eq!(waiting(&gateway).await, json!({"channel": "webhook", "messages": 0, "oldest_ms": null}));
    let (_, metrics) = gateway.get("/metrics").await;
    for line in [
        r#"greenroom_delivery_attempts_total{channel="webhook",result="delivered"} 1"#,
        r#"greenroom_outbox_messages{channel="webhook"} 0"#,
        r#"greenroom_accepted_total{door="webhook"} 1"#,
    ] {
        assert!(metrics.contains(line), "{line} is missing in {metrics}");
    }
    let tree = gateway.admin("tree").await;
    let paths: Vec<&str> =
        tree["children"].as_array().unwrap().iter().map(|node| node["path"].as_str().unwrap()).collect();
    assert!(paths.contains(&"/outbox") && paths.contains(&"/memory"), "{paths:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_whose_gateway_is_killed_before_the_receiver_is_there_is_delivered() {
    let model = Model::start_on_thread();
    // A port that was free a moment ago: nobody listens.
    let port = Receiver::start().port();
    let place = place(&model, &format!("http://127.0.0.1:{port}/hook"), json!({}));
    let gateway = place.start().await;
    say(&gateway, "7", "m1", "one").await;
    say(&gateway, "7", "m2", "two").await;
    gateway.settle().await;
    assert_eq!(gateway.admin("status").await["journal"]["outbox"], 2);
    gateway.kill_nine();
    let receiver = Receiver::start_at(port);
    let gateway = place.start().await;
    gateway.delivered().await;
    assert_eq!(receiver.texts(), echoes(&[("7", &["one", "two"])]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_that_wait_outlive_a_compaction_and_a_kill() {
    let model = Model::start_on_thread();
    let port = Receiver::start().port();
    let place = place(&model, &format!("http://127.0.0.1:{port}/hook"), json!({}));
    let gateway = place.start().await;
    say(&gateway, "7", "m1", &format!("{} [[say=one]]", "a long story ".repeat(200))).await;
    say(&gateway, "7", "m2", "two").await;
    gateway.settle().await;
    let out = place.run(&["sessions", "compact", "webhook:7", "--keep-last", "2"]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
    assert_eq!(gateway.admin("status").await["journal"]["outbox"], 2);
    gateway.kill_nine();
    let receiver = Receiver::start_at(port);
    let gateway = place.start().await;
    gateway.delivered().await;
    assert_eq!(receiver.texts()["7"], ["one", "echo:two"]);
    assert_eq!(gateway.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_of_a_channel_that_is_switched_off_wait_and_go_on_when_it_is_on_again() {
    let model = Model::start_on_thread();
    let port = Receiver::start().port();
    let place = place(&model, &format!("http://127.0.0.1:{port}/hook"), json!({}));
    let on = std::fs::read_to_string(place.path().join("config.json")).unwrap();
    let mut off: Value = serde_json::from_str(&on).unwrap();
    off["channels"]["webhook"]["enabled"] = json!(false);
    let gateway = place.start().await;
    say(&gateway, "7", "m1", "one").await;
    // Its answer comes in a life of the gateway that has no such channel.
    say(&gateway, "7", "m2", "two [[delay=2000]]").await;
    gateway.kill_nine();
    place.write_config(&off.to_string());
    let gateway = place.start().await;
    gateway.settle().await;
    let both = tokio::time::timeout(PATIENCE, async {
        while waiting(&gateway).await["messages"] != 2 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    both.await.unwrap();
    assert!(gateway.beacon().webhook_url.is_none());
    gateway.kill_nine();
    place.write_config(&on);
    let receiver = Receiver::start_at(port);
    let gateway = place.start().await;
    gateway.delivered().await;
    assert_eq!(receiver.texts().values().next().unwrap().len(), 2, "{:?}", receiver.texts());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reply_that_was_being_sent_at_a_kill_is_sent_again_and_says_so() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver.url(), json!({}));
    let gateway = place.start().await;
    receiver.plan([Answer::Held]);
    say(&gateway, "7", "m1", "one").await;
    receiver.wait_for("the first attempt", |requests| requests.len() == 1).await;
    gateway.kill_nine();
    let gateway = place.start().await;
    gateway.delivered().await;
    let requests = receiver.requests();
    let [first, second] = requests.as_slice() else { panic!("{requests:?}") };
    assert_eq!((first.body["repeat"].as_bool(), second.body["repeat"].as_bool()), (Some(false), Some(true)));
    assert_eq!(first.id(), second.id());
    assert_eq!(receiver.texts(), echoes(&[("7", &["one"])]));
    gateway.terminate().await;
    let events = place.events();
    let repeats: Vec<&Value> = events.iter().filter(|event| event["event"] == "delivery_repeated").collect();
    let [repeat] = repeats.as_slice() else { panic!("{repeats:?}") };
    assert_eq!((&repeat["delivery"], &repeat["session"]), (&json!(first.id()), &json!("webhook:7")));
}

/// The story of a reply that its receiver does not take.
async fn tells_what_waits(place: &Place, gateway: &Gateway, turn: &str) {
    gateway.settle().await;
    let why = |subject: &str| {
        let out = place.run(&["logs", "--why", subject]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        String::from_utf8(out.stdout).unwrap()
    };
    let story = why(turn);
    for part in [
        "The reply of the turn could not be delivered (attempt 1): the receiver answered 503; it is tried again after ",
        &format!("; 1 reply is not delivered yet: that of turn {turn} to webhook, tried "),
        " times, the last time: the receiver answered 503, next at 20",
        "runs again: nothing: the turn has ended; replies that are not delivered yet are tried again by themselves",
    ] {
        assert!(story.contains(part), "{part} in\n{story}");
    }
    let story = why("webhook:a");
    assert!(story.contains("; 4 replies are not delivered yet: that of turn "), "{story}");
    assert!(story.contains(", not tried yet"), "{story}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn replies_keep_their_order_over_a_pause_of_the_receiver() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver.url(), json!({}));
    let gateway = place.start().await;
    receiver.always(Some(Answer::Status(503)));
    let mut first = String::new();
    for number in 1..=4 {
        for chat in ["b", "a"] {
            let turn = say(&gateway, chat, &format!("m{number}"), &number.to_string()).await;
            first = if number == 1 { turn } else { first };
        }
    }
    let both_twice = |requests: &[Request]| ["a", "b"].iter().all(|chat| in_chat(requests, chat).len() >= 2);
    let refused = receiver.wait_for("two attempts in each chat", both_twice).await;
    assert!(refused.iter().all(|request| request.body["text"] == "echo:1"), "{refused:?}");
    tells_what_waits(&place, &gateway, &first).await;
    receiver.always(None);
    gateway.delivered().await;
    let order: &[&str] = &["1", "2", "3", "4"];
    assert_eq!(receiver.texts(), echoes(&[("a", order), ("b", order)]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_reply_is_a_dead_letter_and_the_next_one_goes_on() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver.url(), json!({}));
    let gateway = place.start().await;
    receiver.plan([Answer::Status(410)]);
    let turn = say(&gateway, "7", "m1", "one").await;
    say(&gateway, "7", "m2", "two").await;
    gateway.delivered().await;
    assert_eq!(receiver.texts(), echoes(&[("7", &["two"])]));
    let letters = gateway.admin("deadletters").await;
    let [letter] = letters["items"].as_array().unwrap().as_slice() else { panic!("{letters}") };
    assert_eq!((&letter["id"], &letter["kind"]), (&json!(format!("{turn}:1")), &json!("delivery")));
    assert_eq!(letter["reason"], "the receiver answered 410");
    let (_, metrics) = gateway.get("/metrics").await;
    assert!(metrics.contains(r#"greenroom_dead_letters_total{kind="delivery"} 1"#), "{metrics}");
    gateway.terminate().await;
    let events = place.events();
    let given_up = events.iter().find(|event| event["event"] == "undeliverable").unwrap();
    assert_eq!(given_up["delivery"], json!(format!("{turn}:1")));
    // Where no rotation takes it.
    let kept = std::fs::read_to_string(place.path().join(format!("logs/letters/{turn}.jsonl"))).unwrap();
    let kept: Vec<Value> = kept.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(kept.contains(given_up), "{kept:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_reply_comes_in_parts_of_the_configured_length() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver.url(), json!({"maxMessageChars": 100}));
    let gateway = place.start().await;
    let long: String = (0..60).map(|number| format!("wörd{number} ")).collect();
    let turn = say(&gateway, "7", "m1", long.trim()).await;
    gateway.delivered().await;
    let requests = receiver.requests();
    assert!(requests.len() > 4, "{requests:?}");
    let mut whole = String::new();
    for (number, request) in (1..).zip(&requests) {
        let text = request.body["text"].as_str().unwrap();
        assert!(text.chars().count() <= 100, "{text:?}");
        assert_eq!(request.body["part"], number);
        assert_eq!(request.body["parts"], requests.len());
        assert_eq!(request.id(), format!("{turn}:{number}"));
        whole.push_str(text);
    }
    assert_eq!(said(&place.transcript("webhook.7"))[1].1, whole);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_answer_of_a_receiver_has_its_consequence() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver.url(), json!({"timeout": 0.5}));
    let gateway = place.start().await;
    // The answer to the first attempt, and what is seen of the second: nothing, or whether it is marked.
    let table = [
        (Answer::Status(204), None),
        (Answer::Status(400), None),
        (Answer::Status(410), None),
        (Answer::RetryAfter(429, 1), Some(false)),
        (Answer::Status(425), Some(false)),
        (Answer::Status(409), Some(true)),
        (Answer::Status(500), Some(true)),
        (Answer::Silence, Some(true)),
    ];
    for (number, (answer, second)) in table.into_iter().enumerate() {
        let chat = format!("c{number}");
        receiver.plan([answer.clone()]);
        say(&gateway, &chat, "m1", "hi").await;
        gateway.delivered().await;
        let requests = receiver.requests();
        let repeats: Vec<Option<bool>> =
            in_chat(&requests, &chat).iter().map(|request| request.body["repeat"].as_bool()).collect();
        let expected: Vec<Option<bool>> = std::iter::once(Some(false)).chain(second.map(Some)).collect();
        assert_eq!(repeats, expected, "{answer:?}");
    }
    assert_eq!(gateway.admin("deadletters").await["items"].as_array().unwrap().len(), 2);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_command_is_answered_at_once_and_a_stopped_turn_says_so_in_its_chat() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver.url(), json!({}));
    let gateway = place.start().await;
    say(&gateway, "7", "m1", "[[hang]]").await;
    let command = |text: &str| json!({"chat_id": "7", "message_id": "c", "text": text});
    let stopped = tokio::time::timeout(PATIENCE, async {
        loop {
            let (status, reply) = post(&gateway, command("/stop")).await;
            assert_eq!((status, &reply["control"], &reply["turn_id"]), (200, &json!(true), &Value::Null));
            if reply["text"] == "Stopped the running turn." {
                return;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    stopped.await.unwrap();
    gateway.delivered().await;
    let told = receiver.texts();
    assert_eq!(told["7"], [domain::prompt::CANCELLED_NOTICE]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_door_that_names_no_senders_takes_nothing_and_says_which_key_to_set() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = place(&model, &receiver.url(), json!({"allowFrom": null}));
    let gateway = place.start().await;
    let (status, reply) = post(&gateway, json!({"chat_id": "7", "message_id": "m1", "text": "hi"})).await;
    assert_eq!((status, &reply["error"]["code"]), (403, &json!("forbidden")), "{reply}");
    assert!(reply["error"]["message"].as_str().unwrap().contains("channels.webhook.allowFrom"), "{reply}");
    assert_eq!(gateway.admin("status").await["journal"]["accepted"], 0);
    let check = place.run(&["config", "check"]);
    assert!(check.status.success());
    let check = String::from_utf8_lossy(&check.stdout).into_owned();
    assert!(check.contains("channels.webhook.allowFrom names nobody"), "{check}");
}
