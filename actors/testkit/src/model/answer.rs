//! From a request to its answer: pure.

use std::borrow::Cow;
use std::fmt::Write;

use domain::script::{Line, Script, ScriptedTurn, turn_of};
use domain::text::first_bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};

/// Longest text that is echoed, in bytes.
const ECHO_BYTES_MAX: usize = 4_000;

#[derive(Deserialize)]
pub(super) struct Request<'a> {
    #[serde(borrow, default)]
    model: Option<Cow<'a, str>>,
    #[serde(default)]
    stream: Option<bool>,
    #[serde(borrow)]
    messages: Vec<Message<'a>>,
    #[serde(default)]
    stream_options: Option<StreamOptions>,
    /// `"none"` forbids calls; a tool may be named, too.
    #[serde(default)]
    tool_choice: Option<Value>,
}

#[derive(Deserialize)]
struct StreamOptions {
    #[serde(default)]
    include_usage: Option<bool>,
}

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow, default)]
    content: Option<&'a RawValue>,
    #[serde(borrow, default)]
    tool_calls: Option<&'a RawValue>,
}

/// What the answer will be.
pub(super) struct Answer {
    head: String,
    model: String,
    pieces: Vec<String>,
    reasoning: Option<String>,
    /// Id, name, arguments.
    calls: Vec<(String, String, String)>,
    finish: String,
    usage: (u64, u64, u64),
    include_usage: bool,
}

/// A frame of a stream, and whether it waits for the time between two pieces.
pub(super) type Frame = (String, bool);

// === impl Request ===

impl Request<'_> {
    pub(super) fn streams(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    pub(super) fn turn(&self) -> ScriptedTurn<'static> {
        let turn = turn_of(self.messages.iter().rev().filter_map(Message::line));
        ScriptedTurn {
            text: Cow::Owned(turn.text.into_owned()),
            last_result: Cow::Owned(turn.last_result.into_owned()),
            ..turn
        }
    }
}

impl Message<'_> {
    fn line(&self) -> Option<Line<'static>> {
        match self.role.as_ref() {
            "user" => Some(Line::User(text_of(self.content).into())),
            "assistant" if self.tool_calls.is_some_and(|calls| !matches!(calls.get(), "null" | "[]")) => {
                Some(Line::Calls)
            }
            "assistant" => Some(Line::Answer),
            "tool" => Some(Line::Result(text_of(self.content).into())),
            _ => None,
        }
    }
}

/// The text of a content that is a string or a list of parts.
fn text_of(content: Option<&RawValue>) -> String {
    match content.and_then(|raw| serde_json::from_str(raw.get()).ok()) {
        Some(Value::String(text)) => text,
        Some(Value::Array(parts)) => {
            let texts: Vec<&str> = parts.iter().filter_map(|part| part.get("text")?.as_str()).collect();
            texts.join("\n")
        }
        _ => String::new(),
    }
}

// === impl Answer ===

impl Answer {
    /// `tokens` is used where the script names no number of pieces.
    pub(super) fn new(
        number: u64,
        request: &Request,
        body_bytes: usize,
        turn: &ScriptedTurn,
        script: &Script,
        tokens: usize,
    ) -> Self {
        let allowed = request.tool_choice.as_ref().is_none_or(|choice| choice != "none");
        let asked = script.calls_of(turn.round).into_iter().filter(|_| allowed);
        let calls = asked.enumerate().map(|(place, (name, arguments))| {
            (format!("call_{number}_{place}"), name.to_owned(), arguments.into_owned())
        });
        let calls: Vec<_> = calls.collect();
        let mut pieces = Vec::new();
        if calls.is_empty() && !script.empty {
            pieces.push(first_piece(turn, script));
            pieces.extend((1..script.tokens.unwrap_or(tokens)).map(|place| format!(" t{place}")));
        }
        let model = request.model.as_deref().unwrap_or("scripted");
        let finish = if calls.is_empty() { "stop" } else { "tool_calls" };
        let counted = (body_bytes.div_ceil(4) as u64, (pieces.len() + 8 * calls.len()) as u64, 0);
        Self {
            head: format!(r#""id":"chatcmpl-scripted-{number}","created":1700000000,"model":{}"#, Value::from(model)),
            model: model.to_owned(),
            pieces,
            reasoning: script.reasoning.clone(),
            finish: script.finish.clone().unwrap_or_else(|| finish.to_owned()),
            usage: script.usage.unwrap_or(counted),
            include_usage: request.stream_options.as_ref().is_some_and(|options| options.include_usage == Some(true)),
            calls,
        }
    }

    fn usage(&self) -> Value {
        let (input, output, cached) = self.usage;
        json!({"prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
            "prompt_tokens_details": {"cached_tokens": cached}})
    }

    /// The answer in one piece.
    pub(super) fn whole(&self) -> String {
        let mut message = json!({"role": "assistant", "content": null});
        if self.calls.is_empty() {
            message["content"] = self.pieces.concat().into();
        } else {
            let call = |(id, name, arguments): &(String, String, String)| json!({"id": id, "type": "function", "function": {"name": name, "arguments": arguments}});
            message["tool_calls"] = self.calls.iter().map(call).collect();
        }
        if let Some(reasoning) = &self.reasoning {
            message["reasoning_content"] = reasoning.as_str().into();
        }
        json!({"id": "chatcmpl-scripted", "object": "chat.completion", "created": 1_700_000_000, "model": self.model,
            "choices": [{"index": 0, "message": message, "finish_reason": self.finish}], "usage": self.usage()})
        .to_string()
    }

    /// The answer as frames of a stream, up to the finish reason; the index of the first one with text.
    pub(super) fn frames(&self) -> (Vec<Frame>, usize) {
        let mut frames = vec![(self.chunk(&json!({"role": "assistant", "content": ""}), None), false)];
        if let Some(reasoning) = &self.reasoning {
            frames.push((self.chunk(&json!({"reasoning_content": reasoning}), None), false));
        }
        let first_text = frames.len();
        for piece in &self.pieces {
            frames.push((self.chunk(&json!({"content": piece}), None), true));
        }
        for (index, (id, name, arguments)) in self.calls.iter().enumerate() {
            let function = json!({"name": name, "arguments": ""});
            let call = json!({"index": index, "id": id, "type": "function", "function": function});
            frames.push((self.chunk(&json!({"tool_calls": [call]}), None), true));
            let middle = arguments.floor_char_boundary(arguments.len() / 2);
            let (left, right) = arguments.split_at(middle);
            for part in [left, right].into_iter().filter(|part| !part.is_empty()) {
                let call = json!({"index": index, "function": {"arguments": part}});
                frames.push((self.chunk(&json!({"tool_calls": [call]}), None), true));
            }
        }
        (frames, first_text)
    }

    /// What ends the stream in good order.
    pub(super) fn last_frames(&self) -> Vec<Frame> {
        let mut frames = vec![(self.chunk(&json!({}), Some(&self.finish)), false)];
        if self.include_usage {
            let (head, usage) = (&self.head, self.usage());
            frames.push((format!("data: {{{head},\"choices\":[],\"usage\":{usage}}}\n\n"), false));
        }
        frames.push(("data: [DONE]\n\n".to_owned(), false));
        frames
    }

    fn chunk(&self, delta: &Value, finish: Option<&str>) -> String {
        let (head, finish) = (&self.head, Value::from(finish));
        let choice = format!(r#"{{"index":0,"delta":{delta},"finish_reason":{finish}}}"#);
        format!("data: {{{head},\"object\":\"chat.completion.chunk\",\"choices\":[{choice}]}}\n\n")
    }
}

fn first_piece(turn: &ScriptedTurn, script: &Script) -> String {
    let mut text = match (&script.say, &script.echo) {
        (Some(say), _) => say.clone(),
        (None, Some(echo)) => format!("echo:{echo}"),
        (None, None) => format!("echo:{}", first_bytes(&script.rest, ECHO_BYTES_MAX)),
    };
    if turn.results > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, " results={}", turn.results);
        if script.show_results {
            let _ = write!(text, " last_result={}", first_bytes(&turn.last_result, ECHO_BYTES_MAX));
        }
    }
    text
}
