//! Transcripts, as the admin API reads them. Called on the blocking pool.

use std::io;
use std::sync::Arc;

use channel::gateway::{SessionSummary, TranscriptReader};
use domain::ids::SessionKey;
use session::Transcripts;

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
