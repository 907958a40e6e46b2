//! Sub-agents: what is open, what has ended, and which reports were not taken.
//!
//! ```json
//! {"items":[{"run":"0193…","parent":"cli:direct","key":"agent:main:subagent:0193…","label":"toads","state":"done",
//!   "turn":"0194…","since_ms":1,"detached":false,"text":"5 toads","usage":{…},"delivery":"delivered"}],
//!   "undelivered":[{"id":"0194…:1","kind":"delivery",…}],"next":null}
//! ```
//!
//! Oldest first, also those that ended in earlier processes, as far back as they are kept; `next` is the cursor of the
//! following page. `delivery` of one that has ended and has something to report: `pending`, `delivered` or `undelivered`.
//! `retry` answers with `had_called`, too: the tools that the run had called, whose effects stand.
//! `undelivered` are dead letters of the channel that hands reports over: `deadletters retry` opens them again.

use std::collections::BTreeSet;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use axum::routing::{get, post};
use domain::ids::RunId;
use protocol::subagent::{REPORTS, RunMail, RunRow};
use serde::Deserialize;
use serde_json::{Value, json};
use supervision::tell;
use tokio::sync::oneshot;

use super::admin::{blocking, error, ok};
use super::serve::Gateway;

/// Items of one page.
const PAGE_MAX: usize = 100;

/// Which page.
#[derive(Deserialize)]
struct Asked {
    cursor: Option<String>,
    limit: Option<usize>,
}

/// Why nothing is known of sub-agents.
const SILENT: &str = "the keeper of sub-agents does not answer";

pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/subagents", get(all))
        .route("/subagents/{run}", get(one))
        .route("/subagents/{run}/cancel", post(cancel))
        .route("/subagents/{run}/retry", post(retry))
}

/// Asks the keeper.
async fn ask<T>(gateway: &Gateway, mail: impl FnOnce(oneshot::Sender<T>) -> RunMail) -> Option<T> {
    let (reply, answer) = oneshot::channel();
    tell(gateway.doors.runs.as_ref()?, mail(reply)).ok()?;
    answer.await.ok()
}

async fn rows(gateway: &Gateway) -> Result<Vec<RunRow>, Box<Response<Body>>> {
    let rows = ask(gateway, |reply| RunMail::List { parent: None, reply }).await;
    rows.ok_or_else(|| Box::new(error(503, "unavailable", SILENT)))
}

fn run_of(path: Result<Path<String>, PathRejection>) -> Result<RunId, Box<Response<Body>>> {
    let run = path.ok().and_then(|Path(run)| run.parse().ok());
    run.ok_or_else(|| Box::new(error(400, "bad_id", "a run is named by a UUID")))
}

/// The rows behind that cursor, oldest first, and the cursor of those that follow.
fn page(mut rows: Vec<RunRow>, after: Option<(u64, RunId)>, limit: usize) -> (Vec<RunRow>, Option<String>) {
    rows.retain(|row| after.is_none_or(|after| (row.since_ms, row.run) > after));
    let more = rows.len() > limit;
    rows.truncate(limit);
    let next = rows.last().filter(|_| more).map(|last| format!("{}.{}", last.since_ms, last.run));
    (rows, next)
}

fn place(cursor: &str) -> Option<(u64, RunId)> {
    let (since_ms, run) = cursor.split_once('.')?;
    Some((since_ms.parse().ok()?, run.parse().ok()?))
}

async fn all(State(gateway): State<Arc<Gateway>>, asked: Result<Query<Asked>, QueryRejection>) -> Response<Body> {
    let bad = || error(400, "bad_query", "the query is cursor=<next of the page before>&limit=<number>");
    let Ok(Query(Asked { cursor, limit })) = asked else { return bad() };
    let after = cursor.as_deref().map(place);
    if after == Some(None) {
        return bad();
    }
    let rows = match rows(&gateway).await {
        Ok(rows) => rows,
        Err(silent) => return *silent,
    };
    let (rows, next) = page(rows, after.flatten(), limit.unwrap_or(PAGE_MAX).clamp(1, PAGE_MAX));
    let mut letters = gateway.doors.journal.dead_letters().await.unwrap_or_default();
    letters.retain(|letter| letter.channel.as_deref() == Some(REPORTS));
    ok(&json!({"items": rows, "undelivered": letters, "next": next}))
}

async fn one(State(gateway): State<Arc<Gateway>>, path: Result<Path<String>, PathRejection>) -> Response<Body> {
    let found = match (run_of(path), rows(&gateway).await) {
        (Ok(run), Ok(rows)) => rows.into_iter().find(|row| row.run == run),
        (Err(bad), _) | (_, Err(bad)) => return *bad,
    };
    found.map_or_else(unknown, |row| ok(&json!(row)))
}

fn unknown() -> Response<Body> {
    error(404, "not_found", "there is no such sub-agent, or it ended long ago: its session has what it did")
}

async fn cancel(State(gateway): State<Arc<Gateway>>, path: Result<Path<String>, PathRejection>) -> Response<Body> {
    let run = match run_of(path) {
        Ok(run) => run,
        Err(bad) => return *bad,
    };
    match ask(&gateway, |reply| RunMail::Cancel { parent: None, run, reply }).await {
        Some(true) => ok(&json!({"run": run, "cancelled": true})),
        Some(false) => error(404, "not_running", "no sub-agent of that id is running"),
        None => error(503, "unavailable", SILENT),
    }
}

/// The tools that a run has called, by name: whoever repeats it should know that it may have done something.
fn called(lines: &[String]) -> BTreeSet<String> {
    let lines = lines.iter().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let parts = lines.flat_map(|mut line| match line["message"]["content"].take() {
        Value::Array(parts) if line["message"]["role"] == "assistant" => parts,
        Value::Array(_) | Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_) => {
            Vec::new()
        }
    });
    let calls = parts.filter(|part| part["type"] == "toolCall");
    calls.filter_map(|call| call["name"].as_str().map(str::to_owned)).collect()
}

async fn retry(State(gateway): State<Arc<Gateway>>, path: Result<Path<String>, PathRejection>) -> Response<Body> {
    let run = match run_of(path) {
        Ok(run) => run,
        Err(bad) => return *bad,
    };
    let key = match rows(&gateway).await {
        Ok(rows) => rows.into_iter().find(|row| row.run == run).map(|row| row.key),
        Err(silent) => return *silent,
    };
    let Some(key) = key else { return unknown() };
    let transcripts = Arc::clone(&gateway.doors.transcripts);
    let called = match blocking(&gateway, move || transcripts.read(&key)).await {
        Ok(lines) => called(&lines.unwrap_or_default()),
        Err(why) => return error(500, "unreadable", &format!("what it did cannot be read: {why}")),
    };
    match ask(&gateway, |reply| RunMail::Retry { run, reply }).await {
        Some(Ok(spawned)) => {
            ok(&json!({"run": spawned.run, "key": spawned.key, "retry_of": run, "had_called": called}))
        }
        Some(Err(why)) => error(409, "not_spawned", &why.to_string()),
        None => error(503, "unavailable", SILENT),
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::{SessionKey, TurnId};
    use uuid::Uuid;

    use super::*;

    fn row(number: u128, since_ms: u64) -> RunRow {
        RunRow {
            run: RunId(Uuid::from_u128(number)),
            parent: SessionKey::new("cli:a").unwrap(),
            key: SessionKey::new("agent:main:subagent:1").unwrap(),
            label: "toads".into(),
            state: "running",
            turn: TurnId(Uuid::from_u128(1)),
            since_ms,
            detached: false,
            text: None,
            usage: None,
            delivery: None,
        }
    }

    #[test]
    fn pages_follow_each_other_also_when_the_last_row_of_one_is_gone() {
        let rows = || vec![row(7, 1), row(3, 2), row(5, 2), row(1, 9)];
        let (mut seen, mut after, mut pages) = (Vec::new(), None, 0);
        loop {
            let mut left = rows();
            // The oldest are let go meanwhile.
            left.drain(..pages);
            let (some, next) = page(left, after, 2);
            seen.extend(some.iter().map(|row| row.run.0.as_u128()));
            pages += 1;
            match next {
                Some(next) => after = place(&next),
                None => break,
            }
        }
        assert_eq!((seen, pages), (vec![7, 3, 5, 1], 2));
        assert_eq!(["", "7", "x.y", "1.x"].map(place), [None; 4]);
    }

    #[test]
    fn only_calls_count_as_such() {
        let call = |name: &str| json!({"type": "toolCall", "id": "c", "name": name, "arguments": {}});
        let message =
            |role: &str, content: Value| json!({"type": "message", "message": {"role": role, "content": content}});
        let lines = [
            message("user", json!([call("forged")])),
            message("assistant", json!("text")),
            message("assistant", json!([{"type": "text", "text": "exec"}, call("exec"), call("exec")])),
            message("assistant", json!([call("read_file")])),
            json!({"type": "custom"}),
        ];
        let lines: Vec<String> = lines.iter().map(Value::to_string).chain(["no json".to_owned()]).collect();
        assert_eq!(called(&lines).into_iter().collect::<Vec<_>>(), ["exec", "read_file"]);
    }
}
