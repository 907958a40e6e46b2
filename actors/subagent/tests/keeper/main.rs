//! The keeper of runs alone: a journal, sessions and ends that do what the test says, everything on one paused clock.

#![allow(clippy::unwrap_used, reason = "tests")]

mod begins;
mod crashes;
mod journal;
mod stage;
mod world;
