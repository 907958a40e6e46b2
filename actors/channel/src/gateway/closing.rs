//! Deleting, archiving and taking back of sessions. The operations are free of HTTP, so that a command without a gateway
//! does the same on its own actors and prints the same bodies.
//!
//! ```json
//! {"key":"api:7","state":"deleted","session":"0193…","cancelled":1,"file":"api.7.jsonl.deleted.2026-11-29T20-53-29.123Z"}
//! {"key":"api:7","state":"archived","session":"0193…","cancelled":0,"file":null,"unmoved":"why the file stays for now"}
//! {"key":"api:7","state":"asleep","file":"archive/api.7.jsonl.archived.2026-11-29T20-53-29.123Z"}
//! {"key":"api:7","state":"deleted","file":"api.7.jsonl.deleted.2026-11-29T20-53-29.123Z"}
//! {"items":[{"key":"api:7", …,"file":"api.7.jsonl.archived.…","archived_ms":1}],"next":null}
//! {"items":[{"key":"api:7", …,"file":"api.7.jsonl.deleted.…","deleted_ms":1}],"next":null}
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use axum::routing::post;
use domain::ids::SessionKey;
use protocol::journal::Shelf;
use protocol::registry::{Sessions, Unreachable};
use protocol::session::{Mail, NotClosed, NotRestored};
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use protocol::transcripts::TranscriptReader;
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::sync::oneshot;

use super::admin::{blocking, error, failed, json_of, key_of, ok};
use super::letters::Fault;
use super::serve::Gateway;

/// Items of one page.
const PAGE_MAX: usize = 1000;
/// How long the answer is awaited: tools that run are cancelled and have to end first.
const ANSWER_MAX: Duration = Duration::from_secs(15);

fn unreachable(why: Unreachable) -> Fault {
    match why {
        Unreachable::Quarantined => Fault::new(409, "quarantined", "the session is quarantined; release it first"),
        Unreachable::Paused => Fault::new(503, "paused", why.to_string()),
        Unreachable::Stopping => Fault::new(503, "draining", why.to_string()),
    }
}

async fn answered<T>(answer: oneshot::Receiver<T>) -> Result<T, Fault> {
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(_)) => {
            Err(Fault::new(503, "interrupted", "the session went away meanwhile; look what came of it, and try again"))
        }
        Err(_) => Err(Fault::new(504, "timeout", "the session has not answered yet; it goes on with it")),
    }
}

/// What becomes of a session with turns that wait or run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Open {
    /// They are cancelled.
    Cancelled,
    /// It stays.
    Refused,
}

/// Ends the transcript of a session and puts its file away. Returns when that is durable.
pub async fn close(sessions: &dyn Sessions, key: &SessionKey, to: Shelf, open: Open) -> Result<Value, Fault> {
    let (reply, answer) = oneshot::channel();
    sessions.tell(key, Mail::Close { to, if_quiet: open == Open::Refused, reply }).map_err(unreachable)?;
    let closed = answered(answer).await?.map_err(|why| match why {
        NotClosed::Nothing => Fault::new(404, "not_found", why.to_string()),
        NotClosed::Lost(_) => Fault::new(500, "unreadable", why.to_string()),
        NotClosed::Busy => Fault::new(429, "busy", why.to_string()),
        NotClosed::Leaving => Fault::new(503, "leaving", why.to_string()),
        NotClosed::Held => Fault::new(503, "held", why.to_string()),
    })?;
    let state = match to {
        Shelf::Archive => "archived",
        Shelf::Deleted => "deleted",
    };
    let mut body = json!({
        "key": key, "state": state, "session": closed.session, "cancelled": closed.cancelled, "file": closed.file,
    });
    if let Some(why) = closed.unmoved {
        body["unmoved"] = why.into();
    }
    Ok(body)
}

/// Takes the newest archived transcript of a session back.
pub async fn restore(sessions: &dyn Sessions, key: &SessionKey) -> Result<Value, Fault> {
    let (reply, answer) = oneshot::channel();
    sessions.tell(key, Mail::Restore { reply }).map_err(unreachable)?;
    let restored = answered(answer).await?.map_err(|why| match why {
        NotRestored::Nothing => Fault::new(404, "not_found", why.to_string()),
        NotRestored::InUse => Fault::new(409, "in_use", why.to_string()),
        NotRestored::Failed(_) => Fault::new(500, "unwritable", why.to_string()),
    })?;
    Ok(json!({"key": key, "state": "asleep", "file": restored.file}))
}

/// Makes a tombstone of the newest archived transcript of a session. Blocks.
pub fn delete_archived(
    files: &dyn TranscriptReader,
    log: &dyn SupervisionLog,
    key: &SessionKey,
    now_ms: u64,
) -> Result<Value, Fault> {
    let file = files.delete_archived(key, now_ms);
    let file = file.map_err(|error| Fault::new(500, "unwritable", format!("it cannot be moved: {error}")))?;
    let file = file.ok_or_else(|| Fault::new(404, "not_found", "there is no archived session of this key"))?;
    let mut event = Event::new(EventName::SessionDeleted, ActorPath("/registry".into()), Kind::Registry);
    event.session = Some(key.clone());
    event.reason = Some(format!("it was archived, its transcript is {file}"));
    log.record(event);
    Ok(json!({"key": key, "state": "deleted", "file": file}))
}

/// What is done with a whole session.
#[derive(Debug, Clone, Copy)]
enum Act {
    Delete,
    Archive,
    Unarchive,
    DeleteArchived,
}

/// The routes of what ends sessions and takes them back.
pub(super) fn routes() -> Router<Arc<Gateway>> {
    let acts = [
        ("/sessions/{key}/delete", Act::Delete),
        ("/sessions/{key}/archive", Act::Archive),
        ("/sessions/{key}/unarchive", Act::Unarchive),
        ("/archive/{key}/delete", Act::DeleteArchived),
    ];
    acts.into_iter().fold(Router::new(), |router, (route, act)| {
        let answer = move |State(gateway): State<Arc<Gateway>>, path: Result<Path<String>, PathRejection>| {
            answer(act, gateway, path)
        };
        router.route(route, post(answer))
    })
}

async fn answer(act: Act, gateway: Arc<Gateway>, path: Result<Path<String>, PathRejection>) -> Response<Body> {
    let key = match key_of(path) {
        Ok(key) => key,
        Err(bad) => return bad.response(),
    };
    let sessions = &*gateway.doors.sessions;
    let done = match act {
        Act::Delete => close(sessions, &key, Shelf::Deleted, Open::Cancelled).await,
        Act::Archive => close(sessions, &key, Shelf::Archive, Open::Refused).await,
        Act::Unarchive => restore(sessions, &key).await,
        Act::DeleteArchived => {
            let asked = Arc::clone(&gateway);
            let delete = move || {
                let (doors, now_ms) = (&asked.doors, asked.doors.ports.clock.wall_ms());
                Ok(delete_archived(&*asked.config.transcripts, &*doors.log, &key, now_ms))
            };
            match blocking(&gateway, delete).await {
                Ok(done) => done,
                Err(cause) => return failed("the archive", &cause),
            }
        }
    };
    match done {
        Ok(body) => ok(&body),
        Err(fault) => error(fault.status, fault.code, &fault.message),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// Answers `GET archive`.
pub(super) async fn archived(
    State(gateway): State<Arc<Gateway>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response<Body> {
    list(&gateway, Shelf::Archive, asked).await
}

/// Answers `GET deleted`.
pub(super) async fn deleted(
    State(gateway): State<Arc<Gateway>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response<Body> {
    list(&gateway, Shelf::Deleted, asked).await
}

async fn list(gateway: &Gateway, shelf: Shelf, asked: Result<Query<Asked>, QueryRejection>) -> Response<Body> {
    let Ok(Query(Asked { cursor, limit })) = asked else {
        return error(400, "bad_query", "the query is cursor=<file>&limit=<number>");
    };
    let transcripts = Arc::clone(&gateway.config.transcripts);
    let limit = limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    match blocking(gateway, move || transcripts.ended(shelf, cursor.as_deref(), limit)).await {
        Ok(page) => json_of(&page),
        Err(cause) => failed("what was put away", &cause),
    }
}

pub(super) async fn show(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    let key = match key_of(path) {
        Ok(key) => key,
        Err(bad) => return bad.response(),
    };
    let (transcripts, wanted) = (Arc::clone(&gateway.config.transcripts), key.clone());
    match blocking(&gateway, move || transcripts.read_archived(&wanted)).await {
        Ok(Some(lines)) => ok(&shown(&key, &lines)),
        Ok(None) => error(404, "not_found", "there is no archived session of this key"),
        Err(cause) => failed("the archived transcript", &cause),
    }
}

/// An archived transcript as it is shown; a damaged line is the text it is.
pub fn shown(key: &SessionKey, lines: &[String]) -> Value {
    let entry = |line: &String| serde_json::from_str(line).unwrap_or_else(|_| Value::String(line.clone()));
    json!({"key": key, "entries": lines.iter().map(entry).collect::<Vec<Value>>(), "open": []})
}
