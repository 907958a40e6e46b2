//! Sends a sub-agent to do a task.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use domain::ids::RunId;
use domain::request::ToolSpec;
use domain::run::{Ended, RunSpec, Status, label_of};
use domain::text::{first_chars, one_line};
use futures::FutureExt;
use futures::future::BoxFuture;
use protocol::subagent::{NotSpawned, RunMail, RunRow, Spawned};
use protocol::turn::Route;
use serde_json::{Map, Value, json};
use supervision::tell;
use tokio::sync::oneshot;

use crate::tool::{Call, Outcome, Tool};

/// Characters of a label.
const LABEL_CHARS_MAX: usize = 60;
/// How long a call waits for a run that has no limit of its own.
const WAITS: Duration = Duration::from_secs(3600);
/// What a call needs besides the time of its run.
const SLACK: Duration = Duration::from_secs(60);
/// How often a call that waits shows that it does.
const BEAT: Duration = Duration::from_secs(20);
/// What a model is told when the keeper crashed with its question in hand.
pub(crate) const GONE: &str = "Error: the keeper of sub-agents did not answer; try again.";

/// The tool.
pub struct Spawn {
    keeper: Recipient<RunMail>,
}

// === impl Spawn ===

impl Spawn {
    /// Asks that keeper.
    pub fn new(keeper: Recipient<RunMail>) -> Self {
        Self { keeper }
    }
}

impl Tool for Spawn {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "spawn".to_owned(),
            description: "Sends a sub-agent to do a task in the background, and returns at once.\n\
                          It works in a conversation of its own and sees nothing of this one: the task has to say \
                          everything. Its report comes later by itself, as an event. Use it for work that takes long or \
                          can be done beside other work."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "task": {"type": "string", "minLength": 1, "description": "What is to be done, with all that has to be known for it."},
                    "label": {"type": "string", "description": "A short name for people."},
                    "model": {"type": "string", "description": "Name of a model preset; without it the usual model."},
                    "tools": {"type": "array", "items": {"type": "string"}, "description": "The only tools that it is given; without it all that you have, but for spawn and the like."},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": 86400, "description": "Seconds after which it is stopped."},
                    "budget": {"type": "integer", "minimum": 1, "description": "Tokens, read and written, after which it is stopped."},
                    "wait": {"type": "boolean", "description": "Wait for its end, and return the report as the result."},
                    "detach": {"type": "boolean", "description": "Let it go on when this conversation is stopped."}
                },
                "required": ["task"]
            }),
            parallel: true,
            // The same call is the same run, however often it is made.
            idempotent: true,
        }
    }

    fn deadline(&self, arguments: &Map<String, Value>) -> Duration {
        let waits = arguments.get("wait").and_then(Value::as_bool).unwrap_or(false);
        let limit = arguments.get("timeout").and_then(Value::as_u64).map_or(WAITS, Duration::from_secs);
        if waits { limit.saturating_add(SLACK) } else { SLACK }
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let keeper = self.keeper.clone();
        async move {
            let spec = Arc::new(spec_of(&call));
            let waits = call.flag("wait");
            let (reply, answer) = oneshot::channel();
            let asked = tell(&keeper, RunMail::Spawn { spec: Arc::clone(&spec), waits, reply });
            let spawned = match (asked, answer.await) {
                (Ok(()), Ok(spawned)) => spawned,
                (Err(_), _) | (_, Err(_)) => return Outcome::error(GONE),
            };
            match spawned {
                Err(why) => refused(&why),
                Ok(_) if waits => waited(&call, &keeper, &spec).await,
                Ok(spawned) => begun(&spec, &spawned),
            }
        }
        .boxed()
    }
}

fn spec_of(call: &Call) -> RunSpec {
    let task = call.text("task").unwrap_or_default();
    let label = call.text("label").map(str::trim).filter(|label| !label.is_empty());
    let label = label.map_or_else(|| label_of(task), |label| one_line(first_chars(label, LABEL_CHARS_MAX)));
    let tools = call.arguments.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let number = |name: &str| call.number(name).unwrap_or(0);
    RunSpec {
        run: RunId::of_call(call.stamp.turn, &call.id),
        parent: call.key.clone(),
        turn: call.stamp.turn,
        source: call.source.clone(),
        label: label.into(),
        task: task.into(),
        model: call.text("model").map(Arc::from),
        tools: tools.iter().filter_map(Value::as_str).map(Arc::from).collect(),
        timeout_s: u32::try_from(number("timeout")).unwrap_or(u32::MAX),
        budget_tokens: number("budget"),
        detached: call.flag("detach"),
        // Who waited for an answer of its own has it by then; the report is for whoever looks at the conversation.
        route: match &call.route {
            Route::Push(_) => serde_json::to_value(&call.route).ok(),
            Route::Live | Route::Reply => None,
        },
        scope: call.scope.clone(),
        retry_of: None,
    }
}

fn refused(why: &NotSpawned) -> Outcome {
    Outcome::error(format!("Error: {why}."))
}

fn begun(spec: &RunSpec, spawned: &Spawned) -> Outcome {
    let Spawned { run, key, .. } = spawned;
    Outcome::text(format!(
        "Sub-agent {:?} is at work: run {run}, session {key}. Its report comes by itself when it has ended; go on with \
         something else, or answer.",
        spec.label
    ))
}

/// The end of the run, as the call's result.
async fn waited(call: &Call, keeper: &Recipient<RunMail>, spec: &RunSpec) -> Outcome {
    let Some(rows) = wait(call, keeper, vec![spec.run], false).await else { return Outcome::error(GONE) };
    let Some(row) = rows.into_iter().next() else { return Outcome::error(GONE) };
    let status = match row.state {
        "done" => Status::Done,
        "cancelled" => Status::Cancelled,
        _ => Status::Failed,
    };
    let RunRow { text, usage, .. } = row;
    let text = text.as_deref().unwrap_or_default().to_owned();
    let ended = Ended { status, text, rounds_used_up: None, steps: Vec::new(), usage: usage.unwrap_or_default() };
    let told = spec.told(&ended);
    if status == Status::Done { Outcome::text(told) } else { Outcome::error(format!("Error: {told}")) }
}

/// Waits for the end of runs; `None` if the keeper crashed meanwhile.
pub(crate) async fn wait(call: &Call, keeper: &Recipient<RunMail>, runs: Vec<RunId>, any: bool) -> Option<Vec<RunRow>> {
    let (reply, mut answer) = oneshot::channel();
    tell(keeper, RunMail::Wait { runs, any, reply }).ok()?;
    loop {
        call.progress();
        if let Ok(rows) = tokio::time::timeout(BEAT, &mut answer).await {
            return rows.ok();
        }
    }
}
