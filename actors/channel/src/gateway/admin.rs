//! The administration. Lists are `{"items":[..],"next":cursor|null}`, errors `{"error":{"code","message"}}`; the command
//! line prints these bodies as they are.

use std::collections::HashSet;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, Query, State};
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderValue, Response};
use domain::ids::SessionKey;
use protocol::journal::{Line, OpenTurn, OpenWork};
use serde::Deserialize;
use serde_json::value::RawValue;
use serde_json::{Value, json};
use supervision::ports::offload;

use super::serve::{BODY_BYTES_MAX, Gateway};
use crate::control::{self, Asked};
use crate::doors::PhaseWord;
use crate::http;

/// An error, as all of them look.
pub(super) fn error(status: u16, code: &str, message: &str) -> Response<Body> {
    http::json(status, json!({"error": {"code": code, "message": message}}).to_string())
}

pub(super) fn ok(body: &Value) -> Response<Body> {
    http::json(200, body.to_string())
}

/// A value of ours as the answer.
pub(super) fn json_of(body: &impl serde::Serialize) -> Response<Body> {
    match serde_json::to_string(body) {
        Ok(text) => http::json(200, text),
        Err(_) => error(500, "internal", "the answer cannot be printed"),
    }
}

pub(super) fn failed(what: &str, cause: &io::Error) -> Response<Body> {
    tracing::warn!(%cause, "{what} could not be read");
    error(500, "unreadable", &format!("{what} cannot be read: {cause}"))
}

/// The key in the path.
pub(super) fn key_of(path: Result<Path<String>, PathRejection>) -> Result<SessionKey, BadKey> {
    let Path(text) = path.map_err(|_| BadKey("the session key is not UTF-8".to_owned()))?;
    SessionKey::new(&text).map_err(|why| BadKey(why.to_string()))
}

/// A path that names no session key.
pub(super) struct BadKey(String);

impl BadKey {
    pub(super) fn response(&self) -> Response<Body> {
        error(400, "bad_key", &self.0)
    }
}

/// Runs something that reads files on the blocking pool.
pub(super) async fn blocking<T: Send + 'static>(
    gateway: &Gateway,
    job: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    offload(&*gateway.doors.ports.offload, job).await.unwrap_or_else(|_| Err(io::Error::other("the reader failed")))
}

pub(super) async fn status(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    let doors = &gateway.doors;
    let up = doors.ports.clock.mono().saturating_sub(gateway.begun);
    ok(&json!({
        "running": true,
        "pid": gateway.config.pid,
        "addresses": gateway.config.addresses,
        "version": gateway.config.version,
        "phase": doors.phase.get().word(),
        "not_ready": gateway.reasons(),
        "degraded": doors.metrics.degraded(),
        "uptime_ms": u64::try_from(up.as_millis()).unwrap_or(u64::MAX),
        "sessions_live": doors.sessions.live(),
        "turns_running": doors.metrics.turns_running.get(),
        "turns_waiting": doors.metrics.turns_waiting.get(),
        "journal": doors.journal.status(),
        "outbox": doors.outbox.waiting(),
    }))
}

pub(super) async fn session(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    let key = match key_of(path) {
        Ok(key) => key,
        Err(bad) => return bad.response(),
    };
    let (status, running, unwritten) = match control::status(&gateway.doors, &key).await {
        Asked::Answer(mut status) => {
            let unwritten = status.about.as_mut().map(|about| std::mem::take(&mut about.unwritten));
            (json!(status), status.turn, unwritten.unwrap_or_default())
        }
        Asked::Asleep | Asked::Silent => (Value::Null, None, Vec::new()),
    };
    // Read behind that, so that nothing of it is written between the two and seen in neither.
    let (transcripts, wanted) = (Arc::clone(&gateway.config.transcripts), key.clone());
    let lines = blocking(&gateway, move || transcripts.read(&wanted)).await;
    let lines = lines.map(|lines| with_end(lines, unwritten));
    let open = gateway.doors.journal.open_of(key.clone()).await.unwrap_or_default();
    let open = open_turns(open, |turn| running == Some(turn.turn));
    match lines {
        Ok(None) if status.is_null() && open.is_empty() => error(404, "not_found", "there is no such session"),
        Ok(lines) => {
            let lines = lines.unwrap_or_default().into_iter();
            // A damaged line is shown as the text it is.
            let entries: Vec<Box<RawValue>> = lines
                .filter_map(|line| {
                    RawValue::from_string(line.clone()).or_else(|_| serde_json::value::to_raw_value(&line)).ok()
                })
                .collect();
            let body = Session { key: &key, status, entries, open };
            http::json(200, serde_json::to_string(&body).unwrap_or_default())
        }
        Err(cause) => failed("the transcript", &cause),
    }
}

/// What a file has, and behind it what it lacked when its session was asked.
fn with_end(lines: Option<Vec<String>>, unwritten: Vec<Line>) -> Option<Vec<String>> {
    if unwritten.is_empty() {
        return lines;
    }
    let mut lines = lines.unwrap_or_default();
    // They may have been written meanwhile.
    let written: HashSet<&str> = lines.iter().map(String::as_str).collect();
    let missing = unwritten.iter().filter(|line| !written.contains(&*line.text)).map(|line| line.text.to_string());
    let missing: Vec<String> = missing.collect();
    lines.extend(missing);
    Some(lines)
}

#[derive(serde::Serialize)]
struct Session<'a> {
    key: &'a SessionKey,
    status: Value,
    entries: Vec<Box<RawValue>>,
    open: Vec<Value>,
}

/// The turns of a session that have not ended, as `sessions show` tells them: `position` is the number of turns before
/// it, `running` says which one is worked on.
pub fn open_turns(open: OpenWork, running: impl Fn(&OpenTurn) -> bool) -> Vec<Value> {
    let told = |(position, turn): (usize, OpenTurn)| {
        json!({
            "turn_id": turn.turn,
            "state": if running(&turn) { "running" } else { "queued" },
            "position": position,
            "message_id": turn.message_id,
            "accepted_ms": turn.accepted_ms,
        })
    };
    open.turns.into_iter().enumerate().map(told).collect()
}

pub(super) async fn stop(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
    Query(query): Query<StopQuery>,
) -> Response<Body> {
    let key = match key_of(path) {
        Ok(key) => key,
        Err(bad) => return bad.response(),
    };
    match control::stop(&gateway.doors, &key, query.all).await {
        Asked::Answer(stopped) => ok(&json!(stopped)),
        Asked::Asleep => ok(&json!({"cancelled": null, "dropped": 0, "waiting": 0})),
        Asked::Silent => error(504, "timeout", "the session does not answer"),
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct StopQuery {
    #[serde(default)]
    all: bool,
}

pub(super) async fn release(
    State(gateway): State<Arc<Gateway>>,
    path: Result<Path<String>, PathRejection>,
) -> Response<Body> {
    match key_of(path) {
        Ok(key) if gateway.doors.sessions.release(&key) => ok(&json!({"released": true})),
        Ok(_) => error(404, "not_quarantined", "this session is not quarantined"),
        Err(bad) => bad.response(),
    }
}

pub(super) async fn drain(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    gateway.doors.phase.set(PhaseWord::Draining);
    gateway.doors.journal.drain();
    gateway.config.stop.cancel();
    ok(&json!({
        "draining": true,
        "turns_running": gateway.doors.metrics.turns_running.get(),
        "journal": gateway.doors.journal.status(),
        "drain_ms": u64::try_from(gateway.config.drain.as_millis()).unwrap_or(u64::MAX),
    }))
}

#[derive(Debug, Deserialize)]
struct BackupBody {
    dir: PathBuf,
}

/// A request's body, or what is wrong with it.
pub(super) fn body_of(body: Result<Bytes, BytesRejection>) -> Result<Bytes, Box<Response<Body>>> {
    body.map_err(|why| {
        Box::new(match why.status().as_u16() {
            413 => error(413, "request_too_large", &format!("a body here has at most {BODY_BYTES_MAX} bytes")),
            _ => error(400, "bad_body", "the body was not sent to its end"),
        })
    })
}

/// The key in the path and the body, or what to answer in their place.
pub(super) fn key_and_body(
    path: Result<Path<String>, PathRejection>,
    body: Result<Bytes, BytesRejection>,
) -> Result<(SessionKey, Bytes), Box<Response<Body>>> {
    let key = key_of(path).map_err(|bad| Box::new(bad.response()))?;
    Ok((key, body_of(body)?))
}

pub(super) async fn backup(State(gateway): State<Arc<Gateway>>, body: Result<Bytes, BytesRejection>) -> Response<Body> {
    let body = match body_of(body) {
        Ok(body) => body,
        Err(refused) => return *refused,
    };
    let Ok(BackupBody { dir }) = serde_json::from_slice(&body) else {
        return error(400, "bad_body", "the body is {\"dir\": \"<absolute path>\"}");
    };
    if !dir.is_absolute() {
        return error(400, "bad_body", "\"dir\" must be an absolute path");
    }
    match gateway.doors.journal.backup(dir).await {
        Ok(Ok(bytes)) => ok(&json!({"bytes": bytes})),
        Ok(Err(why)) => error(500, "backup_failed", &why.to_string()),
        Err(_) => error(503, "draining", "the journal is closed"),
    }
}

/// A stream of JSON lines.
pub(super) fn ndjson(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/x-ndjson"));
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_file_lacks_stands_behind_what_it_has_once() {
        let lines = |texts: &[&str]| Some(texts.iter().map(|text| (*text).to_owned()).collect::<Vec<_>>());
        let unwritten = || ["b", "c"].map(|text| Line { id: text.into(), text: text.into() }).to_vec();
        assert_eq!(with_end(lines(&["a"]), unwritten()), lines(&["a", "b", "c"]));
        assert_eq!(with_end(lines(&["a", "b", "c"]), unwritten()), lines(&["a", "b", "c"]), "written meanwhile");
        assert_eq!(with_end(lines(&["a", "b"]), unwritten()), lines(&["a", "b", "c"]));
        assert_eq!(with_end(None, unwritten()), lines(&["b", "c"]));
        assert_eq!(with_end(None, Vec::new()), None);
    }
}
