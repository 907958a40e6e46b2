//! The lines that are appended to a transcript file. No line end: the file's writer adds it.
//!
//! `{"type":"message","id":"00000000000000a1","parentId":null,"timestamp":"2026-11-29T20:53:29.123Z","message":{"role":
//! "user","content":[{"type":"text","text":"hi"}],"timestamp":1795985609123,"idempotencyKey":"ws:m1","turnId":"0199...",
//! "bodyHash":"00f1..."}}`. The line has the time at which it was written, a user's message that at which it was accepted.

mod blocks;
mod notes;

use serde::ser::{Serialize, Serializer};
use serde_json::value::RawValue;

use super::object::Object;
use super::told::event_line;
use super::{AssistantEntry, Head, ToolResultEntry, TurnClose, UserEntry};
use crate::chat::{AssistantMessage, StopReason};
use crate::ids::{SessionId, SessionKey, TurnId};
use crate::time;
use blocks::{AssistantBlocks, Blocks};

pub use notes::reset_line;
pub(super) use notes::{
    CompactionLine, CustomMessageLine, branch_summary_line, compaction_line, custom_message_line, label_line,
    model_change_line, session_info_line, thinking_level_change_line,
};

/// The file format's version.
pub const VERSION: u64 = 3;

/// What an assistant entry's `api` says: the family of the wire format.
pub const API: &str = "openai-completions";

/// What the header line says.
#[derive(Debug, Clone, Copy)]
pub struct HeaderFields<'a> {
    /// Session id.
    pub session: SessionId,
    /// Session key.
    pub key: &'a SessionKey,
    /// When it begins.
    pub timestamp_ms: u64,
    /// The workspace.
    pub cwd: &'a str,
    /// The file that it was forked from.
    pub parent_session: Option<&'a str>,
}

/// Line 1.
pub fn header_line(header: &HeaderFields<'_>) -> String {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Line<'a> {
        r#type: &'a str,
        version: u64,
        id: SessionId,
        timestamp: Iso,
        cwd: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        parent_session: Option<&'a str>,
        session_key: &'a SessionKey,
    }
    json(&Line {
        r#type: "session",
        version: VERSION,
        id: header.session,
        timestamp: Iso(header.timestamp_ms),
        cwd: header.cwd,
        parent_session: header.parent_session,
        session_key: header.key,
    })
}

/// A person's message, or an event.
pub fn user_line(head: &Head, user: &UserEntry) -> String {
    if let Some(event) = &user.event {
        return event_line(head, event, user);
    }
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Message<'a> {
        role: &'a str,
        content: Blocks<'a>,
        timestamp: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        idempotency_key: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        body_hash: Option<Hash>,
        #[serde(skip_serializing_if = "Option::is_none")]
        into_turn: Option<TurnId>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        command: bool,
    }
    let mark = user.mark.as_ref();
    message_line(
        head,
        &Message {
            role: "user",
            content: Blocks(&user.content),
            timestamp: mark.map_or(head.timestamp_ms, |mark| mark.accepted_ms),
            idempotency_key: mark.map(|mark| &*mark.idempotency_key),
            turn_id: mark.map(|mark| mark.turn),
            body_hash: mark.map(|mark| Hash(mark.body_hash)),
            into_turn: mark.and_then(|mark| mark.into),
            command: user.is_command(),
        },
    )
}

/// A model's message, or the notice that ends a turn without one.
pub fn assistant_line(head: &Head, assistant: &AssistantEntry) -> String {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Message<'a> {
        role: &'a str,
        content: AssistantBlocks<'a>,
        api: &'a str,
        provider: &'a str,
        model: &'a str,
        usage: UsageFields,
        stop_reason: StopReason,
        #[serde(skip_serializing_if = "Option::is_none")]
        error_message: Option<&'a str>,
        timestamp: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
        #[serde(skip_serializing_if = "Option::is_none")]
        turn_end: Option<TurnClose>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        command: bool,
    }
    let message = &assistant.message;
    message_line(
        head,
        &Message {
            role: "assistant",
            content: AssistantBlocks(message),
            api: API,
            provider: &message.provider,
            model: &message.model,
            usage: UsageFields::of(message),
            stop_reason: message.stop,
            error_message: message.error.as_deref(),
            timestamp: head.timestamp_ms,
            turn_id: assistant.turn,
            turn_end: assistant.end,
            command: assistant.transcript_only,
        },
    )
}

/// A tool's answer.
pub fn tool_result_line(head: &Head, entry: &ToolResultEntry) -> String {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Message<'a> {
        role: &'a str,
        tool_call_id: &'a str,
        tool_name: &'a str,
        content: Blocks<'a>,
        is_error: bool,
        timestamp: u64,
        #[serde(skip_serializing_if = "Option::is_none")]
        turn_id: Option<TurnId>,
    }
    let result = &entry.result;
    message_line(
        head,
        &Message {
            role: "toolResult",
            tool_call_id: &result.call.0,
            tool_name: &result.name,
            content: Blocks(&result.content),
            is_error: result.is_error,
            timestamp: head.timestamp_ms,
            turn_id: entry.turn,
        },
    )
}

/// Data that the model is never shown: a text in JSON; without it, or if it is none, the line has no data.
pub fn custom_line(head: &Head, custom_type: &str, data: Option<&str>) -> String {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Line<'a> {
        r#type: &'a str,
        custom_type: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        data: Option<&'a RawValue>,
        id: &'a str,
        parent_id: Option<&'a str>,
        timestamp: Iso,
    }
    json(&Line {
        r#type: "custom",
        custom_type,
        data: data.and_then(|data| serde_json::from_str(data).ok()),
        id: &head.id,
        parent_id: head.parent.as_deref(),
        timestamp: Iso(head.timestamp_ms),
    })
}

/// A control row: the conversation stands at `target`; appends go to `append_parent`, if that is elsewhere.
pub fn leaf_line(head: &Head, target: Option<&str>, append_parent: Option<&str>) -> String {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields<'a> {
        target_id: Option<&'a str>,
        #[serde(skip_serializing_if = "Option::is_none")]
        append_parent_id: Option<&'a str>,
    }
    entry_line(head, "leaf", &Fields { target_id: target, append_parent_id: append_parent })
}

/// The same line as one of an entry that hangs off the conversation without being part of it.
pub fn side_line(line: &str) -> String {
    let Ok(mut object) = serde_json::from_str::<Object<'_>>(line) else { return line.to_owned() };
    object.insert("timestamp", "appendMode", &"side");
    object.line()
}

fn message_line<M: Serialize>(head: &Head, message: &M) -> String {
    #[derive(serde::Serialize)]
    struct Fields<'a, M> {
        message: &'a M,
    }
    entry_line(head, "message", &Fields { message })
}

/// A line with what all entries have, then `fields`.
fn entry_line<F: Serialize>(head: &Head, kind: &str, fields: &F) -> String {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Line<'a, F> {
        r#type: &'a str,
        id: &'a str,
        parent_id: Option<&'a str>,
        timestamp: Iso,
        #[serde(flatten)]
        fields: &'a F,
    }
    json(&Line {
        r#type: kind,
        id: &head.id,
        parent_id: head.parent.as_deref(),
        timestamp: Iso(head.timestamp_ms),
        fields,
    })
}

fn json<T: Serialize>(line: &T) -> String {
    serde_json::to_string(line).expect("lines have only string keys, so they always serialise")
}

struct Iso(u64);

impl Serialize for Iso {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(&time::iso_ms(self.0))
    }
}

struct Hash(u64);

impl Serialize for Hash {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(&format_args!("{:016x}", self.0))
    }
}

/// The file counts cached prompt tokens apart from the others.
#[derive(serde::Serialize)]
#[serde(rename_all = "camelCase")]
struct UsageFields {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    total_tokens: u64,
    cost: Cost,
    /// A field of ours: what was estimated for the request before it was sent.
    #[serde(skip_serializing_if = "is_zero")]
    estimate: u64,
}

#[derive(serde::Serialize, Default)]
#[serde(rename_all = "camelCase")]
struct Cost {
    input: u64,
    output: u64,
    cache_read: u64,
    cache_write: u64,
    total: u64,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl UsageFields {
    fn of(message: &AssistantMessage) -> Self {
        let usage = message.usage;
        Self {
            input: usage.input_tokens.saturating_sub(usage.cached_tokens),
            output: usage.output_tokens,
            cache_read: usage.cached_tokens,
            cache_write: 0,
            total_tokens: usage.input_tokens.saturating_add(usage.output_tokens),
            cost: Cost::default(),
            estimate: message.asked_tokens,
        }
    }
}
