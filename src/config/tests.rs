mod any;
mod variables;

use std::fs;

use serde_json::{Value, json};

use super::assemble::{Assembled, assemble};
use super::*;

const FILE: &str = "/d/config.json";

fn env(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect()
}

fn given(text: &str, variables: &[(&str, &str)]) -> Assembled {
    assemble(FILE.as_ref(), Some(text), &env(variables))
}

fn accepted(text: &str, variables: &[(&str, &str)]) -> Config {
    let assembled = given(text, variables);
    assert_eq!(assembled.problems, [], "{text}");
    assembled.config
}

fn refused(text: &str, variables: &[(&str, &str)]) -> String {
    let problems = given(text, variables).problems;
    assert_ne!(problems, [], "{text}");
    ConfigError::Invalid(problems).to_string()
}

fn warned(text: &str, variables: &[(&str, &str)]) -> Vec<String> {
    given(text, variables).warnings.iter().map(ToString::to_string).collect()
}

#[test]
fn no_file_and_an_empty_object_mean_the_defaults() {
    assert_eq!(assemble(FILE.as_ref(), None, &env(&[])).config, Config::default());
    assert_eq!(accepted("{}", &[]), Config::default());
    assert_eq!(accepted(r#"{"agents": null, "api": {"port": null, "apiKey": ""}}"#, &[]), Config::default());
}

#[test]
fn values_arrive_in_their_fields() {
    let config = accepted(
        r#"{
            "agents": {"defaults": {"max_tokens": 77, "botName": "Beet", "temperature": 0, "timezone": "Europe/Berlin"}},
            "providers": {"lmStudio": {"apiBase": "http://x", "extraHeaders": {"X-Camel_snake": "v"}, "extraBody": {"topK": {"aB": 1}}}},
            "channels": {"websocket": {"allowFrom": "me", "tokenTtlS": "30", "streaming": "false", "allowedOrigins": ["https://a"]}},
            "api": {"port": 9000.0, "timeout": 5, "apiKey": "k"},
            "tools": {"exec": {"sandbox": "", "timeout": 0}, "restrictToWorkspace": false},
            "runtime": {"arbiters": 2, "durability": "os"},
            "supervision": {"poisonAttempts": 4}
        }"#,
        &[],
    );
    let defaults = &config.agents.defaults;
    assert_eq!((defaults.max_tokens, defaults.bot_name.as_str(), defaults.temperature), (77, "Beet", 0.0));
    let provider = &config.providers["lm_studio"];
    assert_eq!(provider.extra_headers["X-Camel_snake"].expose(), "v");
    assert_eq!(Value::Object(provider.extra_body.clone()), json!({ "topK": { "aB": 1 } }));
    let socket = &config.channels.websocket;
    assert_eq!(
        (socket.allow_from.as_slice(), socket.token_ttl_s, socket.streaming),
        (["me".to_string()].as_slice(), 30, false)
    );
    assert_eq!((config.api.port, config.api.timeout), (9000, 5.0));
    assert_eq!((config.tools.exec.sandbox, config.tools.restrict_to_workspace), (Sandbox::Auto, false));
    assert_eq!((config.runtime.arbiters, config.runtime.durability), (Some(2), Durability::Os));
    assert_eq!(config.supervision.poison_attempts, 4);
    assert!(!format!("{config:?}").contains("\"k\""), "secrets do not print");
}

/// Files, and what is said about each.
const WRONG: &[(&str, &str)] = &[
    ("", "/d/config.json:1:1: is empty"),
    (" \n", "/d/config.json:1:1: is empty"),
    ("{\"agents\": {\"defaults\": {\"model\": \"x\",}}}", "/d/config.json:1:39: invalid JSON: trailing comma"),
    ("{\n  \"ü\": 1,\n  \"a\": yes\n}", "/d/config.json:3:8: invalid JSON"),
    ("{} x", "/d/config.json:1:4: invalid JSON: trailing characters"),
    ("{\n \"api\": {},\n \"api\": {}}", "/d/config.json:3:6: invalid JSON: the name api is given twice in one object"),
    ("[1, 2]", "/d/config.json:1:1: the top level must be an object, found a list"),
    ("null", "the top level must be an object, found null"),
    (
        "{\n \"api\": {\"port\": \"abc\"}}",
        "/d/config.json:2:18: api.port must be a whole number from 0 to 65535, found the text \"abc\"",
    ),
    ("{\"api\": {\"port\": 65536}}", "api.port must be a whole number from 0 to 65535, found the number 65536"),
    ("{\"api\": {\"port\": -1}}", "api.port must be a whole number from 0 to 65535"),
    (
        "{\"agents\": {\"defaults\": {\"maxToolResultChars\": -1}}}",
        "agents.defaults.maxToolResultChars must be a whole number from 100 to 10000000",
    ),
    (
        "{\"channels\": {\"webhook\": {\"maxMessageChars\": -5}}}",
        "channels.webhook.maxMessageChars must be a whole number from 100 to 10000000",
    ),
    ("{\"api\": {\"port\": 1.5}}", "api.port must be a whole number from 0 to 65535"),
    ("{\"api\": {\"port\": true}}", "api.port must be a whole number from 0 to 65535, found true"),
    ("{\"api\": 5}", "/d/config.json:1:9: api must be an object, found a number"),
    ("{\"api\": {\"host\": \" \"}}", "api.host must not be empty"),
    ("{\"api\": {\"host\": 1}}", "api.host must be text, found the number 1"),
    (
        "{\"agents\": {\"defaults\": {\"temperature\": 3}}}",
        "agents.defaults.temperature must be a number from 0 to 2, found the number 3",
    ),
    (
        "{\"channels\": {\"websocket\": {\"allowFrom\": [\"a\", 7]}}}",
        "channels.websocket.allowFrom must be a list of texts; item 2 is the number 7",
    ),
    (
        "{\"channels\": {\"websocket\": {\"enabled\": 1}}}",
        "channels.websocket.enabled must be true or false, found the number 1",
    ),
    (
        "{\"tools\": {\"exec\": {\"sandbox\": \"docker\"}}}",
        "tools.exec.sandbox must be one of auto, bwrap, off, found the text \"docker\"",
    ),
    ("{\"providers\": {\"x\": \"key\"}}", "/d/config.json:1:21: providers.x must be an object, found text"),
    (
        "{\"providers\": {\"x\": {\"extraHeaders\": {\"A\": 1}}}}",
        "providers.x.extraHeaders must be an object whose values are all texts; A is a number",
    ),
    (
        "{\"agents\": {\"defaults\": {\"maxTokens\": 10, \"max_tokens\": 20}}}",
        "agents.defaults.maxTokens is given twice, as maxTokens and as max_tokens",
    ),
    ("{\"providers\": {\"lmStudio\": {}, \"lm-studio\": {}}}", "is given twice, as lmStudio and as lm-studio"),
    (
        "{\"tools\": {\"exec\": {\"restrictToWorkspace\": \"so\"}}}",
        "tools.exec.restrictToWorkspace must be true or false, found the text \"so\"",
    ),
    (
        "{\"agents\": {\"defaults\": {\n\"timezone\": \"Mars/Olympus\"}}}",
        "/d/config.json:2:13: agents.defaults.timezone is no time zone known here",
    ),
    (
        "{\"api\": {\"host\": \"0.0.0.0\"}}",
        "/d/config.json:1:18: api.host can be reached from other machines, which needs a key: set api.apiKey",
    ),
    ("{\"api\": {\"host\": \"::\", \"apiKey\": \" \"}}", "set api.apiKey"),
    ("{\"gateway\": {\"host\": \"10.1.2.3\"}}", "set admin.token"),
    (
        "{\"channels\": {\"websocket\": {\"host\": \"example.org\"}}}",
        "set channels.websocket.token or channels.websocket.tokenIssueSecret",
    ),
    (
        "{\"channels\": {\"websocket\": {\"host\": \"0.0.0.0\", \"token\": \"t\", \"websocketRequiresToken\": false}}}",
        "channels.websocket.websocketRequiresToken must not be false",
    ),
    (
        "{\"channels\": {\"websocket\": {\"host\": \"0.0.0.0\", \"token\": \"t\", \"tokenIssuePath\": \"/t\"}}}",
        "set channels.websocket.tokenIssueSecret too",
    ),
    ("{\"channels\": {\"websocket\": {\"path\": \"ws\"}}}", "channels.websocket.path must start with /"),
    (
        "{\"channels\": {\"webhook\": {\"enabled\": true}}}",
        "/d/config.json:1:38: channels.webhook.url must be the http:// or https:// address that replies are sent to",
    ),
    (
        "{\"channels\": {\"webhook\": {\"enabled\": true, \"url\": \"ftp://h/x\"}}}",
        "channels.webhook.url must be the http:// or https://",
    ),
    (
        "{\"channels\": {\"webhook\": {\"enabled\": true, \"url\": \"http://h\", \"host\": \"0.0.0.0\"}}}",
        "set channels.webhook.token, or the host 127.0.0.1",
    ),
    ("{\"channels\": {\"webhook\": {\"secret\": \"whsec_*\"}}}", "channels.webhook.secret must go on in base64"),
    (
        "{\"channels\": {\"webhook\": {\"enabled\": true, \"url\": \"http://h\", \"port\": 8900}}}",
        "channels.webhook.port is the same as api.port",
    ),
    ("{\"api\": {\"port\": 8765}}", "/d/config.json:1:18: channels.websocket.port is the same as api.port"),
    (
        "{\"journal\": {\"maxBytes\": 268435456, \"segmentBytes\": 1073741824}}",
        "journal.maxBytes must be at least four times",
    ),
    ("{\"supervision\": {\"backoffBaseMs\": 60000}}", "supervision.backoffBaseMs must not exceed"),
];

#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (text, expect) in WRONG {
        let said = refused(text, &[]);
        assert!(said.contains(expect), "{text}\n  {said}\n  {expect}");
    }
}

#[test]
fn all_wrong_settings_are_listed_at_once() {
    let said = refused(
        r#"{"api": {"port": "abc"}, "agents": {"defaults": {"maxTokens": []}}}"#,
        &[("GREENROOM_GATEWAY__PORT", "x")],
    );
    assert!(said.starts_with("3 settings cannot be used:\n"), "{said}");
    for part in ["api.port", "agents.defaults.maxTokens", "environment variable GREENROOM_GATEWAY__PORT: gateway.port"]
    {
        assert!(said.contains(part), "{said}");
    }
}

#[test]
fn unknown_and_unused_keys_are_warnings() {
    assert_eq!(warned(r#"{"colour": "green"}"#, &[]), ["/d/config.json:1:12: unknown key colour is ignored"]);
    assert_eq!(
        warned(r#"{"agents": {"defaults": {"max_tokns": 5}}, "gatway": {}}"#, &[]),
        [
            "/d/config.json:1:39: unknown key agents.defaults.max_tokns is ignored; did you mean maxTokens?",
            "/d/config.json:1:54: unknown key gatway is ignored; did you mean gateway?",
        ]
    );
    assert_eq!(
        warned(
            r#"{"transcription": {}, "channels": {"telegram": {"enabled": true}, "sendMaxRetries": 2, "newchat": {}}}"#,
            &[]
        ),
        [
            "/d/config.json:1:99: unknown key channels.newchat is ignored",
            "/d/config.json:1:19: not used by this version, in the top level: transcription",
            "/d/config.json:1:48: not used by this version, in channels: telegram, sendMaxRetries",
        ]
    );
    let pasted = format!(r#"{{"{}": 1, "a\nb": 1}}"#, "sk".repeat(40));
    assert!(
        warned(&pasted, &[]).iter().all(|said| said.ends_with("unknown key … is ignored")),
        "{:?}",
        warned(&pasted, &[])
    );
    assert_eq!(
        warned(r#"{"channels": {"websocket": {"websocketRequiresToken": true}}}"#, &[]),
        [
            "/d/config.json:1:55: channels.websocket.websocketRequiresToken is true but neither token nor tokenIssueSecret is set, so nobody can connect"
        ]
    );
}

#[test]
fn an_old_place_counts_until_the_new_one_is_used() {
    assert!(!accepted(r#"{"tools": {"exec": {"restrictToWorkspace": false}}}"#, &[]).tools.restrict_to_workspace);
    for text in [
        r#"{"tools": {"restrictToWorkspace": true, "exec": {"restrictToWorkspace": false}}}"#,
        r#"{"tools": {"exec": {"restrict_to_workspace": false}, "restrict_to_workspace": true}}"#,
    ] {
        assert!(accepted(text, &[]).tools.restrict_to_workspace, "{text}");
    }
    let minutes = |text| accepted(text, &[]).agents.defaults.idle_compact_after_minutes;
    assert_eq!(minutes(r#"{"agents": {"defaults": {"sessionTtlMinutes": 0}}}"#), 0);
    assert_eq!(minutes(r#"{"agents": {"defaults": {"sessionTtlMinutes": 5, "idleCompactAfterMinutes": 7}}}"#), 7);
}

#[test]
fn files_are_read_with_their_faults() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("config.json");
    let request = |config: Option<&Path>| LoadRequest {
        config: config.map(Path::to_path_buf),
        workspace: None,
        env: env(&[("GREENROOM_HOME", home.path().to_str().unwrap())]),
    };
    let loaded = load(&request(None)).unwrap();
    assert_eq!((loaded.file, &loaded.config), (FileState::Absent, &Config::default()));
    assert_eq!(loaded.paths.sessions, home.path().join("workspace/sessions"));
    assert!(matches!(loaded.provider, ProviderChoice::Offline { .. }));

    let refused = |config: Option<&Path>| load(&request(config)).unwrap_err().to_string();
    let at = |place: &str| format!("{}{place}", file.display());
    assert_eq!(refused(Some(&file)), at(": is not there"));

    fs::write(&file, "\u{feff}{\"api\": {\"port\": 9001}}").unwrap();
    assert_eq!(load(&request(None)).unwrap().config.api.port, 9001, "a byte order mark is no fault");

    fs::write(&file, b"{\"a\": \"\xff\"}").unwrap();
    assert_eq!(refused(None), at(":1:8: is not UTF-8 text"));

    fs::write(&file, " ".repeat(FILE_BYTES_MAX as usize + 1)).unwrap();
    assert!(refused(None).starts_with(&at(": has ")));

    fs::write(&file, r#"{"agents": {"defaults": {"provider": "openai"}}}"#).unwrap();
    assert!(refused(None).starts_with(&at(":1:38: providers.openai.apiKey is not set")), "{}", refused(None));

    fs::remove_file(&file).unwrap();
    fs::create_dir(&file).unwrap();
    assert!(refused(None).starts_with(&at(": cannot be read: ")), "a directory is no file");
}

#[test]
fn sessions_settings_that_cannot_be_meant_are_told() {
    for (text, words) in [
        (r#"{"bindings":[{"agentId":"a","match":{"channel":"x"}},{"agentId":"a"}]}"#, "bindings [1] must name"),
        (r#"{"session":{"identityLinks":{"":["x:1"]}}}"#, "session.identityLinks has a name that cannot be"),
        (r#"{"session":{"identityLinks":{"a\u0001":["x:1"]}}}"#, "session.identityLinks has a name that cannot be"),
        (r#"{"session":{"identityLinks":{"a":["x:1"],"b":["x:1"]}}}"#, "session.identityLinks gives one id to two"),
    ] {
        let said = refused(text, &[]);
        assert!(said.contains(words), "{text}: {said}");
    }
    for (text, words) in [
        (r#"{"session":{"maintenance":{"mode":"enforce"}}}"#, "session.maintenance.mode does nothing without"),
        (r#"{"session":{"reset":{"mode":"idle"}}}"#, "session.reset.mode is idle, which does nothing"),
    ] {
        let said = warned(text, &[]);
        assert!(said.iter().any(|said| said.contains(words)), "{text}: {said:?}");
    }
}

#[test]
fn a_default_preset_that_is_none_is_told_with_its_place() {
    let text = |preset: &str, more: &str| {
        format!(
            r#"{{"modelPresets": {{"fastOne": {{"model": "m"{more}}}}},
            "agents": {{"defaults": {{"modelPreset": "{preset}"}}}}}}"#
        )
    };
    assert_eq!(accepted(&text("fast-one", ""), &[]).agents.defaults.model, "m");
    for (preset, more, said) in [
        (
            "fastOn",
            "",
            "/d/config.json:2:52: agents.defaults.modelPreset names no entry of modelPresets; did you mean fast_one?",
        ),
        (
            "slow",
            "",
            "/d/config.json:2:52: agents.defaults.modelPreset names no entry of modelPresets; there are fast_one",
        ),
        ("fastOne", r#", "provider": "opnai""#, "/d/config.json:1:"),
    ] {
        let found = refused(&text(preset, more), &[]);
        assert!(found.starts_with(said), "{found}");
        assert!(more.is_empty() || found.contains("modelPresets.fastOne.provider names no known provider"), "{found}");
    }
    let alone = refused(r#"{"agents": {"defaults": {"modelPreset": "fast"}}}"#, &[]);
    assert!(alone.ends_with("agents.defaults.modelPreset names a preset, but there are no modelPresets"), "{alone}");
}

#[test]
fn a_workspace_around_the_data_directory_is_doubtful() {
    let home = tempfile::tempdir().unwrap();
    let request = LoadRequest {
        config: None,
        workspace: Some(home.path().into()),
        env: env(&[("GREENROOM_HOME", home.path().join("data").to_str().unwrap())]),
    };
    let warnings = load(&request).unwrap().warnings;
    assert_eq!(warnings.len(), 1);
    let said = warnings[0].to_string();
    assert!(said.starts_with("option --workspace: agents.defaults.workspace contains the data directory"), "{said}");
    assert!(survey(&request).unwrap().workspace_known);
}

#[test]
fn what_can_be_used_is_used_beside_what_cannot() {
    let text = "{\n\"api\": {\"host\": \"0.0.0.0\", \"apiKey\": \"${NOT_SET}\", \"prot\": 1},\n\"agents\": {\"defaults\": {\"timezone\": \"Europe/Berlin\",
        \"provider\": \"openruter\"}},\n\"journal\": {\"segmentBytes\": 1073741824, \"maxBytes\": 268435456},\n\"channels\": {\"websocket\": {\"allowFrom\": [\"${NOT_SET}\"]}}}";
    let assembled = given(text, &[]);
    let said: Vec<_> = assembled.problems.iter().map(ToString::to_string).collect();
    let expected = [
        "/d/config.json:2:38: api.apiKey needs the environment variable NOT_SET, which is not set",
        "/d/config.json:6:42: channels.websocket.allowFrom[0] needs the environment variable NOT_SET, which is not set",
        "/d/config.json:5:53: journal.maxBytes must be at least four times journal.segmentBytes",
        "/d/config.json:4:21: agents.defaults.provider names no known provider and no entry under providers; did you mean openrouter?",
    ];
    assert_eq!(said, expected, "and nothing that only follows from these");
    assert_eq!(warned(text, &[]), ["/d/config.json:2:60: unknown key api.prot is ignored; did you mean port?"]);
    assert_eq!(assembled.config.agents.defaults.timezone, "Europe/Berlin");
}

#[test]
fn whoever_set_the_other_key_of_a_rule_is_named() {
    for (text, variables, expect) in [
        (
            "{\"api\": {}}",
            [("GREENROOM_GATEWAY__PORT", "8900")],
            "environment variable GREENROOM_GATEWAY__PORT: api.port",
        ),
        (
            "{\"journal\": {\"segmentBytes\": 1073741824}}",
            [("GREENROOM_JOURNAL__MAX_BYTES", "268435456")],
            "environment variable GREENROOM_JOURNAL__MAX_BYTES: journal.maxBytes",
        ),
        (
            "{\"supervision\": {\"backoffCapMs\": 1}}",
            [("GREENROOM_API__PORT", "1")],
            "/d/config.json:1:34: supervision.backoffBaseMs",
        ),
    ] {
        let said = refused(text, &variables);
        assert!(said.starts_with(expect), "{said}");
    }
}

#[test]
fn the_workspace_is_certain_only_when_nothing_hides_it() {
    let home = tempfile::tempdir().unwrap();
    let request = |workspace: Option<&str>| LoadRequest {
        config: None,
        workspace: workspace.map(PathBuf::from),
        env: env(&[("GREENROOM_HOME", home.path().to_str().unwrap())]),
    };
    for (text, known) in [
        (r#"{"api": {"port": "x"}}"#, true),
        (r#"{"agents": {"defaults": {"workspace": "garden", "provider": "nobody-at-all"}}}"#, true),
        (r#"{"agents": {"defaults": {"workspace": "${NOT_SET}"}}}"#, false),
        (r#"{"agents": {"defaults": {"workspace": "."}}}"#, false),
        (r#"{"agents": []}"#, false),
        ("{", false),
        ("", false),
    ] {
        fs::write(home.path().join("config.json"), text).unwrap();
        let surveyed = survey(&request(None)).unwrap();
        assert_eq!((surveyed.workspace_known, surveyed.require_workspace().is_ok()), (known, known), "{text}");
        assert_ne!(surveyed.paths.workspace, surveyed.paths.data);
        assert!(load(&request(None)).is_err(), "{text}");
        assert!(survey(&request(Some("/w"))).unwrap().workspace_known, "{text}");
    }
}

#[test]
fn what_works_otherwise_than_one_may_think_is_told() {
    let told = |text: &str, words: &str| {
        let said = warned(text, &[]);
        assert!(said.len() == 1 && said[0].contains(words), "{said:?}");
    };
    told(r#"{"tools": {"exec": {"sandbox": "off"}}}"#, "tools.exec.sandbox is off: commands of your own sessions");
    assert_eq!(warned(r#"{"tools": {"exec": {"sandbox": "off", "enable": false}}}"#, &[]), [""; 0]);
    let presets = r#"{"providers": {"openai": {"apiKey": "a"}, "deepseek": {"apiKey": "b"}},
        "agents": {"defaults": {"model": "gpt-5"}},
        "modelPresets": {"near": {"model": "gpt-5-mini"}, "farAway": {"model": "deepseek-chat"}}}"#;
    told(presets, "modelPresets.far_away needs another provider than the configured one, so it cannot be selected");
}
