use domain::chat::StopReason;
use domain::ids::ToolCallId;

use super::*;

fn call(id: &str, arguments: Arguments) -> ToolCall {
    ToolCall { id: ToolCallId(id.into()), name: "read".to_owned(), arguments }
}

fn request() -> ChatRequest {
    let answer = AssistantMessage {
        reasoning: Some("hm".to_owned()),
        calls: vec![
            call("c1", Arguments::Object(json!({"b": 1, "a": 2}).as_object().unwrap().clone())),
            call("c2", Arguments::Malformed { text: "{".to_owned(), problem: "no JSON".to_owned() }),
        ],
        stop: StopReason::ToolUse,
        ..AssistantMessage::new("", "p", "m")
    };
    let result = |id: &str| {
        let content = vec![Content::text("one"), Content::text("two")];
        let (call, name) = (ToolCallId(id.into()), "read".to_owned());
        Message::ToolResult(ToolResult { call, name, content, is_error: false }.into())
    };
    let picture = Content::Image { data: "aGk=".into(), mime: "image/png".to_owned(), path: None };
    ChatRequest {
        model: "m".into(),
        system: "be good".into(),
        system_tail: None,
        messages: vec![
            Message::User([Content::text("look"), picture].into()),
            Message::Assistant(answer.into()),
            result("c1"),
            result("c2"),
            Message::User([Content::text("and?")].into()),
        ]
        .into(),
        tools: [ToolSpec {
            name: "read".to_owned(),
            description: "reads".to_owned(),
            parameters: json!({"type": "object"}),
            parallel: true,
            idempotent: true,
        }]
        .into(),
        choice: ToolChoice::Auto,
        effort: None,
        tokens: 0,
        max_tokens: 100,
        temperature: 0.1,
    }
}

#[test]
fn every_kind_of_message_has_its_form() {
    let call = |id: &str, arguments: &str| json!({"id": id, "type": "function", "function": {"name": "read", "arguments": arguments}});
    let expected = json!({
        "model": "m",
        "messages": [
            {"role": "system", "content": "be good"},
            {"role": "user", "content": [
                {"type": "text", "text": "look"},
                {"type": "image_url", "image_url": {"url": "data:image/png;base64,aGk="}},
            ]},
            {"role": "assistant", "content": null,
             "tool_calls": [call("c1", r#"{"b":1,"a":2}"#), call("c2", "{}")]},
            {"role": "tool", "tool_call_id": "c1", "content": "one\ntwo"},
            {"role": "tool", "tool_call_id": "c2", "content": "one\ntwo"},
            {"role": "user", "content": "and?"},
        ],
        "tools": [{"type": "function", "function":
            {"name": "read", "description": "reads", "parameters": {"type": "object"}}}],
        "max_tokens": 100,
        "temperature": 0.1,
        "stream_options": {"include_usage": true},
        "stream": true,
    });
    let (request, quirks) = (request(), Quirks::default());
    let steady = Steady::of(&request, false).into();
    let body = Body { request: &request, quirks: &quirks, steady };
    assert_eq!(serde_json::to_string(&body).unwrap(), expected.to_string());
}

#[test]
fn a_conversation_has_its_own_system_text_tool_choice_and_effort() {
    let quirks = Quirks::default();
    let write = |request: &ChatRequest| {
        let body = Body { request, quirks: &quirks, steady: Arc::new(Steady::of(request, false)) };
        serde_json::to_value(&body).unwrap()
    };
    let usual = write(&request());
    let own = ChatRequest {
        system_tail: Some("in \"French\"".into()),
        choice: ToolChoice::None,
        effort: Some("low".into()),
        ..request()
    };
    let body = write(&own);
    let first = |body: &Value| body["messages"][0].clone();
    assert_eq!(first(&body), json!({"role": "system", "content": "be good\n\n---\n\nin \"French\""}));
    assert_eq!((&body["tool_choice"], &body["reasoning_effort"]), (&json!("none"), &json!("low")));
    assert_eq!(body["tools"], usual["tools"]);
    assert!(usual.get("tool_choice").is_none() && usual.get("reasoning_effort").is_none());
    assert!(body.get("temperature").is_none(), "models that are told how hard to think refuse it");
    golden(&own, &quirks, "own");
    let bare = write(&ChatRequest { system: "".into(), tools: [].into(), ..own });
    assert_eq!(first(&bare), json!({"role": "system", "content": "in \"French\""}));
    assert!(bare.get("tool_choice").is_none(), "servers refuse a choice among no tools");
}

#[test]
fn extra_fields_overrule_add_and_remove_but_never_the_stream() {
    let extra = json!({"temperature": null, "stream_options": null, "stream": false, "top_k": 4, "max_tokens": 5});
    let quirks = Quirks { extra_body: extra.as_object().unwrap().clone(), ..Quirks::default() };
    let bare = ChatRequest { system: "".into(), messages: Vec::new().into(), tools: [].into(), ..request() };
    let expected = json!({"model": "m", "messages": [], "max_tokens": 5, "stream": true, "top_k": 4});
    let steady = Arc::new(Steady::of(&bare, false));
    let body = |quirks: &Quirks| {
        let whole = Body { request: &bare, quirks, steady: Arc::clone(&steady) };
        serde_json::to_value(whole).unwrap()
    };
    assert_eq!(body(&quirks), expected);
    let newer = Quirks { openai: true, ..Quirks::default() };
    assert_eq!(body(&newer)["max_completion_tokens"], 100);
}

#[test]
fn what_is_written_once_fits_the_same_prompt_and_tools_alone() {
    let first = request();
    let steady = Steady::of(&first, false);
    assert!(steady.fits(&ChatRequest { messages: Vec::new().into(), ..first.clone() }, false));
    assert!(!steady.fits(&first, true));
    assert!(!steady.fits(&ChatRequest { system: "be bad".into(), ..first.clone() }, false));
    assert!(!steady.fits(&ChatRequest { tools: [].into(), ..first }, false));
}

/// The body is that of the golden file, byte for byte but for its layout. `GREENROOM_BLESS=1` writes the file anew.
#[track_caller]
fn golden(request: &ChatRequest, quirks: &Quirks, name: &str) {
    let steady = Steady::of(request, quirks.marks_cache(&request.model)).into();
    let body = serde_json::to_string(&Body { request, quirks, steady }).unwrap();
    let body = serde_json::to_string_pretty(&serde_json::from_str::<Value>(&body).unwrap()).unwrap() + "\n";
    let path = format!("{}/src/wire/openai/request/golden/{name}.json", env!("CARGO_MANIFEST_DIR"));
    if std::env::var_os("GREENROOM_BLESS").is_some() {
        std::fs::write(&path, &body).unwrap();
    }
    assert_eq!(body, std::fs::read_to_string(&path).unwrap(), "{name}");
}

#[test]
fn what_is_to_be_cached_is_marked_for_the_models_that_want_it() {
    let mut first = request();
    let tool = |name: &str| ToolSpec { name: name.to_owned(), ..first.tools[0].clone() };
    first.tools = [tool("exec"), tool("read"), tool("mcp_a_b"), tool("mcp_c_d")].into();
    first.model = "anthropic/claude".into();
    let quirks = Quirks::of("openrouter", "openrouter.ai");
    golden(&first, &quirks, "cache");
    let own = ChatRequest { system_tail: Some("in French".into()), ..first.clone() };
    golden(&own, &quirks, "cache_tail");
    // A picture is the last message but one; and other models see nothing of it.
    let shorter: Vec<Message> = first.messages.iter().take(2).cloned().collect();
    let shorter = ChatRequest { messages: shorter.into(), tools: [].into(), ..first.clone() };
    golden(&shorter, &quirks, "cache_picture");
    let other = ChatRequest { model: "m".into(), ..request() };
    golden(&other, &quirks, "plain");
    golden(&other, &Quirks::default(), "plain");
}

#[test]
fn reasoning_goes_back_once_and_only_where_it_is_wanted() {
    let mut asked = request();
    let again = asked.messages.iter().nth(1).unwrap().clone();
    let Message::Assistant(answer) = &again else { panic!("an answer comes second") };
    let silent = AssistantMessage { reasoning: Some(" ".to_owned()), ..AssistantMessage::clone(answer) };
    let said = AssistantMessage { calls: Vec::new(), text: "done".to_owned(), ..AssistantMessage::clone(answer) };
    asked.messages = vec![again.clone(), Message::Assistant(silent.into()), Message::Assistant(said.into())].into();
    let sent = |quirks: &Quirks| {
        let steady = Steady::of(&asked, false).into();
        let body = serde_json::to_value(Body { request: &asked, quirks, steady }).unwrap();
        let all = body["messages"].as_array().unwrap().iter().skip(1);
        all.map(|message| message.get("reasoning_content").cloned()).collect::<Vec<_>>()
    };
    assert_eq!(sent(&Quirks::of("moonshot", "")), [Some(json!("hm")), Some(json!(NO_REASONING)), None]);
    assert_eq!(sent(&Quirks::of("deepseek", "")), sent(&Quirks::of("moonshot", "")));
    assert_eq!(sent(&Quirks::default()), [None, None, None]);
}

#[test]
fn an_id_of_another_provider_is_made_to_fit_in_call_and_result_alike() {
    let long = format!("toolu_{}/é", "x".repeat(60));
    let mut asked = request();
    let rename = |id: &ToolCallId| if &*id.0 == "c1" { ToolCallId(long.as_str().into()) } else { id.clone() };
    let messages = asked.messages.iter().map(|message| match message {
        Message::Assistant(answer) => {
            let mut answer = AssistantMessage::clone(answer);
            answer.calls.iter_mut().for_each(|call| call.id = rename(&call.id));
            Message::Assistant(answer.into())
        }
        Message::ToolResult(result) => {
            let mut result = ToolResult::clone(result);
            result.call = rename(&result.call);
            Message::ToolResult(result.into())
        }
        Message::User(_) => message.clone(),
    });
    asked.messages = messages.collect::<Vec<_>>().into();
    for (name, chars) in [("p", 37), ("mistral", 9)] {
        let quirks = Quirks::of(name, "");
        let body = Body { request: &asked, quirks: &quirks, steady: Steady::of(&asked, false).into() };
        let body = serde_json::to_value(body).unwrap();
        let [call, other] = [0, 1].map(|at| body["messages"][2]["tool_calls"][at]["id"].as_str().unwrap());
        assert_eq!((call.len(), other == call), (chars, false), "{name}");
        assert_eq!(
            (body["messages"][3]["tool_call_id"].as_str(), body["messages"][4]["tool_call_id"].as_str()),
            (Some(call), Some(other))
        );
    }
}
