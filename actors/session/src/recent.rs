//! The ids of the messages that a key has handled, as its transcripts have them. They outlive the transcript in which
//! they stand, for as long as its file is there. Everything here blocks.

use std::io;
use std::path::Path;

use domain::ids::SessionKey;
use domain::transcript::recent_ids;
use protocol::journal::{RECENT_IDS_MAX, RecentId};
use supervision::ports::Open;

use crate::transcripts::Transcripts;

/// The first read of a file's end; each further one is four times as long.
const TAIL_BYTES: u64 = 256 * 1024;

// === impl Transcripts ===

impl Transcripts {
    /// The last ids of `key`, oldest first.
    pub(crate) fn recent_ids(&self, key: &SessionKey) -> io::Result<Vec<RecentId>> {
        let mut recent = self.recent_in(&self.file_of(key))?;
        for (_, path) in self.closed_files(key)?.into_iter().rev() {
            let missing = RECENT_IDS_MAX.saturating_sub(recent.len());
            if missing == 0 {
                break;
            }
            let older = match self.recent_in(&path) {
                // Whatever lies there now is nobody's transcript.
                Err(error) if error.kind() == io::ErrorKind::InvalidInput => continue,
                older => older?,
            };
            recent.splice(..0, older.into_iter().rev().take(missing).rev());
        }
        Ok(recent)
    }

    /// The last ids in a file, oldest first.
    fn recent_in(&self, path: &Path) -> io::Result<Vec<RecentId>> {
        let file = match self.disk.open(path, Open::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let length = file.length()?;
        let mut want = TAIL_BYTES;
        loop {
            let from = length.saturating_sub(want);
            let mut tail = vec![0; usize::try_from(length - from).map_err(io::Error::other)?];
            let got = file.read_at(&mut tail, from)?;
            tail.truncate(got);
            let recent = recent_ids(&tail, from == 0);
            if from == 0 || recent.len() >= RECENT_IDS_MAX {
                return Ok(recent
                    .into_iter()
                    .map(|message| RecentId {
                        idempotency_key: message.idempotency_key,
                        turn: message.turn,
                        body_hash: message.body_hash,
                    })
                    .collect());
            }
            want = want.saturating_mul(4);
        }
    }
}
