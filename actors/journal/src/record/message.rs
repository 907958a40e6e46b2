//! Accepted messages and their routes. **Invariant:** pure.

use domain::ids::{MessageId, Seq, SessionKey, Source, TurnId};
use protocol::journal::Accepted;
use protocol::turn::{PushRoute, Route};

use super::key;
use crate::wire::{Malformed, Reader, put_bytes, put_int, put_option, put_text, put_uuid};

pub(super) fn put_accepted(to: &mut Vec<u8>, key: &SessionKey, message: &Accepted) {
    put_text(to, key.as_str());
    put_uuid(to, message.turn.0);
    put_int(to, message.seq.0);
    put_text(to, message.source.as_str());
    put_text(to, message.message_id.as_str());
    to.extend_from_slice(&message.body_hash.to_le_bytes());
    put_route(to, &message.route);
    put_int(to, message.accepted_ms);
    put_option(to, message.retry_of, |to, turn| put_uuid(to, turn.0));
    put_bytes(to, &message.body);
}

pub(super) fn accepted(from: &mut Reader<'_>) -> Result<(SessionKey, Accepted), Malformed> {
    let key = key(from)?;
    let message = Accepted {
        turn: TurnId(from.uuid()?),
        seq: Seq(from.int()?),
        source: Source::new(from.text()?).map_err(|_| Malformed::Id)?,
        message_id: message_id(from)?,
        body_hash: from.fixed()?,
        route: route(from)?,
        accepted_ms: from.int()?,
        retry_of: from.option(|from| from.uuid().map(TurnId))?,
        body: from.bytes()?.into(),
    };
    Ok((key, message))
}

pub(super) fn message_id(from: &mut Reader<'_>) -> Result<MessageId, Malformed> {
    MessageId::new(from.text()?).map_err(|_| Malformed::Id)
}

fn put_route(to: &mut Vec<u8>, route: &Route) {
    match route {
        Route::Live => to.push(0),
        Route::Reply => to.push(1),
        Route::Push(push) => {
            to.push(2);
            put_push_route(to, push);
        }
    }
}

fn route(from: &mut Reader<'_>) -> Result<Route, Malformed> {
    match from.byte()? {
        0 => Ok(Route::Live),
        1 => Ok(Route::Reply),
        2 => push_route(from).map(Route::Push),
        _ => Err(Malformed::Tag),
    }
}

pub(super) fn put_push_route(to: &mut Vec<u8>, route: &PushRoute) {
    put_text(to, &route.channel);
    put_text(to, &route.account);
    put_text(to, &route.chat);
    put_option(to, route.thread.as_deref(), put_text);
}

pub(super) fn push_route(from: &mut Reader<'_>) -> Result<PushRoute, Malformed> {
    Ok(PushRoute {
        channel: from.shared()?,
        account: from.shared()?,
        chat: from.shared()?,
        thread: from.option(Reader::shared)?,
    })
}
