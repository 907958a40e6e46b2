//! Messages to sub-agents: the one with which a run begins, and what it is told when it has. Pure.

use std::sync::Arc;

use domain::body::{TurnBody, body_hash};
use domain::event::EventKind;
use domain::ids::{MessageId, Source, TurnId};
use domain::run::{RunSpec, Saying};
use protocol::journal::{DuplicateState, Enqueue, Enqueued};
use protocol::subagent::REPORTS;
use protocol::turn::{PushRoute, Route};
use tokio::sync::oneshot::error::RecvError;

use crate::machine::Verdict;

/// The message with which a run begins. Unless somebody waits for it, its end is reported.
pub fn first(spec: &Arc<RunSpec>, turn: TurnId, waits: bool) -> Result<Enqueue, String> {
    let body = TurnBody { run: Some(Arc::clone(spec)), ..TurnBody::text(&*spec.task) };
    let route = if waits { Route::Live } else { reported(spec) };
    message(spec, turn, (&format!("run:{}", spec.run), route, &body))
}

/// What a run is told; what it answers to that alone is reported, too. The same `id` again is the same message.
pub fn later(spec: &RunSpec, turn: TurnId, (id, saying): (&str, Saying), text: &str) -> Result<Enqueue, String> {
    let (run, saying) = (Some(spec.goes_on_with(text).into()), Some(saying));
    let body = TurnBody { run, saying, ..TurnBody::text(text) };
    message(spec, turn, (&format!("said:{id}"), reported(spec), &body))
}

fn reported(spec: &RunSpec) -> Route {
    let (chat, thread) = (spec.parent.as_str().into(), Some(spec.run.to_string().into()));
    // The conversation that has this turn asked for it, and no other one that has its name later.
    let account = spec.turn.to_string().into();
    Route::Push(PushRoute { channel: REPORTS.into(), account, chat, thread })
}

fn message(spec: &RunSpec, turn: TurnId, (id, route, body): (&str, Route, &TurnBody)) -> Result<Enqueue, String> {
    let key = spec.key().map_err(|bad| bad.to_string())?;
    let message_id = MessageId::new(id).map_err(|bad| bad.to_string())?;
    let source = Source::new(EventKind::Subagent.source()).map_err(|bad| bad.to_string())?;
    let body = body.encode();
    let body_hash = body_hash(&body);
    Ok(Enqueue { key, turn, source, message_id, route, body_hash, body: body.into(), retry_of: None })
}

/// What the journal said, as the machine takes it.
pub fn verdict(said: Result<Enqueued, RecvError>) -> Verdict {
    match said {
        Ok(Enqueued::Accepted { .. }) => Verdict::Accepted,
        Ok(Enqueued::Duplicate { turn, state: DuplicateState::Open }) => Verdict::Open(turn),
        Ok(Enqueued::Duplicate { turn, state: DuplicateState::Ended }) => Verdict::Over(turn),
        // The same call asks for the same run, though it may be told otherwise: of another turn's route, for one.
        Ok(Enqueued::Conflict { turn }) => Verdict::Open(turn),
        Ok(Enqueued::Busy { why, .. }) => Verdict::Refused(format!("too busy ({why:?}); try again later")),
        Ok(Enqueued::Quarantined { .. }) => Verdict::Refused("its session is held back after crashes".to_owned()),
        Ok(Enqueued::Draining) | Err(_) => Verdict::Refused("the gateway is stopping".to_owned()),
    }
}
