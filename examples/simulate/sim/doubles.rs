//! The model and the tools of a run: they do what a message asks for, and fail as its dice say.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use domain::chat::{Arguments, Message, StopReason, ToolCall};
use domain::ids::ToolCallId;
use domain::request::{ChatRequest, ToolSpec};
use futures::future::{BoxFuture, LocalBoxFuture};
use protocol::provider::Delta;
use provider::retry::{CallError, ErrorAnswer};
use provider::{Answer, Model, offline};
use serde_json::{Map, Value};
use tools::{Call, Outcome, Tool};

use super::process::Process;

/// Status and code of the errors that a model may answer with.
const ERRORS: [(u16, &str); 8] = [
    (429, "rate_limit_exceeded"),
    (503, "overloaded"),
    (500, ""),
    (401, "invalid_api_key"),
    (402, "insufficient_quota"),
    (413, "context_length_exceeded"),
    (400, "invalid_request"),
    (409, ""),
];

/// The model.
pub struct SimModel(pub Arc<Process>);

impl fmt::Debug for SimModel {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SimModel")
    }
}

impl Model for SimModel {
    fn name(&self) -> Arc<str> {
        "sim".into()
    }

    fn attempt<'a>(
        &'a self,
        request: &'a ChatRequest,
        id_prefix: &'a str,
        show: &'a mut dyn FnMut(Delta),
    ) -> LocalBoxFuture<'a, Result<Answer, CallError>> {
        Box::pin(self.answer(request, id_prefix, show))
    }
}

impl SimModel {
    async fn answer(
        &self,
        request: &ChatRequest,
        id_prefix: &str,
        show: &mut dyn FnMut(Delta),
    ) -> Result<Answer, CallError> {
        let process = &self.0;
        let dice = &process.model;
        process.moved();
        process.note(|books| {
            if let Err(wrong) = is_legal(request.messages.iter()) {
                books.wrong(wrong);
            }
            format!("the model is asked, {} messages", request.messages.len())
        });
        sleep(dice.below(200)).await;
        let reply = offline::answer(request, id_prefix);
        let wrong = process.goes_wrong(dice, process.world.plan.rates.model);
        let fault = if wrong { dice.below(9) } else { u64::MAX };
        process.note(|_| format!("the model answers, fault {fault}"));
        match fault {
            0..=2 => return Err(error(dice.one_of(&ERRORS), dice.below(90))),
            3 => return Err(CallError::Connect("refused".to_owned())),
            4 => {
                sleep(90_000).await;
                return Err(CallError::Idle(Duration::from_secs(90)));
            }
            5 => return std::future::pending().await,
            // Nobody supervises a call: it ends without a word.
            6 => std::panic::resume_unwind(Box::new("the model's client fails")),
            _ => {}
        }
        let cut_after = if fault == 7 { dice.index(reply.deltas.len() + 1) } else { usize::MAX };
        for (place, delta) in reply.deltas.into_iter().enumerate() {
            if place >= cut_after {
                break;
            }
            show(delta);
            sleep(dice.below(50)).await;
        }
        if fault == 7 {
            return Err(if dice.often(500) { CallError::Truncated } else { CallError::Cut("sim".to_owned()) });
        }
        let mut message = reply.message;
        if fault == 8 {
            garble(&mut message.calls, dice.below(4));
        }
        Ok(Answer {
            text: message.text,
            reasoning: message.reasoning,
            stop: if message.calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse },
            calls: message.calls,
            usage: message.usage,
        })
    }
}

async fn sleep(ms: u64) {
    if ms > 0 {
        tokio::time::sleep(Duration::from_millis(ms)).await;
    }
}

fn error((status, code): (u16, &str), wait_s: u64) -> CallError {
    let codes = if code.is_empty() { Vec::new() } else { vec![code.to_owned()] };
    let retry_after = (wait_s < 60).then(|| Duration::from_secs(wait_s));
    CallError::Answered(ErrorAnswer { status, codes, message: "no".to_owned(), retry_after })
}

/// What models write that is not what they should.
fn garble(calls: &mut Vec<ToolCall>, how: u64) {
    let Some(first) = calls.first_mut() else { return };
    match how {
        0 => first.name = "no_such_tool".to_owned(),
        1 => {
            first.arguments =
                Arguments::Malformed { text: "{\"n\":".to_owned(), problem: "it ends too early".to_owned() }
        }
        2 => {
            let mut again = first.clone();
            again.name = "look".to_owned();
            calls.push(again);
        }
        _ => first.id = ToolCallId("".into()),
    }
}

/// Every tool call in a request has exactly one result, after it.
fn is_legal<'a>(messages: impl Iterator<Item = &'a Message>) -> Result<(), String> {
    let mut open: Vec<&ToolCallId> = Vec::new();
    for message in messages {
        match message {
            Message::ToolResult(result) => {
                let Some(at) = open.iter().position(|id| **id == result.call) else {
                    return Err("a request has a result without its call, or two".to_owned());
                };
                open.swap_remove(at);
            }
            Message::User(_) | Message::Assistant(_) if !open.is_empty() => {
                return Err("a request has a call without a result".to_owned());
            }
            Message::Assistant(answer) => open.extend(answer.calls.iter().map(|call| &call.id)),
            Message::User(_) => {}
        }
    }
    if open.is_empty() { Ok(()) } else { Err("a request ends with a call without a result".to_owned()) }
}

/// A tool: `pay` has an effect that must not happen twice, `look` has none.
pub struct SimTool {
    /// Its process.
    pub process: Arc<Process>,
    /// Whether it may run again.
    pub idempotent: bool,
}

impl Tool for SimTool {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: if self.idempotent { "look" } else { "pay" }.to_owned(),
            description: "A tool of the simulation.".to_owned(),
            parameters: serde_json::json!({
                "type": "object", "properties": {"n": {"type": "string"}}, "required": ["n"],
            }),
            parallel: self.idempotent,
            idempotent: self.idempotent,
        }
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let (process, idempotent) = (self.process.clone(), self.idempotent);
        Box::pin(async move {
            let dice = &process.tools;
            let of = call.text("n").unwrap_or_default().to_owned();
            process.note(|books| {
                books.tool(&call.key, call.stamp.epoch.0);
                format!("tool call {of}")
            });
            let wrong = process.goes_wrong(dice, process.world.plan.rates.tools);
            let fault = if wrong { dice.below(5) } else { u64::MAX };
            sleep(dice.below(dice.one_of(&[1, 100, 3_000]))).await;
            match fault {
                0 => return Outcome::error("no"),
                1 => panic!("a tool fails"),
                2 => std::future::pending().await,
                _ => {}
            }
            if !idempotent && process.is_alive() {
                process.note(|books| {
                    books.effect(call.stamp.turn, &of);
                    format!("effect of {of}")
                });
            }
            sleep(dice.below(dice.one_of(&[1, 100, 3_000]))).await;
            if fault == 3 {
                panic!("a tool fails after its effect");
            }
            Outcome::text(format!("done {of}"))
        })
    }

    fn deadline(&self, _: &Map<String, Value>) -> Duration {
        Duration::from_secs(20)
    }
}
