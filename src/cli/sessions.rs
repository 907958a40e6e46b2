//! `sessions …`, but for what changes the tree.

use clap::{Args, Subcommand};

use super::Output;
use super::edits::Edits;

/// `sessions …`
#[derive(Debug, Subcommand)]
pub enum Sessions {
    /// All sessions, newest first
    #[command(
        after_help = "Examples:\n  greenroom sessions list --limit 20\n  greenroom sessions list --archived --json\n  \
                      greenroom sessions list --deleted"
    )]
    List {
        /// Those in the archive instead
        #[arg(long, conflicts_with = "deleted")]
        archived: bool,
        /// The deleted ones whose transcripts are still there instead
        #[arg(long)]
        deleted: bool,
        /// Only so many
        #[arg(long, value_name = "N")]
        limit: Option<usize>,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// The transcript of one session
    #[command(
        after_help = "Examples:\n  greenroom sessions show api:user:ann\n  greenroom sessions show api:user:ann --archived"
    )]
    Show {
        /// Session key
        key: String,
        /// The newest one in the archive instead
        #[arg(long)]
        archived: bool,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Delete a session: its turns are cancelled, its file becomes a tombstone, the next message begins a new one
    #[command(after_help = "Examples:\n  greenroom sessions delete websocket:ann\n  \
                      greenroom sessions delete websocket:ann --archived")]
    Delete {
        /// Session key
        key: String,
        /// The newest one in the archive instead
        #[arg(long)]
        archived: bool,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Put a session without open turns into the archive; the next message begins a new one
    #[command(after_help = "Example:\n  greenroom sessions archive websocket:ann")]
    Archive(OneSession),
    /// Take the newest archived session of a key back, if the key has no newer one
    #[command(after_help = "Example:\n  greenroom sessions unarchive websocket:ann")]
    Unarchive(OneSession),
    /// Say which old sessions and files have to go, as session.maintenance has it; with its mode `enforce`, let them go
    #[command(after_help = "Examples:\n  greenroom sessions prune\n  greenroom sessions prune --enforce --json")]
    Prune {
        /// Only say what would go, also with the mode `enforce`
        #[arg(long, conflicts_with = "enforce")]
        dry_run: bool,
        /// Let it go, whatever the mode is
        #[arg(long)]
        enforce: bool,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// The tree, and what changes it.
    #[command(flatten)]
    Edits(Edits),
    /// End a session's quarantine now; without a gateway it holds from the next start
    #[command(after_help = "Examples:\n  greenroom sessions release websocket:ann")]
    Release {
        /// Session key
        key: String,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
}

/// Which session, for commands that need no more.
#[derive(Debug, Args)]
pub struct OneSession {
    /// Session key
    pub key: String,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}
