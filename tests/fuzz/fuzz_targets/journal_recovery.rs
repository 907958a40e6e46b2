//! Recovery of a journal from arbitrary bytes; see the harness.
//!
//! With nightly: `cargo +nightly fuzz run --fuzz-dir tests/fuzz -s none journal_recovery`. On stable, libFuzzer is driven by
//! the compiler's flags; in `tests/fuzz`:
//!
//! ```sh
//! export RUSTFLAGS="--cfg fuzzing -Cpasses=sancov-module -Ccodegen-units=1 -Cdebug-assertions
//!     -Cllvm-args=-sanitizer-coverage-level=4 -Cllvm-args=-sanitizer-coverage-inline-8bit-counters
//!     -Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
//! cargo build --release --target x86_64-unknown-linux-gnu --bin journal_recovery
//! cp -r corpus/journal_recovery target/found
//! target/x86_64-unknown-linux-gnu/release/journal_recovery target/found -max_len=4096 -max_total_time=600
//! ```
//!
//! The target has to be named, else build scripts would be instrumented too. An input that failed is written to the
//! present directory; once it is mended, it belongs into `corpus/`, which `cargo test -p journal` runs.
#![no_main]

#[path = "../harness/journal_recovery.rs"]
mod harness;

libfuzzer_sys::fuzz_target!(|data: &[u8]| harness::run(data));
