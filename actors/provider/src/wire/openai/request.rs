//! From a [`ChatRequest`] to the body of a streamed chat completion: pure. The body is written straight from the
//! request, without a tree of values in between: it is most of what a model call costs here.

use std::sync::Arc;

use domain::chat::{Arguments, AssistantMessage, Content, Message, ToolCall, ToolResult, plain_text};
use domain::request::{ChatRequest, SYSTEM_SEPARATOR, ToolChoice, ToolSpec};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

/// What is special about a server, as far as its requests go.
#[derive(Debug, Clone, Default)]
pub struct Quirks {
    /// Whether the answer's bound is called `max_completion_tokens`.
    pub max_completion_tokens: bool,
    /// Further fields; they overrule ours, and null removes a field.
    pub extra_body: Map<String, Value>,
}

/// The body of a request.
#[derive(Debug, Clone)]
pub struct Body<'a> {
    /// What is asked.
    pub request: &'a ChatRequest,
    /// Of whom.
    pub quirks: &'a Quirks,
    /// What [`Steady::of`] gave for it.
    pub steady: Arc<Steady>,
}

/// What is the same in nearly every request, as it stands in the body: written once.
#[derive(Debug, Clone)]
pub struct Steady {
    system: Arc<str>,
    tools: Arc<[ToolSpec]>,
    system_text: Arc<RawValue>,
    tools_text: Arc<RawValue>,
}

impl Steady {
    /// As `request` has it.
    pub fn of(request: &ChatRequest) -> Self {
        let (system, tools) = (Arc::clone(&request.system), Arc::clone(&request.tools));
        let system_text = to_raw_value(&*system).expect("a text can be written").into();
        let tools_text = to_raw_value(&Tools(&tools)).expect("JSON values can be written").into();
        Self { system, tools, system_text, tools_text }
    }

    /// Whether it is that of `request` too. Takes what is equal but not the same for different.
    pub fn fits(&self, request: &ChatRequest) -> bool {
        Arc::ptr_eq(&self.system, &request.system) && Arc::ptr_eq(&self.tools, &request.tools)
    }
}

/// Not for anybody to change: the reply is read as a stream.
const STREAM: &str = "stream";

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, quirks, steady } = self;
        let bound = if quirks.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
        let mut ours = Ours { map: serializer.serialize_map(None)?, extra: &quirks.extra_body, done: Vec::new() };
        ours.put("model", &request.model)?;
        ours.put("messages", &Messages(request, steady))?;
        if !request.tools.is_empty() {
            ours.put("tools", &steady.tools_text)?;
            if request.choice == ToolChoice::None {
                ours.put("tool_choice", &"none")?;
            }
        }
        if let Some(effort) = &request.effort {
            ours.put("reasoning_effort", effort)?;
        }
        ours.put(bound, &request.max_tokens)?;
        ours.put("temperature", &decimal(request.temperature))?;
        ours.put("stream_options", &json!({"include_usage": true}))?;
        let Ours { mut map, extra, done } = ours;
        for (name, value) in extra {
            if name != STREAM && !value.is_null() && !done.contains(&name.as_str()) {
                map.serialize_entry(name, value)?;
            }
        }
        map.serialize_entry(STREAM, &true)?;
        map.end()
    }
}

/// Writes our fields, unless they are overruled.
struct Ours<'a, M> {
    map: M,
    extra: &'a Map<String, Value>,
    done: Vec<&'static str>,
}

impl<M: SerializeMap> Ours<'_, M> {
    fn put(&mut self, name: &'static str, value: &impl Serialize) -> Result<(), M::Error> {
        self.done.push(name);
        match self.extra.get(name) {
            Some(Value::Null) => Ok(()),
            Some(other) => self.map.serialize_entry(name, other),
            None => self.map.serialize_entry(name, value),
        }
    }
}

/// The number as it was written: `0.1`, not `0.10000000149011612`.
fn decimal(number: f32) -> Option<f64> {
    number.to_string().parse().ok()
}

struct Messages<'a>(&'a ChatRequest, &'a Steady);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ChatRequest { system, system_tail, messages, .. }, steady) = *self;
        let mut all = serializer.serialize_seq(None)?;
        match system_tail.as_deref() {
            None if system.is_empty() => {}
            None => all.serialize_element(&Text { role: "system", content: &*steady.system_text })?,
            Some(tail) if system.is_empty() => all.serialize_element(&Text { role: "system", content: tail })?,
            Some(tail) => {
                let content = format!("{system}{SYSTEM_SEPARATOR}{tail}");
                all.serialize_element(&Text { role: "system", content: content.as_str() })?;
            }
        }
        for message in messages.iter() {
            match message {
                Message::User(content) => {
                    all.serialize_element(&User { role: "user", content: UserContent(content) })?
                }
                Message::Assistant(answer) => all.serialize_element(&assistant(answer))?,
                Message::ToolResult(result) => all.serialize_element(&tool_result(result))?,
            }
        }
        all.end()
    }
}

#[derive(serde::Serialize)]
struct Text<'a, T: ?Sized> {
    role: &'static str,
    content: &'a T,
}

#[derive(serde::Serialize)]
struct User<'a> {
    role: &'static str,
    content: UserContent<'a>,
}

struct UserContent<'a>(&'a [Content]);

impl Serialize for UserContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        if let [Content::Text { text }] = self.0 {
            return serializer.serialize_str(text);
        }
        if self.0.iter().all(|piece| matches!(piece, Content::Text { .. })) {
            return serializer.serialize_str(&plain_text(self.0));
        }
        serializer.collect_seq(self.0.iter().map(|piece| match piece {
            Content::Text { text } => json!({"type": "text", "text": text}),
            Content::Image { data, mime } => {
                json!({"type": "image_url", "image_url": {"url": format!("data:{mime};base64,{data}")}})
            }
        }))
    }
}

#[derive(serde::Serialize)]
struct Assistant<'a> {
    role: &'static str,
    content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

fn assistant(answer: &AssistantMessage) -> Assistant<'_> {
    let silent = answer.text.is_empty() && !answer.calls.is_empty();
    let content = (!silent).then_some(answer.text.as_str());
    Assistant { role: "assistant", content, tool_calls: answer.calls.iter().map(tool_call).collect() }
}

fn tool_call(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(map) => json!(map).to_string(),
        // Servers fail over history with arguments that are no JSON; the tool's error tells the model what it wrote.
        Arguments::Malformed { .. } => "{}".to_owned(),
    };
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

#[derive(serde::Serialize)]
struct Outcome<'a> {
    role: &'static str,
    tool_call_id: &'a str,
    content: String,
}

fn tool_result(result: &ToolResult) -> Outcome<'_> {
    Outcome { role: "tool", tool_call_id: &result.call.0, content: plain_text(&result.content) }
}

struct Tools<'a>(&'a [ToolSpec]);

#[derive(serde::Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
}

#[derive(serde::Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(self.0.iter().map(|tool| {
            let ToolSpec { name, description, parameters, .. } = tool;
            Tool { kind: "function", function: Function { name, description, parameters } }
        }))
    }
}

#[cfg(test)]
mod tests {
    use domain::chat::{StopReason, Usage};
    use domain::ids::ToolCallId;

    use super::*;

    fn call(id: &str, arguments: Arguments) -> ToolCall {
        ToolCall { id: ToolCallId(id.into()), name: "read".to_owned(), arguments }
    }

    fn request() -> ChatRequest {
        let answer = AssistantMessage {
            text: String::new(),
            reasoning: Some("hm".to_owned()),
            calls: vec![
                call("c1", Arguments::Object(json!({"b": 1, "a": 2}).as_object().unwrap().clone())),
                call("c2", Arguments::Malformed { text: "{".to_owned(), problem: "no JSON".to_owned() }),
            ],
            stop: StopReason::ToolUse,
            usage: Usage::default(),
            provider: "p".into(),
            model: "m".into(),
            error: None,
        };
        let result = |id: &str| {
            let content = vec![Content::text("one"), Content::text("two")];
            let (call, name) = (ToolCallId(id.into()), "read".to_owned());
            Message::ToolResult(ToolResult { call, name, content, is_error: false }.into())
        };
        let picture = Content::Image { data: "aGk=".into(), mime: "image/png".to_owned() };
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
        let steady = Steady::of(&request).into();
        let body = Body { request: &request, quirks: &quirks, steady };
        assert_eq!(serde_json::to_string(&body).unwrap(), expected.to_string());
    }

    #[test]
    fn a_conversation_has_its_own_system_text_tool_choice_and_effort() {
        let quirks = Quirks::default();
        let write = |request: &ChatRequest| {
            let body = Body { request, quirks: &quirks, steady: Arc::new(Steady::of(request)) };
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
        let bare = write(&ChatRequest { system: "".into(), tools: [].into(), ..own });
        assert_eq!(first(&bare), json!({"role": "system", "content": "in \"French\""}));
        assert!(bare.get("tool_choice").is_none(), "servers refuse a choice among no tools");
    }

    #[test]
    fn extra_fields_overrule_add_and_remove_but_never_the_stream() {
        let extra = json!({"temperature": null, "stream_options": null, "stream": false, "top_k": 4, "max_tokens": 5});
        let quirks = Quirks { extra_body: extra.as_object().unwrap().clone(), max_completion_tokens: false };
        let bare = ChatRequest { system: "".into(), messages: Vec::new().into(), tools: [].into(), ..request() };
        let expected = json!({"model": "m", "messages": [], "max_tokens": 5, "stream": true, "top_k": 4});
        let steady = Arc::new(Steady::of(&bare));
        let body = |quirks: &Quirks| {
            let whole = Body { request: &bare, quirks, steady: Arc::clone(&steady) };
            serde_json::to_value(whole).unwrap()
        };
        assert_eq!(body(&quirks), expected);
        let newer = Quirks { max_completion_tokens: true, ..Quirks::default() };
        assert_eq!(body(&newer)["max_completion_tokens"], 100);
    }

    #[test]
    fn what_is_written_once_fits_the_same_prompt_and_tools_alone() {
        let first = request();
        let steady = Steady::of(&first);
        assert!(steady.fits(&ChatRequest { messages: Vec::new().into(), ..first.clone() }));
        assert!(!steady.fits(&ChatRequest { system: "be bad".into(), ..first.clone() }));
        assert!(!steady.fits(&ChatRequest { tools: [].into(), ..first }));
    }
}
