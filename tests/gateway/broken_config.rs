//! A configuration that cannot be used stops what runs agents, and nothing that looks after a data directory.

use serde_json::json;

use crate::support::Place;

const BROKEN: &str = r#"{
  "agents": {"defaults": {"provider": "openai"}},
  "providers": {"openai": {"apiKey": "${NOT_SET_ANYWHERE}"}},
  "api": {"port": "many"}
}"#;

/// Runs a command that goes on without what cannot be used, and says so. Returns what it printed.
fn goes_on(place: &Place, arguments: &[&str]) -> String {
    let out = place.run(arguments);
    let (said, warned) = (String::from_utf8(out.stdout).unwrap(), String::from_utf8(out.stderr).unwrap());
    assert!(out.status.success(), "{arguments:?}: {said}{warned}");
    for word in [":3:38: providers.openai.apiKey needs", ":4:19: api.port must be a whole number"] {
        let told = warned.lines().any(|line| line.contains("config.json") && line.contains(word));
        assert!(told, "{arguments:?} does not say {word}: {warned}");
    }
    said
}

fn refused(place: &Place, arguments: &[&str], words: &str) {
    let out = place.run(arguments);
    let warned = String::from_utf8(out.stderr).unwrap();
    assert_eq!(out.status.code(), Some(3), "{arguments:?}: {warned}");
    assert!(warned.contains(words), "{arguments:?}: {warned}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn operations_go_on_without_what_cannot_be_used() {
    let place = Place::new(json!({}));
    let gateway = place.start().await;
    gateway.say("cli:ann", "hello", "m1").await;
    place.write_config(BROKEN);
    for arguments in [
        vec!["status"],
        vec!["tree"],
        vec!["top", "--once"],
        vec!["logs", "--why", "cli:ann"],
        vec!["deadletters", "list"],
    ] {
        goes_on(&place, &arguments);
    }
    assert!(goes_on(&place, &["gateway", "drain", "--wait"]).contains("has ended"));
    assert!(goes_on(&place, &["status"]).contains("not running"));
    assert!(goes_on(&place, &["sessions", "list"]).contains("cli:ann"));
    assert!(goes_on(&place, &["sessions", "show", "cli:ann"]).contains("hello"));
    assert!(goes_on(&place, &["deadletters", "list"]).contains("no dead letters"));
    assert!(goes_on(&place, &["journal", "show", "--session", "cli:ann"]).contains("accepted"));
    assert!(goes_on(&place, &["journal", "check"]).contains("1 session,"));
    assert!(goes_on(&place, &["logs", "--event", "gateway_stopped"]).contains("gateway_stopped"));
    let copies = tempfile::tempdir().unwrap();
    let (copy, again) = (copies.path().join("copy"), Place::empty());
    goes_on(&place, &["backup", copy.to_str().unwrap()]);
    assert!(again.run(&["restore", copy.to_str().unwrap()]).status.success());
    assert!(goes_on(&again, &["sessions", "show", "cli:ann"]).contains("hello"));

    for arguments in [
        vec!["gateway"],
        vec!["agent", "-m", "x"],
        vec!["deadletters", "retry", "0193e0a1-7b1c-7000-8000-000000000001"],
    ] {
        refused(&place, &arguments, "providers.openai.apiKey needs the environment variable NOT_SET_ANYWHERE");
    }
    let doctor = place.run(&["doctor"]);
    let told = String::from_utf8(doctor.stdout).unwrap();
    assert_eq!(doctor.status.code(), Some(1), "{told}");
    assert!(told.contains("api.port must be") && told.contains("journal        1 segment, "), "{told}");
}

#[test]
fn an_uncertain_workspace_is_not_taken_for_another_one() {
    let place = Place::empty();
    for config in [r#"{"agents": {"defaults": {"workspace": "${NOT_SET_ANYWHERE}"}}}"#, "{"] {
        place.write_config(config);
        for arguments in [vec!["sessions", "list"], vec!["deadletters", "list"], vec!["onboard"]] {
            refused(&place, &arguments, "config.json:1:");
        }
        for arguments in [vec!["status"], vec!["logs"], vec!["journal", "check"]] {
            let out = place.run(&arguments);
            assert!(out.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&out.stderr));
        }
        let named = place.path().join("named");
        let out = place.run(&["--workspace", named.to_str().unwrap(), "sessions", "list"]);
        assert!(out.status.success(), "{}", String::from_utf8_lossy(&out.stderr));
        assert!(!place.path().join("workspace").exists(), "{config}");
    }
}

#[test]
fn what_has_to_go_is_not_decided_by_half_of_what_was_meant() {
    let place = Place::empty();
    place.write_config(r#"{"session": {"maintenance": {"maxEntries": 1, "pruneAfterDays": "many"}}}"#);
    refused(&place, &["sessions", "prune", "--dry-run"], ":1:65: session.maintenance.pruneAfterDays must be");
}
