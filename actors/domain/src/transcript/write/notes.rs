//! Lines that are no messages. The order of the fields is that of the program whose format this is.

use serde::Serialize;
use serde_json::Value;

use super::{Blocks, Head, Iso, entry_line, json};
use crate::chat::Content;

/// A name for `target`; without one, it loses its name.
pub fn label_line(head: &Head, target: &str, label: Option<&str>) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields<'a> {
        target_id: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        label: Option<&'a str>,
    }
    entry_line(head, "label", &Fields { target_id: target, label })
}

/// A name for the session; an empty one takes it away.
pub fn session_info_line(head: &Head, name: &str) -> String {
    #[derive(Serialize)]
    struct Fields<'a> {
        name: &'a str,
    }
    entry_line(head, "session_info", &Fields { name })
}

/// Another model from here on.
pub fn model_change_line(head: &Head, provider: &str, model: &str) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields<'a> {
        provider: &'a str,
        model_id: &'a str,
    }
    entry_line(head, "model_change", &Fields { provider, model_id: model })
}

/// Another level of thinking from here on.
pub fn thinking_level_change_line(head: &Head, level: &str) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields<'a> {
        thinking_level: &'a str,
    }
    entry_line(head, "thinking_level_change", &Fields { thinking_level: level })
}

/// What happened in the branch that is left. `from` is the entry that the conversation goes on from.
pub fn branch_summary_line(head: &Head, from: Option<&str>, summary: &str, details: Option<&Value>) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields<'a> {
        from_id: &'a str,
        summary: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<&'a Value>,
    }
    entry_line(head, "branch_summary", &Fields { from_id: from.unwrap_or("root"), summary, details })
}

/// What a compaction says.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CompactionLine<'a> {
    /// In place of what was before.
    pub summary: &'a str,
    /// The first entry that is kept; the compaction itself for none.
    pub first_kept_entry_id: &'a str,
    /// How much there was, in tokens.
    pub tokens_before: u64,
    /// How much is left, in tokens.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_after: Option<u64>,
    /// More, for programs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub details: Option<&'a Value>,
}

/// A summary in place of what was before.
pub fn compaction_line(head: &Head, compaction: &CompactionLine<'_>) -> String {
    entry_line(head, "compaction", compaction)
}

/// A new beginning.
pub fn reset_line(head: &Head, reason: &str, first_kept: Option<&str>) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Fields<'a> {
        reason: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        first_kept_entry_id: Option<&'a str>,
    }
    entry_line(head, "reset", &Fields { reason, first_kept_entry_id: first_kept })
}

/// What a program's message says.
#[derive(Debug, Clone, Copy)]
pub struct CustomMessageLine<'a> {
    /// What kind, in the program's words.
    pub custom_type: &'a str,
    /// What the model is shown.
    pub content: &'a [Content],
    /// Whether people are shown it, too.
    pub display: bool,
    /// More, for programs.
    pub details: Option<&'a Value>,
}

/// A message of a program, which the model takes for a user's.
pub fn custom_message_line(head: &Head, message: &CustomMessageLine<'_>) -> String {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Line<'a> {
        r#type: &'a str,
        custom_type: &'a str,
        content: Blocks<'a>,
        display: bool,
        #[serde(skip_serializing_if = "Option::is_none")]
        details: Option<&'a Value>,
        id: &'a str,
        parent_id: Option<&'a str>,
        timestamp: Iso,
    }
    json(&Line {
        r#type: "custom_message",
        custom_type: message.custom_type,
        content: Blocks(message.content),
        display: message.display,
        details: message.details,
        id: &head.id,
        parent_id: head.parent.as_deref(),
        timestamp: Iso(head.timestamp_ms),
    })
}
