//! `cron …`.

use std::time::Duration;

use clap::{ArgGroup, Args, Subcommand, ValueEnum};
use domain::ids::SessionKey;

use super::Output;

/// `cron …`
#[derive(Debug, Subcommand)]
pub enum Cron {
    /// All jobs, the next due first
    #[command(after_help = "Example:\n  greenroom cron list --json")]
    List(Output),
    /// Make a job
    #[command(after_help = "Examples:\n  \
        greenroom cron add --message \"Water the tomatoes\" --cron \"0 7 * * *\" --tz Europe/Berlin --session websocket:ann\n  \
        greenroom cron add --message \"Tea is ready\" --at 2026-12-24T16:00 --to webhook:7\n  \
        greenroom cron add --message \"Look at the logs\" --every 30m --missed once\n\n\
        A pattern is: minute hour day month weekday, and perhaps second. A time that a clock put back brings twice is used\n\
        the first time only; one that a clock put forward skips is due at that moment.")]
    Add(Box<AddArgs>),
    /// Remove a job; a run of it goes on
    #[command(after_help = "Example:\n  greenroom cron remove 1a2b3c4d")]
    Remove(OneJob),
    /// Follow a job again
    #[command(after_help = "Example:\n  greenroom cron enable 1a2b3c4d")]
    Enable(OneJob),
    /// Follow a job no more, and keep it
    #[command(after_help = "Example:\n  greenroom cron disable 1a2b3c4d")]
    Disable(OneJob),
    /// Run a job now, whatever its schedule says; needs a gateway
    #[command(after_help = "Example:\n  greenroom cron run 1a2b3c4d")]
    Run(OneJob),
    /// The last runs of a job, oldest first; also of one that is gone
    #[command(after_help = "Example:\n  greenroom cron history 1a2b3c4d")]
    History(OneJob),
}

/// A job.
#[derive(Debug, Args)]
pub struct OneJob {
    /// Its id, as `list` prints it
    pub id: String,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `cron add`.
#[derive(Debug, Args)]
#[command(group(ArgGroup::new("when").required(true).args(["at", "every", "cron"])))]
pub struct AddArgs {
    /// What the session is told when it is due
    #[arg(short, long, value_name = "TEXT")]
    pub message: String,
    /// Once, at this time; without an offset in the zone of the configuration
    #[arg(long, value_name = "TIME")]
    pub at: Option<String>,
    /// Again and again, as in 90s, 30m, 2h, 1d
    #[arg(long, value_name = "TIME", value_parser = distance)]
    pub every: Option<Duration>,
    /// By a pattern
    #[arg(long, value_name = "PATTERN")]
    pub cron: Option<String>,
    /// Time zone of the pattern, instead of that of the configuration
    #[arg(long, value_name = "ZONE", conflicts_with_all = ["at", "every"])]
    pub tz: Option<String>,
    /// A short name [default: the beginning of the message]
    #[arg(long)]
    pub name: Option<String>,
    /// The session that it runs in [default: one of its own]
    #[arg(long, value_name = "KEY")]
    pub session: Option<SessionKey>,
    /// The chat that is given the answer [default: that of the session]
    #[arg(long, value_name = "CHANNEL:CHAT", value_parser = chat)]
    pub to: Option<(String, String)>,
    /// What becomes of times that passed while no gateway ran [default: once with --at, else skip]
    #[arg(long, value_enum)]
    pub missed: Option<MissedWord>,
    /// How long a run may take [default: 1h]
    #[arg(long, value_name = "TIME", value_parser = distance)]
    pub timeout: Option<Duration>,
    /// Keep a job with --at after its run
    #[arg(long, conflicts_with_all = ["every", "cron"])]
    pub keep: bool,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// What becomes of times that were missed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum MissedWord {
    /// Nothing
    Skip,
    /// One run for all of them
    Once,
    /// A run for each, one after the other, the last 100 of them
    All,
}

/// `90s`, `30m`, `2h`, `1d`.
fn distance(text: &str) -> Result<Duration, String> {
    let units = [("s", 1), ("m", 60), ("h", 3600), ("d", 86_400)];
    let read = |(unit, seconds): &(&str, u64)| {
        let count: u64 = text.strip_suffix(unit)?.parse().ok()?;
        count.checked_mul(*seconds).filter(|seconds| (1..=100 * 366 * 86_400).contains(seconds))
    };
    let seconds = units.iter().find_map(read);
    seconds
        .map(Duration::from_secs)
        .ok_or_else(|| "expected is a number with s, m, h or d, from 1s to 100 years, as in 30m".to_owned())
}

/// `webhook:7`.
fn chat(text: &str) -> Result<(String, String), String> {
    let parts = text.split_once(':').filter(|(channel, chat)| !channel.is_empty() && !chat.is_empty());
    let parts = parts.map(|(channel, chat)| (channel.to_owned(), chat.to_owned()));
    parts.ok_or_else(|| "expected is a channel and a chat, as in webhook:7".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn distances_and_chats() {
        for (text, seconds) in [("90s", Some(90)), ("30m", Some(1800)), ("2h", Some(7200)), ("1d", Some(86_400))] {
            assert_eq!(distance(text).ok().map(|distance| distance.as_secs()), seconds);
        }
        for text in ["", "s", "0s", "-1s", "5", "1.5h", "1w", "99999999999999999999d"] {
            assert!(distance(text).is_err(), "{text}");
        }
        assert_eq!(chat("webhook:a:b"), Ok(("webhook".to_owned(), "a:b".to_owned())));
        assert!(chat("webhook").is_err() && chat(":7").is_err());
    }
}
