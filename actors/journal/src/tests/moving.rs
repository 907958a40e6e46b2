//! Transcripts that end: what is durable with the end, and how their files get away.

use std::path::{Path, PathBuf};

use protocol::journal::*;
use supervision::ports::Disk;

use super::machine::*;
use crate::call::Call;
use crate::record::Record;

fn place(at_ms: u64) -> Closes {
    Closes::Moves(Move { to: Shelf::Deleted, at_ms })
}

/// A session with a finished turn and its file, and one that waits; ended by `number` 2.
fn ended(machine: &mut Machine) -> (Loaded, CommitOutcome) {
    machine.enqueue(message("a", 1, "m1", b"x"));
    machine.enqueue(message("a", 2, "m2", b"x"));
    let loaded = machine.load(&key("a"));
    let mut first = commit(&key("a"), loaded.session, loaded.epoch, 1);
    first.lines = vec![line("one")];
    first.ended = vec![(turn(1), TurnEnd::Done)];
    machine.commit(first);
    let _ = append_lines(&machine.disk, &key("a"), 0, &[line("one")]);
    let mut end = commit(&key("a"), loaded.session, loaded.epoch, 2);
    end.ended = vec![(turn(2), TurnEnd::Cancelled { why: "deleted".into() })];
    end.closes = Some(place(7));
    let outcome = machine.commit(end);
    (loaded, outcome)
}

fn tombstone() -> PathBuf {
    Path::new(SESSIONS).join("a.deleted.7")
}

fn file_of(machine: &Machine) -> String {
    String::from_utf8(machine.disk.read(&Path::new(SESSIONS).join("a")).unwrap_or_default()).unwrap()
}

#[test]
fn an_end_cancels_what_waits_and_nothing_is_added_to_it_any_more() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    let (loaded, outcome) = ended(&mut machine);
    assert_eq!(outcome, CommitOutcome::Done);
    let status = machine.status();
    assert_eq!((status.accepted, status.done, status.cancelled, status.open), (2, 1, 1, 0));
    let mut late = commit(&key("a"), loaded.session, loaded.epoch, 3);
    late.lines = vec![line("late")];
    assert_eq!(machine.commit(late), CommitOutcome::Fenced, "also for the incarnation that ended it");
    machine.enqueue(message("a", 3, "m3", b"x"));
    let next = machine.load(&key("a"));
    assert_ne!(next.session, loaded.session);
    assert!(next.lines.is_empty() && next.cut.is_none() && next.view == ViewMark::default());
    assert_eq!(next.inbox.iter().map(|item| item.turn).collect::<Vec<_>>(), [turn(3)]);
    assert_eq!(next.moving.map(|moving| moving.session), Some(loaded.session));
}

#[test]
fn a_start_moves_what_a_kill_left_and_does_it_once() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    ended(&mut machine);
    let mut machine = machine.kill();
    machine.settle();
    assert!(machine.disk.read(&tombstone()).is_ok() && file_of(&machine).is_empty());
    let next = machine.load(&key("a"));
    assert_eq!(next.moving, None);
    let mut first = commit(&key("a"), next.session, next.epoch, next.next_commit);
    first.lines = vec![line("new")];
    machine.commit(first);
    append_lines(&machine.disk, &key("a"), 0, &[line("new")]).unwrap();
    let mut machine = machine.kill();
    machine.settle();
    assert_eq!(file_of(&machine), "new\n", "the next transcript stays where it is");
}

#[test]
fn what_could_not_be_moved_is_remembered_for_as_long_as_it_takes() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    let (loaded, _) = ended(&mut machine);
    for n in 10..200 {
        machine.enqueue(message("b", n, &format!("m{n}"), &[b'x'; 900]));
        let other = machine.load(&key("b"));
        let mut end = commit(&key("b"), other.session, other.epoch, other.next_commit);
        end.ended = vec![(turn(n), TurnEnd::Done)];
        machine.commit(end);
    }
    assert!(machine.engine.log.older.front().unwrap().header.number > 2, "old segments were given up");
    machine.ask(Call::Close);
    let mut records = Vec::new();
    let filter = crate::ShowFilter { session: Some(key("a")), ..Default::default() };
    let shown = crate::show(Path::new(DIR), &*machine.disk, &filter, |shown| {
        records.push(shown.record);
        Ok::<_, crate::OpenError>(())
    });
    shown.unwrap();
    assert!(records.contains(&"moving"), "{records:?}");
    let mut machine = machine.kill();
    assert_eq!(machine.engine.state.moving.of(&key("a")).map(|ended| ended.moving.session), Some(loaded.session));
    machine.settle();
    assert_eq!((machine.engine.state.moving.len(), machine.engine.state.totals.line_bytes), (0, 0));
    let kept = machine.disk.read(&tombstone()).unwrap();
    assert_eq!(kept, b"one\n", "its lines were kept for as long, too");
}

/// How a repeat of the messages that [`ended`] had is answered.
#[track_caller]
fn repeated(machine: &mut Machine, told: &str) {
    for n in [1, 2] {
        let answer = machine.enqueue(message("a", 100 + n, &format!("m{n}"), b"x"));
        assert_eq!(answer, Enqueued::Duplicate { turn: turn(n), state: DuplicateState::Ended }, "{told}");
        let other = machine.enqueue(message("a", 200 + n, &format!("m{n}"), b"other"));
        assert_eq!(other, Enqueued::Conflict { turn: turn(n) }, "{told}");
    }
}

#[test]
fn the_ids_of_an_ended_transcript_stay_known() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    let (loaded, _) = ended(&mut machine);
    repeated(&mut machine, "after the end");
    machine.engine.take(Call::Moved(key("a"), loaded.session));
    machine.engine.take(Call::Release(key("a"), loaded.epoch));
    repeated(&mut machine, "once it has left");
    let mut machine = machine.kill();
    machine.settle();
    let next = machine.load(&key("a"));
    let mut first = commit(&key("a"), next.session, next.epoch, next.next_commit);
    first.lines = vec![line("new")];
    let number = first.number;
    machine.commit(first);
    let mark = ViewMark { length: 4, last_entry: Some("new".into()) };
    machine.note(ViewWritten { key: key("a"), session: next.session, commit: number, mark });
    machine.engine.take(Call::Release(key("a"), next.epoch));
    for n in 10..200 {
        machine.enqueue(message("b", n, &format!("m{n}"), &[b'x'; 900]));
        let other = machine.load(&key("b"));
        let mut end = commit(&key("b"), other.session, other.epoch, other.next_commit);
        end.ended = vec![(turn(n), TurnEnd::Done)];
        machine.commit(end);
    }
    assert!(machine.engine.log.older.front().unwrap().header.number > 2, "old segments were given up");
    repeated(&mut machine, "with a new transcript on the device");
    repeated(&mut machine.kill(), "and after a kill");
}

#[test]
fn an_older_program_refuses_a_log_with_an_end_in_it() {
    let place = Move { to: Shelf::Archive, at_ms: 1 };
    let moving = Moving { key: key("a"), session: SESSION, place, view: ViewMark::default(), lines: Vec::new() };
    let mut end = commit(&key("a"), SESSION, domain::ids::Epoch(1), 1);
    end.closes = Some(Closes::Moves(moving.place));
    let kinds = [
        Record::Commit { commit: Box::new(end), at_ms: 1, endings: Vec::new() }.kind(),
        Record::Moving(Box::new(moving)).kind(),
        Record::Moved { key: key("a"), session: SESSION }.kind(),
    ];
    assert!(kinds.iter().all(|kind| *kind > 23), "{kinds:?}");
}

const SESSION: domain::ids::SessionId = domain::ids::SessionId(uuid::Uuid::nil());

#[test]
fn no_power_cut_undoes_an_end_or_touches_the_next_transcript() {
    let (_, whole) = life(None);
    for off in 1..=whole {
        for survival in 0..3 {
            let told = format!("power cut at {off}, survival {survival}");
            let (done, _) = life(Some((off, survival)));
            let Done { mut machine, ended, next } = done;
            machine.settle();
            let status = machine.status();
            assert_eq!(status.accepted, status.done + status.dead + status.cancelled + status.open, "{told}");
            let loaded = machine.load(&key("a"));
            let text = file_of(&machine);
            let lines: Vec<_> = text.lines().chain(loaded.lines.iter().map(|line| &*line.id)).collect();
            if let Some(session) = ended {
                assert_ne!(loaded.session, session, "{told}");
                assert!(!lines.contains(&"one"), "{told}: {lines:?}");
                let kept = machine.disk.read(&tombstone()).unwrap_or_default();
                assert_eq!(String::from_utf8_lossy(&kept), "one\n", "{told}");
                assert!(loaded.inbox.iter().all(|item| item.turn != turn(2)), "{told}");
                repeated(&mut machine, &told);
            }
            assert!(!next || lines.contains(&"new"), "{told}: {lines:?}");
        }
    }
}

/// What was acknowledged before the cut.
struct Done {
    machine: Machine,
    /// The session whose end was.
    ended: Option<domain::ids::SessionId>,
    /// Whether the line of the next one was.
    next: bool,
}

/// Ends a session, has its file moved, and begins the next; the power may fail at operation `cut.0`.
fn life(cut: Option<(u64, u64)>) -> (Done, u64) {
    let disk = disk();
    if let Some((off, _)) = cut {
        disk.power_off_at(off);
    }
    let (mut over, mut next) = (None, false);
    if let Ok(mut machine) = Machine::start(disk.clone(), tiny()) {
        // A machine without power answers nothing.
        let lived = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            let (loaded, outcome) = ended(&mut machine);
            if outcome != CommitOutcome::Done {
                return;
            }
            over = Some(loaded.session);
            let place = Move { to: Shelf::Deleted, at_ms: 7 };
            let (view, lines) = (ViewMark::default(), vec![line("one")]);
            let moving = Moving { key: key("a"), session: loaded.session, place, view, lines };
            if machine.recent.move_away(&moving).is_err() {
                return;
            }
            machine.engine.take(Call::Moved(key("a"), loaded.session));
            let second = machine.load(&key("a"));
            let mut first = commit(&key("a"), second.session, second.epoch, second.next_commit);
            first.lines = vec![line("new")];
            next = machine.commit(first) == CommitOutcome::Done;
            if next {
                let _ = append_lines(&disk, &key("a"), 0, &[line("new")]);
            }
        }));
        assert!(lived.is_ok() || cut.is_some());
    }
    let operations = disk.operations();
    let found = cut.map_or_else(|| disk.copy(), |(_, survival)| disk.cut(survival));
    let machine = Machine::start_with(found, tiny(), Transcripts::default(), 2).unwrap();
    (Done { machine, ended: over, next }, operations)
}
