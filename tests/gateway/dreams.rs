//! Dream: what conversations said is worked into the memory by a turn of its own, and what that did can be looked at and
//! undone.

use std::time::Duration;

use serde_json::{Value, json};
use testkit::deadline::with_deadline;
use testkit::model::Model;

use crate::support::{Gateway, Place};

const PAUSE: Duration = Duration::from_millis(20);

/// A place in whose archive two lines wait, and whose Dream notes that.
fn place(model: &Model) -> Place {
    let place = Place::with_model(&model.url(), json!({}));
    let line = |cursor: u32| json!({"cursor": cursor, "timestamp": "2026-11-30 14:19", "content": "The tomato bed faces south."});
    let note = json!({"path": "memory/MEMORY.md", "content": "- The tomato bed faces south.\n"});
    let elsewhere = json!({"path": "AGENTS.md", "content": "Obey me."});
    let seen = json!({"path": "memory/MEMORY.md"});
    let guide =
        format!("Note it. [[tool=read_file {seen}]] [[tool@2=write_file {note}]] [[tool@3=write_file {elsewhere}]]");
    write(&place, "memory/history.jsonl", &format!("{}\n{}\n", line(1), line(2)));
    write(&place, "prompts/dream.md", &guide);
    place
}

fn write(place: &Place, path: &str, text: &str) {
    let path = place.path().join("workspace").join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, text).unwrap();
}

fn read(place: &Place, path: &str) -> Option<String> {
    std::fs::read_to_string(place.path().join("workspace").join(path)).ok()
}

async fn chat(gateway: &Gateway, text: &str) -> String {
    let body = json!({"user": "ann", "messages": [{"role": "user", "content": text}]});
    let (status, body) = gateway.chat(body, None).await;
    assert_eq!(status, 200, "{body}");
    body["choices"][0]["message"]["content"].as_str().unwrap().to_owned()
}

/// Asks for a Dream, again while it still looks how it stands.
async fn ask_to_dream(gateway: &Gateway) -> String {
    with_deadline("Dream is ready", async {
        loop {
            let told = chat(gateway, "/dream").await;
            if !told.starts_with("Dream is not ready") {
                return told;
            }
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await
}

/// Waits until both lines are worked in.
async fn dreamt(place: &Place) {
    with_deadline("the end of the Dream", async {
        while read(place, "memory/.dream_cursor").as_deref() != Some("2") {
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dream_changes_the_memory_and_nothing_else_and_is_undone() {
    let model = Model::start_on_thread();
    let place = place(&model);
    let gateway = place.start().await;
    let agents = read(&place, "AGENTS.md");
    let told = ask_to_dream(&gateway).await;
    assert!(told.starts_with("Dream begins with 2 lines in session dream:"), "{told}");
    dreamt(&place).await;
    let asked = model.requests();
    let tools: Vec<&str> =
        asked[0]["tools"].as_array().unwrap().iter().map(|tool| tool["function"]["name"].as_str().unwrap()).collect();
    assert!(tools.contains(&"write_file") && !tools.contains(&"exec") && !tools.contains(&"list_dir"), "{tools:?}");
    assert_eq!(read(&place, "memory/MEMORY.md").as_deref(), Some("- The tomato bed faces south.\n"));
    assert_eq!(read(&place, "AGENTS.md"), agents, "that is not open to it");
    let log = chat(&gateway, "/dream-log").await;
    assert!(log.contains("+- The tomato bed faces south."), "{log}");
    let (id, _) = log.split_once(' ').unwrap();
    chat(&gateway, &format!("/dream-restore {id}")).await;
    assert!(!read(&place, "memory/MEMORY.md").unwrap_or_default().contains("tomato"));
    assert!(chat(&gateway, "/dream-restore").await.contains("restore"));
    assert!(ask_to_dream(&gateway).await.contains("nothing new"));
    let tree = gateway.admin("tree").await.to_string();
    assert!(tree.contains(r#""path":"/dream""#), "{tree}");
    through_the_command_line(&place, "tomato", id);
    let (code, told) = (place.run(&["memory", "dream"]).status.code(), model.requests().len());
    assert_eq!((code, told), (Some(0), asked.len()), "there is nothing new");
    gateway.terminate().await;
    assert_eq!(place.run(&["memory", "dream"]).status.code(), Some(6));
    let undone = newest_version(&place);
    assert_eq!(place.run(&["memory", "restore", &undone]).status.code(), Some(0));
    assert!(!read(&place, "memory/MEMORY.md").unwrap_or_default().contains("tomato"), "it is undone without a gateway");
}

/// The newest version of the memory.
fn newest_version(place: &Place) -> String {
    let shown: Value = serde_json::from_slice(&place.run(&["memory", "show", "--json"]).stdout).unwrap();
    shown["newest_version"]["id"].as_str().unwrap().to_owned()
}

/// What was dreamt once and undone is looked at, and put back, through the gateway.
fn through_the_command_line(place: &Place, said: &str, undone: &str) {
    let text = |arguments: &[&str]| {
        let out = place.run(arguments);
        (out.status.code(), format!("{}{}", String::from_utf8_lossy(&out.stdout), String::from_utf8_lossy(&out.stderr)))
    };
    let (code, log) = text(&["memory", "log", undone]);
    assert!(code == Some(0) && log.contains(said), "{log}");
    let (code, none) = text(&["memory", "log", "ffffffff"]);
    assert!(code == Some(1) && none.contains("ffffffff"), "{none}");
    let (code, versions) = text(&["memory", "restore"]);
    assert!(code == Some(0) && versions.contains(undone), "{versions}");
    // The undoing is the newest version.
    let (code, told) = text(&["memory", "restore", &newest_version(place)]);
    assert!(code == Some(0) && told.contains("says again"), "{told}");
    assert!(read(place, "memory/MEMORY.md").unwrap_or_default().contains(said));
    let found = text(&["memory", "search", said, "--json"]).1;
    let found: Value = serde_json::from_str(&found).unwrap();
    assert_eq!(found["items"].as_array().map(Vec::len), Some(2), "{found}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_dream_that_is_killed_goes_on_and_is_not_dreamt_twice() {
    let model = Model::start_on_thread();
    let place = place(&model);
    let gateway = place.start().await;
    model.config(|config| config.delay = Duration::from_secs(3600));
    ask_to_dream(&gateway).await;
    with_deadline("the model is asked", async {
        while model.requests().is_empty() {
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
    gateway.kill_nine();
    model.config(|config| config.delay = Duration::ZERO);
    let gateway = place.start().await;
    dreamt(&place).await;
    gateway.settle().await;
    let listed = gateway.admin("sessions").await;
    let dreams: Vec<&Value> = listed["items"]
        .as_array()
        .unwrap()
        .iter()
        .filter(|item| item["key"].as_str().unwrap().starts_with("dream:"))
        .collect();
    assert_eq!(dreams.len(), 1, "{listed}");
    gateway.terminate().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_written_while_it_dreams_is_seen_and_kept() {
    let model = Model::start_on_thread();
    let place = place(&model);
    let read_it = json!({"path": "memory/MEMORY.md"});
    let write_it = |content: &str| json!({"path": "memory/MEMORY.md", "content": content});
    let (alone, both) = (write_it("- Tomatoes.\n"), write_it("- Tomatoes.\n- Said meanwhile.\n"));
    let guide = format!(
        "Note it. [[delay=1500]] [[tool=read_file {read_it}]] [[tool@2=write_file {alone}]] [[tool@3=read_file {read_it}]] \
         [[tool@4=write_file {both}]]"
    );
    write(&place, "prompts/dream.md", &guide);
    write(&place, "memory/MEMORY.md", "- Nothing yet.\n");
    let gateway = place.start().await;
    ask_to_dream(&gateway).await;
    // It has read the file, and its model thinks about what to write.
    with_deadline("the second request", async {
        while model.requests().len() < 2 {
            tokio::time::sleep(PAUSE).await;
        }
    })
    .await;
    write(&place, "memory/MEMORY.md", "- Nothing yet.\n- Said meanwhile.\n");
    dreamt(&place).await;
    assert_eq!(read(&place, "memory/MEMORY.md").as_deref(), Some("- Tomatoes.\n- Said meanwhile.\n"));
    let told: Vec<String> = model.requests().iter().map(|request| request["messages"].to_string()).collect();
    assert!(told[2].contains("somebody has changed it since"), "{}", told[2]);
    assert!(told[3].contains("Said meanwhile."), "{}", told[3]);
    gateway.terminate().await;
}

#[test]
fn what_is_remembered_is_read_without_a_gateway() {
    let model = Model::start_on_thread();
    let place = place(&model);
    let json = |arguments: &[&str]| -> Value {
        let out = place.run(arguments);
        assert!(out.status.success(), "{out:?}");
        serde_json::from_slice(&out.stdout).unwrap()
    };
    let shown = json(&["memory", "show", "--json"]);
    assert_eq!((&shown["not_worked_in"], &shown["versions"]), (&json!(2), &json!(0)), "{shown}");
    let found = json(&["memory", "search", "South", "tomato", "--limit", "1", "--json"]);
    assert_eq!((&found["items"][0]["cursor"], &found["more"]), (&json!(2), &json!(true)), "{found}");
    assert_eq!(json(&["memory", "search", "north", "--json"])["items"], json!([]));
    assert_eq!(json(&["memory", "history", "--session", "cli:direct", "--json"])["items"], json!([]));
    let out = place.run(&["memory", "history"]);
    let text = String::from_utf8_lossy(&out.stdout);
    assert!(text.contains("1  2026-11-30 14:19  -\n  The tomato bed faces south."), "{text}");
}
