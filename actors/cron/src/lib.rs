//! Work that nobody asked for just now: jobs that are due at times, triggers of other programs, the heartbeat.
//!
//! One actor per gateway follows the jobs of `cron/jobs.json`.
//!
//! What is due, and what becomes of it, [`domain::cron`] decides. A moment that is due is handed to the journal as a message
//! of its session, like any other; its id is the job's and the moment's, so that no restart runs it twice. How its turn
//! ends, the actor is told, or asks the transcript.
//!
//! `triggers` and `heartbeat` are actors of their own.

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm))]

mod actor;
mod desk;
mod heartbeat;
mod inside;
mod reminder;
mod runs;
mod store;
mod triggers;

pub use actor::{ARBITER, Cron, Deps};
pub use desk::Desk;
pub use heartbeat::{Heartbeat, HeartbeatDeps, HeartbeatRules};
pub use runs::Runs;
pub use store::{Found, OnDamage, Read, Saved, Seen, Store};
pub use triggers::{NotQueued, TriggerStore, Triggers, TriggersDeps};
