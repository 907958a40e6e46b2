//! Reading records back by their position. Blocks: for the pool.

use std::io;
use std::sync::Arc;

use domain::body::body_hash;
use domain::ids::{DeliveryId, LetterId};
use protocol::journal::{Accepted, Commit, JournalError, Line, OutRow};
use supervision::ports::DiskFile;

use crate::batch::RECORD_HEADER_BYTES;
use crate::options::RECORD_BYTES_MAX;
use crate::record::{Content, Record};

/// How often a piece of a record is read before the record counts as unreadable.
const READ_TRIES: u32 = 3;

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
        let mut head = [0; RECORD_HEADER_BYTES];
        self.fill(&mut head, self.offset)?;
        let [a, b, c, d, kind] = head;
        let length = u32::from_le_bytes([a, b, c, d]);
        if u64::from(length) > RECORD_BYTES_MAX * 2 {
            return Err(JournalError::Unreadable("its length is out of range".to_owned()));
        }
        let mut payload = vec![0; length as usize];
        self.fill(&mut payload, self.offset + RECORD_HEADER_BYTES as u64)?;
        Record::decode(kind, &payload).map_err(|bad| JournalError::Unreadable(bad.to_string()))
    }

    /// Reads so many bytes; a device that failed once may do better.
    fn fill(&self, into: &mut [u8], offset: u64) -> Result<(), JournalError> {
        let mut tries = 1;
        while let Err(error) = exactly(self.file.as_ref(), into, offset) {
            if tries == READ_TRIES {
                return Err(JournalError::Unreadable(error.to_string()));
            }
            tries += 1;
            tracing::warn!(%error, "a record cannot be read; it is tried again");
        }
        Ok(())
    }

    /// Reads an accepted message and checks its body.
    pub fn accepted(&self) -> Result<Arc<Accepted>, JournalError> {
        let (Record::Accepted { message, .. }
        | Record::Carried { message, .. }
        | Record::Letter { content: Some(Content::Message(message)), .. }) = self.record()?
        else {
            return Err(JournalError::Unreadable("there is no message".to_owned()));
        };
        if body_hash(&message.body) == message.body_hash {
            Ok(message)
        } else {
            Err(JournalError::Unreadable("its body does not have its hash".to_owned()))
        }
    }

    /// Reads the lines of a commit.
    pub fn lines(&self, commit: u64) -> Result<Vec<Line>, JournalError> {
        let record = self.record()?;
        let found = if let Record::Commit { commit, .. } = record {
            Some((commit.number, commit.lines))
        } else if let Record::Lines { commit, lines, .. } = record {
            Some((commit, lines))
        } else {
            None
        };
        match found {
            Some((number, lines)) if number == commit => Ok(lines),
            Some(_) | None => Err(JournalError::Unreadable("these are not its lines".to_owned())),
        }
    }

    /// Reads what a dead letter is about.
    pub fn content(&self, id: LetterId) -> Result<Content, JournalError> {
        match id {
            LetterId::Turn(_) => self.accepted().map(Content::Message),
            LetterId::Delivery(id) => self.row(id).map(|row| Content::Row(Box::new(row))),
        }
    }

    /// Reads a row of the outbox as it was opened.
    pub fn row(&self, id: DeliveryId) -> Result<OutRow, JournalError> {
        let record = self.record()?;
        let row = if let Record::Commit { commit, at_ms, .. } = record {
            let Commit { key, out, .. } = *commit;
            let out = out.into_iter().find(|out| out.id == id);
            out.map(|out| OutRow { out, key, committed_ms: at_ms, sending: false })
        } else if let Record::Row { row, .. } = record {
            Some(*row)
        } else if let Record::Letter { content: Some(Content::Row(row)), .. } = record {
            Some(*row)
        } else {
            None
        };
        let row = row.filter(|row| row.out.id == id);
        row.ok_or_else(|| JournalError::Unreadable("there is no such row".to_owned()))
    }
}

fn exactly(file: &dyn DiskFile, into: &mut [u8], offset: u64) -> io::Result<()> {
    let wanted = into.len();
    if file.read_at(into, offset)? == wanted { Ok(()) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
