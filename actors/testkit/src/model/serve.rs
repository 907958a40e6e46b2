//! The HTTP side.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{DefaultBodyLimit, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::Response;
use axum::routing::{get, post};
use axum::serve::ListenerExt;
use bytes::Bytes;
use domain::script::Script;
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::answer::{Answer, Frame, Request};
use super::books::{Books, End, Ticket};
use super::{Config, PlannedError};

/// Longest request body.
const BODY_BYTES_MAX: usize = 64 << 20;
/// How many texts with a `times=` directive are told apart.
const GIVEN_TEXTS_MAX: usize = 100_000;

/// State of one server.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) books: Arc<Books>,
    config: Mutex<Config>,
    given: Mutex<HashMap<String, u64>>,
}

#[derive(Clone)]
struct App {
    shared: Arc<Shared>,
    stop: CancellationToken,
}

impl Shared {
    pub(super) fn with_config<T>(&self, with: impl FnOnce(&mut Config) -> T) -> T {
        with(&mut locked(&self.config))
    }

    /// Whether what a script gives only so many times is still given for this text; counts it.
    fn is_due(&self, script: &Script, text: &str) -> bool {
        let Some(times) = script.times else { return true };
        let mut given = locked(&self.given);
        if given.len() > GIVEN_TEXTS_MAX {
            given.clear();
        }
        let count = given.entry(text.to_owned()).or_insert(0);
        let due = *count < times;
        *count += u64::from(due);
        due
    }

    /// The error that this request gets, if any.
    fn error_of(&self, script: &Script, text: &str) -> Option<PlannedError> {
        let Some(what) = &script.error else {
            return self.with_config(|config| {
                let planned = config.error.clone()?;
                if let Some(left) = config.error.as_mut().and_then(|error| error.times.as_mut()) {
                    *left = left.checked_sub(1)?;
                }
                Some(planned)
            });
        };
        if !self.is_due(script, text) {
            return None;
        }
        Some(PlannedError { what: what.clone(), retry_after_s: script.retry_after_s, times: None })
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Serves until `stop`.
pub(super) async fn run(listener: TcpListener, shared: Arc<Shared>, stop: CancellationToken) {
    let books = shared.books.clone();
    let app = App { shared, stop: stop.clone() };
    let router = Router::new()
        .route("/v1/chat/completions", post(complete))
        .route("/v1/models", get(models))
        .layer(DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(app);
    let listener = listener.tap_io(move |socket| {
        books.saw_connection();
        // Only latency is at stake.
        let _ = socket.set_nodelay(true);
    });
    let serving = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned());
    serving.await.expect("accepting goes on for ever");
}

async fn models() -> Response {
    let models = json!({"object": "list", "data": [{"id": "scripted", "object": "model", "owned_by": "testkit"}]});
    respond(200, "application/json", Body::from(models.to_string()))
}

async fn complete(State(app): State<App>, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let ticket = app.shared.books.open();
    tokio::select! {
        biased;
        () = app.stop.cancelled() => respond(503, "application/json", Body::empty()),
        response = answer(&app, ticket, uri, headers, body) => response,
    }
}

async fn answer(app: &App, mut ticket: Ticket, uri: Uri, headers: HeaderMap, body: Bytes) -> Response {
    let shared = &app.shared;
    let config = shared.with_config(|config| config.clone());
    let authorized = config.api_key.as_ref().is_none_or(|key| bearer(&headers) == Some(key));
    if config.record {
        shared.books.keep(uri, headers, body.clone());
    }
    if !authorized {
        return fail(ticket, &PlannedError::always(401));
    }
    let Ok(request) = serde_json::from_slice::<Request>(&body) else {
        return fail(ticket, &PlannedError::always(400));
    };
    if request.streams() {
        shared.books.saw_stream();
    }
    let turn = request.turn();
    let mut script = Script::parse(&turn.text);
    if let Some((key, number)) = script.seq.clone() {
        ticket.sequence(key, number);
    }
    if script.hang {
        return std::future::pending().await;
    }
    let error = shared.error_of(&script, &turn.text);
    let delay = script.delay_ms.map_or(config.delay, |range| spread(range, ticket.number));
    if !delay.is_zero() {
        tokio::time::sleep(delay).await;
    }
    if let Some(error) = error {
        return fail(ticket, &error);
    }
    if script.error.is_none() && script.finish.is_some() && !shared.is_due(&script, &turn.text) {
        script.finish = None;
    }
    let answer = Answer::new(ticket.number, &request, body.len(), &turn, &script, config.tokens.max(1));
    let piece_delay = script.piece_delay_ms.map_or(config.piece_delay, Duration::from_millis);
    if request.streams() { stream(ticket, &answer, &script, piece_delay) } else { whole(ticket, &answer, &script) }
}

fn bearer(headers: &HeaderMap) -> Option<&str> {
    headers.get("authorization")?.to_str().ok()?.strip_prefix("Bearer ")
}

/// A time between the bounds, fixed by the request's number.
fn spread((low, high): (u64, u64), number: u64) -> Duration {
    let width = high.saturating_sub(low).saturating_add(1);
    // Multiplying by an odd constant and taking high bits spreads consecutive numbers evenly.
    let place = number.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 16;
    Duration::from_millis(low + place % width)
}

fn respond(status: u16, content_type: &str, body: Body) -> Response {
    let response = Response::builder().status(status).header("content-type", content_type).body(body);
    response.expect("statuses and content types given here are valid")
}

fn fail(mut ticket: Ticket, error: &PlannedError) -> Response {
    ticket.end = End::Error;
    let (status, kind, code) = match error.what.as_str() {
        "context" => (400, "invalid_request_error", Some("context_length_exceeded")),
        "quota" => (429, "insufficient_quota", Some("insufficient_quota")),
        status => match status.parse().ok().filter(|status| StatusCode::from_u16(*status).is_ok()).unwrap_or(500) {
            429 => (429, "rate_limit_error", Some("rate_limit_exceeded")),
            401 => (401, "authentication_error", None),
            529 => (529, "overloaded_error", None),
            status if status >= 500 => (status, "server_error", None),
            status => (status, "invalid_request_error", None),
        },
    };
    let message = format!("the script asked for {}", error.what);
    let body = json!({"error": {"message": message, "type": kind, "param": null, "code": code}});
    let mut response = respond(status, "application/json", Body::from(body.to_string()));
    if matches!(status, 429 | 503 | 529) && error.what != "quota" {
        response.headers_mut().insert("retry-after", error.retry_after_s.unwrap_or(1).into());
    }
    response
}

fn whole(mut ticket: Ticket, answer: &Answer, script: &Script) -> Response {
    let mut whole = answer.whole();
    if script.garbage {
        whole = whole.replacen(':', "", 1);
    }
    if script.drop_after.is_some() || script.truncate {
        whole.truncate(whole.floor_char_boundary(20));
        return respond(200, "application/json", frames(ticket, vec![(whole, false)], Duration::ZERO, true));
    }
    ticket.end = End::Ok;
    respond(200, "application/json", Body::from(whole))
}

fn stream(mut ticket: Ticket, answer: &Answer, script: &Script, piece_delay: Duration) -> Response {
    let (mut parts, first_text) = answer.frames();
    if script.garbage {
        parts.insert(first_text, ("data: {\"choices\":[{\"delta\":{\"cont\n\n".to_owned(), false));
    }
    if let Some(count) = script.drop_after {
        parts.truncate(first_text + count);
    } else if !script.truncate {
        parts.extend(answer.last_frames());
    }
    let dropped = script.drop_after.is_some();
    if piece_delay.is_zero() && !dropped {
        ticket.end = End::Ok;
        let all: String = parts.into_iter().map(|(frame, _)| frame).collect();
        return respond(200, "text/event-stream", Body::from(all));
    }
    respond(200, "text/event-stream", frames(ticket, parts, piece_delay, dropped))
}

/// Sends the frames at their times; if `dropped`, breaks the connection afterwards.
fn frames(ticket: Ticket, frames: Vec<Frame>, piece_delay: Duration, dropped: bool) -> Body {
    let begin = (Some(ticket), frames.into_iter(), false);
    let stream = futures::stream::unfold(begin, move |(mut ticket, mut frames, mut spoke)| async move {
        let Some((frame, waits)) = frames.next() else {
            let mut ticket = ticket.take()?;
            // What was sent is flushed while this stream is pending, and then cut.
            tokio::task::yield_now().await;
            ticket.end = End::Dropped;
            return Some((Err(std::io::Error::other("cut, as the script asked")), (None, frames, spoke)));
        };
        if waits && spoke {
            tokio::time::sleep(piece_delay).await;
        }
        spoke |= waits;
        if frames.len() == 0 && !dropped {
            // Closed before the last frame leaves: the client's next request may be faster than the end of this one.
            let mut ticket = ticket.take()?;
            ticket.end = End::Ok;
        }
        Some((Ok(Bytes::from(frame)), (ticket, frames, spoke)))
    });
    Body::from_stream(stream)
}
