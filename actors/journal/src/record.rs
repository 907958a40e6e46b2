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
//! | 10 | `Letter` | snapshot: a dead letter, copied forward |
//! | 11 | `Forgotten` | an idle key left memory |
//! | 12 | `Checkpoint` | segments below a number are not needed any more |
//!
//! **Invariant:** pure; decoding never panics; a type that is not in the table is an error, never skipped.

use std::sync::Arc;

use domain::ids::{Attempt, Epoch, MessageId, Seq, SessionId, SessionKey, Source, ToolCallId, TurnId};
use protocol::journal::{Accepted, Commit, DeadLetter, LeftBy, Line, Quarantine, Started, TurnEnd, ViewMark};
use protocol::turn::Route;

use crate::wire::{Malformed, Reader, put_bytes, put_flag, put_int, put_option, put_text, put_uuid};

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
    Letter(DeadLetter),
    Forgotten {
        key: SessionKey,
    },
    Checkpoint {
        oldest: u64,
        floors: Floors,
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
    /// Its type byte.
    pub fn kind(&self) -> u8 {
        match self {
            Self::Accepted { .. } => 1,
            Self::Commit { .. } => 2,
            Self::Epoch { .. } => 3,
            Self::Quarantined(_) => 4,
            Self::Released { .. } => 5,
            Self::ViewSynced { .. } => 6,
            Self::Key(_) => 7,
            Self::Carried { .. } => 8,
            Self::Lines { .. } => 9,
            Self::Letter(_) => 10,
            Self::Forgotten { .. } => 11,
            Self::Checkpoint { .. } => 12,
        }
    }

    /// Appends its payload.
    pub fn put(&self, to: &mut Vec<u8>) {
        match self {
            Self::Accepted { key, message } | Self::Carried { key, message } => put_accepted(to, key, message),
            Self::Commit { commit, at_ms, endings } => put_commit(to, commit, *at_ms, endings),
            Self::Epoch { key, session, epoch } => {
                put_text(to, key.as_str());
                put_uuid(to, session.0);
                put_int(to, epoch.0);
            }
            Self::Quarantined(quarantine) => {
                put_text(to, quarantine.key.as_str());
                put_int(to, quarantine.until_ms);
                put_int(to, u64::from(quarantine.times));
                put_text(to, &quarantine.reason);
            }
            Self::Released { key } | Self::Forgotten { key } => put_text(to, key.as_str()),
            Self::ViewSynced { key, session, commit, mark } => {
                put_text(to, key.as_str());
                put_uuid(to, session.0);
                put_int(to, *commit);
                put_mark(to, mark);
            }
            Self::Key(key) => put_key(to, key),
            Self::Lines { key, session, commit, lines } => {
                put_text(to, key.as_str());
                put_uuid(to, session.0);
                put_int(to, *commit);
                put_lines(to, lines);
            }
            Self::Letter(letter) => {
                put_uuid(to, letter.turn.0);
                put_text(to, letter.key.as_str());
                put_text(to, letter.message_id.as_str());
                put_text(to, &letter.reason);
                put_int(to, letter.at_ms);
            }
            Self::Checkpoint { oldest, floors } => {
                put_int(to, *oldest);
                put_int(to, floors.epoch.0);
                put_int(to, floors.seq.0);
            }
        }
    }

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
        1 => {
            let (key, message) = accepted(from)?;
            Record::Accepted { key, message: Arc::new(message) }
        }
        2 => {
            let (commit, at_ms, endings) = commit(from)?;
            Record::Commit { commit: Box::new(commit), at_ms, endings }
        }
        3 => Record::Epoch { key: key(from)?, session: SessionId(from.uuid()?), epoch: Epoch(from.int()?) },
        4 => Record::Quarantined(Quarantine {
            key: key(from)?,
            until_ms: from.int()?,
            times: from.small()?,
            reason: from.shared()?,
        }),
        5 => Record::Released { key: key(from)? },
        6 => Record::ViewSynced {
            key: key(from)?,
            session: SessionId(from.uuid()?),
            commit: from.int()?,
            mark: mark(from)?,
        },
        7 => Record::Key(Box::new(key_record(from)?)),
        8 => {
            let (key, message) = accepted(from)?;
            Record::Carried { key, message: Arc::new(message) }
        }
        9 => Record::Lines {
            key: key(from)?,
            session: SessionId(from.uuid()?),
            commit: from.int()?,
            lines: from.list(line)?,
        },
        10 => Record::Letter(DeadLetter {
            turn: TurnId(from.uuid()?),
            key: key(from)?,
            message_id: message_id(from)?,
            reason: from.shared()?,
            at_ms: from.int()?,
        }),
        11 => Record::Forgotten { key: key(from)? },
        12 => Record::Checkpoint {
            oldest: from.int()?,
            floors: Floors { epoch: Epoch(from.int()?), seq: Seq(from.int()?) },
        },
        unknown => return Err(BadRecord::UnknownKind(unknown)),
    })
}

fn key(from: &mut Reader<'_>) -> Result<SessionKey, Malformed> {
    SessionKey::new(from.text()?).map_err(|_| Malformed::Id)
}

fn put_accepted(to: &mut Vec<u8>, key: &SessionKey, message: &Accepted) {
    put_text(to, key.as_str());
    put_uuid(to, message.turn.0);
    put_int(to, message.seq.0);
    put_text(to, message.source.as_str());
    put_text(to, message.message_id.as_str());
    to.extend_from_slice(&message.body_hash.to_le_bytes());
    to.push(match message.route {
        Route::Live => 0,
        Route::Reply => 1,
    });
    put_int(to, message.accepted_ms);
    put_option(to, message.retry_of, |to, turn| put_uuid(to, turn.0));
    put_bytes(to, &message.body);
}

fn accepted(from: &mut Reader<'_>) -> Result<(SessionKey, Accepted), Malformed> {
    let key = key(from)?;
    let message = Accepted {
        turn: TurnId(from.uuid()?),
        seq: Seq(from.int()?),
        source: Source::new(from.text()?).map_err(|_| Malformed::Id)?,
        message_id: message_id(from)?,
        body_hash: from.fixed()?,
        route: match from.byte()? {
            0 => Route::Live,
            1 => Route::Reply,
            _ => return Err(Malformed::Tag),
        },
        accepted_ms: from.int()?,
        retry_of: from.option(|from| from.uuid().map(TurnId))?,
        body: from.bytes()?.into(),
    };
    Ok((key, message))
}

fn put_commit(to: &mut Vec<u8>, commit: &Commit, at_ms: u64, endings: &[Option<Ending>]) {
    put_text(to, commit.key.as_str());
    put_uuid(to, commit.session.0);
    put_int(to, commit.epoch.0);
    put_int(to, commit.number);
    put_int(to, at_ms);
    put_flag(to, commit.interrupted);
    put_flag(to, commit.closes_session);
    put_option(to, commit.started.as_ref(), put_started);
    put_int(to, commit.tools_started.len() as u64);
    for call in &commit.tools_started {
        put_text(to, &call.0);
    }
    put_int(to, commit.ended.len() as u64);
    for ((turn, end), ending) in commit.ended.iter().zip(endings) {
        put_uuid(to, turn.0);
        match end {
            TurnEnd::Done => to.push(0),
            TurnEnd::Dead { reason } => {
                to.push(1);
                put_text(to, reason);
            }
            TurnEnd::Cancelled { why } => {
                to.push(2);
                put_text(to, why);
            }
        }
        put_option(to, ending.as_ref(), |to, ending| {
            to.extend_from_slice(&ending.id.to_le_bytes());
            to.extend_from_slice(&ending.body_hash.to_le_bytes());
            put_option(to, ending.message_id.as_ref(), |to, id| put_text(to, id.as_str()));
        });
    }
    put_lines(to, &commit.lines);
}

fn ending(from: &mut Reader<'_>) -> Result<Ending, Malformed> {
    Ok(Ending {
        id: from.array().map(u128::from_le_bytes)?,
        body_hash: from.fixed()?,
        message_id: from.option(message_id)?,
    })
}

fn message_id(from: &mut Reader<'_>) -> Result<MessageId, Malformed> {
    MessageId::new(from.text()?).map_err(|_| Malformed::Id)
}

fn commit(from: &mut Reader<'_>) -> Result<(Commit, u64, Vec<Option<Ending>>), Malformed> {
    let key = key(from)?;
    let session = SessionId(from.uuid()?);
    let epoch = Epoch(from.int()?);
    let number = from.int()?;
    let at_ms = from.int()?;
    let interrupted = from.flag()?;
    let closes_session = from.flag()?;
    let started = from.option(started)?;
    let tools_started = from.list(|from| from.shared().map(ToolCallId))?;
    let ended = from.list(|from| {
        let turn = TurnId(from.uuid()?);
        let end = match from.byte()? {
            0 => TurnEnd::Done,
            1 => TurnEnd::Dead { reason: from.shared()? },
            2 => TurnEnd::Cancelled { why: from.shared()? },
            _ => return Err(Malformed::Tag),
        };
        Ok(((turn, end), from.option(ending)?))
    })?;
    let (ended, endings) = ended.into_iter().unzip();
    let lines = from.list(line)?;
    let commit =
        Commit { key, session, epoch, number, lines, tools_started, ended, started, interrupted, closes_session };
    Ok((commit, at_ms, endings))
}

fn put_lines(to: &mut Vec<u8>, lines: &[Line]) {
    put_int(to, lines.len() as u64);
    for line in lines {
        put_text(to, &line.id);
        put_text(to, &line.text);
    }
}

fn line(from: &mut Reader<'_>) -> Result<Line, Malformed> {
    Ok(Line { id: from.shared()?, text: from.shared()? })
}

fn put_started(to: &mut Vec<u8>, started: &Started) {
    put_uuid(to, started.turn.0);
    put_int(to, u64::from(started.attempt.0));
    put_int(to, u64::from(started.crashes));
    put_int(to, u64::from(started.deaths));
    put_flag(to, started.alone);
}

fn started(from: &mut Reader<'_>) -> Result<Started, Malformed> {
    Ok(Started {
        turn: TurnId(from.uuid()?),
        attempt: Attempt(from.small()?),
        crashes: from.small()?,
        deaths: from.small()?,
        alone: from.flag()?,
    })
}

fn put_mark(to: &mut Vec<u8>, mark: &ViewMark) {
    put_int(to, mark.length);
    put_option(to, mark.last_entry.as_deref(), put_text);
}

fn mark(from: &mut Reader<'_>) -> Result<ViewMark, Malformed> {
    Ok(ViewMark { length: from.int()?, last_entry: from.option(Reader::shared)? })
}

fn put_key(to: &mut Vec<u8>, key: &KeyRecord) {
    put_text(to, key.key.as_str());
    put_option(to, key.session, |to, session| put_uuid(to, session.0));
    put_int(to, key.epoch.0);
    put_int(to, key.next_seq.0);
    put_int(to, key.next_commit);
    put_int(to, key.view_commit);
    put_mark(to, &key.view);
    put_option(to, key.started.as_ref(), put_started);
    put_option(to, key.left, |to, left| {
        to.push(match left {
            LeftBy::Crash => 0,
            LeftBy::Death => 1,
            LeftBy::Interrupted => 2,
        });
    });
    put_int(to, key.tools.len() as u64);
    for call in &key.tools {
        put_text(to, &call.0);
    }
    put_option(to, key.quarantine.as_ref(), |to, (until_ms, times, reason)| {
        put_int(to, *until_ms);
        put_int(to, u64::from(*times));
        put_text(to, reason);
    });
    put_int(to, key.ended.len() as u64);
    for ended in &key.ended {
        put_int(to, ended.commit);
        to.extend_from_slice(&ended.id.to_le_bytes());
        put_uuid(to, ended.turn.0);
        to.extend_from_slice(&ended.body_hash.to_le_bytes());
    }
    put_flag(to, key.closed);
}

fn key_record(from: &mut Reader<'_>) -> Result<KeyRecord, Malformed> {
    Ok(KeyRecord {
        key: key(from)?,
        session: from.option(|from| from.uuid().map(SessionId))?,
        epoch: Epoch(from.int()?),
        next_seq: Seq(from.int()?),
        next_commit: from.int()?,
        view_commit: from.int()?,
        view: mark(from)?,
        started: from.option(started)?,
        left: from.option(|from| match from.byte()? {
            0 => Ok(LeftBy::Crash),
            1 => Ok(LeftBy::Death),
            2 => Ok(LeftBy::Interrupted),
            _ => Err(Malformed::Tag),
        })?,
        tools: from.list(|from| from.shared().map(ToolCallId))?,
        quarantine: from.option(|from| Ok((from.int()?, from.small()?, from.shared()?)))?,
        ended: from.list(|from| {
            Ok(EndedId {
                commit: from.int()?,
                id: from.array().map(u128::from_le_bytes)?,
                turn: TurnId(from.uuid()?),
                body_hash: from.fixed()?,
            })
        })?,
        closed: from.flag()?,
    })
}

#[cfg(test)]
#[path = "record_tests.rs"]
mod tests;
