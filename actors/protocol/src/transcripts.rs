//! What is known of conversations without waking them.
//!
//! | call | from | answer |
//! |---|---|---|
//! | [`TranscriptReader::page`] | doors, commands | the next sessions by name, from memory: reads nothing |
//! | [`TranscriptReader::all_known`] | doors, commands | becomes true once every session of the disk is in the list |
//! | [`TranscriptReader::read`] | doors, commands | one transcript; blocks |
//! | [`TranscriptReader::turn`] | doors | one turn of a session that cannot be asked; blocks |

use std::io;
use std::sync::Arc;

use domain::ids::{SessionKey, TurnId};
use serde::Serialize;
use tokio::sync::watch;

use crate::session::TurnRecord;

/// The conversations of a workspace.
pub trait TranscriptReader: Send + Sync + 'static {
    /// The sessions behind `after`, in the order of their keys, at most `limit` of them.
    fn page(&self, after: Option<&SessionKey>, limit: usize) -> Page;
    /// Whether pages have every session. They are read in the background when the process starts.
    fn all_known(&self) -> watch::Receiver<bool>;
    /// The lines of one transcript, each one JSON object unless it is damaged; `None` when there is none. Blocks.
    fn read(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>>;
    /// What the transcript says about a turn; `None` when it does not know it. Blocks.
    fn turn(&self, key: &SessionKey, turn: TurnId) -> io::Result<Option<TurnRecord>>;
}

/// A part of the list of sessions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Page {
    /// In the order of their keys.
    pub items: Vec<Summary>,
    /// The last of them, when there are more.
    pub next: Option<SessionKey>,
}

/// One session, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Session.
    pub key: SessionKey,
    /// Session id, as the file's header has it.
    pub session: Option<Arc<str>>,
    /// The start of the first message, if there is one.
    pub preview: Option<Arc<str>>,
    /// Number of lines after the header; unknown for a long file whose session has not been in memory yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entries: Option<u64>,
    /// Length of the file.
    pub bytes: u64,
    /// Time of the last entry, ms since 1970.
    pub updated_ms: u64,
}
