//! What the model is told of the workspace.

use domain::prompt::TEMPLATES;
use serde_json::{Value, json};
use testkit::model::Model;

use crate::support::{Gateway, Place};

async fn ask(gateway: &Gateway, user: &str, text: &str) {
    let body = json!({"user": user, "messages": [{"role": "user", "content": text}]});
    assert_eq!(gateway.chat(body, None).await.0, 200);
}

/// The system prompt of the last call.
fn system(model: &Model) -> String {
    let asked: Value = model.requests().pop().unwrap();
    asked["messages"][0]["content"].as_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_makes_what_is_missing_of_a_workspace_and_leaves_the_rest() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"agents": {"defaults": {"botName": "Beet"}}}));
    let workspace = place.path().join("workspace");
    std::fs::create_dir_all(&workspace).unwrap();
    let mine = "  # mine, with odd \r\n bytes \u{0}";
    std::fs::write(workspace.join("AGENTS.md"), mine).unwrap();
    let gateway = place.start().await;
    for (name, text) in TEMPLATES {
        let expected = if *name == "AGENTS.md" { mine } else { text };
        assert_eq!(std::fs::read_to_string(workspace.join(name)).unwrap(), expected, "{name}");
    }
    ask(&gateway, "ann", "hello").await;
    let first = system(&model);
    assert!(first.starts_with("You are Beet, ") && first.contains("\n\n---\n\n## AGENTS.md\n\n# mine"), "{first}");
    assert!(first.contains("## SOUL.md\n\n# Character") && !first.contains("USER.md"), "{first}");
    ask(&gateway, "bob", "hello").await;
    assert_eq!(system(&model), first, "what providers have in their caches begins so");
    drop(gateway);
    std::fs::write(workspace.join("SOUL.md"), "").unwrap();
    let gateway = place.start().await;
    ask(&gateway, "ann", "again").await;
    assert_eq!(std::fs::read_to_string(workspace.join("SOUL.md")).unwrap(), "");
    assert!(!system(&model).contains("SOUL.md"));
}
