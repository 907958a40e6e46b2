use std::path::Path;
use std::sync::Arc;

use protocol::supervision::{ActorPath, Event, EventName, Kind};

use super::*;
use crate::log::file_number;
use crate::memory::PowerCutDisk;
use crate::ports::{Disk, Open};

const DIR: &str = "/logs";

fn line(n: u32) -> String {
    let mut event = Event::new(EventName::Started, ActorPath(format!("/a/{}", n % 3).into()), Kind::Session);
    event.id = n.to_string();
    format!("{}\n", serde_json::to_string(&event).unwrap())
}

/// Appends events to file `of`.
fn write(disk: &PowerCutDisk, of: &str, numbers: impl IntoIterator<Item = u32>) {
    disk.create_dir_all(Path::new(DIR)).unwrap();
    let file = disk.open(&Path::new(DIR).join(of), Open::Create).unwrap();
    let text: String = numbers.into_iter().map(line).collect();
    file.write_at(text.as_bytes(), file.length().unwrap()).unwrap();
}

fn ids(events: impl IntoIterator<Item = Event>) -> Vec<u32> {
    events.into_iter().map(|event| event.id.parse().unwrap()).collect()
}

fn search(disk: &Arc<PowerCutDisk>, pairs: &[(&str, &str)]) -> Search {
    Search::open(disk.clone(), Path::new(DIR), Query::parse(pairs.iter().copied()).unwrap()).unwrap()
}

#[test]
fn globs_match_paths() {
    let table = [
        ("*", "/a/b", true),
        ("/registry/*", "/registry/0/session/x", true),
        ("*session*", "/registry/0/session/x", true),
        ("/a?c", "/abc", true),
        ("/a?c", "/ac", false),
        ("", "", true),
        ("", "a", false),
        ("a*b*c", "aXbYbZc", true),
        ("a*b*c", "aXbYbZ", false),
    ];
    for (glob, text, expect) in table {
        assert_eq!(glob_matches(glob, text), expect, "{glob} {text}");
    }
}

#[test]
fn file_names_have_their_numbers() {
    for (name, number) in [
        ("supervision.jsonl", Some(0)),
        ("supervision.7.jsonl", Some(7)),
        ("supervision.x.jsonl", None),
        ("supervision7.jsonl", None),
        ("crash", None),
    ] {
        assert_eq!(file_number(name), number, "{name}");
    }
}

#[test]
fn rotated_files_are_read_oldest_first_and_reading_goes_on_over_rotations() {
    let disk = PowerCutDisk::new();
    write(&disk, "supervision.2.jsonl", 0..5);
    write(&disk, "supervision.1.jsonl", 5..10);
    write(&disk, "supervision.jsonl", 10..12);
    let mut events = Events::open(disk.clone(), Path::new(DIR)).unwrap();
    assert_eq!(ids(events.by_ref().map(Result::unwrap)), (0..12).collect::<Vec<_>>());
    // Written and rotated twice between two looks.
    write(&disk, "supervision.jsonl", 12..14);
    let path = |n: u32| {
        Path::new(DIR).join(if n == 0 { "supervision.jsonl".into() } else { format!("supervision.{n}.jsonl") })
    };
    for _ in 0..2 {
        for n in (0..3).rev() {
            disk.rename(&path(n), &path(n + 1)).ok();
        }
        let next = ids(Events::open(disk.clone(), Path::new(DIR)).unwrap().map(Result::unwrap)).last().unwrap() + 1;
        write(&disk, "supervision.jsonl", next..next + 2);
    }
    assert_eq!(ids(events.by_ref().map(Result::unwrap)), (12..18).collect::<Vec<_>>());
    assert!(events.next().is_none());
    write(&disk, "supervision.jsonl", 18..19);
    assert_eq!(ids(events.by_ref().map(Result::unwrap)), [18]);
    assert_eq!(events.unreadable(), 0);
}

#[test]
fn a_line_that_is_not_complete_yet_is_waited_for() {
    let disk = PowerCutDisk::new();
    write(&disk, "supervision.jsonl", 0..1);
    let file = disk.open(&Path::new(DIR).join("supervision.jsonl"), Open::Create).unwrap();
    let whole = line(1);
    let (half, rest) = whole.split_at(10);
    file.write_at(half.as_bytes(), file.length().unwrap()).unwrap();
    let mut events = Events::open(disk.clone(), Path::new(DIR)).unwrap();
    assert_eq!(ids(events.by_ref().map(Result::unwrap)), [0]);
    file.write_at(rest.as_bytes(), file.length().unwrap()).unwrap();
    assert_eq!(ids(events.by_ref().map(Result::unwrap)), [1]);
}

#[test]
fn a_search_gives_pages_and_begins_where_it_is_told() {
    let disk = PowerCutDisk::new();
    write(&disk, "supervision.1.jsonl", 0..50);
    write(&disk, "supervision.jsonl", 50..100);
    let mut all = search(&disk, &[("path", "/a/0")]);
    let page = all.page(30).unwrap();
    assert_eq!((page.events.len(), page.at_end), (30, false));
    let page = all.page(30).unwrap();
    assert_eq!((ids(page.events), page.at_end), (vec![90, 93, 96, 99], true));
    write(&disk, "supervision.jsonl", 100..103);
    assert_eq!(ids(all.page(30).unwrap().events), [102]);
    let first = |pairs: &[(&str, &str)]| ids(search(&disk, pairs).page(1000).unwrap().events);
    assert_eq!(first(&[("after", "99")]), [100, 101, 102]);
    assert_eq!(first(&[("after", "long gone"), ("tail", "2")]), [101, 102]);
    assert_eq!(first(&[("tail", "2"), ("path", "/a/1")]), [97, 100]);
    assert!(first(&[("tail", "0")]).is_empty());
    assert!(first(&[("kind", "tools,journal")]).is_empty());
    // After the tail comes what is new.
    let mut tail = search(&disk, &[("tail", "1")]);
    assert_eq!(ids(tail.page(10).unwrap().events), [102]);
    write(&disk, "supervision.jsonl", 103..105);
    assert_eq!(ids(tail.page(10).unwrap().events), [103, 104]);
}

#[test]
fn what_is_no_query_is_refused_by_name() {
    for (name, value) in [
        ("kind", "planet"),
        ("event", ""),
        ("session", ""),
        ("turn", "7"),
        ("since", "2h"),
        ("until", "2026-13-01T00:00:00Z"),
        ("tail", "-1"),
        ("tail", "100001"),
    ] {
        let bad = Query::parse([(name, value)]).unwrap_err();
        assert_eq!(bad.name, name);
        assert!(!bad.why.is_empty());
    }
    assert_eq!(Query::parse([("follow", "true")]).unwrap(), Query::default(), "of somebody else");
}
