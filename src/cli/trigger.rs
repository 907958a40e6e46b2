//! `trigger …`.

use clap::Args;

use super::Output;

/// Arguments of `trigger`.
#[derive(Debug, Args)]
#[command(after_help = "Examples:\n  greenroom trigger trg_A2B3C4D5 \"the backup is done\"\n  \
    df -h | greenroom trigger trg_A2B3C4D5\n  greenroom trigger --list\n  greenroom trigger trg_A2B3C4D5 --disable\n\n\
    `/trigger NAME` in a chat makes a trigger of its session. What is handed in is on disk when this command ends; the\n\
    gateway takes it at once, or when it runs again.")]
pub struct TriggerArgs {
    /// The trigger, as `/trigger` and `--list` name it
    #[arg(value_name = "ID", required_unless_present = "list", conflicts_with = "list")]
    pub id: Option<String>,
    /// What is said; not given: what standard input says
    #[arg(value_name = "MESSAGE")]
    pub message: Option<String>,
    /// Show the triggers
    #[arg(long)]
    pub list: bool,
    /// What to do with the trigger instead.
    #[command(flatten)]
    pub act: TriggerAct,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// What can be done with a trigger instead of handing something in.
#[derive(Debug, Args)]
#[group(multiple = false)]
pub struct TriggerAct {
    /// Remove the trigger
    #[arg(long, requires = "id", conflicts_with_all = ["list", "message"])]
    pub remove: bool,
    /// Take nothing for it any more, and keep it
    #[arg(long, requires = "id", conflicts_with_all = ["list", "message"])]
    pub disable: bool,
    /// Take again what is handed in for it
    #[arg(long, requires = "id", conflicts_with_all = ["list", "message"])]
    pub enable: bool,
    /// Show how its last deliveries went, oldest first
    #[arg(long, requires = "id", conflicts_with_all = ["list", "message"])]
    pub history: bool,
}
