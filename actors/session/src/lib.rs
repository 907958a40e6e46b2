//! The session actor: one per conversation.
//!
//! [`turn`] decides, [`shelf`] names and lists the files that are put away, [`inbox`] keeps the waiting turns, [`repair`] compares the transcript file with the journal: all
//! three are pure. `actor` is the shell around them; [`Transcripts`] reads the files of sessions that sleep, and lists
//! all of them from memory ([`Index`]).
//!
//! **Invariant:** nothing is shown as finished, and no tool runs, before the journal has it. The transcript file follows
//! the journal; it is never ahead.

#![cfg_attr(test, allow(clippy::unwrap_used))]

mod actor;
mod answers;
mod attachments;
mod bring;
mod condense;
mod context;
mod drain;
mod draw;
mod file;
mod gather;
mod hot;
mod idle;
pub mod inbox;
mod index;
mod ledger;
mod look;
mod new_file;
mod places;
mod plant;
mod reading;
mod recent;
pub mod repair;
mod run_fork;
mod settings;
mod shared;
pub mod shelf;
mod sweep;
mod system;
mod transcripts;
mod trigger;
pub mod turn;
mod view;

pub use actor::Session;
pub use idle::{IdleRules, IdleWatch};
pub use index::{Index, LISTED_MAX};
pub use plant::plant;
pub use settings::{Preset, Presets};
pub use shared::{Deps, Neighbours, SessionConfig, Shared};
pub use system::{FILE_BYTES_MAX as PROMPT_FILE_BYTES_MAX, PromptConfig};
pub use transcripts::Transcripts;
pub use turn::PushLimits;
