//! Reading records back by their position. Blocks: for the pool.

use std::io;
use std::sync::Arc;

use domain::body::body_hash;
use protocol::journal::{Accepted, JournalError, Line};
use supervision::ports::DiskFile;

use crate::batch::RECORD_HEADER_BYTES;
use crate::options::RECORD_BYTES_MAX;
use crate::record::Record;

/// One record to be read.
pub struct Source {
    /// The segment.
    pub file: Arc<dyn DiskFile>,
    /// Where in it.
    pub offset: u64,
}

impl Source {
    /// Reads the record.
    pub fn record(&self) -> Result<Record, JournalError> {
        let unreadable = |error: io::Error| JournalError::Unreadable(error.to_string());
        let mut head = [0; RECORD_HEADER_BYTES];
        exactly(self.file.as_ref(), &mut head, self.offset).map_err(unreadable)?;
        let [a, b, c, d, kind] = head;
        let length = u32::from_le_bytes([a, b, c, d]);
        if u64::from(length) > RECORD_BYTES_MAX * 2 {
            return Err(JournalError::Unreadable("its length is out of range".to_owned()));
        }
        let mut payload = vec![0; length as usize];
        exactly(self.file.as_ref(), &mut payload, self.offset + RECORD_HEADER_BYTES as u64).map_err(unreadable)?;
        Record::decode(kind, &payload).map_err(|bad| JournalError::Unreadable(bad.to_string()))
    }

    /// Reads an accepted message and checks its body.
    pub fn accepted(&self) -> Result<Arc<Accepted>, JournalError> {
        match self.record()? {
            Record::Accepted { message, .. } | Record::Carried { message, .. } => {
                if body_hash(&message.body) == message.body_hash {
                    Ok(message)
                } else {
                    Err(JournalError::Unreadable("its body does not have its hash".to_owned()))
                }
            }
            Record::Commit { .. }
            | Record::Epoch { .. }
            | Record::Quarantined(_)
            | Record::Released { .. }
            | Record::ViewSynced { .. }
            | Record::Key(_)
            | Record::Lines { .. }
            | Record::Letter(_)
            | Record::Forgotten { .. }
            | Record::Checkpoint { .. } => Err(JournalError::Unreadable("there is no message".to_owned())),
        }
    }

    /// Reads the lines of a commit.
    pub fn lines(&self, commit: u64) -> Result<Vec<Line>, JournalError> {
        match self.record()? {
            Record::Commit { commit: found, .. } if found.number == commit => Ok(found.lines),
            Record::Lines { commit: found, lines, .. } if found == commit => Ok(lines),
            Record::Accepted { .. }
            | Record::Commit { .. }
            | Record::Epoch { .. }
            | Record::Quarantined(_)
            | Record::Released { .. }
            | Record::ViewSynced { .. }
            | Record::Key(_)
            | Record::Carried { .. }
            | Record::Lines { .. }
            | Record::Letter(_)
            | Record::Forgotten { .. }
            | Record::Checkpoint { .. } => Err(JournalError::Unreadable("these are not its lines".to_owned())),
        }
    }
}

fn exactly(file: &dyn DiskFile, into: &mut [u8], offset: u64) -> io::Result<()> {
    let wanted = into.len();
    if file.read_at(into, offset)? == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
