//! Recovery of a journal from arbitrary bytes; see the harness.
#![no_main]

#[path = "../harness/journal_recovery.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::run(data));
