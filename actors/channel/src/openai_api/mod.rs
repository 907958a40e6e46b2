//! The OpenAI-compatible door: `GET /health`, `GET /v1/models`, `POST /v1/chat/completions` plain and as an event
//! stream.
//!
//! Sessions: `api:<session_id>`, else `api:user:<user>`, else `api:default` for a single user message
//! (which may be the unified session). A request with
//! several user or any assistant messages brings its own history for that turn; with neither session nor user it is
//! stateless and archived at once. An empty `session_id` is an error: it was meant to name a session, and the default one
//! is another's. An empty `user` counts as absent, as it does for OpenAI, whose clients send it so.
//!
//! With an `Idempotency-Key` a request belongs to its key, not to its connection: a repeat waits for and returns the
//! first one's outcome, also after a restart. Without one, a client that goes away cancels its turn.
//!
//! Requests are JSON and say so. Without a key none is taken from a page in a browser: its `Origin` must be this very
//! address, and the `Host` a name of this machine.
//!
//! `request` reads, `response` and `follow` write, all pure; [`serve`] is the shell.

pub(crate) mod chat;
pub(crate) mod follow;
pub(crate) mod request;
pub(crate) mod response;
mod serve;
pub(crate) mod stream;

use std::sync::Arc;
use std::time::Duration;

use crate::auth::Secret;
pub use serve::serve;

/// What the door is told by the configuration.
#[derive(Debug, Clone)]
pub struct ApiConfig {
    /// The key that clients show as `Authorization: Bearer`.
    pub api_key: Option<Secret>,
    /// The one model that is served.
    pub model: Arc<str>,
    /// Whether `api:default` is the unified session.
    pub unified: bool,
    /// How long a plain request waits for its answer.
    pub timeout: Duration,
    /// Largest request.
    pub body_bytes_max: usize,
    /// Connections at once.
    pub connections_max: usize,
    /// How long running responses may take after the stop began.
    pub drain: Duration,
}

impl ApiConfig {
    /// nanobot's defaults.
    pub fn new(model: impl Into<Arc<str>>) -> Self {
        Self {
            api_key: None,
            unified: false,
            model: model.into(),
            timeout: Duration::from_secs(120),
            body_bytes_max: 20 * 1024 * 1024,
            connections_max: 10_000,
            drain: Duration::from_secs(30),
        }
    }
}
