//! Deleting, archiving and taking back of sessions. The operations are free of HTTP, so that a command without a gateway
//! does the same on its own actors and prints the same bodies.
//!
//! ```json
//! {"key":"api:7","state":"deleted","session":"0193…","cancelled":1,"file":"api.7.jsonl.deleted.2026-11-29T20-53-29.123Z"}
//! {"key":"api:7","state":"archived","session":"0193…","cancelled":0,"file":null,"unmoved":"why the file stays for now"}
//! {"key":"api:7","state":"asleep","file":"archive/api.7.jsonl.archived.2026-11-29T20-53-29.123Z"}
//! {"items":[{"key":"api:7", …,"file":"api.7.jsonl.archived.…","archived_ms":1}],"next":null}
//! ```

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use domain::ids::SessionKey;
use protocol::journal::Shelf;
use protocol::registry::{Sessions, Unreachable};
use protocol::session::{Mail, NotClosed, NotRestored};
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

fn respond(result: Result<Value, Fault>) -> Response<Body> {
    match result {
        Ok(body) => ok(&body),
        Err(fault) => error(fault.status, fault.code, &fault.message),
    }
}

pub(super) async fn delete(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    match key_of(path) {
        Ok(key) => respond(close(&*gateway.doors.sessions, &key, Shelf::Deleted, Open::Cancelled).await),
        Err(bad) => bad.response(),
    }
}

pub(super) async fn archive(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    match key_of(path) {
        Ok(key) => respond(close(&*gateway.doors.sessions, &key, Shelf::Archive, Open::Refused).await),
        Err(bad) => bad.response(),
    }
}

pub(super) async fn unarchive(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    match key_of(path) {
        Ok(key) => respond(restore(&*gateway.doors.sessions, &key).await),
        Err(bad) => bad.response(),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    cursor: Option<String>,
    limit: Option<usize>,
}

pub(super) async fn list(
    State(gateway): State<Arc<Gateway>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(Asked { cursor, limit })) = asked else {
        return error(400, "bad_query", "the query is cursor=<file>&limit=<number>");
    };
    let transcripts = Arc::clone(&gateway.config.transcripts);
    let limit = limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX);
    match blocking(&gateway, move || transcripts.archived(cursor.as_deref(), limit)).await {
        Ok(page) => json_of(&page),
        Err(cause) => failed("the archive", &cause),
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
