//! Many kills in a row, and nobody wakes a session.

use std::path::Path;

use protocol::journal::*;
use supervision::ports::Disk;

use super::machine::*;
use crate::call::Call;

/// A finished turn of one of 15 sessions; its line is in the log, and in no file.
fn finish(machine: &mut Machine, number: u64) {
    let name = format!("k{}", number % 15);
    machine.enqueue(message(&name, number, &format!("m{number}"), b"x"));
    let loaded = machine.load(&key(&name));
    let mut end = commit(&key(&name), loaded.session, loaded.epoch, loaded.next_commit);
    end.lines = vec![Line { id: format!("line {number}").into(), text: "x".repeat(1000).into() }];
    end.ended = vec![(turn(number), TurnEnd::Done)];
    assert_eq!(machine.commit(end), CommitOutcome::Done);
}

#[test]
fn kills_in_a_row_release_what_is_finished_although_no_session_wakes() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    let (mut most, mut number) = (0, 0);
    for _ in 0..30 {
        for _ in 0..15 {
            number += 1;
            finish(&mut machine, number);
        }
        machine = machine.kill();
        machine.settle();
        most = most.max(machine.engine.log.live_segments());
    }
    assert!(most <= 8, "{most} segments");
    assert_eq!(machine.kill().report.unsynced_commits, 0);
    let machine = Machine::start(disk(), tiny()).unwrap();
    assert!(!machine.engine.has_work(), "where nothing is behind there is nothing to do");
}

#[test]
fn an_activation_waits_while_the_file_of_its_key_is_completed() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    finish(&mut machine, 1);
    let mut machine = machine.kill();
    machine.engine.turn();
    let mut waiting = machine.submit(|reply| Call::Load(key("k1"), reply));
    machine.engine.turn();
    assert!(waiting.try_recv().is_err(), "its file is being written");
    machine.settle();
    let loaded = waiting.try_recv().unwrap().unwrap();
    assert_eq!(machine.disk.read(&Path::new(SESSIONS).join("k1")).unwrap(), b"line 1\n");
    let mut end = commit(&key("k1"), loaded.session, loaded.epoch, loaded.next_commit);
    end.lines = vec![line("next")];
    assert_eq!(machine.commit(end), CommitOutcome::Done);
}

#[test]
fn a_journal_that_is_closed_meanwhile_ends_when_the_file_is_written() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    finish(&mut machine, 1);
    let mut machine = machine.kill();
    machine.engine.turn();
    let mut waiting = machine.submit(|reply| Call::Load(key("k1"), reply));
    let mut closed = machine.submit(Call::Close);
    machine.engine.turn();
    assert!(closed.try_recv().is_err());
    machine.settle();
    closed.try_recv().unwrap();
    assert!(matches!(waiting.try_recv(), Err(_) | Ok(Err(JournalError::Closed))));
}

#[test]
fn whoever_asks_hears_at_the_end_whose_files_could_not_be_completed() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    (1..=3).for_each(|number| finish(&mut machine, number));
    let mut machine = machine.kill();
    machine.recent.foreign.lock().unwrap().push(key("k2"));
    let mut told = machine.submit(Call::AskCaughtUp);
    assert!(told.try_recv().is_err(), "files are being written");
    machine.settle();
    assert_eq!(told.try_recv().unwrap(), [key("k2")]);
    let mut again = machine.submit(Call::AskCaughtUp);
    machine.settle();
    assert_eq!(again.try_recv().unwrap(), [key("k2")]);
}
