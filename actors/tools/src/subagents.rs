//! Looks after sub-agents that were sent off.

use std::fmt::Write as _;
use std::time::Duration;

use actix::Recipient;
use domain::ids::{RunId, SessionKey};
use domain::request::ToolSpec;
use domain::run::Saying;
use domain::text::ellipsis;
use futures::FutureExt;
use futures::future::BoxFuture;
use protocol::subagent::{PENDING, RunMail, RunRow, UNDELIVERED, find};
use serde_json::{Map, Value, json};
use supervision::tell;
use tokio::sync::oneshot;

use crate::spawn::{GONE, wait};
use crate::tool::{Call, Outcome, Tool};

/// How long a call may wait for runs.
const WAITS: Duration = Duration::from_secs(3600);
/// How long all else may take.
const ANSWERS: Duration = Duration::from_secs(30);
/// Characters of a result that a list shows.
const SHOWN_CHARS_MAX: usize = 200;
const NONE: &str = "There are no sub-agents of this session.";

/// The tool.
pub struct Subagents {
    keeper: Recipient<RunMail>,
}

// === impl Subagents ===

impl Subagents {
    /// Asks that keeper.
    pub fn new(keeper: Recipient<RunMail>) -> Self {
        Self { keeper }
    }
}

impl Tool for Subagents {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "subagents".to_owned(),
            description: "Lists, inspects, instructs, awaits and stops the sub-agents of this session.\n\
                          `send` begins a turn of its own behind what the sub-agent does, and is answered with a report \
                          of its own; `steer` is seen between two steps of what it does. `wait` returns when the named ones (or all) have ended, with `any` when one of them has; their \
                          reports then come as events."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "action": {"type": "string", "enum": ["list", "inspect", "send", "steer", "wait", "cancel"]},
                    "runs": {"type": "array", "items": {"type": "string"}, "description": "Run ids or labels."},
                    "message": {"type": "string", "description": "For send and steer."},
                    "any": {"type": "boolean"},
                    "timeout": {"type": "integer", "minimum": 1, "maximum": 3500, "description": "For wait: seconds after which it returns, whatever has ended."}
                },
                "required": ["action"]
            }),
            parallel: true,
            // A message has the id of its call, and all else can be done twice.
            idempotent: true,
        }
    }

    fn deadline(&self, arguments: &Map<String, Value>) -> Duration {
        if arguments.get("action").and_then(Value::as_str) == Some("wait") { WAITS } else { ANSWERS }
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let keeper = self.keeper.clone();
        async move {
            let Some(rows) = list(&keeper, &call.key).await else { return Outcome::error(GONE) };
            let names = call.arguments.get("runs").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
            let mut named = Vec::with_capacity(names.len());
            for name in names.iter().filter_map(Value::as_str) {
                match find(&rows, name) {
                    Some(row) => named.push(row.clone()),
                    None => return Outcome::error(format!("Error: there is no sub-agent {name:?} of this session.")),
                }
            }
            act(&call, &keeper, rows, named).await
        }
        .boxed()
    }
}

async fn act(call: &Call, keeper: &Recipient<RunMail>, all: Vec<RunRow>, named: Vec<RunRow>) -> Outcome {
    let or_all = if named.is_empty() { all } else { named.clone() };
    match call.text("action") {
        Some("list") => Outcome::text(shown(&or_all, Said::Begin)),
        Some("inspect") => Outcome::text(shown(&or_all, Said::All)),
        Some("wait") if or_all.is_empty() => Outcome::text(NONE),
        Some("wait") => {
            let runs = or_all.iter().map(|row| row.run).collect();
            let limit = call.number("timeout").map(Duration::from_secs);
            match wait(call, keeper, (runs, call.flag("any")), limit).await {
                // What they say stands in their reports.
                Some(rows) if !rows.is_empty() => Outcome::text(format!("Ended:\n{}", shown(&rows, Said::Nothing))),
                Some(_) => Outcome::text("The time is over, and they have not ended; they go on."),
                None => Outcome::error(GONE),
            }
        }
        Some("send") => say(call, keeper, &named, Saying::Send).await,
        Some("steer") => say(call, keeper, &named, Saying::Steer).await,
        Some("cancel") if named.is_empty() => Outcome::error("Error: cancel needs runs."),
        Some("cancel") => cancel(keeper, &call.key, &named).await,
        Some(_) | None => Outcome::error("Error: action is one of list, inspect, send, steer, wait, cancel."),
    }
}

async fn list(keeper: &Recipient<RunMail>, parent: &SessionKey) -> Option<Vec<RunRow>> {
    let (reply, rows) = oneshot::channel();
    tell(keeper, RunMail::List { parent: Some(parent.clone()), reply }).ok()?;
    rows.await.ok()
}

/// How much is shown of what a run said last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Said {
    Nothing,
    Begin,
    All,
}

fn shown(rows: &[RunRow], how: Said) -> String {
    let mut text = String::new();
    for row in rows {
        // Writing to a string cannot fail.
        let (run, key) = (row.run, &row.key);
        write!(text, "- {:?}: {} (run {run}, session {key})", row.label, row.state).unwrap_or_default();
        if let Some(usage) = row.usage {
            write!(text, ", {} tokens", usage.input_tokens.saturating_add(usage.output_tokens)).unwrap_or_default();
        }
        if let Some(delivery @ (PENDING | UNDELIVERED)) = row.delivery {
            write!(text, ", report {delivery}").unwrap_or_default();
        }
        match (&row.text, how) {
            (Some(said), Said::All) => write!(text, "\n{said}").unwrap_or_default(),
            (Some(said), Said::Begin) => {
                write!(text, ": {}", ellipsis(said.trim(), SHOWN_CHARS_MAX)).unwrap_or_default();
            }
            (Some(_), Said::Nothing) | (None, _) => {}
        }
        text.push('\n');
    }
    if text.is_empty() { NONE.to_owned() } else { text.trim_end().to_owned() }
}

async fn say(call: &Call, keeper: &Recipient<RunMail>, named: &[RunRow], saying: Saying) -> Outcome {
    let text = call.text("message").filter(|text| !text.trim().is_empty() && !named.is_empty());
    let Some(text) = text else { return Outcome::error("Error: send and steer need runs and a message.") };
    for row in named {
        let (reply, taken) = oneshot::channel();
        let id = RunId::of_call(call.stamp.turn, &call.id, text).to_string().into();
        let (parent, run, text) = (call.key.clone(), row.run, text.to_owned());
        if tell(keeper, RunMail::Say { parent, run, id, saying, text, by: None, reply }).is_err() {
            return Outcome::error(GONE);
        }
        match taken.await {
            Ok(Ok(())) => {}
            Ok(Err(why)) => return Outcome::error(format!("Error: {:?} was not told: {why}.", row.label)),
            Err(_) => return Outcome::error(GONE),
        }
    }
    Outcome::text("Told.")
}

async fn cancel(keeper: &Recipient<RunMail>, parent: &SessionKey, named: &[RunRow]) -> Outcome {
    let mut text = String::new();
    for row in named {
        let (reply, was) = oneshot::channel();
        if tell(keeper, RunMail::Cancel { parent: Some(parent.clone()), run: row.run, reply }).is_err() {
            return Outcome::error(GONE);
        }
        let word = if was.await.unwrap_or(false) { "is being stopped" } else { "had ended" };
        writeln!(text, "{:?} {word}.", row.label).unwrap_or_default();
    }
    Outcome::text(text.trim_end())
}
