//! `greenroom memory …` as clap sees it.

use clap::{Args, Subcommand};

use super::Output;

/// `memory …`
#[derive(Debug, Subcommand)]
pub enum Memory {
    /// What the agent knows: its files, their sizes, and how much waits to be worked in
    #[command(after_help = "Examples:\n  greenroom memory show\n  greenroom memory show --json")]
    Show(Output),
    /// The lines of the archive that have all these words
    #[command(
        after_help = "Examples:\n  greenroom memory search tomato bed\n  greenroom memory search --limit 5 invoice"
    )]
    Search {
        /// Words; case does not count
        #[arg(required = true)]
        words: Vec<String>,
        /// Which lines.
        #[command(flatten)]
        which: Which,
    },
    /// The newest lines of the archive
    #[command(
        after_help = "Examples:\n  greenroom memory history\n  greenroom memory history --session cli:direct --limit 100"
    )]
    History {
        /// Which lines.
        #[command(flatten)]
        which: Which,
    },
    /// Have the archive worked into the memory now, by a running gateway
    #[command(after_help = "Examples:\n  greenroom memory dream\n  greenroom memory dream --json")]
    Dream(Output),
    /// What a version of the memory changed
    #[command(after_help = "Examples:\n  greenroom memory log\n  greenroom memory log 3f9c0a1b")]
    Log {
        /// The version; the newest when not given
        id: Option<String>,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Undo a version of the memory and those after it, or list them
    #[command(after_help = "Examples:\n  greenroom memory restore\n  greenroom memory restore 3f9c0a1b")]
    Restore {
        /// The version; when not given, the newest are listed
        id: Option<String>,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
}

/// Which lines of the archive.
#[derive(Debug, Args)]
pub struct Which {
    /// Only of this session
    #[arg(short, long, value_name = "KEY")]
    pub session: Option<String>,
    /// At most so many, the newest
    #[arg(long, value_name = "N", default_value_t = 20)]
    pub limit: usize,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}
