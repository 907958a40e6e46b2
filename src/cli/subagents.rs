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
    #[command(after_help = "Example:\n  greenroom subagents show 0193e0a1-7b1c-5000-8000-000000000001")]
    Show {
        /// Its run, as `list` prints it
        run: RunId,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Stop one that runs; its parent is told
    #[command(after_help = "Example:\n  greenroom subagents cancel 0193e0a1-7b1c-5000-8000-000000000001")]
    Cancel {
        /// Its run, as `list` prints it
        run: RunId,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Do the same task once more, as a new run; says which tools the first one had called, since what they did stands
    #[command(after_help = "Example:\n  greenroom subagents retry 0193e0a1-7b1c-5000-8000-000000000001")]
    Retry {
        /// Its run, as `list` prints it
        run: RunId,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
}
