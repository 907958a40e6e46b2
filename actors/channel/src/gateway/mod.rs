//! The gateway port: `/health`, `/ready`, `/metrics`, [hooks], and the administration under `/admin/v1/`.
//!
//! `/health` answers as long as the process runs its event loop and touches nothing else. The administration asks for
//! the bearer token of `run/gateway.json` always, and for a `Host` that is this machine.

mod admin;
pub mod closing;
mod cron;
pub mod edits;
pub mod hooks;
pub mod letters;
mod logs;
mod memory;
mod message;
pub mod prune;
mod rates;
mod runs;
mod serve;
mod sessions;
mod top;
mod why;

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use protocol::transcripts::TranscriptReader;
use tokio_util::sync::CancellationToken;

use crate::auth::Secret;
pub use admin::open_turns;
pub use serve::serve;
pub use sessions::{Listed, listed};
pub use why::{Sources, why};

/// URLs of the doors that are open.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Addresses {
    /// Administration, health and metrics.
    pub admin: String,
    /// The WebSocket.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub websocket: Option<String>,
    /// The OpenAI-compatible API.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub api: Option<String>,
    /// Messages of the channel `webhook`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub webhook: Option<String>,
}

/// What the door is told by the composition root.
#[derive(Clone)]
pub struct GatewayConfig {
    /// The administration's token; without one it answers 403 to everything.
    pub admin_token: Option<Secret>,
    /// Host names that are accepted besides loopback.
    pub hosts: Vec<String>,
    /// Shown by `status`.
    pub version: String,
    /// The process, shown by `status`.
    pub pid: u32,
    /// Where the doors are, shown by `status`.
    pub addresses: Addresses,
    /// Connections at once.
    pub connections_max: usize,
    /// How long running responses may take after the stop began.
    pub drain: Duration,
    /// Reads transcripts.
    pub transcripts: Arc<dyn TranscriptReader>,
    /// Which old sessions have to go.
    pub pruning: prune::Pruning,
    /// What other programs may call.
    pub hooks: Arc<hooks::Hooks>,
    /// Directory of the supervision log.
    pub logs: PathBuf,
    /// Cancelled by `POST drain`: the composition root then stops in order.
    pub stop: CancellationToken,
}
