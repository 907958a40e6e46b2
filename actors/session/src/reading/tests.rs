use std::path::Path;

use domain::chat::{AssistantMessage, Content, plain_text};
use domain::history::select;
use domain::transcript::{
    AssistantEntry, EntryKind, Head, TurnClose, UserEntry, UserMark, assistant_line, leaf_line, read_lines,
    turn_record, user_line,
};
use proptest::prelude::*;
use supervision::memory::PowerCutDisk;
use supervision::ports::{Disk, Open};
use uuid::Uuid;

use super::*;

const TOKENS: u64 = 300;

fn source(bytes: &[u8]) -> Source {
    let disk = PowerCutDisk::new();
    disk.create_dir_all(Path::new("/s")).unwrap();
    let file = disk.open(Path::new("/s/a.jsonl"), Open::Create).unwrap();
    file.write_at(bytes, 0).unwrap();
    Source { file: Some(file), keep: bytes.len() as u64, rest: Vec::new() }
}

fn turn(number: usize) -> TurnId {
    TurnId(Uuid::from_u128(number as u128 + 1))
}

/// Even ones are a user's, odd ones the model's.
fn said(number: usize, parent: Option<usize>, text: &str) -> String {
    let head = Head { id: id(number), parent: parent.map(id), timestamp_ms: 1 };
    let mark = UserMark {
        turn: turn(number),
        idempotency_key: format!("ws:{number}").into(),
        body_hash: 1,
        accepted_ms: 0,
        into: None,
        command: false,
    };
    let entry = Entry::new(head.clone(), kind(number, text, Some(mark)));
    let line = entry.user().map(|user| user_line(&head, user));
    line.or_else(|| entry.assistant().map(|answer| assistant_line(&head, answer))).unwrap() + "\n"
}

fn kind(number: usize, text: &str, mark: Option<UserMark>) -> EntryKind {
    if number.is_multiple_of(2) {
        return EntryKind::User(UserEntry { content: [Content::text(text)].into(), mark, event: None });
    }
    let message = AssistantMessage::new(text, "p", "m");
    let turn = mark.map(|mark| mark.turn);
    EntryKind::Assistant(Box::new(AssistantEntry { message: message.into(), turn, end: None, transcript_only: false }))
}

fn id(number: usize) -> Arc<str> {
    format!("{number:016x}").into()
}

/// That many messages in a chain, each of about `chars` characters.
fn chain(count: usize, chars: usize) -> String {
    (0..count).map(|at| said(at, at.checked_sub(1), &format!("{at} {}", "x".repeat(chars)))).collect()
}

fn words(window: &Window) -> Vec<String> {
    let text = |entry: &&Entry| match entry.assistant() {
        Some(answer) => Some(answer.message.text.clone()),
        None => entry.user().map(|user| plain_text(&user.content)),
    };
    let texts = window.transcript.path_to_leaf().iter().filter_map(text).collect::<Vec<_>>();
    texts.iter().map(|text| text.split(' ').next().unwrap().to_owned()).collect()
}

#[test]
fn a_command_is_no_preview() {
    let command = said(0, None, "/help").replace("\"bodyHash\"", "\"command\":true,\"bodyHash\"");
    let read = read(&source((command + &said(2, Some(0), "hello")).as_bytes()), TOKENS, None).unwrap();
    assert_eq!((read.preview.as_deref(), words(&read.window)), (Some("hello"), vec!["hello".to_owned()]));
}

#[test]
fn of_a_long_file_the_end_is_kept() {
    let file = chain(5_000, 400);
    let read = read(&source(file.as_bytes()), TOKENS, None).unwrap();
    assert_eq!((read.tree.len(), read.length), (5_000, file.len() as u64));
    assert_eq!(read.tree.append_parent(), Some(&*id(4_999)));
    assert_eq!(read.preview.as_deref().map(|text| text.starts_with("0 xxx")), Some(true));
    assert!(!read.window.is_all && read.window.bytes <= reach(TOKENS) * BYTES_PER_TOKEN * 2, "{}", read.window.bytes);
    assert_eq!(words(&read.window).last().map(String::as_str), Some("4999"));
}

#[test]
fn a_turn_that_is_worked_on_is_kept_whole() {
    let read = read(&source(chain(100, 400).as_bytes()), TOKENS, Some(turn(50))).unwrap();
    let words = words(&read.window);
    assert!(words.contains(&"50".to_owned()) && (55..70).contains(&words.len()), "and what a request shows before it");
}

#[test]
fn what_lies_far_back_is_read_again() {
    // The conversation goes on behind its third message; what came between is a branch that was left.
    let mut file = chain(1_000, 400);
    let head = Head { id: "leaf".into(), parent: Some(id(999)), timestamp_ms: 1 };
    file += &(leaf_line(&head, Some(&id(2)), None) + "\n");
    let source = Source { rest: said(1_000, Some(2), "new").into_bytes(), ..source(file.as_bytes()) };
    let read = read(&source, TOKENS, None).unwrap();
    assert_eq!(words(&read.window), ["0", "1", "2", "new"]);
    assert!(!read.window.is_all);
}

#[test]
fn entries_without_ids_are_found_again() {
    let old = |text: &str| format!(r#"{{"type":"message","message":{{"role":"user","content":"{text}"}}}}"#);
    let mut file = r#"{"type":"session","id":"s","cwd":"/"}"#.to_owned() + "\n" + &old("first") + "\n";
    let compaction = r#"{"type":"compaction","summary":"short","firstKeptEntryIndex":1}"#;
    file += &(compaction.to_owned() + "\n");
    file += &(0..200).map(|at| old(&format!("{at} {}", "x".repeat(10))) + "\n").collect::<String>();
    let read = read(&source(file.as_bytes()), 10_000, None).unwrap();
    assert_eq!(select(&read.window.transcript.path_to_leaf(), 10_000), whole(file.as_bytes(), 10_000));
    let few = super::read(&source(file.as_bytes()), 2_000, None).unwrap();
    let (few, all) = (select(&few.window.transcript.path_to_leaf(), 1_000), whole(file.as_bytes(), 1_000));
    assert_eq!((few.messages, few.tokens), (all.messages, all.tokens));
}

fn whole(bytes: &[u8], budget: u64) -> domain::history::History {
    select(&read_lines(bytes).path_to_leaf(), budget)
}

#[test]
fn a_turn_is_found_wherever_it_lies() {
    let file = chain(300, 400);
    for number in [0, 150, 299] {
        let own = read_turn(&source(file.as_bytes()), turn(number)).unwrap();
        assert_eq!(turn_record(&own, turn(number)), turn_record(&read_lines(file.as_bytes()), turn(number)));
        assert_eq!(own.entries().len(), 1);
    }
    assert_eq!(read_turn(&source(file.as_bytes()), turn(300)).unwrap().entries().len(), 0);
    assert_eq!(turn_record(&Transcript::default(), turn(300)).map(|record| record.end), None::<Option<TurnClose>>);
}

#[test]
fn a_window_that_grows_is_trimmed_to_what_can_be_seen() {
    let mut window = read(&source(chain(1, 10).as_bytes()), TOKENS, None).unwrap().window;
    let mut all = Transcript::default();
    let (mut trims, mut most) = (0, 0);
    for number in 0..2_000 {
        let kind = kind(number, &format!("{number} {}", "x".repeat(number % 97)), None);
        let entry = Entry::new(Head { id: id(number), parent: None, timestamp_ms: 1 }, kind);
        all.follow(entry.clone());
        window.transcript.follow(entry);
        window.bytes += 300;
        trims += u32::from(window.trim(TOKENS));
        most = most.max(window.transcript.entries().len());
        if number > 100 {
            let (part, whole) =
                (select(&window.transcript.path_to_leaf(), TOKENS), select(&all.path_to_leaf(), TOKENS));
            assert_eq!((part.messages, part.tokens), (whole.messages, whole.tokens), "message {number}");
        }
    }
    assert!(most < 200 && (5..500).contains(&trims), "{most} entries at most, {trims} times trimmed");
}

proptest! {
    #[test]
    fn a_window_shows_what_the_whole_file_shows(
        lengths in prop::collection::vec((0usize..600, any::<prop::sample::Index>(), 0u8..8), 1..60),
        tokens in 1u64..400,
        rest in any::<prop::sample::Index>(),
    ) {
        let (mut file, mut ends) = (String::new(), vec![0]);
        for (number, (length, other, branch)) in lengths.iter().enumerate() {
            // Now and then the conversation goes on elsewhere.
            let parent = if *branch == 0 { other.index(number + 1).checked_sub(1) } else { number.checked_sub(1) };
            file += &said(number, parent, &format!("{number} {}", "x".repeat(*length)));
            ends.push(file.len());
        }
        let rest = *rest.get(&ends);
        let source = Source { rest: file.as_bytes()[rest..].to_vec(), ..source(&file.as_bytes()[..rest]) };
        let read = read(&source, tokens, None).unwrap();
        let (part, whole) = (select(&read.window.transcript.path_to_leaf(), tokens), whole(file.as_bytes(), tokens));
        prop_assert_eq!((part.messages, part.tokens), (whole.messages, whole.tokens));
    }
}
