//! The `message` object of a line.

use std::borrow::Cow;
use std::sync::Arc;

use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use super::line::string;
use crate::chat::{Arguments, AssistantMessage, Content, StopReason, ToolCall, ToolResult, Usage};
use crate::ids::{ToolCallId, TurnId};
use crate::transcript::{AssistantEntry, EntryKind, Kind, Note, ToolResultEntry, TurnClose, UserEntry, UserMark};

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawMessage<'a> {
    #[serde(borrow)]
    role: Cow<'a, str>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    #[serde(borrow)]
    provider: Option<&'a RawValue>,
    #[serde(borrow)]
    model: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    error_message: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_call_id: Option<&'a RawValue>,
    #[serde(borrow)]
    tool_name: Option<&'a RawValue>,
    #[serde(borrow)]
    is_error: Option<&'a RawValue>,
    #[serde(borrow)]
    idempotency_key: Option<&'a RawValue>,
    #[serde(borrow)]
    turn_id: Option<&'a RawValue>,
    #[serde(borrow)]
    body_hash: Option<&'a RawValue>,
    #[serde(borrow)]
    into_turn: Option<&'a RawValue>,
    #[serde(borrow)]
    timestamp: Option<&'a RawValue>,
    #[serde(borrow)]
    turn_end: Option<&'a RawValue>,
    #[serde(borrow)]
    command: Option<&'a RawValue>,
    #[serde(borrow)]
    output: Option<&'a RawValue>,
    #[serde(borrow)]
    exclude_from_context: Option<&'a RawValue>,
    #[serde(borrow)]
    summary: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct RawBlock<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
    #[serde(borrow)]
    text: Option<&'a RawValue>,
    #[serde(borrow)]
    thinking: Option<&'a RawValue>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
    #[serde(borrow)]
    path: Option<&'a RawValue>,
    #[serde(borrow)]
    mime_type: Option<&'a RawValue>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    name: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments_text: Option<&'a RawValue>,
    #[serde(borrow)]
    arguments_problem: Option<&'a RawValue>,
}

/// What a message says; one without a role that is known says nothing to the model.
pub(super) fn kind(raw: Option<&RawValue>) -> (Kind, EntryKind) {
    let withheld = EntryKind::Silent(Note::Withheld);
    let Some(message) = raw.and_then(|raw| serde_json::from_str::<RawMessage<'_>>(raw.get()).ok()) else {
        return (Kind::OtherRole, withheld);
    };
    let turn = parsed::<TurnId>(message.turn_id);
    match message.role.as_ref() {
        "user" => {
            let user = UserEntry { content: content(message.content).into(), mark: mark(&message, turn), event: None };
            let kind = EntryKind::User(user);
            (Kind::of(&kind), kind)
        }
        "assistant" => (Kind::Assistant, EntryKind::Assistant(Box::new(assistant(&message, turn)))),
        "toolResult" => {
            let result = ToolResult {
                call: ToolCallId(string(message.tool_call_id).unwrap_or_default().into()),
                name: string(message.tool_name).unwrap_or_default(),
                content: content(message.content),
                is_error: parsed(message.is_error).unwrap_or(false),
            };
            (Kind::ToolResult, EntryKind::ToolResult(ToolResultEntry { result: Arc::new(result), turn }))
        }
        "custom" | "hookMessage" => (Kind::CustomRole, EntryKind::Shown(content(message.content).into())),
        "bashExecution" if parsed(message.exclude_from_context) == Some(true) => (Kind::Bash, withheld),
        "bashExecution" => {
            let command = string(message.command).unwrap_or_default();
            let output = string(message.output).unwrap_or_default();
            let text = format!("I ran `{command}` in a shell. Its output:\n{output}");
            (Kind::Bash, EntryKind::Shown([Content::text(text)].into()))
        }
        // No program writes these two, but one that meets them shows them.
        "branchSummary" => (Kind::OtherRole, EntryKind::BranchSummary(string(message.summary).unwrap_or_default())),
        "compactionSummary" => {
            let summary = string(message.summary).unwrap_or_default();
            (Kind::OtherRole, EntryKind::Shown([Content::text(summary)].into()))
        }
        _ => (Kind::OtherRole, withheld),
    }
}

/// Text, or blocks of text and pictures; other blocks are left out.
pub(super) fn content(raw: Option<&RawValue>) -> Vec<Content> {
    if let Some(text) = string(raw) {
        return vec![Content::Text { text }];
    }
    let mut content = Vec::new();
    for block in blocks(raw) {
        match block.r#type.as_ref() {
            "text" => content.extend(string(block.text).map(|text| Content::Text { text })),
            "image" => {
                if let (Some(data), Some(mime)) = (string(block.data), string(block.mime_type)) {
                    let path = string(block.path).map(Arc::from);
                    content.push(Content::Image { data: data.into(), mime, path });
                }
            }
            _ => {}
        }
    }
    content
}

fn blocks(raw: Option<&RawValue>) -> Vec<RawBlock<'_>> {
    let raw_blocks: Vec<&RawValue> = raw.and_then(|raw| serde_json::from_str(raw.get()).ok()).unwrap_or_default();
    raw_blocks.into_iter().filter_map(|block| serde_json::from_str(block.get()).ok()).collect()
}

fn parsed<'a, T: Deserialize<'a>>(raw: Option<&'a RawValue>) -> Option<T> {
    serde_json::from_str(raw?.get()).ok()
}

fn mark(message: &RawMessage<'_>, turn: Option<TurnId>) -> Option<UserMark> {
    let hash = string(message.body_hash).filter(|hash| hash.len() == 16)?;
    Some(UserMark {
        turn: turn?,
        idempotency_key: string(message.idempotency_key)?.into(),
        body_hash: u64::from_str_radix(&hash, 16).ok()?,
        accepted_ms: parsed(message.timestamp).unwrap_or(0),
        into: parsed(message.into_turn),
        command: parsed(message.command).unwrap_or(false),
    })
}

fn assistant(message: &RawMessage<'_>, turn: Option<TurnId>) -> AssistantEntry {
    let (mut text, mut reasoning, mut calls) = (String::new(), String::new(), Vec::new());
    match string(message.content) {
        Some(whole) => text = whole,
        None => {
            for block in blocks(message.content) {
                match block.r#type.as_ref() {
                    "text" => push_paragraph(&mut text, string(block.text)),
                    "thinking" => push_paragraph(&mut reasoning, string(block.thinking)),
                    "toolCall" => calls.push(tool_call(&block)),
                    _ => {}
                }
            }
        }
    }
    let provider = string(message.provider).unwrap_or_default();
    let model = string(message.model).unwrap_or_default();
    let otherwise = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
    let mirror = provider == "openclaw" && matches!(model.as_str(), "delivery-mirror" | "gateway-injected");
    AssistantEntry {
        transcript_only: mirror || parsed(message.command).unwrap_or(false),
        turn,
        end: parsed::<TurnClose>(message.turn_end),
        message: Arc::new(AssistantMessage {
            text,
            reasoning: (!reasoning.is_empty()).then_some(reasoning),
            calls,
            stop: parsed(message.stop_reason).unwrap_or(otherwise),
            usage: usage(message.usage),
            asked_tokens: asked_tokens(message.usage),
            provider: provider.into(),
            model: model.into(),
            error: string(message.error_message),
        }),
    }
}

fn push_paragraph(to: &mut String, piece: Option<String>) {
    let Some(piece) = piece else { return };
    if !to.is_empty() {
        to.push('\n');
    }
    to.push_str(&piece);
}

fn tool_call(block: &RawBlock<'_>) -> ToolCall {
    ToolCall {
        id: ToolCallId(Arc::from(string(block.id).unwrap_or_default())),
        name: string(block.name).unwrap_or_default(),
        arguments: arguments(block),
    }
}

fn arguments(block: &RawBlock<'_>) -> Arguments {
    if let Some(text) = string(block.arguments_text) {
        let problem = string(block.arguments_problem).unwrap_or_default();
        return Arguments::Malformed { text, problem };
    }
    match parsed::<Value>(block.arguments) {
        None => Arguments::Object(Map::new()),
        Some(Value::Object(arguments)) => Arguments::Object(arguments),
        Some(other) => {
            Arguments::Malformed { text: other.to_string(), problem: "the arguments are no JSON object".to_owned() }
        }
    }
}

fn asked_tokens(usage: Option<&RawValue>) -> u64 {
    let fields: Map<String, Value> = parsed(usage).unwrap_or_default();
    fields.get("estimate").and_then(Value::as_u64).unwrap_or(0)
}

fn usage(raw: Option<&RawValue>) -> Usage {
    let fields: Map<String, Value> = parsed(raw).unwrap_or_default();
    let count = |name: &str| fields.get(name).and_then(Value::as_u64).unwrap_or(0);
    Usage {
        input_tokens: count("input").saturating_add(count("cacheRead")).saturating_add(count("cacheWrite")),
        output_tokens: count("output"),
        cached_tokens: count("cacheRead"),
    }
}
