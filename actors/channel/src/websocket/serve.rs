//! The shell.

use tokio::net::TcpListener;
use tokio_util::sync::CancellationToken;

use super::WebsocketConfig;
use crate::doors::Doors;

/// Serves until `shutdown`, then until the running answers are done.
pub async fn serve(listener: TcpListener, doors: Doors, config: WebsocketConfig, shutdown: CancellationToken) {
    let _ = (&doors, &config);
    crate::http::serve(listener, axum::Router::new(), crate::http::Limits { connections: 1, head: std::time::Duration::from_secs(1), drain: std::time::Duration::from_secs(1) }, shutdown).await;
}
