//! Rows of the outbox and dead letters.

use std::sync::Arc;
use std::time::Duration;

use domain::ids::{DeliveryId, LetterId};
use protocol::journal::*;
use protocol::supervision::EventName;
use protocol::turn::{PushRoute, Route};

use super::machine::*;
use crate::call::Call;
use crate::outgoing::{Outgoing, Step};

pub fn push(chat: &str) -> PushRoute {
    PushRoute { channel: "webhook".into(), account: "a".into(), chat: chat.into(), thread: None }
}

pub fn out(n: u64, part: u32, chat: &str, text: &str) -> Out {
    let id = DeliveryId { turn: turn(n), n: part };
    Out { id, turn: id.turn, route: push(chat), parts: 2, text: text.into() }
}

fn delivery(n: u64, part: u32) -> DeliveryId {
    DeliveryId { turn: turn(n), n: part }
}

impl Machine {
    pub fn step(&mut self, id: DeliveryId, step: Step) {
        self.ask(|reply| Call::Outgoing(Outgoing::Step(id, step, reply)));
    }

    pub fn outbox(&mut self) -> Vec<OutRow> {
        self.rows("webhook", usize::MAX, usize::MAX).rows
    }

    fn rows(&mut self, channel: &str, rows_max: usize, bytes_max: usize) -> Rows {
        let ask = AskRows { channel: channel.into(), rows_max, bytes_max };
        self.ask(|reply| Call::Outgoing(Outgoing::Rows(ask, reply)))
    }

    fn letter(&mut self, id: LetterId) -> Option<LetterDetail> {
        self.ask(|reply| Call::Outgoing(Outgoing::Letter(id, reply)))
    }

    fn drop_letter(&mut self, id: LetterId) -> bool {
        self.ask(|reply| Call::Outgoing(Outgoing::Drop(id, reply)))
    }

    fn redeliver(&mut self, id: LetterId) -> Option<OutRow> {
        self.ask(|reply| Call::Outgoing(Outgoing::Redeliver(id, reply)))
    }

    fn letters(&mut self) -> Vec<DeadLetter> {
        self.ask(Call::DeadLetters)
    }

    /// Accepts message `n` of `name` and ends its turn.
    fn answer(&mut self, name: &str, n: u64, end: TurnEnd, out: Vec<Out>) {
        let mut message = message(name, n, &format!("m{n}"), format!("body of {n}").as_bytes());
        message.route = Route::Push(push(name));
        assert!(matches!(self.enqueue(message), Enqueued::Accepted { .. }));
        let loaded = self.load(&key(name));
        let mut end_it = commit(&key(name), loaded.session, loaded.epoch, loaded.next_commit);
        end_it.ended = vec![(turn(n), end)];
        end_it.out = out;
        assert_eq!(self.commit(end_it), CommitOutcome::Done);
    }

    /// Fills segments until everything older was copied forward.
    fn roll_on(&mut self, segments: u64) {
        let until = self.engine.log.active.header.number + segments;
        let loaded = self.load(&key("filler"));
        let mut number = loaded.next_commit;
        while self.engine.log.active.header.number < until {
            let mut filler = commit(&key("filler"), loaded.session, loaded.epoch, number);
            filler.ended = vec![(turn(0), TurnEnd::Cancelled { why: "x".repeat(700).into() })];
            assert_eq!(self.commit(filler), CommitOutcome::Done);
            number += 1;
        }
    }
}

fn texts(rows: &[OutRow]) -> Vec<(String, bool)> {
    rows.iter().map(|row| (row.out.text.to_string(), row.sending)).collect()
}

fn shown(rows: &[(&str, bool)]) -> Vec<(String, bool)> {
    rows.iter().map(|(text, sending)| ((*text).to_owned(), *sending)).collect()
}

#[test]
fn rows_come_with_the_commit_and_stay_until_they_are_sent() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.answer("a", 1, TurnEnd::Done, vec![out(1, 1, "a", "one"), out(1, 2, "a", "two")]);
    machine.answer("b", 2, TurnEnd::Done, vec![out(2, 1, "b", "three")]);
    let given = machine.rows.0.lock().unwrap().clone();
    assert_eq!(given, machine.outbox());
    assert_eq!(texts(&given), shown(&[("one", false), ("two", false), ("three", false)]));
    assert_eq!(given[0].key, key("a"));
    assert_eq!((machine.status().outbox, machine.status().oldest_out_ms), (3, Some(given[0].committed_ms)));
    machine.step(delivery(1, 1), Step::Sending);
    machine.step(delivery(1, 1), Step::Sent);
    machine.step(delivery(2, 1), Step::Sending);
    // What is not open any more, or never was, changes nothing.
    machine.step(delivery(1, 1), Step::Sending);
    machine.step(delivery(9, 9), Step::Undeliverable("gone".into()));
    for _ in 0..2 {
        assert_eq!(texts(&machine.outbox()), shown(&[("two", false), ("three", true)]));
        assert!(machine.letters().is_empty());
        machine = machine.kill();
    }
    assert!(machine.rows.0.lock().unwrap().is_empty(), "what recovery finds is asked for, not handed over");
}

#[test]
fn channels_with_open_rows_are_known_whoever_has_them() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    let channels = |machine: &mut Machine| machine.ask(|reply| Call::Outgoing(Outgoing::Channels(reply)));
    assert!(channels(&mut machine).is_empty());
    let to = |n: u64, channel: &str| {
        let out = out(n, 1, "a", "hi");
        Out { route: PushRoute { channel: channel.into(), ..out.route }, ..out }
    };
    for (n, channel) in [(1, "webhook"), (2, "gone"), (3, "webhook")] {
        machine.answer("a", n, TurnEnd::Done, vec![to(n, channel)]);
    }
    let mut machine = machine.kill();
    assert_eq!(channels(&mut machine), ["gone".into(), "webhook".into()] as [Arc<str>; 2]);
    machine.step(delivery(2, 1), Step::Undeliverable("too old".into()));
    assert_eq!(channels(&mut machine), ["webhook".into()] as [Arc<str>; 1]);
}

#[test]
fn the_oldest_rows_of_a_channel_come_up_to_a_bound() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    let mut other = out(1, 2, "a", "other");
    other.route.channel = "own".into();
    machine.answer("a", 1, TurnEnd::Done, vec![out(1, 1, "a", "one"), other, out(1, 3, "a", "two")]);
    machine.answer("b", 2, TurnEnd::Done, vec![out(2, 1, "b", "three")]);
    for (channel, rows_max, bytes_max, wanted, left) in [
        ("webhook", 9, 10_000, vec!["one", "two", "three"], 0),
        ("webhook", 2, 10_000, vec!["one", "two"], 1),
        ("webhook", 9, 0, vec!["one"], 2),
        ("webhook", 9, 300, vec!["one", "two"], 1),
        ("own", 1, 10_000, vec!["other"], 0),
        ("gone", 9, 10_000, vec![], 0),
    ] {
        let rows = machine.rows(channel, rows_max, bytes_max);
        let found: Vec<&str> = rows.rows.iter().map(|row| &*row.out.text).collect();
        assert_eq!((found, rows.left), (wanted, left), "{channel} {rows_max} {bytes_max}");
    }
}

#[test]
fn rows_keep_their_order_when_they_are_copied_forward() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.answer("a", 1, TurnEnd::Done, vec![out(1, 1, "a", "one"), out(1, 2, "a", "two")]);
    machine.step(delivery(1, 2), Step::Sending);
    machine.roll_on(3);
    machine.answer("a", 2, TurnEnd::Done, vec![out(2, 1, "a", "three")]);
    let committed: Vec<_> = machine.outbox().iter().map(|row| row.committed_ms).collect();
    let wanted = shown(&[("one", false), ("two", true), ("three", false)]);
    for _ in 0..4 {
        machine.clock.advance(Duration::from_secs(60));
        machine.roll_on(6);
        assert!(machine.engine.log.older.len() <= 6, "nothing pins the log");
        assert_eq!(texts(&machine.outbox()), wanted);
        machine = machine.kill();
        assert_eq!(texts(&machine.outbox()), wanted);
    }
    assert_eq!(machine.outbox().iter().map(|row| row.committed_ms).collect::<Vec<_>>(), committed);
}

#[test]
fn an_undeliverable_row_is_kept_and_can_be_opened_again() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.answer("a", 1, TurnEnd::Done, vec![out(1, 1, "a", "one"), out(1, 2, "a", "two")]);
    machine.step(delivery(1, 1), Step::Sending);
    machine.step(delivery(1, 1), Step::Undeliverable("410".into()));
    assert_eq!(texts(&machine.outbox()), shown(&[("two", false)]));
    let id = LetterId::Delivery(delivery(1, 1));
    for _ in 0..3 {
        let letters = machine.letters();
        assert_eq!(letters.len(), 1);
        assert_eq!((letters[0].id, letters[0].kind, &*letters[0].reason), (id, LetterKind::Delivery, "410"));
        assert_eq!((letters[0].channel.as_deref(), &letters[0].message_id), (Some("webhook"), &None));
        let LetterContent::Row(row) = machine.letter(id).unwrap().content else { panic!("it is a delivery") };
        assert_eq!(&*row.out.text, "one");
        machine.roll_on(12);
        machine = machine.kill();
    }
    machine.rows.0.lock().unwrap().clear();
    machine.clock.advance(Duration::from_secs(60));
    let row = machine.redeliver(id).unwrap();
    assert_eq!(machine.rows.0.lock().unwrap().as_slice(), std::slice::from_ref(&row));
    assert!(!row.sending);
    assert!(machine.letters().is_empty());
    assert_eq!(machine.redeliver(id), None);
    for _ in 0..2 {
        assert_eq!(texts(&machine.outbox()), shown(&[("two", false), ("one", false)]));
        assert!(machine.letter(id).is_none());
        machine.roll_on(12);
        machine = machine.kill();
    }
}

#[test]
fn a_dead_turn_keeps_its_message_until_it_is_retried_or_dropped() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.answer("a", 1, TurnEnd::Dead { reason: "crashes".into() }, Vec::new());
    machine.answer("b", 2, TurnEnd::Dead { reason: "crashes".into() }, Vec::new());
    let (first, second) = (LetterId::Turn(turn(1)), LetterId::Turn(turn(2)));
    let mut body: Arc<[u8]> = Arc::from([]);
    for _ in 0..3 {
        assert_eq!(machine.letters().iter().map(|letter| letter.id).collect::<Vec<_>>(), [first, second]);
        let detail = machine.letter(first).unwrap();
        let LetterContent::Message(message) = detail.content else { panic!("it is a message") };
        assert_eq!(detail.letter.message_id.as_ref(), Some(&message.message_id));
        assert_eq!((&*message.body, &message.route), (b"body of 1".as_slice(), &Route::Push(push("a"))));
        body = message.body.clone();
        machine.roll_on(12);
        machine = machine.kill();
    }
    assert_eq!(machine.redeliver(first), None, "a turn is no delivery");
    let mut retry = message("a", 3, "again", &body);
    retry.retry_of = Some(turn(1));
    assert!(matches!(machine.enqueue(retry), Enqueued::Accepted { .. }));
    assert!(machine.letter(first).is_none());
    assert!(machine.drop_letter(second));
    assert!(!machine.drop_letter(second));
    for _ in 0..2 {
        assert!(machine.letters().is_empty());
        machine.roll_on(12);
        machine = machine.kill();
    }
    assert_eq!(machine.load(&key("a")).inbox[0].turn, turn(3));
}

/// A letter that was copied forward once lies behind a younger one that was not: both have to be copied the next time.
#[test]
fn letters_are_copied_forward_whatever_their_order() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    let died = || TurnEnd::Dead { reason: "crashes".into() };
    machine.answer("a", 1, died(), Vec::new());
    machine.roll_on(3);
    machine.answer("b", 2, died(), Vec::new());
    for _ in 0..12 {
        machine.roll_on(2);
        machine = machine.kill();
        let ids: Vec<_> = machine.letters().iter().map(|letter| letter.id).collect();
        assert_eq!(ids, [LetterId::Turn(turn(1)), LetterId::Turn(turn(2))]);
    }
}

#[test]
fn the_oldest_letters_leave_when_they_take_too_much() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    for n in 1..=30 {
        let row = out(n, 1, "a", &"x".repeat(8000));
        machine.clock.advance(Duration::from_secs(1));
        machine.answer("a", n, TurnEnd::Done, vec![row]);
        machine.step(delivery(n, 1), Step::Undeliverable("410".into()));
    }
    let kept = machine.letters();
    assert!((10..=16).contains(&kept.len()), "an eighth of 1 MiB: {}", kept.len());
    assert_eq!(kept.last().unwrap().turn, turn(30));
    let shed = machine.events.named(EventName::LetterShed);
    let left = shed.iter().map(|event| LetterId::Delivery(event.delivery.unwrap()));
    let all: Vec<_> = left.chain(kept.iter().map(|letter| letter.id)).collect();
    assert_eq!(all, (1..=30).map(|n| LetterId::Delivery(delivery(n, 1))).collect::<Vec<_>>());
    assert!(shed.iter().all(|event| event.lost.contains("dead letter") && event.turn.is_some()));
    assert_eq!(machine.kill().letters(), kept);
}

#[test]
fn quarantines_are_counted_for_the_next_start() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let quarantine = Quarantine { key: key("a"), until_ms: 0, times: 4, reason: "crashes".into(), turn: None };
    machine.ask(|reply| Call::Quarantine(quarantine, reply));
    let mut machine = machine.kill();
    let found = machine.ask(Call::Unfinished);
    assert_eq!((found[0].quarantined_until_ms, found[0].quarantined_times), (None, 4));
}
