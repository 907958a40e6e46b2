//! The harness of the fuzz target over a fixed corpus: inputs that were worth keeping, and some that are made here.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

use std::path::Path;

use supervision::memory::SeededIds;
use supervision::ports::Ids;

#[path = "../../../tests/fuzz/harness/journal_recovery.rs"]
mod harness;

#[test]
fn every_input_that_was_kept_is_recovered_right() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/fuzz/corpus/journal_recovery");
    let mut inputs: Vec<_> = std::fs::read_dir(corpus).unwrap().map(|entry| entry.unwrap().path()).collect();
    inputs.sort();
    assert!(!inputs.is_empty());
    for input in inputs {
        println!("{}", input.display());
        harness::run(&std::fs::read(input).unwrap());
    }
}

#[test]
fn a_log_is_recovered_right_wherever_a_byte_is_changed() {
    let dice = SeededIds::new(7);
    for _ in 0..1500 {
        let bytes = dice.random().to_le_bytes();
        println!("{bytes:?}");
        harness::run(&[1, bytes[0] % 16, bytes[1], bytes[2], 1 + bytes[3] % 4, bytes[4], bytes[5], bytes[6], bytes[7]]);
    }
}

#[test]
fn records_of_any_bytes_are_recovered_or_refused() {
    let dice = SeededIds::new(8);
    for _ in 0..3000 {
        let mut input = vec![2];
        for _ in 0..1 + dice.random() % 6 {
            let length = dice.random() % 60;
            input.extend_from_slice(&[(dice.random() % 23) as u8, length as u8, 0]);
            input.extend((0..length).map(|_| if dice.random().is_multiple_of(2) { 0 } else { dice.random() as u8 }));
        }
        println!("{input:?}");
        harness::run(&input);
    }
}
