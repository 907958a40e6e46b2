//! Sends a sub-agent to do a task.

use std::sync::Arc;
use std::time::Duration;

use actix::Recipient;
use domain::ids::RunId;
use domain::request::ToolSpec;
use domain::run::{Ended, RunSpec, Status, agent_of, label_of, may_be_given};
use domain::tally::DEFAULT;
use domain::text::{first_chars, folded, one_line};
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
const WAITS: Duration = Duration::from_secs(WAITS_S as u64);
const WAITS_S: u32 = 3600;
/// Characters of a name that is told back.
const NAME_CHARS_SHOWN: usize = 60;
/// What a call needs besides the time of its run.
const SLACK: Duration = Duration::from_secs(60);
/// How often a call that waits shows that it does.
const BEAT: Duration = Duration::from_secs(20);
/// What a model is told when the keeper crashed with its question in hand.
pub(crate) const GONE: &str = "Error: the keeper of sub-agents did not answer; try again.";

/// What sub-agents can be given.
#[derive(Debug, Clone, Default)]
pub struct Offer {
    /// The presets of models that can be used.
    pub presets: Vec<Arc<str>>,
    /// The tools that there are.
    pub tools: Vec<String>,
}

/// The tool.
pub struct Spawn {
    keeper: Recipient<RunMail>,
    offer: Offer,
}

// === impl Spawn ===

impl Spawn {
    /// Asks that keeper.
    pub fn new(keeper: Recipient<RunMail>, offer: Offer) -> Self {
        Self { keeper, offer }
    }
}

impl Tool for Spawn {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "spawn".to_owned(),
            description: "Sends a sub-agent to do a task in the background, and returns at once.\n\
                          It works in a conversation of its own, and unless that is forked sees nothing of this one: the \
                          task has to say everything. Its report comes later by itself, as an event. Use it for work that takes long or \
                          can be done beside other work."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "task": {"type": "string", "minLength": 1, "description": "What is to be done, with all that has to be known for it."},
                    "label": {"type": "string", "description": "A short name for people."},
                    "model": {"type": "string", "description": "Name of a model preset; without it the usual model."},
                    "tools": {"type": "array", "items": {"type": "string"}, "description": "The only tools that it is given; without it all that you have, but for spawn and the like."},
                    "agent": {"type": "string", "description": "Which agent does it; there is no other than you."},
                    "context": {"type": "string", "enum": ["none", "fork"], "description": "fork: it knows what was said here before this turn; none, which is usual: nothing."},
                    "iterations": {"type": "integer", "minimum": 1, "description": "Rounds of tool calls after which it has to answer."},
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

    fn aliases(&self) -> &'static [(&'static str, &'static str)] {
        &[("agentId", "agent"), ("timeoutSeconds", "timeout"), ("runTimeoutSeconds", "timeout")]
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let (keeper, offer) = (self.keeper.clone(), self.offer.clone());
        async move {
            let spec = match spec_of(&call, &offer) {
                Ok(spec) => Arc::new(spec),
                Err(why) => return Outcome::error(format!("Error: {why} Nothing was begun.")),
            };
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

fn spec_of(call: &Call, offer: &Offer) -> Result<RunSpec, String> {
    let task = call.text("task").filter(|task| !task.trim().is_empty()).ok_or("`task` says nothing.")?;
    let label = call.text("label").map(str::trim).filter(|label| !label.is_empty());
    let label = label.map_or_else(|| label_of(task), |label| one_line(first_chars(label, LABEL_CHARS_MAX)));
    own_agent(call)?;
    let number = |name: &str| call.number(name).unwrap_or(0);
    let whole = |name: &str| u32::try_from(number(name)).unwrap_or(u32::MAX);
    let timeout_s = whole("timeout");
    Ok(RunSpec {
        run: RunId::of_call(call.stamp.turn, &call.id, task),
        parent: call.key.clone(),
        turn: call.stamp.turn,
        source: call.source.clone(),
        label: label.into(),
        task: task.into(),
        model: preset(call.text("model"), offer)?,
        tools: tools(call, offer)?,
        // Nobody would be told of the end of one that outlasts the call which waits for it.
        timeout_s: if timeout_s == 0 && call.flag("wait") { WAITS_S } else { timeout_s },
        budget_tokens: number("budget"),
        rounds: whole("iterations"),
        fork: call.text("context") == Some("fork"),
        detached: call.flag("detach"),
        // Who waited for an answer of its own has it by then; the report is for whoever looks at the conversation.
        route: match &call.route {
            Route::Push(_) => serde_json::to_value(&call.route).ok(),
            Route::Live | Route::Reply => None,
        },
        scope: call.scope.clone(),
        retry_of: None,
    })
}

/// An agent has sub-agents of its own only.
fn own_agent(call: &Call) -> Result<(), String> {
    let own = agent_of(&call.key).to_string();
    match call.text("agent").map(str::trim).filter(|agent| !agent.is_empty() && *agent != own) {
        None => Ok(()),
        Some(agent) => {
            Err(format!("there is no agent {:?} for sub-agents of this session. Agents: {own}.", shown(agent)))
        }
    }
}

fn preset(name: Option<&str>, offer: &Offer) -> Result<Option<Arc<str>>, String> {
    let Some(name) = name.map(str::trim).filter(|name| !name.is_empty() && *name != DEFAULT) else { return Ok(None) };
    let known = offer.presets.iter().find(|known| folded(known) == folded(name));
    known.map(|known| Some(Arc::clone(known))).ok_or_else(|| {
        let known: Vec<&str> = [DEFAULT].into_iter().chain(offer.presets.iter().map(|known| &**known)).collect();
        format!("there is no model preset {:?}. Presets: {}.", shown(name), known.join(", "))
    })
}

fn tools(call: &Call, offer: &Offer) -> Result<Vec<Arc<str>>, String> {
    let names = call.arguments.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let open = |name: &str| may_be_given(name) && call.policy.permits(name).is_ok();
    let open: Vec<&str> = offer.tools.iter().map(String::as_str).filter(|name| open(name)).collect();
    let names: Vec<&str> = names.iter().filter_map(Value::as_str).collect();
    match names.iter().find(|name| !open.contains(name)) {
        None => Ok(names.into_iter().map(Arc::from).collect()),
        Some(name) => {
            let list = if open.is_empty() { "none".to_owned() } else { open.join(", ") };
            Err(format!("a sub-agent of this session cannot be given {:?}. Tools: {list}.", shown(name)))
        }
    }
}

/// A name that is told back.
fn shown(name: &str) -> &str {
    first_chars(name, NAME_CHARS_SHOWN)
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
    let Some(rows) = wait(call, keeper, (vec![spec.run], false), None).await else { return Outcome::error(GONE) };
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

/// Waits for the end of runs, of one of them with `any`; nothing once `limit` is over. `None` if the keeper crashed.
pub(crate) async fn wait(
    call: &Call,
    keeper: &Recipient<RunMail>,
    (runs, any): (Vec<RunId>, bool),
    limit: Option<Duration>,
) -> Option<Vec<RunRow>> {
    let (reply, mut answer) = oneshot::channel();
    tell(keeper, RunMail::Wait { runs, any, reply }).ok()?;
    let until = limit.map(|limit| call.ports.clock.mono().saturating_add(limit));
    loop {
        call.progress();
        let left = until.map_or(BEAT, |until| until.saturating_sub(call.ports.clock.mono()).min(BEAT));
        if left.is_zero() {
            return Some(Vec::new());
        }
        if let Ok(rows) = tokio::time::timeout(left, &mut answer).await {
            return rows.ok();
        }
    }
}
