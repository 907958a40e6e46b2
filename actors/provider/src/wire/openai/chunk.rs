//! Puts the chunks of a streamed chat completion together: pure, and tolerant of everything that servers deviate in.
//!
//! A chunk is looked at as plain JSON: fields that are missing, of another type, or unknown, are as good as absent.

use domain::chat::{StopReason, ToolCall, Usage};
use domain::ids::ToolCallId;
use protocol::provider::Delta;
use serde_json::Value;

use crate::arguments;
use crate::retry::{CallError, ErrorAnswer};
use crate::wire::text_calls::{TextCall, TextCalls};
use crate::wire::think::{Parts, Think};

/// With these the calls of an answer count, and without any: in all other cases the answer is not what the model meant.
const CALLING: [&str; 3] = ["tool_calls", "function_call", "stop"];

/// Most tool calls in one answer.
const CALLS_MAX: usize = 128;

/// Most bytes of an answer: its text, its reasoning and its calls together. Written down as JSON, where a byte takes at
/// most six, it still fits into one record of the journal.
pub const ANSWER_BYTES_MAX: usize = 2 << 20;

/// The answer so far.
#[derive(Debug, Default)]
pub struct Assembly {
    text: String,
    reasoning: String,
    calls: Vec<PartialCall>,
    finish: Option<String>,
    usage: Usage,
    bytes: usize,
    think: Think,
    /// Whether the server tells reasoning apart itself: then tags in the text only repeat it.
    told_reasoning: bool,
    text_calls: Option<TextCalls>,
}

#[derive(Debug, Default)]
struct PartialCall {
    index: Option<u64>,
    id: String,
    name: String,
    arguments: String,
}

/// A finished answer.
#[derive(Debug, PartialEq)]
pub struct Answer {
    /// Visible text.
    pub text: String,
    /// Reasoning.
    pub reasoning: Option<String>,
    /// Tool calls.
    pub calls: Vec<ToolCall>,
    /// Why it ended.
    pub stop: StopReason,
    /// Token counts.
    pub usage: Usage,
}

impl Assembly {
    /// Of nothing yet; `text_calls` says whether calls that stand in the text count.
    pub fn new(text_calls: bool) -> Self {
        Self { text_calls: text_calls.then(TextCalls::default), ..Self::default() }
    }

    /// Whether the server said that the answer is complete.
    pub fn is_finished(&self) -> bool {
        self.finish.is_some()
    }

    /// Whether nothing has come yet.
    pub fn is_empty(&self) -> bool {
        self.bytes == 0 && self.calls.is_empty()
    }

    /// Takes a chunk and says what to show of it.
    pub fn take(&mut self, chunk: &Value) -> Result<Vec<Delta>, CallError> {
        if let Some(error) = chunk.get("error").filter(|error| !error.is_null()) {
            return Err(CallError::Answered(error_answer(200, error)));
        }
        if let Some(usage) = chunk.get("usage").filter(|usage| usage.is_object()) {
            self.usage = read_usage(usage);
        }
        let Some(choice) = chunk.get("choices").and_then(|choices| choices.get(0)) else { return Ok(Vec::new()) };
        let mut deltas = Vec::new();
        // Some servers end with a whole message where a delta is due; what it repeats is not taken twice.
        let whole = choice.get("message").filter(|_| self.is_empty());
        if let Some(delta) = choice.get("delta").filter(|delta| delta.is_object()).or(whole) {
            self.take_delta(delta, &mut deltas)?;
        }
        if let Some(finish) = choice.get("finish_reason").and_then(Value::as_str).filter(|finish| !finish.is_empty()) {
            self.finish = Some(finish.to_owned());
        }
        Ok(deltas)
    }

    fn take_delta(&mut self, delta: &Value, deltas: &mut Vec<Delta>) -> Result<(), CallError> {
        let reasoning = ["reasoning_content", "reasoning"].into_iter().map(|name| text_of(delta.get(name)));
        if let Some(reasoning) = reasoning.into_iter().find(|text| !text.is_empty()) {
            count(&mut self.bytes, reasoning.len())?;
            self.told_reasoning = true;
            self.reasoning.push_str(&reasoning);
            deltas.push(Delta::Reasoning(reasoning));
        }
        // Some servers decline in a field of its own; it is what the person is to read.
        let text = ["content", "refusal"].map(|name| text_of(delta.get(name))).concat();
        if !text.is_empty() {
            count(&mut self.bytes, text.len())?;
            let parts = self.think.push(&text);
            self.show(parts, deltas)?;
        }
        match delta.get("tool_calls") {
            Some(Value::Array(calls)) => calls.iter().try_for_each(|call| self.take_call(call))?,
            Some(call @ Value::Object(_)) => self.take_call(call)?,
            Some(_) | None => {}
        }
        Ok(())
    }

    /// What was held back because it might have become something else: nothing more comes.
    pub fn flush(&mut self) -> Result<Vec<Delta>, CallError> {
        let mut deltas = Vec::new();
        let parts = self.think.finish();
        self.show(parts, &mut deltas)?;
        if let Some((text, calls)) = self.text_calls.as_mut().map(TextCalls::finish) {
            self.say(text, calls, &mut deltas)?;
        }
        Ok(deltas)
    }

    fn show(&mut self, parts: Parts, deltas: &mut Vec<Delta>) -> Result<(), CallError> {
        let Parts { visible, reasoning } = parts;
        if !reasoning.is_empty() && !self.told_reasoning {
            self.reasoning.push_str(&reasoning);
            deltas.push(Delta::Reasoning(reasoning));
        }
        let (text, calls) = match &mut self.text_calls {
            Some(text_calls) => text_calls.push(&visible),
            None => (visible, Vec::new()),
        };
        self.say(text, calls, deltas)
    }

    fn say(&mut self, text: String, calls: Vec<TextCall>, deltas: &mut Vec<Delta>) -> Result<(), CallError> {
        if !text.is_empty() {
            self.text.push_str(&text);
            deltas.push(Delta::Text(text));
        }
        for TextCall { name, arguments } in calls {
            if self.calls.len() == CALLS_MAX {
                return Err(CallError::TooLarge("too many tool calls"));
            }
            tracing::warn!(tool = name, "a model wrote its tool call as text");
            self.calls.push(PartialCall { name, arguments, ..PartialCall::default() });
        }
        Ok(())
    }

    /// Merges a part of a call by its index, else by its id, else by its order.
    fn take_call(&mut self, part: &Value) -> Result<(), CallError> {
        let index = part.get("index").and_then(number);
        let id = part.get("id").and_then(Value::as_str).unwrap_or_default();
        let function = part.get("function").unwrap_or(part);
        let name = function.get("name").and_then(Value::as_str).unwrap_or_default();
        let arguments = match function.get("arguments") {
            Some(Value::String(text)) => text.clone(),
            Some(value @ Value::Object(_)) => value.to_string(),
            Some(_) | None => String::new(),
        };
        let known = self.calls.iter().position(|call| match index {
            // Servers that number every call 0 still tell them apart by id.
            Some(_) => call.index == index && (id.is_empty() || name.is_empty() || call.id == id),
            None => !id.is_empty() && call.id == id,
        });
        let anonymous = index.is_none() && id.is_empty() && name.is_empty();
        let place = match known.or_else(|| self.calls.len().checked_sub(1).filter(|_| anonymous)) {
            Some(place) => place,
            None if self.calls.len() == CALLS_MAX => return Err(CallError::TooLarge("too many tool calls")),
            None => {
                self.calls.push(PartialCall { index, ..PartialCall::default() });
                self.calls.len() - 1
            }
        };
        let Some(call) = self.calls.get_mut(place) else { return Ok(()) };
        if call.id.is_empty() {
            count(&mut self.bytes, id.len())?;
            id.clone_into(&mut call.id);
        }
        if call.name.is_empty() {
            count(&mut self.bytes, name.len())?;
            name.clone_into(&mut call.name);
        }
        // A server that repeats the whole at the end means the same call, not more of it.
        let repeated = call.arguments == arguments && crate::sse::is_json(&arguments);
        if !repeated {
            count(&mut self.bytes, arguments.len())?;
            call.arguments.push_str(&arguments);
        }
        Ok(())
    }

    /// The whole answer. Calls without an id of their own get one that begins with `id_prefix`.
    pub fn finish(mut self, id_prefix: &str) -> Result<Answer, CallError> {
        self.flush()?;
        let finish = self.finish.as_deref().map(str::to_ascii_lowercase);
        if finish.as_ref().is_some_and(|finish| !CALLING.contains(&finish.as_str())) && !self.calls.is_empty() {
            tracing::warn!(calls = self.calls.len(), "tool calls of an answer that did not end in order are left out");
            self.calls.clear();
        }
        if finish.as_deref() == Some("content_filter") && self.text.trim().is_empty() {
            let message = "its content filter withheld the answer".to_owned();
            let codes = vec!["content_filter".to_owned()];
            return Err(CallError::Answered(ErrorAnswer { status: 200, codes, message, retry_after: None }));
        }
        let mut calls: Vec<ToolCall> = Vec::with_capacity(self.calls.len());
        for (place, call) in self.calls.into_iter().enumerate() {
            let taken = calls.iter().any(|earlier| *earlier.id.0 == *call.id);
            let id = if call.id.is_empty() || taken { format!("{id_prefix}{place}") } else { call.id };
            let (arguments, oddity) = arguments::read(&call.arguments);
            if let Some(oddity) = oddity {
                tracing::warn!(tool = call.name, ?oddity, "a model's tool call was written oddly");
            }
            calls.push(ToolCall { id: ToolCallId(id.into()), name: call.name.trim().to_owned(), arguments });
        }
        let stop = match finish.as_deref() {
            _ if !calls.is_empty() => StopReason::ToolUse,
            Some("length" | "max_tokens") => StopReason::Length,
            Some(_) | None => StopReason::Stop,
        };
        let reasoning = Some(self.reasoning).filter(|reasoning| !reasoning.is_empty());
        Ok(Answer { text: self.text, reasoning, calls, stop, usage: self.usage })
    }
}

/// Counts what an answer is about to take in.
fn count(bytes: &mut usize, more: usize) -> Result<(), CallError> {
    *bytes += more;
    if *bytes > ANSWER_BYTES_MAX {
        return Err(CallError::TooLarge("an answer of more than 2 MiB"));
    }
    Ok(())
}

/// A string, or the texts of a list of parts.
fn text_of(value: Option<&Value>) -> String {
    match value {
        Some(Value::String(text)) => text.clone(),
        Some(Value::Array(parts)) => {
            let texts = parts.iter().filter_map(|part| part.get("text").and_then(Value::as_str));
            texts.collect()
        }
        Some(_) | None => String::new(),
    }
}

/// A whole number, also where it comes as `3.0` or `"3"`.
fn number(value: &Value) -> Option<u64> {
    match value {
        Value::Number(number) => number.as_u64().or_else(|| {
            let float = number.as_f64().filter(|float| (0.0..9e15).contains(float))?;
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the range was checked")]
            let whole = float as u64;
            Some(whole)
        }),
        Value::String(text) => text.parse().ok(),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn read_usage(usage: &Value) -> Usage {
    let count = |names: &[&str]| {
        let found = names.iter().find_map(|name| usage.pointer(name).and_then(number));
        found.unwrap_or(0)
    };
    Usage {
        input_tokens: count(&["/prompt_tokens", "/input_tokens"]),
        output_tokens: count(&["/completion_tokens", "/output_tokens"]),
        cached_tokens: count(&["/prompt_tokens_details/cached_tokens", "/prompt_cache_hit_tokens", "/cached_tokens"]),
    }
}

/// Reads what stands for an error: an object, a text, or something else.
pub fn error_answer(status: u16, error: &Value) -> ErrorAnswer {
    let field = |name: &str| error.get(name).filter(|value| !value.is_null());
    let codes = ["code", "type", "status"].into_iter().filter_map(|name| field(name)?.as_str());
    let codes = codes.map(|code| code.trim().to_ascii_lowercase()).collect();
    let message = ["message", "detail", "error", "msg"].into_iter().find_map(field);
    let message = message.map(|value| value.as_str().map_or_else(|| value.to_string(), str::to_owned));
    let inner = ["code", "status", "status_code"].into_iter().find_map(|name| number(field(name)?));
    let inner = inner.and_then(|code| u16::try_from(code).ok()).filter(|code| (400..600).contains(code));
    ErrorAnswer {
        status: if status == 200 { inner.unwrap_or(status) } else { status },
        codes,
        message: message.or_else(|| error.as_str().map(str::to_owned)).unwrap_or_default(),
        retry_after: None,
    }
}

#[cfg(test)]
mod tests;
