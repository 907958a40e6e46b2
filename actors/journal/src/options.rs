//! What a journal is opened with, and why it may refuse.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use supervision::pressure::Pressure;

pub use crate::segment::Durability;

/// A record has at most this many bytes.
pub const RECORD_BYTES_MAX: u64 = 16 << 20;

/// How the journal works. All sizes are in bytes.
#[derive(Debug, Clone)]
pub struct Options {
    /// Its directory.
    pub dir: PathBuf,
    /// Where the transcript files lie: synced before a checkpoint says that they are good.
    pub sessions_dir: PathBuf,
    /// Size of a new segment.
    pub segment_bytes: u64,
    /// `journal.maxBytes`: above three quarters of it, new messages are refused.
    pub max_bytes: u64,
    /// `runtime.inboxMax`: open turns per session.
    pub inbox_max: u32,
    /// `runtime.inboxMaxBytes`: bytes of open bodies per session.
    pub inbox_max_bytes: u64,
    /// `runtime.queuedMaxBytes`: bytes of open bodies in the process.
    pub queued_max_bytes: u64,
    /// `queue.cap`, where `queue.drop` is `refuse`: turns that wait per session, besides the first open one. A session may
    /// have another.
    pub queue_cap: Option<u32>,
    /// `runtime.durability`.
    pub durability: Durability,
    /// Whether messages have to be refused for want of memory.
    pub memory: Arc<Pressure>,
}

impl Options {
    /// The defaults.
    pub fn new(dir: impl Into<PathBuf>, sessions_dir: impl Into<PathBuf>) -> Self {
        Self {
            dir: dir.into(),
            sessions_dir: sessions_dir.into(),
            segment_bytes: 64 << 20,
            max_bytes: 4 << 30,
            inbox_max: 64,
            inbox_max_bytes: 8 << 20,
            queued_max_bytes: 1 << 30,
            queue_cap: None,
            durability: Durability::Full,
            memory: Arc::default(),
        }
    }
}

/// Why a journal cannot be opened or read.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk.
    #[error("cannot use {path}: {source}")]
    Io {
        /// Which file or directory.
        path: PathBuf,
        /// Why.
        #[source]
        source: io::Error,
    },
    /// Something that had been acknowledged is not readable.
    #[error(
        "acknowledged data is damaged at {segment} offset {offset}: {why}; `greenroom journal check` shows what there is, `greenroom journal repair` what can be kept"
    )]
    Damaged {
        /// The segment's file.
        segment: PathBuf,
        /// Where in it.
        offset: u64,
        /// What is wrong.
        why: String,
    },
    /// A newer version wrote it.
    #[error(
        "{segment} has journal format {format}; this version reads up to {}: use a newer greenroom",
        crate::segment::FORMAT
    )]
    NewerFormat {
        /// The segment's file.
        segment: PathBuf,
        /// Its format.
        format: u16,
    },
    /// A record of a kind that this version does not know.
    #[error(
        "{segment} holds a record of type {kind}, unknown to journal format {}: use a newer greenroom",
        crate::segment::FORMAT
    )]
    UnknownRecord {
        /// The segment's file.
        segment: PathBuf,
        /// The type byte.
        kind: u8,
    },
    /// The options contradict each other.
    #[error("journal options are not usable: {0}")]
    BadOptions(&'static str),
    /// The writer's thread did not start.
    #[error("cannot start the journal's thread: {0}")]
    Thread(#[source] io::Error),
}
