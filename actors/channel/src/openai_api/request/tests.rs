use proptest::prelude::*;

use super::*;

fn read(json: &str) -> Result<ChatRequest, Wrong> {
    parse(json.as_bytes(), "m")
}

fn context(request: &ChatRequest) -> Vec<(ContextRole, &str)> {
    request.body.context.iter().map(|message| (message.role, message.text.as_str())).collect()
}

#[test]
fn kinds_are_sorted() {
    assert!(KINDS.is_sorted_by_key(|kind| kind.0));
}

#[test]
fn a_single_message_belongs_to_a_session() {
    for (extra, session) in [
        ("", SessionName::Default),
        (r#","session_id":"s""#, SessionName::Id("s".into())),
        (r#","user":"u""#, SessionName::User("u".into())),
        (r#","user":"u","session_id":"s""#, SessionName::Id("s".into())),
        (r#","user":"","session_id":null"#, SessionName::Default),
    ] {
        let request = read(&format!(r#"{{"messages":[{{"role":"user","content":"hi"}}]{extra}}}"#)).unwrap();
        assert_eq!(request.session, session, "{extra}");
        assert_eq!(request.body, TurnBody::text("hi"));
        assert!(!request.stream && !request.include_usage);
    }
}

#[test]
fn a_request_with_a_history_brings_its_own() {
    let request = read(
        r#"{"model":"m","stream":true,"stream_options":{"include_usage":true},"temperature":0.1,"whatever":{},"messages":[
        {"role":"system","content":"be brief"},{"role":"user","content":"a"},{"role":"assistant","content":"b"},
        {"role":"assistant","content":null,"tool_calls":[]},{"role":"tool","content":"r","tool_call_id":"x"},
        {"role":"developer","content":[{"type":"text","text":"late"}]},{"role":"user","content":"c"}]}"#,
    )
    .unwrap();
    assert_eq!(request.session, SessionName::Stateless);
    assert!(request.body.ephemeral && request.stream && request.include_usage);
    assert_eq!(request.body.history, HistorySource::Request);
    assert_eq!(*request.body.content, [Content::text("c")]);
    assert_eq!(
        context(&request),
        [
            (ContextRole::System, "be brief"),
            (ContextRole::User, "a"),
            (ContextRole::Assistant, "b"),
            (ContextRole::Assistant, "r"),
            (ContextRole::System, "late"),
        ]
    );
}

#[test]
fn system_text_alone_keeps_the_sessions_history() {
    let request = read(r#"{"messages":[{"role":"system","content":"s"},{"role":"user","content":"a"}]}"#).unwrap();
    assert_eq!(request.session, SessionName::Default);
    assert_eq!(request.body.history, HistorySource::Session);
    let two = read(r#"{"messages":[{"role":"user","content":"a"},{"role":"user","content":"b"}],"user":"u"}"#).unwrap();
    assert_eq!(two.body.history, HistorySource::Request);
    assert!(!two.body.ephemeral);
    assert_eq!(context(&two), [(ContextRole::User, "a")]);
}

#[test]
fn pictures_come_as_data_urls() {
    let request = read(
        r#"{"messages":[{"role":"user","content":[{"type":"text","text":"see"},
        {"type":"image_url","image_url":{"url":"data:image/png;base64,iVBORw0KGgo=","detail":"low"}},
        {"type":"image_url","image_url":"data:image/png;base64,R0lGODlh"}]}]}"#,
    )
    .unwrap();
    let image = |data: &str, mime: &str| Content::Image { data: data.into(), mime: mime.to_owned(), path: None };
    let (png, gif) = (image("iVBORw0KGgo=", "image/png"), image("R0lGODlh", "image/gif"));
    assert_eq!(*request.body.content, [Content::text("see"), png, gif], "of the type that the bytes have");
}

#[test]
fn wrong_requests_name_the_field() {
    let user = r#""messages":[{"role":"user","content":"hi"}]"#;
    for (json, code, param) in [
        ("", "invalid_json", None),
        ("{", "invalid_json", None),
        ("[]", "invalid_json", None),
        ("{}", "missing_required_parameter", Some("messages")),
        (r#"{"messages":{}}"#, "invalid_type", Some("messages")),
        (r#"{"messages":[]}"#, "invalid_value", Some("messages")),
        (r#"{"messages":["hi"]}"#, "invalid_type", Some("messages[0]")),
        (r#"{"messages":[{"content":"hi"}]}"#, "missing_required_parameter", Some("messages[0].role")),
        (r#"{"messages":[{"role":1,"content":"hi"}]}"#, "invalid_type", Some("messages[0].role")),
        (r#"{"messages":[{"role":"king","content":"hi"}]}"#, "invalid_value", Some("messages[0].role")),
        (r#"{"messages":[{"role":"user"}]}"#, "missing_required_parameter", Some("messages[0].content")),
        (r#"{"messages":[{"role":"user","content":5}]}"#, "invalid_type", Some("messages[0].content")),
        (r#"{"messages":[{"role":"user","content":" "}]}"#, "invalid_value", Some("messages[0].content")),
        (r#"{"messages":[{"role":"user","content":[]}]}"#, "invalid_value", Some("messages[0].content")),
        (r#"{"messages":[{"role":"user","content":["a"]}]}"#, "invalid_type", Some("messages[0].content[0]")),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"text","text":1}]}]}"#,
            "invalid_type",
            Some("messages[0].content[0].text"),
        ),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"input_audio"}]}]}"#,
            "unsupported_value",
            Some("messages[0].content[0].type"),
        ),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"https://x/y.png"}}]}]}"#,
            "invalid_value",
            Some("messages[0].content[0].image_url.url"),
        ),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":{"url":"data:image/png;base64,a*"}}]}]}"#,
            "invalid_value",
            Some("messages[0].content[0].image_url.url"),
        ),
        (
            r#"{"messages":[{"role":"user","content":[{"type":"image_url","image_url":"data:image/png;base64,aGk="}]}]}"#,
            "invalid_value",
            Some("messages[0].content[0].image_url"),
        ),
        (r#"{"messages":[{"role":"assistant","content":"hi"}]}"#, "invalid_value", Some("messages")),
        (&format!(r#"{{"model":"other",{user}}}"#), "model_not_found", Some("model")),
        (&format!(r#"{{"model":7,{user}}}"#), "invalid_type", Some("model")),
        (&format!(r#"{{"stream":"yes",{user}}}"#), "invalid_type", Some("stream")),
        (&format!(r#"{{"stream_options":[],{user}}}"#), "invalid_type", Some("stream_options")),
        (
            &format!(r#"{{"stream_options":{{"include_usage":1}},{user}}}"#),
            "invalid_type",
            Some("stream_options.include_usage"),
        ),
        (&format!(r#"{{"session_id":5,{user}}}"#), "invalid_type", Some("session_id")),
        (&format!(r#"{{"session_id":"a\nb",{user}}}"#), "invalid_value", Some("session_id")),
        (&format!(r#"{{"session_id":"","user":"u",{user}}}"#), "invalid_value", Some("session_id")),
        (&format!(r#"{{"user":[],{user}}}"#), "invalid_type", Some("user")),
        (&format!(r#"{{"n":2,{user}}}"#), "unsupported_value", Some("n")),
        (&format!(r#"{{"temperature":"hot",{user}}}"#), "invalid_type", Some("temperature")),
        (&format!(r#"{{"max_tokens":1.5,{user}}}"#), "invalid_type", Some("max_tokens")),
    ] {
        let wrong = read(json).unwrap_err();
        assert_eq!((wrong.code, wrong.param.as_deref()), (code, param), "{json}");
        assert!(!wrong.message.is_empty());
    }
    assert_eq!(parse(b"{\"messages\":\"\xff\"}", "m").unwrap_err().code, "invalid_json");
}

proptest! {
    #[test]
    fn no_body_makes_the_reader_panic(bytes in prop::collection::vec(any::<u8>(), 0..200), text in "\\PC{0,60}") {
        let _ = parse(&bytes, "m");
        let _ = read(&format!(r#"{{"messages":[{text}]}}"#));
    }
}
