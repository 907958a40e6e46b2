//! OpenClaw's sessions: `<state>/agents/<agent>/sessions/` with `sessions.json` and transcripts in JSON lines, the form
//! that ours have, too. So a transcript moves in as it is, byte for byte, but for two things: its header gets the session's
//! key, and behind its last line follow the session's name and its entry of `sessions.json` (a `custom` entry
//! `openclaw.session`). On the way out, old forms are written as version 3 and `reset` entries as compactions, because
//! 2026.6.11 knows no others.
//!
//! **Source:** OpenClaw 2026.6.11 and its documentation.

mod config;
mod cron;
mod into;
mod out;
mod store;

pub use config::{Mapped, map_config};
pub use cron::map_jobs;
pub use into::{Source, transcribe};
pub use out::{Exported, export, id_of, own_id, place_of};
pub use store::{FileKind, Store, StoreEntry, ended_name, file_kind, orphan_key};

/// `customType` of a session's entry in `sessions.json`.
const SESSION: &str = "openclaw.session";
/// Field of an entry in `sessions.json` with the session's key here, where it is another one there; OpenClaw keeps fields
/// that it does not know.
pub const OWN_KEY: &str = "greenroomKey";

#[cfg(test)]
mod tests;
