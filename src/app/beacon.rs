//! `run/gateway.json`: how the other commands find the gateway that runs on a data directory.

use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// What a running gateway says about itself. Mode 0600: it holds the admin token.
#[derive(Clone, Serialize, Deserialize)]
pub struct Beacon {
    /// Process id.
    pub pid: u32,
    /// `http://host:port`, without the `/admin/v1` part.
    pub admin_url: String,
    /// Bearer token of the admin API.
    pub token: String,
    /// Version of the program.
    pub version: String,
    /// Where the WebSocket door listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub websocket_url: Option<String>,
    /// Where the OpenAI-compatible API listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub api_url: Option<String>,
}

impl Beacon {
    fn file(run: &Path) -> PathBuf {
        run.join("gateway.json")
    }

    /// Writes it, atomically.
    pub fn write(&self, run: &Path) -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(run)?;
        file.write_all(&serde_json::to_vec(self)?)?;
        file.persist(Self::file(run)).map_err(|error| error.error)?;
        Ok(())
    }

    /// Removes it; a missing one is fine.
    pub fn remove(run: &Path) {
        // The next gateway overwrites whatever is left.
        let _ = std::fs::remove_file(Self::file(run));
    }

    /// Reads it. `None` when there is none or when it cannot be read.
    pub fn read(run: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::file(run)).ok()?).ok()
    }
}
