//! The records of the log, one variant each, and their payload bytes.
//!
//! | type | record | meaning |
//! |---|---|---|
//! | 1 | `Accepted` | a message was admitted |
//! | 2 | `Commit` | a session's atomic step |
//! | 3 | `Epoch` | an incarnation began |
//! | 4, 5 | `Quarantined`, `Released` | verdicts of the registry |
//! | 6 | `ViewSynced` | a transcript file is on the device up to a length |
//! | 7 | `Key` | snapshot: the numbers of a key, replacing what was known |
//! | 8 | `Carried` | snapshot: an open message, copied forward |
//! | 9 | `Lines` | snapshot: lines that no file is known to have, copied forward |
//! | 10 | `Letter` | snapshot: a dead letter without its content; only read |
//! | 11 | `Forgotten` | an idle key left memory |
//! | 12 | `Checkpoint` | segments below a number are not needed any more |
//! | 13 | `Commit` | one with rows for the outbox |
//! | 14, 15 | `Accepted`, `Carried` | of a message whose reply is pushed to a channel |
//! | 16, 17, 18 | `Sending`, `Sent`, `Undeliverable` | steps of a row |
//! | 19 | `Row` | an open row: copied forward, or opened again |
//! | 20 | `Letter` | snapshot: a dead letter with its content, copied forward |
//! | 21 | `LetterClosed` | a dead letter was dropped |
//! | 23 | `Left` | all turns that had begun, and are not known to be left otherwise, were left so: the process ended |
//! | 22 | `Quarantined` | one that names the turn whose crash is still to be counted |
//! | 24 | `Commit` | one that ends its transcript, whose file has to be moved; with rows |
//! | 25 | `Moving` | snapshot: a file that still has to be moved, copied forward |
//! | 26 | `Moved` | it was |
//! | 27 | `Commit` | one that ends turns which were taken up by another; with rows, and the move if its transcript ends |
//!
//! Types only ever get added: an older program refuses a log that has one it does not know, this one reads them all.
//!
//! **Invariant:** pure; decoding never panics; a type that is not in the table is an error, never skipped.

mod commit;
mod keys;
mod message;
mod moving;
mod outbox;
mod put;

use std::sync::Arc;

use domain::ids::{DeliveryId, Epoch, LetterId, MessageId, Seq, SessionId, SessionKey, ToolCallId, TurnId};
use protocol::journal::{
    Accepted, Commit, DeadLetter, LeftBy, Line, LogPosition, Moving, OutRow, Quarantine, Started, ViewMark,
};

use self::commit::line;
use self::keys::{key_record, left, mark};
use self::message::accepted;
use self::moving::moving;
use self::outbox::{delivery, letter, old_letter, place, row};
use crate::wire::{Malformed, Reader};

/// The id of a turn that ended after the last synced view: its user entry may not be in the file yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EndedId {
    /// The commit that ended it.
    pub commit: u64,
    /// Hash of source and message id.
    pub id: u128,
    /// The turn.
    pub turn: TurnId,
    /// Hash of its body.
    pub body_hash: u64,
}

impl EndedId {
    /// In place of the commit: the transcript of the turn was closed, and nothing tells that its file has the user entry.
    pub const CLOSED: u64 = u64::MAX;
}

/// What is known of a turn that a commit ends. The record of its message may be given up before that of the commit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ending {
    /// Hash of source and message id.
    pub id: u128,
    /// Hash of its body.
    pub body_hash: u64,
    /// The sender's id, for dead letters only.
    pub message_id: Option<MessageId>,
}

/// Everything about a key that is not a message or a line.
#[derive(Debug, Clone, PartialEq)]
pub struct KeyRecord {
    /// Session key.
    pub key: SessionKey,
    /// Transcript.
    pub session: Option<SessionId>,
    /// Last epoch given out.
    pub epoch: Epoch,
    /// Next place in the accept order.
    pub next_seq: Seq,
    /// Next commit number.
    pub next_commit: u64,
    /// Commits up to this one are in the synced view.
    pub view_commit: u64,
    /// The synced view.
    pub view: ViewMark,
    /// The last durable start of the first open turn, when it is not the implied one.
    pub started: Option<Started>,
    /// How the first open turn was left.
    pub left: Option<LeftBy>,
    /// Its tool calls without result.
    pub tools: Vec<ToolCallId>,
    /// Quarantine: end in ms since 1970, times in a row, reason.
    pub quarantine: Option<(u64, u32, Arc<str>)>,
    /// Ids that only the log knows.
    pub ended: Vec<EndedId>,
    /// Its transcript was closed.
    pub closed: bool,
}

/// Smallest numbers for keys that are new or forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Floors {
    /// The epoch before the first.
    pub epoch: Epoch,
    /// The place before the first.
    pub seq: Seq,
}

/// Where a row stands in the outbox: the record that opened it, and which of its rows it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RowPlace {
    /// Where that record was written first.
    pub at: LogPosition,
    /// From 0.
    pub n: u32,
}

/// What a dead letter is about, as the log keeps it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Content {
    /// The message of a turn.
    Message(Arc<Accepted>),
    /// A delivery.
    Row(Box<OutRow>),
}

/// One record.
#[derive(Debug, Clone)]
pub enum Record {
    Accepted {
        key: SessionKey,
        message: Arc<Accepted>,
    },
    /// `endings` has one for each turn that the commit ends; `None` for a turn that was not open.
    Commit {
        commit: Box<Commit>,
        at_ms: u64,
        endings: Vec<Option<Ending>>,
    },
    Epoch {
        key: SessionKey,
        session: SessionId,
        epoch: Epoch,
    },
    Quarantined(Quarantine),
    Released {
        key: SessionKey,
    },
    ViewSynced {
        key: SessionKey,
        session: SessionId,
        commit: u64,
        mark: ViewMark,
    },
    Key(Box<KeyRecord>),
    Carried {
        key: SessionKey,
        message: Arc<Accepted>,
    },
    Lines {
        key: SessionKey,
        session: SessionId,
        commit: u64,
        lines: Vec<Line>,
    },
    Letter {
        letter: Box<DeadLetter>,
        content: Option<Content>,
    },
    Forgotten {
        key: SessionKey,
    },
    Left(LeftBy),
    Checkpoint {
        oldest: u64,
        floors: Floors,
    },
    Sending(DeliveryId),
    Sent(DeliveryId),
    Undeliverable {
        id: DeliveryId,
        reason: Arc<str>,
        at_ms: u64,
    },
    /// Without a place: behind all others, and the letter of the delivery ends.
    Row {
        row: Box<OutRow>,
        place: Option<RowPlace>,
    },
    LetterClosed(LetterId),
    Moving(Box<Moving>),
    Moved {
        key: SessionKey,
        session: SessionId,
    },
}

/// Why a record was not decoded.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BadRecord {
    /// A type that this version does not know.
    #[error("has an unknown type {0}")]
    UnknownKind(u8),
    /// Its payload is not what its type says.
    #[error("{0}")]
    Malformed(#[from] Malformed),
}

impl Record {
    /// Reads the payload of a record of type `kind`.
    pub fn decode(kind: u8, payload: &[u8]) -> Result<Self, BadRecord> {
        let mut from = Reader::new(payload);
        let record = take(kind, &mut from)?;
        from.end()?;
        Ok(record)
    }
}

fn take(kind: u8, from: &mut Reader<'_>) -> Result<Record, BadRecord> {
    Ok(match kind {
        1 | 14 => {
            let (key, message) = accepted(from)?;
            Record::Accepted { key, message: Arc::new(message) }
        }
        2 | 13 | 24 | 27 => {
            let (commit, at_ms, endings) = commit::commit(from, kind)?;
            Record::Commit { commit: Box::new(commit), at_ms, endings }
        }
        3 => Record::Epoch { key: key(from)?, session: SessionId(from.uuid()?), epoch: Epoch(from.int()?) },
        4 | 22 => Record::Quarantined(Quarantine {
            key: key(from)?,
            until_ms: from.int()?,
            times: from.small()?,
            reason: from.shared()?,
            turn: if kind == 22 { Some(TurnId(from.uuid()?)) } else { None },
        }),
        5 => Record::Released { key: key(from)? },
        6 => Record::ViewSynced {
            key: key(from)?,
            session: SessionId(from.uuid()?),
            commit: from.int()?,
            mark: mark(from)?,
        },
        7 => Record::Key(Box::new(key_record(from)?)),
        8 | 15 => {
            let (key, message) = accepted(from)?;
            Record::Carried { key, message: Arc::new(message) }
        }
        9 => Record::Lines {
            key: key(from)?,
            session: SessionId(from.uuid()?),
            commit: from.int()?,
            lines: from.list(line)?,
        },
        10 => Record::Letter { letter: Box::new(old_letter(from)?), content: None },
        11 => Record::Forgotten { key: key(from)? },
        12 => Record::Checkpoint {
            oldest: from.int()?,
            floors: Floors { epoch: Epoch(from.int()?), seq: Seq(from.int()?) },
        },
        16 => Record::Sending(delivery(from)?),
        17 => Record::Sent(delivery(from)?),
        18 => Record::Undeliverable { id: delivery(from)?, reason: from.shared()?, at_ms: from.int()? },
        19 => Record::Row { row: Box::new(row(from)?), place: from.option(place)? },
        20 => {
            let (letter, content) = letter(from)?;
            Record::Letter { letter: Box::new(letter), content }
        }
        21 => Record::LetterClosed(outbox::letter_id(from)?),
        23 => Record::Left(left(from)?),
        25 => Record::Moving(Box::new(moving(from)?)),
        26 => Record::Moved { key: key(from)?, session: SessionId(from.uuid()?) },
        unknown => return Err(BadRecord::UnknownKind(unknown)),
    })
}

fn key(from: &mut Reader<'_>) -> Result<SessionKey, Malformed> {
    SessionKey::new(from.text()?).map_err(|_| Malformed::Id)
}

#[cfg(test)]
mod tests;
