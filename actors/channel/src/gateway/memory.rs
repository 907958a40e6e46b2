//! What is remembered.
//!
//! ```text
//! GET  memory                                       the files, how long they are, how much waits to be worked in
//! GET  memory/lines?words=&session=&limit=          {"items":[a line of the archive],"next":null,"more":false}
//! GET  memory/log?id=                               {"text":what that version, or else the newest, changed}
//! GET  memory/versions                              {"text":the newest of them}
//! POST memory/dream                                 {"text":what is begun}
//! POST memory/restore/{id}                          {"text":what was done}
//! ```
//!
//! What is refused is 409 `refused`, and says why.

use std::io;
use std::sync::Arc;

use axum::Router;
use axum::body::Body;
use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::extract::{Path, Query, State};
use axum::http::Response;
use axum::routing::{get, post};
use domain::command::DreamAsk;
use protocol::memory::{Recall, WhichLines};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::admin::{blocking, error, failed, json_of, ok};
use super::serve::Gateway;

type Shared = State<Arc<Gateway>>;

pub(super) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/memory", get(async |State(gateway): Shared| read(&gateway, |memory| memory.shown()).await))
        .route("/memory/lines", get(lines))
        .route("/memory/log", get(log))
        .route("/memory/versions", get(async |State(gateway): Shared| dream(&gateway, DreamAsk::Restore(None)).await))
        .route("/memory/dream", post(async |State(gateway): Shared| dream(&gateway, DreamAsk::Begin).await))
        .route("/memory/restore/{id}", post(restore))
}

async fn lines(State(gateway): Shared, query: Result<Query<WhichLines>, QueryRejection>) -> Response<Body> {
    match query {
        Ok(Query(which)) => read(&gateway, move |memory| memory.lines(&which)).await,
        Err(bad) => error(400, "bad_query", &bad.to_string()),
    }
}

#[derive(Deserialize)]
struct OfVersion {
    id: Option<String>,
}

async fn log(State(gateway): Shared, query: Result<Query<OfVersion>, QueryRejection>) -> Response<Body> {
    match query {
        Ok(Query(OfVersion { id })) => dream(&gateway, DreamAsk::Log(id)).await,
        Err(bad) => error(400, "bad_query", &bad.to_string()),
    }
}

async fn restore(State(gateway): Shared, id: Result<Path<String>, PathRejection>) -> Response<Body> {
    match id {
        Ok(Path(id)) => dream(&gateway, DreamAsk::Restore(Some(id))).await,
        Err(_) => error(400, "bad_id", "the id is not UTF-8"),
    }
}

async fn read<T: Serialize + Send + 'static>(
    gateway: &Gateway,
    job: impl FnOnce(&dyn Recall) -> io::Result<T> + Send + 'static,
) -> Response<Body> {
    let memory = Arc::clone(&gateway.doors.memory);
    match blocking(gateway, move || job(&*memory)).await {
        Ok(body) => json_of(&body),
        Err(cause) => failed("the memory", &cause),
    }
}

async fn dream(gateway: &Gateway, ask: DreamAsk) -> Response<Body> {
    match gateway.doors.memory.dream(ask).await {
        Ok(Ok(text)) => ok(&json!({ "text": text })),
        Ok(Err(why)) => error(409, "refused", &why),
        Err(_) => error(503, "draining", "Dream does not answer; the gateway is stopping"),
    }
}
