//! From a [`ChatRequest`] to the body of a streamed chat completion: pure. The body is written straight from the
//! request, without a tree of values in between: it is most of what a model call costs here.

use std::borrow::Cow;
use std::sync::Arc;

use domain::chat::{Arguments, AssistantMessage, Content, Message, ToolCall, ToolResult, plain_text};
use domain::request::{ChatRequest, SYSTEM_SEPARATOR, ToolChoice, ToolSpec};
use serde::ser::{Serialize, SerializeMap, SerializeSeq, Serializer};
use serde_json::value::{RawValue, to_raw_value};
use serde_json::{Map, Value, json};

use super::quirks::{IdForm, Quirks, wire_id};

/// What stands for reasoning that nobody has, where a message must have some.
const NO_REASONING: &str = "(not kept)";
/// Tools of MCP servers, which come last and change more often than the others.
const MCP: &str = "mcp_";

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
    /// Whether it says what the server is to cache.
    marked: bool,
    system_text: Arc<RawValue>,
    tools_text: Arc<RawValue>,
}

impl Steady {
    /// As `request` has it.
    pub fn of(request: &ChatRequest, marked: bool) -> Self {
        let (system, tools) = (Arc::clone(&request.system), Arc::clone(&request.tools));
        let system_text = to_raw_value(&Said { text: (&*system).into(), marked });
        let system_text = system_text.expect("a text can be written").into();
        let tools_text = to_raw_value(&Tools(&tools, marked)).expect("JSON values can be written").into();
        Self { system, tools, marked, system_text, tools_text }
    }

    /// Whether it is that of `request` too. Takes what is equal but not the same for different.
    pub fn fits(&self, request: &ChatRequest, marked: bool) -> bool {
        self.marked == marked && Arc::ptr_eq(&self.system, &request.system) && Arc::ptr_eq(&self.tools, &request.tools)
    }
}

/// Not for anybody to change: the reply is read as a stream.
const STREAM: &str = "stream";

impl Serialize for Body<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { request, quirks, steady } = self;
        let mut ours = Ours { map: serializer.serialize_map(None)?, extra: &quirks.extra_body, done: Vec::new() };
        ours.put("model", &request.model)?;
        ours.put("messages", &Messages(request, steady, quirks))?;
        if !request.tools.is_empty() {
            ours.put("tools", &steady.tools_text)?;
            if request.choice == ToolChoice::None {
                ours.put("tool_choice", &"none")?;
            }
        }
        if let Some(effort) = &request.effort {
            ours.put("reasoning_effort", effort)?;
        }
        ours.put(quirks.bound(&request.model), &request.max_tokens)?;
        if request.effort.is_none() && quirks.has_temperature(&request.model) {
            ours.put("temperature", &decimal(request.temperature))?;
        }
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

struct Messages<'a>(&'a ChatRequest, &'a Steady, &'a Quirks);

impl Serialize for Messages<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(ChatRequest { system, system_tail, messages, .. }, steady, quirks) = *self;
        let mut all = serializer.serialize_seq(None)?;
        match system_tail.as_deref() {
            None if system.is_empty() => {}
            None => all.serialize_element(&Text { role: "system", content: &*steady.system_text })?,
            Some(tail) if system.is_empty() => all.serialize_element(&Text { role: "system", content: tail })?,
            Some(tail) if steady.marked => {
                // Marked is what stays the same.
                let parts = [part(system, true), part(tail, false)];
                all.serialize_element(&Text { role: "system", content: &parts })?;
            }
            Some(tail) => {
                let content = format!("{system}{SYSTEM_SEPARATOR}{tail}");
                all.serialize_element(&Text { role: "system", content: content.as_str() })?;
            }
        }
        // What comes before the last message is asked for again with the next one.
        let cached = messages.len().checked_sub(2).filter(|_| steady.marked);
        for (at, message) in messages.iter().enumerate() {
            let marked = cached == Some(at);
            match message {
                Message::User(content) => {
                    all.serialize_element(&User { role: "user", content: UserContent(content, marked) })?
                }
                Message::Assistant(answer) => all.serialize_element(&assistant(answer, marked, quirks))?,
                Message::ToolResult(result) => all.serialize_element(&tool_result(result, marked, quirks.id_form))?,
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

/// A text, as a list of one part where that part says that it is to be cached. An empty one never is.
struct Said<'a> {
    text: Cow<'a, str>,
    marked: bool,
}

impl Serialize for Said<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self { text, marked } = self;
        if !marked || text.is_empty() {
            return serializer.serialize_str(text);
        }
        [part(text, true)].serialize(serializer)
    }
}

/// Content, and whether it is to be cached.
struct UserContent<'a>(&'a [Content], bool);

impl Serialize for UserContent<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(pieces, marked) = *self;
        if let [Content::Text { text }] = pieces {
            return Said { text: text.into(), marked }.serialize(serializer);
        }
        if pieces.iter().all(|piece| matches!(piece, Content::Text { .. })) {
            return Said { text: plain_text(pieces).into(), marked }.serialize(serializer);
        }
        serializer.collect_seq(pieces.iter().enumerate().map(|(at, piece)| {
            let mut part = match piece {
                Content::Text { text } => part(text, false),
                Content::Image { data, mime, path: _ } => {
                    json!({"type": "image_url", "image_url": {"url": format!("data:{mime};base64,{data}")}})
                }
            };
            if marked && at + 1 == pieces.len() {
                part["cache_control"] = ephemeral();
            }
            part
        }))
    }
}

/// A part of a content, and whether what goes up to here is to be cached.
fn part(text: &str, marked: bool) -> Value {
    let mut part = json!({"type": "text", "text": text});
    if marked {
        part["cache_control"] = ephemeral();
    }
    part
}

/// The mark of what is to be cached up to here.
fn ephemeral() -> Value {
    json!({"type": "ephemeral"})
}

#[derive(serde::Serialize)]
struct Assistant<'a> {
    role: &'static str,
    content: Option<Said<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    reasoning_content: Option<&'a str>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    tool_calls: Vec<Value>,
}

fn assistant<'a>(answer: &'a AssistantMessage, marked: bool, quirks: &Quirks) -> Assistant<'a> {
    let calls = !answer.calls.is_empty();
    let silent = answer.text.is_empty() && calls;
    let content = (!silent).then(|| Said { text: (&answer.text).into(), marked });
    let reasoning = answer.reasoning.as_deref().filter(|reasoning| !reasoning.trim().is_empty());
    let reasoning_content = (quirks.resend_reasoning && calls).then(|| reasoning.unwrap_or(NO_REASONING));
    let tool_calls = answer.calls.iter().map(|call| tool_call(call, quirks.id_form)).collect();
    Assistant { role: "assistant", content, reasoning_content, tool_calls }
}

fn tool_call(call: &ToolCall, form: IdForm) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(map) => json!(map).to_string(),
        // Servers fail over history with arguments that are no JSON; the tool's error tells the model what it wrote.
        Arguments::Malformed { .. } => "{}".to_owned(),
    };
    let id = wire_id(&call.id.0, form);
    json!({"id": id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

#[derive(serde::Serialize)]
struct Outcome<'a> {
    role: &'static str,
    tool_call_id: Cow<'a, str>,
    content: Said<'a>,
}

fn tool_result(result: &ToolResult, marked: bool, form: IdForm) -> Outcome<'_> {
    let content = Said { text: plain_text(&result.content).into(), marked };
    Outcome { role: "tool", tool_call_id: wire_id(&result.call.0, form), content }
}

/// All tools, and whether they say what is to be cached: our own by themselves, and all together.
struct Tools<'a>(&'a [ToolSpec], bool);

#[derive(serde::Serialize)]
struct Tool<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    function: Function<'a>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<Value>,
}

#[derive(serde::Serialize)]
struct Function<'a> {
    name: &'a str,
    description: &'a str,
    parameters: &'a Value,
}

impl Serialize for Tools<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Self(tools, marked) = *self;
        let own = tools.iter().rposition(|tool| !tool.name.starts_with(MCP));
        serializer.collect_seq(tools.iter().enumerate().map(|(at, tool)| {
            let ToolSpec { name, description, parameters, .. } = tool;
            let cache_control = (marked && (own == Some(at) || at + 1 == tools.len())).then(ephemeral);
            Tool { kind: "function", function: Function { name, description, parameters }, cache_control }
        }))
    }
}

#[cfg(test)]
mod tests;
