//! Local triggers: what other programs on this machine hand in for a session, as files. See [`domain::trigger`].
//!
//! ```text
//!  inbox ──claim──▶ processing ──journal has it──▶ runs (accepted, then ok or error)
//!                     │  ▲ refused: tried again, up to ten times
//!                     └──┴──────────────▶ failed
//! ```
//!
//! The name of a delivery's file is its message id: however often it is claimed, it is one message. What a process had
//! claimed when it ended is claimed again by the next one.

mod actor;
mod store;

pub use actor::{Triggers, TriggersDeps};
pub use store::{NotQueued, TriggerStore};
