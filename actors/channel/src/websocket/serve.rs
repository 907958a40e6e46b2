//! Who may connect, and where.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::ws::rejection::WebSocketUpgradeRejection;
use axum::extract::ws::{WebSocket, WebSocketUpgrade};
use axum::extract::{Extension, Query, State};
use axum::http::header::RETRY_AFTER;
use axum::http::{HeaderMap, Response};
use axum::routing::get;
use futures::StreamExt;
use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use super::WebsocketConfig;
use super::connection::Reader;
use super::scoped::{Chooser, is_forwarded};
use super::tokens::Tokens;
use super::writer::Writer;
use crate::auth::{bearer, origin_is_allowed};
use crate::doors::{Door, Doors, PhaseWord};
use crate::http::{self, Limits, Place, json, retry_after_seconds};
use crate::hub::outlet::{OUTLET_BYTES_MAX, Outlet};
use crate::open::{OpenDoor, guard};

/// Longest client id; the rest is cut off.
const CLIENT_ID_CHARS_MAX: usize = 128;

/// How long a client may take for the head of its handshake.
const HEAD_MAX: Duration = Duration::from_secs(20);

/// Buffers of one connection: many of them are idle.
const SOCKET_BUFFER_BYTES: usize = 8 * 1024;

/// When to try again when there is no place.
const RETRY_MS: u64 = 5000;

struct Listening {
    doors: Doors,
    config: WebsocketConfig,
    tokens: Tokens,
    connections: TaskTracker,
    stopping: CancellationToken,
    cut: CancellationToken,
}

/// Serves WebSocket clients until `shutdown`; then each leaves when its turns have ended, at most
/// [`WebsocketConfig::drain`] later.
pub async fn serve(listener: TcpListener, doors: Doors, config: WebsocketConfig, shutdown: CancellationToken) {
    let cut = CancellationToken::new();
    let connections = TaskTracker::new();
    let limits = Limits { head: HEAD_MAX, drain: config.drain };
    let open = OpenDoor::new(&doors, Door::WebSocket, config.connections_max);
    let drain = config.drain;
    let door = Arc::new(Listening {
        tokens: Tokens::default(),
        connections: connections.clone(),
        stopping: shutdown.clone(),
        cut: cut.clone(),
        doors,
        config,
    });
    let mut app = Router::new().route(&path_of(&door.config.path), get(handshake));
    if let Some(issue) = &door.config.issue {
        app = app.route(&path_of(&issue.path), get(issue_token));
    }
    let app = app.fallback(async || refusal(404, "not_found", "there is nothing here")).with_state(door);
    http::serve(listener, app, limits, shutdown, open).await;
    connections.close();
    if tokio::time::timeout(drain, connections.wait()).await.is_err() {
        cut.cancel();
        connections.wait().await;
    }
}

/// A path as the router wants it.
fn path_of(path: &str) -> String {
    let path = path.trim_end_matches('/');
    if path.starts_with('/') { path.to_owned() } else { format!("/{path}") }
}

async fn handshake(
    State(door): State<Arc<Listening>>,
    Extension(place): Extension<Place>,
    Query(query): Query<HashMap<String, String>>,
    headers: HeaderMap,
    upgrade: Result<WebSocketUpgrade, WebSocketUpgradeRejection>,
) -> Response<Body> {
    let Ok(upgrade) = upgrade else {
        return door.refuse(426, "upgrade_required", "this address speaks WebSocket only");
    };
    let client_id = client_id(&door, query.get("client_id").map(String::as_str).unwrap_or_default());
    if !origin_is_allowed(&headers, &door.config.allowed_origins) {
        return door.refuse(403, "forbidden", "pages of this origin may not connect");
    }
    if !door.config.allow_from.iter().any(|allowed| allowed == "*" || *allowed == client_id) {
        return door.refuse(403, "forbidden", "this client id may not connect");
    }
    if !door.token_is_good(query.get("token").map(String::as_str).unwrap_or_default()) {
        return door.refuse(401, "unauthorized", "a valid token is needed");
    }
    if door.stopping.is_cancelled() || door.doors.phase.get() == PhaseWord::Draining {
        return retry(door.refuse(503, "draining", "the gateway is stopping"));
    }
    let max = door.config.max_message_bytes;
    let local = place.local && !is_forwarded(&headers);
    upgrade
        .max_message_size(max)
        .max_frame_size(max)
        .read_buffer_size(SOCKET_BUFFER_BYTES)
        .write_buffer_size(SOCKET_BUFFER_BYTES)
        .on_upgrade(move |socket| {
            let chooser = Chooser { rules: Arc::clone(&door.config.projects), local };
            let connections = door.connections.clone();
            let doors = door.doors.clone();
            connections.track_future(guard(doors, Door::WebSocket, converse(door, client_id, socket, (place, chooser))))
        })
}

async fn converse(door: Arc<Listening>, client_id: String, socket: WebSocket, (place, chooser): (Place, Chooser)) {
    let outlet = Outlet::new(OUTLET_BYTES_MAX, door.doors.outflow(Door::WebSocket));
    let gone = CancellationToken::new();
    let (sink, stream) = socket.split();
    let writer = Writer {
        clock: Arc::clone(&door.doors.ports.clock),
        outlet: Arc::clone(&outlet),
        showing: door.config.showing,
        stopping: door.stopping.clone(),
        cut: door.cut.clone(),
        gone: gone.clone(),
    };
    let default_chat = door.doors.ports.ids.uuid_v7().to_string();
    let ping = (door.config.ping_interval, door.config.ping_timeout);
    place.meter.begin(door.doors.frame_room());
    let reader =
        Reader::new(door.doors.clone(), outlet, place, default_chat, ping, (door.config.unified, chooser), gone);
    // Polled together but apart: a client that does not read is still heard, and one that does not write still told.
    futures::join!(writer.run(sink), reader.run(&client_id, stream));
}

async fn issue_token(State(door): State<Arc<Listening>>, headers: HeaderMap) -> Response<Body> {
    let Some(issue) = &door.config.issue else { return refusal(404, "not_found", "there is nothing here") };
    let nanobot = headers.get("x-nanobot-auth").and_then(|value| value.to_str().ok());
    if !bearer(&headers).or(nanobot).is_some_and(|given| issue.secret.is(given)) {
        return door.refuse(401, "unauthorized", "the secret of this address is needed");
    }
    let (ids, now) = (&*door.doors.ports.ids, door.doors.ports.clock.mono());
    match door.tokens.issue(ids, now, door.config.token_ttl) {
        Ok(token) => {
            json(200, serde_json::json!({"token": token, "expires_in": door.config.token_ttl.as_secs()}).to_string())
        }
        Err(_) => retry(door.refuse(429, "busy", "too many tokens are outstanding")),
    }
}

impl Listening {
    fn token_is_good(&self, given: &str) -> bool {
        let config = &self.config;
        if config.token.as_ref().is_some_and(|token| token.is(given)) {
            return true;
        }
        let needed = config.token.is_some() || (config.requires_token && config.issue.is_some());
        let issued = given.starts_with("nbwt_") && self.tokens.take(given, self.doors.ports.clock.mono());
        issued || !needed
    }

    fn refuse(&self, status: u16, code: &'static str, message: &'static str) -> Response<Body> {
        self.doors.rejected(Door::WebSocket, code);
        refusal(status, code, message)
    }
}

fn client_id(door: &Listening, given: &str) -> String {
    let id: String = given.trim().chars().take(CLIENT_ID_CHARS_MAX).collect();
    if id.is_empty() { format!("anon-{:012x}", door.doors.ports.ids.random() >> 16) } else { id }
}

fn refusal(status: u16, code: &'static str, message: &'static str) -> Response<Body> {
    json(status, serde_json::json!({"error": {"code": code, "message": message}}).to_string())
}

fn retry(mut response: Response<Body>) -> Response<Body> {
    response.headers_mut().insert(RETRY_AFTER, retry_after_seconds(RETRY_MS));
    response
}
