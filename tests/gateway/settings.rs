//! What people set for their session: its model, and how hard it thinks.

use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, Place};

fn presets() -> Value {
    json!({"modelPresets": {
        "fast": {"model": "small", "maxTokens": 100, "temperature": 0.5, "reasoningEffort": "low"},
        "farAway": {"model": "gpt-5", "provider": "openai"},
    }})
}

async fn told(gateway: &Gateway, user: &str, text: &str) -> String {
    let body = json!({"user": user, "messages": [{"role": "user", "content": text}]});
    let (status, body) = gateway.chat(body, None).await;
    assert_eq!(status, 200, "{body}");
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// What `/model` says of those.
const PRESETS: &str =
    "Presets: default, fast. Of another provider than the configured one, so not here: far_away (openai).";

/// Model, bound and level of thinking of the request for a message.
async fn asked(gateway: &Gateway, model: &Model, user: &str) -> (String, u64, Value) {
    told(gateway, user, "hello").await;
    let request = model.requests().pop().unwrap();
    let bound = request.get("max_tokens").or_else(|| request.get("max_completion_tokens"));
    let bound = bound.and_then(Value::as_u64).unwrap();
    (request["model"].as_str().unwrap().to_owned(), bound, request["reasoning_effort"].clone())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_session_keeps_the_model_and_the_thinking_that_it_was_set_to() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), presets());
    let gateway = place.start().await;
    assert_eq!(told(&gateway, "ann", "/model").await, format!("Model: scripted. {PRESETS}"));
    assert_eq!(told(&gateway, "ann", "/think").await, "Thinking: as the provider chooses.");
    assert_eq!(asked(&gateway, &model, "ann").await, ("scripted".into(), 8192, Value::Null));
    assert_eq!(told(&gateway, "ann", "/model FAST").await, "From now on, small (preset fast) answers here.");
    assert_eq!(asked(&gateway, &model, "ann").await, ("small".into(), 100, json!("low")));
    assert_eq!(told(&gateway, "ann", "/think HIGH").await, "From now on, the model is asked for high thinking.");
    for refused in ["/model slow", "/model farAway", "/think more"] {
        let why = told(&gateway, "ann", refused).await;
        let reasons = ["There is no preset slow.", "needs provider openai", "Please write it so: /think ["];
        assert!(reasons.iter().any(|reason| why.contains(reason)), "{why}");
    }
    assert_eq!(asked(&gateway, &model, "ann").await, ("small".into(), 100, json!("high")));
    // Another session is another matter.
    assert_eq!(asked(&gateway, &model, "bob").await, ("scripted".into(), 8192, Value::Null));
    told(&gateway, "ann", "/new").await;
    assert_eq!(asked(&gateway, &model, "ann").await, ("small".into(), 100, json!("high")));
    gateway.kill_nine();
    let gateway = place.start().await;
    let status = told(&gateway, "ann", "/status").await;
    let lines: Vec<&str> = status.lines().collect();
    assert_eq!(&lines[..2], ["Idle.", "Model: small (preset fast), thinking: high."]);
    assert!(lines[2].starts_with("Conversation: 2 messages, "), "{status}");
    assert!(lines[2].contains(" of 200000 tokens ("), "{status}");
    assert!(lines[3].starts_with("Last model call: ") && lines[4].starts_with("Greenroom 0."), "{status}");
    assert!(status.ends_with(", 0 turns running."), "{status}");
    let (fill, context) =
        (lines[2].trim_start_matches("Conversation: 2 messages, "), told(&gateway, "ann", "/context").await);
    assert!(context.starts_with(&format!("The conversation has {fill}")), "the same measure: {context} {status}");
    assert_eq!(asked(&gateway, &model, "ann").await, ("small".into(), 100, json!("high")));
    told(&gateway, "ann", "/think off").await;
    assert_eq!(asked(&gateway, &model, "ann").await, ("small".into(), 100, Value::Null));
    told(&gateway, "ann", "/think default").await;
    assert_eq!(asked(&gateway, &model, "ann").await, ("small".into(), 100, json!("low")));
    gateway.terminate().await;

    // The preset is gone, and the model answers all the same.
    let written = std::fs::read_to_string(place.path().join("config.json")).unwrap();
    place.write_config(&written.replace("\"modelPresets\"", "\"transcription\""));
    let gateway = place.start().await;
    assert_eq!(asked(&gateway, &model, "ann").await, ("scripted".into(), 8192, Value::Null));
    assert_eq!(
        told(&gateway, "ann", "/model").await,
        "Model: scripted. Preset fast is not available any more. No presets are configured."
    );
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_preset_answers_where_no_other_was_chosen() {
    let model = Model::start_on_thread();
    let mut config = presets();
    config["agents"]["defaults"]["modelPreset"] = json!("fast");
    let place = Place::with_model(&model.url(), config);
    let gateway = place.start().await;
    assert_eq!(asked(&gateway, &model, "ann").await, ("small".into(), 100, json!("low")));
    assert_eq!(told(&gateway, "ann", "/model").await, format!("Model: small. {PRESETS}"));
    told(&gateway, "ann", "/think high").await;
    assert_eq!(asked(&gateway, &model, "ann").await, ("small".into(), 100, json!("high")));
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_model_names_a_conversation_that_nobody_has_named() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"session": {"titles": true}}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("b", "/name Mine", "m1").await;
    socket.until("turn_end").await;
    for (chat, text) in [("a", "plan it [[say=Trip to Rome]]"), ("b", "plan it [[say=Other]]")] {
        socket.say(chat, text, "m2").await;
        socket.until("turn_end").await;
    }
    let name = async |chat: &str| {
        let sessions = gateway.admin("sessions").await;
        let mut items = sessions["items"].as_array().unwrap().clone();
        items.retain(|item| item["key"] == format!("websocket:{chat}"));
        items[0]["name"].clone()
    };
    let named = async {
        while name("a").await.is_null() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(crate::support::PATIENCE, named).await.expect("it is named");
    assert_eq!((name("a").await, name("b").await), (json!("Trip to Rome"), json!("Mine")));
    let asked = model.requests().len();
    assert_eq!(asked, 3, "two answers, and one name");
    // Once is enough, and what a person says counts.
    for text in ["more [[say=Again]]", "/name Ours"] {
        socket.say("a", text, text.split(' ').next().unwrap()).await;
        socket.until("turn_end").await;
    }
    assert_eq!((name("a").await, model.requests().len()), (json!("Ours"), asked + 1));
    gateway.terminate().await;
}
