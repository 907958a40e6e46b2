//! The handler.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{Request, Response};
use domain::body::TurnBody;
use domain::event::{Event, EventKind};
use domain::ids::TurnId;
use protocol::journal::Enqueued;

use super::super::serve::Gateway;
use super::check::delivery;
use super::{BODY_BYTES_MAX, Hook};
use crate::doors::{Door, PhaseWord, Submission, source};
use crate::http::{json, retry_after_seconds};
use crate::json::Json;
use crate::outcome::{Refusal, Verdict};

/// How long a sender may take for its body.
const BODY_MAX: Duration = Duration::from_secs(30);
/// When to try again when the process has no room for another request.
const ROOM_RETRY_MS: u64 = 1000;

/// An answer that is no success.
enum Refused {
    /// A mistake of the sender.
    Request(u16, &'static str, String),
    /// It calls too often.
    TooOften(Duration),
    /// A bound or a state of ours that is not counted yet.
    Bound(Refusal),
    /// One that was counted where it was found.
    Counted(Refusal),
}

pub(in crate::gateway) async fn receive(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
    request: Request<Body>,
) -> Response<Body> {
    let refused = match gateway.call(path.ok(), request).await {
        Ok(response) => return response,
        Err(refused) => refused,
    };
    let counted = |reason| gateway.doors.rejected(Door::Hook, reason);
    match refused {
        Refused::Request(status, code, message) => {
            counted(code);
            answer(status, code, &message, None)
        }
        Refused::TooOften(wait) => {
            counted("rate_limited");
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX).max(1);
            answer(429, "rate_limited", "this hook is called too often", Some(wait_ms))
        }
        Refused::Bound(refusal) => {
            counted(refusal.metric());
            bound(refusal)
        }
        Refused::Counted(refusal) => bound(refusal),
    }
}

fn bound(refusal: Refusal) -> Response<Body> {
    answer(refusal.status(), refusal.metric(), &refusal.detail(), refusal.retry_after_ms())
}

fn answer(status: u16, code: &'static str, message: &str, retry_after_ms: Option<u64>) -> Response<Body> {
    let inner = Json::begin().text("code", code).text("message", message);
    let inner = match retry_after_ms {
        Some(ms) => inner.raw("retry_after_ms", ms),
        None => inner,
    };
    let mut response = json(status, Json::begin().raw("error", inner.done()).done());
    if let Some(ms) = retry_after_ms {
        response.headers_mut().insert(RETRY_AFTER, retry_after_seconds(ms));
    }
    response
}

impl Gateway {
    async fn call(&self, path: Option<Path<String>>, request: Request<Body>) -> Result<Response<Body>, Refused> {
        let hook = path.and_then(|Path(id)| self.config.hooks.get_key_value(id.as_str()));
        let Some((id, hook)) = hook else {
            return Err(Refused::Request(404, "not_found", "there is no such hook".to_owned()));
        };
        let doors = &self.doors;
        if self.stopping.is_cancelled() || doors.phase.get() == PhaseWord::Draining {
            return Err(Refused::Bound(Refusal::Draining));
        }
        let (parts, body) = request.into_parts();
        let trusted = hook.shows_token(&parts.headers);
        if !trusted && hook.secret.is_none() {
            return Err(unauthorized(hook));
        }
        let declared = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let bytes = declared.unwrap_or(BODY_BYTES_MAX);
        if bytes > BODY_BYTES_MAX {
            return Err(too_large());
        }
        let Some(_room) = doors.reserve(u32::try_from(bytes).unwrap_or(u32::MAX)) else {
            return Err(Refused::Bound(Refusal::ProcessFull { retry_after_ms: ROOM_RETRY_MS }));
        };
        let body = match tokio::time::timeout(BODY_MAX, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
            Ok(Ok(body)) => body,
            // Over the limit, or cut off: in the second case nobody reads this.
            Ok(Err(_)) => return Err(too_large()),
            Err(_) => {
                return Err(Refused::Request(408, "request_timeout", "the request did not come in time".to_owned()));
            }
        };
        if !trusted && !hook.is_signed(&parts.headers, &body) {
            return Err(unauthorized(hook));
        }
        hook.rate.take(doors.ports.clock.mono()).map_err(Refused::TooOften)?;
        let bad = |what: &str| Err(Refused::Request(400, "bad_body", what.to_owned()));
        let Ok(text) = std::str::from_utf8(&body) else { return bad("the body must be text in UTF-8") };
        let said = hook.message.say(text);
        if said.trim().is_empty() {
            return bad("nothing is left to say: the body has nothing of what the hook's message asks for");
        }
        let event = Event { kind: EventKind::Webhook, id: Arc::clone(id), name: Arc::clone(&hook.name), status: None };
        let turn = TurnBody { event: Some(Arc::new(event)), ..TurnBody::text(said) };
        let verdict = doors.submit(Submission {
            key: hook.key.clone(),
            turn: doors.turn_id(),
            source: source(EventKind::Webhook.source()),
            message_id: delivery(id, &parts.headers, &body),
            route: hook.route.clone(),
            body: turn.encode(),
        });
        let enqueued = match verdict.await.ok() {
            // The same delivery, and the hook says something else of it by now: it was taken all the same.
            Some(Enqueued::Conflict { turn }) => return Ok(duplicate(turn)),
            enqueued => enqueued,
        };
        match doors.verdict(Door::Hook, &hook.key, enqueued) {
            Verdict::Accepted { turn, seq, position, state } => {
                let body = Json::begin().plain("turn_id", turn).raw("seq", seq).raw("position", position);
                let word = doors.state_word(&hook.key, state, None);
                Ok(json(202, body.text("state", word).done()))
            }
            Verdict::Duplicate { turn, .. } => Ok(duplicate(turn)),
            Verdict::Refused(refusal) => Err(Refused::Counted(refusal)),
        }
    }
}

fn duplicate(turn: TurnId) -> Response<Body> {
    json(202, Json::begin().plain("turn_id", turn).raw("position", 0).text("state", "duplicate").done())
}

fn unauthorized(hook: &Hook) -> Refused {
    let ways = match (&hook.secret, &hook.token) {
        (Some(_), Some(_)) => "X-Signature-256: sha256=<HMAC of the body>, or Authorization: Bearer <token>",
        (Some(_), None) => "X-Signature-256: sha256=<HMAC of the body>",
        (None, _) => "Authorization: Bearer <token>",
    };
    Refused::Request(401, "unauthorized", format!("a valid signature or token is needed: {ways}"))
}

fn too_large() -> Refused {
    let message = format!("the body is too large; at most {BODY_BYTES_MAX} bytes are allowed");
    Refused::Request(413, "request_too_large", message)
}
