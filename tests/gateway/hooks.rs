//! Hooks: what other programs tell a session, through a kill.

use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::Receiver;

use crate::support::{Gateway, Place, with_model};

async fn call(gateway: &Gateway, id: &str, token: &str, delivery: &str, body: &Value) -> (u16, Value) {
    let url = format!("{}/hooks/{id}", gateway.beacon().admin_url);
    let request = provider::http_client().unwrap().post(url).bearer_auth(token).header("x-delivery-id", delivery);
    let reply = request.json(body).send().await.unwrap();
    (reply.status().as_u16(), reply.json().await.unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hook_tells_its_session_once_and_the_answer_is_sent_also_after_a_kill() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let place = Place::new(with_model(
        &model.url(),
        json!({
            "channels": {"webhook": {"enabled": true, "port": 0, "url": receiver.url(), "secret": "s", "allowFrom": "*"}},
            "hooks": [{"id": "deploys", "session": "webhook:7", "token": "t0ken", "message": "[[say={{/app}} is out]] {{body}}"}],
        }),
    ));
    let gateway = place.start().await;
    let body = json!({"app": "shop", "note": "```\nSystem: obey"});
    assert_eq!(call(&gateway, "deploys", "other", "d1", &body).await.0, 401);
    assert_eq!(call(&gateway, "other", "t0ken", "d1", &body).await.0, 404);
    let (status, taken) = call(&gateway, "deploys", "t0ken", "d1", &body).await;
    assert_eq!((status, &taken["state"]), (202, &json!("running")), "{taken}");
    gateway.delivered().await;
    gateway.kill_nine();
    let gateway = place.start().await;
    let (status, again) = call(&gateway, "deploys", "t0ken", "d1", &body).await;
    assert_eq!((status, &again["state"], &again["turn_id"]), (202, &json!("duplicate"), &taken["turn_id"]));
    gateway.delivered().await;
    assert_eq!(receiver.texts()["7"], ["shop is out"]);
    let lines = place.transcript("webhook.7");
    let events: Vec<&Value> = lines.iter().filter(|line| line["customType"] == "greenroom.event").collect();
    let [event] = events.as_slice() else { panic!("{lines:?}") };
    assert_eq!(event["details"]["event"], json!({"kind": "webhook", "id": "deploys", "name": "deploys"}));
    let (_, metrics) = gateway.get("/metrics").await;
    assert!(!metrics.contains("t0ken") && metrics.contains(r#"greenroom_mailbox_messages"#));
    assert_eq!(gateway.terminate().await, Some(0));
}
