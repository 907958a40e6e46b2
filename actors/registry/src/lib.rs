//! Finds, starts, watches, quarantines and passivates sessions.
//!
//! It owns which sessions are live, and which must not be. It owns no message: what it hands to a session is a hint to
//! look into the journal, so a hint that finds nobody is dropped without harm.
//!
//! **Invariants:** at most one live session per key; a session in quarantine is not live; after the journal handed over a
//! message, its session is live, in quarantine, held back for recovery, or its shard pauses, or the process is stopping.
//!
//! ```text
//!  journal ─ Queued ─▶ Registry ── shard of the key ──▶ slot ──▶ session
//!  doors ── tell ────▶    │ no slot: factory.start(lease)           │
//!                         ◀──────────── on_down(Down) ──────────────┘
//!        gave up ─▶ quarantine (10 min doubling to 6 h) ─▶ released by its end, or by hand ─▶ started again
//!   many crash ─▶ the shard pauses (2 s doubling to 60 s): starts none ─▶ resumes by itself, a few at a time
//! ```
//!
//! The registry itself is no actor: calls come from any thread and return at once. Per arbiter there is one small actor,
//! the shard, which sweeps once a second.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod answer;
mod budget;
mod down;
mod pause;
mod quarantine;
mod recover;
mod registry;
mod shard;
mod sweep;
mod top;
mod tree;

pub use registry::{Deps, Registry, RegistryConfig, SessionFactory, SessionStart};
