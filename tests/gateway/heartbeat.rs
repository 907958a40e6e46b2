//! The heartbeat: looks after tasks by itself, and tells a person what the model finds worth it.

use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::Receiver;

use crate::support::{Place, with_model};

/// In the turn the tool is none that there is; asked whether to tell, the model calls it.
const TASKS: &str = "# Heartbeat\n\n## Active Tasks\n- water [[tool=evaluate_notification {\"should_notify\":true}]] \
                     [[say=they are dry]]\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_the_heartbeat_finds_is_sent_to_the_newest_chat_and_stands_in_its_session() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = Place::new(with_model(
        &model.url(),
        json!({
            "channels": {"webhook": {"enabled": true, "port": 0, "url": receiver.url(), "secret": "s", "allowFrom": "*"}},
            "gateway": {"heartbeat": {"intervalS": 1, "keepRecentMessages": 2}},
        }),
    ));
    let file = place.path().join("workspace/HEARTBEAT.md");
    let gateway = place.start().await;
    let url = gateway.beacon().webhook_url.unwrap();
    let hello = json!({"chat_id": "7", "message_id": "m1", "text": "hello"});
    let reply = provider::http_client().unwrap().post(url).json(&hello).send().await.unwrap();
    assert_eq!(reply.status().as_u16(), 202);
    gateway.delivered().await;
    std::fs::write(&file, TASKS).unwrap();
    let told = || {
        receiver
            .texts()
            .get("7")
            .map_or(0, |texts| texts.iter().filter(|text| text.starts_with("they are dry")).count())
    };
    testkit::deadline::with_deadline("the chat is told of five beats", async {
        while told() < 5 {
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    })
    .await;
    std::fs::write(&file, "# Heartbeat\n\n## Active Tasks\n").unwrap();
    gateway.delivered().await;
    let shown = model.requests();
    let beats = shown.iter().filter(|request| request.to_string().contains("This is the heartbeat"));
    let lengths: Vec<usize> = beats.map(|request| request["messages"].as_array().unwrap().len()).collect();
    assert!(lengths.iter().all(|length| *length <= 12), "what a beat is shown does not grow: {lengths:?}");
    let (_, metrics) = gateway.get("/metrics").await;
    assert!(metrics.contains(r#"greenroom_heartbeats_total{result="told"}"#), "{metrics}");
    let tree = gateway.admin("tree").await;
    assert!(tree["children"].as_array().unwrap().iter().any(|node| node["path"] == "/heartbeat"), "{tree}");
    assert_eq!(gateway.terminate().await, Some(0));
    let lines = place.transcript("webhook.7");
    let beat = |line: &&Value| line["details"]["event"]["kind"] == "heartbeat";
    let answer = |line: &&Value| line["message"]["role"] == "assistant" && line.to_string().contains("they are dry");
    let stands = (lines.iter().filter(beat).count(), lines.iter().filter(answer).count());
    assert_eq!(stands, (told(), told()), "each that stands there was sent once: {lines:?}");
}
