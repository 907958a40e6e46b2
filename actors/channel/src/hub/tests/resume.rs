//! A client that is cut off anywhere and comes back with its cursor has what one has that never was.

use std::convert::Infallible;
use std::sync::Arc;

use domain::ids::ToolCallId;
use futures::FutureExt;
use proptest::prelude::*;
use protocol::turn::FileEdit;
use serde_json::Value;

use super::*;
use crate::hub::outlet::{OUTLET_BYTES_MAX, Out, Outflow, Outlet};
use crate::openai_api::follow::{Follow, Mark};
use crate::websocket::Showing;
use crate::websocket::shows::{Shows, past};

const CHAT: &str = "websocket:c";
const API: &str = "api:c";

/// Texts of a turn that its memory holds in any case.
const HELD_BYTES: usize = 20_000;

/// What a model said in one round, in which pieces, and whether a tool ran behind it.
#[derive(Debug, Clone)]
struct Round {
    reasoning: String,
    text: String,
    piece: usize,
    merge: bool,
    tool: bool,
}

fn rounds() -> impl Strategy<Value = Vec<Round>> {
    // Now and then so much that the memory of the turn holds not all of it.
    let times = prop_oneof![9 => Just(1usize), 1 => Just(2000)];
    let text = ("[a-zé ]{0,30}", times).prop_map(|(text, times)| text.repeat(times));
    let round = ("[a-z]{0,5}", text, 1usize..9, prop::bool::weighted(0.2), any::<bool>());
    let round = round.prop_map(|(reasoning, text, piece, merge, tool)| {
        let piece = piece.max(text.len() / 400);
        Round { reasoning, text, piece, merge, tool }
    });
    prop::collection::vec(round, 1..4)
}

fn pieces(text: &str, size: usize) -> Vec<String> {
    text.chars().collect::<Vec<_>>().chunks(size).map(|piece| piece.iter().collect()).collect()
}

/// The events of one attempt, and the answer.
fn attempt(rounds: &[Round]) -> (Vec<TurnProgress>, Finished) {
    let mut events = vec![TurnProgress::Started];
    let (mut message, mut answer) = (String::new(), String::new());
    for (at, round) in rounds.iter().enumerate() {
        let last = at + 1 == rounds.len();
        let merge = round.merge && !last && !round.text.is_empty();
        events.extend(pieces(&round.reasoning, round.piece).into_iter().map(TurnProgress::Reasoning));
        events.extend(pieces(&round.text, round.piece).into_iter().map(TurnProgress::Delta));
        events.push(TurnProgress::StreamEnd { text: round.text.as_str().into(), more: !last, merge });
        message.push_str(&round.text);
        if !merge {
            answer = std::mem::take(&mut message);
        }
        if round.tool && !last && !merge {
            let (call, name) = (ToolCallId(format!("c{at}").into()), "write_file".to_owned());
            events.push(TurnProgress::ToolStarted { call: call.clone(), name: name.clone(), arguments: "{}".into() });
            let edit = FileEdit { path: format!("f{at}"), added: 1, removed: 0, diff: "+x\n".into() };
            let (result, edit) = ("done".into(), Some(Arc::new(edit)));
            events.push(TurnProgress::ToolEnded { call, name, is_error: false, result, took_ms: 1, edit });
        }
    }
    let (result, stop, model) = (TurnResult::Done, StopReason::Stop, "m".into());
    (
        events,
        Finished {
            result,
            into: None,
            text: answer,
            stop,
            model,
            usage: Usage::default(),
            latency_ms: 0,
            standing: None,
        },
    )
}

/// All events of a turn whose first attempt may have been cut: attempt, number, what happened.
fn turn(rounds: &[Round], crash: Option<usize>) -> (Vec<(u32, u64, TurnProgress)>, Finished) {
    let (mut events, finished) = attempt(rounds);
    let numbered = |attempt, events: &[TurnProgress]| {
        events.iter().cloned().zip(1..).map(move |(what, seq)| (attempt, seq, what)).collect::<Vec<_>>()
    };
    let mut all = Vec::new();
    if let Some(crash) = crash {
        all = numbered(1, &events[..crash.min(events.len())]);
    }
    events.push(TurnProgress::Finished(Arc::new(finished.clone())));
    all.extend(numbered(if crash.is_some() { 2 } else { 1 }, &events));
    (all, finished)
}

fn outlet() -> Arc<Outlet<Infallible>> {
    Outlet::new(OUTLET_BYTES_MAX, Outflow::default())
}

fn taken(outlet: &Outlet<Infallible>) -> Vec<Shown> {
    let batch = outlet.take().now_or_never().unwrap_or_default();
    let shown = batch.into_iter().map(|out| match out {
        Out::Shown(shown) => shown,
        Out::Note(never) => match never {},
    });
    shown.collect()
}

/// A connection of a chat.
struct Connection {
    outlet: Arc<Outlet<Infallible>>,
    shows: Shows,
    _watch: Watch,
}

impl Connection {
    fn new(hub: &Arc<Hub>, after: Option<Cursor>) -> Self {
        let outlet = outlet();
        let watch = hub.attach_chat(&key(CHAT), after, outlet.clone()).watch;
        Self { outlet, shows: Shows::default(), _watch: watch }
    }

    fn frames(&mut self) -> Vec<String> {
        let mut frames = Vec::new();
        for shown in taken(&self.outlet) {
            self.shows.show("c", &shown, Showing::default(), 0, &mut frames);
        }
        frames
    }
}

/// What a chat client shows a person.
#[derive(Debug, Default)]
struct Screen {
    messages: Vec<String>,
    /// The parts before of a message that goes on.
    before: String,
    open: String,
    reasoning: String,
    tools: Vec<String>,
    ended: bool,
    cursor: Option<Cursor>,
}

impl Screen {
    fn see(&mut self, frame: &str) {
        let frame: Value = serde_json::from_str(frame).unwrap();
        if let (Some(attempt), Some(seq)) = (frame["attempt"].as_u64(), frame["seq"].as_u64()) {
            self.cursor = cursor(attempt.try_into().unwrap(), seq);
        }
        let text = frame["text"].as_str();
        match frame["event"].as_str().unwrap() {
            "turn_restarted" => *self = Self { cursor: self.cursor, ..Self::default() },
            "delta" => self.open.push_str(text.unwrap()),
            "reasoning_delta" => self.reasoning.push_str(text.unwrap()),
            "stream_end" => {
                let open = std::mem::take(&mut self.open);
                self.before.push_str(text.unwrap_or(&open));
                if frame["merge_next"] != true {
                    self.messages.push(std::mem::take(&mut self.before));
                }
            }
            "message" if frame.get("kind").is_some() => {
                let item = &frame["tool_events"][0];
                self.tool(format!("{} {}", item["call_id"], item["phase"]));
            }
            "message" => {
                self.messages.pop_if(|last| text == Some(last));
                self.messages.push(text.unwrap().to_owned());
            }
            "file_edit" => self.tool(frame["edits"][0]["path"].to_string()),
            "turn_end" => self.ended = true,
            _ => {}
        }
    }
}

impl Screen {
    /// A frame in front of the last one of its event may come twice.
    fn tool(&mut self, told: String) {
        if self.tools.last() != Some(&told) {
            self.tools.push(told);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn a_chat_that_is_cut_and_comes_back_has_everything(
        rounds in rounds(),
        crash in prop::option::of(1usize..20),
        cut in any::<prop::sample::Index>(),
        away in any::<prop::sample::Index>(),
        (lazy, lost) in (prop::collection::vec(any::<bool>(), 16), 0usize..3),
    ) {
        let (events, finished) = turn(&rounds, crash);
        let cut = cut.index(events.len());
        let back = cut + away.index(events.len() + 1 - cut);
        let hub = Hub::new();
        let mut whole = Connection::new(&hub, None);
        let mut connection = Some(Connection::new(&hub, None));
        let (mut all, mut screen, mut complete) = (Screen::default(), Screen::default(), false);
        for (at, (attempt, seq, what)) in events.iter().enumerate() {
            if at == cut && let Some(mut connection) = connection.take() {
                // The last frames do not arrive, perhaps from the middle of an event on.
                let frames = connection.frames();
                let arrived = frames.len().saturating_sub(lost);
                frames[..arrived].iter().for_each(|frame| screen.see(frame));
            }
            if at == back {
                complete = screen.cursor.is_some() || at == 0;
                connection = Some(Connection::new(&hub, screen.cursor));
            }
            emit(&hub, CHAT, *attempt, *seq, what.clone());
            whole.frames().iter().for_each(|frame| all.see(frame));
            if lazy[at % lazy.len()] && at + 1 != cut && let Some(connection) = &mut connection {
                connection.frames().iter().for_each(|frame| screen.see(frame));
            }
        }
        match &mut connection {
            Some(connection) => connection.frames().iter().for_each(|frame| screen.see(frame)),
            None => past("c", TURN.parse().unwrap(), &finished, None).iter().for_each(|frame| screen.see(frame)),
        }
        prop_assert!(all.ended && screen.ended);
        let answer = |screen: &Screen| screen.messages.last().cloned().unwrap_or_default();
        if !finished.text.is_empty() {
            prop_assert_eq!(&answer(&all), &finished.text);
            prop_assert_eq!(&answer(&screen), &finished.text);
        }
        let bytes: usize = rounds.iter().map(|round| round.text.len()).sum();
        // Whoever comes back after the end, or without a cursor, is given the answer alone.
        if complete && bytes < HELD_BYTES {
            prop_assert_eq!(screen.messages, all.messages);
            prop_assert_eq!(screen.reasoning, all.reasoning);
            prop_assert_eq!(screen.tools, all.tools);
        }
    }

    #[test]
    fn an_answer_that_is_cut_and_asked_for_again_has_everything(
        rounds in rounds(),
        crash in prop::option::of(1usize..20),
        cut in any::<prop::sample::Index>(),
        away in any::<prop::sample::Index>(),
        lazy in prop::collection::vec(any::<bool>(), 16),
    ) {
        let (events, finished) = turn(&rounds, crash);
        let cut = cut.index(events.len());
        let back = cut + away.index(events.len() + 1 - cut);
        let (hub, turn) = (Hub::new(), TURN.parse().unwrap());
        let watch = |mark| {
            let outlet = outlet();
            let watch = hub.watch_turn(&key(API), turn, Keep::Yes, outlet.clone());
            (outlet, Follow::new(mark), watch)
        };
        let (mut whole, mut stream) = (watch(None), Some(watch(None)));
        let (mut all, mut text) = (String::new(), String::new());
        let mut mark: Option<Mark> = None;
        for (at, (attempt, seq, what)) in events.iter().enumerate() {
            if at == cut && let Some((_, follow, _)) = stream.take() {
                mark = Some(follow.mark(turn).to_string().parse().unwrap());
            }
            if at == back {
                stream = Some(watch(mark));
            }
            emit(&hub, API, *attempt, *seq, what.clone());
            all.extend(taken(&whole.0).iter().map(|shown| whole.1.see(shown)));
            if lazy[at % lazy.len()] && let Some((outlet, follow, _)) = &mut stream {
                text.extend(taken(outlet).iter().map(|shown| follow.see(shown)));
            }
        }
        match &mut stream {
            Some((outlet, follow, _)) => text.extend(taken(outlet).iter().map(|shown| follow.see(shown))),
            None => text.push_str(&Follow::new(mark).past(&finished)),
        }
        prop_assert!(text.ends_with(&finished.text));
        let bytes: usize = rounds.iter().map(|round| round.text.len()).sum();
        if back < events.len() && bytes < HELD_BYTES {
            prop_assert_eq!(text, all);
        }
    }
}
