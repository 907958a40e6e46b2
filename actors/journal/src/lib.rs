//! The durable truth of one process: a write-ahead log with admission, order and dedupe.
//!
//! | file | what |
//! |---|---|
//! | `journal.rs` | the handle: [`LogJournal`], the contract `protocol::journal::Journal` |
//! | `pump.rs` | turns the engine: a thread of its own, or whoever calls |
//! | `engine.rs`, `intake.rs`, `outgoing.rs`, `reply.rs` | the one writer: decide, batch, sync, hand on, answer |
//! | `space.rs` | the next segment, and what happens when there is no space for it |
//! | `carry.rs` | checkpoints: copy forward what is needed, reuse the rest |
//! | `state/`, `key.rs`, `ids.rs`, `admit.rs` | pure: what the log means, what may come in |
//! | `record/`, `batch.rs`, `segment.rs`, `wire.rs` | pure: the bytes |
//! | `log.rs`, `read.rs`, `backup.rs` | the files |
//! | `survey.rs`, `recovery.rs`, `check.rs` | reading a log that somebody left |
//! | `salvage.rs`, `describe.rs`, `show.rs`, `repair.rs` | reading and mending one that was damaged |
//!
//! **Invariants.** Nothing is acknowledged before it is on the device. A batch is there wholly or not at all. The
//! state is changed by records only, the same way while writing and while recovering. accepted = done + dead +
//! cancelled + open.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod journal;
mod nobody;

mod pump;

mod call;
mod engine;
mod intake;
mod outgoing;
mod reply;
mod resume;
mod space;

mod carry;
mod catch_up;

mod admit;
mod ids;
mod key;
mod state;

mod batch;
mod record;
mod segment;
mod wire;

mod backup;
mod log;
mod read;

mod check;
mod options;
mod recovery;
mod survey;

mod describe;
mod repair;
mod salvage;
mod show;

#[cfg(test)]
mod tests;

pub use check::{CheckReport, DamageReport, SegmentReport, check};
pub use engine::Surroundings;
pub use journal::LogJournal;
pub use nobody::Nobody;
pub use options::{Durability, OpenError, Options};
pub use recovery::RecoveryReport;
pub use repair::{DamagedPlace, Hint, KeyLoss, RepairReport, repair};
pub use show::{ShowFilter, Shown, show};
