//! How turns were left, and what a log tells whose older segments are gone.

use std::sync::Arc;

use domain::ids::{Attempt, Seq, SessionId, ToolCallId};
use protocol::journal::{
    Accepted, BusyReason, Enqueued, LeftBy, LogPosition, Quarantine, Started, ViewMark, ViewWritten,
};
use supervision::memory::Fault;
use uuid::Uuid;

use super::machine::{Machine, commit, disk, key, line, message, tiny, turn};
use crate::call::Call;
use crate::key::KeyState;
use crate::record::{Floors, Record};
use crate::state::State;

fn left(machine: &mut Machine) -> LeftBy {
    machine.ask(Call::Unfinished)[0].cut.unwrap().1
}

#[test]
fn an_orderly_stop_is_no_death_also_of_a_turn_that_nobody_had_loaded() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let mut machine = machine.restart();
    assert_eq!(left(&mut machine), LeftBy::Interrupted);
    let mut machine = machine.restart().kill();
    assert_eq!(left(&mut machine), LeftBy::Interrupted, "nothing of it ran since");
    let loaded = machine.load(&key("a"));
    machine.commit(commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit));
    let mut machine = machine.kill();
    assert_eq!(left(&mut machine), LeftBy::Death);
    let mut machine = machine.restart();
    assert_eq!(left(&mut machine), LeftBy::Death, "an orderly stop hides none");
    let loaded = machine.load(&key("a"));
    let cut = loaded.cut.unwrap();
    assert_eq!((cut.left_by, cut.blamed), (LeftBy::Death, false));
    let mut again = commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit);
    again.started = Some(Started { attempt: Attempt(2), deaths: 1, ..cut.started });
    machine.commit(again);
    assert_eq!(left(&mut machine.restart()), LeftBy::Interrupted, "the stop found no end of it");
}

#[test]
fn a_quarantine_blames_the_turn_that_it_names_and_no_other() {
    for (named, blamed, by) in [
        (Some(turn(1)), true, LeftBy::Crash),
        (Some(turn(9)), false, LeftBy::Interrupted),
        (None, false, LeftBy::Interrupted),
    ] {
        let mut machine = Machine::start(disk(), tiny()).unwrap();
        machine.enqueue(message("a", 1, "m1", b"x"));
        machine.load(&key("a"));
        let held = Quarantine { key: key("a"), until_ms: 0, times: 1, reason: "crashes".into(), turn: named };
        machine.ask(|reply| Call::Quarantine(held, reply));
        let mut machine = machine.kill();
        let loaded = machine.load(&key("a"));
        let cut = loaded.cut.unwrap();
        assert_eq!((cut.left_by, cut.blamed), (by, blamed), "{named:?}");
        let cut = machine.load(&key("a")).cut.unwrap();
        assert_eq!((cut.left_by, cut.blamed), (LeftBy::Crash, blamed), "until it begins again");
        let mut again = commit(&key("a"), loaded.session, domain::ids::Epoch(loaded.epoch.0 + 1), loaded.next_commit);
        again.started = Some(Started { attempt: Attempt(2), ..cut.started });
        machine.commit(again);
        assert!(!machine.load(&key("a")).cut.unwrap().blamed, "it was counted then");
    }
}

#[test]
fn lines_that_come_before_their_key_are_kept_unless_their_file_has_them() {
    let session = SessionId(Uuid::from_u128(5));
    for (session_then, view_commit, closed, kept) in [
        (Some(session), 2, false, 1),
        (Some(session), 3, false, 0),
        (Some(SessionId(Uuid::nil())), 2, false, 0),
        (None, 0, true, 0),
    ] {
        let mut state = State::default();
        let lines = vec![line("one")];
        state.apply(LogPosition(100), 40, Record::Lines { key: key("a"), session, commit: 3, lines });
        let mut snapshot = KeyState::new(LogPosition(0), Floors::default());
        (snapshot.session, snapshot.view_commit, snapshot.closed) = (session_then, view_commit, closed);
        state.apply(LogPosition(200), 40, Record::Key(Box::new(snapshot.record(&key("a")))));
        assert_eq!(state.plan_load(&key("a"), session).lines.len(), kept, "{session_then:?} {view_commit} {closed}");
        assert_eq!(state.totals.line_bytes, 40 * kept as u64);
    }
}

#[test]
fn what_is_said_of_a_turn_before_its_message_is_carried_forward_is_kept() {
    let session = SessionId(Uuid::from_u128(5));
    let mut state = State::default();
    let mut tools = commit(&key("a"), session, domain::ids::Epoch(1), 4);
    tools.tools_started = vec![ToolCallId("c1".into())];
    state.apply(LogPosition(100), 40, Record::Commit { commit: Box::new(tools), at_ms: 0, endings: Vec::new() });
    let enqueued = message("a", 1, "m1", b"x");
    let accepted = Accepted {
        turn: enqueued.turn,
        seq: Seq(1),
        source: enqueued.source,
        message_id: enqueued.message_id,
        body_hash: enqueued.body_hash,
        route: enqueued.route,
        body: enqueued.body,
        accepted_ms: 0,
        retry_of: None,
    };
    state.apply(LogPosition(200), 40, Record::Carried { key: key("a"), message: Arc::new(accepted) });
    state.finish_recovery();
    let cut = state.plan_load(&key("a"), session).loaded.cut.unwrap();
    assert_eq!((cut.left_by, cut.tools_started), (LeftBy::Death, vec![ToolCallId("c1".into())]));
}

#[test]
fn a_journal_that_fails_in_the_middle_answers_nothing_out_of_what_it_could_not_write() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.enqueue(message("a", 99, "before", b"x"));
    let mut machine = machine.kill();
    machine.settle();
    // The messages wait for the ids of the transcript; together they do not fit into the segment.
    let body = [b'x'; 5_000];
    let ids = ["m1", "m2", "m3", "m4", "m1", "m5"];
    let answers: Vec<_> = (1..)
        .zip(ids)
        .map(|(n, id)| {
            let message = message("a", n, id, &body);
            machine.submit(|reply| Call::Enqueue(message, reply.into()))
        })
        .collect();
    machine.disk.fail_next(Fault::WriteEio);
    machine.settle();
    assert!(machine.failed.borrow().is_some());
    for (id, mut answer) in ids.into_iter().zip(answers) {
        let refused = match answer.try_recv() {
            // No verdict, or one that promises nothing.
            Err(_) | Ok(Enqueued::Draining | Enqueued::Busy { why: BusyReason::Disk, .. }) => true,
            Ok(_) => false,
        };
        assert!(refused, "{id}");
    }
}

#[test]
fn after_a_failed_sync_of_the_files_their_lines_stay_until_they_are_written_again() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let loaded = machine.load(&key("a"));
    let mut said = commit(&key("a"), loaded.session, loaded.epoch, 1);
    said.lines = vec![line("one")];
    machine.commit(said);
    let mark = ViewMark { length: 4, last_entry: Some("one".into()) };
    let written = ViewWritten { key: key("a"), session: loaded.session, commit: 1, mark };
    let checkpoint = |machine: &mut Machine| {
        machine.note(written.clone());
        machine.engine.checkpoint.due = true;
        machine.settle();
    };
    machine.disk.fail_next(Fault::SyncEio);
    checkpoint(&mut machine);
    assert!(machine.failed.borrow().is_none(), "it was the sync of the files");
    checkpoint(&mut machine);
    assert_eq!(machine.load(&key("a")).lines, [line("one")], "a later sync says nothing of it");
    checkpoint(&mut machine);
    assert_eq!(machine.load(&key("a")).lines, [], "that life wrote them again");
}
