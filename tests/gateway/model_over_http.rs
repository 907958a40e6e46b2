//! Load with a scripted model over HTTP: every message once, order kept, sessions in parallel.

use std::collections::BTreeMap;

use domain::history::spoken;
use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, Place, said};

const CLIENTS: usize = 200;
const MESSAGES: usize = 20;
const AT_ONCE: usize = 5;

/// One client: its messages five at a time in one chat; counts the answers by message.
async fn client(gateway: &Gateway, number: usize) {
    let chat = format!("chat-{number}");
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    let mut turns = BTreeMap::new();
    let mut ended = Vec::new();
    let mut sent = 0;
    while ended.len() < MESSAGES {
        while sent < MESSAGES && sent - ended.len() < AT_ONCE {
            socket.say(&chat, &format!("m{sent} [[seq={chat}:{sent}]]"), &format!("{chat}-m{sent}")).await;
            sent += 1;
        }
        let event = socket.next().await.expect("the connection stays open");
        match event["event"].as_str().unwrap() {
            "accepted" => {
                let number: usize = event["message_id"].as_str().unwrap().rsplit('m').next().unwrap().parse().unwrap();
                turns.insert(event["turn_id"].as_str().unwrap().to_owned(), number);
            }
            "turn_end" => ended.push(event["turn_id"].as_str().unwrap().to_owned()),
            "error" => panic!("{event}"),
            _ => {}
        }
    }
    let order: Vec<usize> = ended.iter().map(|turn| turns[turn]).collect();
    assert_eq!(order, (0..MESSAGES).collect::<Vec<_>>(), "{chat}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn two_hundred_clients_get_each_answer_once_and_in_order() {
    let model = Model::start_on_thread();
    model.config(|config| config.delay = std::time::Duration::from_millis(5));
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    futures::future::join_all((0..CLIENTS).map(|number| client(&gateway, number))).await;
    let stats = model.stats();
    assert_eq!(stats.seq_out_of_order, 0, "the model saw turns of one session out of order");
    assert_eq!(stats.seq_overlap, 0, "the model saw two turns of one session at once");
    assert!(stats.max_concurrent > 1, "sessions did not run in parallel");
    assert_eq!(gateway.terminate().await, Some(0));
    for number in 0..CLIENTS {
        let lines = place.transcript(&format!("websocket.chat-{number}"));
        let users = said(&lines).iter().filter(|(role, _)| role == "user").count();
        let answers = said(&lines).iter().filter(|(role, _)| role == "assistant").count();
        assert_eq!((users, answers), (MESSAGES, MESSAGES));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_is_down_is_reported_in_the_chat_and_the_next_message_works() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "please [[error=401]]", "m1").await;
    let notice = socket.until("message").await;
    let told = "custom does not accept the configured key. Check providers.custom.apiKey in the configuration. (custom answered 401";
    assert!(notice["text"].as_str().unwrap().starts_with(told), "{notice}");
    socket.until("turn_end").await;
    socket.say("a", "again", "m2").await;
    socket.until("accepted").await;
    socket.until("turn_end").await;
    assert_eq!(gateway.terminate().await, Some(0));
    let lines = place.transcript("websocket.a");
    let texts = said(&lines);
    assert_eq!(texts.len(), 4, "{texts:?}");
    assert!(texts[3].1.contains("again"), "{texts:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stream_that_breaks_before_its_first_word_is_asked_again_and_never_stored_as_an_answer() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let (status, body) = gateway
        .chat(json!({"user": "a", "messages": [{"role": "user", "content": "x [[error=500;times=1]]"}]}), None)
        .await;
    assert_eq!(status, 200, "{body}");
    assert!(body["choices"][0]["message"]["content"].as_str().unwrap().starts_with("echo:x"), "{body}");
    let (status, body) =
        gateway.chat(json!({"user": "a", "messages": [{"role": "user", "content": "y [[truncate]]"}]}), None).await;
    assert_ne!(status, 200, "a truncated stream passed as an answer: {body}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_the_model_cut_at_its_limit_says_so_also_after_a_restart() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let body = |text: &str| json!({"user": "a", "messages": [{"role": "user", "content": text}]});
    for (text, key, reason) in [("long [[finish=length]]", "k1", "length"), ("short", "k2", "stop")] {
        let (_, answer) = gateway.chat(body(text), Some(key)).await;
        assert_eq!(answer["choices"][0]["finish_reason"], reason, "{answer}");
    }
    assert_eq!(gateway.terminate().await, Some(0));
    let gateway = place.start().await;
    for (text, key, reason) in [("long [[finish=length]]", "k1", "length"), ("short", "k2", "stop")] {
        let (_, answer) = gateway.chat(body(text), Some(key)).await;
        assert_eq!(answer["choices"][0]["finish_reason"], reason, "{answer}");
    }
    assert_eq!(gateway.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_that_was_cut_goes_on_as_the_same_message() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "[[say=part ]][[finish=length;times=2]]", "m1").await;
    let mut shown = String::new();
    let mut merges = Vec::new();
    loop {
        let event = socket.next().await.expect("the connection stays open");
        match event["event"].as_str().unwrap() {
            "delta" => shown.push_str(event["text"].as_str().unwrap()),
            "stream_end" => merges.push(event["merge_next"] == true),
            "message" => panic!("it was streamed: {event}"),
            "turn_end" => break,
            _ => {}
        }
    }
    assert_eq!((shown.as_str(), merges), ("part part part ", vec![true, true, false]));
    socket.say("a", "next", "m2").await;
    socket.until("turn_end").await;
    let request = model.requests().pop().unwrap();
    assert_eq!(request["messages"][2]["content"], "part part part ");
    assert_eq!(request["messages"].as_array().unwrap().len(), 4, "{request}");
    assert_eq!(gateway.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_without_a_word_is_asked_again_then_for_words_and_then_excused() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let body = |text: &str| json!({"user": "a", "messages": [{"role": "user", "content": text}]});
    let (_, answer) = gateway.chat(body("hello [[empty]]"), None).await;
    assert_eq!(answer["choices"][0]["message"]["content"], domain::prompt::EMPTY_ANSWER);
    let asked = model.requests();
    let choices: Vec<&Value> = asked.iter().map(|request| &request["tool_choice"]).collect();
    assert_eq!(choices, [&Value::Null, &Value::Null, &json!("none")]);
    let last = |request: &Value| request["messages"].as_array().unwrap().last().unwrap()["content"].clone();
    let told: Vec<String> = asked.iter().map(|request| spoken(last(request).as_str().unwrap())).collect();
    let in_words = format!("hello [[empty]]\n\n{}", domain::prompt::Nudge::Words.text());
    assert_eq!(told, ["hello [[empty]]", "hello [[empty]]", &in_words]);
    // What was asked in between is no part of the conversation.
    gateway.chat(body("again"), None).await;
    let next = model.requests().pop().unwrap();
    assert_eq!(next["messages"].as_array().unwrap().len(), 4, "{next}");
    assert_eq!(gateway.terminate().await, Some(0));
    assert_eq!(said(&place.transcript("api.user.a")).len(), 4);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_model_that_repeats_itself_is_told_so_and_has_to_answer() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let gateway = place.start().await;
    let body = |text: &str| json!({"user": "a", "messages": [{"role": "user", "content": text}]});
    let results = |request: &Value| {
        let messages = request["messages"].as_array().unwrap().iter();
        let results = messages.filter(|message| message["role"] == "tool");
        results.map(|message| message["content"].as_str().unwrap().to_owned()).collect::<Vec<_>>()
    };
    let (_, answer) = gateway.chat(body(r#"[[tool=list_dir {"path":"."}]][[rounds=9]]"#), None).await;
    assert!(answer["choices"][0]["message"]["content"].as_str().unwrap().ends_with("results=6"), "{answer}");
    let asked = model.requests();
    assert_eq!((asked.len(), &asked[6]["tool_choice"]), (7, &json!("none")));
    let told: Vec<bool> = results(&asked[6]).iter().map(|text| text.contains("made 3 times")).collect();
    assert_eq!(told, [false, false, false, true, true, true]);
    gateway.chat(body(r#"[[tool=read_file {"path":"/etc/hostname"}]][[rounds=3]]"#), None).await;
    let refused = results(&model.requests().pop().unwrap()).split_off(6);
    let told: Vec<bool> = refused.iter().map(|text| text.contains("asking again will not change that")).collect();
    assert_eq!(told, [false, false, true], "{refused:?}");
    assert_eq!(gateway.terminate().await, Some(0));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_long_tool_result_reaches_the_model_as_a_file_that_it_can_read() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"agents": {"defaults": {"maxToolResultChars": 1000}}}));
    let workspace = place.path().join("workspace");
    std::fs::create_dir_all(workspace.join("many")).unwrap();
    for number in 100..200 {
        std::fs::write(workspace.join(format!("many/{number}-{}", "x".repeat(40))), "").unwrap();
    }
    let gateway = place.start().await;
    let ask = async |text: &str| {
        let body = json!({"user": "ann", "messages": [{"role": "user", "content": text}]});
        assert_eq!(gateway.chat(body, None).await.0, 200);
        let asked: Value = model.requests().pop().unwrap();
        let result = asked["messages"].as_array().unwrap().iter().rfind(|message| message["role"] == "tool");
        result.unwrap()["content"].as_str().unwrap().to_owned()
    };
    let shown = ask(r#"[[tool=list_dir {"path":"many"}]]"#).await;
    let mut lines = shown.lines();
    assert_eq!(lines.next(), Some("[tool output persisted]"));
    let path = lines.next().unwrap().strip_prefix("path: .greenroom/tool-results/api.user.ann/").unwrap();
    assert!(shown.chars().count() == 1000 && shown.contains("\npreview:\n100-xxx"), "{shown}");
    let whole = std::fs::read_to_string(workspace.join(".greenroom/tool-results/api.user.ann").join(path)).unwrap();
    assert!(whole.starts_with("100-xxx") && whole.contains("\n199-xxx"), "{whole}");
    let call = json!({"path": format!(".greenroom/tool-results/api.user.ann/{path}"), "offset": 100});
    let read = ask(&format!("[[tool=read_file {call}]]")).await;
    assert!(read.starts_with("100| 199-xxx"), "{read}");
    assert_eq!(gateway.terminate().await, Some(0));
}
