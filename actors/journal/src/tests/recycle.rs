//! Segments that are used again hold sound batches of their former life. Random conversations over small segments, the
//! power cut at any operation, twice: what recovery finds is what the ledger of the script knows.

use std::cell::Cell;
use std::path::Path;

use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use supervision::memory::PowerCutDisk;
use supervision::ports::Disk;

use super::crash::{recovered, run};
use super::machine::DIR;
use crate::segment::{self, HEADER_BYTES, Name};
use crate::{batch, survey};

/// Enough for the power to fail before they are done.
const STEPS: usize = 2000;
/// Of the second life.
const STEPS_AFTER: usize = 60;
const CASES: u32 = 40;

/// Batches that are sound for another segment than the one whose file they are in.
fn batches_of_former_lives(disk: &PowerCutDisk) -> usize {
    let files = disk.list(Path::new(DIR)).unwrap();
    let in_file = |path: &std::path::PathBuf| {
        let Name::Segment(number) = segment::name(path) else { return 0 };
        let bytes = disk.read(path).unwrap();
        let starts = (HEADER_BYTES as usize..bytes.len()).step_by(batch::ALIGN as usize);
        let former = |start: &usize| {
            let rest = bytes.get(*start..).filter(|rest| batch::may_begin(rest) && rest.len() >= 16)?;
            let owner = u64::from_le_bytes(rest[8..16].try_into().unwrap());
            (owner < number && survey::next_sound(rest, 0, owner, None) == Some(0)).then_some(())
        };
        starts.filter(|start| former(start).is_some()).count()
    };
    files.iter().map(in_file).sum()
}

#[test]
fn what_is_left_in_recycled_segments_is_never_taken_for_new() {
    let old = Cell::new(0);
    let mut runner = TestRunner::new(Config { cases: CASES, failure_persistence: None, ..Config::default() });
    let cuts = (any::<u64>(), 200..2500_u64, any::<u64>());
    let held = runner.run(&cuts, |(seed, off, survival)| {
        let what = format!("seed {seed}, power cut at {off}, survival {survival}");
        let (mut script, disk, _) = run(seed, STEPS, Some(off));
        prop_assert!(disk.is_off(), "{what}: the script ended before");
        let found = disk.cut(survival);
        old.set(old.get() + u32::from(batches_of_former_lives(&found) > 0));
        let mut machine = recovered(found, &script, &what);
        script.agree(&mut machine);
        for _ in 0..STEPS_AFTER {
            script.step(&mut machine);
        }
        let mut machine = recovered(machine.disk.cut(survival ^ 1), &script, &what);
        script.agree(&mut machine);
        Ok(())
    });
    held.unwrap_or_else(|why| panic!("{why}"));
    assert!(old.get() > CASES / 2, "only {} of {CASES} cases had used a segment again", old.get());
}
