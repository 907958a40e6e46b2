//! A model server that answers at once, or holds every call until enough of them are there.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde_json::json;
use tokio::net::TcpSocket;
use tokio::sync::Semaphore;

const STREAM: &str = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"echo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";

const ASKS_STREAM: &[u8] = br#""stream":true"#;

/// Connections that may come at one moment.
const BACKLOG: u32 = 16_384;

struct Hold {
    until: usize,
    held: AtomicUsize,
    /// The most that were held at one time.
    peak: AtomicUsize,
    gate: Semaphore,
}

/// A call that waits, as long as its client does.
struct Held<'a>(&'a Hold);

impl Drop for Held<'_> {
    fn drop(&mut self) {
        self.0.held.fetch_sub(1, Ordering::SeqCst);
    }
}

/// Serves until killed. `GET /held` says how many calls waited at the same time.
pub async fn serve(port: u16, hold: usize) -> anyhow::Result<()> {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })?;
    let state =
        Arc::new(Hold { until: hold, held: AtomicUsize::new(0), peak: AtomicUsize::new(0), gate: Semaphore::new(0) });
    let held = |State(hold): State<Arc<Hold>>| async move { hold.peak.load(Ordering::SeqCst).to_string() };
    let app = Router::new().route("/v1/chat/completions", post(answer)).route("/held", get(held)).with_state(state);
    let socket = TcpSocket::new_v4()?;
    socket.bind(SocketAddr::from(([127, 0, 0, 1], port)))?;
    axum::serve(socket.listen(BACKLOG)?, app).await?;
    Ok(())
}

/// It looks at a request as little as it can: what the model costs is not what is measured.
async fn answer(State(hold): State<Arc<Hold>>, body: Bytes) -> Response {
    if hold.until > 0 {
        let held = hold.held.fetch_add(1, Ordering::SeqCst) + 1;
        let _held = Held(&hold);
        hold.peak.fetch_max(held, Ordering::SeqCst);
        if held == hold.until {
            hold.gate.close();
        }
        // It only ever ends by being closed.
        let _ = hold.gate.acquire().await;
    }
    if body.windows(ASKS_STREAM.len()).any(|piece| piece == ASKS_STREAM) {
        return ([("content-type", "text/event-stream")], STREAM).into_response();
    }
    Json(json!({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [
        {"index": 0, "message": {"role": "assistant", "content": "echo"}, "finish_reason": "stop"}]}))
    .into_response()
}
