//! What a session was set to, and how far it is: told by its entries, in the order of the file. Pure.
//!
//! What is set stays set across `/new` and across branches, until it is set otherwise. The model is kept as a `custom`
//! entry, the level of thinking as a `thinking_level_change`, which other programs know as well.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::chat::Usage;
use crate::compaction::failed::Failures;
use crate::goal::{self, Goal};
use crate::history::entry_tokens;
use crate::queue::{self, QueueSet};
use crate::run::{self, RunSpec};
use crate::scope::{self, Scope};
use crate::transcript::{Entry, EntryKind, Note};

/// The `customType` of the entry that sets the model.
pub const MODEL_NOTE: &str = "greenroom.model";

/// Levels of thinking that can be set, in the words of providers but for the first, which asks for none.
pub const LEVELS: [&str; 6] = [OFF, "minimal", "low", "medium", "high", "xhigh"];

/// The level that asks for no thinking.
pub const OFF: &str = "off";

/// In place of a level or a preset: as configured.
pub const DEFAULT: &str = "default";

/// Data of a [`MODEL_NOTE`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModelNote {
    /// Name of a preset; none is the configured model.
    pub preset: Option<Arc<str>>,
}

/// What is known so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Tally {
    /// The preset that was set.
    pub preset: Option<Arc<str>>,
    /// The level of thinking that was set, one of [`LEVELS`].
    pub effort: Option<Arc<str>>,
    /// Messages of people and of the model since the conversation began.
    pub messages: u32,
    /// Whether it was ever given a name, or that was taken away.
    pub named: bool,
    /// What the last model call of it took.
    pub last: Option<Usage>,
    /// What the conversation had in tokens behind that call, answer, instructions and tools included; unknown once it is
    /// another one: summarised, or another branch.
    pub used: Option<u64>,
    /// Whether earlier messages were summarised, and nothing was said since.
    pub condensed: bool,
    /// Summaries in a row that the model did not give.
    pub failures: Failures,
    /// What it works on.
    pub goal: Option<Arc<Goal>>,
    /// Where it works, if not in the workspace.
    pub scope: Option<Arc<Scope>>,
    /// What it sets of its queue's rules.
    pub queue: QueueSet,
    /// What it was sent to do, of a sub-agent.
    pub run: Option<Arc<RunSpec>>,
}

/// How much of the model's window a conversation fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case", tag = "by", content = "tokens")]
pub enum Fill {
    /// As the provider counted with the last call: instructions and tools included.
    Counted(u64),
    /// As its messages are estimated: instructions and tools come on top.
    Estimated(u64),
}

impl Fill {
    /// In words.
    pub fn told(self, window_tokens: u64) -> String {
        let percent = |tokens: u64| tokens.saturating_mul(100) / window_tokens.max(1);
        match self {
            Self::Counted(tokens) => format!("{tokens} of {window_tokens} tokens ({} %)", percent(tokens)),
            Self::Estimated(tokens) => format!(
                "about {tokens} of {window_tokens} tokens ({} %) without instructions and tools; the next answer tells exactly",
                percent(tokens)
            ),
        }
    }
}

impl Tally {
    /// How full the model's window is; `entries` are those that the model can see, if they are at hand.
    pub fn fill<'e>(&self, entries: Option<impl Iterator<Item = &'e Entry>>) -> Option<Fill> {
        let estimated = || entries.map(|entries| Fill::Estimated(entries.map(entry_tokens).sum()));
        self.used.map(Fill::Counted).or_else(estimated)
    }

    /// Goes on with the next entry of the file.
    pub fn see(&mut self, entry: &Entry) {
        if let Some(goal) = goal::set_by(entry) {
            self.goal = goal;
        }
        if let Some(scope) = scope::set_by(entry) {
            self.scope = scope;
        }
        if let Some(queue) = queue::set_by(entry) {
            self.queue = queue;
        }
        if let Some(run) = run::set_by(entry) {
            self.preset.clone_from(&run.model);
            // What its parent's conversation was set to is not what it was sent to do.
            (self.goal, self.queue, self.run) = (None, QueueSet::default(), Some(run));
        }
        self.failures.see(entry);
        match &entry.kind {
            EntryKind::Compaction { .. } => self.condensed = true,
            EntryKind::User(_) | EntryKind::Assistant(_) | EntryKind::Reset { .. } => self.condensed = false,
            EntryKind::ToolResult(_)
            | EntryKind::Shown(_)
            | EntryKind::BranchSummary(_)
            | EntryKind::Silent(_)
            | EntryKind::Leaf { .. }
            | EntryKind::Opaque => {}
        }
        match &entry.kind {
            EntryKind::Assistant(assistant) if !assistant.transcript_only => {
                let Usage { input_tokens, output_tokens, .. } = assistant.message.usage;
                let used = Some(input_tokens.saturating_add(output_tokens)).filter(|_| input_tokens > 0);
                self.used = used.or(self.used);
            }
            EntryKind::Compaction { .. }
            | EntryKind::BranchSummary(_)
            | EntryKind::Leaf { .. }
            | EntryKind::Reset { .. } => {
                self.used = None;
            }
            EntryKind::User(_)
            | EntryKind::Assistant(_)
            | EntryKind::ToolResult(_)
            | EntryKind::Shown(_)
            | EntryKind::Silent(_)
            | EntryKind::Opaque => {}
        }
        match &entry.kind {
            EntryKind::User(user) => self.messages += u32::from(user.is_said()),
            EntryKind::Assistant(assistant) if !assistant.transcript_only => {
                self.messages += 1;
                let usage = assistant.message.usage;
                self.last = Some(usage).filter(|usage| usage.input_tokens > 0).or(self.last);
            }
            EntryKind::Reset { .. } => (self.messages, self.last) = (0, None),
            EntryKind::Silent(Note::Name(_)) => self.named = true,
            EntryKind::Silent(Note::Thinking(level)) if **level == *DEFAULT => self.effort = None,
            EntryKind::Silent(Note::Thinking(level)) if LEVELS.contains(&&**level) => {
                self.effort = Some(Arc::clone(level));
            }
            EntryKind::Silent(Note::Custom { kind, data: Some(data) }) if **kind == *MODEL_NOTE => {
                if let Ok(ModelNote { preset }) = serde_json::from_str(data) {
                    self.preset = preset;
                }
            }
            EntryKind::Assistant(_)
            | EntryKind::ToolResult(_)
            | EntryKind::Shown(_)
            | EntryKind::Compaction { .. }
            | EntryKind::BranchSummary(_)
            | EntryKind::Silent(_)
            | EntryKind::Leaf { .. }
            | EntryKind::Opaque => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::transcript::read_lines;

    fn of(lines: &[&str]) -> Tally {
        let mut tally = Tally::default();
        read_lines(lines.join("\n").as_bytes()).entries().iter().for_each(|entry| tally.see(entry));
        tally
    }

    #[test]
    fn the_last_word_counts_and_a_new_conversation_keeps_it() {
        let user = r#"{"type":"message","id":"a","message":{"role":"user","content":"hi"}}"#;
        let command = r#"{"type":"message","id":"b","message":{"role":"user","content":"/x","command":true,"turnId":"01890a5d-ac96-774b-bcce-b302099a8057","idempotencyKey":"ws:m","bodyHash":"0000000000000001"}}"#;
        let answer = r#"{"type":"message","id":"c","message":{"role":"assistant","content":[],"provider":"p","model":"m","usage":{"input":7,"output":2,"cacheRead":3},"stopReason":"stop"}}"#;
        let model = r#"{"type":"custom","id":"d","customType":"greenroom.model","data":{"preset":"fast"}}"#;
        let think = r#"{"type":"thinking_level_change","id":"e","thinkingLevel":"high"}"#;
        let reset = r#"{"type":"reset","id":"f","reason":"new"}"#;
        let all = of(&[user, command, answer, model, think]);
        assert_eq!((all.preset.as_deref(), all.effort.as_deref()), (Some("fast"), Some("high")));
        assert_eq!(all.messages, 2);
        assert_eq!(all.last.map(|usage| usage.output_tokens), Some(2));
        let anew = of(&[user, answer, model, think, reset]);
        assert_eq!(anew, Tally { messages: 0, last: None, used: None, ..all.clone() });
        let back = r#"{"type":"custom","id":"g","customType":"greenroom.model","data":{"preset":null}}"#;
        let usual = r#"{"type":"thinking_level_change","id":"h","thinkingLevel":"default"}"#;
        let odd = r#"{"type":"thinking_level_change","id":"i","thinkingLevel":"adaptive"}"#;
        let broken = r#"{"type":"custom","id":"j","customType":"greenroom.model","data":7}"#;
        let end = of(&[user, model, think, odd, broken]);
        assert_eq!((end.preset.as_deref(), end.effort.as_deref()), (Some("fast"), Some("high")));
        assert_eq!(of(&[user, model, think, back, usual]).preset, None);
        assert_eq!(of(&[user, model, think, back, usual]).effort, None);
    }

    #[test]
    fn the_window_is_filled_as_counted_and_as_estimated_once_the_conversation_is_another() {
        let user = r#"{"type":"message","id":"a","message":{"role":"user","content":"12345678"}}"#;
        let answer = r#"{"type":"message","id":"b","parentId":"a","message":{"role":"assistant","content":[],"provider":"p","model":"m","usage":{"input":700,"output":20,"cacheRead":300},"stopReason":"stop"}}"#;
        let failed = r#"{"type":"message","id":"c","parentId":"b","message":{"role":"assistant","content":[],"provider":"p","model":"m","stopReason":"error"}}"#;
        let compaction =
            r#"{"type":"compaction","id":"d","parentId":"c","summary":"s","firstKeptEntryId":"d","tokensBefore":1}"#;
        let leaf = r#"{"type":"leaf","id":"e","targetId":"a"}"#;
        for (lines, expected) in [
            (&[user][..], Fill::Estimated(2)),
            (&[user, answer], Fill::Counted(1020)),
            (&[user, answer, failed], Fill::Counted(1020)),
            (&[user, answer, failed, compaction], Fill::Estimated(2)),
            (&[user, answer, leaf], Fill::Estimated(2)),
        ] {
            let entries = read_lines(user.as_bytes());
            assert_eq!(of(lines).fill(Some(entries.entries().iter())), Some(expected), "{lines:?}");
        }
        assert_eq!(Tally::default().fill(None::<std::slice::Iter<'_, Entry>>), None);
        assert_eq!(Fill::Counted(1020).told(4000), "1020 of 4000 tokens (25 %)");
        let about = "about 2 of 4000 tokens (0 %) without instructions and tools; the next answer tells exactly";
        assert_eq!(Fill::Estimated(2).told(4000), about);
    }

    #[test]
    fn a_conversation_is_condensed_until_something_is_said() {
        let user = r#"{"type":"message","id":"a","message":{"role":"user","content":"hi"}}"#;
        let answer = r#"{"type":"message","id":"b","message":{"role":"assistant","content":[],"provider":"p","model":"m","stopReason":"stop"}}"#;
        let compaction = r#"{"type":"compaction","id":"c","summary":"s","firstKeptEntryId":"c","tokensBefore":1}"#;
        let name = r#"{"type":"session_info","id":"d","name":"n"}"#;
        let reset = r#"{"type":"reset","id":"e","reason":"new"}"#;
        for (lines, expected) in [
            (&[user, answer][..], false),
            (&[user, answer, compaction], true),
            (&[user, answer, compaction, name], true),
            (&[user, answer, compaction, user], false),
            (&[user, compaction, answer], false),
            (&[user, answer, compaction, reset], false),
        ] {
            assert_eq!(of(lines).condensed, expected, "{lines:?}");
        }
    }

    #[test]
    fn project_and_queue_outlive_a_new_conversation_and_the_goal_does_not() {
        let scope = r#"{"type":"custom","id":"a","customType":"greenroom.scope","data":{"project_path":"/srv","access_mode":"full"}}"#;
        let queue = r#"{"type":"custom","id":"b","customType":"greenroom.queue","data":{"cap":3}}"#;
        let goal = r#"{"type":"custom","id":"c","customType":"greenroom.goal","data":{"status":"active","objective":"a site"}}"#;
        let reset = r#"{"type":"reset","id":"d","reason":"new"}"#;
        let all = of(&[scope, queue, goal]);
        assert_eq!(all.scope.as_deref().map(|scope| scope.access_mode), Some(scope::AccessMode::Full));
        assert_eq!(all.queue, QueueSet { cap: Some(3), ..QueueSet::default() });
        assert!(all.goal.is_some());
        assert_eq!(of(&[scope, queue, goal, reset]), Tally { goal: None, ..all.clone() });
        let nowhere = r#"{"type":"custom","id":"e","customType":"greenroom.scope"}"#;
        let usual = r#"{"type":"custom","id":"f","customType":"greenroom.queue","data":{}}"#;
        assert_eq!(of(&[scope, queue, nowhere, usual]), Tally::default());
    }
}
