//! Values and rules of Greenroom.
//!
//! **Invariant:** nothing here does IO, reads a clock, spawns or awaits; the same input gives the same output, byte for byte.

pub mod attachment;
pub mod body;
pub mod budget;
pub mod chat;
pub mod command;
pub mod compaction;
pub mod cron;
pub mod event;
pub mod exchange;
pub mod goal;
pub mod heartbeat;
pub mod history;
pub mod ids;
pub mod keys;
pub mod memory;
pub mod policy;
pub mod prompt;
pub mod queue;
pub mod request;
pub mod reset;
pub mod retention;
pub mod run;
pub mod schema;
pub mod scope;
pub mod script;
pub mod stem;
pub mod tally;
pub mod text;
pub mod time;
pub mod transcript;
pub mod trigger;
