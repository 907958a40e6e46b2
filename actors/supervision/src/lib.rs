//! The actor kernel: the only code that spawns actors, and the only code that touches the outside world.
//!
//! **Invariant:** a panic in an actor ends nothing but that incarnation; each incarnation's end is reported exactly once.
//!
//! Reading order: [`spawn`] (how an actor is started), `supervise` (the future it lives in), [`restart`] (the
//! decision), [`lease`] (how sessions are found), [`log`] (what is written down), [`ports`] (the outside world).

#![cfg_attr(test, allow(clippy::unwrap_used))]

pub mod command_log;
pub mod counted;
mod crash;
pub mod crash_file;
pub mod lease;
pub mod letters;
pub mod log;
pub mod log_read;
pub mod memory;
mod monitor;
pub mod panic;
mod past;
pub mod placement;
pub mod planted;
pub mod ports;
pub mod pressure;
pub mod real;
pub mod restart;
mod running;
pub mod spawn;
mod supervise;
mod tell;
pub mod watch;
pub mod why;

pub use crash::{CrashCell, LoggedCrash};
pub use lease::{Lease, Slots};
pub use placement::{ArbiterPlacement, LocalPlacement, Placement, shard_of};
pub use restart::RestartPolicy;
pub use running::Label;
pub use spawn::{Child, Kernel};
pub use tell::{Gone, tell};
