//! A file that somebody else changed, as it is read afterwards: nothing that either wrote is lost, and there is one leaf.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::sync::Arc;

use domain::ids::EntryId;
use domain::transcript::{Head, Pen, Reader, Transcript, TreeIndex, leaf_line, read_lines, side_line};
use proptest::prelude::*;

const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#;

fn message(id: &str, parent: Option<&str>) -> String {
    let parent = parent.map_or("null".to_owned(), |parent| format!("\"{parent}\""));
    format!(r#"{{"type":"message","id":"{id}","parentId":{parent},"message":{{"role":"user","content":"{id}"}}}}"#)
}

fn ids(transcript: &Transcript) -> Vec<&str> {
    transcript.path_to_leaf().iter().map(|entry| &*entry.id).collect()
}

/// Lines of somebody else: each hangs on an entry that is there, or moves the leaf.
fn foreign() -> impl Strategy<Value = Vec<(usize, u8)>> {
    prop::collection::vec((0usize..8, 0u8..4), 1..5)
}

fn lines_of(foreign: &[(usize, u8)], known: &[&str]) -> Vec<String> {
    let mut known: Vec<String> = known.iter().map(|id| (*id).to_owned()).collect();
    let mut lines = Vec::new();
    for (number, (at, kind)) in foreign.iter().enumerate() {
        let (id, parent) = (format!("f{number}"), known[at % known.len()].clone());
        lines.push(match kind {
            0 => side_line(&message(&id, Some(&parent)).replace("\"message\":", "\"timestamp\":0,\"message\":")),
            1 => format!(r#"{{"type":"leaf","id":"{id}","parentId":null,"targetId":"{parent}"}}"#),
            2 => format!(r#"{{"type":"novelty","id":"{id}","parentId":"{parent}"}}"#),
            _ => message(&id, Some(&parent)),
        });
        known.push(id);
    }
    lines
}

proptest! {
    /// Lines that were promised before the change was seen are written behind it as they are, then a leaf row.
    #[test]
    fn promised_lines_are_the_conversation_whatever_came_between(foreign in foreign(), ours in 1usize..4) {
        let mut text = format!("{HEADER}\n{}\n{}\n", message("a", None), message("b", Some("a")));
        let promised: Vec<String> = (0..ours)
            .map(|at| message(&format!("o{at}"), Some(&if at == 0 { "b".to_owned() } else { format!("o{}", at - 1) })))
            .collect();
        let last = format!("o{}", ours - 1);
        let row = leaf_line(&Head { id: "row".into(), parent: Some(Arc::from(&*last)), timestamp_ms: 1 }, Some(&last), None);
        for line in lines_of(&foreign, &["a", "b"]).iter().chain(&promised).chain([&row]) {
            text.push_str(line);
            text.push('\n');
        }
        let transcript = read_lines(text.as_bytes());
        let mut path = vec!["a".to_owned(), "b".to_owned()];
        path.extend((0..ours).map(|at| format!("o{at}")));
        prop_assert_eq!(transcript.append_parent(), Some(&*last));
        prop_assert_eq!(transcript.problems_total, 0);
        prop_assert_eq!(transcript.entries().len(), 2 + foreign.len() + ours + 1);
        prop_assert_eq!(ids(&transcript), path);
    }

    /// What is written after the change was seen follows where the other writer left the conversation; what was read
    /// before need not be read again.
    #[test]
    fn a_change_that_is_seen_is_followed(foreign in foreign()) {
        let before = format!("{HEADER}\n{}\n{}\n", message("a", None), message("b", Some("a")));
        let mut tree = TreeIndex::default();
        let mut reader = Reader::default();
        let read = |reader: &mut Reader, tree: &mut TreeIndex, bytes: &[u8]| {
            reader.push(bytes, |record| {
                tree.insert(&record.entry, &record.parent, record.kind, record.place);
            });
        };
        read(&mut reader, &mut tree, before.as_bytes());
        let added = lines_of(&foreign, &["a", "b"]).join("\n") + "\n";
        read(&mut reader, &mut tree, added.as_bytes());
        let mut ids_ = || EntryId(7);
        let ours = Pen::new(&tree, &mut ids_, 1).rename("x");
        let text = format!("{before}{added}{}\n", ours.line);
        let transcript = read_lines(text.as_bytes());
        prop_assert_eq!(reader.at() as usize, before.len() + added.len());
        let leaf = tree.leaf().map(str::to_owned);
        let mut path: Vec<String> = tree.path().iter().map(|at| tree.id(*at).to_owned()).collect();
        prop_assert_eq!(path.last().cloned(), leaf);
        path.push(EntryId(7).to_string());
        prop_assert_eq!(ids(&transcript), path);
    }
}
