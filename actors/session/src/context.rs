//! The conversation in memory, while it is hot.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{Message, StopReason};
use domain::history::Kept;
use domain::ids::TurnId;
use domain::prompt::{RequestParts, Round, chat_request};
use domain::request::ChatRequest;
use domain::transcript::{Entry, Transcript, turn_record};
use protocol::session::TurnRecord;
use protocol::turn::TurnResult;

use crate::shared::Shared;
use crate::turn::{Tools, Written};

/// How long a conversation in memory is trusted before the file is looked at again.
pub const FRESH_FOR: Duration = Duration::from_secs(2);

/// A transcript in memory, counted among those of the process.
pub struct Context {
    transcript: Transcript,
    kept: Kept,
    bytes: u64,
    /// When it was last known to be what the file says.
    pub checked_at: Duration,
    shared: Arc<Shared>,
}

// === impl Context ===

impl Context {
    /// Keeps `transcript`, which takes about `bytes`.
    pub fn new(transcript: Transcript, bytes: u64, now: Duration, shared: &Arc<Shared>) -> Self {
        shared.hot.add(bytes);
        Self { transcript, kept: Kept::default(), bytes, checked_at: now, shared: Arc::clone(shared) }
    }

    /// Adds our own entries, as they are committed.
    pub fn push(&mut self, entries: Vec<Entry>, bytes: u64) {
        self.bytes += bytes;
        self.shared.hot.add(bytes);
        for entry in entries {
            self.transcript.push(entry);
        }
    }

    /// The next model call of `turn`.
    pub fn request(&mut self, turn: TurnId, body: &TurnBody, tools: Tools) -> ChatRequest {
        let shared = &self.shared;
        let parts = RequestParts {
            model: &shared.config.model,
            max_tokens: shared.config.max_tokens,
            temperature: shared.config.temperature,
            context_window_tokens: shared.config.context_window_tokens,
            frame: &shared.system.frame(),
            transcript: &self.transcript,
            turn,
            body,
            round: match tools {
                Tools::Offered => Round::Open,
                Tools::Withheld => Round::Last,
            },
        };
        chat_request(&parts, &mut self.kept)
    }

    /// What the transcript has of a turn.
    pub fn record(&self, turn: TurnId) -> Option<TurnRecord> {
        record(&self.transcript, turn)
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        self.shared.hot.take(self.bytes);
    }
}

/// What `transcript` has of a turn, for its asker.
pub fn record(transcript: &Transcript, turn: TurnId) -> Option<TurnRecord> {
    use domain::transcript::TurnClose;
    let record = turn_record(transcript, turn)?;
    let Some(end) = record.end else { return Some(TurnRecord::Open) };
    let (result, text) = match end {
        TurnClose::Done => (TurnResult::Done, record.text),
        TurnClose::Failed => (TurnResult::Failed, record.error.unwrap_or(record.text)),
        TurnClose::Dead => (TurnResult::DeadLettered, record.error.unwrap_or(record.text)),
        TurnClose::Cancelled => (TurnResult::Cancelled, record.error.unwrap_or(record.text)),
    };
    let stop = record.stop.unwrap_or(StopReason::Stop);
    Some(TurnRecord::Ended { result, text, stop, usage: record.usage, model: record.model.to_string() })
}

/// Turns whose end stands in the transcript.
pub fn answered(transcript: &Transcript) -> HashSet<TurnId> {
    let ends = transcript.entries().iter().filter(|entry| entry.assistant().is_some_and(|said| said.end.is_some()));
    ends.filter_map(Entry::turn).collect()
}

/// How far `turn` stands in `transcript`.
pub fn written(transcript: &Transcript, turn: TurnId) -> Written {
    let mut written = Written::default();
    for entry in transcript.path_to_leaf() {
        if entry.turn() != Some(turn) {
            continue;
        }
        written.user |= entry.user().is_some();
        if let Some(assistant) = entry.assistant() {
            written.messages.push(Message::Assistant(Arc::clone(&assistant.message)));
        }
        if let Some(result) = entry.tool_result() {
            written.messages.push(Message::ToolResult(Arc::clone(&result.result)));
        }
    }
    written
}
