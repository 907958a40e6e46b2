//! Routes, key and listener of the API door.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Request, Response};
use axum::routing::{get, post};
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::response::{ApiError, models};
use super::{ApiConfig, chat};
use crate::auth::{bearer, host_is_local, origin_is_allowed};
use crate::doors::{Door, Doors, PhaseWord};
use crate::http::{self, Limits, is_json, json};
use crate::open::OpenDoor;
use crate::outcome::Refusal;

/// How long a client may take for the head of a request, and may keep an idle connection.
const HEAD_MAX: Duration = Duration::from_secs(60);

struct Api {
    doors: Doors,
    config: ApiConfig,
    /// Whether only this machine reaches the listener.
    local: bool,
    stopping: CancellationToken,
}

/// Serves until `shutdown`, then until the running answers are given, at most [`ApiConfig::drain`] longer.
pub async fn serve(listener: TcpListener, doors: Doors, config: ApiConfig, shutdown: CancellationToken) {
    let limits = Limits { head: HEAD_MAX, drain: config.drain };
    let door = OpenDoor::new(&doors, Door::Api, config.connections_max);
    let local = http::is_local(&listener);
    let api = Arc::new(Api { doors, config, local, stopping: shutdown.clone() });
    let app = Router::new()
        .route("/health", get(async || json(200, r#"{"status":"ok"}"#)))
        .route("/v1/models", get(list_models))
        .route("/v1/chat/completions", post(complete))
        .method_not_allowed_fallback(async || {
            ApiError::request(405, "method_not_allowed", "this address has no such method").response()
        })
        .fallback(async || ApiError::request(404, "not_found", "there is nothing here").response())
        .with_state(api);
    http::serve(listener, app, limits, shutdown, door).await;
}

impl Api {
    /// A key opens the door to whoever shows it. Without one anybody on this machine may come in, but no page that a
    /// browser on it shows: neither by name (`Origin`) nor by a name made to point here (`Host`).
    fn authorize(&self, headers: &HeaderMap) -> Result<(), ApiError> {
        let Some(key) = &self.config.api_key else {
            if !origin_is_allowed(headers, &[]) {
                return Err(forbidden("pages of this origin may not use the API without a key: set api.apiKey"));
            }
            if self.local && !host_is_local(headers, &[]) {
                return Err(forbidden("this host name is not served without a key: set api.apiKey, or use 127.0.0.1"));
            }
            return Ok(());
        };
        if bearer(headers).is_some_and(|given| key.is(given)) {
            return Ok(());
        }
        Err(ApiError {
            kind: "authentication_error",
            ..ApiError::request(401, "invalid_api_key", "a valid key is needed: Authorization: Bearer <key>")
        })
    }

    fn refuse(&self, error: &ApiError) -> Response<Body> {
        // Bounds of the journal were counted where they were found.
        if error.turn.is_none() && error.status != 429 && error.status != 503 && error.status != 422 {
            self.doors.rejected(Door::Api, error.code);
        }
        error.response()
    }
}

fn forbidden(message: &'static str) -> ApiError {
    ApiError { kind: "permission_error", ..ApiError::request(403, "forbidden", message) }
}

async fn list_models(State(api): State<Arc<Api>>, headers: HeaderMap) -> Response<Body> {
    match api.authorize(&headers) {
        Ok(()) => json(200, models(&api.config.model, 0)),
        Err(error) => api.refuse(&error),
    }
}

async fn complete(State(api): State<Arc<Api>>, request: Request<Body>) -> Response<Body> {
    let (parts, body) = request.into_parts();
    if let Err(error) = api.authorize(&parts.headers) {
        return api.refuse(&error);
    }
    if api.stopping.is_cancelled() || api.doors.phase.get() == PhaseWord::Draining {
        api.doors.rejected(Door::Api, Refusal::Draining.metric());
        return api.refuse(&Refusal::Draining.into());
    }
    if !is_json(&parts.headers) {
        let message = "the request must be JSON, and say so: Content-Type: application/json";
        return api.refuse(&ApiError::request(415, "unsupported_media_type", message));
    }
    match chat::complete(&api.doors, &api.config, &parts.headers, body).await {
        Ok(response) => response,
        Err(error) => api.refuse(&error),
    }
}
