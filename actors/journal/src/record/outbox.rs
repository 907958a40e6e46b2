//! Rows of the outbox and dead letters. **Invariant:** pure.

use std::sync::Arc;

use domain::ids::{DeliveryId, LetterId, TurnId};
use protocol::journal::{DeadLetter, LetterKind, LogPosition, Out, OutRow};

use super::message::{accepted, message_id, push_route, put_accepted, put_push_route};
use super::{Content, RowPlace, key};
use crate::wire::{Malformed, Reader, put_flag, put_int, put_option, put_text, put_uuid};

pub(super) fn put_delivery(to: &mut Vec<u8>, id: DeliveryId) {
    put_uuid(to, id.turn.0);
    put_int(to, u64::from(id.n));
}

pub(super) fn delivery(from: &mut Reader<'_>) -> Result<DeliveryId, Malformed> {
    Ok(DeliveryId { turn: TurnId(from.uuid()?), n: from.small()? })
}

pub(super) fn put_out(to: &mut Vec<u8>, out: &Out) {
    put_delivery(to, out.id);
    put_push_route(to, &out.route);
    put_int(to, u64::from(out.parts));
    put_text(to, &out.text);
}

pub(super) fn out(from: &mut Reader<'_>) -> Result<Out, Malformed> {
    let id = delivery(from)?;
    Ok(Out { id, turn: id.turn, route: push_route(from)?, parts: from.small()?, text: from.shared()? })
}

pub(super) fn put_row(to: &mut Vec<u8>, row: &OutRow) {
    put_text(to, row.key.as_str());
    put_int(to, row.committed_ms);
    put_flag(to, row.sending);
    put_out(to, &row.out);
}

pub(super) fn row(from: &mut Reader<'_>) -> Result<OutRow, Malformed> {
    Ok(OutRow { key: key(from)?, committed_ms: from.int()?, sending: from.flag()?, out: out(from)? })
}

pub(super) fn put_place(to: &mut Vec<u8>, place: RowPlace) {
    put_int(to, place.at.0);
    put_int(to, u64::from(place.n));
}

pub(super) fn place(from: &mut Reader<'_>) -> Result<RowPlace, Malformed> {
    Ok(RowPlace { at: LogPosition(from.int()?), n: from.small()? })
}

pub(super) fn put_letter_id(to: &mut Vec<u8>, id: LetterId) {
    match id {
        LetterId::Turn(turn) => {
            to.push(0);
            put_uuid(to, turn.0);
        }
        LetterId::Delivery(id) => {
            to.push(1);
            put_delivery(to, id);
        }
    }
}

pub(super) fn letter_id(from: &mut Reader<'_>) -> Result<LetterId, Malformed> {
    match from.byte()? {
        0 => from.uuid().map(|turn| LetterId::Turn(TurnId(turn))),
        1 => delivery(from).map(LetterId::Delivery),
        _ => Err(Malformed::Tag),
    }
}

pub(super) fn put_letter(to: &mut Vec<u8>, letter: &DeadLetter, content: Option<&Content>) {
    put_letter_id(to, letter.id);
    put_text(to, letter.key.as_str());
    put_option(to, letter.message_id.as_ref(), |to, id| put_text(to, id.as_str()));
    put_option(to, letter.channel.as_deref(), put_text);
    put_text(to, &letter.reason);
    put_int(to, letter.at_ms);
    match content {
        None => to.push(0),
        Some(Content::Message(message)) => {
            to.push(1);
            put_accepted(to, &letter.key, message);
        }
        Some(Content::Row(row)) => {
            to.push(2);
            put_row(to, row);
        }
    }
}

pub(super) fn letter(from: &mut Reader<'_>) -> Result<(DeadLetter, Option<Content>), Malformed> {
    let id = letter_id(from)?;
    let (kind, turn) = match id {
        LetterId::Turn(turn) => (LetterKind::Turn, turn),
        LetterId::Delivery(id) => (LetterKind::Delivery, id.turn),
    };
    let letter = DeadLetter {
        id,
        kind,
        turn,
        key: key(from)?,
        message_id: from.option(message_id)?,
        channel: from.option(Reader::shared)?,
        reason: from.shared()?,
        at_ms: from.int()?,
    };
    let content = match from.byte()? {
        0 => None,
        1 => Some(Content::Message(Arc::new(accepted(from)?.1))),
        2 => Some(Content::Row(Box::new(row(from)?))),
        _ => return Err(Malformed::Tag),
    };
    Ok((letter, content))
}

/// As it was kept before letters had their content.
pub(super) fn old_letter(from: &mut Reader<'_>) -> Result<DeadLetter, Malformed> {
    let turn = TurnId(from.uuid()?);
    Ok(DeadLetter {
        id: LetterId::Turn(turn),
        kind: LetterKind::Turn,
        turn,
        key: key(from)?,
        message_id: Some(message_id(from)?),
        channel: None,
        reason: from.shared()?,
        at_ms: from.int()?,
    })
}
