//! Dream: from time to time the archive is worked into the memory, in a turn of a session of its own.
//!
//! ```text
//!  due, or asked for ──▶ versions kept, lines taken, noted on disk ──▶ turn accepted ──▶ turn ended ──▶ versions kept, cursor
//!                                                                        │ refused            │ failed      moved, archive cut
//!                                                                        └─ forgotten         └─ lines stay for the next time
//! ```
//!
//! What is under way stands in `memory/.dream.json` before the turn is accepted, so that it is found again after a kill:
//! the turn is the journal's, and is asked how it ended.

mod actor;
mod disk;

use std::sync::Arc;

use domain::cron::Timing;
use domain::ids::{SessionKey, TurnId};
use futures::future::BoxFuture;
use protocol::metrics::Metrics;
use protocol::session::TurnRecord;
use protocol::turn::TurnWatch;
use supervision::ports::Ports;

pub use actor::Dreamer;

/// What Dream needs of the sessions.
pub trait Turns: Send + Sync + 'static {
    /// Has a turn of that session answer `text`; resolves when it is accepted. Errors say why it is not.
    fn begin(&self, key: &SessionKey, turn: TurnId, text: String) -> BoxFuture<'static, Result<(), String>>;
    /// What is known of the turn.
    fn read(&self, key: &SessionKey, turn: TurnId) -> BoxFuture<'static, Result<Option<TurnRecord>, String>>;
    /// Deletes the session, if nothing of it is open.
    fn delete(&self, key: &SessionKey) -> BoxFuture<'static, Result<(), String>>;
}

/// When it dreams.
#[derive(Debug, Clone)]
pub enum Pace {
    /// Then.
    By(Timing),
    /// Never, by the will of whoever configured it: the archive counts as worked in.
    Off,
    /// Not in this process; why, for who asks.
    Not(&'static str),
}

/// What the actor needs.
#[derive(Clone)]
pub struct DreamDeps {
    /// The outside world.
    pub ports: Ports,
    /// The counters.
    pub metrics: Metrics,
    /// Where turns run.
    pub turns: Arc<dyn Turns>,
    /// Tells of their ends.
    pub ends: Arc<dyn TurnWatch>,
    /// When.
    pub pace: Pace,
    /// Bytes that `memory/MEMORY.md` may have before it is to be shortened.
    pub memory_bytes_max: u64,
}
