//! The kernel alone, with children that crash in every way an actor can.

#![allow(clippy::unwrap_used, reason = "tests")]

mod arbiters;
mod child;
mod crashes;
mod downs;
mod leases;
mod watchdog;
