//! Server frames, written. Pure: what the hub shows in, JSON text out, with what one connection has been shown so far.
//!
//! Text is streamed as `delta`s and closed by `stream_end`. A `message` with the whole text follows only where the
//! stream did not already say exactly that: not streamed, joined late, a notice, a failure. `turn_end` is always last.
//!
//! **Invariant:** a client whose last frame was cut off behind it comes back with that frame's cursor, and then has
//! everything. So where one event makes several frames, only the last one carries its number, and the others that of
//! the event before: they may come twice.

use std::collections::HashMap;
use std::fmt::Display;
use std::sync::Arc;

use domain::goal::Goal;
use domain::ids::{Attempt, ToolCallId, TurnId};
use protocol::turn::{Finished, Standing, TurnEvent, TurnProgress, TurnResult};

use super::Showing;
use crate::hints;
use crate::hub::Shown;
use crate::json::{Json, edit_json, goal_json, quoted, usage_json};

/// What one connection has been shown.
#[derive(Default)]
pub(crate) struct Shows {
    turns: HashMap<TurnId, Stream>,
}

struct Stream {
    attempt: Attempt,
    /// The last event that was shown.
    seen: u64,
    /// Bytes of text shown in this round.
    sent: usize,
    /// Whether all of this round's text was shown.
    whole: bool,
    reasoning: bool,
    /// What the messages before say that go on in the next one.
    begun: String,
    last_end: Option<Arc<str>>,
    client_turn_id: Option<Arc<str>>,
}

impl Stream {
    fn new() -> Self {
        Self {
            attempt: Attempt(0),
            seen: 0,
            sent: 0,
            whole: true,
            reasoning: false,
            begun: String::new(),
            last_end: None,
            client_turn_id: None,
        }
    }

    fn begin(&mut self, attempt: Attempt) {
        let client_turn_id = self.client_turn_id.take();
        *self = Self { attempt, client_turn_id, ..Self::new() };
    }
}

impl Shows {
    /// Remembers the client's own name of a turn.
    pub(crate) fn name_turn(&mut self, turn: TurnId, client_turn_id: Arc<str>) {
        self.turns.entry(turn).or_insert_with(Stream::new).client_turn_id = Some(client_turn_id);
    }

    /// Writes the frames for one event of a chat.
    pub(crate) fn show(&mut self, chat_id: &str, shown: &Shown, showing: Showing, now_ms: u64, out: &mut Vec<String>) {
        if shown.had {
            // Its frames were sent by another connection; what it changes here is the same.
            self.write(chat_id, shown, showing, now_ms, &mut Vec::new());
            if let Some(stream) = self.turns.get_mut(&shown.event.turn) {
                // It may have come late to this round: its end says all of it.
                stream.whole &= stream.sent == 0;
            }
        } else {
            self.write(chat_id, shown, showing, now_ms, out);
        }
    }

    fn write(&mut self, chat_id: &str, shown: &Shown, showing: Showing, now_ms: u64, out: &mut Vec<String>) {
        let event = &shown.event;
        let stream = self.turns.entry(event.turn).or_insert_with(Stream::new);
        let frame = Frame { chat_id, event, round: shown.round };
        if shown.restart || stream.attempt != event.attempt {
            let known = stream.attempt != Attempt(0);
            stream.begin(event.attempt);
            if shown.restart || known || event.attempt > Attempt::FIRST {
                out.push(frame.before("turn_restarted", stream).done());
            }
        }
        if shown.gap {
            stream.whole = false;
        }
        match &event.what {
            TurnProgress::Started => {
                let started = format!("{}.{:03}", now_ms / 1000, now_ms % 1000);
                out.push(frame.of("goal_status", stream).text("status", "running").raw("started_at", started).done());
            }
            TurnProgress::Delta(text) => {
                end_reasoning(&frame, stream, out);
                stream.sent += text.len();
                if showing.streaming {
                    out.push(frame.of("delta", stream).text("text", text).plain("stream_id", frame.stream_id()).done());
                } else {
                    stream.whole = false;
                }
            }
            TurnProgress::Reasoning(text) => {
                if showing.streaming && showing.reasoning {
                    stream.reasoning = true;
                    let json = frame.of("reasoning_delta", stream).text("text", text);
                    out.push(json.plain("stream_id", frame.stream_id()).done());
                }
            }
            TurnProgress::StreamEnd { text, more, merge } => {
                stream_end(&frame, stream, text, End { more: *more, merge: *merge }, showing, out);
            }
            TurnProgress::ToolStarted { .. } | TurnProgress::ToolEnded { .. } => {
                tool(&frame, stream, showing, out);
            }
            TurnProgress::Notice(text) => {
                out.push(frame.of("message", stream).text("text", text).text("kind", "progress").done());
            }
            TurnProgress::Goal(goal) => {
                out.push(frame.of("goal_state", stream).raw("goal_state", goal_json(Some(goal))).done());
            }
            TurnProgress::Finished(finished) => {
                let stream = self.turns.remove(&event.turn).unwrap_or_else(Stream::new);
                finish(&frame, &stream, finished, out);
                return;
            }
        }
        stream.seen = event.seq;
    }
}

fn end_reasoning(frame: &Frame<'_>, stream: &mut Stream, out: &mut Vec<String>) {
    if stream.reasoning {
        stream.reasoning = false;
        out.push(frame.before("reasoning_end", stream).plain("stream_id", frame.stream_id()).done());
    }
}

/// What follows a message of the model.
#[derive(Clone, Copy)]
struct End {
    more: bool,
    merge: bool,
}

fn stream_end(
    frame: &Frame<'_>,
    stream: &mut Stream,
    text: &Arc<str>,
    End { more, merge }: End,
    showing: Showing,
    out: &mut Vec<String>,
) {
    end_reasoning(frame, stream, out);
    let all: Arc<str> = match std::mem::take(&mut stream.begun) {
        begun if begun.is_empty() => Arc::clone(text),
        begun => format!("{begun}{text}").into(),
    };
    if merge {
        all.as_ref().clone_into(&mut stream.begun);
    }
    if showing.streaming && (stream.sent > 0 || !all.is_empty()) {
        let json = frame.of("stream_end", stream).plain("stream_id", frame.stream_id()).raw("resuming", more);
        let said = stream.whole && stream.sent == text.len();
        let json = json.maybe("text", (!said).then_some(&**text));
        out.push(if merge { json.raw("merge_next", true) } else { json }.done());
        stream.last_end = Some(all);
    } else if !showing.streaming && showing.progress && more && !merge && !all.is_empty() {
        out.push(frame.of("message", stream).text("text", &all).text("kind", "progress").done());
    }
    stream.sent = 0;
    stream.whole = true;
}

fn finish(frame: &Frame<'_>, stream: &Stream, finished: &Finished, out: &mut Vec<String>) {
    let said = stream.last_end.as_deref() == Some(&*finished.text) && finished.result == TurnResult::Done;
    if !said && !finished.text.is_empty() {
        let json = frame.before("message", stream).text("text", &finished.text);
        out.push(json.raw("latency_ms", finished.latency_ms).done());
    }
    let json = frame.of("turn_end", stream).text("result", finished.result.word());
    let json = json.maybe("into", finished.into.map(|turn| turn.to_string()).as_deref());
    let json = json.raw("latency_ms", finished.latency_ms).raw("usage", usage_json(finished.usage));
    out.push(standing(json, finished).done());
    out.push(frame.of("goal_status", stream).text("status", "idle").done());
}

/// How the session stands, if that is known.
fn standing(json: Json, finished: &Finished) -> Json {
    match &finished.standing {
        Some(Standing { window_tokens, goal }) => {
            json.raw("context_window_tokens", window_tokens).raw("goal_state", goal_json(goal.as_deref()))
        }
        None => json,
    }
}

/// A call that began or ended.
fn tool(frame: &Frame<'_>, stream: &Stream, showing: Showing, out: &mut Vec<String>) {
    let item = |phase, call: &ToolCallId, name: &str| {
        Json::open("phase", phase).raw("version", 1).text("call_id", &call.0).text("name", name)
    };
    let progress = |json: Json, item: Json| json.raw("tool_events", format_args!("[{}]", item.done())).done();
    let (json, edit) = match &frame.event.what {
        TurnProgress::ToolStarted { call, name, arguments } => {
            let is_json = serde_json::from_str::<serde::de::IgnoredAny>(arguments).is_ok();
            let item = item("start", call, name).raw("arguments", if is_json { arguments.as_str() } else { "null" });
            let (hint, kind) = match showing.tool_hints {
                true => (hints::of(name, arguments, showing.tool_hint_chars_max), "tool_hint"),
                false => (String::new(), "progress"),
            };
            let json = frame.of("message", stream).text("text", &hint).text("kind", kind);
            out.extend(match (showing.progress, showing.tool_hints) {
                (true, _) => Some(progress(json, item)),
                (false, true) => Some(json.done()),
                (false, false) => None,
            });
            return;
        }
        TurnProgress::ToolEnded { call, name, is_error, result, took_ms, edit } => {
            let (phase, field) = if *is_error { ("error", "error") } else { ("end", "result") };
            let files = edit.iter().map(|edit| quoted(&edit.path)).collect::<String>();
            let item = item(phase, call, name).text(field, result).raw("files", format_args!("[{files}]"));
            (item.raw("took_ms", took_ms), edit)
        }
        TurnProgress::Started
        | TurnProgress::Delta(_)
        | TurnProgress::Reasoning(_)
        | TurnProgress::StreamEnd { .. }
        | TurnProgress::Notice(_)
        | TurnProgress::Goal(_)
        | TurnProgress::Finished(_) => return,
    };
    if !showing.progress {
        return;
    }
    let message = |json: Json| json.text("text", "").text("kind", "progress");
    let Some(edit) = edit else {
        return out.push(progress(message(frame.of("message", stream)), json));
    };
    out.push(progress(message(frame.before("message", stream)), json));
    out.push(frame.of("file_edit", stream).raw("edits", format_args!("[{}]", edit_json(edit))).done());
}

struct Frame<'a> {
    chat_id: &'a str,
    event: &'a TurnEvent,
    round: u32,
}

impl Frame<'_> {
    /// The last frame of the event.
    fn of(&self, name: &'static str, stream: &Stream) -> Json {
        self.numbered(name, stream, self.event.seq)
    }

    /// A frame that others of the same event follow.
    fn before(&self, name: &'static str, stream: &Stream) -> Json {
        self.numbered(name, stream, stream.seen)
    }

    fn numbered(&self, name: &'static str, stream: &Stream, seq: u64) -> Json {
        let json = Json::event(name).text("chat_id", self.chat_id).plain("turn_id", self.event.turn);
        let json = json.raw("attempt", self.event.attempt).raw("seq", seq);
        json.maybe("client_turn_id", stream.client_turn_id.as_deref())
    }

    fn stream_id(&self) -> impl Display {
        format!("{}.{}.{}", self.event.turn, self.event.attempt, self.round)
    }
}

/// The outcome of a turn that ended earlier: one `message`, one `turn_end`.
pub(crate) fn past(chat_id: &str, turn: TurnId, finished: &Finished, client_turn_id: Option<&str>) -> Vec<String> {
    let of = |name| {
        let json = Json::event(name).text("chat_id", chat_id).plain("turn_id", turn);
        json.maybe("client_turn_id", client_turn_id)
    };
    let mut out = Vec::with_capacity(2);
    if !finished.text.is_empty() {
        out.push(of("message").text("text", &finished.text).done());
    }
    let json = of("turn_end").text("result", finished.result.word());
    let json = json.maybe("into", finished.into.map(|turn| turn.to_string()).as_deref());
    out.push(standing(json.raw("usage", usage_json(finished.usage)), finished).raw("replayed", true).done());
    out
}

/// The goal of a chat, for a client that comes back.
pub(crate) fn goal(chat_id: &str, goal: &Goal) -> String {
    Json::event("goal_state").text("chat_id", chat_id).raw("goal_state", goal_json(Some(goal))).done()
}

#[cfg(test)]
mod tests;
