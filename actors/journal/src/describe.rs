//! Records in words, for `greenroom journal show` and for what a repair cannot keep. **Invariant:** pure; what was said
//! is only told when it is asked for.

use domain::body::TurnBody;
use domain::chat::plain_text;
use domain::ids::{LetterId, SessionId, SessionKey, TurnId};
use protocol::journal::{Accepted, Closes, Commit, Line, Move, Out, TurnEnd};
use serde_json::{Map, Value, json};

use crate::record::{Content, Record};

/// One record in words.
#[derive(Debug, Clone, PartialEq)]
pub struct Described {
    /// What sort of record.
    pub kind: &'static str,
    /// Session.
    pub key: Option<SessionKey>,
    /// Turns that it is about.
    pub turns: Vec<TurnId>,
    /// The rest.
    pub about: Map<String, Value>,
}

/// Describes `record`; `content`: with what was said.
pub fn describe(record: &Record, content: bool) -> Described {
    match record {
        Record::Accepted { key, message } => {
            described("accepted", key, [message.turn], about_message(message, content))
        }
        Record::Carried { key, message } => described("carried", key, [message.turn], about_message(message, content)),
        Record::Commit { commit, at_ms, endings: _ } => {
            let own = commit.ended.iter().map(|(turn, _)| *turn).chain(commit.started.map(|started| started.turn));
            let turns: Vec<_> = own.chain(commit.out.iter().map(|out| out.turn)).collect();
            described("commit", &commit.key, turns, about_commit(commit, *at_ms, content))
        }
        Record::Epoch { key, session, epoch } => {
            described("epoch", key, [], json!({"epoch": epoch, "session_id": session}))
        }
        Record::Quarantined(quarantine) => {
            let about =
                json!({"until_ms": quarantine.until_ms, "times": quarantine.times, "reason": quarantine.reason});
            described("quarantined", &quarantine.key, quarantine.turn, about)
        }
        Record::Released { key } => described("released", key, [], json!({})),
        Record::ViewSynced { key, session, commit, mark } => {
            described("view_synced", key, [], json!({"commit": commit, "length": mark.length, "session_id": session}))
        }
        Record::Key(record) => {
            let numbers = json!({
                "epoch": record.epoch, "next_seq": record.next_seq, "next_commit": record.next_commit,
                "view_commit": record.view_commit, "closed": record.closed,
            });
            described("key", &record.key, record.started.map(|started| started.turn), numbers)
        }
        Record::Lines { key, session, commit, lines } => {
            let about = json!({"commit": commit, "session_id": session, "lines": about_lines(lines, content)});
            described("lines", key, [], about)
        }
        Record::Moving(moving) => described("moving", &moving.key, [], about_move(moving.session, moving.place)),
        Record::Moved { key, session } => described("moved", key, [], json!({"session_id": session})),
        Record::Forgotten { key } => described("forgotten", key, [], json!({})),
        Record::Checkpoint { oldest, floors: _ } => nobody("checkpoint", None, json!({"oldest_segment": oldest})),
        Record::Left(by) => nobody("left", None, json!({"by": by})),
        Record::Letter { .. }
        | Record::Sending(_)
        | Record::Sent(_)
        | Record::Undeliverable { .. }
        | Record::Row { .. }
        | Record::LetterClosed(_) => describe_outgoing(record, content),
    }
}

fn describe_outgoing(record: &Record, content: bool) -> Described {
    if let Record::Sending(id) = record {
        nobody("sending", Some(id.turn), json!({"delivery": id}))
    } else if let Record::Sent(id) = record {
        nobody("sent", Some(id.turn), json!({"delivery": id}))
    } else if let Record::Undeliverable { id, reason, at_ms } = record {
        nobody("undeliverable", Some(id.turn), json!({"delivery": id, "reason": reason, "at_ms": at_ms}))
    } else if let Record::Row { row, place } = record {
        let mut about = about_out(&row.out, content);
        about["sending"] = row.sending.into();
        about["again"] = place.is_none().into();
        described("row", &row.key, [row.out.turn], about)
    } else if let Record::Letter { letter, content: kept } = record {
        let mut about = json!({"letter": letter.id, "reason": letter.reason, "at_ms": letter.at_ms});
        about["content"] = match kept {
            None => Value::Null,
            Some(Content::Message(message)) => about_message(message, content),
            Some(Content::Row(row)) => about_out(&row.out, content),
        };
        described("dead_letter", &letter.key, [letter.turn], about)
    } else if let Record::LetterClosed(id) = record {
        let (LetterId::Turn(turn) | LetterId::Delivery(domain::ids::DeliveryId { turn, .. })) = *id;
        nobody("letter_closed", Some(turn), json!({"letter": id}))
    } else {
        nobody("record", None, json!({}))
    }
}

fn described(kind: &'static str, key: &SessionKey, turns: impl IntoIterator<Item = TurnId>, about: Value) -> Described {
    Described { key: Some(key.clone()), ..nobody(kind, turns, about) }
}

fn nobody(kind: &'static str, turns: impl IntoIterator<Item = TurnId>, about: Value) -> Described {
    let about = if let Value::Object(about) = about { about } else { Map::new() };
    Described { kind, key: None, turns: turns.into_iter().collect(), about }
}

fn about_message(message: &Accepted, content: bool) -> Value {
    let mut about = json!({
        "seq": message.seq, "source": message.source, "message_id": message.message_id, "route": message.route,
        "accepted_ms": message.accepted_ms, "bytes": message.body.len(),
    });
    if let Some(dead) = message.retry_of {
        about["retry_of"] = json!(dead);
    }
    if content {
        let text = TurnBody::decode(&message.body).map(|body| plain_text(&body.content));
        about["text"] = text.map_or(Value::Null, Value::from);
    }
    about
}

fn about_move(session: SessionId, place: Move) -> Value {
    json!({"session_id": session, "to": place.to, "at_ms": place.at_ms})
}

fn about_commit(commit: &Commit, at_ms: u64, content: bool) -> Value {
    let end = |(turn, end): &(TurnId, TurnEnd)| match end {
        TurnEnd::Done => json!({"turn": turn, "end": "done"}),
        TurnEnd::Dead { reason } => json!({"turn": turn, "end": "dead", "reason": reason}),
        TurnEnd::Cancelled { why } => json!({"turn": turn, "end": "cancelled", "reason": why}),
        TurnEnd::Joined { into } => json!({"turn": turn, "end": "joined", "into": into}),
    };
    let mut about =
        json!({"number": commit.number, "epoch": commit.epoch, "at_ms": at_ms, "session_id": commit.session});
    let mut add = |name: &str, value: Value, there: bool| {
        if there {
            about[name] = value;
        }
    };
    add("lines", about_lines(&commit.lines, content), !commit.lines.is_empty());
    add("ended", commit.ended.iter().map(end).collect(), !commit.ended.is_empty());
    add("tools_started", json!(commit.tools_started), !commit.tools_started.is_empty());
    add("out", commit.out.iter().map(|out| about_out(out, content)).collect(), !commit.out.is_empty());
    add("attempt", json!(commit.started.map(|started| started.attempt)), commit.started.is_some());
    add("interrupted", true.into(), commit.interrupted);
    add("closes_session", true.into(), commit.closes.is_some());
    if let Some(Closes::Moves(place)) = commit.closes {
        add("moves_to", json!(place.to), true);
    }
    about
}

fn about_lines(lines: &[Line], content: bool) -> Value {
    let one = |line: &Line| match content {
        true => json!({"id": line.id, "text": line.text}),
        false => json!({"id": line.id, "bytes": line.text.len()}),
    };
    lines.iter().map(one).collect()
}

fn about_out(out: &Out, content: bool) -> Value {
    let mut about = json!({"delivery": out.id, "route": out.route, "bytes": out.text.len()});
    if content {
        about["text"] = json!(out.text);
    }
    about
}
