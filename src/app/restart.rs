//! `run/restart.json`: who asked for the restart that is under way, for the process that comes after.

use std::path::{Path, PathBuf};

use channel::Restart;
use domain::ids::SessionKey;
use serde::{Deserialize, Serialize};

/// A process that starts later than this did not start because of it.
const AGE_MAX_MS: u64 = 5 * 60 * 1000;

/// What the file says.
#[derive(Serialize, Deserialize)]
struct Order {
    session: SessionKey,
    at_ms: u64,
}

fn file(run: &Path) -> PathBuf {
    run.join("restart.json")
}

/// Leaves the order for the next process, if there is one.
pub fn leave(run: &Path, restart: &Restart, now_ms: u64) {
    if let Some(session) = restart.by()
        && let Err(error) = write(run, session, now_ms)
    {
        tracing::warn!(%error, "the chat that asked for the restart will not be told of it");
    }
}

fn write(run: &Path, session: &SessionKey, now_ms: u64) -> std::io::Result<()> {
    std::fs::write(file(run), serde_json::to_vec(&Order { session: session.clone(), at_ms: now_ms })?)
}

/// Takes what the process before left: who asked. What cannot be read is taken for nothing, since only a greeting hangs
/// on it.
pub fn take(run: &Path, now_ms: u64) -> Option<SessionKey> {
    let bytes = std::fs::read(file(run)).ok()?;
    if let Err(error) = std::fs::remove_file(file(run)) {
        tracing::warn!(%error, "run/restart.json cannot be removed");
    }
    let order: Order = serde_json::from_slice(&bytes).ok()?;
    (now_ms.saturating_sub(order.at_ms) <= AGE_MAX_MS).then_some(order.session)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_order_is_taken_once_and_not_much_later() {
        let run = tempfile::tempdir().unwrap();
        let session = SessionKey::new("websocket:room").unwrap();
        write(run.path(), &session, 1_000).unwrap();
        assert_eq!(take(run.path(), 2_000), Some(session.clone()));
        assert_eq!(take(run.path(), 2_000), None);
        write(run.path(), &session, 1_000).unwrap();
        assert_eq!(take(run.path(), 301_001), None);
        std::fs::write(file(run.path()), "{").unwrap();
        assert_eq!(take(run.path(), 0), None);
        assert!(!file(run.path()).exists());
    }
}
