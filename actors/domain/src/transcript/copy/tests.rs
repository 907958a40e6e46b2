use super::*;
use crate::history::select;
use crate::ids::EntryId;
use crate::transcript::{Transcript, read_lines};

const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#;

fn user(id: &str, parent: &str, rest: &str) -> String {
    format!(
        r#"{{"type":"message","id":"{id}","parentId":{parent},"timestamp":"2026-01-01T00:00:00.000Z"{rest},"message":{{"role":"user","content":"{id}"}}}}"#
    )
}

fn lines_of(steps: &[Step], source: &str) -> Vec<String> {
    let read = |place: &Range<u64>| {
        let piece = source.as_bytes().get(place.start as usize..place.end as usize);
        piece.map(<[u8]>::to_vec).ok_or("it lies in the source")
    };
    steps.iter().filter_map(|step| step.line(read).unwrap()).collect()
}

fn file_of(lines: &[String]) -> Transcript {
    read_lines(format!("{HEADER}\n{}", lines.join("\n")).as_bytes())
}

fn extracted(source: &[String], leaf: &str) -> (Transcript, Vec<String>) {
    let text = format!("{HEADER}\n{}", source.join("\n"));
    let transcript = read_lines(text.as_bytes());
    let mut number = 0;
    let mut ids = || {
        number += 1;
        EntryId(number)
    };
    let steps = extract(transcript.tree(), leaf, 3, &mut ids).unwrap();
    let lines = lines_of(&steps, &text);
    let copy = file_of(&lines);
    assert_eq!(copy.problems, []);
    let end = transcript.tree().node_of(leaf).unwrap();
    let path: Vec<_> = transcript.tree().path_to(end).iter().map(|at| &transcript.entries()[at.0 as usize]).collect();
    assert_eq!(select(&copy.path_to_leaf(), 1_000_000), select(&path, 1_000_000), "the model is shown the same");
    (copy, lines)
}

fn ids(transcript: &Transcript) -> Vec<&str> {
    transcript.path_to_leaf().iter().map(|entry| &*entry.id).collect()
}

#[test]
fn an_extract_is_linked_anew_around_what_is_left_out() {
    let source = [
        user("a", "null", ""),
        r#"{"type":"label","id":"l","parentId":"a","targetId":"a","label":"start"}"#.to_owned(),
        user("b", "\"l\"", ""),
        r#"{"type":"novelty","id":"u","parentId":"b", "n": 1.50}"#.to_owned(),
        user("c", "\"u\"", ""),
        r#"{"type":"compaction","id":"d","parentId":"c","summary":"s","firstKeptEntryId":"l"}"#.to_owned(),
        user("e", "\"d\"", ""),
        user("x", "\"b\"", ""),
        r#"{"type":"label","id":"m","parentId":"x","targetId":"x","label":"elsewhere"}"#.to_owned(),
    ];
    let (copy, lines) = extracted(&source, "e");
    assert_eq!(ids(&copy), ["a", "b", "c", "d", "e", "0000000000000001"]);
    assert_eq!(lines[0], source[0], "what does not change keeps its bytes");
    assert_eq!(lines[1], user("b", "\"a\"", ""));
    assert_eq!(lines[2], r#"{"type":"novelty","id":"u","parentId":"b","n":1.50}"#);
    assert!(lines[4].contains(r#""firstKeptEntryId":"b""#), "the label it kept from is gone: {}", lines[4]);
    assert_eq!(
        lines[6],
        r#"{"type":"label","id":"0000000000000001","parentId":"e","timestamp":"1970-01-01T00:00:00.000Z","targetId":"a","label":"start"}"#
    );
    let (copy, _) = extracted(&source, "x");
    let labels = copy.tree().labels();
    assert_eq!(labels.iter().map(|(at, _)| copy.tree().id(*at)).collect::<Vec<_>>(), ["a", "x"]);
    // An unknown record stands for the entry that it hangs on.
    assert_eq!(ids(&extracted(&source, "u").0)[..2], ["a", "b"]);
}

#[test]
fn a_side_branch_that_is_extracted_is_the_conversation_there() {
    let source = [user("a", "null", ""), user("s", "\"a\"", r#","appendMode":"side""#), user("b", "\"s\"", "")];
    let (copy, lines) = extracted(&source, "s");
    assert_eq!(ids(&copy), ["a", "s"]);
    assert_eq!(lines[1], user("s", "\"a\"", ""));
    assert_eq!(ids(&extracted(&source, "b").0), ["a", "b"]);
}

#[test]
fn a_fork_has_every_line_that_can_be_read() {
    let damaged = user("c", "\"b\"", "").replace("\"content\":\"c\"", "\"content\":\"raw \u{1}\"");
    let source = [
        user("a", "null", ""),
        r#"{"type":"message","id":"#.to_owned(),
        "42".to_owned(),
        r#" {"type":"novelty", "x":[ 1 ]}"#.to_owned(),
        format!("{}{}", user("b", "\"a\"", ""), r#"{"type":"leaf","id":"l","parentId":"b","targetId":"zz"}"#),
        damaged,
        r#"{"type":"leaf","id":"k","parentId":"c","targetId":"b"}"#.to_owned(),
    ];
    let text = format!("{HEADER}\n{}", source.join("\n"));
    let transcript = read_lines(text.as_bytes());
    let lines = lines_of(&fork(transcript.tree(), 3).unwrap(), &text);
    assert_eq!(lines.len(), 7);
    assert_eq!((&lines[0], &*lines[1], lines[2].trim()), (&source[0], "42", source[3].trim()));
    let copy = file_of(&lines);
    assert_eq!(copy.problems, []);
    assert_eq!(copy.entries(), transcript.entries());
    assert_eq!(copy.leaf(), Some("b"));
}

#[test]
fn what_is_not_there_is_not_copied() {
    let transcript = read_lines(HEADER.as_bytes());
    assert_eq!(fork(transcript.tree(), 3), Err(EditError::Empty));
    let mut ids = || EntryId(1);
    assert_eq!(extract(transcript.tree(), "a", 3, &mut ids), Err(EditError::UnknownEntry));
    let only_a_label = read_lines(br#"{"type":"label","id":"l","parentId":null,"targetId":"l","label":"x"}"#);
    assert_eq!(extract(only_a_label.tree(), "l", 3, &mut ids), Err(EditError::Empty));
    let step = Step::Copy { place: 0..2, id: "a".into(), change: Change::default() };
    assert_eq!(step.line(|_| Ok::<_, ()>(Vec::new())), Ok(None));
    assert_eq!(step.line(|_| Err("no disk")), Err("no disk"));
}
