//! From a [`ChatRequest`] to the body of a streamed chat completion: pure.

use domain::chat::{Arguments, AssistantMessage, Content, Message, ToolCall, ToolResult, plain_text};
use domain::request::{ChatRequest, ToolSpec};
use serde_json::{Map, Value, json};

/// What is special about a server, as far as its requests go.
#[derive(Debug, Clone, Default)]
pub struct Quirks {
    /// Whether the answer's bound is called `max_completion_tokens`.
    pub max_completion_tokens: bool,
    /// Further fields; they overrule ours, and null removes a field.
    pub extra_body: Map<String, Value>,
}

/// Builds the body.
pub fn body(request: &ChatRequest, quirks: &Quirks) -> Value {
    let mut body = Map::new();
    body.insert("model".to_owned(), json!(request.model));
    let mut messages = Vec::with_capacity(request.messages.len() + 1);
    if !request.system.is_empty() {
        messages.push(json!({"role": "system", "content": request.system}));
    }
    messages.extend(request.messages.iter().map(message));
    body.insert("messages".to_owned(), messages.into());
    if !request.tools.is_empty() {
        body.insert("tools".to_owned(), request.tools.iter().map(tool).collect());
    }
    let bound = if quirks.max_completion_tokens { "max_completion_tokens" } else { "max_tokens" };
    body.insert(bound.to_owned(), request.max_tokens.into());
    body.insert("temperature".to_owned(), decimal(request.temperature));
    body.insert("stream_options".to_owned(), json!({"include_usage": true}));
    for (name, value) in &quirks.extra_body {
        if value.is_null() {
            body.shift_remove(name);
        } else {
            body.insert(name.clone(), value.clone());
        }
    }
    // Not for anybody to change: the reply is read as a stream.
    body.insert("stream".to_owned(), true.into());
    Value::Object(body)
}

/// The number as it was written: `0.1`, not `0.10000000149011612`.
fn decimal(number: f32) -> Value {
    number.to_string().parse::<f64>().map_or(Value::Null, Value::from)
}

fn message(message: &Message) -> Value {
    match message {
        Message::User(content) => json!({"role": "user", "content": user_content(content)}),
        Message::Assistant(answer) => assistant(answer),
        Message::ToolResult(result) => tool_result(result),
    }
}

fn user_content(content: &[Content]) -> Value {
    if content.iter().all(|piece| matches!(piece, Content::Text { .. })) {
        return plain_text(content).into();
    }
    let part = |piece: &Content| match piece {
        Content::Text { text } => json!({"type": "text", "text": text}),
        Content::Image { data, mime } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{mime};base64,{data}")}})
        }
    };
    content.iter().map(part).collect()
}

fn assistant(answer: &AssistantMessage) -> Value {
    let mut message = Map::new();
    message.insert("role".to_owned(), "assistant".into());
    let silent = answer.text.is_empty() && !answer.calls.is_empty();
    message.insert("content".to_owned(), if silent { Value::Null } else { answer.text.as_str().into() });
    if !answer.calls.is_empty() {
        message.insert("tool_calls".to_owned(), answer.calls.iter().map(tool_call).collect());
    }
    Value::Object(message)
}

fn tool_call(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(map) => json!(map).to_string(),
        // Servers fail over history with arguments that are no JSON; the tool's error tells the model what it wrote.
        Arguments::Malformed { .. } => "{}".to_owned(),
    };
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}

fn tool_result(result: &ToolResult) -> Value {
    json!({"role": "tool", "tool_call_id": result.call, "content": plain_text(&result.content)})
}

fn tool(tool: &ToolSpec) -> Value {
    let function = json!({"name": tool.name, "description": tool.description, "parameters": tool.parameters});
    json!({"type": "function", "function": function})
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
        assert_eq!(body(&request(), &Quirks::default()).to_string(), expected.to_string());
    }

    #[test]
    fn extra_fields_overrule_add_and_remove_but_never_the_stream() {
        let extra = json!({"temperature": null, "stream_options": null, "stream": false, "top_k": 4, "max_tokens": 5});
        let quirks = Quirks { extra_body: extra.as_object().unwrap().clone(), max_completion_tokens: false };
        let bare = ChatRequest { system: "".into(), messages: Vec::new().into(), tools: [].into(), ..request() };
        let expected = json!({"model": "m", "messages": [], "max_tokens": 5, "stream": true, "top_k": 4});
        assert_eq!(body(&bare, &quirks), expected);
        let newer = Quirks { max_completion_tokens: true, ..Quirks::default() };
        assert_eq!(body(&bare, &newer)["max_completion_tokens"], 100);
    }
}
