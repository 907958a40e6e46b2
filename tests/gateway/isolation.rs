//! What a command of the model's left in the workspace must not reach other sessions.

use serde_json::{Value, json};
use testkit::model::Model;
use testkit::receiver::Receiver;

use crate::support::Place;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn prompt_files_that_are_links_or_pipes_are_left_out() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({}));
    let workspace = place.path().join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    let secret = place.path().join("secret");
    std::fs::write(&secret, "the secret of another session").unwrap();
    std::os::unix::fs::symlink(&secret, workspace.join("AGENTS.md")).unwrap();
    assert!(std::process::Command::new("mkfifo").arg(workspace.join("USER.md")).status().unwrap().success());
    std::fs::write(workspace.join("SOUL.md"), "be kind").unwrap();
    let gateway = place.start().await;
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": "hello"}]});
    assert_eq!(gateway.chat(body, None).await.0, 200);
    let asked: Value = model.requests().pop().unwrap();
    let system = asked["messages"][0]["content"].as_str().unwrap();
    assert!(system.contains("be kind") && !system.contains("secret of another"), "{system}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stranger_has_no_tools_where_the_owner_has_them_all() {
    let (model, receiver) = (Model::start_on_thread(), Receiver::start());
    let webhook = json!({"enabled": true, "port": 0, "url": receiver.url(), "allowFrom": "*"});
    let session = json!({"dmScope": "main", "identityLinks": {"ann": "webhook:7"}});
    let place = Place::with_model(&model.url(), json!({"channels": {"webhook": webhook}, "session": session}));
    let gateway = place.start().await;
    let text = r#"write it [[tool=write_file {"path":"made","content":"x"}]] [[show_results]]"#;
    let url = gateway.beacon().webhook_url.unwrap();
    let body = json!({"chat_id": "7", "message_id": "m1", "text": text});
    let reply = provider::http_client().unwrap().post(url).json(&body).send().await.unwrap();
    assert_eq!(reply.status().as_u16(), 202);
    gateway.delivered().await;
    let replies = receiver.requests();
    let said = replies[0].body["text"].as_str().unwrap();
    assert!(said.contains("is not open to this session: the tool profile `minimal` has it not"), "{said}");
    assert!(!place.path().join("workspace/made").exists());
    let offered = |request: &Value| request["tools"].as_array().map_or(0, Vec::len);
    assert!(model.requests().iter().all(|request| offered(request) == 0), "a stranger's model was offered tools");
    assert!(!place.transcript("agent.main.main").is_empty(), "the scope decides the session, not its rights");
    let body = json!({"user": "owner", "messages": [{"role": "user", "content": text}]});
    assert_eq!(gateway.chat(body, None).await.0, 200);
    assert_eq!(std::fs::read_to_string(place.path().join("workspace/made")).unwrap(), "x");
    assert!(offered(&model.requests().pop().unwrap()) >= 3);
}
