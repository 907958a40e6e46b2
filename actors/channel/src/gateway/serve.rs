//! Routes of the gateway port.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, HeaderValue, Response};
use axum::middleware::Next;
use axum::routing::{get, post};
use protocol::metrics::{ByChannel, ByState, Page};
use serde_json::json;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::rates::Rates;
use super::{
    GatewayConfig, admin, closing, cron, edits, hooks, letters, logs, memory, message, prune, runs, sessions, top,
};
use crate::auth::{bearer, host_is_local};
use crate::doors::{Door, Doors, PhaseWord};
use crate::http::{self, Limits};
use crate::open::OpenDoor;

/// How long a client may take for the head of a request, and may keep an idle connection.
const HEAD_MAX: Duration = Duration::from_secs(10);

/// Largest body of a request here.
pub(super) const BODY_BYTES_MAX: usize = 1024 * 1024;

/// What the handlers share.
pub(super) struct Gateway {
    pub(super) doors: Doors,
    pub(super) config: GatewayConfig,
    pub(super) stopping: CancellationToken,
    pub(super) begun: Duration,
    pub(super) rates: Rates,
    /// Only locked while metrics are printed, never with anything else held.
    page: Mutex<Page>,
}

/// Serves until `shutdown`, then until the running answers are given, at most [`GatewayConfig::drain`] longer.
pub async fn serve(listener: TcpListener, doors: Doors, config: GatewayConfig, shutdown: CancellationToken) {
    let limits = Limits { head: HEAD_MAX, drain: config.drain };
    let door = OpenDoor::new(&doors, Door::Admin, config.connections_max);
    let page = Mutex::new(doors.metrics.page());
    let begun = doors.ports.clock.mono();
    let (stopping, rates) = (shutdown.clone(), Rates::default());
    let gateway = Arc::new(Gateway { doors, config, stopping, begun, rates, page });
    let admin = Router::new()
        .route("/status", get(admin::status))
        .route("/tree", get(top::tree))
        .route("/top", get(top::top))
        .route("/why/{subject}", get(logs::story))
        .route("/sessions", get(sessions::list))
        .route("/sessions/{key}", get(admin::session))
        .route("/sessions/{key}/stop", post(admin::stop))
        .route("/sessions/{key}/release", post(admin::release))
        .route("/sessions/{key}/tree", get(edits::tree))
        .route("/sessions/{key}/check", get(edits::check))
        .merge(edits::routes())
        .merge(closing::routes())
        .merge(runs::routes())
        .route("/import", post(edits::import))
        .route("/prune", post(prune::post))
        .route("/archive", get(closing::archived))
        .route("/deleted", get(closing::deleted))
        .route("/archive/{key}", get(closing::show))
        .route("/sessions/{key}/messages", post(message::say))
        .route("/deadletters", get(letters::get_all))
        .route("/deadletters/{id}", get(letters::get_one))
        .route("/deadletters/{id}/retry", post(letters::post_retry))
        .route("/deadletters/{id}/drop", post(letters::post_drop))
        .merge(cron::routes())
        .merge(memory::routes())
        .route("/logs", get(logs::logs))
        .route("/drain", post(admin::drain))
        .route("/backup", post(admin::backup))
        .method_not_allowed_fallback(async || no_method())
        .fallback(async || admin::error(404, "not_found", "there is nothing here"))
        .layer(axum::middleware::from_fn_with_state(Arc::clone(&gateway), guard));
    tokio::spawn(top::sample(Arc::clone(&gateway)));
    let app = Router::new()
        .route("/health", get(async || http::json(200, r#"{"status":"ok"}"#)))
        .route("/ready", get(ready))
        .route("/metrics", get(metrics))
        .route("/hooks/{id}", post(hooks::receive).fallback(async || no_method()))
        .nest("/admin/v1", admin)
        .fallback(async || admin::error(404, "not_found", "there is nothing here"))
        .layer(axum::extract::DefaultBodyLimit::max(BODY_BYTES_MAX))
        .with_state(gateway);
    http::serve(listener, app, limits, shutdown, door).await;
}

fn no_method() -> Response<Body> {
    admin::error(405, "method_not_allowed", "there is no such method here")
}

/// Lets in who has the token and means this machine.
async fn guard(State(gateway): State<Arc<Gateway>>, request: axum::extract::Request, next: Next) -> Response<Body> {
    if let Err((status, code, text)) = gateway.authorize(request.headers()) {
        gateway.doors.rejected(Door::Admin, code);
        return admin::error(status, code, text);
    }
    next.run(request).await
}

impl Gateway {
    fn authorize(&self, headers: &HeaderMap) -> Result<(), (u16, &'static str, &'static str)> {
        if !host_is_local(headers, &self.config.hosts) {
            return Err((403, "forbidden", "this host name is not served"));
        }
        match &self.config.admin_token {
            None => Err((403, "forbidden", "the administration is closed: there is no token")),
            Some(token) if bearer(headers).is_some_and(|given| token.is(given)) => Ok(()),
            Some(_) => Err((401, "unauthorized", "a valid token is needed: Authorization: Bearer <token>")),
        }
    }

    /// Why new work would not be taken.
    pub(super) fn reasons(&self) -> Vec<&'static str> {
        let mut reasons = Vec::new();
        match self.doors.phase.get() {
            PhaseWord::Recovering => reasons.push("recovering"),
            PhaseWord::Draining => reasons.push("draining"),
            PhaseWord::Serving if self.stopping.is_cancelled() => reasons.push("draining"),
            PhaseWord::Serving => {}
        }
        if !self.doors.journal.status().writable {
            reasons.push("journal_not_writable");
        }
        reasons
    }

    fn refresh(&self) {
        let (metrics, status) = (&self.doors.metrics, self.doors.journal.status());
        let gauge = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        metrics.journal_writable.set(status.writable.into());
        metrics.journal_bytes.get_or_create(&ByState { state: "live" }).set(gauge(status.live_bytes));
        metrics.journal_bytes.get_or_create(&ByState { state: "total" }).set(gauge(status.total_bytes));
        let running = metrics.turns_running.get();
        metrics.inbox_messages.set(gauge(status.open).saturating_sub(running).max(0));
        let now_ms = self.doors.ports.clock.wall_ms();
        let oldest_ms = status.oldest_open_ms.map_or(0, |oldest| now_ms.saturating_sub(oldest));
        metrics.inbox_oldest_seconds.set(Duration::from_millis(oldest_ms).as_secs_f64());
        for waiting in self.doors.outbox.waiting() {
            let labels = ByChannel { channel: waiting.channel.to_string() };
            metrics.outbox_messages.get_or_create(&labels).set(gauge(waiting.messages));
            let age_ms = waiting.oldest_ms.map_or(0, |oldest| now_ms.saturating_sub(oldest));
            metrics.outbox_oldest_seconds.get_or_create(&labels).set(Duration::from_millis(age_ms).as_secs_f64());
        }
        let live = i64::try_from(self.doors.sessions.live()).unwrap_or(i64::MAX);
        metrics.sessions.get_or_create(&ByState { state: "live" }).set(live);
        self.doors.show();
    }
}

async fn ready(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    let reasons = gateway.reasons();
    let (status, ready) = if reasons.is_empty() { (200, true) } else { (503, false) };
    let mut body = json!({"ready": ready, "reasons": reasons});
    if let Some(space) = gateway.doors.journal.status().space {
        body["space"] = json!(space);
    }
    let degraded = gateway.doors.metrics.degraded();
    if !degraded.is_empty() {
        // Messages are taken all the same.
        body["degraded"] = json!(degraded);
    }
    http::json(status, body.to_string())
}

async fn metrics(State(gateway): State<Arc<Gateway>>) -> Response<Body> {
    gateway.refresh();
    let printed = gateway.page.lock().unwrap_or_else(PoisonError::into_inner).print();
    let Ok(text) = printed else {
        return admin::error(500, "internal", "the metrics cannot be printed");
    };
    let mut response = Response::new(Body::from(text));
    let kind = HeaderValue::from_static("application/openmetrics-text; version=1.0.0; charset=utf-8");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}
