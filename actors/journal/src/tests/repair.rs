//! Acknowledged data is damaged; everything else goes on.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use domain::ids::SessionKey;
use proptest::prelude::*;
use protocol::journal::*;
use supervision::memory::{PowerCutDisk, TestClock, memory_ports};
use supervision::ports::{Disk, Open};

use super::machine::*;
use crate::{OpenError, RepairReport, ShowFilter, repair, show};

const ASIDE: &str = "/journal/damaged";

/// 60 messages in as many sessions, a batch each, over several segments.
fn filled() -> Machine {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    for n in 1..=60 {
        machine.enqueue(message(&format!("k{n}"), n, &format!("m{n}"), &[b'x'; 900]));
    }
    assert!(machine.engine.log.live_segments() > 2);
    machine
}

fn damage(disk: &PowerCutDisk, segment: u64, offset: u64, bytes: &[u8]) {
    let path = crate::segment::path(Path::new(DIR), segment);
    disk.open(&path, Open::Write).unwrap().write_at(bytes, offset).unwrap();
}

fn mend(disk: &Arc<PowerCutDisk>, yes: bool) -> Result<RepairReport, OpenError> {
    let ports = memory_ports(disk.clone(), TestClock::new(), 5);
    repair(&tiny(), &ports, yes.then_some(Path::new(ASIDE)))
}

fn open_keys(machine: &Machine) -> BTreeMap<SessionKey, usize> {
    machine.engine.state.keys.iter().map(|(name, key)| (name.clone(), key.open.len())).collect()
}

#[test]
fn one_damaged_batch_is_lost_by_name_and_the_rest_goes_on() {
    let machine = filled();
    let before = open_keys(&machine);
    let disk = machine.disk.clone();
    damage(&disk, 2, 6000, b"damaged");
    let operations = disk.operations();
    let plan = mend(&disk, false).unwrap();
    assert_eq!(disk.operations(), operations, "looking changes nothing");
    assert!(!plan.repaired && plan.aside.is_none());
    assert_eq!((plan.damage.len(), plan.open_turns), (1, 59), "{plan:?}");
    let hints = &plan.damage[0].hints;
    assert_eq!((hints.len(), hints[0].record), (1, "accepted"), "{plan:?}");
    let lost = hints[0].key.clone().unwrap();
    assert_eq!(hints[0].turns.len(), 1);
    assert!(matches!(Machine::start(disk.clone(), tiny()), Err(OpenError::Damaged { .. })));
    let done = mend(&disk, true).unwrap();
    assert_eq!(RepairReport { repaired: false, aside: None, ..done.clone() }, plan);
    let aside = disk.list(Path::new(ASIDE)).unwrap();
    assert_eq!(aside.len(), 1);
    assert!(disk.read(&aside[0]).unwrap().windows(7).any(|window| window == b"damaged"));
    let mut machine = Machine::start(disk, tiny()).unwrap();
    let mut wanted = before;
    wanted.remove(&lost);
    assert_eq!(open_keys(&machine), wanted);
    for (name, _) in wanted {
        let item = machine.load(&name).inbox[0].clone();
        let read = machine.ask(|reply| crate::call::Call::Accepted(item.at, reply)).unwrap();
        assert_eq!(read.turn, item.turn);
    }
    let number = lost.as_str().trim_start_matches('k').parse().unwrap();
    let again = machine.enqueue(message(lost.as_str(), number, &format!("m{number}"), &[b'x'; 900]));
    assert!(matches!(again, Enqueued::Accepted { .. }), "a message of which nothing is left is a new one: {again:?}");
    assert!(mend(&machine.disk, true).unwrap().damage.is_empty());
}

#[test]
fn a_segment_that_was_cut_short_is_damage_and_no_torn_tail() {
    let machine = filled();
    let (before, disk) = (open_keys(&machine), machine.disk.clone());
    let newest = machine.engine.log.active.header.number;
    let used = machine.engine.log.here() - machine.engine.log.active.header.base;
    drop(machine);
    let path = crate::segment::path(Path::new(DIR), newest);
    // One batch of the newest segment is gone, and all that was never written behind it.
    disk.open(&path, Open::Write).unwrap().set_length(used - 100).unwrap();
    let Err(OpenError::Damaged { segment, offset, why }) = Machine::start(disk.clone(), tiny()) else {
        panic!("what was acknowledged is gone")
    };
    assert_eq!((segment, offset), (path, used - 100));
    assert!(why.contains("cut short"), "{why}");
    let done = mend(&disk, true).unwrap();
    assert_eq!((done.repaired, done.damage.len(), done.open_turns), (true, 1, 59), "{done:?}");
    let machine = Machine::start(disk, tiny()).unwrap();
    let lost: Vec<_> = before.keys().filter(|key| open_keys(&machine).get(*key) != Some(&1)).collect();
    assert_eq!(lost.len(), 1, "{lost:?}");
}

#[test]
fn numbers_tell_what_is_missing_of_a_session() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    for n in 1..=40 {
        machine.enqueue(message("a", n, &format!("m{n}"), &[b'x'; 900]));
    }
    damage(&machine.disk, 2, 6000, b"damaged");
    let report = mend(&machine.disk, true).unwrap();
    let loss = &report.lost[&key("a")];
    assert_eq!((loss.messages.len(), loss.commits.len()), (1, 0), "{report:?}");
    let machine = Machine::start(machine.disk.clone(), tiny()).unwrap();
    assert_eq!(machine.report.open_turns, 39);
}

#[test]
fn a_lost_head_costs_nothing_and_a_lost_segment_what_was_in_it() {
    for segment_gone in [false, true] {
        let machine = filled();
        let disk = machine.disk.clone();
        if segment_gone {
            disk.remove(&crate::segment::path(Path::new(DIR), 2)).unwrap();
        } else {
            damage(&disk, 2, 0, &[0; 64]);
        }
        assert!(Machine::start(disk.clone(), tiny()).is_err());
        let report = mend(&disk, true).unwrap();
        assert!(report.repaired);
        let machine = Machine::start(disk, tiny()).unwrap();
        assert_eq!(machine.report.open_turns, report.open_turns);
        assert_eq!(report.open_turns == 60, !segment_gone, "{report:?}");
    }
}

#[test]
fn a_flipped_bit_in_a_head_is_damage_and_no_newer_version() {
    for (segment, offset) in [(2, 4), (2, 5), (1, 4)] {
        let machine = filled();
        let disk = machine.disk.clone();
        damage(&disk, segment, offset, &[3]);
        let Err(refused) = Machine::start(disk.clone(), tiny()) else { panic!("segment {segment} has no sound head") };
        assert!(matches!(refused, OpenError::Damaged { .. }), "{refused}");
        assert!(refused.to_string().contains("journal repair"), "{refused}");
        let report = mend(&disk, true).unwrap();
        assert_eq!((report.repaired, report.open_turns), (true, 60), "{report:?}");
        assert_eq!(Machine::start(disk, tiny()).unwrap().report.open_turns, 60);
    }
}

#[test]
fn the_records_are_shown_with_what_was_said_only_when_asked() {
    let mut machine = Machine::start(disk(), tiny()).unwrap();
    let body = domain::body::TurnBody::text("the secret").encode();
    machine.enqueue(message("a", 1, "m1", &body));
    machine.enqueue(message("b", 2, "m2", b"x"));
    let loaded = machine.load(&key("a"));
    let mut end = commit(&key("a"), loaded.session, loaded.epoch, loaded.next_commit);
    (end.lines, end.ended) = (vec![line("one")], vec![(turn(1), TurnEnd::Done)]);
    machine.commit(end);
    let shown = |filter: ShowFilter| {
        let mut lines = Vec::new();
        show(Path::new(DIR), &*machine.disk, &filter, |shown| {
            lines.push((shown.record, shown.lsn, serde_json::to_string(&shown).unwrap()));
            Ok::<_, OpenError>(())
        })
        .unwrap();
        lines
    };
    let names = |filter| shown(filter).into_iter().map(|(name, _, _)| name).collect::<Vec<_>>();
    assert_eq!(names(ShowFilter::default()), ["accepted", "accepted", "epoch", "commit"]);
    let of_a = ShowFilter { session: Some(key("a")), ..ShowFilter::default() };
    assert_eq!(names(of_a.clone()), ["accepted", "epoch", "commit"]);
    assert_eq!(names(ShowFilter { turn: Some(turn(1)), ..ShowFilter::default() }), ["accepted", "commit"]);
    let from = shown(of_a.clone())[1].1;
    assert_eq!(names(ShowFilter { from, ..of_a.clone() }), ["epoch", "commit"]);
    let texts = |content| shown(ShowFilter { content, ..of_a.clone() }).concat_texts();
    assert!(!texts(false).contains("the secret") && texts(true).contains("the secret"));
}

trait Texts {
    fn concat_texts(self) -> String;
}

impl Texts for Vec<(&'static str, u64, String)> {
    fn concat_texts(self) -> String {
        self.into_iter().map(|(_, _, text)| text).collect()
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is overwritten, and wherever the power goes during the repair: a repair leads to a log that starts, has
    /// what the report says, and nothing that was not there.
    #[test]
    fn any_damage_can_be_repaired(
        segment in 1u64..5, offset in 0u64..16_000, bytes in prop::collection::vec(any::<u8>(), 1..600), cut in 1u64..60,
    ) {
        let machine = filled();
        let before = open_keys(&machine);
        let disk = machine.disk.clone();
        damage(&disk, segment, offset, &bytes);
        let plan = mend(&disk, false).unwrap();
        let found = disk.copy();
        found.power_off_at(found.operations() + cut);
        let _ = mend(&found, true);
        let survived = found.cut(cut);
        mend(&survived, true).unwrap();
        let mut machine = Machine::start(survived, tiny()).unwrap();
        prop_assert_eq!(machine.report.open_turns, plan.open_turns);
        for (name, open) in open_keys(&machine) {
            prop_assert_eq!(before.get(&name), Some(&open));
        }
        prop_assert!(machine.report.open_turns >= 60 - 2 * 16);
        let accepted = matches!(machine.enqueue(message("new", 99, "m", b"x")), Enqueued::Accepted { .. });
        prop_assert!(accepted);
        prop_assert_eq!(machine.kill().report.open_turns, plan.open_turns + 1);
    }
}
