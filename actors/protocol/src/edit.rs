//! How a conversation is changed from outside its turns: [`Mail::Edit`](crate::session::Mail::Edit).
//!
//! An edit waits for the running turn to end and goes before those that wait. When its answer arrives, what it wrote is
//! durable, and the next request goes by it. Nothing is ever cut out: an edit appends lines.
//!
//! An asker whose channel closes does not know whether the edit took place; the tree says.

use std::path::PathBuf;
use std::sync::Arc;

use domain::exchange::Remark;
use domain::exchange::single::{Format, NotASession};
use domain::ids::SessionKey;
use domain::scope::Scope;
use serde::Serialize;

use crate::memory::Summary;

/// The word that the log has for a compaction where the model could not sum up.
pub const RAW_WORD: &str = "compact: raw";
/// The word that the log has for a compaction that waits, as the model could not sum up this time.
pub const FAILED_WORD: &str = "compact: failed";
/// Edits of one session that wait.
pub const EDITS_MAX: usize = 16;
/// Characters of a label or a name.
pub const NAME_CHARS_MAX: usize = 512;
/// Characters of a summary.
pub const SUMMARY_CHARS_MAX: usize = 32_000;

/// What is to be changed. Entries are named by id, or by a beginning of it that no other entry has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Edit {
    /// An entry gets a name, or loses it.
    Label {
        /// The entry.
        entry: String,
        /// Its name; `None` takes it away.
        text: Option<String>,
    },
    /// The session gets a name; an empty one takes it away.
    Rename {
        /// Its name.
        name: String,
    },
    /// The conversation goes on from an entry. What came after it stays, as a branch.
    Branch {
        /// The entry; `None` is before the first one.
        to: Option<String>,
        /// What the model is told of the branch that is left.
        summary: Option<String>,
    },
    /// The conversation begins anew.
    Reset,
    /// The model is shown a summary in place of what came before.
    Compact {
        /// What it is still shown.
        keep: Keep,
        /// The summary; without one, the earlier one stays and says how much is left out.
        summary: Option<String>,
    },
    /// The session works in a project, or in the workspace again. Also for a session without an entry.
    Scope {
        /// The project; `None` is the workspace.
        scope: Option<Scope>,
        /// Whether it may open nothing that is closed now.
        only_less: bool,
    },
    /// The model is shown that in place of a part of the conversation, which begins it; or it is noted that the model gave
    /// no summary of that.
    Apply {
        /// The part.
        part: Part,
        /// What came of its summary.
        summary: Summary,
        /// What it is for.
        occasion: Occasion,
    },
    /// What a session can mend of its transcript by itself: a torn end is moved aside, a missing header is appended.
    Repair,
    /// A new session gets a copy.
    Fork {
        /// The new session.
        to: SessionKey,
        /// The last entry of the branch that is copied; `None` copies all.
        entry: Option<String>,
    },
    /// A new file gets a copy, as one of the systems reads it.
    Export {
        /// The file; absolute.
        file: PathBuf,
        /// For which system.
        format: Format,
    },
}

/// Why a part of a conversation is summarised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Occasion {
    /// It is long, or somebody asked for it.
    Length,
    /// Nothing was said for long.
    Silence,
}

/// A part of a conversation, by the ids of its messages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Part {
    /// The first one.
    pub first: String,
    /// The last one.
    pub last: String,
}

/// What a compaction keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Keep {
    /// What is marked as important, quoted in the summary. That is also kept with every other choice.
    Important,
    /// At least so many of the last messages.
    Messages(u32),
    /// The messages of the last so many days.
    Days(u32),
}

/// Whether an edit waits while a turn runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// It waits.
    Wait,
    /// It is refused as busy.
    Refuse,
}

/// What an edit did. The body of the answer:
///
/// ```json
/// {"key":"api:7","entries":["00c0…"],"leaf":"00c0…"}
/// {"key":"api:7","entries":["00c0…"],"leaf":"00c0…","first_kept":"a41f…","tokens_before":9120,"tokens_after":802}
/// {"key":"api:8","forked_from":"api:7","copied":12}
/// {"key":"api:8","forked_from":"api:7","copied":12,"attachments_missing":1}
/// {"key":"api:7","file":"/home/ann/api.7.jsonl","bytes":9120,"remarks":[]}
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Edited {
    /// Lines were appended.
    Appended {
        /// The session.
        key: SessionKey,
        /// Their ids; none when everything was so already.
        entries: Vec<Arc<str>>,
        /// Where the conversation stands now; `None` is before its first entry.
        leaf: Option<Arc<str>>,
        /// What a compaction did.
        #[serde(flatten)]
        compacted: Option<Compacted>,
    },
    /// A new session was made.
    Forked {
        /// The new session.
        key: SessionKey,
        /// The session that it was copied from.
        forked_from: SessionKey,
        /// How many lines were copied.
        copied: usize,
        /// How many attachments they name that cannot be read, so that the new session does not have them.
        #[serde(skip_serializing_if = "is_zero")]
        attachments_missing: usize,
    },
    /// A file was made.
    Exported {
        /// The session.
        key: SessionKey,
        /// The file.
        file: PathBuf,
        /// Its length.
        bytes: usize,
        /// What stays behind.
        remarks: Vec<Remark>,
    },
}

fn is_zero(count: &usize) -> bool {
    *count == 0
}

/// What a compaction did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Compacted {
    /// The first entry that the model is still shown; `None` for none.
    pub first_kept: Option<Arc<str>>,
    /// Tokens of what it was shown, as they are estimated.
    pub tokens_before: u64,
    /// Tokens of what it is shown now.
    pub tokens_after: u64,
}

/// Why an edit did not take place.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// A turn runs.
    #[error("a turn of this session runs, or was cut short and goes on first")]
    Busy,
    /// Too many edits wait.
    #[error("{EDITS_MAX} edits of this session wait already")]
    Full,
    /// The session is on its way out.
    #[error("the session stops or is loaded again; ask again")]
    Stopping,
    /// The session has no entry.
    #[error("there is no such session")]
    NoSession,
    /// It has none because nothing of its file could be read.
    #[error("no entry of this session is left: {0}")]
    Lost(String),
    /// No entry has that id or label.
    #[error("no entry of this session has the id or the label {0}, or an id that begins so")]
    UnknownEntry(String),
    /// Several entries have that label, or an id that begins so.
    #[error("several entries of this session have the label {0}, or an id that begins so")]
    Ambiguous(String),
    /// A conversation cannot end there.
    #[error("entry {0} stands between a tool call and its results; name the last result, or what is before the call")]
    CutPair(String),
    /// Only somebody on the machine itself can open more of it.
    #[error("from elsewhere a session's project cannot be chosen, and its access only be reduced")]
    OpensMore,
    /// A compaction would change nothing.
    #[error("{0}")]
    NotCompacted(String),
    /// The session that a fork is to make is there already.
    #[error("session {0} exists already")]
    Exists(SessionKey),
    /// A file is in the way.
    #[error("{} exists already", .0.display())]
    FileExists(PathBuf),
    /// A file that was to become a session is none.
    #[error("{}: {why}", file.display())]
    NotASession {
        /// The file.
        file: PathBuf,
        /// Why.
        why: NotASession,
    },
    /// A text is too long.
    #[error("{what} has at most {chars_max} characters")]
    TooLong {
        /// Which text.
        what: &'static str,
        /// Its limit.
        chars_max: usize,
    },
    /// There is no space for a new file, or it is on a read-only file system.
    #[error("{0}")]
    Disk(String),
    /// The transcript cannot be read, or the new file not written.
    #[error("{0}")]
    Io(String),
}

// === impl EditError ===

impl EditError {
    /// The word that answers have.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Busy | Self::Full => "busy",
            Self::Stopping => "draining",
            Self::NoSession => "not_found",
            Self::UnknownEntry(_) => "unknown_entry",
            Self::Ambiguous(_) => "ambiguous_entry",
            Self::OpensMore => "forbidden",
            Self::CutPair(_) => "cut_pair",
            Self::NotCompacted(_) => "nothing_to_compact",
            Self::Exists(_) | Self::FileExists(_) => "exists",
            Self::NotASession { .. } => "not_a_session",
            Self::TooLong { .. } => "too_long",
            Self::Disk(_) => "disk",
            Self::Lost(_) | Self::Io(_) => "unreadable",
        }
    }

    /// The HTTP status that answers have.
    pub fn status(&self) -> u16 {
        match self {
            Self::Busy | Self::Full => 429,
            Self::Stopping | Self::Disk(_) => 503,
            Self::NoSession | Self::UnknownEntry(_) => 404,
            Self::Ambiguous(_) | Self::TooLong { .. } | Self::NotASession { .. } => 400,
            Self::OpensMore => 403,
            Self::CutPair(_) | Self::NotCompacted(_) | Self::Exists(_) | Self::FileExists(_) => 409,
            Self::Lost(_) | Self::Io(_) => 500,
        }
    }
}

// === impl Edit ===

impl Edit {
    /// The word that the log has for it.
    pub fn word(&self) -> &'static str {
        match self {
            Self::Label { .. } => "label",
            Self::Rename { .. } => "rename",
            Self::Branch { .. } => "branch",
            Self::Reset => "reset",
            Self::Apply { occasion: Occasion::Silence, summary: Summary::Raw(_), .. } => "compact: idle, raw",
            Self::Apply { occasion: Occasion::Silence, summary: Summary::Failed(_), .. } => "compact: idle, failed",
            Self::Apply { occasion: Occasion::Silence, .. } => "compact: idle",
            Self::Apply { summary: Summary::Raw(_), .. } => RAW_WORD,
            Self::Apply { summary: Summary::Failed(_), .. } => FAILED_WORD,
            Self::Compact { .. } | Self::Apply { .. } => "compact",
            Self::Scope { .. } => "scope",
            Self::Repair => "repair",
            Self::Fork { .. } => "fork",
            Self::Export { .. } => "export",
        }
    }

    /// What is too long in it.
    pub fn check(&self) -> Result<(), EditError> {
        let within = |what, text: Option<&String>, chars_max| {
            let fits = text.is_none_or(|text| text.chars().count() <= chars_max);
            if fits { Ok(()) } else { Err(EditError::TooLong { what, chars_max }) }
        };
        match self {
            Self::Label { text, .. } => within("a label", text.as_ref(), NAME_CHARS_MAX),
            Self::Rename { name } => within("a name", Some(name), NAME_CHARS_MAX),
            Self::Branch { summary, .. } | Self::Compact { summary, .. } => {
                within("a summary", summary.as_ref(), SUMMARY_CHARS_MAX)
            }
            Self::Reset
            | Self::Scope { .. }
            | Self::Apply { .. }
            | Self::Repair
            | Self::Fork { .. }
            | Self::Export { .. } => Ok(()),
        }
    }
}
