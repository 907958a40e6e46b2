//! What is promised, case by case.

use domain::ids::{Attempt, Seq, ToolCallId};
use protocol::journal::*;

use super::machine::*;
use crate::Options;
use crate::call::Call;

fn accepted(seq: u64, position: u32, n: u64, state: AcceptedState) -> Enqueued {
    Enqueued::Accepted { turn: turn(n), seq: Seq(seq), position, state }
}

fn start() -> Machine {
    Machine::start(disk(), tiny()).unwrap()
}

#[test]
fn messages_are_accepted_in_order_and_handed_on_before_the_answer() {
    let mut machine = start();
    assert_eq!(machine.enqueue(message("a", 1, "m1", b"x")), accepted(1, 0, 1, AcceptedState::Running));
    assert_eq!(machine.enqueue(message("a", 2, "m2", b"y")), accepted(2, 1, 2, AcceptedState::Queued));
    assert_eq!(machine.enqueue(message("b", 3, "m1", b"z")), accepted(1, 0, 3, AcceptedState::Running));
    let queued: Vec<_> = machine.sink.0.lock().unwrap().iter().map(|queued| queued.item.turn).collect();
    assert_eq!(queued, [turn(1), turn(2), turn(3)]);
    let status = machine.status();
    assert_eq!((status.accepted, status.open, status.open_bytes), (3, 3, 3));
    assert!(status.writable);
}

#[test]
fn nothing_is_answered_before_the_sync() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let mut second = machine.submit(|reply| Call::Enqueue(message("a", 2, "m2", b"y"), reply.into()));
    let mut twin = machine.submit(|reply| Call::Enqueue(message("a", 9, "m2", b"y"), reply.into()));
    assert!(second.try_recv().is_err());
    assert!(twin.try_recv().is_err(), "a duplicate waits for the first one");
    assert_eq!(machine.sink.0.lock().unwrap().len(), 1);
    machine.settle();
    assert_eq!(second.try_recv().unwrap(), accepted(2, 1, 2, AcceptedState::Queued));
    assert_eq!(twin.try_recv().unwrap(), Enqueued::Duplicate { turn: turn(2), state: DuplicateState::Open });
}

#[test]
fn a_repeated_id_starts_nothing_also_after_a_restart() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    for round in 0..3 {
        let open = Enqueued::Duplicate { turn: turn(1), state: DuplicateState::Open };
        assert_eq!(machine.enqueue(message("a", 2, "m1", b"x")), open, "round {round}");
        assert_eq!(machine.enqueue(message("a", 3, "m1", b"other")), Enqueued::Conflict { turn: turn(1) });
        machine = machine.kill();
    }
    // Ended, and its line is only in the journal.
    let loaded = machine.load(&key("a"));
    let mut end = commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit);
    end.lines = vec![line("1")];
    end.ended = vec![(turn(1), TurnEnd::Done)];
    assert_eq!(machine.commit(end), CommitOutcome::Done);
    let mut machine = machine.kill();
    let ended = Enqueued::Duplicate { turn: turn(1), state: DuplicateState::Ended };
    assert_eq!(machine.enqueue(message("a", 2, "m1", b"x")), ended);
    // Long ago: only the transcript knows it.
    let known = RecentId { idempotency_key: "ws:old".to_owned(), turn: turn(77), body_hash: 5 };
    machine.recent.given.lock().unwrap().insert(key("c"), vec![known]);
    assert_eq!(machine.enqueue(message("c", 4, "old", b"x")), Enqueued::Conflict { turn: turn(77) });
    assert_eq!(machine.enqueue(message("c", 4, "new", b"x")), accepted(1, 0, 4, AcceptedState::Running));
}

#[test]
fn bounds_refuse_and_write_nothing() {
    let options = crate::Options { inbox_max: 2, inbox_max_bytes: 10, queued_max_bytes: 12, ..tiny() };
    let memory = options.memory.clone();
    let mut machine = Machine::start(disk(), options).unwrap();
    let busy = |retry_after_ms, why| Enqueued::Busy { retry_after_ms, why };
    assert_eq!(machine.enqueue(message("a", 1, "m1", &[0; 11])), busy(1000, BusyReason::Session));
    machine.enqueue(message("a", 1, "m1", b"1234"));
    machine.enqueue(message("a", 2, "m2", b"5678"));
    let before = machine.disk.operations();
    assert_eq!(machine.enqueue(message("a", 3, "m3", b"")), busy(1200, BusyReason::Session));
    assert_eq!(machine.enqueue(message("b", 4, "m1", b"12345")), busy(2004, BusyReason::Process));
    memory.set(supervision::pressure::Level::Refusing);
    assert_eq!(machine.enqueue(message("b", 4, "m1", b"")), busy(2004, BusyReason::Memory));
    memory.set(supervision::pressure::Level::Calm);
    machine.engine.take(Call::Drain);
    assert_eq!(machine.enqueue(message("b", 4, "m1", b"")), Enqueued::Draining);
    assert_eq!(machine.disk.operations(), before);
    let quarantine = Quarantine { key: key("a"), until_ms: u64::MAX, times: 1, reason: "crashes".into(), turn: None };
    let mut machine = machine.kill();
    machine.ask(|reply| Call::Quarantine(quarantine, reply));
    assert_eq!(machine.enqueue(message("a", 3, "m3", b"")), Enqueued::Quarantined { until_ms: u64::MAX });
    let mut machine = machine.kill();
    assert_eq!(machine.ask(Call::Unfinished)[0].quarantined_until_ms, Some(u64::MAX));
    machine.ask(|reply| Call::Unquarantine(key("a"), reply));
    assert_eq!(machine.enqueue(message("a", 3, "m3", b"")), busy(1200, BusyReason::Session));
}

#[test]
fn those_that_wait_behind_the_first_open_turn_are_bounded_too() {
    let mut machine = Machine::start(disk(), crate::Options { queue_cap: Some(1), ..tiny() }).unwrap();
    let busy = Enqueued::Busy { retry_after_ms: 1200, why: BusyReason::Session };
    for (cap, waiting) in [(None, 1), (Some(0), 0), (Some(2), 2), (Some(u32::MAX), 9)] {
        let loaded = machine.load(&key("a"));
        machine.engine.take(Call::Bound(key("a"), cap));
        let first = loaded.next_commit * 100;
        let send =
            |machine: &mut Machine, n: u64| machine.enqueue(message("a", first + n, &format!("m{first}{n}"), b"x"));
        for n in 0..=waiting {
            assert!(matches!(send(&mut machine, n), Enqueued::Accepted { .. }), "{cap:?} {n}");
        }
        if waiting < 9 {
            assert!(matches!(send(&mut machine, 10), Enqueued::Busy { why: BusyReason::Session, .. }), "{cap:?}");
        }
        let mut end = commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit);
        end.ended = (0..=waiting).map(|n| (turn(first + n), TurnEnd::Done)).collect();
        assert_eq!(machine.commit(end), CommitOutcome::Done);
        machine.engine.take(Call::Release(key("a"), loaded.epoch));
    }
    machine.enqueue(message("a", 1, "1", b"x"));
    machine.enqueue(message("a", 2, "2", b"x"));
    assert_eq!(machine.enqueue(message("a", 3, "3", b"x")), busy, "what is configured holds again");
}

#[test]
fn a_commit_that_no_record_can_hold_is_refused_and_a_smaller_one_takes_its_number() {
    let mut machine = Machine::start(disk(), Options::new(DIR, SESSIONS)).unwrap();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let loaded = machine.load(&key("a"));
    let mut large = commit(&key("a"), loaded.session, loaded.epoch, 1);
    large.lines = vec![Line { id: "1".into(), text: "x".repeat(20 << 20).into() }];
    large.ended = vec![(turn(1), TurnEnd::Done)];
    let before = machine.disk.operations();
    assert_eq!(machine.commit(large.clone()), CommitOutcome::TooLarge);
    assert_eq!((machine.disk.operations(), machine.status().open), (before, 1), "nothing was written");
    let small = Commit { lines: vec![line("1")], ..large };
    assert_eq!(machine.commit(small), CommitOutcome::Done);
    assert_eq!(machine.status().done, 1);
    assert_eq!(machine.kill().load(&key("a")).next_commit, 2);
}

#[test]
fn an_old_epoch_is_fenced_and_a_wrong_number_is_not_taken() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let first = machine.load(&key("a"));
    let second = machine.load(&key("a"));
    assert_eq!(second.epoch.0, first.epoch.0 + 1);
    assert_eq!(second.session, first.session);
    assert_eq!(second.cut.unwrap().left_by, LeftBy::Crash);
    let at = |epoch, number| commit(&key("a"), first.session, epoch, number);
    assert_eq!(machine.commit(at(first.epoch, 1)), CommitOutcome::Fenced);
    assert!(matches!(machine.commit(at(second.epoch, 2)), CommitOutcome::Unknown { .. }));
    assert_eq!(machine.commit(at(second.epoch, 1)), CommitOutcome::Done);
    assert_eq!(machine.commit(at(second.epoch, 2)), CommitOutcome::Done);
    machine.engine.take(Call::Release(key("a"), second.epoch));
    assert_eq!(machine.commit(at(second.epoch, 3)), CommitOutcome::Fenced);
    let mut machine = machine.restart();
    let third = machine.load(&key("a"));
    assert_eq!((third.epoch.0, third.next_commit), (second.epoch.0 + 1, 3));
}

#[test]
fn how_a_turn_was_left_is_known() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    machine.enqueue(message("a", 2, "m2", b"x"));
    let loaded = machine.load(&key("a"));
    assert_eq!(loaded.cut, None, "nobody had begun it");
    let mut tools = commit(&key("a"), loaded.session, loaded.epoch, 1);
    tools.tools_started = vec![ToolCallId("c1".into()), ToolCallId("c2".into())];
    machine.commit(tools);
    let mut result = commit(&key("a"), loaded.session, loaded.epoch, 2);
    let text = r#"{"type":"message","message":{"role":"toolResult","toolCallId":"c1"}}"#;
    result.lines = vec![Line { id: "1".into(), text: text.into() }];
    machine.commit(result);
    let mut machine = machine.kill();
    assert_eq!(machine.ask(Call::Unfinished)[0].cut.unwrap().1, LeftBy::Death);
    let loaded = machine.load(&key("a"));
    let cut = loaded.cut.unwrap();
    assert_eq!((cut.left_by, cut.started.attempt, cut.started.deaths), (LeftBy::Death, Attempt(1), 0));
    assert_eq!(cut.tools_started, [ToolCallId("c2".into())]);
    let mut again = commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit);
    again.started = Some(Started { attempt: Attempt(2), deaths: 1, ..cut.started });
    machine.commit(again);
    let mut stop = commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit + 1);
    stop.interrupted = true;
    machine.commit(stop);
    let mut machine = machine.restart();
    let loaded = machine.load(&key("a"));
    let cut = loaded.cut.unwrap();
    assert_eq!((cut.left_by, cut.started.attempt, cut.started.deaths), (LeftBy::Interrupted, Attempt(2), 1));
    let mut end = commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit);
    end.ended = vec![(turn(1), TurnEnd::Dead { reason: "crashes".into() })];
    machine.commit(end);
    let loaded = machine.kill().load(&key("a"));
    let cut = loaded.cut.unwrap();
    assert_eq!((cut.started.turn, cut.started.attempt), (turn(2), Attempt(1)), "the next one begins by itself");
}

#[test]
fn dead_letters_stay_and_the_sum_holds() {
    let mut machine = start();
    for n in 1..=4 {
        machine.enqueue(message("a", n, &format!("m{n}"), b"x"));
    }
    let loaded = machine.load(&key("a"));
    let mut end = commit(&key("a"), loaded.session, loaded.epoch, 1);
    end.ended = vec![
        (turn(1), TurnEnd::Done),
        (turn(2), TurnEnd::Dead { reason: "crashes".into() }),
        (turn(3), TurnEnd::Cancelled { why: "stop".into() }),
    ];
    machine.commit(end);
    let status = machine.status();
    assert_eq!((status.accepted, status.done, status.dead, status.cancelled, status.open), (4, 1, 1, 1, 1));
    let mut machine = machine.kill();
    let letters = machine.ask(Call::DeadLetters);
    assert_eq!((letters.len(), letters[0].turn, &*letters[0].reason), (1, turn(2), "crashes"));
    assert_eq!(machine.report.open_turns, 1);
}

#[test]
fn a_turn_that_joined_another_counts_as_done_and_is_known_again() {
    let mut machine = start();
    for n in 1..=3 {
        machine.enqueue(message("a", n, &format!("m{n}"), b"x"));
    }
    let loaded = machine.load(&key("a"));
    assert_eq!((loaded.inbox.len(), loaded.through), (3, loaded.inbox[2].seq));
    let mut step = commit(&key("a"), loaded.session, loaded.epoch, 1);
    step.tools_started = vec![ToolCallId("c1".into())];
    machine.commit(step);
    let mut join = commit(&key("a"), loaded.session, loaded.epoch, 2);
    join.ended = vec![(turn(2), TurnEnd::Joined { into: turn(1) })];
    machine.commit(join);
    let status = machine.status();
    assert_eq!((status.accepted, status.done, status.open), (3, 1, 2));
    for _ in 0..2 {
        let ended = Enqueued::Duplicate { turn: turn(2), state: DuplicateState::Ended };
        assert_eq!(machine.enqueue(message("a", 9, "m2", b"x")), ended);
        machine = machine.kill();
        assert_eq!(machine.report.open_turns, 2);
    }
    let again = machine.load(&key("a"));
    let open: Vec<_> = again.inbox.iter().map(|item| item.turn).collect();
    assert_eq!((open, again.through), (vec![turn(1), turn(3)], loaded.through));
    let cut = again.cut.unwrap();
    assert_eq!(
        (cut.started.turn, cut.tools_started),
        (turn(1), vec![ToolCallId("c1".into())]),
        "it goes on where it was"
    );
}

#[test]
fn an_open_turn_is_found_without_its_session_also_after_a_restart() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    machine.enqueue(message("b", 2, "m2", &[b'x'; 5000]));
    machine.enqueue(message("b", 3, "m3", b"x"));
    let loaded = machine.load(&key("a"));
    let mut end = commit(&key("a"), loaded.session, loaded.epoch, 1);
    end.ended = vec![(turn(1), TurnEnd::Done)];
    machine.commit(end);
    let mut machine = machine.kill();
    for (n, expect) in [(1, None), (2, Some(key("b"))), (3, Some(key("b"))), (4, None)] {
        assert_eq!(machine.ask(|reply| Call::FindTurn(turn(n), reply)), expect, "turn {n}");
    }
}

#[test]
fn lines_come_back_until_the_view_is_synced() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let loaded = machine.load(&key("a"));
    let at = |number, id: &str| {
        let mut commit = commit(&key("a"), loaded.session, loaded.epoch, number);
        commit.lines = vec![line(id)];
        commit
    };
    machine.commit(at(1, "one"));
    machine.commit(at(2, "two"));
    let mark = ViewMark { length: 4, last_entry: Some("one".into()) };
    let written = ViewWritten { key: key("a"), session: loaded.session, commit: 1, mark: mark.clone() };
    machine.note(written);
    machine.engine.checkpoint.due = true;
    machine.settle();
    machine.commit(at(3, "three"));
    let mut machine = machine.kill();
    let loaded = machine.load(&key("a"));
    assert_eq!(loaded.view, mark);
    assert_eq!(loaded.lines, [line("two"), line("three")]);
}

#[test]
fn large_bodies_are_read_back_also_after_they_moved() {
    let mut machine = start();
    let body = vec![b'x'; 3000];
    machine.enqueue(message("a", 1, "m1", &body));
    let item = machine.sink.0.lock().unwrap()[0].item.clone();
    assert!(item.inline.is_none());
    let loaded = machine.load(&key("b"));
    for number in 1..400 {
        let mut busy = commit(&key("b"), loaded.session, loaded.epoch, number);
        busy.ended = vec![(turn(99), TurnEnd::Cancelled { why: "x".repeat(300).into() })];
        assert_eq!(machine.commit(busy), CommitOutcome::Done);
        let read = machine.ask(|reply| Call::Accepted(item.at, reply)).unwrap();
        assert_eq!((read.turn, read.body.len()), (turn(1), 3000));
    }
    assert!(machine.engine.log.older.front().unwrap().header.number > 2, "old segments were given up");
    assert!(machine.status().total_bytes <= 10 * (16 << 10), "{:?}", machine.status());
    let mut machine = machine.kill();
    let item = machine.load(&key("a")).inbox[0].clone();
    let read = machine.ask(|reply| Call::Accepted(item.at, reply)).unwrap();
    assert_eq!(*read.body, *body);
}

#[test]
fn a_closed_session_leaves_nothing() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let loaded = machine.load(&key("a"));
    let mut end = commit(&key("a"), loaded.session, loaded.epoch, 1);
    end.lines = vec![line("one")];
    end.ended = vec![(turn(1), TurnEnd::Done)];
    end.closes = Some(Closes::Moved);
    machine.commit(end);
    machine.engine.take(Call::Release(key("a"), loaded.epoch));
    assert!(machine.engine.state.keys.is_empty());
    let mut machine = machine.restart();
    assert_eq!(machine.report.keys, 0);
    let again = machine.load(&key("a"));
    assert_ne!(again.session, loaded.session);
    assert_eq!((again.lines.len(), again.epoch, again.next_commit), (0, loaded.epoch, 1));
    let mut first = commit(&key("a"), again.session, again.epoch, 1);
    first.lines = vec![line("new")];
    machine.commit(first);
    let again = machine.kill().load(&key("a"));
    assert_eq!((again.lines, again.next_commit), (vec![line("new")], 2));
}

#[test]
fn a_backup_is_a_journal() {
    let mut machine = start();
    for n in 1..=40 {
        machine.enqueue(message("a", n, &format!("m{n}"), &[b'x'; 900]));
    }
    machine.ask(|reply| Call::Backup("/backup".into(), reply)).unwrap();
    machine.enqueue(message("b", 99, "later", b"x"));
    let options = crate::Options { dir: "/backup".into(), ..tiny() };
    let mut copy = Machine::start(machine.disk.clone(), options).unwrap();
    assert_eq!(copy.load(&key("a")).inbox.len(), 40);
    assert_eq!(copy.report.open_turns, 40);
}

/// A directory lies where a transcript should be, for example.
struct Unreadable;

impl RecentIds for Unreadable {
    fn recent(&self, _: &domain::ids::SessionKey) -> std::io::Result<Vec<RecentId>> {
        Err(std::io::ErrorKind::IsADirectory.into())
    }
}

#[test]
fn a_transcript_that_cannot_be_read_is_no_full_disk() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let mut machine = machine.kill();
    machine.engine.around.recent = std::sync::Arc::new(Unreadable);
    let answer = machine.enqueue(message("a", 2, "m2", b"x"));
    assert!(matches!(answer, Enqueued::Busy { why: BusyReason::Transcript, .. }), "{answer:?}");
}

#[test]
fn the_local_form_answers_before_the_call_returns() {
    let machine = start();
    let around = &machine.engine.around;
    let disk = disk();
    let ports = supervision::memory::memory_ports(disk, supervision::memory::TestClock::new(), 1);
    let around = crate::Surroundings { ports, ..around.clone() };
    let (journal, report) = crate::LogJournal::open_local(tiny(), around).unwrap();
    assert_eq!(report.open_turns, 0);
    let mut answer = journal.enqueue(message("a", 1, "m1", b"x"));
    assert_eq!(answer.try_recv().unwrap(), accepted(1, 0, 1, AcceptedState::Running));
    let loaded = journal.load(key("a")).try_recv().unwrap().unwrap();
    assert_eq!(loaded.inbox.len(), 1);
    journal.close().try_recv().unwrap();
    assert_eq!(journal.enqueue(message("a", 2, "m2", b"x")).try_recv().unwrap(), Enqueued::Draining);
}

#[test]
fn an_id_that_is_synced_while_ids_are_read_is_not_forgotten() {
    let mut machine = start();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let mut machine = machine.kill();
    let loaded = machine.load(&key("a"));
    // The file is read before the turn ends, and the answer comes after its line was synced.
    let mut other = machine.submit(|reply| Call::Enqueue(message("a", 2, "m2", b"x"), reply.into()));
    machine.engine.turn();
    let read = machine.calls.try_recv().unwrap();
    let mut end = commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit);
    end.lines = vec![line("one")];
    end.ended = vec![(turn(1), TurnEnd::Done)];
    assert_eq!(machine.commit(end), CommitOutcome::Done);
    let mark = ViewMark { length: 4, last_entry: Some("one".into()) };
    let written = ViewWritten { key: key("a"), session: loaded.session, commit: 1, mark };
    machine.note(written);
    machine.engine.checkpoint.due = true;
    machine.settle();
    machine.engine.take(read);
    machine.settle();
    assert!(matches!(other.try_recv().unwrap(), Enqueued::Accepted { .. }));
    let again = machine.enqueue(message("a", 3, "m1", b"x"));
    assert_eq!(again, Enqueued::Duplicate { turn: turn(1), state: DuplicateState::Ended });
}
