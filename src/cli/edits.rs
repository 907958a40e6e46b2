//! `sessions …`: the commands that show and change how a conversation hangs together.

use std::path::PathBuf;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};

use super::Output;

/// The tree of a session, and what changes it.
#[derive(Debug, Subcommand)]
pub enum Edits {
    /// The tree of a session: branches, the active path (●), labels, times, first words
    #[command(
        after_help = "Examples:\n  greenroom sessions tree api:user:ann\n  greenroom sessions tree api:user:ann --json"
    )]
    Tree(KeyArgs),
    /// Give an entry a name, which marks it as important; without TEXT take the name away
    #[command(
        after_help = "Examples:\n  greenroom sessions label api:user:ann 03f7 \"the decision\"\n  greenroom sessions label api:user:ann 03f7"
    )]
    Label {
        /// Session key
        key: String,
        /// Entry id, or a beginning of it that no other entry has
        entry: String,
        /// The name
        text: Option<String>,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Give a session a name; an empty one takes it away
    #[command(after_help = "Example:\n  greenroom sessions rename api:user:ann \"Tax return\"")]
    Rename {
        /// Session key
        key: String,
        /// The name
        name: String,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Go on from an earlier entry; what came after it stays as a branch
    #[command(after_help = "Examples:\n  greenroom sessions branch api:user:ann 03f7\n  \
        greenroom sessions branch api:user:ann 03f7 --summary \"the other way did not work\"\n  \
        greenroom sessions branch api:user:ann root")]
    Branch {
        /// Session key
        key: String,
        /// Entry id, or a beginning of it; `root` is before the first entry
        entry: String,
        /// What the model is told of the branch that is left
        #[arg(long, value_name = "TEXT")]
        summary: Option<String>,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Begin a conversation anew; its transcript keeps everything
    #[command(after_help = "Example:\n  greenroom sessions reset api:user:ann")]
    Reset(KeyArgs),
    /// Show the model a summary in place of what came before; what has a label is quoted in it
    #[command(after_help = "Examples:\n  greenroom sessions compact api:user:ann --keep-last 20\n  \
        greenroom sessions compact api:user:ann --keep-days 7 --summary \"we planned the trip\"\n  \
        greenroom sessions compact api:user:ann --keep-important")]
    Compact(CompactArgs),
    /// Copy a conversation, or the branch that ends with an entry, into a new session
    #[command(after_help = "Examples:\n  greenroom sessions fork api:user:ann api:user:ann2\n  \
        greenroom sessions fork api:user:ann cli:try --entry 03f7")]
    Fork {
        /// Session key
        key: String,
        /// The new session's key
        newkey: String,
        /// Last entry of the branch, or a beginning of its id
        #[arg(long)]
        entry: Option<String>,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Write a session as one new file, as this program, nanobot or OpenClaw reads it
    #[command(after_help = "Examples:\n  greenroom sessions export api:user:ann ann.jsonl\n  \
        greenroom sessions export api:user:ann ann.jsonl --to nanobot")]
    Export {
        /// Session key
        key: String,
        /// The file; must not be there yet
        file: PathBuf,
        /// For which program
        #[arg(long, value_enum, default_value_t)]
        to: FileFormat,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Make a session of one file that this program, nanobot or OpenClaw wrote
    #[command(after_help = "Examples:\n  greenroom sessions import ann.jsonl\n  \
        greenroom sessions import 0193e0a1.jsonl --key api:user:ann")]
    Import {
        /// The file; is only read
        file: PathBuf,
        /// Session key, instead of the one that the file names; no session may have it yet
        #[arg(long)]
        key: Option<String>,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// What is wrong with a transcript, and what a repair would do; without KEY with all of them
    #[command(after_help = "Examples:\n  greenroom sessions check\n  greenroom sessions check api:user:ann --json")]
    Check {
        /// Session key
        key: Option<String>,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Mend a transcript: a torn end is moved aside, a missing header appended; nothing else is changed
    #[command(after_help = "Example:\n  greenroom sessions repair api:user:ann")]
    Repair(KeyArgs),
}

/// Whose file it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub enum FileFormat {
    /// This program's transcript, as it is
    #[default]
    Greenroom,
    /// nanobot's session file
    Nanobot,
    /// OpenClaw's transcript
    Openclaw,
}

/// One session.
#[derive(Debug, Args)]
pub struct KeyArgs {
    /// Session key
    pub key: String,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `sessions compact`.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("keep").args(["keep_last", "keep_days", "keep_important"]))]
#[command(group = ArgGroup::new("what").args(["keep_last", "keep_days", "keep_important", "summary"]).required(true).multiple(true))]
pub struct CompactArgs {
    /// Session key
    pub key: String,
    /// Keep at least the last N messages, from the begin of a turn on
    #[arg(long, value_name = "N")]
    pub keep_last: Option<u32>,
    /// Keep the messages of the last N days
    #[arg(long, value_name = "N")]
    pub keep_days: Option<u32>,
    /// Keep only what has a label
    #[arg(long)]
    pub keep_important: bool,
    /// What stands in place of the rest
    #[arg(long, value_name = "TEXT")]
    pub summary: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}
