use domain::ids::{Attempt, Source};
use proptest::prelude::*;
use protocol::journal::{Closes, LetterKind, Move, Out, Shelf, TurnEnd};
use protocol::turn::{PushRoute, Route};
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
    let route = prop_oneof![Just(Route::Live), Just(Route::Reply), push_route().prop_map(Route::Push)];
    let ids = (key(), turn(), message_id(), prop::option::of(turn()), route);
    (ids, any::<(u64, u64, u64)>(), prop::collection::vec(any::<u8>(), 0..200)).prop_map(
        |((key, turn, message_id, retry_of, route), (seq, body_hash, accepted_ms), body)| {
            let message = Accepted {
                turn,
                seq: Seq(seq),
                source: Source::new("ws").unwrap(),
                message_id,
                body_hash,
                route,
                body: body.into(),
                accepted_ms,
                retry_of,
            };
            (key, Arc::new(message))
        },
    )
}

fn push_route() -> impl Strategy<Value = PushRoute> {
    (text(9), text(9), text(20), prop::option::of(text(9))).prop_map(|(channel, account, chat, thread)| PushRoute {
        channel,
        account,
        chat,
        thread,
    })
}

fn delivery_id() -> impl Strategy<Value = DeliveryId> {
    (turn(), any::<u32>()).prop_map(|(turn, n)| DeliveryId { turn, n })
}

fn out() -> impl Strategy<Value = Out> {
    (delivery_id(), push_route(), any::<u32>(), text(60)).prop_map(|(id, route, parts, text)| Out {
        id,
        turn: id.turn,
        route,
        parts,
        text,
    })
}

fn out_row() -> impl Strategy<Value = OutRow> {
    (out(), key(), any::<(u64, bool)>()).prop_map(|(out, key, (committed_ms, sending))| OutRow {
        out,
        key,
        committed_ms,
        sending,
    })
}

fn letter() -> impl Strategy<Value = Record> {
    let turn = (turn(), message_id(), prop::option::of(message())).prop_map(|(turn, id, message)| {
        (LetterId::Turn(turn), LetterKind::Turn, turn, Some(id), None, message.map(|(_, it)| Content::Message(it)))
    });
    let delivery = (delivery_id(), text(9), prop::option::of(out_row())).prop_map(|(id, channel, row)| {
        (
            LetterId::Delivery(id),
            LetterKind::Delivery,
            id.turn,
            None,
            Some(channel),
            row.map(|row| Content::Row(Box::new(row))),
        )
    });
    (prop_oneof![turn, delivery], key(), text(30), any::<u64>()).prop_map(
        |((id, kind, turn, message_id, channel, content), key, reason, at_ms)| {
            let letter = DeadLetter { id, kind, turn, key, message_id, channel, reason, at_ms };
            Record::Letter { letter: Box::new(letter), content }
        },
    )
}

fn row() -> impl Strategy<Value = Record> {
    (out_row(), prop::option::of(any::<(u64, u32)>())).prop_map(|(row, place)| Record::Row {
        row: Box::new(row),
        place: place.map(|(at, n)| RowPlace { at: LogPosition(at), n }),
    })
}

fn end() -> impl Strategy<Value = TurnEnd> {
    prop_oneof![
        Just(TurnEnd::Done),
        text(20).prop_map(|reason| TurnEnd::Dead { reason }),
        text(20).prop_map(|why| TurnEnd::Cancelled { why }),
        turn().prop_map(|into| TurnEnd::Joined { into }),
    ]
}

fn place() -> impl Strategy<Value = Move> {
    (prop_oneof![Just(Shelf::Archive), Just(Shelf::Deleted)], any::<u64>()).prop_map(|(to, at_ms)| Move { to, at_ms })
}

fn closes() -> impl Strategy<Value = Option<Closes>> {
    prop_oneof![Just(None), Just(Some(Closes::Moved)), place().prop_map(|place| Some(Closes::Moves(place)))]
}

fn commit() -> impl Strategy<Value = Record> {
    let ids = (key(), session(), prop::option::of(started()));
    let ending = (any::<u128>(), any::<u64>(), prop::option::of(message_id()))
        .prop_map(|(id, body_hash, message_id)| Ending { id, body_hash, message_id });
    let ended = ((turn(), end()), prop::option::of(ending));
    let lists = (lines(), calls(), prop::collection::vec(ended, 0..4), prop::collection::vec(out(), 0..3));
    (ids, lists, (any::<(u64, u64, u64, bool)>(), closes())).prop_map(
        |(
            (key, session, started),
            (lines, tools_started, ended, out),
            ((epoch, number, at_ms, interrupted), closes),
        )| {
            let (ended, endings) = ended.into_iter().unzip();
            let commit = Commit {
                key,
                session,
                epoch: Epoch(epoch),
                number,
                lines,
                tools_started,
                ended,
                out,
                started,
                interrupted,
                closes,
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
    prop_oneof![
        message().prop_map(|(key, message)| Record::Accepted { key, message }),
        message().prop_map(|(key, message)| Record::Carried { key, message }),
        commit(),
        key_record(),
        letter(),
        row(),
        delivery_id().prop_map(Record::Sending),
        delivery_id().prop_map(Record::Sent),
        (delivery_id(), text(30), any::<u64>()).prop_map(|(id, reason, at_ms)| Record::Undeliverable {
            id,
            reason,
            at_ms
        }),
        prop_oneof![turn().prop_map(LetterId::Turn), delivery_id().prop_map(LetterId::Delivery)]
            .prop_map(Record::LetterClosed),
        (key(), session(), any::<u64>()).prop_map(|(key, session, epoch)| Record::Epoch {
            key,
            session,
            epoch: Epoch(epoch)
        }),
        (key(), any::<(u64, u32)>(), text(9), proptest::option::of(turn())).prop_map(
            |(key, (until_ms, times), reason, turn)| {
                Record::Quarantined(Quarantine { key, until_ms, times, reason, turn })
            }
        ),
        prop_oneof![Just(LeftBy::Death), Just(LeftBy::Interrupted)].prop_map(Record::Left),
        key().prop_map(|key| Record::Released { key }),
        key().prop_map(|key| Record::Forgotten { key }),
        (key(), session(), place(), mark()).prop_map(|(key, session, place, view)| Record::Moving(Box::new(Moving {
            key,
            session,
            place,
            view,
            lines: Vec::new()
        }))),
        (key(), session()).prop_map(|(key, session)| Record::Moved { key, session }),
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
    fn arbitrary_bytes_never_panic(kind in 0u8..29, bytes in prop::collection::vec(any::<u8>(), 0..300)) {
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
    assert_eq!(Record::decode(28, &[]).unwrap_err(), BadRecord::UnknownKind(28));
    assert_eq!(Record::decode(5, &[1, b'a', 0]).unwrap_err(), BadRecord::Malformed(Malformed::Long));
}

#[test]
fn a_turn_that_joined_another_is_in_a_record_that_an_older_program_refuses() {
    let Record::Commit { commit, at_ms, endings } = of_the_first_version(2) else { panic!("it is one") };
    let place = Move { to: Shelf::Archive, at_ms: 9 };
    for closes in [None, Some(Closes::Moved), Some(Closes::Moves(place))] {
        let mut commit = Commit { closes, ..(*commit).clone() };
        commit.ended[1].1 = TurnEnd::Joined { into: commit.ended[0].0 };
        let record = Record::Commit { commit: Box::new(commit), at_ms, endings: endings.clone() };
        let mut bytes = Vec::new();
        record.put(&mut bytes);
        assert_eq!(record.kind(), 27);
        for older in [2, 13, 24] {
            let refused = Record::decode(older, &bytes).unwrap_err();
            assert_eq!(refused, BadRecord::Malformed(Malformed::Tag), "{older}");
        }
        assert_eq!(format!("{:?}", Record::decode(27, &bytes).unwrap()), format!("{record:?}"));
    }
}

/// Each record as the first version wrote it, before there were push routes, rows and letters with contents.
#[rustfmt::skip]
const OF_THE_FIRST_VERSION: [(u8, &str); 12] = [
    (1, "0477733a610000000000000000000000000000000102027773026d314d0000000000000000e807000568656c6c6f"),
    (2, "0477733a61000000000000000000000000000000050304d00f0100010000000000000000000000000000000102010301010263310300000000000000000000000000000001000108000000000000000000000000000000090000000000000000000000000000000000000000000000020103776879010a0000000000000000000000000000000b0000000000000001026d3200000000000000000000000000000003020473746f700001026531027b7d"),
    (3, "0477733a610000000000000000000000000000000503"),
    (4, "0477733a61b817020763726173686573"),
    (5, "0477733a61"),
    (6, "0477733a610000000000000000000000000000000504ac0201026531"),
    (7, "0477733a61010000000000000000000000000000000503040504ac020001000000000000000000000000000000010201030101020102633101b81702046c6f616401040800000000000000000000000000000000000000000000000000000000000001090000000000000001"),
    (8, "0477733a610000000000000000000000000000000102027773026d314d0000000000000001e80701000000000000000000000000000000090568656c6c6f"),
    (9, "0477733a61000000000000000000000000000000050401026531027b7d"),
    (10, "000000000000000000000000000000020477733a61026d3203776879d00f"),
    (11, "0477733a61"),
    (12, "060102"),
];

#[expect(clippy::too_many_lines, reason = "one record of each kind")]
fn of_the_first_version(kind: u8) -> Record {
    let key = SessionKey::new("ws:a").unwrap();
    let turn = |n: u128| TurnId(Uuid::from_u128(n));
    let session = SessionId(Uuid::from_u128(5));
    let id = |text: &str| MessageId::new(text).unwrap();
    let started = Started { turn: turn(1), attempt: Attempt(2), crashes: 1, deaths: 3, alone: true };
    let lines = vec![Line { id: "e1".into(), text: "{}".into() }];
    let message = |live: bool| {
        Arc::new(Accepted {
            turn: turn(1),
            seq: Seq(2),
            source: Source::new("ws").unwrap(),
            message_id: id("m1"),
            body_hash: 77,
            route: if live { Route::Live } else { Route::Reply },
            body: b"hello".to_vec().into(),
            accepted_ms: 1000,
            retry_of: (!live).then(|| turn(9)),
        })
    };
    match kind {
        1 => Record::Accepted { key, message: message(true) },
        2 => {
            let (dead, cancelled) = (TurnEnd::Dead { reason: "why".into() }, TurnEnd::Cancelled { why: "stop".into() });
            let commit = Commit {
                key,
                session,
                epoch: Epoch(3),
                number: 4,
                lines,
                tools_started: vec![ToolCallId("c1".into())],
                ended: vec![(turn(1), TurnEnd::Done), (turn(2), dead), (turn(3), cancelled)],
                out: Vec::new(),
                started: Some(started),
                interrupted: true,
                closes: None,
            };
            let endings = vec![
                Some(Ending { id: 8, body_hash: 9, message_id: None }),
                Some(Ending { id: 10, body_hash: 11, message_id: Some(id("m2")) }),
                None,
            ];
            Record::Commit { commit: Box::new(commit), at_ms: 2000, endings }
        }
        3 => Record::Epoch { key, session, epoch: Epoch(3) },
        4 => Record::Quarantined(Quarantine { key, until_ms: 3000, times: 2, reason: "crashes".into(), turn: None }),
        5 => Record::Released { key },
        6 => {
            let mark = ViewMark { length: 300, last_entry: Some("e1".into()) };
            Record::ViewSynced { key, session, commit: 4, mark }
        }
        7 => Record::Key(Box::new(KeyRecord {
            key,
            session: Some(session),
            epoch: Epoch(3),
            next_seq: Seq(4),
            next_commit: 5,
            view_commit: 4,
            view: ViewMark { length: 300, last_entry: None },
            started: Some(started),
            left: Some(LeftBy::Interrupted),
            tools: vec![ToolCallId("c1".into())],
            quarantine: Some((3000, 2, "load".into())),
            ended: vec![EndedId { commit: 4, id: 8, turn: turn(1), body_hash: 9 }],
            closed: true,
        })),
        8 => Record::Carried { key, message: message(false) },
        9 => Record::Lines { key, session, commit: 4, lines },
        10 => {
            let letter = DeadLetter {
                id: LetterId::Turn(turn(2)),
                kind: LetterKind::Turn,
                turn: turn(2),
                key,
                message_id: Some(id("m2")),
                channel: None,
                reason: "why".into(),
                at_ms: 2000,
            };
            Record::Letter { letter: Box::new(letter), content: None }
        }
        11 => Record::Forgotten { key },
        12 => Record::Checkpoint { oldest: 6, floors: Floors { epoch: Epoch(1), seq: Seq(2) } },
        other => panic!("there was no type {other}"),
    }
}

#[test]
fn what_the_first_version_wrote_is_read() {
    for (kind, hex) in OF_THE_FIRST_VERSION {
        let digits: Vec<_> = hex.bytes().map(|digit| (digit as char).to_digit(16).unwrap() as u8).collect();
        let bytes: Vec<_> = digits.chunks(2).map(|pair| pair[0] << 4 | pair[1]).collect();
        let wanted = of_the_first_version(kind);
        assert_eq!(format!("{:?}", Record::decode(kind, &bytes).unwrap()), format!("{wanted:?}"));
        // It is written the same way still, so that an older program goes on reading it.
        let mut again = Vec::new();
        wanted.put(&mut again);
        if kind != 10 {
            assert_eq!((wanted.kind(), again), (kind, bytes));
        }
    }
}

#[test]
fn an_older_program_refuses_what_it_does_not_know() {
    let known: Vec<_> = OF_THE_FIRST_VERSION.iter().map(|(kind, _)| *kind).collect();
    let Record::Accepted { key, message } = of_the_first_version(1) else { panic!("it is one") };
    let push = PushRoute { channel: "webhook".into(), account: "".into(), chat: "7".into(), thread: None };
    let message = Arc::new(Accepted { route: Route::Push(push.clone()), ..(*message).clone() });
    assert!(!known.contains(&Record::Accepted { key: key.clone(), message: message.clone() }.kind()));
    assert!(!known.contains(&Record::Carried { key, message: message.clone() }.kind()));
    let Record::Commit { mut commit, at_ms, endings } = of_the_first_version(2) else { panic!("it is one") };
    let id = DeliveryId { turn: message.turn, n: 1 };
    commit.out = vec![Out { id, turn: id.turn, route: push, parts: 3, text: "hello".into() }];
    assert!(!known.contains(&Record::Commit { commit, at_ms, endings }.kind()));
}
