//! The commands as a user runs them, without a gateway.

use serde_json::Value;

use crate::support::Place;

fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

#[test]
fn agent_answers_without_any_configuration_and_says_that_it_is_offline() {
    let place = Place::empty();
    let out = place.run(&["agent", "-m", "hello"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
    let answer = text(&out.stdout).to_lowercase();
    assert!(answer.contains("offline") && answer.contains("hello"), "{answer}");
}

#[test]
fn sessions_are_listed_and_shown_after_a_one_shot_run() {
    let place = Place::empty();
    for message in ["first", "second"] {
        assert!(place.run(&["agent", "-m", message, "-s", "cli:work"]).status.success());
    }
    let list: Value = serde_json::from_slice(&place.run(&["sessions", "list", "--json"]).stdout).unwrap();
    assert_eq!(list["items"].as_array().unwrap().len(), 1);
    assert_eq!(list["items"][0]["key"], "cli:work");
    let show = place.run(&["sessions", "show", "cli:work"]);
    let show = text(&show.stdout);
    assert!(show.contains("first") && show.contains("second"), "{show}");
    let missing = place.run(&["sessions", "show", "cli:nobody"]);
    assert_eq!(missing.status.code(), Some(1));
    assert!(text(&missing.stderr).contains("cli:nobody"));
}

#[test]
fn a_conversation_from_a_pipe_answers_line_by_line() {
    use std::io::Write;
    let place = Place::empty();
    let mut command = place.command(&["agent"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\n\ntwo\n").unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let answers = text(&out.stdout);
    assert!(answers.contains("one") && answers.contains("two"), "{answers}");
}

#[test]
fn exit_codes_tell_what_went_wrong() {
    let place = Place::empty();
    for (arguments, code) in [
        (vec!["no-such-command"], 2),
        (vec!["agent", "-m", "x", "-s", ""], 2),
        (vec!["tree"], 6),
        (vec!["--config", "/nowhere/config.json", "status"], 3),
        (vec!["logs", "--event", "exploded"], 2),
        (vec!["logs", "--why", ""], 2),
        (vec!["top", "--once"], 6),
        (vec!["--help"], 0),
        (vec!["--version"], 0),
        (vec!["status"], 0),
    ] {
        let out = place.run(&arguments);
        assert_eq!(out.status.code(), Some(code), "{arguments:?}: {}", text(&out.stderr));
    }
}

#[test]
fn onboard_writes_once_and_touches_nothing_that_exists() {
    let place = Place::empty();
    let first = place.run(&["onboard"]);
    assert!(first.status.success(), "{}", text(&first.stderr));
    let config = place.path().join("config.json");
    std::fs::write(&config, "{\"api\": {\"port\": 9999}}").unwrap();
    std::fs::write(place.path().join("workspace/SOUL.md"), "mine").unwrap();
    let second = place.run(&["onboard"]);
    assert!(second.status.success(), "{}", text(&second.stderr));
    assert_eq!(std::fs::read_to_string(config).unwrap(), "{\"api\": {\"port\": 9999}}");
    assert_eq!(std::fs::read_to_string(place.path().join("workspace/SOUL.md")).unwrap(), "mine");
}

#[test]
fn doctor_and_config_check_report_in_words_and_in_json() {
    let place = Place::empty();
    let out = place.run(&["doctor", "--json"]);
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let names: Vec<&str> = report["checks"].as_array().unwrap().iter().map(|c| c["name"].as_str().unwrap()).collect();
    for name in ["configuration", "provider", "data", "locks", "sandbox", "file limit", "clock"] {
        assert!(names.contains(&name), "{name} is missing in {names:?}");
    }
    place.write_config("{\"api\": {\"prot\": 1}}");
    let out = place.run(&["config", "check"]);
    assert!(out.status.success());
    assert!(text(&out.stdout).contains("port"), "the nearest key is named: {}", text(&out.stdout));
}

#[test]
fn journal_check_reads_what_a_run_left() {
    let place = Place::empty();
    assert!(place.run(&["agent", "-m", "hello"]).status.success());
    let out = place.run(&["journal", "check"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
}
