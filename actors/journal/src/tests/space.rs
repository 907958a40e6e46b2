//! A disk that is full, fails, or was damaged.

use std::path::Path;
use std::time::Duration;

use protocol::journal::*;
use protocol::supervision::EventName;
use supervision::memory::Fault;
use supervision::ports::{Disk, Open};

use super::machine::*;
use crate::call::Call;
use crate::{Durability, OpenError, Options, check, segment};

/// Fills the log with commits of `name` until `until` holds.
fn write_until(machine: &mut Machine, name: &str, until: impl Fn(&Machine) -> bool) -> Loaded {
    let mut loaded = machine.load(&key(name));
    for _ in 0..2000 {
        if until(machine) {
            return loaded;
        }
        let mut next = commit(&key(name), loaded.session, loaded.epoch, loaded.next_commit);
        next.ended = vec![(turn(0), TurnEnd::Cancelled { why: "x".repeat(500).into() })];
        assert_eq!(machine.commit(next), CommitOutcome::Done);
        loaded.next_commit += 1;
    }
    panic!("it never came to that");
}

#[test]
fn a_full_disk_refuses_messages_keeps_commits_and_heals() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.enqueue(message("a", 1, "m1", b"x"));
    machine.disk.set_full(true);
    let loaded = write_until(&mut machine, "a", |machine| !machine.status().writable);
    let busy = machine.enqueue(message("a", 2, "m2", b"x"));
    assert!(matches!(busy, Enqueued::Busy { why: BusyReason::Disk, .. }));
    let lacks = Some(Space { needed_bytes: tiny().segment_bytes, free_bytes: 0 });
    assert_eq!(machine.status().space, lacks);
    let events = machine.events.named(EventName::JournalReadOnly);
    let [event] = &*events else { panic!("{events:?}") };
    assert!(event.reason.as_ref().unwrap().ends_with("bytes are needed, 0 are free"), "{event:?}");
    // Commits use up the segment, then wait.
    let mut number = loaded.next_commit;
    let mut waiting = loop {
        let mut next = commit(&key("a"), loaded.session, loaded.epoch, number);
        next.ended = vec![(turn(0), TurnEnd::Cancelled { why: "x".repeat(500).into() })];
        let mut answer = machine.submit(|reply| Call::Commit(next, reply));
        machine.settle();
        match answer.try_recv() {
            Ok(outcome) => assert_eq!(outcome, CommitOutcome::Done),
            Err(_) => break answer,
        }
        number += 1;
    };
    machine.clock.advance(Duration::from_secs(1));
    machine.engine.take(Call::Tick);
    machine.settle();
    assert!(waiting.try_recv().is_err());
    machine.disk.set_full(false);
    machine.engine.take(Call::Tick);
    machine.settle();
    assert!(waiting.try_recv().is_err(), "it looks once a second");
    machine.clock.advance(Duration::from_secs(1));
    machine.engine.take(Call::Tick);
    machine.settle();
    assert_eq!(waiting.try_recv().unwrap(), CommitOutcome::Done);
    assert!(machine.status().writable && machine.status().space.is_none());
    assert_eq!(machine.events.named(EventName::JournalReadOnly).len(), 1);
    let writable = machine.events.named(EventName::JournalWritable);
    assert_eq!(writable.len(), 1);
    assert_eq!(writable[0].cause.as_ref(), Some(&machine.events.named(EventName::JournalReadOnly)[0].id));
    assert!(matches!(machine.enqueue(message("a", 2, "m2", b"x")), Enqueued::Accepted { .. }));
    assert_eq!(machine.kill().load(&key("a")).next_commit, number + 1);
}

#[test]
fn it_starts_on_a_full_disk_and_heals() {
    let disk = disk();
    disk.set_full(true);
    let mut machine = Machine::start(disk, tiny()).unwrap();
    assert!(!machine.status().writable && machine.status().space.is_some());
    let event = machine.events.named(EventName::JournalReadOnly).remove(0);
    assert!(event.reason.unwrap().ends_with("bytes are needed, 0 are free"));
    let busy = machine.enqueue(message("a", 1, "m1", b"x"));
    assert!(matches!(busy, Enqueued::Busy { why: BusyReason::Disk, .. }));
    assert!(machine.engine.waits_for_space());
    for full in [true, false] {
        machine.disk.set_full(full);
        machine.clock.advance(Duration::from_secs(1));
        machine.engine.take(Call::Tick);
        machine.settle();
        assert_eq!(machine.status().writable, !full);
    }
    assert_eq!(machine.events.named(EventName::JournalWritable).len(), 1);
    assert!(matches!(machine.enqueue(message("a", 1, "m1", b"x")), Enqueued::Accepted { .. }));
    let machine = Machine::start(machine.disk.cut(1), tiny()).unwrap();
    assert_eq!((machine.report.open_turns, machine.engine.log.active.header.number), (1, 1));
}

#[test]
fn a_change_of_durability_waits_for_space() {
    let machine = filled(Options { durability: Durability::Os, ..tiny() });
    let disk = machine.disk.copy();
    disk.set_full(true);
    let mut machine = Machine::start(disk, tiny()).unwrap();
    assert_eq!((machine.report.open_turns, machine.status().writable), (60, false));
    assert!(matches!(machine.enqueue(message("b", 99, "m", b"x")), Enqueued::Busy { .. }));
    machine.disk.set_full(false);
    machine.clock.advance(Duration::from_secs(1));
    machine.engine.take(Call::Tick);
    machine.settle();
    assert!(matches!(machine.enqueue(message("b", 99, "m", b"x")), Enqueued::Accepted { .. }));
    assert_eq!(Machine::start(machine.disk.cut(1), tiny()).unwrap().report.open_turns, 61);
}

/// What was written without sync before becomes durable first: else a power cut later would leave a hole behind which
/// there is a sound batch.
#[test]
fn it_starts_on_a_read_only_disk_and_heals() {
    for durability in [Durability::Full, Durability::Os] {
        let machine = filled(Options { durability, ..tiny() });
        let disk = machine.disk.clone();
        drop(machine);
        disk.set_read_only(true);
        let mut machine = Machine::start(disk.clone(), tiny()).unwrap();
        assert_eq!((machine.report.open_turns, machine.status().writable), (60, false));
        assert_eq!(machine.events.named(EventName::JournalReadOnly).len(), 1);
        assert!(matches!(machine.enqueue(message("b", 99, "m", b"x")), Enqueued::Busy { .. }));
        let mut loaded = machine.submit(|reply| Call::Load(key("a"), reply));
        for read_only in [true, false] {
            disk.set_read_only(read_only);
            machine.clock.advance(Duration::from_secs(1));
            machine.engine.take(Call::Tick);
            machine.settle();
            assert_eq!(machine.status().writable, !read_only);
        }
        let item = loaded.try_recv().unwrap().unwrap().inbox[7].clone();
        assert_eq!(machine.ask(|reply| Call::Accepted(item.at, reply)).unwrap().body.len(), 900);
        assert!(matches!(machine.enqueue(message("b", 99, "m", b"x")), Enqueued::Accepted { .. }));
        for seed in 0..20 {
            let after = Machine::start(disk.cut(seed), tiny()).unwrap();
            assert_eq!((after.report.open_turns, after.report.gaps.len()), (61, 0), "{durability:?}, seed {seed}");
        }
    }
}

#[test]
fn a_log_near_its_limit_refuses_messages() {
    let options = Options { max_bytes: 6 * (16 << 10), ..tiny() };
    let mut machine = Machine::start(disk(), options).unwrap();
    let mut refused = None;
    for n in 1..200 {
        let answer = machine.enqueue(message(&format!("k{n}"), n, "m", &[b'x'; 1000]));
        if let Enqueued::Busy { why, .. } = answer {
            refused = Some((n, why));
            break;
        }
    }
    let (n, why) = refused.expect("it was refused at last");
    assert_eq!(why, BusyReason::Disk);
    assert!(n > 40, "{n}");
    let done = write_until(&mut machine, "k1", |machine| machine.status().live_bytes == 6 * (16 << 10));
    assert!(done.next_commit > 1);
}

/// Small segments under load: their number stays bounded, what was in recycled ones is never taken for new, and a message
/// that waits all the time is there in the end.
#[test]
fn segments_are_recycled_under_load() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.enqueue(message("waiting", 1, "m1", b"since the beginning"));
    let mut most = 0;
    for n in 2..=1500u64 {
        let name = format!("k{}", n % 60);
        let text = vec![b'x'; 200 + (n as usize * 37) % 700];
        assert!(matches!(machine.enqueue(message(&name, n, &format!("m{n}"), &text)), Enqueued::Accepted { .. }));
        let loaded = machine.load(&key(&name));
        let mut end = commit(&key(&name), loaded.session, loaded.epoch, loaded.next_commit);
        end.ended = vec![(turn(n), TurnEnd::Done)];
        assert_eq!(machine.commit(end), CommitOutcome::Done);
        most = most.max(machine.disk.list(Path::new(DIR)).unwrap().len());
    }
    // Twice what 60 keys with 1,500 ids need, what is copied at once, and what is ready for reuse.
    assert!(most <= 40, "{most} files");
    let last = machine.engine.log.active.header.number;
    assert!(last > 60, "{last}");
    let mut machine = Machine::start(machine.disk.cut(3), tiny()).unwrap();
    assert_eq!((machine.report.open_turns, machine.report.gaps.len()), (1, 0));
    assert!(machine.report.segments <= 40, "{:?}", machine.report);
    let item = machine.load(&key("waiting")).inbox[0].clone();
    assert_eq!(&*machine.ask(|reply| Call::Accepted(item.at, reply)).unwrap().body, b"since the beginning");
}

#[test]
fn a_failed_sync_ends_all_acknowledging() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    machine.enqueue(message("a", 1, "m1", b"x"));
    let loaded = machine.load(&key("a"));
    machine.disk.fail_next(Fault::SyncEio);
    let first = commit(&key("a"), loaded.session, loaded.epoch, 1);
    assert!(matches!(machine.commit(first.clone()), CommitOutcome::Unknown { .. }));
    assert!(machine.failed.borrow().is_some());
    let before = machine.disk.operations();
    assert!(matches!(machine.commit(first), CommitOutcome::Unknown { .. }));
    assert_eq!(machine.enqueue(message("a", 2, "m2", b"x")), Enqueued::Draining);
    assert_eq!(machine.ask(|reply| Call::Load(key("a"), reply)).unwrap_err(), JournalError::Closed);
    assert_eq!(machine.disk.operations(), before, "that segment is not touched again");
    assert!(!machine.status().writable);
    // The cached bytes may claim a commit that the device never got: what recovery shows, the device has.
    let mut machine = Machine::start(machine.disk.clone(), tiny()).unwrap();
    let shown = machine.load(&key("a")).next_commit;
    for seed in 0..20 {
        let mut after = Machine::start(machine.disk.cut(seed), tiny()).unwrap();
        assert_eq!(after.load(&key("a")).next_commit, shown, "seed {seed}");
    }
}

fn overwrite(machine: &Machine, segment: u64, offset: u64, bytes: &[u8]) {
    let path = crate::segment::path(Path::new(DIR), segment);
    machine.disk.open(&path, Open::Write).unwrap().write_at(bytes, offset).unwrap();
}

fn filled(options: Options) -> Machine {
    let mut machine = Machine::start(disk(), options).unwrap();
    for n in 1..=60 {
        machine.enqueue(message("a", n, &format!("m{n}"), &[b'x'; 900]));
    }
    assert!(machine.engine.log.live_segments() > 2);
    machine
}

#[test]
fn damage_in_the_middle_is_refused_and_shown() {
    let machine = filled(tiny());
    overwrite(&machine, 2, 6000, b"damaged");
    let before = machine.disk.operations();
    let Err(OpenError::Damaged { segment, offset, .. }) = Machine::start(machine.disk.clone(), tiny()) else {
        panic!("it was not refused")
    };
    assert!(segment.ends_with("0000000000000002.seg"));
    assert!((5000..=6000).contains(&offset), "{offset}");
    let report = check(Path::new(DIR), machine.disk.as_ref()).unwrap();
    assert_eq!(report.damage.unwrap().offset, offset);
    assert_eq!(machine.disk.operations(), before, "nothing was written");
}

#[test]
fn a_lost_segment_or_head_is_refused() {
    for newest in [false, true] {
        let machine = filled(tiny());
        let number = if newest { machine.engine.log.active.header.number } else { 2 };
        overwrite(&machine, number, 0, &[0; 64]);
        if newest {
            let next = crate::segment::path(Path::new(DIR), number + 1);
            drop(machine.disk.remove(&next));
        }
        let result = Machine::start(machine.disk.clone(), tiny());
        assert!(matches!(result, Err(OpenError::Damaged { .. })), "newest: {newest}");
    }
}

#[test]
fn without_sync_a_hole_is_reported() {
    let options = Options { durability: Durability::Os, ..tiny() };
    let machine = filled(options.clone());
    overwrite(&machine, 2, 6000, b"damaged");
    let mut machine = Machine::start(machine.disk.clone(), options).unwrap();
    assert_eq!(machine.report.gaps.len(), 1);
    assert_eq!(machine.report.open_turns, 59);
    assert!(matches!(machine.enqueue(message("b", 99, "m", b"x")), Enqueued::Accepted { .. }));
    assert_eq!(machine.kill().report.open_turns, 60);
}

#[test]
fn a_torn_tail_is_cut() {
    let machine = filled(tiny());
    let (number, offset) = (machine.engine.log.active.header.number, machine.engine.log.offset);
    let mut batch = vec![0; 32];
    batch.extend_from_slice(&[1; 200]);
    crate::batch::seal(&mut batch, number, machine.engine.log.batch, 1);
    overwrite(&machine, number, offset, &batch[..100]);
    let mut machine = machine.kill();
    assert_eq!((machine.report.open_turns, machine.report.torn_bytes), (60, 232));
    machine.enqueue(message("b", 99, "m", b"x"));
    let machine = machine.kill();
    assert_eq!((machine.report.open_turns, machine.report.torn_bytes), (61, 0));
}

#[test]
fn a_newer_format_is_refused_by_name() {
    let machine = filled(tiny());
    let head = segment::encode(&machine.engine.log.older[0].header);
    let mut checked = [&head[..4], &[9, 0], &head[6..32]].concat();
    checked.extend_from_slice(&crc32c::crc32c(&checked).to_le_bytes());
    overwrite(&machine, 1, 0, &checked);
    let Err(error) = Machine::start(machine.disk.clone(), tiny()) else { panic!("it was not refused") };
    assert!(error.to_string().contains("has journal format 9; this version reads up to 1"), "{error}");
}

#[test]
fn the_durability_can_be_changed() {
    let machine = filled(Options { durability: Durability::Os, ..tiny() });
    let mut machine = Machine::start(machine.disk.copy(), tiny()).unwrap();
    assert_eq!(machine.report.open_turns, 60);
    assert!(matches!(machine.enqueue(message("b", 99, "m", b"x")), Enqueued::Accepted { .. }));
    let after = Machine::start(machine.disk.cut(1), tiny()).unwrap();
    assert_eq!(after.report.open_turns, 61);
}
