//! What is known of conversations without waking them.
//!
//! | call | from | answer |
//! |---|---|---|
//! | [`TranscriptReader::page`] | doors, commands | the next sessions by name, from memory: reads nothing |
//! | [`TranscriptReader::all_known`] | doors, commands | becomes true once every session of the disk is in the list |
//! | [`TranscriptReader::is_there`] | doors, commands | whether there is a transcript; blocks |
//! | [`TranscriptReader::read`] | doors, commands | one transcript; blocks |
//! | [`TranscriptReader::tree`], [`TranscriptReader::check`] | doors, commands | how it hangs together, what is wrong with it; block |
//! | [`TranscriptReader::ended`] | doors, commands | those of a shelf; blocks |
//! | [`TranscriptReader::read_archived`], [`TranscriptReader::delete_archived`] | doors, commands | the newest one in the archive; both block |
//! | [`TranscriptReader::put_away`], [`TranscriptReader::remove_put_away`] | doors, commands | what pruning looks through; both block |
//! | [`TranscriptReader::bring_in`] | doors, commands | a file becomes a session; blocks |
//! | [`TranscriptReader::turn`] | doors | one turn of a session that cannot be asked; blocks |

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::exchange::Remark;
use domain::ids::{SessionKey, TurnId};
use domain::retention::PutAway;
use serde::Serialize;
use tokio::sync::watch;

use crate::edit::EditError;
use crate::journal::Shelf;
use crate::session::TurnRecord;

/// The conversations of a workspace.
pub trait TranscriptReader: Send + Sync + 'static {
    /// The sessions behind `after`, in the order of their keys, at most `limit` of them.
    fn page(&self, after: Option<&SessionKey>, limit: usize) -> Page;
    /// Whether pages have every session. They are read in the background when the process starts.
    fn all_known(&self) -> watch::Receiver<bool>;
    /// Whether there is a transcript of `key` that is not empty. Blocks.
    fn is_there(&self, key: &SessionKey) -> io::Result<bool> {
        Ok(self.read(key)?.is_some())
    }
    /// The lines of one transcript, each one JSON object unless it is damaged; `None` when there is none. Blocks.
    fn read(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>>;
    /// How the entries of a transcript hang together; `None` when there is none. Blocks.
    fn tree(&self, key: &SessionKey) -> io::Result<Option<Tree>>;
    /// What is wrong with a transcript; `None` when there is none. Blocks.
    fn check(&self, key: &SessionKey) -> io::Result<Option<Check>>;
    /// The transcripts on a shelf behind the file name `after`, in the order of these names. Blocks.
    fn ended(&self, shelf: Shelf, after: Option<&str>, limit: usize) -> io::Result<EndedPage>;
    /// Makes a tombstone of the newest archived transcript of `key`: its name; `None` when there is none. Blocks.
    fn delete_archived(&self, key: &SessionKey, now_ms: u64) -> io::Result<Option<String>>;
    /// Every file in the archive, and every tombstone. Blocks.
    fn put_away(&self) -> io::Result<Vec<PutAway>>;
    /// Removes one of these for good. Blocks.
    fn remove_put_away(&self, file: &str) -> io::Result<()>;
    /// A file of any of the three systems becomes the session `key`, or the one that the file names, unless a transcript
    /// of that is there, or `may` refuses it. Blocks.
    fn bring_in(
        &self,
        file: &Path,
        key: Option<&SessionKey>,
        may: &dyn Fn(&SessionKey) -> Result<(), EditError>,
    ) -> Result<BroughtIn, EditError>;
    /// The newest archived transcript of `key`. Blocks.
    fn read_archived(&self, key: &SessionKey) -> io::Result<Option<Vec<String>>>;
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

/// A part of the list of archived or deleted transcripts.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct EndedPage {
    /// In the order of their file names.
    pub items: Vec<Ended>,
    /// The file name of the last of them, when there are more.
    pub next: Option<String>,
}

/// One archived or deleted transcript.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Ended {
    /// What the list of sessions would show of it.
    #[serde(flatten)]
    pub summary: Summary,
    /// Its file, below the archive; of a deleted one, below the directory of the sessions.
    pub file: String,
    /// When it was archived, ms since 1970; unknown for that of a stateless request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub archived_ms: Option<u64>,
    /// When it was deleted, ms since 1970.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deleted_ms: Option<u64>,
}

/// A session that was a file of its own.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BroughtIn {
    /// Session.
    pub key: SessionKey,
    /// The file that it was.
    pub file: PathBuf,
    /// How many messages are in it.
    pub messages: usize,
    /// What was odd.
    pub remarks: Vec<Remark>,
}

/// One session, as a list shows it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Summary {
    /// Session.
    pub key: SessionKey,
    /// Session id, as the file's header has it.
    pub session: Option<Arc<str>>,
    /// The session's name, if it has one that was seen: of a long file whose session has not been in memory yet, only
    /// the beginning and the end were read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<Arc<str>>,
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

/// The tree of one conversation, as `sessions tree` shows it.
///
/// ```json
/// {"key":"api:7","name":null,"leaf":"a41f…","items":[{"id":"a41f…","parent":null,"kind":"message","role":"user",
///  "preview":"hello","timestamp_ms":1,"depth":0,"on_path":true}],"next":null}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Tree {
    /// Session.
    pub key: SessionKey,
    /// Its name.
    pub name: Option<Arc<str>>,
    /// Where the conversation stands; `None` is before its first entry.
    pub leaf: Option<Arc<str>>,
    /// Each node behind the one that it follows, branches oldest first.
    pub items: Vec<TreeItem>,
    /// There is only one page.
    pub next: Option<String>,
}

/// One node of [`Tree`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TreeItem {
    /// Its id.
    pub id: String,
    /// The node that it follows; `None` for a root or an orphan.
    pub parent: Option<String>,
    /// Its `type` in the file.
    pub kind: &'static str,
    /// The role of a message.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// The first words of what it says.
    pub preview: String,
    /// When it was written; 0 when the file does not say.
    pub timestamp_ms: u64,
    /// Its name.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub label: Option<Arc<str>>,
    /// How many nodes are before it on the way from its root.
    pub depth: usize,
    /// Whether it belongs to the conversation as it stands.
    pub on_path: bool,
    /// Whether it hangs off the conversation without being part of it.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    pub side: bool,
}

/// What is wrong with a transcript, as `sessions check` shows it.
///
/// ```json
/// {"key":"api:7","file":"/…/api.7.jsonl","bytes":812,"entries":4,"healthy":false,"repairable":true,
///  "problems":[{"line":3,"what":"torn_tail","bytes":17,"repair":"moved aside, into a file beside the transcript"}]}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Session.
    pub key: SessionKey,
    /// Its file.
    pub file: String,
    /// Length of the file.
    pub bytes: u64,
    /// Lines that are no header and can be read.
    pub entries: usize,
    /// Whether nothing is wrong.
    pub healthy: bool,
    /// Whether `sessions repair` would mend something.
    pub repairable: bool,
    /// The first of what is wrong.
    pub problems: Vec<CheckProblem>,
    /// How much is wrong.
    pub problems_total: usize,
}

/// One thing that is wrong.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Default)]
pub struct CheckProblem {
    /// Line number, from 1, where it is known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub line: Option<usize>,
    /// The line that counts instead.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub other_line: Option<usize>,
    /// The entry, where it has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub entry: Option<String>,
    /// `not_json`, `header_missing`, `too_long`, `torn_tail`, `unended`, `parent_missing`, `duplicate_id` or
    /// `unreadable`.
    pub what: &'static str,
    /// How many bytes it is about.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub bytes: Option<u64>,
    /// Why the file cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub detail: Option<String>,
    /// What `sessions repair` does with it.
    pub repair: &'static str,
}
