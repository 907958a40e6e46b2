use proptest::prelude::*;
use uuid::Uuid;

use super::*;

fn text(bytes: usize) -> impl Strategy<Value = Arc<str>> {
    prop::collection::vec(any::<char>(), 0..bytes).prop_map(|text| text.into_iter().collect::<String>().into())
}

fn key() -> impl Strategy<Value = SessionKey> {
    "[a-z]{1,9}:[a-z0-9é]{1,30}".prop_map(|text| SessionKey::new(&text).unwrap())
}

fn turn() -> impl Strategy<Value = TurnId> {
    any::<u128>().prop_map(|id| TurnId(Uuid::from_u128(id)))
}

fn session() -> impl Strategy<Value = SessionId> {
    any::<u128>().prop_map(|id| SessionId(Uuid::from_u128(id)))
}

fn message_id() -> impl Strategy<Value = MessageId> {
    "[ -~]{1,40}".prop_map(|text| MessageId::new(&text).unwrap())
}

fn started() -> impl Strategy<Value = Started> {
    (turn(), any::<(u32, u32, u32, bool)>()).prop_map(|(turn, (attempt, crashes, deaths, alone))| Started {
        turn,
        attempt: Attempt(attempt),
        crashes,
        deaths,
        alone,
    })
}

fn lines() -> impl Strategy<Value = Vec<Line>> {
    prop::collection::vec((text(9), text(60)).prop_map(|(id, text)| Line { id, text }), 0..4)
}

fn calls() -> impl Strategy<Value = Vec<ToolCallId>> {
    prop::collection::vec(text(12).prop_map(ToolCallId), 0..4)
}

fn mark() -> impl Strategy<Value = ViewMark> {
    (any::<u64>(), prop::option::of(text(16))).prop_map(|(length, last_entry)| ViewMark { length, last_entry })
}

fn message() -> impl Strategy<Value = (SessionKey, Arc<Accepted>)> {
    let ids = (key(), turn(), message_id(), prop::option::of(turn()));
    (ids, any::<(u64, u64, u64, bool)>(), prop::collection::vec(any::<u8>(), 0..200)).prop_map(
        |((key, turn, message_id, retry_of), (seq, body_hash, accepted_ms, live), body)| {
            let message = Accepted {
                turn,
                seq: Seq(seq),
                source: Source::new("ws").unwrap(),
                message_id,
                body_hash,
                route: if live { Route::Live } else { Route::Reply },
                body: body.into(),
                accepted_ms,
                retry_of,
            };
            (key, Arc::new(message))
        },
    )
}

fn end() -> impl Strategy<Value = TurnEnd> {
    prop_oneof![
        Just(TurnEnd::Done),
        text(20).prop_map(|reason| TurnEnd::Dead { reason }),
        text(20).prop_map(|why| TurnEnd::Cancelled { why }),
    ]
}

fn commit() -> impl Strategy<Value = Record> {
    let ids = (key(), session(), prop::option::of(started()));
    let ending = (any::<u128>(), any::<u64>(), prop::option::of(message_id()))
        .prop_map(|(id, body_hash, message_id)| Ending { id, body_hash, message_id });
    let ended = ((turn(), end()), prop::option::of(ending));
    let lists = (lines(), calls(), prop::collection::vec(ended, 0..4));
    (ids, lists, any::<(u64, u64, u64, bool, bool)>()).prop_map(
        |((key, session, started), (lines, tools_started, ended), (epoch, number, at_ms, interrupted, closes))| {
            let (ended, endings) = ended.into_iter().unzip();
            let commit = Commit {
                key,
                session,
                epoch: Epoch(epoch),
                number,
                lines,
                tools_started,
                ended,
                started,
                interrupted,
                closes_session: closes,
            };
            Record::Commit { commit: Box::new(commit), at_ms, endings }
        },
    )
}

fn key_record() -> impl Strategy<Value = Record> {
    let left = prop_oneof![Just(LeftBy::Crash), Just(LeftBy::Death), Just(LeftBy::Interrupted)];
    let ended = (any::<(u64, u128, u64)>(), turn()).prop_map(|((commit, id, body_hash), turn)| EndedId {
        commit,
        id,
        turn,
        body_hash,
    });
    let about = (key(), prop::option::of(session()), mark(), any::<(u64, u64, u64, u64, bool)>());
    let first = (prop::option::of(started()), prop::option::of(left), calls());
    let rest = (prop::option::of((any::<u64>(), any::<u32>(), text(9))), prop::collection::vec(ended, 0..4));
    (about, first, rest).prop_map(
        |((key, session, view, (epoch, seq, next_commit, view_commit, closed)), (started, left, tools), rest)| {
            Record::Key(Box::new(KeyRecord {
                key,
                session,
                epoch: Epoch(epoch),
                next_seq: Seq(seq),
                next_commit,
                view_commit,
                view,
                started,
                left,
                tools,
                quarantine: rest.0,
                ended: rest.1,
                closed,
            }))
        },
    )
}

fn record() -> impl Strategy<Value = Record> {
    let letter =
        (turn(), key(), message_id(), text(30), any::<u64>()).prop_map(|(turn, key, message_id, reason, at_ms)| {
            Record::Letter(DeadLetter { turn, key, message_id, reason, at_ms })
        });
    prop_oneof![
        message().prop_map(|(key, message)| Record::Accepted { key, message }),
        message().prop_map(|(key, message)| Record::Carried { key, message }),
        commit(),
        key_record(),
        letter,
        (key(), session(), any::<u64>()).prop_map(|(key, session, epoch)| Record::Epoch {
            key,
            session,
            epoch: Epoch(epoch)
        }),
        (key(), any::<(u64, u32)>(), text(9)).prop_map(|(key, (until_ms, times), reason)| {
            Record::Quarantined(Quarantine { key, until_ms, times, reason })
        }),
        key().prop_map(|key| Record::Released { key }),
        key().prop_map(|key| Record::Forgotten { key }),
        (key(), session(), any::<u64>(), mark()).prop_map(|(key, session, commit, mark)| Record::ViewSynced {
            key,
            session,
            commit,
            mark
        }),
        (key(), session(), any::<u64>(), lines()).prop_map(|(key, session, commit, lines)| Record::Lines {
            key,
            session,
            commit,
            lines
        }),
        any::<(u64, u64, u64)>().prop_map(|(oldest, epoch, seq)| Record::Checkpoint {
            oldest,
            floors: Floors { epoch: Epoch(epoch), seq: Seq(seq) }
        }),
    ]
}

proptest! {
    #[test]
    fn comes_back_as_written(record in record()) {
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        let back = Record::decode(record.kind(), &bytes).unwrap();
        prop_assert_eq!(format!("{back:?}"), format!("{record:?}"));
        for cut in 0..bytes.len() {
            prop_assert!(Record::decode(record.kind(), &bytes[..cut]).is_err());
        }
    }

    #[test]
    fn arbitrary_bytes_never_panic(kind in 0u8..16, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Record::decode(kind, &bytes);
    }

    #[test]
    fn a_changed_byte_never_panics(record in record(), at: prop::sample::Index, byte: u8) {
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        let at = at.index(bytes.len());
        bytes[at] = byte;
        let _ = Record::decode(record.kind(), &bytes);
    }
}

#[test]
fn an_unknown_type_is_not_skipped() {
    assert_eq!(Record::decode(13, &[]).unwrap_err(), BadRecord::UnknownKind(13));
    assert_eq!(Record::decode(5, &[1, b'a', 0]).unwrap_err(), BadRecord::Malformed(Malformed::Long));
}
