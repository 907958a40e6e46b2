//! Files of ended transcripts that have to be moved. **Invariant:** pure.

use domain::ids::SessionId;
use protocol::journal::{Move, Moving, Shelf};

use super::key;
use super::keys::{mark, put_mark};
use crate::wire::{Malformed, Reader, put_int, put_text, put_uuid};

pub(super) fn put_move(to: &mut Vec<u8>, place: Move) {
    to.push(match place.to {
        Shelf::Archive => 0,
        Shelf::Deleted => 1,
    });
    put_int(to, place.at_ms);
}

pub(super) fn take_move(from: &mut Reader<'_>) -> Result<Move, Malformed> {
    let to = match from.byte()? {
        0 => Shelf::Archive,
        1 => Shelf::Deleted,
        _ => return Err(Malformed::Tag),
    };
    Ok(Move { to, at_ms: from.int()? })
}

pub(super) fn put_moving(to: &mut Vec<u8>, moving: &Moving) {
    put_text(to, moving.key.as_str());
    put_uuid(to, moving.session.0);
    put_move(to, moving.place);
    put_mark(to, &moving.view);
}

pub(super) fn moving(from: &mut Reader<'_>) -> Result<Moving, Malformed> {
    let (key, session, place, view) = (key(from)?, SessionId(from.uuid()?), take_move(from)?, mark(from)?);
    Ok(Moving { key, session, place, view, lines: Vec::new() })
}
