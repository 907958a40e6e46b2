//! `deadletters …`

use clap::Subcommand;
use domain::ids::LetterId;

use super::Output;

/// `deadletters …`
#[derive(Debug, Subcommand)]
pub enum Deadletters {
    /// All dead letters, oldest first
    #[command(after_help = "Example:\n  greenroom deadletters list --json")]
    List(Output),
    /// One dead letter: why, when, route, and what the supervision log kept of it
    #[command(after_help = "Example:\n  greenroom deadletters show 0193e0a1-7b1c-7000-8000-000000000001 --content")]
    Show {
        /// Its id, as `list` prints it
        id: LetterId,
        /// Print what the message or the delivery says, too
        #[arg(long)]
        content: bool,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Run the turn again, or deliver again; without a gateway the turn runs here, to its end
    #[command(after_help = "Example:\n  greenroom deadletters retry 0193e0a1-7b1c-7000-8000-000000000001")]
    Retry {
        /// Its id, as `list` prints it
        id: LetterId,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
    /// Forget a dead letter; its transcript keeps the message and the notice
    #[command(after_help = "Example:\n  greenroom deadletters drop 0193e0a1-7b1c-7000-8000-000000000001")]
    Drop {
        /// Its id, as `list` prints it
        id: LetterId,
        /// How to print.
        #[command(flatten)]
        output: Output,
    },
}
