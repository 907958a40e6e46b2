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

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memory_skills_and_recent_history_of_the_workspace_reach_the_model() {
    let model = Model::start_on_thread();
    let place = Place::with_model(&model.url(), json!({"agents": {"defaults": {"disabledSkills": ["off"]}}}));
    let workspace = place.path().join("workspace");
    let write = |name: &str, text: &str| {
        let path = workspace.join(name);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("memory/MEMORY.md", "Likes tea.");
    write(
        "memory/history.jsonl",
        "{\"cursor\":1,\"timestamp\":\"2026-01-02 10:00\",\"content\":\"Ann moved.\",\"session_key\":\"api:user:ann\"}\n",
    );
    write("skills/manners/SKILL.md", "---\nalways: true\n---\nSay please.");
    write("skills/math/SKILL.md", "---\ndescription: Counts.\n---\n");
    write(
        "skills/far/SKILL.md",
        "---\nmetadata: {\"nanobot\": {\"requires\": {\"bins\": [\"no-such-command\"]}}}\n---\n",
    );
    write("skills/off/SKILL.md", "---\ndescription: Switched off.\n---\n");
    let outside = place.path().join("outside");
    std::fs::create_dir_all(&outside).unwrap();
    std::fs::write(outside.join("SKILL.md"), "---\ndescription: The secret.\n---\n").unwrap();
    std::os::unix::fs::symlink(&outside, workspace.join("skills/linked")).unwrap();
    let gateway = place.start().await;
    ask(&gateway, "ann", "hello").await;
    let ann = system(&model);
    let parts = [
        "\n\n---\n\n# Memory\n\nLikes tea.\n\n---\n\n# Active Skills\n\n## manners\n\nSay please.\n\n---\n\n# Skills\n\n",
        "\n- far (unavailable: needs the command no-such-command)\n- math: Counts. (skills/math/SKILL.md)\n\n---\n\n",
    ];
    assert!(parts.iter().all(|part| ann.contains(part)), "{ann}");
    assert!(ann.ends_with("# Recent History\n\n- [2026-01-02 10:00] Ann moved."), "{ann}");
    assert!(!ann.contains("Switched off") && !ann.contains("secret"), "{ann}");
    ask(&gateway, "bob", "hello").await;
    let bob = system(&model);
    assert!(ann.starts_with(&bob) && !bob.contains("Ann moved"), "{bob}");
    let messages = json!([{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}, {"role": "user", "content": "c"}]);
    assert_eq!(gateway.chat(json!({"messages": messages}), None).await.0, 200);
    let stateless = system(&model);
    assert!(!stateless.contains("# Memory") && stateless.contains("# Active Skills"), "{stateless}");
}
