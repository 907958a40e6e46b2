//! `subagents …`

use clap::Subcommand;
use domain::ids::RunId;

use super::Output;

/// `subagents …`
#[derive(Debug, Subcommand)]
pub enum Subagents {
    /// Those that run, the last ones that ended, and reports that were not taken
    #[command(after_help = "Example:\n  greenroom subagents list --json")]
    List(Output),
    /// One of them, with what it said last
    Show {
        /// Its run, as `list` prints it
        run: RunId,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Stop one that runs; its parent is told
    Cancel {
        /// Its run, as `list` prints it
        run: RunId,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Do the same task once more, as a new run
    Retry {
        /// Its run, as `list` prints it
        run: RunId,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
}
