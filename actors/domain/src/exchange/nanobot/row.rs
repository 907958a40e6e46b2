//! One message: what our model is shown of nanobot's, and what nanobot is given of ours.

use std::sync::Arc;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;
use serde_json::{Map, Value, json};

use super::file::Row;
use crate::chat::{Arguments, AssistantMessage, Content, StopReason, ToolCall, ToolResult};
use crate::event::EventKind;
use crate::exchange::json::python_line;
use crate::ids::ToolCallId;
use crate::time::parse_iso_ms;
use crate::transcript::{AssistantEntry, EntryKind, ToolResultEntry, UserEntry};

/// What a message is to our model; `None` for one that it is not shown.
pub(super) fn entry_kind(row: &Row) -> Option<EntryKind> {
    if row.is_true("_command") {
        return None;
    }
    let said = content(row.fields.get("content"));
    match row.text_of("role")? {
        "user" => {
            let media = row.fields.get("media").and_then(Value::as_array).into_iter().flatten();
            let media = media.filter_map(Value::as_str).map(|path| Content::text(format!("[image: {path}]")));
            let is_text = matches!(row.fields.get("content"), Some(Value::String(_)));
            let blank = |piece: &Content| matches!(piece, Content::Text { text } if text.is_empty());
            let mut all: Vec<Content> = said.into_iter().filter(|piece| !blank(piece)).collect();
            all.extend(media.filter(|_| is_text));
            Some(EntryKind::User(UserEntry { content: all.into(), mark: None, event: None }))
        }
        "assistant" => {
            let message = assistant(row, &said);
            let entry = AssistantEntry { message: Arc::new(message), turn: None, end: None, transcript_only: false };
            Some(EntryKind::Assistant(Box::new(entry)))
        }
        "tool" => {
            let result = ToolResult {
                call: ToolCallId(row.text_of("tool_call_id").unwrap_or_default().into()),
                name: row.text_of("name").unwrap_or_default().to_owned(),
                content: said,
                is_error: false,
            };
            Some(EntryKind::ToolResult(ToolResultEntry { result: Arc::new(result), turn: None }))
        }
        _ => None,
    }
}

/// When a message was written. A time without offset is one of `zone`.
pub(super) fn time_ms(text: Option<&str>, zone: &TimeZone) -> Option<u64> {
    let text = text?;
    if let Some(ms) = parse_iso_ms(text) {
        return Some(ms);
    }
    let local: DateTime = text.parse().ok()?;
    let at = zone.to_ambiguous_timestamp(local).compatible().ok()?;
    u64::try_from(at.as_millisecond()).ok()
}

/// The time as Python's `datetime.now().isoformat()` writes it.
pub(super) fn time_text(ms: u64, zone: &TimeZone) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| Timestamp::from_millisecond(ms).ok()).unwrap_or_default();
    let local = zone.to_datetime(at);
    local.strftime(if ms.is_multiple_of(1000) { "%Y-%m-%dT%H:%M:%S" } else { "%Y-%m-%dT%H:%M:%S.%6f" }).to_string()
}

/// The message that nanobot is given of an entry; `None` if it has no place there.
pub(super) fn plain(kind: &EntryKind, time: &str) -> Option<Map<String, Value>> {
    let mut row = Map::new();
    let mut put = |name: &str, value: Value| row.insert(name.to_owned(), value);
    match kind {
        EntryKind::User(user) => {
            put("role", json!("user"));
            put("content", blocks(&user.content));
            put("timestamp", json!(time));
            if user.is_command() {
                put("_command", json!(true));
            }
            if let Some(event) = user.event.as_ref().filter(|event| event.kind == EventKind::Subagent) {
                put("injected_event", json!("subagent_result"));
                put("subagent_task_id", json!(event.id));
            }
        }
        EntryKind::Shown(said) => {
            put("role", json!("user"));
            put("content", blocks(said));
            put("timestamp", json!(time));
        }
        EntryKind::BranchSummary(text) => {
            put("role", json!("user"));
            put("content", json!(text));
            put("timestamp", json!(time));
        }
        EntryKind::Assistant(assistant) if !assistant.transcript_only => {
            let message = &assistant.message;
            put("role", json!("assistant"));
            put("content", json!(message.text));
            put("timestamp", json!(time));
            if !message.calls.is_empty() {
                put("tool_calls", message.calls.iter().map(call).collect());
            }
            if let Some(reasoning) = &message.reasoning {
                put("reasoning_content", json!(reasoning));
            }
        }
        EntryKind::ToolResult(result) => {
            put("role", json!("tool"));
            put("content", blocks(&result.result.content));
            put("timestamp", json!(time));
            put("tool_call_id", json!(result.result.call));
            put("name", json!(result.result.name));
        }
        EntryKind::Assistant(_)
        | EntryKind::Compaction { .. }
        | EntryKind::Reset { .. }
        | EntryKind::Silent(_)
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => return None,
    }
    Some(row)
}

/// Text, or blocks in OpenAI's form. Blocks of other kinds are not shown.
fn content(said: Option<&Value>) -> Vec<Content> {
    match said {
        Some(Value::String(text)) => vec![Content::text(text.as_str())],
        Some(Value::Array(blocks)) => blocks.iter().filter_map(block).collect(),
        None | Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) => Vec::new(),
    }
}

fn block(block: &Value) -> Option<Content> {
    if let Some(text) = block.get("text").and_then(Value::as_str) {
        return Some(Content::text(text));
    }
    let url = block.get("image_url")?.get("url")?.as_str()?;
    let inline = url.strip_prefix("data:").and_then(|rest| rest.split_once(";base64,"));
    Some(match inline {
        Some((mime, data)) => Content::Image { data: data.into(), mime: mime.to_owned(), path: None },
        None => Content::text(format!("[image: {url}]")),
    })
}

fn blocks(said: &[Content]) -> Value {
    if let [Content::Text { text }] = said {
        return json!(text);
    }
    if said.is_empty() {
        return json!("");
    }
    let block = |piece: &Content| match piece {
        Content::Text { text } => json!({"type": "text", "text": text}),
        Content::Image { data, mime, path: _ } => {
            json!({"type": "image_url", "image_url": {"url": format!("data:{mime};base64,{data}")}})
        }
    };
    said.iter().map(block).collect()
}

fn assistant(row: &Row, said: &[Content]) -> AssistantMessage {
    let calls = row.fields.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let calls: Vec<ToolCall> = calls.map(tool_call).collect();
    AssistantMessage {
        reasoning: row.text_of("reasoning_content").filter(|text| !text.is_empty()).map(str::to_owned),
        stop: if calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse },
        calls,
        ..AssistantMessage::new(crate::chat::plain_text(said), "", "")
    }
}

fn tool_call(call: &Value) -> ToolCall {
    let function = call.get("function").unwrap_or(call);
    let word = |of: &Value, name: &str| of.get(name).and_then(Value::as_str).unwrap_or_default().to_owned();
    let arguments = match function.get("arguments") {
        None | Some(Value::Null) => Arguments::Object(Map::new()),
        Some(Value::Object(arguments)) => Arguments::Object(arguments.clone()),
        Some(Value::String(text)) => match serde_json::from_str(text) {
            Ok(Value::Object(arguments)) => Arguments::Object(arguments),
            Ok(_) => malformed(text.clone()),
            Err(_) if text.trim().is_empty() => Arguments::Object(Map::new()),
            Err(_) => malformed(text.clone()),
        },
        Some(other) => malformed(other.to_string()),
    };
    ToolCall { id: ToolCallId(word(call, "id").into()), name: word(function, "name"), arguments }
}

fn malformed(text: String) -> Arguments {
    Arguments::Malformed { text, problem: "the arguments are no JSON object".to_owned() }
}

fn call(call: &ToolCall) -> Value {
    let arguments = match &call.arguments {
        Arguments::Object(arguments) => python_line(arguments),
        Arguments::Malformed { text, .. } => text.clone(),
    };
    json!({"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}})
}
