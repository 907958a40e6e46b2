//! What the environment says.

use super::*;

#[test]
fn placeholders_are_filled_and_all_missing_ones_are_named() {
    let text = r#"{"providers": {"x": {"apiKey": "a-${T}-${T}", "extraHeaders": {"H": "${T}"}}}, "api": {"port": "${PORT}"},
        "agents": {"defaults": {"botName": "$T ${ ${1} ${a-b} ${"}}}"#;
    let config = accepted(text, &[("T", "t${T}"), ("PORT", "9001")]);
    assert_eq!(config.providers["x"].api_key, Some(Secret::new("a-t${T}-t${T}")), "filled once, not again");
    assert_eq!(config.providers["x"].extra_headers["H"].expose(), "t${T}");
    assert_eq!((config.api.port, config.agents.defaults.bot_name.as_str()), (9001, "$T ${ ${1} ${a-b} ${"));

    let said = refused(
        "{\"providers\": {\"x\": {\"apiKey\": \"${NOT_SET}\"}},\n\"channels\": {\"telegram\": {\"list\": [1, \"${OTHER}${NOT_SET}\"]}}}",
        &[],
    );
    assert_eq!(
        said,
        "3 settings cannot be used:\
         \n  /d/config.json:1:32: providers.x.apiKey needs the environment variable NOT_SET, which is not set\
         \n  /d/config.json:2:39: channels.telegram.list[1] needs the environment variable OTHER, which is not set\
         \n  /d/config.json:2:39: channels.telegram.list[1] needs the environment variable NOT_SET, which is not set"
    );
}

#[test]
fn a_placeholder_that_nothing_closes_is_told_and_not_taken_for_a_value() {
    let said = refused(
        "{\"providers\": {\"x\": {\"apiKey\": \"${SECRET\"}},\n\"api\": {\"host\": \"${T} and ${HOST or\"},\n\"x\": [\"${A ${T}\"]}",
        &[("T", "t"), ("SECRET", "s"), ("HOST", "h")],
    );
    let what = "has a `${` with a name behind it, but no `}`: the value of a variable is written ${NAME}";
    let places = ["1:32: providers.x.apiKey", "2:17: api.host", "3:7: x[0]"];
    let lines: String = places.iter().map(|place| format!("\n  /d/config.json:{place} {what}")).collect();
    assert_eq!(said, format!("3 settings cannot be used:{lines}"));
}

#[test]
fn our_variables_win_over_the_file_and_foreign_ones_fill_it() {
    let text = r#"{"api": {"port": 9100, "timeout": null}, "providers": {"openai": {"extraHeaders": {"A": "file"}}}}"#;
    let config = accepted(
        text,
        &[
            ("GREENROOM_API__PORT", "9200"),
            ("NANOBOT_API__PORT", "7777"),
            ("NANOBOT_API__TIMEOUT", "7.5"),
            ("NANOBOT_GATEWAY__PORT", "7778"),
            ("GREENROOM_GATEWAY__PORT", "7779"),
            ("NANOBOT_PROVIDERS__OPENAI__EXTRA_HEADERS", r#"{"A": "fill"}"#),
            ("GREENROOM_PROVIDERS__MY_LLM__API_BASE", "http://x"),
            ("GREENROOM_AGENTS__DEFAULTS__MODEL", "4711"),
            ("GREENROOM_AGENTS__DEFAULTS__BOTNAME", "\"quoted\""),
            ("GREENROOM_CHANNELS__WEBSOCKET__ALLOW_FROM", r#"["a", "b"]"#),
            ("GREENROOM_CHANNELS__WEBSOCKET__ALLOWED_ORIGINS", "https://a"),
            ("GREENROOM_TOOLS__EXEC__ENABLE", "false"),
            ("GREENROOM_RUNTIME", r#"{"inboxMax": 3}"#),
            ("GREENROOM_JOURNAL__MAX_BYTES", ""),
            ("NANOBOT_MAX_CONCURRENT_REQUESTS", "x"),
            ("GREENROOM_HOME", "/x"),
            ("GREENROOM_LOG", "debug"),
            ("GREENROOM_CALL", "0193"),
        ],
    );
    assert_eq!((config.api.port, config.api.timeout, config.gateway.port), (9200, 7.5, 7779));
    assert_eq!(config.providers["openai"].extra_headers["A"].expose(), "file");
    assert_eq!(config.providers["my_llm"].api_base.as_deref(), Some("http://x"));
    assert_eq!((config.agents.defaults.model.as_str(), config.agents.defaults.bot_name.as_str()), ("4711", "quoted"));
    assert_eq!(config.channels.websocket.allow_from, ["a", "b"]);
    assert_eq!(config.channels.websocket.allowed_origins, ["https://a"]);
    assert_eq!((config.tools.exec.enable, config.runtime.inbox_max), (false, 3));
    assert_eq!(config.journal, Journal::default());

    let cleared = accepted(r#"{"api": {"apiKey": "k"}}"#, &[("GREENROOM_API__API_KEY", "")]);
    assert_eq!(cleared.api.api_key, None);
}

#[test]
fn a_bad_variable_is_named_and_an_unknown_one_is_a_warning() {
    for (variable, value, expect) in [
        (
            "GREENROOM_API__PORT",
            "70000",
            "environment variable GREENROOM_API__PORT: api.port must be a whole number from 0 to 65535",
        ),
        ("NANOBOT_API__PORT", "secret", "environment variable NANOBOT_API__PORT: api.port must be a whole number"),
        (
            "GREENROOM_RUNTIME",
            r#"{"inboxMax": "secret"}"#,
            "environment variable GREENROOM_RUNTIME: runtime.inboxMax must be",
        ),
        ("GREENROOM_API", "secret", "environment variable GREENROOM_API: api must be an object, found text"),
        ("GREENROOM_API__HOST", "0.0.0.0", "environment variable GREENROOM_API__HOST: api.host can be reached"),
    ] {
        let said = refused("{}", &[(variable, value)]);
        assert!(said.starts_with(expect) && !said.contains("secret"), "{said}");
    }
    for (variable, expect) in [
        ("GREENROOM_API__PROT", "unknown key api.prot is ignored; did you mean port?"),
        ("GREENROOM_NOTHING", "unknown key nothing is ignored"),
        ("GREENROOM_API__PORT__DEEPER", "unknown key api.port.deeper is ignored"),
        ("GREENROOM_TRANSCRIPTION__X", "not used by this version, in the top level: transcription"),
    ] {
        assert_eq!(warned("{}", &[(variable, "1")]), [format!("environment variable {variable}: {expect}")]);
    }
    assert_eq!(warned("{}", &[("NANOBOT_NOTHING", "1"), ("NANOBOT_API__PROT", "1")]), [""; 0]);
}
