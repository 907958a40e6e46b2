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

use domain::ids::{Attempt, ToolCallId, TurnId};
use protocol::turn::{Finished, TurnEvent, TurnProgress, TurnResult};

use super::Showing;
use crate::hints;
use crate::hub::Shown;
use crate::json::{Json, edit_json, quoted, usage_json};

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
    out.push(json.raw("latency_ms", finished.latency_ms).raw("usage", usage_json(finished.usage)).done());
    out.push(frame.of("goal_status", stream).text("status", "idle").done());
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
    out.push(json.raw("usage", usage_json(finished.usage)).raw("replayed", true).done());
    out
}

#[cfg(test)]
mod tests {
    use domain::chat::{StopReason, Usage};
    use domain::ids::SessionKey;
    use protocol::turn::FileEdit;
    use serde_json::Value;

    use super::*;

    struct Client {
        shows: Shows,
        showing: Showing,
        seq: u64,
    }

    impl Client {
        fn new(streaming: bool) -> Self {
            Self { shows: Shows::default(), showing: Showing { streaming, ..Showing::default() }, seq: 0 }
        }

        fn see(&mut self, attempt: u32, gap: bool, what: TurnProgress) -> Vec<Value> {
            self.seq += 1;
            let event = TurnEvent {
                key: SessionKey::new("websocket:c").unwrap(),
                turn: "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap(),
                attempt: Attempt(attempt),
                seq: self.seq,
                what,
            };
            let shown = Shown { event, round: 1, gap, had: false, restart: false };
            let mut out = Vec::new();
            self.shows.show("c", &shown, self.showing, 1500, &mut out);
            out.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
        }

        fn names(&mut self, attempt: u32, gap: bool, what: TurnProgress) -> Vec<String> {
            self.see(attempt, gap, what).iter().map(|frame| frame["event"].as_str().unwrap().to_owned()).collect()
        }
    }

    fn delta(text: &str) -> TurnProgress {
        TurnProgress::Delta(text.to_owned())
    }

    fn end(text: &str) -> TurnProgress {
        TurnProgress::StreamEnd { text: text.into(), more: false, merge: false }
    }

    fn finished(text: &str) -> TurnProgress {
        TurnProgress::Finished(Arc::new(Finished {
            result: TurnResult::Done,
            into: None,
            text: text.to_owned(),
            stop: StopReason::Stop,
            model: "m".into(),
            usage: Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 1 },
            latency_ms: 12,
        }))
    }

    #[test]
    fn a_streamed_answer_is_not_said_twice() {
        let mut client = Client::new(true);
        let started = client.see(1, false, TurnProgress::Started);
        assert_eq!(started[0]["status"], "running");
        assert_eq!(started[0]["started_at"], 1.5);
        let first = client.see(1, false, delta("Hel\"lo"));
        assert_eq!(first[0]["text"], "Hel\"lo");
        assert_eq!(first[0]["stream_id"], "01890a5d-ac96-774b-bcce-b302099a8057.1.1");
        assert_eq!((&first[0]["attempt"], &first[0]["seq"]), (&Value::from(1), &Value::from(2)));
        let ended = client.see(1, false, end("Hel\"lo"));
        assert_eq!(ended[0]["event"], "stream_end");
        assert_eq!(ended[0].get("text"), None);
        let last = client.see(1, false, finished("Hel\"lo"));
        assert_eq!(last[0]["event"], "turn_end");
        assert_eq!(last[0]["usage"]["prompt_tokens"], 3);
        assert_eq!(last[0]["latency_ms"], 12);
        assert_eq!((&last[1]["event"], &last[1]["status"]), (&"goal_status".into(), &"idle".into()));
    }

    #[test]
    fn what_was_missed_comes_with_the_end_of_the_stream() {
        let mut client = Client::new(true);
        client.see(1, true, delta("lo"));
        assert_eq!(client.see(1, true, end("Hello"))[0]["text"], "Hello");
        assert_eq!(client.names(1, false, finished("Hello")), ["turn_end", "goal_status"]);
    }

    #[test]
    fn without_streaming_the_answer_is_one_message() {
        let mut client = Client::new(false);
        client.see(1, false, TurnProgress::Started);
        assert!(client.see(1, false, delta("Hello")).is_empty());
        assert!(client.see(1, false, end("Hello")).is_empty());
        assert_eq!(client.names(1, false, finished("Hello")), ["message", "turn_end", "goal_status"]);
    }

    #[test]
    fn a_message_in_two_parts_is_one_to_people() {
        let part = || TurnProgress::StreamEnd { text: "Hel".into(), more: true, merge: true };
        let mut client = Client::new(true);
        client.see(1, false, delta("Hel"));
        let first = client.see(1, false, part());
        assert_eq!((&first[0]["resuming"], &first[0]["merge_next"]), (&Value::from(true), &Value::from(true)));
        client.see(1, false, delta("lo"));
        assert!(client.see(1, false, end("lo"))[0].get("merge_next").is_none());
        assert_eq!(client.names(1, false, finished("Hello")), ["turn_end", "goal_status"]);
        let mut client = Client::new(false);
        assert!(client.see(1, false, part()).is_empty());
        let end = TurnProgress::StreamEnd { text: "lo".into(), more: true, merge: false };
        assert_eq!(client.see(1, false, end)[0]["text"], "Hello");
    }

    #[test]
    fn what_the_program_tells_is_progress() {
        let frame = Client::new(false).see(1, false, TurnProgress::Notice("room was made".into())).remove(0);
        assert_eq!(
            (&frame["event"], &frame["kind"], &frame["text"]),
            (&"message".into(), &"progress".into(), &"room was made".into())
        );
    }

    #[test]
    fn a_new_attempt_is_announced_and_a_notice_is_a_message() {
        let mut client = Client::new(true);
        client.see(1, false, TurnProgress::Started);
        client.see(1, false, delta("Hel"));
        assert_eq!(client.names(2, false, TurnProgress::Started), ["turn_restarted", "goal_status"]);
        assert_eq!(client.names(2, false, finished("given up")), ["message", "turn_end", "goal_status"]);
    }

    #[test]
    fn reasoning_ends_before_text_and_tools_are_progress() {
        let mut client = Client::new(true);
        assert_eq!(client.names(1, false, TurnProgress::Reasoning("hm".into())), ["reasoning_delta"]);
        assert_eq!(client.names(1, false, delta("a")), ["reasoning_end", "delta"]);
        let frame = client.see(1, false, started()).remove(0);
        assert_eq!((&frame["kind"], &frame["text"]), (&"tool_hint".into(), &"$ make".into()));
        assert_eq!(frame["tool_events"][0]["phase"], "start");
        assert_eq!(frame["tool_events"][0]["arguments"]["command"], "make");
    }

    fn started() -> TurnProgress {
        let (call, arguments) = (ToolCallId("c1".into()), r#"{"command":"make"}"#.to_owned());
        TurnProgress::ToolStarted { call, name: "exec".into(), arguments }
    }

    fn ended(is_error: bool, edit: bool) -> TurnProgress {
        let edit = edit.then(|| FileEdit { path: "a b".into(), added: 2, removed: 1, diff: "+x\n".into() });
        TurnProgress::ToolEnded {
            call: ToolCallId("c1".into()),
            name: "exec".into(),
            is_error,
            result: "said \"so\"".into(),
            took_ms: 7,
            edit: edit.map(Arc::new),
        }
    }

    #[test]
    fn a_tools_end_says_what_it_gave_and_made() {
        let mut client = Client::new(true);
        client.see(1, false, started());
        let item = |frames: &[Value]| frames[0]["tool_events"][0].clone();
        let good = item(&client.see(1, false, ended(false, false)));
        assert_eq!(
            good,
            serde_json::json!({"phase": "end", "version": 1, "call_id": "c1", "name": "exec", "result": "said \"so\"",
                               "files": [], "took_ms": 7})
        );
        let bad = item(&client.see(1, false, ended(true, false)));
        assert_eq!((&bad["phase"], &bad["error"], bad.get("result")), (&"error".into(), &"said \"so\"".into(), None));
        let frames = client.see(1, false, ended(false, true));
        assert_eq!(item(&frames)["files"], serde_json::json!(["a b"]));
        assert_eq!(frames[1]["event"], "file_edit");
        let edit = serde_json::json!([{"path": "a b", "added": 2, "removed": 1, "diff": "+x\n"}]);
        assert_eq!(frames[1]["edits"], edit);
        assert_eq!((&frames[0]["seq"], &frames[1]["seq"]), (&3.into(), &4.into()), "the first is not yet all of it");
    }

    #[test]
    fn what_is_shown_besides_the_answer_is_a_setting() {
        // Streaming, progress, hints, reasoning; then the events without those that are always there.
        for (streaming, progress, tool_hints, reasoning, expected) in [
            (true, true, true, true, "reasoning_delta reasoning_end delta stream_end tool_hint+ progress+ file_edit"),
            (true, true, true, false, "delta stream_end tool_hint+ progress+ file_edit"),
            (true, true, false, false, "delta stream_end progress+ progress+ file_edit"),
            (true, false, true, false, "delta stream_end tool_hint"),
            (true, false, false, true, "reasoning_delta reasoning_end delta stream_end"),
            (false, true, true, true, "progress tool_hint+ progress+ file_edit"),
            (false, false, true, true, "tool_hint"),
            (false, false, false, false, ""),
        ] {
            let mut client = Client::new(streaming);
            client.showing = Showing { streaming, progress, tool_hints, reasoning, ..client.showing };
            let said = TurnProgress::StreamEnd { text: "a".into(), more: true, merge: false };
            let mut names = Vec::new();
            for what in [TurnProgress::Reasoning("hm".into()), delta("a"), said, started(), ended(false, true)] {
                for frame in client.see(1, false, what) {
                    let name = frame.get("kind").unwrap_or(&frame["event"]).as_str().unwrap().to_owned();
                    names.push(name + if frame.get("tool_events").is_some() { "+" } else { "" });
                }
            }
            assert_eq!(names.join(" "), expected);
            assert_eq!(client.names(1, false, finished("b")), ["message", "turn_end", "goal_status"]);
        }
    }

    #[test]
    fn a_clients_own_turn_id_is_echoed() {
        let mut client = Client::new(true);
        let turn = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        client.shows.name_turn(turn, "mine".into());
        for what in [TurnProgress::Started, delta("a"), end("a"), finished("a")] {
            for frame in client.see(1, false, what) {
                assert_eq!(frame["client_turn_id"], "mine", "{frame}");
            }
        }
    }
}
