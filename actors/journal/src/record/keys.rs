//! What a snapshot keeps of a key. **Invariant:** pure.

use domain::ids::{Epoch, Seq, SessionId, ToolCallId, TurnId};
use protocol::journal::{LeftBy, ViewMark};

use super::commit::{put_started, started};
use super::{EndedId, KeyRecord, key};
use crate::wire::{Malformed, Reader, put_flag, put_int, put_option, put_text, put_uuid};

pub(super) fn put_left(to: &mut Vec<u8>, left: LeftBy) {
    to.push(match left {
        LeftBy::Crash => 0,
        LeftBy::Death => 1,
        LeftBy::Interrupted => 2,
    });
}

pub(super) fn left(from: &mut Reader<'_>) -> Result<LeftBy, Malformed> {
    match from.byte()? {
        0 => Ok(LeftBy::Crash),
        1 => Ok(LeftBy::Death),
        2 => Ok(LeftBy::Interrupted),
        _ => Err(Malformed::Tag),
    }
}

pub(super) fn put_key(to: &mut Vec<u8>, key: &KeyRecord) {
    put_text(to, key.key.as_str());
    put_option(to, key.session, |to, session| put_uuid(to, session.0));
    put_int(to, key.epoch.0);
    put_int(to, key.next_seq.0);
    put_int(to, key.next_commit);
    put_int(to, key.view_commit);
    put_mark(to, &key.view);
    put_option(to, key.started.as_ref(), put_started);
    put_option(to, key.left, put_left);
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

pub(super) fn key_record(from: &mut Reader<'_>) -> Result<KeyRecord, Malformed> {
    Ok(KeyRecord {
        key: key(from)?,
        session: from.option(|from| from.uuid().map(SessionId))?,
        epoch: Epoch(from.int()?),
        next_seq: Seq(from.int()?),
        next_commit: from.int()?,
        view_commit: from.int()?,
        view: mark(from)?,
        started: from.option(started)?,
        left: from.option(left)?,
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

pub(super) fn put_mark(to: &mut Vec<u8>, mark: &ViewMark) {
    put_int(to, mark.length);
    put_option(to, mark.last_entry.as_deref(), put_text);
}

pub(super) fn mark(from: &mut Reader<'_>) -> Result<ViewMark, Malformed> {
    Ok(ViewMark { length: from.int()?, last_entry: from.option(Reader::shared)? })
}
