//! The reader of transcript files, and all that goes by what it finds; see the harness, and `journal_recovery.rs` for how
//! to run it. `cargo test -p domain` runs what is in `corpus/`.
#![no_main]

#[path = "../harness/transcript_reader.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::run(data));
