//! The one constructor of HTTP clients. Each runtime gets a client of its own: a connection belongs to the runtime that
//! opened it, and a client shared by two would make each wait for the other.

use std::sync::Once;
use std::time::Duration;

/// How long a connection may take to open, TLS included.
const CONNECT_MAX: Duration = Duration::from_secs(10);
/// How long an unused connection is kept.
const IDLE_CONNECTION_MAX: Duration = Duration::from_secs(60);

/// A client without proxies from the environment and without redirects, which would carry keys and bodies elsewhere.
pub fn http_client() -> Result<reqwest::Client, reqwest::Error> {
    static CRYPTO: Once = Once::new();
    CRYPTO.call_once(|| {
        // Somebody may have installed one already, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
    });
    reqwest::Client::builder()
        .user_agent(concat!("greenroom/", env!("CARGO_PKG_VERSION")))
        .connect_timeout(CONNECT_MAX)
        .pool_idle_timeout(IDLE_CONNECTION_MAX)
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .build()
}
