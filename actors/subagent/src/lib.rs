//! The keeper of runs: begins what sessions send sub-agents to do, stops it, and knows what is open.
//!
//! A run is a session like any other: the journal keeps its message, the registry starts it, its end is durable with the
//! report to its parent. The keeper holds no truth of its own. After a restart of the process it asks the journal which
//! sessions of sub-agents have work, and those what they are; a crash of its own costs it nothing but its waiters.
//!
//! ```text
//!  spawn ──▶ Starting ── accepted ──▶ Running ── its turn ended ──▶ Ended ── its report waits for the parent ──▶ told
//!               └── refused ──▶ gone
//! ```
//!
//! | module | what |
//! |---|---|
//! | `machine` | what is open, who waits, what is stopped; pure |
//! | `said` | the messages to runs; pure |
//! | `history` | what is noted of runs, for whoever asks after a restart |
//! | `machine::budget` | the tokens that the runs of one turn share |
//! | `machine::later` | what runs are told when they have begun |
//! | `actor` | performs it |

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod actor;
mod history;
mod machine;
mod said;

pub use actor::{Deps, Fork, Keeper};
pub use machine::{OPEN_MAX, OPEN_OF_SESSION_MAX};
