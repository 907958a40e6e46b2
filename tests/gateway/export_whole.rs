//! An export has all that is known of every session, or says what it lacks.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::Place;

fn export(place: &Place, more: &[&str]) -> (Value, Option<i32>) {
    let to = place.path().join("out");
    let out = place.run(&[&["export", "--to", "openclaw", to.to_str().unwrap(), "--json"], more].concat());
    let said = String::from_utf8_lossy(&out.stdout);
    let body = serde_json::from_str(&said);
    (
        body.unwrap_or_else(|error| panic!("{said:?} {}: {error}", String::from_utf8_lossy(&out.stderr))),
        out.status.code(),
    )
}

fn result<'r>(report: &'r Value, name: &str) -> &'r Value {
    let mut items = report["items"].as_array().unwrap().iter();
    items.find(|item| item["name"] == name).unwrap_or_else(|| panic!("{name} is told: {report}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_only_the_journal_has_after_a_kill_is_exported_or_told() {
    let place = Place::new(json!({"agents": {"defaults": {"provider": "offline"}}}));
    let gateway = place.start().await;
    for key in ["cli:lost", "cli:foreign", "cli:dir"] {
        gateway.say(key, "hello", "m1").await;
    }
    gateway.kill_nine();
    // The kill came before a byte of them was written. Into one somebody else wrote, and one cannot be written.
    let sessions = place.path().join("workspace/sessions");
    for name in ["lost", "foreign", "dir"] {
        // What the kill left of it, if anything.
        let _ = std::fs::remove_file(sessions.join(format!("cli.{name}.jsonl")));
    }
    let foreign = "{\"type\":\"custom\",\"id\":\"x\",\"parentId\":null}\n";
    std::fs::write(sessions.join("cli.foreign.jsonl"), foreign).unwrap();
    std::fs::create_dir(sessions.join("cli.dir.jsonl")).unwrap();
    let (report, code) = export(&place, &["--session", "cli:lost"]);
    assert_eq!((code, &result(&report, "cli:lost")["result"]), (Some(0), &json!("exported")), "{report}");
    assert!(place.transcript("cli.lost").iter().any(|line| line["message"]["role"] == "user"));
    for (at, (code, became)) in [(1, "exported"), (1, "already_here")].into_iter().enumerate() {
        let (report, ended) = export(&place, &[]);
        assert_eq!(
            (ended, &result(&report, "cli:lost")["result"]),
            (Some(code), &json!("already_here")),
            "{at} {report}"
        );
        assert_eq!(result(&report, "cli:foreign")["result"], became, "{at} {report}");
        let failed = result(&report, "cli:dir");
        assert_eq!(failed["result"], "failed", "{at} {report}");
        assert!(failed["why"].as_str().unwrap().contains("only in the journal"), "{failed}");
    }
    let file = std::fs::read_to_string(sessions.join("cli.foreign.jsonl")).unwrap();
    assert!(file.starts_with(foreign) && file.contains("hello"), "{file}");
}

#[test]
fn a_long_name_that_cannot_be_read_stops_no_other_session() {
    let place = Place::empty();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nanobot/datadir");
    assert_eq!(place.run(&["import", "nanobot", fixture.to_str().unwrap()]).status.code(), Some(0));
    let long = format!("{}~0123456789abcdef0123456789abcdef.jsonl", "a".repeat(150));
    std::fs::create_dir(place.path().join("workspace/sessions").join(&long)).unwrap();
    let (report, code) = export(&place, &[]);
    assert_eq!(code, Some(1));
    assert!(report["counts"]["exported"].as_u64().unwrap() > 25, "{}", report["counts"]);
    let failed = report["items"].as_array().unwrap().iter().filter(|item| item["result"] == "failed");
    let names: Vec<&str> = failed.map(|item| item["name"].as_str().unwrap()).collect();
    assert!(names.len() == 1 && names[0].ends_with(&long), "{names:?}");
}

#[test]
fn keys_of_other_channels_come_back_from_openclaw_as_they_were() {
    let place = Place::empty();
    let fixture = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/nanobot/datadir");
    assert_eq!(place.run(&["import", "nanobot", fixture.to_str().unwrap()]).status.code(), Some(0));
    let (report, code) = export(&place, &[]);
    assert_eq!(code, Some(0), "{report}");
    let back = Place::empty();
    let out = place.path().join("out");
    assert_eq!(back.run(&["import", "openclaw", out.to_str().unwrap()]).status.code(), Some(0));
    let keys = |place: &Place| {
        let out = place.run(&["sessions", "list", "--json"]);
        let list: Value = serde_json::from_slice(&out.stdout).unwrap();
        let items = list["items"].as_array().unwrap().iter();
        items.map(|item| item["key"].as_str().unwrap().to_owned()).collect::<std::collections::BTreeSet<_>>()
    };
    assert!(keys(&place).iter().any(|key| key.starts_with("telegram:")));
    assert_eq!(keys(&back), keys(&place));
}
