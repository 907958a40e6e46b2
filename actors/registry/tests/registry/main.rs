//! The registry alone: toy sessions over a toy journal, everything on one paused clock.

#![allow(clippy::unwrap_used, reason = "tests")]

mod journal;
mod lifecycle;
mod quarantine;
mod random;
mod recovery;
mod stage;
mod toy;
