//! The real program, from outside: its command line, its doors, its crashes.
#![allow(clippy::unwrap_used, missing_docs, reason = "tests fail by panicking")]

mod attachments;
mod bad_input;
mod broken_config;
mod chaos;
mod command_json;
mod command_line;
mod commands;
mod compaction;
mod dead_letters;
mod doors;
mod edits;
mod every_step;
mod export_whole;
mod faults;
mod goals;
mod idle;
mod isolation;
mod journal_repair;
mod kill_nine;
mod lifecycle;
mod many_sessions;
mod metrics;
mod model_over_http;
mod moving;
mod operations;
mod poison;
mod power_cut;
mod prefix;
mod projects;
mod push;
mod queues;
mod restart;
mod settings;
mod simulation;
mod soak;
mod steering;
mod stories;
mod streams;
mod supervision;
mod support;
mod tidy;
#[cfg(feature = "otel")]
mod traces;
mod unified;
mod workspace;
