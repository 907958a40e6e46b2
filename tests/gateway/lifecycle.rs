//! Deleting, archiving, taking back and pruning of sessions, with and without a gateway.

use serde_json::{Value, json};

use crate::support::Place;

fn run(place: &Place, arguments: &[&str]) -> Result<Value, (Option<i32>, Value)> {
    let out = place.run(arguments);
    let body = serde_json::from_slice(&out.stdout).unwrap_or(Value::Null);
    if out.status.success() { Ok(body) } else { Err((out.status.code(), body)) }
}

fn keys(place: &Place, arguments: &[&str]) -> Vec<String> {
    let body = run(place, arguments).unwrap();
    body["items"].as_array().unwrap().iter().map(|item| item["key"].as_str().unwrap().to_owned()).collect()
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
    let header = &place.transcript("cli.a")[0];
    assert!(header.get("parentSession").is_none() && header["id"] != deleted["session"], "{header}");
    run(place, &["sessions", "unarchive", "cli:b", "--json"]).unwrap();
    let mut both = keys(place, &["sessions", "list", "--json"]);
    both.sort();
    assert_eq!(both, ["cli:a", "cli:b"]);
    assert!(place.run(&["agent", "-c", "-m", "and on"]).status.success());
    let said = place.transcript("cli.a");
    assert_eq!(said.len(), 5, "the last one used goes on: {said:?}");
    let told = run(place, &["sessions", "prune", "--dry-run", "--json"]).unwrap();
    let items = told["items"].as_array().unwrap();
    assert!(items.len() == 1 && items[0]["session"] == "cli:b" && items[0]["done"] == false, "{told}");
    run(place, &["sessions", "prune", "--json"]).unwrap();
    assert_eq!(keys(place, &["sessions", "list", "--json"]), ["cli:a"]);
}

#[test]
fn sessions_end_and_come_back_without_a_gateway() {
    tour(&Place::new(json!({"session": {"maintenance": {"maxEntries": 1}}})));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_end_and_come_back_through_the_gateway() {
    let place = Place::new(json!({"session": {"maintenance": {"maxEntries": 1}}}));
    let _gateway = place.start().await;
    tour(&place);
}
