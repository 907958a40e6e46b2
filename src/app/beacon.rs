//! `run/gateway.json`: how the other commands find the gateway that runs on a data directory.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::time::Duration;

use serde::{Deserialize, Serialize};
use supervision::ports::is_space;
use tokio_util::sync::CancellationToken;

/// How often one that found no space is written again.
const RETRY: Duration = Duration::from_secs(1);

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
    /// Where the webhook door listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook_url: Option<String>,
}

impl Beacon {
    fn file(run: &Path) -> PathBuf {
        run.join("gateway.json")
    }

    /// Writes it: atomically, or on a full disk over the one that the last gateway left.
    pub fn write(&self, run: &Path) -> std::io::Result<()> {
        let text = serde_json::to_vec(self)?;
        match Self::replace(run, &text) {
            Err(error) if is_space(&error) => Self::overwrite(run, &text),
            written => written,
        }
    }

    /// Like [`write`](Self::write); while there is no space for it, tries again until `ended`.
    pub async fn write_when_possible(self, run: PathBuf, ended: CancellationToken) {
        loop {
            match self.write(&run) {
                Err(error) if is_space(&error) => {}
                Err(error) => return tracing::error!(%error, "other commands cannot find this gateway"),
                Ok(()) => return,
            }
            tokio::select! {
                biased;
                () = ended.cancelled() => return,
                () = tokio::time::sleep(RETRY) => {}
            }
        }
    }

    fn replace(run: &Path, text: &[u8]) -> std::io::Result<()> {
        let mut file = tempfile::NamedTempFile::new_in(run)?;
        file.write_all(text)?;
        file.persist(Self::file(run)).map_err(|error| error.error)?;
        Ok(())
    }

    /// What the old one took of the disk is there also when nothing more is.
    fn overwrite(run: &Path, text: &[u8]) -> std::io::Result<()> {
        let mut file = std::fs::OpenOptions::new().write(true).open(Self::file(run)).map_err(|error| {
            let missing = error.kind() == std::io::ErrorKind::NotFound;
            if missing { std::io::ErrorKind::StorageFull.into() } else { error }
        })?;
        file.write_all(text)?;
        file.set_len(text.len() as u64)
    }

    /// Blanks it: what it takes of the disk is kept for the next gateway, which has to be found also when it starts on a
    /// full disk.
    pub fn blank(run: &Path) {
        let file = Self::file(run);
        // The next gateway overwrites whatever is left; a missing one is fine.
        let _ = std::fs::metadata(&file).and_then(|old| {
            let blanks = vec![b' '; usize::try_from(old.len()).map_err(std::io::Error::other)?];
            std::fs::OpenOptions::new().write(true).open(&file)?.write_all(&blanks)
        });
    }

    /// Reads it. `None` when there is none, or it is blank, or cannot be read.
    pub fn read(run: &Path) -> Option<Self> {
        serde_json::from_slice(&std::fs::read(Self::file(run)).ok()?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blank_one_names_nobody_and_keeps_its_space() {
        let run = tempfile::tempdir().unwrap();
        let (admin_url, token, version) = ("http://127.0.0.1:1".to_owned(), "t".to_owned(), "1".to_owned());
        let (websocket_url, api_url, webhook_url) = (None, None, None);
        let beacon = Beacon { pid: 7, admin_url, token, version, websocket_url, api_url, webhook_url };
        Beacon::blank(run.path());
        beacon.write(run.path()).unwrap();
        let length = std::fs::metadata(Beacon::file(run.path())).unwrap().len();
        Beacon::blank(run.path());
        assert!(Beacon::read(run.path()).is_none());
        assert_eq!(std::fs::metadata(Beacon::file(run.path())).unwrap().len(), length);
        Beacon::overwrite(run.path(), &serde_json::to_vec(&Beacon { pid: 8, ..beacon }).unwrap()).unwrap();
        assert_eq!(Beacon::read(run.path()).unwrap().pid, 8);
    }
}
