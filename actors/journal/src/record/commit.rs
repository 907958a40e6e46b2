//! Commits, and the lines and starts in them. **Invariant:** pure.

use domain::ids::{Attempt, Epoch, SessionId, ToolCallId, TurnId};
use protocol::journal::{Closes, Commit, Line, Started, TurnEnd};

use super::message::message_id;
use super::moving::{put_move, take_move};
use super::outbox::{out, put_out};
use super::{Ending, key};
use crate::wire::{Malformed, Reader, put_flag, put_int, put_option, put_text, put_uuid};

pub(super) fn put_commit(to: &mut Vec<u8>, commit: &Commit, at_ms: u64, endings: &[Option<Ending>]) {
    put_text(to, commit.key.as_str());
    put_uuid(to, commit.session.0);
    put_int(to, commit.epoch.0);
    put_int(to, commit.number);
    put_int(to, at_ms);
    put_flag(to, commit.interrupted);
    put_flag(to, commit.closes.is_some());
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
            TurnEnd::Joined { into } => {
                to.push(3);
                put_uuid(to, into.0);
            }
        }
        put_option(to, ending.as_ref(), |to, ending| {
            to.extend_from_slice(&ending.id.to_le_bytes());
            to.extend_from_slice(&ending.body_hash.to_le_bytes());
            put_option(to, ending.message_id.as_ref(), |to, id| put_text(to, id.as_str()));
        });
    }
    put_lines(to, &commit.lines);
    let moves = commit.closes.and_then(|closes| if let Closes::Moves(place) = closes { Some(place) } else { None });
    let joins = joins(commit);
    if joins || !commit.out.is_empty() || moves.is_some() {
        put_int(to, commit.out.len() as u64);
        commit.out.iter().for_each(|out| put_out(to, out));
    }
    if joins {
        put_option(to, moves, put_move);
    } else if let Some(place) = moves {
        put_move(to, place);
    }
}

/// Whether a turn ends in it that was taken up by another one.
pub(super) fn joins(commit: &Commit) -> bool {
    commit.ended.iter().any(|(_, end)| matches!(end, TurnEnd::Joined { .. }))
}

/// `kind`: its type byte, which tells the forms apart.
pub(super) fn commit(from: &mut Reader<'_>, kind: u8) -> Result<(Commit, u64, Vec<Option<Ending>>), Malformed> {
    let key = key(from)?;
    let session = SessionId(from.uuid()?);
    let epoch = Epoch(from.int()?);
    let number = from.int()?;
    let at_ms = from.int()?;
    let interrupted = from.flag()?;
    let closed = from.flag()?;
    let started = from.option(started)?;
    let tools_started = from.list(|from| from.shared().map(ToolCallId))?;
    let ended = from.list(|from| {
        let turn = TurnId(from.uuid()?);
        let end = match from.byte()? {
            0 => TurnEnd::Done,
            1 => TurnEnd::Dead { reason: from.shared()? },
            2 => TurnEnd::Cancelled { why: from.shared()? },
            3 if kind == 27 => TurnEnd::Joined { into: TurnId(from.uuid()?) },
            _ => return Err(Malformed::Tag),
        };
        Ok(((turn, end), from.option(ending)?))
    })?;
    let (ended, endings) = ended.into_iter().unzip();
    let lines = from.list(line)?;
    let out = if kind == 2 { Vec::new() } else { from.list(out)? };
    let closes = match (closed, kind) {
        (true, 24) => Some(Closes::Moves(take_move(from)?)),
        (true, 27) => Some(from.option(take_move)?.map_or(Closes::Moved, Closes::Moves)),
        (false, 27) => match from.option(take_move)? {
            Some(_) => return Err(Malformed::Tag),
            None => None,
        },
        (true, _) => Some(Closes::Moved),
        (false, 24) => return Err(Malformed::Tag),
        (false, _) => None,
    };
    let commit = Commit { key, session, epoch, number, lines, tools_started, ended, out, started, interrupted, closes };
    Ok((commit, at_ms, endings))
}

fn ending(from: &mut Reader<'_>) -> Result<Ending, Malformed> {
    Ok(Ending {
        id: from.array().map(u128::from_le_bytes)?,
        body_hash: from.fixed()?,
        message_id: from.option(message_id)?,
    })
}

pub(super) fn put_lines(to: &mut Vec<u8>, lines: &[Line]) {
    put_int(to, lines.len() as u64);
    for line in lines {
        put_text(to, &line.id);
        put_text(to, &line.text);
    }
}

pub(super) fn line(from: &mut Reader<'_>) -> Result<Line, Malformed> {
    Ok(Line { id: from.shared()?, text: from.shared()? })
}

pub(super) fn put_started(to: &mut Vec<u8>, started: &Started) {
    put_uuid(to, started.turn.0);
    put_int(to, u64::from(started.attempt.0));
    put_int(to, u64::from(started.crashes));
    put_int(to, u64::from(started.deaths));
    put_flag(to, started.alone);
}

pub(super) fn started(from: &mut Reader<'_>) -> Result<Started, Malformed> {
    Ok(Started {
        turn: TurnId(from.uuid()?),
        attempt: Attempt(from.small()?),
        crashes: from.small()?,
        deaths: from.small()?,
        alone: from.flag()?,
    })
}
