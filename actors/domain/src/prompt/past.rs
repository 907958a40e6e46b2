//! What was kept of earlier conversations: the lines of `memory/history.jsonl`.
//!
//! **Source:** nanobot: `{"cursor": 7, "timestamp": "2026-11-30 14:19", "content": "...", "session_key": "cli:direct"}`.

use std::sync::Arc;

use serde::Deserialize;

use crate::budget::text_tokens;
use crate::ids::SessionKey;
use crate::keys::{Base, Key};

/// The most of them that are shown.
const SHOWN_MAX: usize = 50;
/// Tokens that they may have together.
const TOKENS_MAX: u64 = 8000;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Past {
    /// When, as it is written.
    pub at: Arc<str>,
    /// What.
    pub text: Arc<str>,
    /// Of which session, where it is known.
    pub key: Option<Key>,
}

#[derive(Deserialize)]
struct Line {
    cursor: u64,
    timestamp: String,
    content: String,
    #[serde(default)]
    session_key: Option<String>,
}

/// The lines that were not yet worked into the memory, whose cursors are above `dream`. Lines of another form are left out.
pub fn read_past(text: &str, dream: u64) -> Vec<Past> {
    let lines = text.lines().filter_map(|line| serde_json::from_str::<Line>(line).ok());
    lines
        .filter(|line| line.cursor > dream && !line.content.trim().is_empty())
        .map(|line| Past {
            at: line.timestamp.trim().into(),
            text: line.content.trim().into(),
            key: line.session_key.and_then(|key| SessionKey::new(&key).ok()).map(|key| Key::from(&key)),
        })
        .collect()
}

/// Those that the session `key` may see: its own; the unified session, while nobody but the owner speaks in
/// it, also those of all others that people spoke in.
pub fn past_of<'a>(past: &'a [Past], key: &Key, owner: bool) -> Vec<&'a Past> {
    let all = owner && key.base == Base::Unified;
    let visible = |past: &&Past| match &past.key {
        Some(of) => of == key || (all && !of.is_internal()),
        None => all,
    };
    past.iter().filter(visible).collect()
}

/// The newest of them, oldest first, without the one that says what `summary` says.
pub(super) fn recent_history(past: &[&Past], summary: Option<&str>) -> Option<String> {
    let mut tokens = 0;
    let is_shown_already = |past: &Past| summary.is_some_and(|summary| summary.trim() == &*past.text);
    let lines = past.iter().rev().filter(|past| !is_shown_already(past)).take(SHOWN_MAX);
    let lines = lines.map(|past| format!("- [{}] {}", past.at, past.text)).take_while(|line| {
        tokens += text_tokens(line);
        tokens <= TOKENS_MAX
    });
    let mut lines: Vec<String> = lines.collect();
    lines.reverse();
    (!lines.is_empty()).then(|| format!("# Recent History\n\n{}", lines.join("\n")))
}
