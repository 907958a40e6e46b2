//! Transcripts: the tree of entries that a session is, and its file form (JSON lines, version 3).
//!
//! In reading order:
//! * [`Reader`] takes what a file holds, however old or damaged, piece by piece;
//! * [`TreeIndex`] knows where everything lies and how it hangs together, without the contents;
//! * [`Transcript`] is the contents too, of a whole file or of the part that a model is shown;
//! * [`view`] makes trees and lists for people;
//! * the lines that are appended come from functions such as [`user_line`], and for all that changes a tree from a [`Pen`];
//! * [`copy`] makes new files of old ones: forks, and branches taken out;
//! * [`turn_record`] says what became of a turn.
//!
//! A file that is too long for memory is read into a [`TreeIndex`] alone; [`TreeIndex::shown`] of its path says which
//! entries a model is shown, [`read_entry`] reads each of them by its place, and [`Transcript::part`] is the
//! conversation that they make, which then grows by [`Transcript::follow`].
//!
//! **Invariant:** nothing here changes or drops a line that exists. What is not understood is kept as
//! [`EntryKind::Opaque`] and only looked through.

pub mod copy;
mod index;
pub(crate) mod object;
mod pen;
mod read;
mod record;
mod told;
mod tree;
pub mod view;
mod write;

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::chat::{AssistantMessage, Content, ToolResult};
use crate::event::Event;
use crate::ids::TurnId;

pub use index::{Kind, Label, Position, RawParent, Settings, TreeIndex};
pub use pen::{Addition, CompactionFields, EditError, NewIds, Pen};
pub use read::{
    Findings, LINE_BYTES_MAX, RECENT_MAX, Reader, RecentMessage, Record, read_entry, read_lines, recent_ids,
};
pub use record::{TurnRecord, turn_record};
pub use write::{
    API, HeaderFields, VERSION, assistant_line, custom_line, header_line, leaf_line, reset_line, side_line,
    tool_result_line, user_line,
};

/// A session as its file tells it, or as it is built up in memory.
#[derive(Debug, Clone, Default)]
pub struct Transcript {
    /// Line 1, if it is one.
    pub header: Option<Header>,
    /// What could not be read; the first [`Transcript::PROBLEMS_MAX`] of them.
    pub problems: Vec<Problem>,
    /// How many there were.
    pub problems_total: usize,
    entries: Vec<Entry>,
    tree: TreeIndex,
}

/// The first line of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Header {
    /// Format version; a file without one is of version 1.
    pub version: u64,
    /// Session id, in whatever form its writer uses.
    pub id: String,
    /// When it was begun; 0 when the file does not say.
    pub timestamp_ms: u64,
    /// Working directory.
    pub cwd: String,
    /// File that it was forked from.
    pub parent_session: Option<String>,
    /// Session key, in files of ours.
    pub session_key: Option<String>,
}

/// A line that could not be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Problem {
    /// Line number, from 1.
    pub line: usize,
    /// What is wrong with it.
    pub what: ProblemKind,
}

/// What is wrong with a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ProblemKind {
    /// Not JSON; skipped.
    NotJson,
    /// The first record is no session header.
    HeaderMissing,
    /// Longer than [`LINE_BYTES_MAX`]; skipped.
    TooLong,
}

/// One line of a transcript.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// Unique in its file, unless damaged; empty for an opaque line without id.
    pub id: Arc<str>,
    /// The entry before it in its branch, by the rules for logical parents; `None` for a root.
    pub parent: Option<Arc<str>>,
    /// When it was written; 0 when the file does not say.
    pub timestamp_ms: u64,
    /// A side entry hangs off the conversation without being part of it.
    pub side: bool,
    /// What it says.
    pub kind: EntryKind,
}

/// Where a new entry goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Head {
    /// Its id.
    pub id: Arc<str>,
    /// [`Transcript::append_parent`] at that time.
    pub parent: Option<Arc<str>>,
    /// Not before the last entry's: see [`crate::time::later`].
    pub timestamp_ms: u64,
}

/// What an entry says.
#[derive(Debug, Clone, PartialEq)]
pub enum EntryKind {
    /// A message that came for the session: a person's, or an event.
    User(UserEntry),
    /// A model's message.
    Assistant(Box<AssistantEntry>),
    /// A tool's answer.
    ToolResult(ToolResultEntry),
    /// Text that the model is shown as if a user had said it (custom messages, shell runs of other programs).
    Shown(Arc<[Content]>),
    /// Everything before it is replaced by a summary.
    Compaction {
        /// The summary.
        summary: String,
        /// The first entry before it that is still shown; `None` for none.
        first_kept: Option<Arc<str>>,
    },
    /// What happened in a branch that was left.
    BranchSummary(String),
    /// The conversation begins anew after it.
    Reset {
        /// The first entry before it that is still shown; `None` for none.
        first_kept: Option<Arc<str>>,
    },
    /// A node that the model is never shown.
    Silent(Note),
    /// A control row: not a node; says where the conversation stands.
    Leaf {
        /// The leaf; `None` is before the first entry.
        target: Option<Arc<str>>,
        /// Where appends go, if elsewhere.
        append_parent: Option<Arc<str>>,
        /// Whether it has a legal form and points at entries that exist.
        valid: bool,
    },
    /// Anything else.
    Opaque,
}

/// What a node says that the model is never shown.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Note {
    /// A name for an entry; `None` takes it away.
    Label {
        /// The entry.
        target: Arc<str>,
        /// Its name.
        label: Option<Arc<str>>,
    },
    /// A name for the session; `None` takes it away.
    Name(Option<Arc<str>>),
    /// Another model from here on.
    Model {
        /// Whose.
        provider: Arc<str>,
        /// Which.
        model: Arc<str>,
    },
    /// Another level of thinking from here on.
    Thinking(Arc<str>),
    /// Data of some program.
    Custom {
        /// What kind of data, in that program's words.
        kind: Arc<str>,
        /// The data, as JSON text.
        data: Option<Arc<str>>,
    },
    /// A message that is kept from the model, or whose role nobody knows.
    Withheld,
}

/// A message that came for the session.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserEntry {
    /// What was said.
    pub content: Arc<[Content]>,
    /// Which turn it began; absent in files of others.
    pub mark: Option<UserMark>,
    /// Who sent it, if no person said it.
    pub event: Option<Arc<Event>>,
}

/// Ties a user entry to the message that came through a door.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserMark {
    /// Turn.
    pub turn: TurnId,
    /// `<source>:<message id>`.
    pub idempotency_key: Arc<str>,
    /// `body_hash` of the encoded body.
    pub body_hash: u64,
    /// When the message was accepted, ms since 1970; its entry is written later.
    pub accepted_ms: u64,
    /// The turn that took the message up, when that is another one: `message.intoTurn` in the file.
    pub into: Option<TurnId>,
    /// A command: it was never shown to the model, and never is. `message.command` in the file.
    pub command: bool,
}

/// A model's message.
#[derive(Debug, Clone, PartialEq)]
pub struct AssistantEntry {
    /// The message.
    pub message: Arc<AssistantMessage>,
    /// Which turn it belongs to; absent in files of others.
    pub turn: Option<TurnId>,
    /// Set on the last message of a turn.
    pub end: Option<TurnClose>,
    /// Shown to people only: never to the model, never taken for an answer (answers to commands, whose lines say
    /// `message.command`; delivery mirrors of other programs).
    pub transcript_only: bool,
}

/// A tool's answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolResultEntry {
    /// The result.
    pub result: Arc<ToolResult>,
    /// Which turn it belongs to; absent in files of others.
    pub turn: Option<TurnId>,
}

/// How the turn ended whose last message this is: `message.turnEnd` in the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TurnClose {
    /// Answered.
    Done,
    /// The model call failed; the text says why.
    Failed,
    /// Given up; the text is the notice.
    Dead,
    /// Cancelled.
    Cancelled,
}

// === impl UserEntry ===

impl UserEntry {
    /// Whether it is a command, which is no part of the conversation.
    pub fn is_command(&self) -> bool {
        self.mark.as_ref().is_some_and(|mark| mark.command)
    }

    /// Whether a person said it to the model: it is neither a command nor an event.
    pub fn is_said(&self) -> bool {
        !self.is_command() && self.event.is_none()
    }
}

// === impl Transcript ===

impl Transcript {
    /// How many problems are kept one by one.
    pub const PROBLEMS_MAX: usize = 100;

    /// All entries, in file order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// Time of the latest entry, or of the header.
    pub fn last_ms(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.timestamp_ms).max(self.tree.last_ms())
    }
}

impl Entry {
    /// An entry of ours, as its line says it.
    pub fn new(head: Head, kind: EntryKind) -> Self {
        Self { id: head.id, parent: head.parent, timestamp_ms: head.timestamp_ms, side: false, kind }
    }

    /// The turn that it belongs to.
    pub fn turn(&self) -> Option<TurnId> {
        let said = self.user().and_then(|user| user.mark.as_ref()).map(|mark| mark.turn);
        let answered = self.assistant().and_then(|assistant| assistant.turn);
        said.or(answered).or_else(|| self.tool_result().and_then(|result| result.turn))
    }

    /// The turn that took this message up, if it did not begin one of its own.
    pub fn joined(&self) -> Option<TurnId> {
        self.user().and_then(|user| user.mark.as_ref()).and_then(|mark| mark.into)
    }

    /// The data of a `custom` entry of that type, if it is one: JSON, where there is any.
    pub fn custom(&self, custom_type: &str) -> Option<Option<&str>> {
        let EntryKind::Silent(Note::Custom { kind, data }) = &self.kind else { return None };
        (**kind == *custom_type).then_some(data.as_deref())
    }

    /// What somebody said, if it is that.
    pub fn user(&self) -> Option<&UserEntry> {
        if let EntryKind::User(user) = &self.kind { Some(user) } else { None }
    }

    /// What the model said, if it is that.
    pub fn assistant(&self) -> Option<&AssistantEntry> {
        if let EntryKind::Assistant(assistant) = &self.kind { Some(assistant) } else { None }
    }

    /// What a tool returned, if it is that.
    pub fn tool_result(&self) -> Option<&ToolResultEntry> {
        if let EntryKind::ToolResult(result) = &self.kind { Some(result) } else { None }
    }

    /// Whether it is a node of the tree.
    pub fn is_node(&self) -> bool {
        !matches!(self.kind, EntryKind::Leaf { .. } | EntryKind::Opaque)
    }
}
