//! The gateway port: `/health`, `/ready`, `/metrics` and the administration under `/admin/v1/`.
//!
//! `/health` answers as long as the process runs its event loop and touches nothing else. The administration asks for
//! the bearer token of `run/gateway.json` always, and for a `Host` that is this machine.

mod admin;
pub mod letters;
mod logs;
mod message;
mod rates;
mod serve;
mod top;
mod why;

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use domain::ids::SessionKey;
use serde::Serialize;
use tokio_util::sync::CancellationToken;

use crate::auth::Secret;
pub use serve::serve;
pub use why::{Sources, why};

/// What the door is told by the composition root.
#[derive(Clone)]
pub struct GatewayConfig {
    /// The administration's token; without one it answers 403 to everything.
    pub admin_token: Option<Secret>,
    /// Host names that are accepted besides loopback.
    pub hosts: Vec<String>,
    /// Shown by `status`.
    pub version: String,
    /// Connections at once.
    pub connections_max: usize,
    /// How long running responses may take after the stop began.
    pub drain: Duration,
    /// Reads transcripts.
    pub transcripts: Arc<dyn TranscriptReader>,
    /// Directory of the supervision log.
    pub logs: PathBuf,
    /// Cancelled by `POST drain`: the composition root then stops in order.
    pub stop: CancellationToken,
}

/// Access to the transcripts on disk. Called on the blocking pool.
pub trait TranscriptReader: Send + Sync + 'static {
    /// All sessions, any order.
    fn list(&self) -> io::Result<Vec<SessionSummary>>;
    /// The lines of one transcript, each one JSON object; `None` when there is none.
    fn read(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>>;
}

/// One session in a list.
#[derive(Debug, Clone, Serialize)]
pub struct SessionSummary {
    /// Key.
    pub key: SessionKey,
    /// Session id, as the file's header has it.
    pub session: Option<String>,
    /// Last change, ms since 1970.
    pub updated_ms: u64,
    /// Messages of all roles, when counted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub messages: Option<u64>,
    /// Length of the file.
    pub bytes: u64,
    /// First words of the first user message, when known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub preview: Option<String>,
}
