//! Local triggers: what programs on this machine hand in, with a gateway and without one.

use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::Receiver;

use crate::support::{Place, with_model};

fn run(place: &Place, arguments: &[&str]) -> String {
    let out = place.run(arguments);
    assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
    String::from_utf8(out.stdout).unwrap()
}

/// Waits until the gateway has taken all that was handed in.
async fn taken(place: &Place) {
    let empty = || {
        ["inbox", "processing"].iter().all(|name| {
            let directory = place.path().join("workspace/triggers").join(name);
            std::fs::read_dir(directory).map_or(true, |mut files| files.next().is_none())
        })
    };
    testkit::deadline::with_deadline("deliveries are taken", async {
        while !empty() {
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_trigger_that_a_chat_made_tells_it_also_what_came_while_nobody_was_there() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let webhook = json!({"enabled": true, "port": 0, "url": receiver.url(), "secret": "s", "allowFrom": "*"});
    let place = Place::new(with_model(&model.url(), json!({"channels": {"webhook": webhook}})));
    let gateway = place.start().await;
    let made = run(&place, &["agent", "-s", "webhook:7", "-m", "/trigger the door"]);
    let id = made.split_whitespace().find(|word| word.starts_with("trg_")).unwrap().to_owned();
    let listed: Value = serde_json::from_str(&run(&place, &["trigger", "--list", "--json"])).unwrap();
    assert_eq!((&listed["items"][0]["id"], &listed["items"][0]["sessionKey"]), (&json!(id), &json!("webhook:7")));
    run(&place, &["trigger", &id, "[[say=it rang]] ring"]);
    taken(&place).await;
    gateway.delivered().await;
    assert_eq!(receiver.texts()["7"], ["it rang"]);
    gateway.kill_nine();
    run(&place, &["trigger", &id, "[[say=it rang again]] ring"]);
    let gateway = place.start().await;
    taken(&place).await;
    gateway.delivered().await;
    assert_eq!(receiver.texts()["7"], ["it rang", "it rang again"]);
    gateway.kill_nine();
    let gateway = place.start().await;
    gateway.delivered().await;
    assert_eq!(receiver.texts()["7"], ["it rang", "it rang again"], "each once, whatever restarts");
    let tree = gateway.admin("tree").await;
    assert!(tree["children"].as_array().unwrap().iter().any(|node| node["path"] == "/triggers"), "{tree}");
    let unknown = place.run(&["trigger", "trg_NONE", "x"]);
    assert_eq!(unknown.status.code(), Some(1));
    assert!(String::from_utf8_lossy(&unknown.stderr).contains("there is no trigger trg_NONE"));
    assert_eq!(place.run(&["trigger", "../x", "x"]).status.code(), Some(2));
    let history: Value = serde_json::from_str(&run(&place, &["trigger", &id, "--history", "--json"])).unwrap();
    assert_eq!(history["items"].as_array().unwrap().iter().filter(|run| run["status"] == "ok").count(), 2, "{history}");
    run(&place, &["trigger", &id, "--disable"]);
    assert_eq!(place.run(&["trigger", &id, "x"]).status.code(), Some(1));
    assert!(run(&place, &["trigger", "--list"]).contains("disabled"));
    assert!(!run(&place, &["trigger", &id, "--enable"]).contains("disabled"));
    run(&place, &["trigger", &id, "--remove"]);
    assert_eq!(run(&place, &["trigger", "--list"]), "no triggers; /trigger NAME in a chat makes one\n");
    assert_eq!(gateway.terminate().await, Some(0));
}
