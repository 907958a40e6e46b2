//! The way in: route, token and listener.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::{CONTENT_LENGTH, RETRY_AFTER};
use axum::http::{HeaderMap, Request, Response};
use axum::routing::{get, post};
use domain::command;
use protocol::turn::{Lane, Route};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::WebhookConfig;
use super::receive::{Received, parse};
use crate::auth::{bearer, host_is_local, origin_is_allowed};
use crate::control::AtOnce;
use crate::doors::{Door, Doors, PhaseWord, Submission, text_body};
use crate::http::{self, Limits, is_json, json, retry_after_seconds};
use crate::json::Json;
use crate::open::OpenDoor;
use crate::outcome::{Refusal, Verdict};

/// How long a client may take for the head of a request, and may keep an idle connection.
const HEAD_MAX: Duration = Duration::from_secs(60);
/// How long it may take for the body.
const BODY_MAX: Duration = Duration::from_secs(60);
/// Largest request.
const BODY_BYTES_MAX: usize = 1024 * 1024;
/// When to try again when the process has no room for another request.
const ROOM_RETRY_MS: u64 = 1000;

struct Webhook {
    doors: Doors,
    config: WebhookConfig,
    /// Whether only this machine reaches the listener.
    local: bool,
    stopping: CancellationToken,
}

/// An answer that is no success.
enum Refused {
    /// A mistake of the sender.
    Request(u16, &'static str, String),
    /// A bound or a state of ours, which was counted where it was found.
    Bound(Refusal),
}

/// Serves until `shutdown`, then until the running requests are answered, at most [`WebhookConfig::drain`] longer.
pub async fn serve(listener: TcpListener, doors: Doors, config: WebhookConfig, shutdown: CancellationToken) {
    let limits = Limits { head: HEAD_MAX, drain: config.drain };
    let door = OpenDoor::new(&doors, Door::Webhook, config.connections_max);
    let local = http::is_local(&listener);
    let webhook = Arc::new(Webhook { doors, config, local, stopping: shutdown.clone() });
    let app = Router::new()
        .route("/health", get(async || json(200, r#"{"status":"ok"}"#)))
        .route("/webhook", post(receive))
        .method_not_allowed_fallback(async || error(405, "method_not_allowed", "this address has no such method"))
        .fallback(async || error(404, "not_found", "there is nothing here"))
        .with_state(webhook);
    http::serve(listener, app, limits, shutdown, door).await;
}

async fn receive(State(webhook): State<Arc<Webhook>>, request: Request<Body>) -> Response<Body> {
    match webhook.receive(request).await {
        Ok(response) => response,
        Err(Refused::Request(status, code, message)) => {
            webhook.doors.rejected(Door::Webhook, code);
            error(status, code, &message)
        }
        Err(Refused::Bound(refusal)) => bound(refusal),
    }
}

impl Webhook {
    /// The token opens the door to whoever shows it. Without one anybody on this machine may come in, but no page that a
    /// browser on it shows: neither by name (`Origin`) nor by a name made to point here (`Host`).
    fn authorize(&self, headers: &HeaderMap) -> Result<(), Refused> {
        let forbidden = |message: &str| Err(Refused::Request(403, "forbidden", message.to_owned()));
        let Some(token) = &self.config.token else {
            if !origin_is_allowed(headers, &[]) {
                return forbidden("pages may not use this address without a token: set channels.webhook.token");
            }
            if self.local && !host_is_local(headers, &[]) {
                return forbidden("this host name is not served without a token: set channels.webhook.token");
            }
            return Ok(());
        };
        if bearer(headers).is_some_and(|given| token.is(given)) {
            return Ok(());
        }
        let message = "a valid token is needed: Authorization: Bearer <token>".to_owned();
        Err(Refused::Request(401, "unauthorized", message))
    }

    async fn receive(&self, request: Request<Body>) -> Result<Response<Body>, Refused> {
        let (parts, body) = request.into_parts();
        self.authorize(&parts.headers)?;
        let doors = &self.doors;
        if self.stopping.is_cancelled() || doors.phase.get() == PhaseWord::Draining {
            doors.rejected(Door::Webhook, Refusal::Draining.metric());
            return Err(Refused::Bound(Refusal::Draining));
        }
        if !is_json(&parts.headers) {
            let message = "the request must be JSON, and say so: Content-Type: application/json".to_owned();
            return Err(Refused::Request(415, "unsupported_media_type", message));
        }
        let declared = parts.headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
        let bytes = declared.unwrap_or(BODY_BYTES_MAX);
        if bytes > BODY_BYTES_MAX {
            return Err(too_large());
        }
        let Some(_room) = doors.reserve(u32::try_from(bytes).unwrap_or(u32::MAX)) else {
            let refusal = Refusal::ProcessFull { retry_after_ms: ROOM_RETRY_MS };
            doors.rejected(Door::Webhook, refusal.metric());
            return Err(Refused::Bound(refusal));
        };
        let bytes = match tokio::time::timeout(BODY_MAX, axum::body::to_bytes(body, BODY_BYTES_MAX)).await {
            Ok(Ok(bytes)) => bytes,
            // Over the limit, or cut off: in the second case nobody reads this.
            Ok(Err(_)) => return Err(too_large()),
            Err(_) => {
                return Err(Refused::Request(408, "request_timeout", "the request did not come in time".to_owned()));
            }
        };
        let received =
            parse(&bytes, self.config.router.as_deref()).map_err(|why| Refused::Request(400, "bad_body", why))?;
        if !self.config.allow_from.iter().any(|allowed| allowed == "*" || *allowed == received.sender) {
            let message = "this sender may not write here: channels.webhook.allowFrom names who may".to_owned();
            return Err(Refused::Request(403, "forbidden", message));
        }
        self.take(received).await
    }

    async fn take(&self, received: Received) -> Result<Response<Body>, Refused> {
        let Received { key, source, message_id, text, route, sender: _ } = received;
        let doors = &self.doors;
        let (parsed, turn, route) = (command::parse(&text), doors.turn_id(), Route::Push(route));
        let lane = Lane::of_message(&source, &route, &parsed);
        if let Some(control) = AtOnce::of(parsed, doors, &key).await {
            let text = control.perform(doors, (Door::Webhook, &source), &key).await;
            return Ok(json(200, Json::begin().raw("turn_id", "null").raw("control", true).text("text", &text).done()));
        }
        let verdict =
            doors.submit(Submission { key: key.clone(), turn, source, message_id, route, body: text_body(&text) });
        match doors.verdict(Door::Webhook, &key, verdict.await.ok()) {
            Verdict::Accepted { turn, seq, position, state } => {
                let word = doors.state_word(&key, state, lane);
                let body = Json::begin().plain("turn_id", turn).raw("seq", seq).raw("position", position);
                Ok(json(202, body.text("state", word).done()))
            }
            Verdict::Duplicate { turn, .. } => {
                let body = Json::begin().plain("turn_id", turn).raw("position", 0);
                Ok(json(202, body.text("state", "duplicate").done()))
            }
            Verdict::Refused(refusal) => Err(Refused::Bound(refusal)),
        }
    }
}

fn too_large() -> Refused {
    let message = format!("the request is too large; at most {BODY_BYTES_MAX} bytes are allowed");
    Refused::Request(413, "request_too_large", message)
}

fn error(status: u16, code: &'static str, message: &str) -> Response<Body> {
    json(status, error_body(code, message, None))
}

fn error_body(code: &'static str, message: &str, retry_after_ms: Option<u64>) -> String {
    let inner = Json::begin().text("code", code).text("message", message);
    let inner = match retry_after_ms {
        Some(ms) => inner.raw("retry_after_ms", ms),
        None => inner,
    };
    Json::begin().raw("error", inner.done()).done()
}

fn bound(refusal: Refusal) -> Response<Body> {
    let retry_after_ms = refusal.retry_after_ms();
    let mut response = json(refusal.status(), error_body(refusal.metric(), &refusal.detail(), retry_after_ms));
    if let Some(ms) = retry_after_ms {
        response.headers_mut().insert(RETRY_AFTER, retry_after_seconds(ms));
    }
    response
}
