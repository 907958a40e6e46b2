//! The harness of the fuzz target over fixed inputs: those that were worth keeping, the fixtures, and both with changes.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::path::Path;

use proptest::prelude::*;

#[path = "../../../tests/fuzz/harness/transcript_reader.rs"]
mod harness;

fn inputs() -> Vec<Vec<u8>> {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests");
    let mut files = Vec::new();
    for dir in ["fuzz/corpus/transcript_reader", "fixtures/openclaw/transcripts"] {
        files.extend(std::fs::read_dir(tests.join(dir)).unwrap().map(|file| file.unwrap().path()));
    }
    files.sort();
    files.into_iter().map(|file| std::fs::read(file).unwrap()).collect()
}

#[test]
fn every_input_that_was_kept_is_read_right() {
    let inputs = inputs();
    assert!(inputs.len() > 60);
    inputs.iter().for_each(|input| harness::run(input));
}

#[test]
fn any_part_of_an_input_is_read_right() {
    for input in inputs().iter().filter(|input| input.len() < 1500) {
        for length in (0..input.len()).step_by(11) {
            harness::run(&input[..length]);
            harness::run(&input[length..]);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn inputs_with_changes_are_read_right(
        which in any::<prop::sample::Index>(),
        changes in prop::collection::vec((any::<prop::sample::Index>(), 0usize..12), 1..6),
    ) {
        let inputs = inputs();
        let mut input = which.get(&inputs).clone();
        input.truncate(8192);
        for (at, change) in changes {
            let at = if input.is_empty() { 0 } else { at.index(input.len()) };
            let bytes: [&[u8]; 12] = [
                b"\n", b"\"", b"{", b"}", b"\0", b"\\", b"\xff", b"null", b"\"a\"", b",\"id\":\"a\"", b"aa000001", b"\\ud800",
            ];
            let end = (at + change % 3).min(input.len());
            input.splice(at..end, bytes[change].iter().copied());
        }
        harness::run(&input);
    }
}
