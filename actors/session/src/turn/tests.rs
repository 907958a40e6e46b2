//! Random lives of a session against a small model of the journal: crashes, deaths and stops at any point.

mod cases;
mod commands;
mod compact;
mod events;
mod goals;
mod joins;
mod kept;
mod life;
mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{Arguments, Content, Message, StopReason, ToolResult};
use domain::event::{Event, EventKind};
use domain::goal::Status;
use domain::ids::{MessageId, Seq, Source, ToolCallId};
use domain::queue::{QueueAsk, QueueDrop, QueueMode};
use domain::text::{TextLimit, TextUnit};
use proptest::prelude::*;
use protocol::journal::{CutTurn, LeftBy, Shelf};
use protocol::session::State;
use protocol::turn::{PushRoute, Route, TurnResult};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::*;
use crate::inbox::Inbox;
use goals::declares;
use kept::{Kept, open_calls};
use machine::steer::STEERS_MAX;
use world::World;

fn rules() -> Arc<Rules> {
    rules_with(QueueRules::default())
}

fn rules_with(queue: QueueRules) -> Arc<Rules> {
    let spec = |name: &str, parallel, idempotent| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: Value::Null,
        parallel,
        idempotent,
    };
    Arc::new(Rules {
        max_tool_iterations: 3,
        max_tool_result_chars: 1000,
        poison_attempts: 3,
        process_deaths: 20,
        stall: Duration::from_secs(300),
        tools: [spec("read", true, true), spec("exec", false, false)].into(),
        provider: "p".into(),
        model: "m".into(),
        push_limits: [("hook".into(), TextLimit { unit: TextUnit::Chars, max: 100 })].into(),
        queue,
    })
}

fn turn_id(seq: u64) -> TurnId {
    TurnId(Uuid::from_u128(u128::from(seq)))
}

/// Some messages are commands.
fn text(seq: u64) -> String {
    match seq % 7 {
        4 => "/new".to_owned(),
        5 => "/history".to_owned(),
        6 => "/new day".to_owned(),
        _ => seq.to_string(),
    }
}

/// Whether `other` may be taken up by the turn of `seq`.
fn joins(seq: u64, other: u64) -> bool {
    if event(other).is_some() {
        return !is_command(turn_id(seq)) && other > seq;
    }
    let plain = |seq: u64| !matches!(seq % 7, 4 | 5) && !matches!(seq % 10, 0 | 8 | 9);
    plain(seq) && plain(other) && other % 7 != 6 && other > seq
}

fn is_command(turn: TurnId) -> bool {
    matches!(turn.0.as_u128() % 7, 4 | 5) && !turn.0.as_u128().is_multiple_of(10)
}

fn accepted(seq: u64) -> Arc<Accepted> {
    Arc::new(Accepted {
        turn: turn_id(seq),
        seq: Seq(seq),
        source: Source::new(match seq % 10 {
            0 => "run",
            8 => "other",
            _ => "ws",
        })
        .unwrap(),
        message_id: MessageId::new(&seq.to_string()).unwrap(),
        body_hash: seq,
        route: if seq % 10 == 9 { Route::Reply } else { Route::Live },
        body: TurnBody { event: event(seq), ..TurnBody::text(text(seq)) }.encode().into(),
        accepted_ms: 5,
        retry_of: None,
    })
}

/// Every tenth message is one that no person said.
fn event(seq: u64) -> Option<Arc<Event>> {
    let event = || Event { kind: EventKind::Subagent, id: "7".into(), name: "w".into(), status: Some("done".into()) };
    seq.is_multiple_of(10).then(|| event().into())
}

/// Even messages are small, odd ones have to be read from the log.
fn item(seq: u64) -> InboxItem {
    let inline = seq.is_multiple_of(2).then(|| accepted(seq));
    InboxItem {
        turn: turn_id(seq),
        seq: Seq(seq),
        at: LogPosition(seq),
        inline,
        push: None,
        event: event(seq).is_some(),
    }
}

fn message(calls: &[(String, &str)]) -> Box<AssistantMessage> {
    let call = |(id, name): &(String, &str)| ToolCall {
        id: ToolCallId(id.as_str().into()),
        name: (*name).to_owned(),
        arguments: Arguments::Object(Map::new()),
    };
    Box::new(AssistantMessage { calls: calls.iter().map(call).collect(), ..AssistantMessage::new("answer", "p", "m") })
}

fn result(id: &ToolCallId) -> ToolResult {
    ToolResult { call: id.clone(), name: "t".to_owned(), content: vec![Content::text("out")], is_error: false }
}

#[derive(Debug, Clone)]
enum Step {
    Enqueue,
    /// `/goal` with a text behind it.
    Goal,
    Read,
    /// A command was followed.
    Follow,
    /// It slept long enough.
    Woke,
    /// `/queue`.
    Mode(QueueMode),
    Permit,
    /// The request is over its budget.
    OverBudget,
    /// The model says that it is too long.
    TooLong,
    /// The beginning of the conversation was summarised, or could not be.
    Compacted(bool),
    Delta,
    Answer,
    /// An answer that says how the goal ended.
    Declare(Status),
    /// An answer that was cut.
    Cut,
    /// Without a word.
    Blank,
    /// A call without a name.
    Nameless,
    Calls(Vec<bool>),
    Fail,
    ToolEnds(usize),
    Durable,
    /// The journal will never hold the newest commit.
    Refuse,
    View,
    Stop(bool),
    Cancel(u64),
    Close,
    Stall,
    /// Other sessions take all places, or give them back.
    Crowd(bool),
    Late,
    /// The actor crashes; this many of the commits under way become durable.
    Crash(usize),
    Death(usize),
    Interrupt,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Enqueue),
        6 => Just(Step::Read),
        6 => Just(Step::Follow),
        3 => Just(Step::Woke),
        9 => Just(Step::Permit),
        2 => Just(Step::OverBudget),
        2 => Just(Step::TooLong),
        6 => any::<bool>().prop_map(Step::Compacted),
        2 => Just(Step::Delta),
        5 => Just(Step::Answer),
        2 => Just(Step::Cut),
        2 => Just(Step::Blank),
        1 => Just(Step::Nameless),
        6 => proptest::collection::vec(any::<bool>(), 1..5).prop_map(Step::Calls),
        1 => Just(Step::Fail),
        9 => (0..4usize).prop_map(Step::ToolEnds),
        12 => Just(Step::Durable),
        1 => Just(Step::Refuse),
        9 => Just(Step::View),
        1 => any::<bool>().prop_map(Step::Stop),
        1 => (1..9u64).prop_map(Step::Cancel),
        1 => Just(Step::Close),
        1 => Just(Step::Stall),
        1 => any::<bool>().prop_map(Step::Crowd),
        1 => Just(Step::Late),
        1 => (0..3usize).prop_map(Step::Crash),
        1 => (0..3usize).prop_map(Step::Death),
        1 => Just(Step::Interrupt),
    ]
}
