use domain::chat::{StopReason, Usage};
use domain::ids::SessionKey;
use protocol::turn::FileEdit;
use serde_json::{Value, json};

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
        standing: Some(Standing { window_tokens: 9000, goal: None }),
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
    assert_eq!((&last[0]["context_window_tokens"], &last[0]["goal_state"]), (&json!(9000), &json!({"active": false})));
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
