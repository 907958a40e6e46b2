//! One call, from the message to its only answer.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use domain::chat::{ToolCall, ToolResult};
use domain::ids::SessionKey;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use protocol::tools::{RunTool, ToolEnd, ToolFinished};
use protocol::turn::Stamp;
use supervision::panic::Caught;
use supervision::ports::Ports;
use supervision::tell;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::catalog::{Catalog, Prepared};
use crate::text;
use crate::tool::{Call, Outcome, caught};

/// How long the end of a call may be waited for after it was given up; far above what killing processes takes.
const CLEANUP_MAX: Duration = Duration::from_secs(30);

/// What a call needs from its front end.
pub(crate) struct Deps {
    pub(crate) catalog: Arc<Catalog>,
    pub(crate) ports: Ports,
    pub(crate) log: Arc<dyn SupervisionLog>,
    pub(crate) path: ActorPath,
    /// The front end is going away.
    pub(crate) stop: CancellationToken,
}

/// Runs the call and reports it.
pub(crate) async fn call(deps: Arc<Deps>, message: RunTool) {
    let RunTool { stamp, key, call, cancel, reply_to } = message;
    let (id, name) = (call.id.clone(), call.name.clone());
    let outcome = match deps.catalog.prepare(call.clone()) {
        Err(problem) => Outcome::error(format!("Error: {problem}")),
        Ok(prepared) => outcome(&deps, prepared, call, key, stamp, &cancel).await,
    };
    let content = text::bounded(&name, outcome.content, deps.catalog.result_chars_max);
    let result = ToolResult { call: id, name, content, is_error: outcome.end != ToolEnd::Ok };
    // A session that is gone has cancelled the call; nobody waits for this answer.
    let _ = tell(&reply_to, ToolFinished { stamp, result, end: outcome.end });
}

async fn outcome(
    deps: &Deps,
    prepared: Prepared,
    call: ToolCall,
    key: SessionKey,
    stamp: Stamp,
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
        stamp,
        arguments,
        cancel: unwanted.clone(),
        ports: deps.ports.clone(),
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
    let outcome = match caught(work).await {
        Ok(outcome) => outcome,
        Err(panic) => panicked(deps, &call.name, key, stamp, crash.get().unwrap_or(&panic)),
    };
    unwanted.cancel();
    owned.close();
    if tokio::time::timeout(CLEANUP_MAX, owned.wait()).await.is_err() {
        tracing::error!(tool = %call.name, "work of a finished tool call does not end");
    }
    outcome
}

fn panicked(deps: &Deps, name: &str, key: SessionKey, stamp: Stamp, panic: &Caught) -> Outcome {
    let path = ActorPath(format!("{}/call/{name}", deps.path).into());
    let mut event = Event::new(EventName::Exited, path, Kind::ToolCall);
    event.session = Some(key);
    event.turn = Some(stamp.turn);
    event.attempt = Some(stamp.attempt);
    event.epoch = Some(stamp.epoch);
    event.reason = Some("panicked".to_owned());
    event.panic = Some(panic.panic());
    event.backtrace = Some(panic.hash());
    deps.log.record(event);
    Outcome::ended(ToolEnd::Panicked, format!("Error: {name} failed inside and gave no result."))
}
