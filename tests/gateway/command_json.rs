//! Every command prints JSON with `--json`, whether it worked or not.

use serde_json::{Value, json};

use crate::support::Place;

/// Runs a command that ends with `code`; what it printed is one JSON value.
fn printed(place: &Place, arguments: &[&str], code: i32) -> Value {
    let out = place.run(arguments);
    let said = String::from_utf8_lossy(&out.stdout).into_owned();
    assert_eq!(out.status.code(), Some(code), "{arguments:?}: {said} {}", String::from_utf8_lossy(&out.stderr));
    serde_json::from_str(&said).unwrap_or_else(|error| panic!("{arguments:?} printed {said:?}: {error}"))
}

#[test]
fn failures_are_json_too() {
    let place = Place::empty();
    const ID: &str = "0193e0a1-7b1c-7000-8000-000000000001";
    for (arguments, code, word) in [
        (vec!["sessions", "show", "api:nope"], 1, "not_found"),
        (vec!["sessions", "show", ""], 2, "usage"),
        (vec!["sessions", "release", "api:nope"], 1, "not_quarantined"),
        (vec!["sessions", "tree", "api:nope"], 1, "not_found"),
        (vec!["sessions", "label", "api:nope", "a", "b"], 1, "not_found"),
        (vec!["sessions", "check", "api:nope"], 1, "not_found"),
        (vec!["sessions", "compact", "api:nope"], 2, "usage"),
        (vec!["sessions", "compact", "api:nope", "--keep-last", "1", "--keep-days", "1"], 2, "usage"),
        (vec!["deadletters", "show", ID], 1, "not_found"),
        (vec!["deadletters", "show", "no-id"], 2, "usage"),
        (vec!["deadletters", "retry", ID], 1, "not_found"),
        (vec!["deadletters", "drop", ID], 1, "not_found"),
        (vec!["tree"], 6, "no_gateway"),
        (vec!["top", "--once"], 6, "no_gateway"),
        (vec!["gateway", "drain", "--wait"], 6, "no_gateway"),
        (vec!["logs", "--event", "exploded"], 2, "usage"),
        (vec!["backup", "/proc/none/copy"], 1, "failed"),
        (vec!["restore", "/nowhere"], 1, "failed"),
        (vec!["status", "--no-such-option"], 2, "usage"),
        (vec!["--config", "/nowhere/config.json", "status"], 3, "config"),
        (vec!["--config", "/nowhere/config.json", "journal", "check"], 3, "config"),
        (vec!["--config", "/nowhere/config.json", "config", "check"], 3, "config"),
    ] {
        let body = printed(&place, &[arguments.as_slice(), &["--json"]].concat(), code);
        assert_eq!(body["error"]["code"], word, "{arguments:?}: {body}");
        assert!(body["error"]["message"].as_str().is_some_and(|message| !message.is_empty()), "{arguments:?}: {body}");
    }
    let story = printed(&place, &["logs", "--why", "api:nope", "--json"], 1);
    assert_eq!(story["known"], false, "the story says it: {story}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn successes_are_json() {
    let place = Place::new(json!({}));
    let onboard = printed(&place, &["onboard", "--json"], 0);
    assert!(onboard["created"].as_array().unwrap().len() > 3 && onboard["kept"].is_array(), "{onboard}");
    assert_eq!(printed(&place, &["status", "--json"], 0), json!({"running": false}));
    for what in ["check", "repair"] {
        assert_eq!(printed(&place, &["journal", what, "--json"], 0)["records"], 0, "a journal that is not there yet");
    }
    let gateway = place.start().await;
    gateway.say("cli:ann", "hello", "m1").await;
    let status = printed(&place, &["status", "--json"], 0);
    assert_eq!((&status["running"], &status["phase"]), (&json!(true), &json!("serving")), "{status}");
    assert!(status["pid"].as_u64().is_some_and(|pid| pid > 1), "{status}");
    for (door, scheme) in [("admin", "http://"), ("api", "http://"), ("websocket", "ws://")] {
        assert!(status["addresses"][door].as_str().is_some_and(|url| url.starts_with(scheme)), "{door}: {status}");
    }
    assert!(status["addresses"].get("webhook").is_none(), "it is not open: {status}");
    let missing = printed(&place, &["sessions", "show", "api:nope", "--json"], 1);
    assert_eq!(missing["error"]["code"], "not_found", "as the gateway said it: {missing}");
    let copies = tempfile::tempdir().unwrap();
    let copy = copies.path().join("copy");
    let copy = copy.to_str().unwrap();
    let backup = printed(&place, &["backup", copy, "--json"], 0);
    assert_eq!((&backup["dir"], backup["made"].is_string()), (&json!(copy), true), "{backup}");
    assert!(backup["workspace_files"].as_u64() > Some(0), "{backup}");
    let drained = printed(&place, &["gateway", "drain", "--wait", "--json"], 0);
    assert_eq!((&drained["draining"], &drained["ended"]), (&json!(true), &json!(true)), "{drained}");
    let elsewhere = Place::empty();
    let restored = printed(&elsewhere, &["restore", copy, "--json"], 0);
    assert_eq!(restored["data"], json!(elsewhere.path()), "{restored}");
    assert_eq!(restored["workspace_files"], backup["workspace_files"]);
    assert_eq!(printed(&elsewhere, &["config", "check", "--json"], 0)["errors"], json!([]));
}
