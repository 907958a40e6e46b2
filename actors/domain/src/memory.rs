//! What is remembered beyond conversations: the archive of what was said, the files that it is worked into, and their
//! versions.
//!
//! | file of the workspace | what |
//! |---|---|
//! | `memory/history.jsonl` | the archive: one [`Line`] for each part of a conversation that the model no longer sees |
//! | `memory/.cursor`, `memory/.dream_cursor` | the last line; the last one that was worked in; decimal text |
//! | `memory/MEMORY.md`, `SOUL.md`, `USER.md` | what it is worked into ([`FILES`]) |
//! | `memory/versions.jsonl` | what those said before: [`versions`] |
//! | `memory/.dream.json` | when that was done last, and what of it is under way: [`dream`] |
//!
//! **Source:** nanobot's `MemoryStore`; the last two files are Greenroom's own.

pub mod dream;
mod legacy;
pub mod versions;

use serde::{Deserialize, Serialize};

pub use legacy::{Chunk, chunks};

/// The files that Dream keeps up to date, by their paths in the workspace.
pub const FILES: [&str; 3] = ["SOUL.md", "USER.md", "memory/MEMORY.md"];
/// The files that nobody but the gateway writes.
pub const OWN_FILES: [&str; 5] =
    ["memory/history.jsonl", "memory/.cursor", "memory/.dream_cursor", "memory/.dream.json", "memory/versions.jsonl"];
/// Lines of the archive that are kept behind Dream, unless more are not worked in yet.
pub const LINES_MAX: usize = 1000;

/// A line of the archive.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its number; they grow.
    pub cursor: u64,
    /// When, as `2026-11-30 14:19` in the configured zone.
    pub timestamp: String,
    /// What.
    pub content: String,
    /// Of which session, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub session_key: Option<String>,
    /// Of which messages of it, by the ids of the first and the last one; lines of others have none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub part: Option<String>,
}

// === impl Line ===

impl Line {
    /// Reads one; `None` is none.
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        serde_json::from_slice(bytes).ok()
    }

    /// Whether it has all words of `query`, in whatever case.
    pub fn has(&self, query: &str) -> bool {
        let text = self.content.to_lowercase();
        query.to_lowercase().split_whitespace().all(|word| text.contains(word))
    }
}

/// How many of the oldest lines go, so that at most `max` stay; none that is not worked in yet. `cursors` are those of all
/// lines, in their order.
pub fn surplus(cursors: &[u64], dream: u64, max: usize) -> usize {
    let over = cursors.len().saturating_sub(max);
    cursors.iter().take(over).take_while(|cursor| **cursor <= dream).count()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn only_what_has_the_shape_is_a_line() {
        for (text, is_line) in [
            (r#"{"cursor": 1, "timestamp": "t", "content": "c"}"#, true),
            (r#"{"cursor": 1, "timestamp": "t", "content": "c", "session_key": "cli:direct", "more": 5}"#, true),
            (r#"{"cursor": true, "timestamp": "t", "content": "c"}"#, false),
            (r#"{"cursor": -1, "timestamp": "t", "content": "c"}"#, false),
            (r#"{"cursor": 1.5, "timestamp": "t", "content": "c"}"#, false),
            (r#"{"cursor": "1", "timestamp": "t", "content": "c"}"#, false),
            (r#"{"cursor": 1, "timestamp": "t", "content": ["c"]}"#, false),
            (r#"{"cursor": 1, "timestamp": "t"}"#, false),
            ("[]", false),
            ("", false),
        ] {
            assert_eq!(Line::parse(text.as_bytes()).is_some(), is_line, "{text}");
        }
    }

    #[test]
    fn all_words_have_to_be_there() {
        let line =
            Line::parse(r#"{"cursor":1,"timestamp":"t","content":"The Tomato bed faces south"}"#.as_bytes()).unwrap();
        for (query, expect) in [("tomato", true), ("south TOMATO", true), ("tomato north", false), ("", true)] {
            assert_eq!(line.has(query), expect, "{query}");
        }
    }

    proptest! {
        #[test]
        fn what_is_not_worked_in_never_goes(count in 0_u64..50, dream in 0_u64..60, max in 0_usize..60) {
            let cursors: Vec<u64> = (1..=count).collect();
            let gone = surplus(&cursors, dream, max);
            prop_assert!(cursors.iter().take(gone).all(|cursor| *cursor <= dream));
            let left = cursors.len() - gone;
            prop_assert!(left <= max || cursors.get(gone).is_some_and(|first| *first > dream));
            prop_assert!(gone == 0 || left >= max);
        }
    }
}
