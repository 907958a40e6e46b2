//! What changes a conversation between its turns, with and without a gateway.

use serde_json::{Value, json};

use crate::support::Place;

/// Runs a command that ends with `code`, and gives what it printed as JSON.
#[track_caller]
fn printed(place: &Place, arguments: &[&str], code: i32) -> Value {
    let out = place.run(&[arguments, &["--json"]].concat());
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(code), "{arguments:?}: {said} {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?} printed {said:?}: {error}"))
}

#[track_caller]
fn say(place: &Place, key: &str, text: &str) {
    let out = place.run(&["agent", "-s", key, "-m", text]);
    assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
}

fn id(tree: &Value, place: usize) -> String {
    tree["items"][place]["id"].as_str().unwrap().to_owned()
}

/// What every edit does, told by the tree afterwards. The session has two turns.
fn edited(place: &Place, key: &str) {
    let tree = printed(place, &["sessions", "tree", key], 0);
    assert_eq!(tree["items"].as_array().unwrap().len(), 4, "{tree}");
    let (first, answer) = (id(&tree, 0), id(&tree, 1));
    let start: String = answer.chars().take(12).collect();
    let labelled = printed(place, &["sessions", "label", key, &start, "the greeting"], 0);
    assert_eq!(labelled["entries"].as_array().unwrap().len(), 1, "{labelled}");
    printed(place, &["sessions", "rename", key, "Taxes"], 0);
    let moved = printed(place, &["sessions", "branch", key, &start, "--summary", "that led nowhere"], 0);
    assert_eq!(moved["key"], key);
    say(place, key, "another way");
    let tree = settled(place, key, 9);
    assert_eq!((&tree["name"], &tree["items"][1]["label"]), (&json!("Taxes"), &json!("the greeting")));
    let on_path = tree["items"].as_array().unwrap().iter().filter(|item| item["on_path"] == true).count();
    assert_eq!(on_path, 5, "two messages, the summary, the new turn: {tree}");
    let drawn = place.run(&["sessions", "tree", key]);
    let drawn = String::from_utf8(drawn.stdout).unwrap();
    assert!(drawn.contains("├─○") && drawn.contains("└─●") && drawn.contains("[the greeting]"), "{drawn}");

    let fork = format!("{key}-fork");
    let forked = printed(place, &["sessions", "fork", key, &fork, "--entry", &first], 0);
    assert_eq!(forked, json!({"key": fork, "forked_from": key, "copied": 1}));
    assert_eq!(printed(place, &["sessions", "fork", key, &fork], 1)["error"]["code"], "exists");
    say(place, &fork, "in the fork");
    settled(place, &fork, 4);

    for (arguments, word) in [
        (vec!["label", key, "zz", "x"], "unknown_entry"),
        (vec!["compact", key, "--keep-last", "100"], "nothing_to_compact"),
    ] {
        assert_eq!(printed(place, &[&["sessions"], &*arguments].concat(), 1)["error"]["code"], word);
    }
    say(place, key, &"a long message ".repeat(100));
    settled(place, key, 11);
    say(place, key, "short");
    settled(place, key, 13);
    brought(place, key);
    let compacted = printed(place, &["sessions", "compact", key, "--keep-last", "2"], 0);
    assert!(compacted["tokens_after"].as_u64() < compacted["tokens_before"].as_u64(), "{compacted}");
    assert_eq!(printed(place, &["sessions", "reset", key], 0)["entries"].as_array().unwrap().len(), 1);
    let tree = settled(place, key, 15);
    let kinds: Vec<&str> = tree["items"].as_array().unwrap().iter().filter_map(|item| item["kind"].as_str()).collect();
    assert!(kinds.contains(&"compaction") && kinds.last() == Some(&"reset"), "{kinds:?}");
    let checked = printed(place, &["sessions", "check", key], 0);
    assert_eq!((&checked["healthy"], &checked["entries"]), (&json!(true), &json!(15)));
    let told = place.events().into_iter().filter(|event| event["event"] == "session_edited");
    let told: Vec<_> = told.map(|event| format!("{} {}", event["session"], event["reason"]).replace('"', "")).collect();
    let one = |word: &str| format!("{key} {word}");
    let brought = ["greenroom", "nanobot", "openclaw"].map(|to| [one("export"), format!("{key}-{to} import")]);
    let first = ["label", "rename", "branch", "fork"].map(one);
    assert_eq!(told, [&first[..], &brought.concat(), &["compact", "reset"].map(one)].concat());
}

/// One session out to a file of each system, and back in.
fn brought(place: &Place, key: &str) {
    for format in ["greenroom", "nanobot", "openclaw"] {
        let file = place.path().join(format!("{}-{format}.jsonl", key.replace(':', "-")));
        let (file, new) = (file.to_str().unwrap(), format!("{key}-{format}"));
        let out = printed(place, &["sessions", "export", key, file, "--to", format], 0);
        assert_eq!((&out["key"], &out["file"]), (&json!(key), &json!(file)));
        let again = printed(place, &["sessions", "export", key, file], 1);
        assert_eq!(again["error"]["code"], "exists");
        let back = printed(place, &["sessions", "import", file, "--key", &new], 0);
        // Of the branch that was left nanobot gets the summary, as a message.
        let messages = if format == "nanobot" { 9 } else { 10 };
        assert_eq!((&back["key"], &back["messages"]), (&json!(new), &json!(messages)), "{back}");
        let tree = printed(place, &["sessions", "tree", &new], 0);
        assert_eq!(tree["name"], "Taxes", "{tree}");
        assert_eq!(printed(place, &["sessions", "import", file, "--key", &new], 1)["error"]["code"], "exists");
    }
    let notes = place.path().join("notes.jsonl");
    std::fs::write(&notes, "{\"note\":1}\n").unwrap();
    let other = printed(place, &["sessions", "import", notes.to_str().unwrap()], 1);
    assert_eq!(other["error"]["code"], "not_a_session");
    let message = other["error"]["message"].as_str().unwrap();
    assert!(message.contains("notes.jsonl: line 1"), "{message}");
}

/// The tree, once the file has that many entries: it follows the journal.
fn settled(place: &Place, key: &str, entries: usize) -> Value {
    for _ in 0..200 {
        let tree = printed(place, &["sessions", "tree", key], 0);
        if tree["items"].as_array().is_some_and(|items| items.len() >= entries) {
            assert_eq!(tree["items"].as_array().unwrap().len(), entries, "{tree}");
            return tree;
        }
    }
    panic!("the file never had {entries} entries");
}

#[test]
fn a_conversation_is_changed_without_a_gateway() {
    let place = Place::empty();
    say(&place, "cli:work", "first");
    say(&place, "cli:work", "second");
    edited(&place, "cli:work");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_conversation_is_changed_through_the_gateway() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    gateway.say("cli:work", "first", "m1").await;
    gateway.say("cli:work", "second", "m2").await;
    tokio::task::block_in_place(|| {
        settled(&place, "cli:work", 4);
        edited(&place, "cli:work");
    });
    let bad = gateway.post("sessions/cli%3Awork/compact".to_owned()).await;
    assert_eq!(bad["error"]["code"], "bad_body", "{bad}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_name_under_which_a_message_waits_is_taken() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    gateway.say("cli:old", "first", "m1").await;
    gateway.settle().await;
    let mut socket = gateway.client().await;
    socket.say("a", "slow [[delay=60000]]", "m1").await;
    socket.until("accepted").await;
    gateway.kill_nine();
    // As after a kill right behind the answer.
    let sessions = place.path().join("workspace/sessions");
    let _ = std::fs::remove_file(sessions.join("websocket.a.jsonl"));
    let file = sessions.join("cli.old.jsonl");
    for arguments in [
        vec!["sessions", "fork", "cli:old", "websocket:a"],
        vec!["sessions", "import", file.to_str().unwrap(), "--key", "websocket:a"],
    ] {
        let refused = tokio::task::block_in_place(|| printed(&place, &arguments, 1));
        assert_eq!(refused["error"]["code"], "exists", "{arguments:?}");
    }
    assert!(!sessions.join("websocket.a.jsonl").exists());
}

#[test]
fn what_nobody_can_read_is_told_with_its_name_and_ends_nothing_else() {
    let place = Place::empty();
    say(&place, "cli:fine", "hello");
    let sessions = place.path().join("workspace/sessions");
    std::fs::create_dir(sessions.join("cli.dir.jsonl")).unwrap();
    let all = printed(&place, &["sessions", "check"], 1);
    let items = all["items"].as_array().unwrap();
    let found: Vec<_> = items.iter().map(|one| (&one["key"], &one["healthy"], &one["problems"][0]["what"])).collect();
    assert_eq!(
        found,
        [(&json!("cli:dir"), &json!(false), &json!("unreadable")), (&json!("cli:fine"), &json!(true), &Value::Null),]
    );
    let told = place.run(&["sessions", "check", "cli:dir"]);
    let told = String::from_utf8(told.stdout).unwrap();
    assert!(told.contains("cli.dir.jsonl: all of it: it cannot be read: not a regular file"), "{told}");
    for arguments in [vec!["rename", "cli:dir", "x"], vec!["archive", "cli:dir"], vec!["delete", "cli:dir"]] {
        let refused = printed(&place, &[&["sessions"], &*arguments].concat(), 1);
        assert_eq!(refused["error"]["code"], "unreadable", "{arguments:?}");
        let message = refused["error"]["message"].as_str().unwrap();
        assert!(message.contains("cli.dir.jsonl") && message.contains("not a regular file"), "{message}");
    }
    let to = place.path().join("out");
    let out = place.run(&["export", "--to", "openclaw", to.to_str().unwrap(), "--json"]);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert!(said.contains("cli.dir.jsonl cannot be read") && said.contains("cli:fine"), "{said}");
}

#[test]
fn one_id_in_two_lines_is_told_and_no_entry_stands_below_itself() {
    let place = Place::empty();
    say(&place, "cli:a", "hello");
    let file = place.path().join("workspace/sessions/cli.a.jsonl");
    let text = std::fs::read_to_string(&file).unwrap();
    let tree = printed(&place, &["sessions", "tree", "cli:a"], 0);
    let (first, last) = (id(&tree, 0), id(&tree, 1));
    let mut again: Value = serde_json::from_str(text.lines().nth(1).unwrap()).unwrap();
    again["parentId"] = json!(last);
    std::fs::write(&file, format!("{text}{again}\n")).unwrap();
    let checked = printed(&place, &["sessions", "check", "cli:a"], 1);
    let problem = &checked["problems"][0];
    assert_eq!((&problem["what"], &problem["entry"]), (&json!("duplicate_id"), &json!(first)), "{checked}");
    assert_eq!(
        (&problem["line"], &problem["other_line"], checked["problems_total"].as_u64()),
        (&json!(2), &json!(4), Some(1))
    );
    let tree = printed(&place, &["sessions", "tree", "cli:a"], 0);
    let items: Vec<_> = tree["items"].as_array().unwrap().iter().map(|item| (&item["id"], &item["parent"])).collect();
    assert_eq!(items, [(&json!(first), &Value::Null), (&json!(last), &Value::Null), (&json!(first), &json!(last))]);
}

#[test]
fn a_damaged_transcript_is_told_and_mended() {
    let place = Place::empty();
    let file = place.path().join("workspace/sessions/cli.old.jsonl");
    say(&place, "cli:new", "hello");
    let message = r#"{"type":"message","id":"a","parentId":null,"timestamp":"2026-01-01T00:00:00.000Z","message":{"role":"user","content":"old"}}"#;
    std::fs::write(&file, format!("{message}\nnonsense\n{{\"type\":\"mes")).unwrap();
    let all = printed(&place, &["sessions", "check"], 1);
    assert_eq!(all["items"].as_array().unwrap().len(), 2, "{all}");
    let told = place.run(&["sessions", "check"]);
    let told = String::from_utf8(told.stdout).unwrap();
    for part in
        ["cli.old.jsonl: line 2: no JSON", "the end: a line that was cut short, 12 bytes", "checked 2 transcripts"]
    {
        assert!(told.contains(part), "{part}: {told}");
    }
    let mended = place.run(&["sessions", "repair", "cli:old"]);
    assert!(String::from_utf8(mended.stdout).unwrap().starts_with("cli:old is mended; "));
    let found = printed(&place, &["sessions", "check", "cli:old"], 1);
    assert_eq!(
        (&found["repairable"], &found["healthy"]),
        (&json!(false), &json!(false)),
        "what is no JSON stays: {found}"
    );
    assert!(std::fs::read_to_string(&file).unwrap().starts_with(&format!("{message}\nnonsense\n")));
    let again = printed(&place, &["sessions", "repair", "cli:old"], 0);
    assert_eq!(again["entries"], json!([]));
}
