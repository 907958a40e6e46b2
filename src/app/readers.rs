//! Transcripts and the supervision log, as the admin API reads them. Called on the blocking pool.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use channel::gateway::{LogReader, SessionSummary, TranscriptReader};
use domain::ids::SessionKey;
use session::Transcripts;
use supervision::log_read::Events;
use supervision::ports::Disk;

/// The session files.
pub struct TranscriptFiles(pub Arc<Transcripts>);

impl TranscriptReader for TranscriptFiles {
    fn list(&self) -> io::Result<Vec<SessionSummary>> {
        let summaries = self.0.list()?.into_iter().map(|summary| SessionSummary {
            key: summary.key,
            session: summary.session,
            updated_ms: summary.updated_ms,
            messages: None,
            bytes: summary.bytes,
            preview: summary.preview,
        });
        Ok(summaries.collect())
    }

    fn read(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>> {
        self.0.read(key)
    }
}

/// The supervision log's files.
pub struct LogFiles {
    /// Where they are.
    pub disk: Arc<dyn Disk>,
    /// Their directory.
    pub dir: PathBuf,
}

impl LogReader for LogFiles {
    fn read(&self, after: Option<&str>, limit: usize) -> io::Result<Vec<(String, String)>> {
        let events = || Events::open(self.disk.clone(), &self.dir);
        let known = match after {
            None => false,
            Some(id) => events()?.any(|event| event.is_ok_and(|event| event.id == id)),
        };
        let mut skipping = known;
        let mut found = Vec::new();
        for event in events()? {
            let event = event?;
            if skipping {
                skipping = after != Some(&event.id);
                continue;
            }
            found.push((event.id.clone(), serde_json::to_string(&event)?));
            if found.len() >= limit {
                break;
            }
        }
        Ok(found)
    }
}
