//! OpenClaw's transcripts move in and out: `tests/fixtures/openclaw/README.md`.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::path::{Path, PathBuf};

use domain::exchange::openclaw::{FileKind, Source, Store, export, file_kind, id_of, transcribe};
use domain::ids::SessionKey;
use domain::transcript::{EntryKind, Note, Transcript, read_lines, view};
use proptest::prelude::*;

fn dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fixtures/openclaw")
}

fn transcripts() -> Vec<(String, Vec<u8>)> {
    let files = std::fs::read_dir(dir().join("transcripts")).unwrap().map(|file| file.unwrap().path());
    let files: Vec<_> = files
        .map(|path| (path.file_stem().unwrap().to_str().unwrap().to_owned(), std::fs::read(path).unwrap()))
        .collect();
    assert!(files.len() > 50);
    files
}

fn key() -> SessionKey {
    SessionKey::new("agent:main:telegram:group:-100200").unwrap()
}

/// What makes up a session: its nodes with their parents and labels, and what each says.
fn meaning(transcript: &Transcript) -> (Vec<String>, Option<String>) {
    let mut nodes: Vec<String> = view::tree_of(transcript)
        .into_iter()
        .map(|node| {
            let entry = &transcript.entries()[node.at.0 as usize];
            let (label, path) = (node.label, node.on_path);
            format!("{} {:?} {label:?} {path} {} {:?}", node.id, node.parent, node.timestamp_ms, entry.kind)
        })
        .collect();
    nodes.sort();
    (nodes, transcript.leaf().map(str::to_owned))
}

#[test]
fn what_moves_in_is_the_same_session_and_has_the_same_bytes() {
    for (name, bytes) in transcripts() {
        let made = transcribe(&Source { bytes: &bytes, key: &key(), id: "s", entry: None });
        let ours = read_lines(&made.bytes);
        assert_eq!(ours.header.as_ref().unwrap().session_key.as_deref(), Some(key().as_str()), "{name}");
        assert_eq!(meaning(&ours), meaning(&read_lines(&bytes)), "{name}");
        let body = made.bytes.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        let theirs = bytes.iter().position(|byte| *byte == b'\n').map_or(&[][..], |end| &bytes[end + 1..]);
        let kept = made.bytes[body..].starts_with(theirs) || made.bytes[body..].starts_with(&bytes);
        assert!(kept, "{name}");
        let again = transcribe(&Source { bytes: &made.bytes, key: &key(), id: "s", entry: None });
        assert_eq!(again.bytes, made.bytes, "{name}");
    }
}

#[test]
fn what_moves_out_is_the_same_session_in_version_3() {
    for (name, bytes) in transcripts() {
        let made = transcribe(&Source { bytes: &bytes, key: &key(), id: "s", entry: None });
        let out = export(&made.bytes, &id_of(&made.bytes, &key()));
        let back = read_lines(&out.bytes);
        let header = back.header.as_ref().unwrap();
        assert_eq!((header.version, &header.id), (3, &out.id), "{name}");
        assert_eq!(back.problems_total, 0, "{name}");
        let (ours, theirs) = (meaning(&read_lines(&made.bytes)), meaning(&back));
        // Of two entries with one id, only the later one is a node that others follow.
        assert!(ours == theirs || name == "duplicate-ids", "{name}\n{ours:?}\n{theirs:?}");
    }
}

#[test]
fn the_store_knows_its_files() {
    let sessions = dir().join("store/agents/main/sessions");
    let store = Store::read(&std::fs::read(sessions.join("sessions.json")).unwrap()).unwrap();
    assert_eq!((store.entries.len(), store.remarks.len()), (17, 0));
    let there = |name: &&String| sessions.join(name).exists();
    let found: Vec<_> = store.entries.iter().map(|entry| entry.file_names().iter().find(there).cloned()).collect();
    assert_eq!(found.iter().flatten().count(), 14, "{found:?}");
    let named = store.entries.iter().find(|entry| entry.key.as_str() == "agent:main:direct:ada").unwrap();
    let bytes = std::fs::read(sessions.join(&named.file_names()[0])).unwrap();
    let made = transcribe(&Source { bytes: &bytes, key: &named.key, id: "s", entry: Some(&named.fields) });
    let ours = read_lines(&made.bytes);
    assert_eq!(ours.tree().name().map(|name| name.to_string()), Some("Ada".into()));
    let is_entry = |kind: &EntryKind| matches!(kind, EntryKind::Silent(Note::Custom { kind, data: Some(_) }) if &**kind == "openclaw.session");
    assert!(ours.entries().iter().any(|entry| is_entry(&entry.kind)));
    let archives = std::fs::read_dir(&sessions).unwrap().map(|file| file.unwrap().file_name().into_string().unwrap());
    assert_eq!(archives.filter(|name| file_kind(name) == FileKind::Archive).count(), 9);
    for (name, entries) in [("legacy-fields", 1), ("case-aliases", 1), ("unsafe-ids", 2)] {
        let bytes = std::fs::read(dir().join(format!("store/damaged/{name}.json"))).unwrap();
        assert!(Store::read(&bytes).unwrap().entries.len() >= entries, "{name}");
    }
    for name in ["array", "empty", "garbage", "null"] {
        let bytes = std::fs::read(dir().join(format!("store/damaged/{name}.json"))).unwrap();
        assert!(Store::read(&bytes).is_err(), "{name}");
    }
}

proptest! {
    #[test]
    fn no_bytes_are_too_odd(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let made = transcribe(&Source { bytes: &bytes, key: &key(), id: "s", entry: None });
        prop_assert!(made.bytes.ends_with(b"\n"));
        export(&made.bytes, &id_of(&made.bytes, &key()));
        let _whatever_it_is = Store::read(&bytes);
    }
}
