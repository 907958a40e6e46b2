use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::*;
use crate::ports::{Disk, Open};

const DIR: &str = "/d";
const FILE: &str = "/d/f";

fn disk() -> Arc<PowerCutDisk> {
    let disk = PowerCutDisk::new();
    disk.create_dir_all(Path::new(DIR)).unwrap();
    disk
}

fn read(disk: &PowerCutDisk) -> Option<Vec<u8>> {
    disk.read(Path::new(FILE)).ok()
}

#[test]
fn what_was_synced_survives_every_cut() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), Open::Create).unwrap();
    file.write_at(b"durable", 0).unwrap();
    file.sync_data().unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    file.write_at(b"!", 7).unwrap();
    for seed in 0..200 {
        let found = read(&disk.cut(seed)).unwrap();
        assert!(found.starts_with(b"durable"), "seed {seed}");
    }
    assert_eq!(read(&disk).unwrap(), b"durable!");
}

#[test]
fn what_was_not_synced_may_be_there_missing_or_torn() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), Open::Create).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    file.write_at(&[1; 1024], 0).unwrap();
    file.write_at(&[2; 1024], 1024).unwrap();
    let found: BTreeSet<Vec<u8>> = (0..200).map(|seed| read(&disk.cut(seed)).unwrap()).collect();
    assert!(found.contains(&Vec::new()), "all missing");
    assert!(found.contains(&[[1; 1024], [2; 1024]].concat()), "all there");
    assert!(found.contains(&[[0; 1024], [2; 1024]].concat()), "only the later one");
    assert!(found.iter().any(|bytes| bytes.len() % SECTOR_BYTES != 0), "torn inside a sector");
}

#[test]
fn a_name_is_durable_only_after_its_directory_was_synced() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), Open::Create).unwrap();
    file.write_at(b"x", 0).unwrap();
    file.sync_data().unwrap();
    let there = (0..100).filter(|seed| read(&disk.cut(*seed)).is_some()).count();
    assert!((1..100).contains(&there), "{there}");
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert!((0..100).all(|seed| read(&disk.cut(seed)).as_deref() == Some(b"x")));
}

#[test]
fn a_rename_replaces_all_or_nothing() {
    let disk = disk();
    for (path, text) in [(FILE, b"old"), ("/d/new", b"new")] {
        let file = disk.open(Path::new(path), Open::Create).unwrap();
        file.write_at(text, 0).unwrap();
        file.sync_data().unwrap();
    }
    disk.sync_dir(Path::new(DIR)).unwrap();
    disk.rename(Path::new("/d/new"), Path::new(FILE)).unwrap();
    let found: BTreeSet<Vec<u8>> = (0..100).map(|seed| read(&disk.cut(seed)).unwrap()).collect();
    assert_eq!(found.into_iter().collect::<Vec<_>>(), [b"new".to_vec(), b"old".to_vec()]);
}

#[test]
fn a_failed_sync_never_becomes_durable() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), Open::Create).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    file.write_at(b"gone", 0).unwrap();
    disk.fail_next(Fault::SyncEio);
    assert!(file.sync_data().is_err());
    file.sync_data().unwrap();
    assert_eq!(read(&disk).unwrap(), b"gone");
    assert!((0..100).all(|seed| read(&disk.cut(seed)).unwrap().is_empty()));
}

#[test]
fn a_move_whose_sync_failed_is_kept_or_undone_with_all_that_follows() {
    let disk = disk();
    disk.open(Path::new(FILE), Open::Create).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    let (second, third) = (Path::new(DIR).join("second"), Path::new(DIR).join("third"));
    disk.rename(Path::new(FILE), &second).unwrap();
    disk.fail_next(Fault::SyncEio);
    assert!(disk.sync_dir(Path::new(DIR)).is_err());
    disk.rename(&second, &third).unwrap();
    let names = |disk: &PowerCutDisk| disk.list(Path::new(DIR)).unwrap();
    let found: BTreeSet<Vec<PathBuf>> = (0..200).map(|seed| names(&disk.cut(seed))).collect();
    assert_eq!(found, BTreeSet::from([vec![PathBuf::from(FILE)], vec![second], vec![third.clone()]]));
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert!((0..100).all(|seed| names(&disk.cut(seed)) == [third.clone()]));
}

#[test]
fn the_power_fails_in_the_middle_of_an_operation() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), Open::Create).unwrap();
    disk.sync_dir(Path::new(DIR)).unwrap();
    assert_eq!(disk.operations(), 2);
    disk.power_off_at(4);
    file.write_at(b"one", 0).unwrap();
    assert!(file.write_at(b"two", 3).is_err());
    assert!(disk.is_off());
    assert!(file.sync_data().is_err());
    assert!(read(&disk).is_none());
    let found: BTreeSet<Vec<u8>> = (0..200).map(|seed| read(&disk.cut(seed)).unwrap()).collect();
    assert!(found.contains(b"onetwo".as_slice()), "begun writes may arrive");
    assert!(found.contains(b"one".as_slice()));
    assert_eq!(disk.cut(1).operations(), 0, "the next machine has power");
}

#[test]
fn faults_hit_once_and_a_full_disk_refuses_growth() {
    let disk = disk();
    let file = disk.open(Path::new(FILE), Open::Create).unwrap();
    disk.fail_next(Fault::WriteEio);
    assert!(file.write_at(b"x", 0).is_err());
    file.write_at(b"x", 0).unwrap();
    disk.set_full(true);
    file.write_at(b"y", 0).unwrap();
    let full = file.write_at(b"z", 1).unwrap_err();
    assert_eq!(full.kind(), std::io::ErrorKind::StorageFull);
    assert!(disk.open(Path::new("/d/g"), Open::Create).is_err());
    disk.set_full(false);
    file.write_at(b"z", 1).unwrap();
    assert_eq!(read(&disk).unwrap(), b"yz");
}

#[test]
fn seeds_decide_ids() {
    let ids = |seed| {
        let ids = SeededIds::new(seed);
        (ids.uuid_v7(), ids.random(), ids.uuid_v7())
    };
    assert_eq!(ids(1), ids(1));
    assert_ne!(ids(1), ids(2));
    let (first, _, second) = ids(3);
    assert!(first < second);
    assert_eq!(first.get_version_num(), 7);
}

#[test]
fn clocks_move_when_told() {
    let clock = TestClock::new();
    assert_eq!(clock.mono(), Duration::ZERO);
    clock.advance(Duration::from_millis(1500));
    assert_eq!(clock.mono(), Duration::from_millis(1500));
    assert_eq!(clock.wall_us(), WALL_BEGIN_US + 1_500_000);
}
