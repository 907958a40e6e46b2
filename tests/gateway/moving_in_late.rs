//! Moving in from nanobot after the program was tried out here.

use std::path::Path;

use serde_json::{Value, json};

use crate::support::{Place, said};

/// nanobot's own main conversation, and its configuration.
fn nanobot(dir: &Path) {
    let sessions = dir.join("workspace/sessions");
    std::fs::create_dir_all(&sessions).unwrap();
    let lines = [
        json!({"_type": "metadata", "key": "cli:direct", "created_at": "2026-01-01T10:00:00", "updated_at": "2026-01-01T10:00:00", "metadata": {}}),
        json!({"role": "user", "content": "my old question", "timestamp": "2026-01-01T10:00:00"}),
        json!({"role": "assistant", "content": "its answer", "timestamp": "2026-01-01T10:00:01"}),
    ];
    let lines: Vec<String> = lines.iter().map(Value::to_string).collect();
    std::fs::write(sessions.join("cli_direct.jsonl"), lines.join("\n") + "\n").unwrap();
    let config = json!({
        "agents": {"defaults": {"model": "x/y", "botIcon": "x"}},
        "channels": {"websocket": {"port": 0}}, "api": {"port": 0}, "gateway": {"port": 0},
    });
    std::fs::write(dir.join("config.json"), config.to_string()).unwrap();
}

fn import(place: &Place, more: &[&str]) -> (Value, String, Option<i32>) {
    let out = place.run(&[&["import", "nanobot", "--json"], more].concat());
    let report: Value = serde_json::from_slice(&out.stdout).unwrap_or_else(|error| panic!("{error}: {out:?}"));
    (report, String::from_utf8(out.stderr).unwrap(), out.status.code())
}

/// What became of the thing whose name begins so.
fn item<'r>(report: &'r Value, name: &str) -> &'r Value {
    let mut items = report["items"].as_array().unwrap().iter();
    items.find(|item| item["name"].as_str().unwrap().starts_with(name)).unwrap_or_else(|| panic!("{name}: {report}"))
}

#[test]
fn what_only_tried_the_program_out_gives_way() {
    let place = Place::empty();
    nanobot(&place.path().join(".nanobot"));
    assert!(place.run(&["agent", "-m", "hello"]).status.success());
    assert!(place.run(&["onboard"]).status.success());

    let (planned, _, code) = import(&place, &["--dry-run"]);
    assert_eq!(code, Some(0), "{planned}");
    assert_eq!(said(&place.transcript("cli.direct"))[0].1, "hello", "a dry run changes nothing");
    let remarks = item(&planned, "config.json")["remarks"].to_string();
    assert!(remarks.contains("botIcon"), "what is not used is told before: {remarks}");

    let (done, told, code) = import(&place, &[]);
    assert_eq!((code, &done["items"]), (Some(0), &planned["items"]), "{told}");
    let config = std::fs::read_to_string(place.path().join("config.json")).unwrap();
    assert!(config.contains("x/y") && !config.contains("18790"), "{config}");
    assert_eq!(said(&place.transcript("cli.direct"))[0].1, "my old question");
    assert!(item(&done, "cli:direct")["remarks"].to_string().contains("goes into the archive"), "{done}");
    let archived = place.run(&["sessions", "show", "--archived", "cli:direct"]);
    assert!(String::from_utf8(archived.stdout).unwrap().contains("hello"), "what was said here is kept");

    assert!(place.run(&["agent", "-m", "goes on"]).status.success());
    assert_eq!(said(&place.transcript("cli.direct"))[2].1, "goes on");
    let (again, _, code) = import(&place, &[]);
    assert_eq!((code, &again["counts"]["imported"]), (Some(0), &json!(0)), "{again}");
}

#[test]
fn what_was_really_used_stays_and_it_is_said_how_the_rest_comes() {
    let place = Place::empty();
    nanobot(&place.path().join(".nanobot"));
    assert!(place.run(&["agent", "-m", "hello"]).status.success());
    let file = place.path().join("workspace/sessions/cli.direct.jsonl");
    let real = std::fs::read_to_string(&file).unwrap().replace("\"provider\":\"offline\"", "\"provider\":\"openai\"");
    std::fs::write(&file, real).unwrap();
    place.write_config(r#"{"gateway": {"port": 0}}"#);

    let (report, told, code) = import(&place, &[]);
    assert_eq!((code, &report["counts"]["conflicts"]), (Some(1), &json!(2)), "{report}");
    assert!(told.contains("2 things did not come"), "{told}");
    assert_eq!(said(&place.transcript("cli.direct"))[0].1, "hello");
    assert!(item(&report, "config.json")["how"].as_str().unwrap().contains("put that copy in its place"), "{report}");
    let how = item(&report, "cli:direct")["how"].as_str().unwrap().to_owned();
    assert!(how.contains("`greenroom sessions archive cli:direct`"), "{how}");
    assert!(place.run(&["sessions", "archive", "cli:direct"]).status.success());
    let (report, _, _) = import(&place, &[]);
    assert_eq!(item(&report, "cli:direct")["result"], "imported", "as it was said");
    assert_eq!(said(&place.transcript("cli.direct"))[0].1, "my old question");
    let out = place.run(&["agent", "-m", "goes on"]);
    assert!(out.status.success(), "{out:?}");
    assert_eq!(said(&place.transcript("cli.direct"))[2].1, "goes on");
}
