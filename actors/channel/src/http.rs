//! The listening side of every HTTP door: accept, bound, time out, end in order.

use std::io::Write as _;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::http::header::CONTENT_TYPE;
use axum::http::{HeaderMap, Response};
use hyper::server::conn::http1;
use hyper::service::{Service as _, service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use prometheus_client::metrics::gauge::Gauge;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::OwnedSemaphorePermit;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use crate::meter::{Meter, Metered};
use crate::open::OpenDoor;
use crate::silent::{Newcomer, Silent};

/// How long a pause follows an accept that failed, as it does when file handles run out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Longest head of a request; a longer one is answered with 431.
const HEAD_BYTES_MAX: usize = 64 * 1024;

/// Bounds of one door.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// How long a client may take to send the head of a request after the first, and may idle before it.
    pub(crate) head: Duration,
    /// How long running responses may take after `shutdown`.
    pub(crate) drain: Duration,
}

/// What a connection over the limit is sent.
const FULL: &[u8] = b"HTTP/1.1 503 Service Unavailable\r\ncontent-type: application/json\r\ncontent-length: 93\r\n\
    retry-after: 5\r\nconnection: close\r\n\r\n\
    {\"error\":{\"message\":\"too many connections\",\"type\":\"server_error\",\"param\":null,\"code\":\"busy\"}}";

/// One connection's part of [`Limits::connections`]. Every request has it as an extension: a handler that upgrades keeps
/// it for as long as it keeps the socket.
pub(crate) type Place = Arc<Counted>;

/// A place that is counted as an open connection until it is free.
#[derive(Debug)]
pub(crate) struct Counted {
    /// Counts what is read, once the handler wants it.
    pub(crate) meter: Meter,
    /// Whether the other end is on this machine.
    pub(crate) local: bool,
    open: Gauge,
    _permit: OwnedSemaphorePermit,
}

impl Counted {
    fn new(permit: OwnedSemaphorePermit, open: Gauge, socket: &TcpStream) -> Self {
        open.inc();
        let local = socket.peer_addr().is_ok_and(|peer| peer.ip().to_canonical().is_loopback());
        Self { meter: Meter::default(), local, open, _permit: permit }
    }
}

impl AsRef<Meter> for Counted {
    fn as_ref(&self) -> &Meter {
        &self.meter
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.open.dec();
    }
}

/// Serves until `shutdown`, then until the running responses are done, at most [`Limits::drain`] longer.
/// `door` hears of each connection over the limit, and closes when this returns.
pub(crate) async fn serve(
    listener: TcpListener,
    app: Router,
    limits: Limits,
    shutdown: CancellationToken,
    door: OpenDoor,
) {
    let open = door.connections();
    let tracker = TaskTracker::new();
    let cut = CancellationToken::new();
    let silent = Arc::<Silent>::default();
    let mut failing = false;
    loop {
        let accepted = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let socket = match accepted {
            Ok((socket, _)) => socket,
            Err(error) => {
                if !std::mem::replace(&mut failing, true) {
                    tracing::warn!(%error, "connections cannot be accepted");
                }
                tokio::select! {
                    biased;
                    () = shutdown.cancelled() => break,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => continue,
                }
            }
        };
        failing = false;
        let place = tokio::select! {
            biased;
            () = shutdown.cancelled() => break,
            place = place(&door, &silent) => place,
        };
        match place {
            Some(place) => {
                let (place, newcomer) = (Arc::new(Counted::new(place, open.clone(), &socket)), silent.enter());
                let served = connection(socket, app.clone(), limits, (place, newcomer), shutdown.clone(), cut.clone());
                tracker.spawn(door.guard(served));
            }
            None => {
                door.no_place();
                turn_away(socket);
            }
        }
    }
    drop(listener);
    door.close();
    tracker.close();
    if tokio::time::timeout(limits.drain, tracker.wait()).await.is_err() {
        cut.cancel();
        tracker.wait().await;
    }
}

/// A place for one more connection. When all are taken, that of the one which has been silent for longest: so whoever
/// asks for something is served however many only hold on to their sockets.
async fn place(door: &OpenDoor, silent: &Silent) -> Option<OwnedSemaphorePermit> {
    let places = Arc::clone(door.places());
    match Arc::clone(&places).try_acquire_owned() {
        Ok(place) => Some(place),
        Err(_) if silent.send_oldest_away() => {
            door.no_place();
            places.acquire_owned().await.ok()
        }
        Err(_) => None,
    }
}

/// Says that there is no place and closes, without waiting for the client: it may be there to hold on to the socket.
fn turn_away(socket: TcpStream) {
    let sent = socket.into_std().and_then(|mut socket| socket.write_all(FULL));
    if let Err(error) = sent {
        tracing::debug!(%error, "a connection over the limit was closed without a word");
    }
}

async fn connection(
    socket: TcpStream,
    app: Router,
    limits: Limits,
    (place, newcomer): (Place, Newcomer),
    shutdown: CancellationToken,
    cut: CancellationToken,
) {
    // Without it small answers wait for the peer's acknowledgement.
    if let Err(error) = socket.set_nodelay(true) {
        tracing::debug!(%error, "nodelay refused");
    }
    let app = TowerToHyperService::new(app);
    let socket = Metered::new(socket, Arc::clone(&place));
    let newcomer = Arc::new(newcomer);
    let sender = Arc::clone(&newcomer);
    let service = service_fn(move |mut request| {
        request.extensions_mut().insert(Arc::clone(&place));
        let (heard, answer) = (sender.hear(), app.call(request));
        async move {
            if !heard {
                // The connection ends in a moment.
                std::future::pending::<()>().await;
            }
            answer.await
        }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(limits.head)
        .max_buf_size(HEAD_BYTES_MAX)
        .serve_connection(TokioIo::new(socket), service)
        .with_upgrades();
    let mut served = std::pin::pin!(served);
    let ended = tokio::select! {
        biased;
        ended = served.as_mut() => ended,
        () = newcomer.must_go() => return tracing::debug!("connection ended: it sent no request"),
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

/// Whether only this machine reaches a listener. One whose address is unknown is taken for such: that is the stricter rule.
pub(crate) fn is_local(listener: &TcpListener) -> bool {
    listener.local_addr().map_or(true, |address| address.ip().is_loopback())
}

/// Whether a request says that it is JSON. Other kinds are what a browser sends anywhere without asking first.
pub(crate) fn is_json(headers: &HeaderMap) -> bool {
    let kind = headers.get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let kind = kind.split(';').next().unwrap_or_default();
    kind.trim().eq_ignore_ascii_case("application/json")
}

/// A JSON answer.
pub(crate) fn json(status: u16, body: impl Into<Body>) -> Response<Body> {
    let mut response = Response::new(body.into());
    *response.status_mut() = axum::http::StatusCode::from_u16(status).expect("a literal status");
    let kind = axum::http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// Seconds for `Retry-After`, rounded up.
pub(crate) fn retry_after_seconds(ms: u64) -> axum::http::HeaderValue {
    axum::http::HeaderValue::from(ms.div_ceil(1000).max(1))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn the_answer_to_a_connection_over_the_limit_is_whole() {
        let text = std::str::from_utf8(FULL).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        assert!(head.lines().any(|line| line == format!("content-length: {}", body.len())), "{}", body.len());
        let body: serde_json::Value = serde_json::from_str(body).unwrap();
        assert_eq!(body["error"]["code"], "busy");
    }

    #[test]
    fn only_json_is_json() {
        for (kind, ok) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("text/plain; application/json", false),
            ("application/jsonp", false),
            ("multipart/form-data; boundary=x", false),
            ("", false),
        ] {
            let headers = HeaderMap::from_iter([(CONTENT_TYPE, HeaderValue::from_static(kind))]);
            assert_eq!(is_json(&headers), ok, "{kind}");
        }
        assert!(!is_json(&HeaderMap::new()));
    }
}
