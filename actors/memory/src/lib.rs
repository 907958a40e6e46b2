//! What is kept of conversations when the model no longer sees them: one actor per process.
//!
//! A session that has grown too long, or that has rested, sends a part of it as a model request
//! ([`Summarise`](protocol::memory::Summarise)). The answer becomes a line of `memory/history.jsonl` in the workspace, and
//! goes back to the session, which shows it to the model in place of that part. Where the model gives no usable answer,
//! the part itself is archived, cut to a bound: a conversation never stands still because nobody could sum it up.
//!
//! Every few hours a second actor has the archive worked into the files in which the agent keeps what it knows: see the
//! module `dream`. Both write through one `Archive`, so that each file has one writer.
//!
//! The first actor waits for the right to call the model like any session, under the key of the session that asks, so that a
//! summary never takes a second place while another session waits for its first.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm))]

mod actor;
mod archive;
mod dream;
mod files;
mod recall;
mod versions;

pub use actor::{ARBITER, Deps, Memory, Neighbours};
pub use archive::Archive;
pub use dream::{DreamDeps, Dreamer, Pace, Turns};
