//! Jobs that are due at times.
//!
//! ```text
//! GET  cron                                {"items":[{"id","name","enabled","schedule","next_run_at_ms",...}],"next":null}
//! GET  cron/{id}                           one of these, with its `history`
//! POST cron                                a job to make; answers with it
//! POST cron/{id}/{remove|enable|disable|run}
//! ```
//!
//! Where a change is not in the file yet, the answer says why in `unsaved`.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{Path, State};
use axum::http::Response;
use axum::routing::{get, post};
use domain::cron::scheduler::{Draft, Refusal};
use protocol::cron::{Answer, Ask};
use serde_json::{Value, json};

use super::admin::{body_of, error, ok};
use super::serve::Gateway;

type Shared = State<Arc<Gateway>>;

pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/cron", get(list).post(add))
        .route("/cron/{id}", get(show))
        .route("/cron/{id}/remove", post(async |State(gateway): Shared, id: Id| one(&gateway, id, Ask::Remove).await))
        .route("/cron/{id}/enable", post(async |State(gateway): Shared, id: Id| enable(&gateway, id, true).await))
        .route("/cron/{id}/disable", post(async |State(gateway): Shared, id: Id| enable(&gateway, id, false).await))
        .route("/cron/{id}/run", post(async |State(gateway): Shared, id: Id| one(&gateway, id, Ask::Run).await))
}

type Id = Result<Path<String>, PathRejection>;

async fn list(State(gateway): Shared) -> Response<Body> {
    match asked(&gateway, Ask::List).await {
        Ok(answer) => ok(&json!({"items": answer.jobs, "next": null})),
        Err(refused) => *refused,
    }
}

async fn show(State(gateway): Shared, id: Id) -> Response<Body> {
    one(&gateway, id, Ask::Show).await
}

async fn enable(gateway: &Gateway, id: Id, enabled: bool) -> Response<Body> {
    one(gateway, id, |id| Ask::Enable { id, enabled }).await
}

async fn add(State(gateway): Shared, body: Result<Bytes, BytesRejection>) -> Response<Body> {
    let body = match body_of(body) {
        Ok(body) => body,
        Err(refused) => return *refused,
    };
    match serde_json::from_slice::<Draft>(&body) {
        Ok(draft) => respond(asked(&gateway, Ask::Add(Box::new(draft))).await),
        Err(bad) => error(400, "bad_body", &format!("the body is no job: {bad}")),
    }
}

async fn one(gateway: &Gateway, id: Id, ask: impl FnOnce(String) -> Ask) -> Response<Body> {
    match id {
        Ok(Path(id)) => respond(asked(gateway, ask(id)).await),
        Err(_) => error(400, "bad_id", "the id is not UTF-8"),
    }
}

async fn asked(gateway: &Gateway, ask: Ask) -> Result<Answer, Box<Response<Body>>> {
    let Some(jobs) = &gateway.doors.jobs else {
        return Err(Box::new(error(503, "draining", "this process follows no jobs")));
    };
    match jobs.ask(ask).await {
        Ok(Ok(answer)) => Ok(answer),
        Ok(Err(refusal)) => Err(Box::new(error(status(&refusal), refusal.word(), &refusal.to_string()))),
        Err(_) => Err(Box::new(error(503, "draining", "the jobs do not answer; the gateway is stopping"))),
    }
}

fn status(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::Unread => 503,
        Refusal::NotFound(_) => 404,
        Refusal::Bad(_) => 400,
        Refusal::Damaged(_) | Refusal::Protected(_) | Refusal::Full | Refusal::Running(_) => 409,
    }
}

fn respond(answer: Result<Answer, Box<Response<Body>>>) -> Response<Body> {
    let Answer { jobs, unsaved } = match answer {
        Ok(answer) => answer,
        Err(refused) => return *refused,
    };
    let mut body = jobs.first().map_or(Value::Null, |job| json!(job));
    if let (Some(why), Some(body)) = (unsaved, body.as_object_mut()) {
        body.insert("unsaved".to_owned(), why.into());
    }
    ok(&body)
}
