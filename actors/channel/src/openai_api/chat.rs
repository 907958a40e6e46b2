//! One chat completion from its request to its answer.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Response};
use domain::body::body_hash;
use domain::ids::{MessageId, SessionKey, TurnId};
use protocol::journal::{DuplicateState, Enqueued};
use protocol::session::Mail;
use protocol::turn::{Finished, Route};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ApiConfig;
use super::request::{self, ChatRequest, SessionName};
use super::response::{ApiError, completion};
use super::stream;
use crate::doors::{BODY_BYTES_MAX, Door, Doors, Submission, source};
use crate::hub::outlet::{OUTLET_BYTES_MAX, Outlet};
use crate::hub::{Keep, Sink, Watch};
use crate::outcome::{EndSink, Past, Refusal, Verdict, read_turn};
use crate::websocket::connection::own_message_id;

/// How long a client may take to send its request.
const BODY_MAX: Duration = Duration::from_secs(60);

/// When to try again when the process has no room for another request.
const ROOM_RETRY_MS: u64 = 1000;

/// Answers `POST /v1/chat/completions`.
pub(crate) async fn complete(
    doors: &Doors,
    config: &ApiConfig,
    headers: &HeaderMap,
    body: Body,
) -> Result<Response<Body>, ApiError> {
    let room = room(doors, config, headers)?;
    let bytes = read_body(config, body).await?;
    let ChatRequest { session, body, stream, include_usage } = request::parse(&bytes, &config.model)?;
    drop(bytes);
    let idempotency_key = idempotency_key(headers)?;
    let turn = doors.turn_id();
    let key = session_key(session, turn, idempotency_key.as_ref())?;
    let body = body.encode();
    if body.len() > BODY_BYTES_MAX {
        return Err(ApiError::request(413, "request_too_large", "the message is too large to be kept"));
    }
    let message = Message { doors, key, turn, idempotency_key, body };
    if stream {
        let outlet = Outlet::<Infallible>::new(OUTLET_BYTES_MAX, doors.outflow(Door::Api));
        let admitted = message.admit(Arc::<Outlet<Infallible>>::clone(&outlet)).await?;
        drop(room);
        return Ok(stream::respond(doors, config, admitted, outlet, include_usage));
    }
    let (sink, end) = EndSink::new();
    let mut admitted = message.admit(sink).await?;
    drop(room);
    let finished = match admitted.past.take() {
        Some(finished) => finished,
        None => match tokio::time::timeout(config.timeout, end).await {
            Ok(Ok(finished)) => finished,
            Ok(Err(_)) => return Err(Refusal::Draining.into()),
            Err(_) => {
                let message = format!("no answer within {} s", config.timeout.as_secs());
                let turn = Some(admitted.turn);
                return Err(ApiError { turn, ..ApiError::server(504, "timeout", message) });
            }
        },
    };
    admitted.guard.done();
    match ApiError::of_turn(admitted.turn, &finished) {
        Some(error) => Err(error),
        None => Ok(completion(admitted.turn, doors.ports.clock.wall_ms() / 1000, &config.model, &finished)),
    }
}

/// Reserves room for the body before a byte of it is read.
fn room(doors: &Doors, config: &ApiConfig, headers: &HeaderMap) -> Result<OwnedSemaphorePermit, ApiError> {
    let declared = headers.get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let bytes = declared.unwrap_or(config.body_bytes_max);
    if bytes > config.body_bytes_max {
        return Err(too_large(config));
    }
    let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
    doors.reserve(bytes).ok_or_else(|| {
        let refusal = Refusal::ProcessFull { retry_after_ms: ROOM_RETRY_MS };
        doors.rejected(Door::Api, refusal.metric());
        refusal.into()
    })
}

async fn read_body(config: &ApiConfig, body: Body) -> Result<bytes::Bytes, ApiError> {
    match tokio::time::timeout(BODY_MAX, axum::body::to_bytes(body, config.body_bytes_max)).await {
        Ok(Ok(bytes)) => Ok(bytes),
        // Over the limit, or cut off: in the second case nobody reads this.
        Ok(Err(_)) => Err(too_large(config)),
        Err(_) => Err(ApiError::request(408, "request_timeout", "the request was not sent in time")),
    }
}

fn too_large(config: &ApiConfig) -> ApiError {
    let message = format!("the request is too large; at most {} bytes are allowed", config.body_bytes_max);
    ApiError::request(413, "request_too_large", message)
}

fn idempotency_key(headers: &HeaderMap) -> Result<Option<MessageId>, ApiError> {
    let Some(value) = headers.get("idempotency-key") else { return Ok(None) };
    let text = String::from_utf8_lossy(value.as_bytes());
    MessageId::new(&text).map(Some).map_err(|error| {
        let message = format!("Idempotency-Key: {error}");
        ApiError::request(400, "invalid_idempotency_key", message)
    })
}

/// The session of a request. A stateless one with an `Idempotency-Key` must be found again by its repeat, so its
/// session is named after the key.
fn session_key(name: SessionName, turn: TurnId, idempotency_key: Option<&MessageId>) -> Result<SessionKey, ApiError> {
    let text = match (name, idempotency_key) {
        (SessionName::Id(id), _) => format!("api:{id}"),
        (SessionName::User(user), _) => format!("api:user:{user}"),
        (SessionName::Default, _) => "api:default".to_owned(),
        (SessionName::Stateless, None) => format!("api:req:{turn}"),
        (SessionName::Stateless, Some(id)) => {
            let half = |salt: &str| body_hash(format!("{salt}{id}").as_bytes());
            format!("api:req:key-{:016x}{:016x}", half("a"), half("b"))
        }
    };
    SessionKey::new(&text).map_err(|error| ApiError::request(400, "invalid_value", error.to_string()))
}

struct Message<'a> {
    doors: &'a Doors,
    key: SessionKey,
    turn: TurnId,
    idempotency_key: Option<MessageId>,
    body: Vec<u8>,
}

/// A request whose turn is known and watched.
pub(crate) struct Admitted {
    pub(crate) turn: TurnId,
    /// The outcome, when the turn had ended before.
    pub(crate) past: Option<Arc<Finished>>,
    pub(crate) guard: Guard,
}

impl Message<'_> {
    async fn admit(self, sink: Arc<dyn Sink>) -> Result<Admitted, ApiError> {
        let Self { doors, key, turn, idempotency_key, body } = self;
        let keep = if idempotency_key.is_some() { Keep::Yes } else { Keep::No };
        let watch = doors.hub.watch_turn(&key, turn, keep, Arc::clone(&sink));
        let message_id = idempotency_key.clone().unwrap_or_else(|| own_message_id(turn));
        let verdict = doors.submit(Submission {
            key: key.clone(),
            turn,
            source: source("api"),
            message_id,
            route: Route::Reply,
            body,
        });
        let mut guard = Guard {
            doors: doors.clone(),
            key,
            turn,
            cancels: idempotency_key.is_none(),
            verdict: Some(verdict),
            watch: Some(watch),
        };
        match guard.verdict().await {
            Verdict::Accepted { turn, .. } => Ok(Admitted { turn, past: None, guard }),
            Verdict::Duplicate { turn, state } => guard.join(turn, state, sink).await,
            Verdict::Refused(refusal) => {
                guard.done();
                Err(refusal.into())
            }
        }
    }
}

/// Ties a turn to its request: without an `Idempotency-Key` a client that goes away takes its turn along.
pub(crate) struct Guard {
    doors: Doors,
    key: SessionKey,
    turn: TurnId,
    cancels: bool,
    verdict: Option<oneshot::Receiver<Enqueued>>,
    watch: Option<Watch>,
}

impl Guard {
    async fn verdict(&mut self) -> Verdict {
        let enqueued = match &mut self.verdict {
            Some(verdict) => verdict.await.ok(),
            None => None,
        };
        self.verdict = None;
        self.doors.verdict(Door::Api, &self.key, enqueued)
    }

    /// Watches the turn of the first request with this key.
    async fn join(mut self, turn: TurnId, state: DuplicateState, sink: Arc<dyn Sink>) -> Result<Admitted, ApiError> {
        self.done();
        self.turn = turn;
        self.watch = Some(self.doors.hub.watch_turn(&self.key, turn, Keep::Yes, sink));
        // Asked after the watch began: either the transcript has the end, or the end will be shown.
        let past = match read_turn(&self.doors, &self.key, turn).await {
            Past::Open | Past::Unreachable => None,
            Past::Ended(finished) => Some(finished),
            // The journal has it, so its end will be shown.
            Past::Unknown if state == DuplicateState::Open => None,
            Past::Unknown => {
                let message = "the outcome of the first request with this key is no longer known";
                return Err(ApiError::request(409, "unknown_outcome", message));
            }
        };
        Ok(Admitted { turn, past, guard: self })
    }

    /// The turn ended, or is none of this request's.
    pub(crate) fn done(&mut self) {
        self.cancels = false;
        self.watch = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if !self.cancels {
            return;
        }
        let (sessions, key, turn) = (Arc::clone(&self.doors.sessions), self.key.clone(), self.turn);
        let Some(verdict) = self.verdict.take() else {
            // A session that cannot be reached now keeps the turn; nobody waits for it any more.
            let _ = sessions.tell(&key, Mail::CancelTurn { turn });
            return;
        };
        // The session hears of the message before its verdict is out, so a cancel after the verdict finds it.
        let Ok(runtime) = tokio::runtime::Handle::try_current() else { return };
        runtime.spawn(async move {
            if let Ok(Enqueued::Accepted { turn, .. }) = verdict.await {
                let _ = sessions.tell(&key, Mail::CancelTurn { turn });
            }
        });
    }
}
