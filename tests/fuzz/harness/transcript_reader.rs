//! What the fuzz target and the fixed corpus do with an input: take it for a transcript file. Whatever it holds,
//!
//! * nothing panics, and it reads the same in pieces as at once;
//! * every entry reads the same alone, by its place;
//! * path, tree and children agree, and each node is drawn once;
//! * what is appended is behind the leaf, and every entry of before reads as it did;
//! * a fork has the same entries and leaf; an extract has the same messages for the model.

use std::collections::BTreeSet;

use domain::history::select;
use domain::ids::EntryId;
use domain::transcript::copy::{Step, extract, fork};
use domain::transcript::{Pen, Reader, Transcript, TreeIndex, read_entry, read_lines, recent_ids, view};

const HEADER: &str = r#"{"type":"session","version":3,"id":"s","timestamp":"2026-01-01T00:00:00.000Z","cwd":"/w"}"#;

/// Runs one input.
pub fn run(bytes: &[u8]) {
    let transcript = read_lines(bytes);
    let tree = transcript.tree();
    pieces(bytes, tree);
    drop(recent_ids(bytes, false));
    draw(&transcript);
    let all_differ = tree.positions().filter(|at| !tree.id(*at).is_empty()).count()
        == tree.positions().map(|at| tree.id(at)).filter(|id| !id.is_empty()).collect::<BTreeSet<_>>().len();
    if all_differ {
        alone(bytes, &transcript);
        copies(bytes, &transcript);
    }
    append(bytes, &transcript);
}

fn pieces(bytes: &[u8], whole: &TreeIndex) {
    let mut tree = TreeIndex::default();
    let mut reader = Reader::default();
    for piece in bytes.chunks(7) {
        reader.push(piece, |record| {
            tree.insert(&record.entry, &record.parent, record.kind, record.place);
        });
    }
    reader.finish(|record| {
        tree.insert(&record.entry, &record.parent, record.kind, record.place);
    });
    assert_eq!((tree.len(), tree.leaf(), tree.append_parent()), (whole.len(), whole.leaf(), whole.append_parent()));
    assert_eq!(tree.path(), whole.path());
    for at in whole.positions() {
        assert_eq!((tree.id(at), tree.place(at)), (whole.id(at), whole.place(at)));
    }
}

fn alone(bytes: &[u8], transcript: &Transcript) {
    let tree = transcript.tree();
    for (at, entry) in tree.positions().zip(transcript.entries()) {
        let place = tree.place(at);
        let alone = read_entry(tree, at, &bytes[place.start as usize..place.end as usize]);
        let alone = alone.expect("it was read before");
        // What a link stands for may become known, or be taken by another line, further on in the file.
        if !tree.kind(at).is_boundary() {
            assert_eq!((&alone.id, &alone.kind), (&entry.id, &entry.kind));
        }
    }
}

fn draw(transcript: &Transcript) {
    let tree = transcript.tree();
    let nodes = view::tree_of(transcript);
    assert_eq!(nodes.len(), tree.positions().filter(|at| tree.kind(*at).is_node()).count());
    let path = tree.path();
    assert_eq!(nodes.iter().filter(|node| node.on_path).count(), path.len());
    assert_eq!(path.last().map(|at| tree.id(*at)), tree.leaf());
    for pair in path.windows(2) {
        assert_eq!(tree.parent(pair[1]), Some(pair[0]));
    }
}

fn append(bytes: &[u8], before: &Transcript) {
    let mut number = 0;
    let mut ids = || {
        number += 1;
        EntryId(number)
    };
    let addition = Pen::new(before.tree(), &mut ids, 0).rename("x");
    let mut grown = bytes.to_vec();
    grown.push(b'\n');
    grown.extend_from_slice(addition.line.as_bytes());
    let grown = read_lines(&grown);
    assert_eq!(grown.entries().len(), before.entries().len() + 1);
    assert_eq!(&grown.entries()[..before.entries().len()], before.entries());
    assert_eq!(grown.leaf(), Some(&*addition.entry.id));
    let at = grown.tree().position(&addition.entry.id).expect("it was appended");
    assert_eq!(grown.tree().parent(at).map(|at| grown.tree().id(at)), before.leaf());
}

fn copies(bytes: &[u8], transcript: &Transcript) {
    let tree = transcript.tree();
    let version = transcript.header.as_ref().map_or(3, |header| header.version);
    if let Ok(steps) = fork(tree, version) {
        let forked = written(&steps, bytes);
        assert_eq!((forked.leaf(), forked.append_parent()), (tree.leaf(), tree.append_parent()));
        assert_eq!(forked.path_to_leaf(), transcript.path_to_leaf());
        assert_eq!(forked.tree().labels().len(), tree.labels().len());
    }
    let mut number = 0;
    let mut ids = || {
        number += 1;
        EntryId(number)
    };
    if let Some(leaf) = tree.leaf()
        && let Ok(steps) = extract(tree, leaf, version, &mut ids)
    {
        let extracted = written(&steps, bytes);
        assert_eq!(
            select(&extracted.path_to_leaf(), 1_000_000),
            select(&transcript.path_to_leaf(), 1_000_000),
            "the model is shown the same"
        );
    }
}

/// The file that a plan makes.
fn written(steps: &[Step], bytes: &[u8]) -> Transcript {
    let mut file = format!("{HEADER}\n");
    for step in steps {
        let line = step.line(|place| Ok::<_, ()>(bytes[place.start as usize..place.end as usize].to_vec()));
        if let Some(line) = line.expect("reading memory does not fail") {
            assert!(!line.contains('\n'));
            file.push_str(&line);
            file.push('\n');
        }
    }
    read_lines(file.as_bytes())
}
