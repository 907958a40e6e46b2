//! The commands as a user runs them, without a gateway.

use serde_json::{Value, json};

use crate::support::{Place, said};

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
    child.stdin.take().unwrap().write_all(b"one\n\n/help\n/status\n /stop all\ntwo\n/quit\nthree\n").unwrap();
    let out = child.wait_with_output().unwrap();
    assert!(out.status.success());
    let answers = text(&out.stdout);
    for part in ["one", "/stop [all] – cancel", "Idle.\n", "Nothing was running.", "two"] {
        assert!(answers.contains(part), "{part}: {answers}");
    }
    assert!(!answers.contains("three"), "nothing is read after /quit: {answers}");
    let said: Vec<_> = said(&place.transcript("cli.direct")).into_iter().map(|(_, text)| text).collect();
    assert_eq!(
        (said.len(), said[0].as_str(), said[2].as_str()),
        (4, "one", "two"),
        "commands are no messages: {said:?}"
    );
}

#[test]
fn a_pipe_goes_on_behind_a_line_that_is_refused_and_fails_in_the_end() {
    use std::io::Write;
    let place = Place::empty();
    let mut command = place.command(&["agent", "-s", "cli:pipe"]);
    command.stdin(std::process::Stdio::piped()).stdout(std::process::Stdio::piped());
    command.stderr(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one\n/quue\ntwo\n").unwrap();
    let out = child.wait_with_output().unwrap();
    let told = text(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{told}");
    assert!(told.contains("Did you mean /queue?") && told.contains("1 line of the input failed"), "{told}");
    let said: Vec<_> = said(&place.transcript("cli.pipe")).into_iter().map(|(_, text)| text).collect();
    assert_eq!((said.len(), said[0].as_str(), said[2].as_str()), (4, "one", "two"), "{said:?}");
}

#[test]
fn what_is_not_used_of_the_configuration_is_told_where_it_is_looked_for() {
    let place = Place::new(json!({"colour": "green"}));
    let agent = place.run(&["agent", "-m", "hello"]);
    assert_eq!((agent.status.success(), text(&agent.stderr)), (true, String::new()));
    let check = place.run(&["config", "check"]);
    assert!(text(&check.stdout).contains("unknown key colour"), "{check:?}");
}

#[test]
fn commands_never_reach_the_model() {
    let place = Place::empty();
    for (message, code, words) in [
        ("/help", 0, "/status"),
        (" /STATUS ", 0, "Model: "),
        ("/stop", 0, "Nothing is running here."),
        ("/quit", 0, ""),
        ("/stop it", 2, "/stop [all]"),
        ("/hlep", 2, "Did you mean /help?"),
    ] {
        let out = place.run(&["agent", "-m", message]);
        let told = text(&out.stdout) + &text(&out.stderr);
        assert_eq!((out.status.code(), told.contains(words)), (Some(code), true), "{message}: {told}");
    }
    assert!(!place.path().join("workspace/sessions/cli.direct.jsonl").exists(), "nothing was said");
    assert!(place.run(&["agent", "-m", "/usr/bin is a path"]).status.success());
    assert_eq!(said(&place.transcript("cli.direct"))[0].1, "/usr/bin is a path");
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

/// What `doctor --json` says of one thing: its verdict and its words.
fn diagnosis(place: &Place, arguments: &[&str], name: &str) -> (String, String) {
    let out = place.run(&[&["doctor", "--json"], arguments].concat());
    let report: Value = serde_json::from_slice(&out.stdout).unwrap();
    let checks = report["checks"].as_array().unwrap();
    let bad = checks.iter().any(|check| check["verdict"] == "bad");
    assert_eq!((out.status.code(), report["error"].is_object()), (Some(i32::from(bad)), bad), "{report}");
    let check = checks.iter().find(|check| check["name"] == name);
    let check = check.unwrap_or_else(|| panic!("{name} is missing in {report}"));
    (check["verdict"].as_str().unwrap().to_owned(), check["detail"].as_str().unwrap().to_owned())
}

#[test]
fn doctor_says_what_it_found() {
    let place = Place::empty();
    for name in ["provider", "data", "workspace", "locks", "sandbox", "file limit", "clock"] {
        diagnosis(&place, &[], name);
    }
    let (verdict, detail) = diagnosis(&place, &[], "configuration");
    assert_eq!((verdict.as_str(), detail.contains("built-in settings are used")), ("warning", true), "{detail}");
    let (verdict, detail) = diagnosis(&place, &["--config", "/nowhere/config.json"], "configuration");
    assert_eq!((verdict.as_str(), detail.as_str()), ("bad", "/nowhere/config.json: is not there"));
    let (_, detail) = diagnosis(&place, &[], "disk space");
    assert!(detail.contains(" free; the journal"), "{detail}");

    assert!(diagnosis(&place, &[], "journal").1.starts_with("not there yet"));
    assert!(place.run(&["agent", "-m", "hello"]).status.success());
    let (verdict, detail) = diagnosis(&place, &[], "journal");
    assert_eq!((verdict.as_str(), detail.starts_with("1 segment, ")), ("ok", true), "{detail}");
    let segment = place.path().join("journal/0000000000000001.seg");
    let mut bytes = std::fs::read(&segment).unwrap();
    bytes[4096 + 60] ^= 0x55;
    std::fs::write(&segment, &bytes).unwrap();
    let (verdict, detail) = diagnosis(&place, &[], "journal");
    assert_eq!(verdict, "bad");
    assert!(
        detail.contains("0000000000000001.seg at byte ") && detail.contains("`greenroom journal repair`"),
        "{detail}"
    );
    assert_eq!(std::fs::read(&segment).unwrap(), bytes, "it was only read");
}

#[test]
fn config_check_lists_errors_and_warnings_with_their_places() {
    let place = Place::empty();
    place.write_config("{\"api\": {\"prot\": 1}}");
    let out = place.run(&["config", "check"]);
    assert!(out.status.success());
    assert!(text(&out.stdout).contains("did you mean port?"), "{}", text(&out.stdout));
    place.write_config(
        "{\"api\": {\"port\": 70000, \"prot\": 1},\n \"agents\": {\"defaults\": {\"provider\": \"openai\"}},\n \
         \"channels\": {\"websocket\": {\"allowFrom\": []}}, \"transcription\": {},\n \"admin\": {\"token\": 12345678}}",
    );
    let file = place.path().join("config.json").display().to_string();
    let out = place.run(&["config", "check"]);
    assert_eq!(out.status.code(), Some(3));
    let expected = [
        format!("{file}: not usable, 3 errors, 3 warnings"),
        format!("error: {file}:1:18: api.port must be a whole number from 0 to 65535, found the number 70000"),
        format!("error: {file}:4:21: admin.token must be text, found a number"),
        format!(
            "error: {file}:2:38: providers.openai.apiKey is not set and provider openai has no key; set it or the \
             environment variable OPENAI_API_KEY"
        ),
        format!("warning: {file}:1:33: unknown key api.prot is ignored; did you mean port?"),
        format!("warning: {file}:3:65: not used by this version, in the top level: transcription"),
        format!("warning: {file}:3:42: channels.websocket.allowFrom is empty, so nobody can connect"),
    ];
    assert_eq!(text(&out.stdout).lines().collect::<Vec<_>>(), expected);
    let out = place.run(&["config", "check", "--json"]);
    assert_eq!(out.status.code(), Some(3));
    let body: Value = serde_json::from_slice(&out.stdout).unwrap();
    assert_eq!((&body["error"]["code"], &body["usable"]), (&Value::from("config"), &Value::from(false)), "{body}");
    for (list, prefix) in [("errors", "error: "), ("warnings", "warning: ")] {
        let expected: Vec<_> = expected.iter().filter_map(|line| line.strip_prefix(prefix)).collect();
        let items = body[list].as_array().unwrap();
        assert_eq!(items.len(), expected.len(), "{body}");
        for (item, line) in items.iter().zip(expected) {
            let place = format!("{file}:{}:{}: ", item["line"], item["column"]);
            assert!(line.starts_with(&place) && line.ends_with(item["message"].as_str().unwrap()), "{line}: {item}");
            assert!(line.contains(item["key"].as_str().unwrap()), "{line}: {item}");
        }
    }
}

#[test]
fn journal_check_reads_what_a_run_left() {
    let place = Place::empty();
    assert!(place.run(&["agent", "-m", "hello"]).status.success());
    let out = place.run(&["journal", "check"]);
    assert!(out.status.success(), "{}", text(&out.stderr));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_finds_nothing_says_so_on_standard_error() {
    let place = Place::new(json!({}));
    let ran = |arguments: &[&str]| {
        let out = place.run(arguments);
        assert_eq!(out.status.code(), Some(0), "{arguments:?}");
        [out.stdout, out.stderr].map(|text| String::from_utf8(text).unwrap())
    };
    let gateway = place.start().await;
    let asks = |there: bool| {
        for (arguments, says) in [
            (&["logs", "--session", "nope"][..], "no events match"),
            (&["logs", "--session", "nope", "--json"], "no events match"),
            (&["logs", "--event", "process_started"], ""),
            (&["tree", "--path", "/nowhere/*"], "nothing in the tree matches /nowhere/*"),
            (&["tree", "--path", "/journal*"], ""),
        ] {
            if there || arguments[0] == "logs" {
                let [out, error] = ran(arguments);
                assert!(error.contains(says) && error.is_empty() == says.is_empty(), "{arguments:?}: {error}");
                assert_eq!(out.is_empty(), !says.is_empty() && arguments[0] == "logs", "{arguments:?}: {out}");
            }
        }
    };
    tokio::task::block_in_place(|| {
        asks(true);
        let [out, _] = ran(&["gateway", "drain", "--wait"]);
        assert_eq!(out.lines().last(), Some("the gateway has ended"), "nothing was open");
    });
    drop(gateway);
    asks(false);
}
