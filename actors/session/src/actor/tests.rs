//! The session alone, among probes and a journal in memory, with the clock paused.

mod anew;
mod audience;
mod brought;
mod closing;
mod commands;
mod compacting;
mod crashes;
mod double;
mod edits;
mod files;
mod foreign;
mod journal;
mod leaving;
mod listing;
mod queue;
mod silence;
mod stall;
mod title;
mod turns;

use std::path::Path;
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{Arguments, Content, Message, ToolCall, ToolResult, plain_text};
use domain::ids::{Attempt, ToolCallId};
use protocol::journal::{CommitOutcome, LeftBy};
use protocol::metrics::ByKind;
use protocol::provider::{Complete, Event, Failure, FailureKind};
use protocol::session::{Mail, State, TurnRecord};
use protocol::supervision::EventName;
use protocol::tools::{RunTool, ToolEnd, ToolFinished};
use protocol::turn::{TurnProgress, TurnResult};
use supervision::ports::{Disk, Open};
use supervision::tell;
use testkit::deadline::{run_paused, with_deadline};
use tokio::sync::oneshot;

use audience::BOMB;
use double::{Stage, answer, key, turn};

fn texts(call: &Complete) -> Vec<String> {
    let text = |message: &Message| match message {
        Message::User(content) => plain_text(content),
        Message::Assistant(assistant) => assistant.text.clone(),
        Message::ToolResult(result) => plain_text(&result.content),
    };
    call.request.messages.iter().map(text).collect()
}

fn calls(names: &[&str]) -> Box<domain::chat::AssistantMessage> {
    let call = |(at, name): (usize, &&str)| ToolCall {
        id: ToolCallId(format!("c{at}").into()),
        name: (*name).to_owned(),
        arguments: Arguments::Object(serde_json::Map::new()),
    };
    let mut message = answer("let me look");
    message.calls = names.iter().enumerate().map(call).collect();
    message
}

fn end_tool(run: &RunTool, text: &str) {
    let result = ToolResult {
        call: run.call.id.clone(),
        name: run.call.name.clone(),
        content: vec![Content::text(text)],
        is_error: false,
    };
    tell(&run.reply_to, ToolFinished { stamp: run.stamp, result, end: ToolEnd::Ok, edit: None }).unwrap();
}
