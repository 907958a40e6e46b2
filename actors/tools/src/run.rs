//! One call, from the message to its only answer.

use std::pin::pin;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::chat::{Content, ToolCall, ToolResult, plain_text};
use domain::ids::{SessionKey, Source, ToolCallId, TurnId};
use domain::policy::Policy;
use domain::scope::Scope;
use protocol::metrics::{ByTool, ByToolResult, Metrics};
use protocol::supervision::{ActorPath, Event, EventName, ExitReason, Kind};
use protocol::tools::{RunTool, ToolEnd, ToolFinished};
use protocol::trace::{Span, Step, Value};
use protocol::turn::{Pulse, Route, Stamp};
use supervision::panic::{Caught, caught};
use supervision::ports::{Clock, offload};
use supervision::{Kernel, Label, tell};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalog::{Catalog, Prepared};
use crate::offload::{Long, NotKept, Offload};
use crate::text;
use crate::tool::{Call, Outcome};

/// How long the end of a call may be waited for after it was given up; far above what killing processes takes.
const CLEANUP_MAX: Duration = Duration::from_secs(30);

/// What a call needs from its front end.
pub(crate) struct Deps {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) kernel: Kernel,
    pub(crate) path: ActorPath,
    /// The front end is going away.
    pub(crate) stop: CancellationToken,
}

/// Runs the call and reports it.
pub(crate) async fn call(deps: Arc<Deps>, message: RunTool) {
    let RunTool { stamp, key, source, scope, run, route, call, pulse, cancel, reply_to } = message;
    let (id, name) = (call.id.clone(), call.name.clone());
    let counted = Counted::new(&deps, &call, stamp);
    let policies = &deps.catalog.policies;
    let policy = match &run {
        Some(run) => &Arc::new(run.policy(policies)),
        None => policies.of(policies.kind(&key, &source)),
    };
    let outcome = match deps.catalog.prepare(call.clone(), policy) {
        Err(problem) => Outcome::error(format!("Error: {problem}")),
        Ok(prepared) => {
            let asker = Asker { key: key.clone(), source, route, policy: Arc::clone(policy), scope };
            outcome(&deps, prepared, call, asker, (stamp, pulse), &cancel).await
        }
    };
    counted.ended(outcome.end);
    let (end, edit) = (outcome.end, outcome.edit.clone());
    let content = shown(&deps, &name, outcome, policy, (&key, stamp, &id)).await;
    let result = ToolResult { call: id, name, content, is_error: end != ToolEnd::Ok };
    // A session that is gone has cancelled the call; nobody waits for this answer.
    let _ = tell(&reply_to, ToolFinished { stamp, result, end, edit });
}

/// What the model is shown: all of it, or where it is kept and how it begins, or its two ends.
async fn shown(
    deps: &Deps,
    tool: &str,
    Outcome { content, end, .. }: Outcome,
    policy: &Policy,
    (key, stamp, call): (&SessionKey, Stamp, &ToolCallId),
) -> Vec<Content> {
    let max = text::room(end, deps.catalog.result_chars_max);
    if text::is_long(&content, max) && Offload::serves(tool, policy) {
        let ports = deps.kernel.ports();
        let nonce = ports.ids.random();
        let text = plain_text(&content);
        let long = Long { key: key.clone(), stamp, call: call.clone(), text, nonce };
        let keeper = deps.catalog.offload.clone();
        match offload(&*ports.offload, move || keeper.keep(&long, max)).await {
            Ok(Ok(reference)) => {
                deps.kernel.metrics().work.tool_results_kept.inc();
                return text::advised(end, text::retold(content, reference));
            }
            Ok(Err(NotKept::NoRoom)) | Err(_) => {}
            Ok(Err(error)) => tracing::warn!(%tool, %error, "a long tool result is cut as it cannot be kept"),
        }
    }
    text::advised(end, text::bounded(tool, content, max))
}

/// A call that is counted while it runs, and at its end; one that is dropped under way was cancelled.
struct Counted {
    metrics: Metrics,
    clock: Arc<dyn Clock>,
    /// A name of the catalogue: what a model makes up goes nowhere.
    tool: Arc<str>,
    turn: TurnId,
    step: Step,
    begun: Duration,
    end: ToolEnd,
}

impl Counted {
    fn new(deps: &Deps, call: &ToolCall, stamp: Stamp) -> Self {
        deps.kernel.metrics().work.tool_calls_running.inc();
        Self {
            metrics: deps.kernel.metrics().clone(),
            clock: deps.kernel.ports().clock.clone(),
            tool: if deps.catalog.has(&call.name) { call.name.as_str().into() } else { "unknown".into() },
            turn: stamp.turn,
            step: Step::tool(stamp.attempt, stamp.round, &call.id),
            begun: deps.kernel.ports().clock.mono(),
            end: ToolEnd::Cancelled,
        }
    }

    fn ended(mut self, end: ToolEnd) {
        self.end = end;
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let took = self.clock.mono().saturating_sub(self.begun);
        let work = &self.metrics.work;
        work.tool_calls_running.dec();
        work.tool_seconds.get_or_create(&ByTool { tool: self.tool.clone() }).observe(took.as_secs_f64());
        let result = word(self.end);
        work.tool_calls.get_or_create(&ByToolResult { tool: self.tool.clone(), result }).inc();
        self.metrics.traces.end(|| {
            let ended_us = self.clock.wall_us();
            let begun_us = ended_us.saturating_sub(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            let fields = vec![
                ("gen_ai.operation.name", Value::Word("execute_tool")),
                ("gen_ai.tool.name", Value::Text(self.tool.clone())),
            ];
            let error = (self.end != ToolEnd::Ok).then_some(result);
            Span { turn: self.turn, step: self.step, begun_us, ended_us, error, fields }
        });
    }
}

/// How a call ended, as a word for metrics.
fn word(end: ToolEnd) -> &'static str {
    match end {
        ToolEnd::Ok => "ok",
        ToolEnd::Error => "error",
        ToolEnd::TimedOut => "timed_out",
        ToolEnd::Cancelled => "cancelled",
        ToolEnd::Panicked => "panicked",
    }
}

/// On whose behalf a call runs.
struct Asker {
    key: SessionKey,
    source: Source,
    route: Route,
    policy: Arc<Policy>,
    scope: Option<Arc<Scope>>,
}

async fn outcome(
    deps: &Deps,
    prepared: Prepared,
    call: ToolCall,
    Asker { key, source, route, policy, scope }: Asker,
    (stamp, pulse): (Stamp, Pulse),
    cancel: &CancellationToken,
) -> Outcome {
    let Prepared { tool, arguments } = prepared;
    let deadline = tool.deadline(&arguments);
    let owned = TaskTracker::new();
    let crash = Arc::new(OnceLock::new());
    let unwanted = cancel.child_token();
    let request = Call {
        id: call.id,
        key: key.clone(),
        source,
        route,
        policy,
        scope,
        stamp,
        arguments,
        cancel: unwanted.clone(),
        pulse,
        ports: deps.kernel.ports().clone(),
        owned: owned.clone(),
        crash: crash.clone(),
    };
    // The tool's future is dropped in here, too, as that may panic.
    let work = async {
        tokio::select! {
            biased;
            () = cancel.cancelled() => Outcome::ended(ToolEnd::Cancelled, "Error: the call was cancelled."),
            () = deps.stop.cancelled() => Outcome::ended(ToolEnd::Cancelled, "Error: the gateway is stopping."),
            outcome = async { tool.call(request).await } => outcome,
            () = tokio::time::sleep(deadline) => Outcome::ended(
                ToolEnd::TimedOut,
                format!("Error: {} did not end within {} s and was given up.", call.name, deadline.as_secs()),
            ),
        }
    };
    let outcome = match caught(labelled(Label::new(&format!("the tool {}", call.name)), work)).await {
        Ok(outcome) => outcome,
        Err(panic) => panicked(deps, &call.name, key, stamp, crash.get().cloned().unwrap_or_else(|| Arc::new(panic))),
    };
    unwanted.cancel();
    owned.close();
    if tokio::time::timeout(CLEANUP_MAX, owned.wait()).await.is_err() {
        tracing::error!(tool = %call.name, "work of a finished tool call does not end");
    }
    outcome
}

/// Lets the watchdog say which tool it is that blocks a thread.
async fn labelled<F: Future>(label: Label, work: F) -> F::Output {
    let mut work = pin!(work);
    std::future::poll_fn(|ctx| label.run(|| work.as_mut().poll(ctx))).await
}

fn panicked(deps: &Deps, name: &str, key: SessionKey, stamp: Stamp, panic: Arc<Caught>) -> Outcome {
    let path = ActorPath(format!("{}/call/{name}", deps.path).into());
    let mut event = Event::new(EventName::Exited, path, Kind::ToolCall);
    event.session = Some(key);
    event.turn = Some(stamp.turn);
    event.attempt = Some(stamp.attempt);
    event.epoch = Some(stamp.epoch);
    event.reason = Some(ExitReason::Panicked.word().to_owned());
    event.panic = Some(panic.panic());
    event.backtrace = Some(panic.hash());
    event.verdict = Some("tool_error".to_owned());
    deps.kernel.keep_crash(panic);
    deps.kernel.log().record(event);
    Outcome::ended(ToolEnd::Panicked, format!("Error: {name} failed inside and gave no result."))
}
