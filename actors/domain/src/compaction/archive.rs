//! What the model is asked for in place of a part of a conversation, what of its answer counts, and the part as text, for
//! when none does.

use crate::chat::{AssistantMessage, StopReason, plain_text};
use crate::text::{ellipsis, one_line};
use crate::time::iso_ms;
use crate::transcript::{Entry, EntryKind};

/// Characters of a summary.
pub const SUMMARY_CHARS_MAX: usize = 8000;
/// Characters of a part that is archived as it is.
pub const RAW_CHARS_MAX: usize = 16_000;
/// Characters of one message in it.
const RAW_MESSAGE_CHARS_MAX: usize = 2000;

/// What the model answers when there is nothing to keep.
const NOTHING: &str = "(nothing)";
/// Between such marks some models think aloud.
const THOUGHTS: [(&str, &str); 3] =
    [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>")];

/// Asks for the summary of the conversation above; `asked` is what its reader wants besides.
pub fn archive_instruction(asked: Option<&str>) -> String {
    let asked = asked.map(str::trim).filter(|asked| !asked.is_empty());
    let asked = asked.map(|asked| format!("\n\nAbove all: {asked}")).unwrap_or_default();
    format!(
        "Summarise the conversation so far. It will be left out from now on, and your summary stands in its place, so that \
         the work can go on. Do not answer the conversation, and call no tool.\n\n\
         Where a summary of what came before is shown, update it: keep what is still true, change what is not, and do not \
         repeat it beside yours.\n\n\
         Keep names, paths, numbers, identifiers and exact wording where they matter. Write under these headings, each with \
         `(none)` where nothing belongs there:\n\n\
         ## Goal\n## Constraints & Preferences\n## Progress\n### Done\n### In Progress\n### Blocked\n## Key Decisions\n\
         ## Next Steps\n## Critical Context\n\n\
         If nothing in it is worth keeping, answer only `{NOTHING}`.{asked}"
    )
}

/// The summary that an answer is; `None` if there is nothing to keep. Errors say in a word why it is none.
pub fn judge(answer: &AssistantMessage) -> Result<Option<String>, &'static str> {
    if !answer.calls.is_empty() {
        return Err("calls");
    }
    match answer.stop {
        StopReason::Stop => {}
        StopReason::Length => return Err("length"),
        StopReason::ToolUse => return Err("calls"),
        StopReason::Error | StopReason::Aborted => return Err("error"),
    }
    let text = without_thoughts(&answer.text);
    let text = text.trim();
    if text.is_empty() {
        return Err("blank");
    }
    if text.trim_matches(['`', '.', '"']).eq_ignore_ascii_case(NOTHING) {
        return Ok(None);
    }
    Ok(Some(ellipsis(text, SUMMARY_CHARS_MAX).into_owned()))
}

/// A part of so many messages as text: `[RAW] 3 messages`, then `[2026-11-30 14:19] USER: hello` for each of its
/// `entries`, in UTC.
pub fn raw(messages: usize, entries: &[&Entry]) -> String {
    let lines: Vec<String> = entries.iter().filter_map(|entry| raw_line(entry)).collect();
    let text = format!("[RAW] {messages} messages\n{}", lines.join("\n"));
    ellipsis(&text, RAW_CHARS_MAX).into_owned()
}

fn raw_line(entry: &Entry) -> Option<String> {
    let (who, text) = match &entry.kind {
        EntryKind::User(user) if user.event.is_some() => ("EVENT", plain_text(&user.content)),
        EntryKind::User(user) if !user.is_command() => ("USER", plain_text(&user.content)),
        EntryKind::Shown(content) => ("USER", plain_text(content)),
        EntryKind::Assistant(assistant) if !assistant.transcript_only => {
            let message = &assistant.message;
            let calls = message.calls.iter().map(|call| format!("[{}]", call.name));
            let said = [message.text.trim().to_owned()].into_iter().chain(calls).filter(|part| !part.is_empty());
            ("ASSISTANT", said.collect::<Vec<_>>().join(" "))
        }
        EntryKind::ToolResult(result) => ("TOOL", plain_text(&result.result.content)),
        EntryKind::BranchSummary(summary) => ("SUMMARY", summary.clone()),
        EntryKind::User(_)
        | EntryKind::Assistant(_)
        | EntryKind::Compaction { .. }
        | EntryKind::Reset { .. }
        | EntryKind::Silent(_)
        | EntryKind::Leaf { .. }
        | EntryKind::Opaque => return None,
    };
    let at: String = iso_ms(entry.timestamp_ms).chars().take(16).collect();
    let text = one_line(ellipsis(text.trim(), RAW_MESSAGE_CHARS_MAX).as_ref());
    Some(format!("[{}] {who}: {text}", at.replace('T', " ")))
}

/// What is said between marks of thinking is left out; an open mark leaves out all that follows.
fn without_thoughts(text: &str) -> String {
    let mut text = text.to_owned();
    for (open, close) in THOUGHTS {
        while let Some((before, inside)) = text.split_once(open) {
            let after = inside.split_once(close).map_or("", |(_, after)| after);
            text = format!("{before}{after}");
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::history::tests::{assistant, compaction, result, user};
    use crate::transcript::Head;

    fn answer(text: &str, stop: StopReason) -> AssistantMessage {
        let EntryKind::Assistant(entry) = assistant(text, stop, &[]) else { panic!("it is one") };
        AssistantMessage::clone(&entry.message)
    }

    #[test]
    fn an_answer_is_a_summary_nothing_or_a_failure_with_its_word() {
        let long = "é".repeat(SUMMARY_CHARS_MAX + 1);
        for (text, stop, expected) in [
            (" ## Goal\nx ", StopReason::Stop, Ok(Some("## Goal\nx"))),
            ("(nothing)", StopReason::Stop, Ok(None)),
            ("<think>hm</think>\n`(Nothing)`.", StopReason::Stop, Ok(None)),
            ("<thinking>a</thinking>b<thought>c</thought>", StopReason::Stop, Ok(Some("b"))),
            ("<think>for ever", StopReason::Stop, Err("blank")),
            (" \n", StopReason::Stop, Err("blank")),
            ("half of", StopReason::Length, Err("length")),
            ("x", StopReason::ToolUse, Err("calls")),
            ("x", StopReason::Error, Err("error")),
            ("x", StopReason::Aborted, Err("error")),
        ] {
            let judged = judge(&answer(text, stop));
            assert_eq!(judged.as_ref().map(|text| text.as_deref()), expected.as_ref().map(|text| *text), "{text}");
        }
        let cut = judge(&answer(&long, StopReason::Stop)).unwrap().unwrap();
        assert_eq!((cut.chars().count(), cut.ends_with('…')), (SUMMARY_CHARS_MAX, true));
        let EntryKind::Assistant(calling) = assistant("x", StopReason::Stop, &[("a", "t")]) else {
            panic!("it is one")
        };
        assert_eq!(judge(&calling.message), Err("calls"));
    }

    #[test]
    fn a_part_is_archived_line_by_line_and_has_a_limit() {
        let entry = |kind| Entry::new(Head { id: "1".into(), parent: None, timestamp_ms: 1_796_048_340_000 }, kind);
        let kinds = vec![
            user("hello\nyou"),
            assistant("let me see", StopReason::ToolUse, &[("a", "read_file")]),
            result("a", "contents"),
            compaction("old", None),
        ];
        let entries: Vec<Entry> = kinds.into_iter().map(entry).collect();
        let text = raw(3, &entries.iter().collect::<Vec<_>>());
        assert_eq!(
            text,
            "[RAW] 3 messages\n[2026-11-30 14:19] USER: hello you\n[2026-11-30 14:19] ASSISTANT: let me see [read_file]\n\
             [2026-11-30 14:19] TOOL: contents"
        );
        let many: Vec<Entry> = (0..20).map(|_| entry(user(&"word ".repeat(1000)))).collect();
        let many: Vec<&Entry> = many.iter().collect();
        let text = raw(1_000, &many);
        assert_eq!(text.chars().count(), RAW_CHARS_MAX);
        assert!(text.starts_with("[RAW] 1000 messages\n"), "all of the part are counted");
    }

    #[test]
    fn the_request_names_every_heading_and_what_is_asked_besides() {
        let plain = archive_instruction(None);
        for heading in
            ["Goal", "Constraints & Preferences", "Progress", "Key Decisions", "Next Steps", "Critical Context"]
        {
            assert!(plain.contains(&format!("## {heading}\n")), "{heading}");
        }
        assert!(plain.contains("(nothing)"));
        assert_eq!(archive_instruction(Some("  ")), plain);
        let asked: Arc<str> = archive_instruction(Some("keep the prices")).into();
        assert!(asked.starts_with(&plain) && asked.ends_with("Above all: keep the prices"));
    }
}
