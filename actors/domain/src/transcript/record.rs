//! What a transcript says about one turn: enough to answer a repeated message without running it again.

use std::sync::Arc;

use super::{EntryKind, Transcript, TurnClose};
use crate::chat::{StopReason, Usage};
use crate::ids::TurnId;

/// What is known of a turn.
#[derive(Debug, Clone, PartialEq)]
pub struct TurnRecord {
    /// How it ended; `None` while it is open.
    pub end: Option<TurnClose>,
    /// Text of its last assistant message: the answer, with the parts of it that were cut before, or the notice.
    pub text: String,
    /// Why the model stopped last.
    pub stop: Option<StopReason>,
    /// For a failed turn: what the user may be told.
    pub error: Option<String>,
    /// Tokens of all its model calls.
    pub usage: Usage,
    /// Model of the last call.
    pub model: Arc<str>,
}

/// Gathers what the transcript has of `turn`, in whichever branch; `None` if it has nothing.
pub fn turn_record(transcript: &Transcript, turn: TurnId) -> Option<TurnRecord> {
    let mut record = None;
    let mut goes_on = true;
    for entry in transcript.entries().iter().rev().filter(|entry| entry.turn() == Some(turn)) {
        let record = record.get_or_insert_with(|| TurnRecord {
            end: None,
            text: String::new(),
            stop: None,
            error: None,
            usage: Usage::default(),
            model: Arc::from(""),
        });
        if let EntryKind::User(_) = entry.kind {
            break;
        }
        if let EntryKind::Assistant(assistant) = &entry.kind {
            let message = &assistant.message;
            if record.stop.is_none() {
                record.end = assistant.end;
                record.text.clone_from(&message.text);
                record.stop = Some(message.stop);
                record.error.clone_from(&message.error);
                record.model = message.model.clone();
            } else {
                goes_on &= message.is_cut();
                if goes_on {
                    record.text.insert_str(0, &message.text);
                }
            }
            record.usage = record.usage.plus(message.usage);
        }
    }
    record
}
