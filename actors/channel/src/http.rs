//! The listening side of every HTTP door: accept, bound, time out, end in order.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::Response;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// How long a pause follows an accept that failed, as it does when file handles run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Longest head of a request; a longer one is answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Bounds of one door.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Connections at once; more wait in the kernel.
    pub(crate) connections: usize,
    /// How long a client may take to send the head of a request, and may idle between two.
    pub(crate) head: Duration,
    /// How long running responses may take after `shutdown`.
    pub(crate) drain: Duration,
}

/// Serves until `shutdown`, then until the running responses are done, at most [`Limits::drain`] longer.
pub(crate) async fn serve(listener: TcpListener, app: Router, limits: Limits, shutdown: CancellationToken) {
    let places = Arc::new(Semaphore::new(limits.connections));
    let tracker = TaskTracker::new();
    let cut = CancellationToken::new();
    loop {
        let place = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            Ok(place) = Arc::clone(&places).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((socket, _)) => {
                let connection = connection(socket, app.clone(), limits, shutdown.clone(), cut.clone());
                tracker.spawn(async move {
                    connection.await;
                    drop(place);
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a connection could not be accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
            }
        }
    }
    drop(listener);
    tracker.close();
    if tokio::time::timeout(limits.drain, tracker.wait()).await.is_err() {
        cut.cancel();
        tracker.wait().await;
    }
}

async fn connection(
    socket: TcpStream,
    app: Router,
    limits: Limits,
    shutdown: CancellationToken,
    cut: CancellationToken,
) {
    // Without it small answers wait for the peer's acknowledgement.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "nodelay refused");
    }
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(socket), TowerToHyperService::new(app))
        .with_upgrades();
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => ended,
        () = shutdown.cancelled() => {
            served.as_mut().graceful_shutdown();
            tokio::select! {
                biased;
                ended = served.as_mut() => ended,
                () = cut.cancelled() => return,
            }
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "connection ended");
    }
}

/// A JSON answer.
pub(crate) fn json(status: u16, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = axum::http::StatusCode::from_u16(status).expect("a literal status");
    let kind = axum::http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(axum::http::header::CONTENT_TYPE, kind);
    response
}

/// Seconds for `Retry-After`, rounded up.
pub(crate) fn retry_after_seconds(ms: u64) -> axum::http::HeaderValue {
    axum::http::HeaderValue::from(ms.div_ceil(1000).max(1))
}
