//! What the memory actor (one per process) is asked.
//!
//! | message | from | answer | order |
//! |---|---|---|---|
//! | [`AskDream`] | session, doors | one text at `reply` | any |
//! | [`Summarise`] | session | one [`Summarised`] at `reply_to`, none once it is cancelled | any |
//!
//! When [`Summarised`] arrives, what was summarised is a line of `memory/history.jsonl` on the device, or the disk has
//! refused it, which is logged: the transcript has it all the same. Asked again, it is summarised again, and its line stays
//! the first one. Of what is [`Failed`](Summary::Failed), there is no line.

use std::io;
use std::sync::Arc;

use actix::Recipient;
use domain::command::DreamAsk;
use domain::ids::SessionKey;
use domain::memory::Line;
use domain::memory::versions::By;
use domain::request::ChatRequest;
use serde::{Deserialize, Serialize};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use crate::edit::Part;
use crate::turn::{Pulse, Stamp};

/// Asks for a summary of a part of a conversation. It waits for the right to call the model itself.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct Summarise {
    /// Who asks. No two requests under way have the same.
    pub stamp: Stamp,
    /// Of whose conversation.
    pub key: SessionKey,
    /// Which part. What is kept of it is one line, however often it is asked for.
    pub part: Part,
    /// The part, and what is asked of the model behind it. `None`: it is more than one request holds, and is archived as it
    /// is.
    pub request: Option<ChatRequest>,
    /// The part as text, for the archive, should the model fail.
    pub raw: Arc<str>,
    /// Whether it is archived so with this failure, instead of being asked for again later.
    pub is_last: bool,
    /// Beats whenever it gets on.
    pub pulse: Pulse,
    /// Gives it up.
    pub cancel: CancellationToken,
    /// Where the answer goes.
    pub reply_to: Recipient<Summarised>,
}

/// A part of a conversation was summarised.
#[derive(Debug, Clone, PartialEq, Eq, actix::Message)]
#[rtype(result = "()")]
pub struct Summarised {
    /// Of the asker.
    pub stamp: Stamp,
    /// What came of it.
    pub summary: Summary,
}

/// What came of a summary.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Summary {
    /// The model's words.
    Text(Arc<str>),
    /// The model found nothing worth keeping.
    Nothing,
    /// The model gave none, and is asked again another time: nothing was archived. Why, in a word.
    Failed(&'static str),
    /// The model gave none, for the last time: the part was archived as it is. Why, in a word.
    Raw(&'static str),
}

impl Summary {
    /// Its word in metrics.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Text(_) => "text",
            Self::Nothing => "nothing",
            Self::Failed(_) => "failed",
            Self::Raw(_) => "raw",
        }
    }
}

/// A person wants something of Dream, or of what it made.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct AskDream {
    /// What.
    pub ask: DreamAsk,
    /// What they are told. Of what changes something, that is on the device then. An error says why nothing was done.
    pub reply: oneshot::Sender<Result<String, String>>,
}

/// The memory, as doors see it. Whatever reads blocks.
pub trait Recall: Send + Sync + 'static {
    /// The files and how it stands with what is worked into them.
    fn shown(&self) -> io::Result<Shown>;
    /// Lines of the archive.
    fn lines(&self, which: &WhichLines) -> io::Result<Lines>;
    /// Asks Dream; the receiver fails when that is on its way out.
    fn dream(&self, ask: DreamAsk) -> oneshot::Receiver<Result<String, String>>;
}

/// Which lines of the archive are wanted.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub struct WhichLines {
    /// With all of these words, in whatever case.
    #[serde(default)]
    pub words: String,
    /// Of this session only.
    pub session: Option<String>,
    /// At most so many, the newest.
    #[serde(default = "lines_by_default")]
    pub limit: usize,
}

/// Lines of the archive, the oldest first.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Lines {
    /// They.
    pub items: Vec<Line>,
    /// There is no next page: `limit` says how many.
    pub next: Option<String>,
    /// Whether there are older ones.
    pub more: bool,
}

/// What is remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Shown {
    /// What Dream keeps up to date.
    pub files: Vec<ShownFile>,
    /// Bytes that `memory/MEMORY.md` may have before it is shortened.
    pub memory_bytes_max: u64,
    /// Lines of the archive that are not worked in yet.
    pub not_worked_in: usize,
    /// The last one that is.
    pub worked_in_up_to: u64,
    /// Versions of the files that are kept.
    pub versions: usize,
    /// The newest of them.
    pub newest_version: Option<ShownVersion>,
}

/// One of the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownFile {
    /// Its path in the workspace.
    pub path: &'static str,
    /// Its length; none where it does not exist.
    pub bytes: Option<usize>,
    /// What it says.
    pub text: Option<String>,
}

/// A version of the files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ShownVersion {
    /// Its id.
    pub id: String,
    /// When, as `2026-11-30 14:19` in the configured zone.
    pub timestamp: String,
    /// Who made it.
    pub by: By,
}

/// How many lines are given when nobody says it.
pub const LINES_BY_DEFAULT: usize = 20;

fn lines_by_default() -> usize {
    LINES_BY_DEFAULT
}
