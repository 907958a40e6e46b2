//! What a command of the model's left in the workspace must not reach other sessions.

use serde_json::{Value, json};
use testkit::model::Model;

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
