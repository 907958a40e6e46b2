//! `greenroom journal …` as clap sees it.

use clap::Subcommand;
use domain::ids::{SessionKey, TurnId};

use super::Output;

/// `journal …`
#[derive(Debug, Subcommand)]
pub enum Journal {
    /// Read every record and say what is there; changes nothing
    #[command(after_help = "Example:\n  greenroom journal check --json")]
    Check(Output),
    /// Print the records, oldest first; with --json one object per line
    #[command(after_help = "Examples:\n  greenroom journal show --session api:7 --content\n  \
        greenroom journal show --turn 0193e0a1-7b1c-7000-8000-000000000001 --json")]
    Show {
        /// Only records of this session
        #[arg(long, value_name = "KEY")]
        session: Option<SessionKey>,
        /// Only records about this turn
        #[arg(long, value_name = "ID")]
        turn: Option<TurnId>,
        /// Only records at or after this log position
        #[arg(long, value_name = "LSN", default_value_t = 0)]
        from: u64,
        /// Print what was said, too
        #[arg(long)]
        content: bool,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Go on after acknowledged data was damaged: say what is lost and, with --yes, keep everything else
    #[command(after_help = "Examples:\n  greenroom journal repair          only says what it would do\n  \
        greenroom journal repair --yes\n\nThe gateway must not run. The damaged segments are copied aside first.")]
    Repair {
        /// Do it
        #[arg(long)]
        yes: bool,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
}
