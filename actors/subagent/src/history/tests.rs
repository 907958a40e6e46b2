use std::path::Path;

use domain::ids::{SessionKey, Source};
use supervision::memory::PowerCutDisk;
use uuid::Uuid;

use super::*;

fn id(number: u128) -> RunId {
    RunId(Uuid::from_u128(number))
}

fn began(number: u128, since_ms: u64, waits: bool) -> Note {
    let spec = RunSpec {
        run: id(number),
        parent: SessionKey::new("cli:direct").unwrap(),
        turn: TurnId(Uuid::from_u128(1000)),
        source: Source::new("cli").unwrap(),
        label: "toads".into(),
        task: "Count\nthem.".into(),
        model: None,
        tools: Vec::new(),
        timeout_s: 0,
        budget_tokens: 0,
        rounds: 0,
        fork: false,
        detached: false,
        route: None,
        scope: None,
        retry_of: None,
    };
    Note::Began { spec: spec.into(), turn: TurnId(Uuid::from_u128(number)), since_ms, waits }
}

fn end(result: TurnResult) -> End {
    End { result, text: "5 toads".into(), usage: Usage { output_tokens: 3, ..Usage::default() } }
}

fn ended(number: u128) -> Note {
    Note::ended(id(number), &end(TurnResult::Done))
}

/// The runs that lines tell of, in order, with what is known of them.
fn told(text: &str) -> Vec<(u128, u64, bool, bool, bool)> {
    let runs = found(text.as_bytes()).runs;
    let row = |past: Past| (past.spec.run.0.as_u128(), past.since_ms, past.waits, past.end.is_some(), past.told);
    runs.into_iter().map(row).collect()
}

#[test]
fn notes_tell_what_was_noted() {
    let reported = Note::Reported { run: id(2) };
    let text = lines(&[began(1, 5, false), began(2, 6, true), ended(2), reported, began(3, 7, false), ended(3)]);
    assert_eq!(text.lines().count(), 6);
    let expect = [(2, 6, true, true, true), (3, 7, false, true, false), (1, 5, false, false, false)];
    assert_eq!(told(&text), expect);
    for result in [TurnResult::Done, TurnResult::Failed, TurnResult::DeadLettered, TurnResult::Cancelled] {
        let text = lines(&[began(1, 5, false), Note::ended(id(1), &end(result))]);
        assert_eq!(found(text.as_bytes()).runs[0].end, Some(end(result)));
    }
}

#[test]
fn the_first_begin_counts_and_the_last_end() {
    let again = lines(&[began(1, 5, true), began(1, 900, false), ended(1), began(1, 950, false)]);
    assert_eq!(told(&again), [(1, 5, true, true, false)]);
    let later = Note::ended(id(1), &end(TurnResult::Failed));
    let later = again + &lines(&[Note::Reported { run: id(1) }, later]);
    assert_eq!(told(&later), [(1, 5, false, true, false)], "its report is another one");
    assert_eq!(found(later.as_bytes()).runs[0].end, Some(end(TurnResult::Failed)));
}

#[test]
fn what_says_nothing_is_passed_over_and_counted() {
    let whole = lines(&[began(1, 5, false), ended(1)]);
    let (first, second) = whole.split_once('\n').unwrap();
    let mixed = format!("{first}\nnonsense\n\u{0}\n{{\"note\":\"later\"}}\n\n{second}{{\"note\":\"ended\",\"run\":");
    let found = found(mixed.as_bytes());
    assert_eq!((found.runs.len(), found.notes, found.bad), (1, 6, 4));
    assert!(found.runs[0].end.is_some());
    assert_eq!(super::found(lines(&[ended(9), Note::Reported { run: id(9) }]).as_bytes()).bad, 0, "it was let go");
}

#[test]
fn only_the_last_that_have_ended_are_kept() {
    let many = ENDED_KEPT as u128 + 3;
    let notes: Vec<Note> = (1..=many).flat_map(|number| [began(number, 1, false), ended(number)]).collect();
    let runs = found(lines(&notes).as_bytes()).runs;
    assert_eq!((runs.len(), runs[0].spec.run), (ENDED_KEPT, id(4)));
}

#[test]
fn a_torn_line_does_not_spoil_the_next_one() {
    let (disk, path) = (PowerCutDisk::new(), Path::new("/run/notes"));
    disk.create_dir_all(Path::new("/run")).unwrap();
    assert_eq!(read(&*disk, path).unwrap(), Found::default(), "there is none yet");
    append(&*disk, path, &lines(&[began(1, 5, false)])).unwrap();
    let file = disk.open(path, Open::Write).unwrap();
    file.set_length(file.length().unwrap() + 3).unwrap();
    append(&*disk, path, &lines(&[began(2, 5, false)])).unwrap();
    append(&*disk, path, &lines(&[ended(2)])).unwrap();
    let found = read(&*disk, path).unwrap();
    assert_eq!((found.runs.len(), found.notes, found.bad), (2, 4, 1));
    replace(&*disk, path, &lines(&[began(3, 5, false)])).unwrap();
    assert_eq!(read(&*disk, path).unwrap().notes, 1);
}
