//! One chat completion from its request to its answer.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::body::Body;
use axum::http::header::CONTENT_LENGTH;
use axum::http::{HeaderMap, Response};
use domain::body::{TurnBody, body_hash};
use domain::command;
use domain::ids::{MessageId, SessionKey, TurnId};
use domain::keys::{Key, MAIN_KEY};
use protocol::journal::{DuplicateState, Enqueued, Told};
use protocol::session::Mail;
use protocol::turn::{Finished, Route};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ApiConfig;
use super::follow::Mark;
use super::request::{self, ChatRequest, SessionName};
use super::response::{ApiError, completion, told};
use super::stream;
use crate::control::AtOnce;
use crate::doors::{BODY_BYTES_MAX, Door, Doors, Submission, source};
use crate::hub::outlet::{OUTLET_BYTES_MAX, Outlet};
use crate::hub::{Keep, Sink, Watch};
use crate::media;
use crate::outcome::{End, EndSink, Past, Refusal, Unheard, Verdict, read_turn};
use crate::websocket::connection::own_message_id;

/// How long a client may take to send its request.
const BODY_MAX: Duration = Duration::from_secs(60);

/// When to try again when the session cannot be read.
const READ_RETRY_MS: u64 = 1000;

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
    let mark = last_event_id(headers, idempotency_key.is_some())?;
    let turn = doors.turn_id();
    let key = session_key(session, turn, idempotency_key.as_ref())?;
    let key = if config.unified { Key::unified(key, MAIN_KEY) } else { key };
    if let Some(control) = AtOnce::of(command::of_body(&body), doors, &key).await {
        drop(room);
        let text = control.perform(doors, (Door::Api, &source("api")), &key).await;
        return Ok(told(
            turn,
            doors.ports.clock.wall_ms() / 1000,
            &config.model,
            text,
            stream.then_some(include_usage),
        ));
    }
    let body = if body.ephemeral { body } else { keep_pictures(doors, &key, body).await? };
    let body = body.encode();
    if body.len() > BODY_BYTES_MAX {
        return Err(ApiError::request(413, "request_too_large", "the message is too large to be kept"));
    }
    let message = Message { doors, key, turn, idempotency_key, body };
    if stream {
        let outlet = Outlet::<Infallible>::new(OUTLET_BYTES_MAX, doors.outflow(Door::Api));
        let admitted = message.admit(Arc::<Outlet<Infallible>>::clone(&outlet)).await?;
        let mark = mark.filter(|mark| mark.turn() == admitted.turn);
        drop(room);
        return Ok(stream::respond(doors, config, Admitted { mark, ..admitted }, outlet, include_usage));
    }
    let (mut guard, finished) = message.answer(config, room).await?;
    guard.done();
    match ApiError::of_turn(guard.turn, &finished) {
        Some(error) => Err(error),
        None => Ok(completion(guard.turn, doors.ports.clock.wall_ms() / 1000, &config.model, &finished)),
    }
}

/// What stays in a session says later where its pictures lie.
async fn keep_pictures(doors: &Doors, key: &SessionKey, body: TurnBody) -> Result<TurnBody, ApiError> {
    let directory = media::place(&doors.media, media::API, key);
    media::keep_pictures(doors, directory, body).await.map_err(|error| {
        tracing::warn!(%error, "a picture cannot be kept");
        let refusal = Refusal::Disk { retry_after_ms: READ_RETRY_MS, space: None };
        doors.refused(Door::Api, key, refusal);
        refusal.into()
    })
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

/// What the client has already, if it comes back for the rest of a stream.
fn last_event_id(headers: &HeaderMap, has_key: bool) -> Result<Option<Mark>, ApiError> {
    let Some(value) = headers.get("last-event-id").filter(|value| !value.is_empty()) else { return Ok(None) };
    let bad = |message| ApiError::request(400, "invalid_last_event_id", message);
    let mark = value.to_str().ok().and_then(|text| text.parse().ok());
    let mark = mark.ok_or_else(|| bad("Last-Event-ID is not the id of an event of such a stream"))?;
    if !has_key {
        return Err(bad("Last-Event-ID needs the Idempotency-Key of the first request"));
    }
    Ok(Some(mark))
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
    /// What the client has of it from an earlier stream.
    pub(crate) mark: Option<Mark>,
}

impl Message<'_> {
    /// Waits for the whole answer. It is the only thing that wakes the request, if all goes well.
    async fn answer(self, config: &ApiConfig, room: OwnedSemaphorePermit) -> Result<(Guard, Arc<Finished>), ApiError> {
        let (sink, end) = EndSink::new();
        let (doors, unheard) = (self.doors.clone(), Unheard::new(&sink));
        let guard = self.submit(sink, move |enqueued| {
            drop(room);
            let verdict = doors.judged(Some(enqueued));
            if let Verdict::Accepted { turn, .. } = verdict {
                doors.accepted(Door::Api, turn);
            }
            unheard.hear(verdict);
        });
        match wait(config, guard.turn, end).await? {
            End::Finished(finished) => Ok((guard, finished)),
            End::Refused(refusal) => Err(guard.refused(refusal)),
            End::Duplicate { turn, state } => {
                let (sink, end) = EndSink::new();
                let mut first = guard.join(turn, state, sink).await?;
                if let Some(finished) = first.past.take() {
                    return Ok((first.guard, finished));
                }
                match wait(config, first.turn, end).await? {
                    End::Finished(finished) => Ok((first.guard, finished)),
                    End::Refused(_) | End::Duplicate { .. } => Err(Refusal::Draining.into()),
                }
            }
        }
    }

    /// Waits until the message is durable.
    async fn admit(self, sink: Arc<dyn Sink>) -> Result<Admitted, ApiError> {
        let doors = self.doors;
        let (told, verdict) = oneshot::channel();
        let guard = self.submit(Arc::clone(&sink), move |enqueued| drop(told.send(enqueued)));
        match doors.verdict(Door::Api, &guard.key, verdict.await.ok()) {
            Verdict::Accepted { turn, .. } => Ok(Admitted { turn, past: None, guard, mark: None }),
            Verdict::Duplicate { turn, state } => guard.join(turn, state, sink).await,
            Verdict::Refused(refusal) => Err(guard.forget(refusal)),
        }
    }

    /// Hands the message to the journal and watches its turn; `hear` is told the verdict while the client is there.
    fn submit(self, sink: Arc<dyn Sink>, hear: impl FnOnce(Enqueued) + Send + 'static) -> Guard {
        let Self { doors, key, turn, idempotency_key, body } = self;
        let keep = if idempotency_key.is_some() { Keep::Yes } else { Keep::No };
        let watch = Some(doors.hub.watch_turn(&key, turn, keep, sink));
        let cancels = idempotency_key.is_none();
        let message_id = idempotency_key.unwrap_or_else(|| own_message_id(turn));
        let stage = Arc::new(Mutex::new(Stage::Asked));
        let told = {
            let (stage, sessions, key) = (Arc::clone(&stage), Arc::clone(&doors.sessions), key.clone());
            Told::new(move |enqueued| match (enter(&stage, Stage::Told), &enqueued) {
                // The session hears of the message before anybody is told of it, so the cancel finds it.
                (Stage::Left, Enqueued::Accepted { turn, .. }) => {
                    let _ = sessions.tell(&key, Mail::CancelTurn { turn: *turn });
                }
                (Stage::Left, _) => {}
                (Stage::Asked | Stage::Told, _) => hear(enqueued),
            })
        };
        let (source, route) = (source("api"), Route::Reply);
        doors.submit_and_tell(Submission { key: key.clone(), turn, source, message_id, route, body }, told);
        Guard { doors: doors.clone(), key, turn, cancels, stage, watch }
    }
}

async fn wait(config: &ApiConfig, turn: TurnId, end: oneshot::Receiver<End>) -> Result<End, ApiError> {
    match tokio::time::timeout(config.timeout, end).await {
        Ok(Ok(end)) => Ok(end),
        Ok(Err(_)) => Err(Refusal::Draining.into()),
        Err(_) => {
            let message = format!("no answer within {} s", config.timeout.as_secs());
            Err(ApiError { turn: Some(turn), ..ApiError::server(504, "timeout", message) })
        }
    }
}

/// Where a message stands between its client and the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// No verdict yet.
    Asked,
    /// The verdict is out.
    Told,
    /// The client left before, and takes its turn along.
    Left,
}

/// Enters `next`; gives what was before.
fn enter(stage: &Mutex<Stage>, next: Stage) -> Stage {
    std::mem::replace(&mut *stage.lock().unwrap_or_else(PoisonError::into_inner), next)
}

/// Ties a turn to its request: without an `Idempotency-Key` a client that goes away takes its turn along.
pub(crate) struct Guard {
    doors: Doors,
    key: SessionKey,
    turn: TurnId,
    cancels: bool,
    stage: Arc<Mutex<Stage>>,
    watch: Option<Watch>,
}

impl Guard {
    /// Nothing was written.
    fn forget(mut self, refusal: Refusal) -> ApiError {
        self.done();
        refusal.into()
    }

    /// Nothing was written, and nobody counted that yet.
    fn refused(self, refusal: Refusal) -> ApiError {
        self.doors.refused(Door::Api, &self.key, refusal);
        self.forget(refusal)
    }

    /// Watches the turn of the first request with this key.
    async fn join(mut self, turn: TurnId, state: DuplicateState, sink: Arc<dyn Sink>) -> Result<Admitted, ApiError> {
        self.done();
        self.turn = turn;
        self.watch = Some(self.doors.hub.watch_turn(&self.key, turn, Keep::Yes, sink));
        // Asked after the watch began: either the transcript has the end, or the end will be shown.
        let past = match read_turn(&self.doors, &self.key, turn).await {
            Past::Open => None,
            Past::Ended(finished) => Some(finished),
            // The journal has it, so its end will be shown.
            Past::Unknown | Past::Unreachable if state == DuplicateState::Open => None,
            Past::Unreachable => {
                let busy = ApiError::server(503, "busy", "the session cannot be read right now");
                return Err(ApiError { retry_after_ms: Some(READ_RETRY_MS), ..busy });
            }
            Past::Unknown => {
                let message = "the outcome of the first request with this key is no longer known";
                return Err(ApiError::request(409, "unknown_outcome", message));
            }
        };
        Ok(Admitted { turn, past, guard: self, mark: None })
    }

    /// The turn ended, or is none of this request's.
    pub(crate) fn done(&mut self) {
        self.cancels = false;
        self.watch = None;
    }
}

impl Drop for Guard {
    fn drop(&mut self) {
        if self.cancels && enter(&self.stage, Stage::Left) == Stage::Told {
            // A session that cannot be reached now keeps the turn; nobody waits for it any more.
            let _ = self.doors.sessions.tell(&self.key, Mail::CancelTurn { turn: self.turn });
        }
    }
}
