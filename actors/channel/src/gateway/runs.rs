//! Sub-agents: what is open, what has ended, and which reports were not taken.
//!
//! ```json
//! {"items":[{"run":"0193…","parent":"cli:direct","key":"agent:main:subagent:0193…","label":"toads","state":"running",
//!   "turn":"0194…","since_ms":1,"detached":false}],"undelivered":[{"id":"0194…:1","kind":"delivery",…}],"next":null}
//! ```
//!
//! `undelivered` are dead letters of the channel that hands reports over: `deadletters retry` opens them again.

use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::PathRejection;
use axum::extract::{Path, State};
use axum::http::Response;
use axum::routing::{get, post};
use domain::ids::RunId;
use protocol::subagent::{REPORTS, RunMail, RunRow};
use serde_json::json;
use supervision::tell;
use tokio::sync::oneshot;

use super::admin::{error, ok};
use super::serve::Gateway;

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

async fn all(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    let rows = match rows(&gateway).await {
        Ok(rows) => rows,
        Err(silent) => return *silent,
    };
    let mut letters = gateway.doors.journal.dead_letters().await.unwrap_or_default();
    letters.retain(|letter| letter.channel.as_deref() == Some(REPORTS));
    ok(&json!({"items": rows, "undelivered": letters, "next": null}))
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

async fn retry(State(gateway): State<Arc<Gateway>>, path: Result<Path<String>, PathRejection>) -> Response<Body> {
    let run = match run_of(path) {
        Ok(run) => run,
        Err(bad) => return *bad,
    };
    match ask(&gateway, |reply| RunMail::Retry { run, reply }).await {
        Some(Ok(spawned)) => ok(&json!({"run": spawned.run, "key": spawned.key, "retry_of": run})),
        Some(Err(why)) => error(409, "not_spawned", &why.to_string()),
        None => error(503, "unavailable", SILENT),
    }
}
