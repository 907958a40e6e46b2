//! Deleting, archiving, taking back and pruning of sessions, with and without a gateway.

use serde_json::{Value, json};

use crate::support::{Gateway, Place};

fn run(place: &Place, arguments: &[&str]) -> Result<Value, (Option<i32>, Value)> {
    let out = place.run(arguments);
    let body = serde_json::from_slice(&out.stdout).unwrap_or(Value::Null);
    if out.status.success() { Ok(body) } else { Err((out.status.code(), body)) }
}

fn keys(place: &Place, arguments: &[&str]) -> Vec<String> {
    let body = run(place, arguments).unwrap();
    body["items"].as_array().unwrap().iter().map(|item| item["key"].as_str().unwrap().to_owned()).collect()
}

/// The transcript of a session once it has `count` lines: a gateway answers when a turn is in its journal, and the file
/// comes after.
fn lines(place: &Place, key: &str, count: usize) -> Vec<Value> {
    for _ in 0..100 {
        if let Ok(shown) = run(place, &["sessions", "show", key, "--json"])
            && let Some(lines) = shown["entries"].as_array().filter(|lines| lines.len() >= count)
        {
            return lines.clone();
        }
    }
    panic!("{key} does not get {count} lines");
}

fn tour(place: &Place) {
    let say = |key: &str, text: &str| assert!(place.run(&["agent", "-s", key, "-m", text]).status.success());
    say("cli:a", "hello a");
    say("cli:b", "hello b");
    let deleted = run(place, &["sessions", "delete", "cli:a", "--json"]).unwrap();
    assert_eq!((&deleted["state"], &deleted["cancelled"]), (&json!("deleted"), &json!(0)));
    assert_eq!(keys(place, &["sessions", "list", "--json"]), ["cli:b"]);
    let (code, body) = run(place, &["sessions", "delete", "cli:a", "--json"]).unwrap_err();
    assert_eq!((code, &body["error"]["code"]), (Some(1), &json!("not_found")));
    let tombstone = place.path().join("workspace/sessions").join(deleted["file"].as_str().unwrap());
    assert!(std::fs::read_to_string(tombstone).unwrap().contains("hello a"));

    run(place, &["sessions", "archive", "cli:b", "--json"]).unwrap();
    assert!(keys(place, &["sessions", "list", "--json"]).is_empty());
    assert_eq!(keys(place, &["sessions", "list", "--archived", "--json"]), ["cli:b"]);
    let shown = run(place, &["sessions", "show", "cli:b", "--archived", "--json"]).unwrap();
    assert_eq!(shown["entries"].as_array().unwrap().len(), 3);
    say("cli:a", "hello again");
    let header = &lines(place, "cli:a", 3)[0];
    assert_eq!(header["type"], "session");
    assert!(header.get("parentSession").is_none() && header["id"] != deleted["session"], "{header}");
    let ended = run(place, &["sessions", "list", "--deleted", "--json"]).unwrap();
    let item = &ended["items"][0];
    assert_eq!((&item["key"], &item["file"]), (&json!("cli:a"), &deleted["file"]), "{ended}");
    assert!(item["deleted_ms"].is_u64() && item.get("archived_ms").is_none(), "{ended}");
    run(place, &["sessions", "unarchive", "cli:b", "--json"]).unwrap();
    let mut both = keys(place, &["sessions", "list", "--json"]);
    both.sort();
    assert_eq!(both, ["cli:a", "cli:b"]);
    assert!(place.run(&["agent", "-c", "-m", "and on"]).status.success());
    assert_eq!(lines(place, "cli:a", 5).len(), 5, "the last one used goes on");
    let told = run(place, &["sessions", "prune", "--dry-run", "--json"]).unwrap();
    let items = told["items"].as_array().unwrap();
    assert!(items.len() == 1 && items[0]["session"] == "cli:b" && items[0]["done"] == false, "{told}");
    let told = run(place, &["sessions", "prune", "--json"]).unwrap();
    assert_eq!((&told["dry_run"], &told["items"][0]["done"]), (&json!(true), &json!(false)), "the mode is not enforce");
    assert_eq!(keys(place, &["sessions", "list", "--json"]).len(), 2);
    let told = run(place, &["sessions", "prune", "--enforce", "--json"]).unwrap();
    assert_eq!((&told["dry_run"], &told["items"][0]["done"]), (&json!(false), &json!(true)), "{told}");
    assert_eq!((&told["items"].as_array().unwrap().len(), &told["freed_bytes"]), (&1, &json!(0)), "a tombstone stays");
    assert_eq!(keys(place, &["sessions", "list", "--json"]), ["cli:a"]);
    let acts = ["session_deleted", "session_archived", "session_restored", "sessions_pruned"];
    let told = place.events().into_iter().filter(|event| acts.iter().any(|act| event["event"] == *act));
    let told: Vec<_> = told.map(|event| (event["event"].clone(), event["session"].clone())).collect();
    let expected =
        [(0, json!("cli:a")), (1, json!("cli:b")), (2, json!("cli:b")), (0, json!("cli:b")), (3, Value::Null)];
    assert_eq!(told, expected.map(|(act, key)| (json!(acts[act]), key)));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_put_away_or_set_aside_is_no_session_after_a_restart() {
    let place = Place::new(json!({}));
    let say = |key: &str| assert!(place.run(&["agent", "-s", key, "-m", "hello"]).status.success());
    for key in ["cli:live", "cli:gone", "cli:away", "cli:torn"] {
        say(key);
    }
    assert!(place.run(&["sessions", "delete", "cli:gone"]).status.success());
    assert!(place.run(&["sessions", "archive", "cli:away"]).status.success());
    let sessions = place.path().join("workspace/sessions");
    let torn = sessions.join("cli.torn.jsonl");
    std::fs::write(&torn, [std::fs::read(&torn).unwrap(), b"{\"type\":\"cu".to_vec()].concat()).unwrap();
    say("cli:torn");
    let live = std::fs::read(sessions.join("cli.live.jsonl")).unwrap();
    std::fs::create_dir_all(sessions.join("directory.jsonl")).unwrap();
    std::fs::create_dir_all(sessions.join("archive/nanobot")).unwrap();
    let aside = [
        "cli.old.jsonl.reset.2026-11-29T20-53-29.123Z",
        "cli.old.jsonl.deleted.2026-11-29T20-53-29.123Z",
        "cli.old.jsonl.bak-1-2",
        "cli.old.jsonl.lock",
        "cli.old.jsonl.corrupt-2026-11-29T20-53-29-123Z-0a1b2c3d.jsonl",
        "archive/cli.old.jsonl",
        "archive/nanobot/cli.older.jsonl",
    ];
    for name in aside {
        std::fs::write(sessions.join(name), &live).unwrap();
    }
    std::os::unix::fs::symlink(sessions.join("cli.live.jsonl"), sessions.join("cli.link.jsonl")).unwrap();
    let gateway = place.start().await;
    let list = || {
        let mut keys = keys(&place, &["sessions", "list", "--json"]);
        keys.sort();
        keys
    };
    assert_eq!(tokio::task::block_in_place(list), ["cli:live", "cli:torn"]);
    gateway.kill_nine();
    let _gateway = place.start().await;
    assert_eq!(tokio::task::block_in_place(list), ["cli:live", "cli:torn"]);
    let archived = || keys(&place, &["sessions", "list", "--archived", "--json"]);
    let mut archived = tokio::task::block_in_place(archived);
    archived.sort();
    assert_eq!(archived, ["cli:away", "cli:old"]);
    assert!(aside.iter().all(|name| sessions.join(name).exists()), "nothing of it was touched");
    let names: Vec<String> =
        std::fs::read_dir(&sessions).unwrap().map(|one| one.unwrap().file_name().into_string().unwrap()).collect();
    for part in ["cli.gone.jsonl.deleted.", "cli.torn.jsonl.damaged-"] {
        assert!(names.iter().any(|name| name.starts_with(part)), "{part}: {names:?}");
    }
}

#[test]
fn sessions_end_and_come_back_without_a_gateway() {
    tour(&Place::new(json!({"session": {"maintenance": {"maxEntries": 1}}})));
}

#[test]
fn pruning_in_mode_enforce_does_it_and_says_so() {
    let maintenance = json!({"maxEntries": 1, "mode": "enforce"});
    let place = Place::new(json!({"session": {"maintenance": maintenance}}));
    for key in ["cli:a", "cli:b"] {
        assert!(place.run(&["agent", "-s", key, "-m", "hello"]).status.success());
    }
    for (arguments, last, left) in [
        (&["sessions", "prune", "--dry-run"][..], "1 session and 0 files would go; --enforce does it", 2),
        (&["sessions", "prune"], "1 session deleted, 0 files removed, 0 of", 1),
        (&["sessions", "prune"], "nothing has to go", 1),
    ] {
        let out = place.run(arguments);
        let said = String::from_utf8_lossy(&out.stdout).into_owned();
        assert!(out.status.success() && said.lines().last().unwrap().starts_with(last), "{arguments:?}: {said}");
        assert_eq!(keys(&place, &["sessions", "list", "--json"]).len(), left, "{said}");
    }
    let both = place.run(&["sessions", "prune", "--dry-run", "--enforce"]);
    assert_eq!(both.status.code(), Some(2));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_and_come_back_through_the_gateway() {
    let place = Place::new(json!({"session": {"maintenance": {"maxEntries": 1}}}));
    let _gateway = place.start().await;
    tour(&place);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_archived_session_is_deleted_and_only_so_many_are_listed() {
    let place = Place::new(json!({}));
    let tour = || {
        for name in ["x", "y", "z"] {
            assert!(place.run(&["agent", "-s", &format!("cli:{name}"), "-m", "hello"]).status.success());
        }
        assert_eq!(keys(&place, &["sessions", "list", "--limit", "2", "--json"]), ["cli:z", "cli:y"]);
        run(&place, &["sessions", "archive", "cli:x", "--json"]).unwrap();
        let deleted = run(&place, &["sessions", "delete", "cli:x", "--archived", "--json"]).unwrap();
        assert_eq!((&deleted["key"], &deleted["state"]), (&json!("cli:x"), &json!("deleted")), "{deleted}");
        assert!(place.path().join("workspace/sessions").join(deleted["file"].as_str().unwrap()).exists());
        assert_eq!(keys(&place, &["sessions", "list", "--archived", "--json"]), [""; 0]);
        let (code, body) = run(&place, &["sessions", "delete", "cli:x", "--archived", "--json"]).unwrap_err();
        assert_eq!((code, &body["error"]["code"]), (Some(1), &json!("not_found")));
        let (code, _) = run(&place, &["sessions", "unarchive", "cli:x", "--json"]).unwrap_err();
        assert_eq!(code, Some(1), "it is gone from the archive");
    };
    tour();
    let _gateway = place.start().await;
    tokio::task::block_in_place(tour);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_session_is_not_archived() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=600000]]", "m1").await;
    socket.until("accepted").await;
    tokio::task::block_in_place(|| {
        let (code, body) = run(&place, &["sessions", "archive", "websocket:a", "--json"]).unwrap_err();
        assert_eq!((code, &body["error"]["code"]), (Some(7), &json!("busy")));
        let deleted = run(&place, &["sessions", "delete", "websocket:a", "--json"]).unwrap();
        assert_eq!(deleted["cancelled"], 1);
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_of_what_waited_in_a_deleted_session_is_told_that_it_was_cancelled() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    socket.say("a", "slow [[delay=600000]]", "m1").await;
    socket.until("accepted").await;
    socket.say("a", "and then?", "m2").await;
    socket.until("accepted").await;
    let deleted = gateway.post("sessions/websocket%3Aa/delete".to_owned()).await;
    assert_eq!(deleted["cancelled"], 2, "{deleted}");
    let mut other = gateway.websocket("").await;
    other.until("ready").await;
    for id in ["m1", "m2"] {
        other.say("a", if id == "m1" { "slow [[delay=600000]]" } else { "and then?" }, id).await;
        assert_eq!(other.until("accepted").await["state"], "duplicate", "{id}");
        let told = other.until("message").await;
        assert!(told["text"].as_str().unwrap().contains("cancelled"), "{id}: {told}");
        other.until("turn_end").await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_after_the_end_of_its_session_is_answered_as_before_and_runs_nothing() {
    let place = Place::new(json!({}));
    let mut gateway = place.start().await;
    let ask = async |gateway: &Gateway, word: &str| {
        let body = json!({"user": "ann", "messages": [{"role": "user", "content": format!("hello {word}")}]});
        let (status, answer) = gateway.chat(body, Some(word)).await;
        assert_eq!(status, 200, "{word}: {answer}");
        (answer["id"].clone(), answer["choices"].clone())
    };
    let mut answers = Vec::new();
    for act in ["archive", "delete"] {
        let first = ask(&gateway, act).await;
        let ended = gateway.post(format!("sessions/api%3Auser%3Aann/{act}")).await;
        assert!(ended["file"].is_string(), "{ended}");
        assert_eq!(ask(&gateway, act).await, first, "{act}");
        answers.push((act, first));
    }
    gateway.terminate().await;
    gateway = place.start().await;
    for (act, first) in answers {
        assert_eq!(ask(&gateway, act).await, first, "{act}, after a restart");
    }
    let listed = tokio::task::block_in_place(|| keys(&place, &["sessions", "list", "--json"]));
    assert_eq!(listed, Vec::<String>::new(), "nothing ran");
}

/// Files of the sessions' directory whose names begin so.
fn files(place: &Place, begin: &str) -> Vec<String> {
    let dir = std::fs::read_dir(place.path().join("workspace/sessions")).unwrap();
    let names = dir.map(|file| file.unwrap().file_name().into_string().unwrap());
    names.filter(|name| name.starts_with(begin)).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kill_between_the_end_of_a_session_and_the_move_of_its_file_is_made_good() {
    let place = Place::new(json!({"supervision": {"quarantineSeconds": 1}}));
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("a", "before", "1").await;
    socket.until("turn_end").await;
    lines(&place, "websocket:a", 3);
    // Nothing can be moved from where a directory is.
    let file = place.path().join("workspace/sessions/websocket.a.jsonl");
    let aside = place.path().join("aside");
    std::fs::rename(&file, &aside).unwrap();
    std::fs::create_dir(&file).unwrap();
    let deleted = run(&place, &["sessions", "delete", "websocket:a", "--json"]).unwrap();
    assert_eq!((&deleted["state"], &deleted["file"]), (&json!("deleted"), &Value::Null), "{deleted}");
    // Whether it repeats one of the transcript in the way cannot be told: its sender comes back.
    socket.say("a", "after", "2").await;
    assert_eq!(socket.until("error").await["reason"], "busy");
    gateway.kill_nine();

    std::fs::remove_dir(&file).unwrap();
    std::fs::rename(&aside, &file).unwrap();
    let gateway = place.start().await;
    let mut socket = gateway.client().await;
    socket.say("a", "after", "2").await;
    assert_eq!(socket.until("turn_end").await["result"], "done");
    let after = lines(&place, "websocket:a", 3);
    let after = serde_json::to_string(&after).unwrap();
    assert!(after.contains("after") && !after.contains("before"), "{after}");
    let tombstones = files(&place, "websocket.a.jsonl.deleted.");
    assert_eq!(tombstones.len(), 1, "{tombstones:?}");
    let kept = std::fs::read_to_string(place.path().join("workspace/sessions").join(&tombstones[0])).unwrap();
    assert!(kept.contains("before") && !kept.contains("after"), "{kept}");
    gateway.kill_nine();

    let gateway = place.start().await;
    assert_eq!(gateway.terminate().await, Some(0));
    assert_eq!(files(&place, "websocket.a.jsonl").len(), 2, "it is moved once");
}
