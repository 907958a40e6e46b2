//! nanobot's sessions: `<data>/sessions/<workspace id>/<base64url of the key>.jsonl`.
//!
//! Line 1 is metadata, an optional second line the state of a provider, each other line a message. Consolidation is a
//! number in the metadata: how many messages, from the first on, stand in the summary. A session of ours that was made
//! of such a file has:
//!
//! * one entry per message, in the same order. It bears the original message in its field `nanobot`, word for word; a
//!   message that the model is not shown (commands, unknown roles) is a `custom` entry `nanobot.message`;
//! * a `compaction`, if something was consolidated: its summary is the last one, and it keeps what nanobot replays;
//! * the title, as the session's name;
//! * a `custom` entry `nanobot.session` with the metadata line, the provider's state, a checkpoint that lay beside the
//!   file, and the lines that were no message.
//!
//! **Source:** `nanobot/session/manager.py` of nanobot 0.3.0 and 0.3.5.

mod file;
mod into;
pub mod name;
mod out;
mod row;

pub use file::SessionFile;
pub use into::{Source, transcribe};
pub use out::{Exported, export};

/// What an entry's field is called that holds the original message.
const FIELD: &str = "nanobot";
/// `customType` of a message that the model is not shown.
const MESSAGE: &str = "nanobot.message";
/// `customType` of what a session has besides messages.
const SESSION: &str = "nanobot.session";

#[cfg(test)]
mod tests;
