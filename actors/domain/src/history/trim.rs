//! Cuts the running turn to size, so that its own work does not push the conversation out of the window.
//!
//! What it does goes by the messages alone and only ever adds to what it did a round before, so that most of one request
//! is the beginning of the next.

use std::sync::Arc;

use crate::budget::message_tokens;
use crate::chat::{Content, Message, ToolResult, plain_text};
use crate::text::head_and_tail;

/// Tools whose results can be had again.
const REPEATABLE: [&str; 8] =
    ["read_file", "exec", "grep", "find_files", "web_search", "web_fetch", "list_dir", "list_exec_sessions"];
/// Shorter results are left alone, in characters.
const CHARS_MIN: usize = 500;
/// How much of the room is used after results were left out, in percent.
const LOW_PERCENT: u64 = 85;
/// How much of it one result may take when the room does not suffice, in percent.
const SINGLE_PERCENT: u64 = 30;
/// Characters of a result that was not yet answered, where the model's window was overrun.
const HARD_CHARS_MAX: usize = 4000;
/// What the note has that stands for a result whose whole text is in a file.
const PREVIEW: &str = "\npreview:\n";

/// The first line of a result whose whole text is in a file.
pub const PERSISTED: &str = "[tool output persisted]";

/// How a running turn is cut to size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Trim {
    /// As far as it has to be.
    #[default]
    Usual,
    /// As far as it can be: the provider says that the last request was too long.
    Hard,
}

/// Makes the messages of a running turn have at most `room` tokens, as far as that is possible without touching what
/// users said and the last round. Calls keep their results.
pub fn trim(own: &mut Vec<Message>, room: u64, how: Trim) {
    if how == Trim::Hard {
        hard(own);
    }
    leave_out_as_it_grew(own, room);
    if tokens(own) > room {
        shorten(own, room);
    }
    if tokens(own) > room {
        leave_out_all(own, room);
    }
    if tokens(own) > room {
        drop_rounds(own, room);
    }
}

fn tokens(messages: &[Message]) -> u64 {
    messages.iter().map(message_tokens).sum()
}

/// Where the results begin that no answer followed yet.
fn unanswered(own: &[Message]) -> usize {
    own.iter().rposition(|message| matches!(message, Message::Assistant(_))).unwrap_or(0)
}

/// Goes through the rounds as they came. When one overran the room, the oldest results before it go until there is
/// some to spare; those that it asked for itself, only as far as must be.
fn leave_out_as_it_grew(own: &mut [Message], room: u64) {
    let low = room.saturating_mul(LOW_PERCENT) / 100;
    let (mut sum, mut next, mut round) = (0_u64, 0, 0);
    for at in 0..own.len() {
        sum = sum.saturating_add(own.get(at).map_or(0, message_tokens));
        if matches!(own.get(at), Some(Message::Assistant(_))) {
            round = at;
        }
        if sum <= room || matches!(own.get(at + 1), Some(Message::ToolResult(_))) {
            continue;
        }
        while next <= at && (if next < round { sum > low } else { sum > room }) {
            sum -= own.get_mut(next).map_or(0, |message| replace(message, leave_out_repeatable));
            next += 1;
        }
    }
}

fn shorten(own: &mut [Message], room: u64) {
    let single = room.saturating_mul(SINGLE_PERCENT) / 100;
    for message in own {
        if message_tokens(message) > single {
            let chars_max = usize::try_from(single.saturating_mul(2)).unwrap_or(usize::MAX);
            replace(message, |result| shortened(result, chars_max));
        }
    }
}

fn leave_out_all(own: &mut [Message], room: u64) {
    let mut sum = tokens(own);
    for message in own {
        if sum <= room {
            return;
        }
        sum -= replace(message, leave_out);
    }
}

/// The oldest rounds go as a whole, never what users said between them.
fn drop_rounds(own: &mut Vec<Message>, room: u64) {
    let low = room.saturating_mul(LOW_PERCENT) / 100;
    let mut sum = tokens(own);
    let mut last = unanswered(own);
    let mut at = 1;
    while at < last && sum > low {
        if !matches!(own.get(at), Some(Message::Assistant(_))) || is_between_users(own, at) {
            at += 1;
            continue;
        }
        let results = own.iter().skip(at + 1).take_while(|message| matches!(message, Message::ToolResult(_))).count();
        sum -= tokens(&own.drain(at..=at + results).collect::<Vec<_>>());
        last -= results + 1;
    }
}

/// Whether nothing but the round at `at` stands between two messages of users, which would be one without it.
fn is_between_users(own: &[Message], at: usize) -> bool {
    let behind = own.iter().skip(at + 1).find(|message| !matches!(message, Message::ToolResult(_)));
    let before = at.checked_sub(1).and_then(|before| own.get(before));
    let user = |message: Option<&Message>| matches!(message, Some(Message::User(_)));
    user(before) && user(behind)
}

fn hard(own: &mut [Message]) {
    let last = unanswered(own);
    for (at, message) in own.iter_mut().enumerate() {
        replace(message, |result| if at < last { leave_out(result) } else { shortened(result, HARD_CHARS_MAX) });
    }
}

/// Puts a shorter result in place of one; how many tokens that saved.
fn replace(message: &mut Message, by: impl FnOnce(&ToolResult) -> Option<ToolResult>) -> u64 {
    let before = message_tokens(message);
    let Message::ToolResult(result) = message else { return 0 };
    let Some(shorter) = by(result) else { return 0 };
    let shorter = Message::ToolResult(Arc::new(shorter));
    let after = message_tokens(&shorter);
    if after >= before {
        return 0;
    }
    *message = shorter;
    before - after
}

fn leave_out_repeatable(result: &ToolResult) -> Option<ToolResult> {
    REPEATABLE.contains(&result.name.as_str()).then(|| leave_out(result)).flatten()
}

fn leave_out(result: &ToolResult) -> Option<ToolResult> {
    let text = plain_text(&result.content);
    let images = result.content.iter().any(|piece| matches!(piece, Content::Image { .. }));
    let chars = text.chars().count();
    if chars < CHARS_MIN && !images {
        return None;
    }
    let note = match text.split_once(PREVIEW) {
        // The file is still there.
        Some((head, _)) if head.starts_with(PERSISTED) => head.to_owned(),
        Some(_) | None => {
            format!("[{} result omitted to save space: {chars} characters; call it again if needed]", result.name)
        }
    };
    Some(with_text(result, note))
}

fn shortened(result: &ToolResult, chars_max: usize) -> Option<ToolResult> {
    let text = plain_text(&result.content);
    (text.chars().count() > chars_max).then(|| with_text(result, head_and_tail(&text, chars_max).into_owned()))
}

fn with_text(result: &ToolResult, text: String) -> ToolResult {
    ToolResult { content: vec![Content::text(text)], ..result.clone() }
}
