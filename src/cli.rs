//! The command line as clap sees it. Only parsing: no IO, no defaults that need the disk.

mod cron;
mod deadletters;
pub mod edits;
mod journal;
mod memory;
mod sessions;
mod subagents;
mod trigger;

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Parser, Subcommand, ValueEnum};
use domain::ids::SessionKey;

pub use self::cron::{AddArgs, Cron, MissedWord, OneJob};
pub use self::deadletters::Deadletters;
pub use self::journal::Journal;
pub use self::memory::{Memory, Which};
pub use self::sessions::{OneSession, Sessions};
pub use self::subagents::Subagents;
pub use self::trigger::TriggerArgs;

/// Hosts AI-agent conversations as supervised actors.
#[derive(Debug, Parser)]
#[command(
    name = "greenroom",
    version,
    about,
    after_help = "Examples:\n  \
        greenroom agent -m \"hello\"          one answer, no configuration needed\n  \
        greenroom onboard                   write a first config and workspace\n  \
        greenroom gateway                   serve WebSocket, OpenAI API and health\n  \
        greenroom logs --follow             watch the supervision log\n\n\
        Exit codes: 0 ok, 1 failed, 2 usage, 3 config, 4 directory in use, 5 port in use, 6 no gateway,\n\
        7 refused (busy), 74 disk, 130 interrupted."
)]
pub struct Cli {
    /// Where things are.
    #[command(flatten)]
    pub place: Place,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// Where configuration and data are.
#[derive(Debug, Clone, Default, Args)]
pub struct Place {
    /// Configuration file; its directory is the data directory, unless GREENROOM_HOME names one
    /// [default: ~/.greenroom/config.json]
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Workspace directory, instead of the configured one
    #[arg(long, global = true, value_name = "DIR")]
    pub workspace: Option<PathBuf>,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Serve the configured doors until stopped; `gateway drain` stops a running one in order
    #[command(after_help = "Examples:\n  greenroom gateway\n  GREENROOM_API__PORT=9000 greenroom gateway\n  \
        greenroom gateway drain --wait\n\n\
        SIGINT or SIGTERM stops in order: new work is refused, running turns are finished or kept for the next start.\n\
        A second SIGINT stops at once; nothing accepted is lost.")]
    Gateway {
        /// What to do instead of serving.
        #[command(subcommand)]
        what: Option<Gateway>,
    },
    /// Talk to the agent: one message with -m, else a conversation
    #[command(
        after_help = "Examples:\n  greenroom agent -m \"hello\"\n  greenroom agent -m \"and now?\" -s cli:work\n  \
        greenroom agent -c -m \"go on\"       in the session used last\n  \
        greenroom agent                     interactive; /help lists its commands\n  \
        greenroom agent < lines.txt         each line is a message, or a command\n\n\
        A first word like /help is a command, also with -m and from a pipe, and never reaches the model."
    )]
    Agent(AgentArgs),
    /// Write a first configuration and workspace; nothing that exists is touched
    #[command(after_help = "Examples:\n  greenroom onboard\n  GREENROOM_HOME=/srv/greenroom greenroom onboard")]
    Onboard(Output),
    /// Show whether a gateway runs here, and how it is
    #[command(after_help = "Examples:\n  greenroom status\n  greenroom status --json")]
    Status(Output),
    /// List, show, change, archive and delete sessions, end a quarantine
    #[command(
        subcommand,
        after_help = "Examples:\n  greenroom sessions list\n  greenroom sessions show api:user:ann\n  greenroom sessions tree api:user:ann\n  \
        greenroom sessions compact api:user:ann --keep-last 20\n  greenroom sessions release websocket:ann"
    )]
    Sessions(Sessions),
    /// Read what the agent remembers: the memory, and the archive of conversations
    #[command(
        subcommand,
        after_help = "Examples:\n  greenroom memory show\n  greenroom memory search tomato bed\n  greenroom memory history --limit 50"
    )]
    Memory(Memory),
    /// Read the supervision log: what died, why, what was lost and what runs again
    #[command(
        after_help = "Examples:\n  greenroom logs --follow\n  greenroom logs --session api:7 --event restarted --since 2h\n  \
        greenroom logs --path '/registry/*/session/websocket:*' --json\n  greenroom logs --why api:7"
    )]
    Logs(LogsArgs),
    /// Show the live tree of actors of the running gateway
    #[command(
        after_help = "Examples:\n  greenroom tree\n  greenroom tree --path '/registry/*/session/api:*'\n  greenroom tree --json"
    )]
    Tree(TreeArgs),
    /// Watch the running gateway: busiest actors, rates, depths, restarts, slowest turns
    #[command(
        after_help = "Examples:\n  greenroom top\n  greenroom top --once --sort inbox\n  greenroom top --json\n\n\
        Keys: arrows or j k choose, Enter inspects, / filters, o orders, s stops the chosen turn, q quits.\n\
        Without a terminal one snapshot is printed."
    )]
    Top(TopArgs),
    /// Show turns and deliveries that were given up; try them again or drop them
    #[command(
        subcommand,
        after_help = "Examples:\n  greenroom deadletters list\n  greenroom deadletters show 0193e0a1-7b1c-7000-8000-000000000001\n  \
        greenroom deadletters retry 0193e0a1-7b1c-7000-8000-000000000001:1"
    )]
    Deadletters(Deadletters),
    /// Sub-agents: those that run or have ended, and reports that were not taken
    #[command(subcommand, after_help = "Example:\n  greenroom subagents list")]
    Subagents(Subagents),
    /// Jobs that are due at times: list, make, remove, run them
    #[command(
        subcommand,
        after_help = "Examples:\n  greenroom cron list\n  greenroom cron add --message \"Look at the logs\" --every 30m"
    )]
    Cron(Cron),
    /// Tell a session something that another program has to say; needs no running gateway
    Trigger(TriggerArgs),
    /// Check configuration, directory and machine: journal, disk, sync speed, locks, sandbox, file limit, clock
    #[command(after_help = "Examples:\n  greenroom doctor\n  greenroom doctor --json")]
    Doctor(Output),
    /// Check the configuration
    #[command(
        subcommand,
        after_help = "Examples:\n  greenroom config check\n  greenroom --config other.json config check"
    )]
    Config(Config),
    /// Check, show and repair the journal
    #[command(
        subcommand,
        after_help = "Examples:\n  greenroom journal check\n  greenroom journal show --session api:7\n  greenroom journal repair"
    )]
    Journal(Journal),
    /// Copy everything that is needed to go on elsewhere into a directory that is not there yet, also while a gateway runs
    #[command(after_help = "Examples:\n  greenroom backup /mnt/backup/2026-11-29")]
    Backup(CopyArgs),
    /// Put the backup in a directory in place as the data directory, which must not hold data yet
    #[command(after_help = "Examples:\n  GREENROOM_HOME=/srv/greenroom greenroom restore /mnt/backup/2026-11-29")]
    Restore(CopyArgs),
    /// Move in from nanobot or OpenClaw: configuration, workspace, memory, skills, jobs, sessions
    #[command(
        subcommand,
        after_help = "Examples:\n  greenroom import nanobot --dry-run\n  greenroom import nanobot\n  \
        greenroom import openclaw /mnt/old/.openclaw --json\n\n\
        The source is only read. What is here already stays; a differing copy is kept in import/ of the data directory,\n\
        and the exit code is 1. An untouched first configuration, and a session that only the built-in model answered\n\
        (it is archived), give way.\n\
        A run that was cut short is simply run again. No gateway may run meanwhile."
    )]
    Import(Import),
    /// Write sessions as files that nanobot or OpenClaw loads; only adds, never overwrites
    #[command(after_help = "Examples:\n  greenroom export --to nanobot ~/.nanobot\n  \
        greenroom export --to openclaw /tmp/out --session telegram:1 --session cli:direct\n\n\
        No gateway may run meanwhile. After one that was killed, start and stop it once: only then have the files all\n\
        that is in the journal.")]
    Export(ExportArgs),
}

/// `import …`
#[derive(Debug, Subcommand)]
pub enum Import {
    /// From nanobot [default: ~/.nanobot]
    #[command(
        after_help = "Examples:\n  greenroom import nanobot --dry-run\n  greenroom import nanobot /mnt/old/.nanobot"
    )]
    Nanobot(ImportArgs),
    /// From OpenClaw, up to 2026.7.1 [default: ~/.openclaw]
    #[command(
        after_help = "Examples:\n  greenroom import openclaw --dry-run\n  greenroom import openclaw /mnt/old/.openclaw"
    )]
    Openclaw(ImportArgs),
}

/// Arguments of `import …`.
#[derive(Debug, Args)]
pub struct ImportArgs {
    /// The directory to move from
    pub dir: Option<PathBuf>,
    /// Only say what would be done
    #[arg(long)]
    pub dry_run: bool,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// A system whose files can be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Target {
    /// nanobot
    Nanobot,
    /// OpenClaw
    Openclaw,
}

/// Arguments of `export`.
#[derive(Debug, Args)]
pub struct ExportArgs {
    /// For which system
    #[arg(long, value_enum)]
    pub to: Target,
    /// Its data directory; made when missing
    pub dir: PathBuf,
    /// Only this session; can be given several times
    #[arg(long = "session", value_name = "KEY")]
    pub sessions: Vec<SessionKey>,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `backup` and `restore`.
#[derive(Debug, Args)]
pub struct CopyArgs {
    /// The directory of the backup
    pub dir: PathBuf,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// How to print.
#[derive(Debug, Clone, Copy, Default, Args)]
pub struct Output {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

/// `gateway …`
#[derive(Debug, Subcommand)]
pub enum Gateway {
    /// Stop the running gateway in order: it refuses new messages, and finishes or keeps what runs
    #[command(after_help = "Examples:\n  greenroom gateway drain\n  greenroom gateway drain --wait")]
    Drain(DrainArgs),
}

/// Arguments of `gateway drain`.
#[derive(Debug, Args)]
pub struct DrainArgs {
    /// Say how far it is, and return when the gateway has ended
    #[arg(long)]
    pub wait: bool,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `agent`.
#[derive(Debug, Args)]
pub struct AgentArgs {
    /// The message; without it a conversation begins
    #[arg(short, long, value_name = "TEXT")]
    pub message: Option<String>,
    /// Session key; not set: `cli:direct`, or the unified session where there is one
    #[arg(short, long, value_name = "KEY")]
    pub session: Option<String>,
    /// Go on in the terminal's session, or the main one, that was used last
    #[arg(short, long = "continue", conflicts_with = "session")]
    pub continues: bool,
}

/// `config …`
#[derive(Debug, Subcommand)]
pub enum Config {
    /// Read the configuration and say what is wrong, doubtful or unused, and where
    #[command(after_help = "Example:\n  greenroom config check --json")]
    Check(Output),
}

/// Arguments of `tree`.
#[derive(Debug, Args)]
pub struct TreeArgs {
    /// Only actors whose path matches this glob (`*` and `?`), with those above them
    #[arg(long, value_name = "GLOB")]
    pub path: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// Arguments of `top`.
#[derive(Debug, Args)]
pub struct TopArgs {
    /// Only actors whose path matches this glob (`*` and `?`), or has this text in it
    #[arg(long, value_name = "GLOB")]
    pub path: Option<String>,
    /// What comes first
    #[arg(long, value_enum, default_value_t = Sort::Running)]
    pub sort: Sort,
    /// Seconds between two looks
    #[arg(long, value_name = "SECONDS", default_value = "1", value_parser = seconds)]
    pub interval: Duration,
    /// Print one snapshot and end
    #[arg(long)]
    pub once: bool,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

/// A time between two looks.
fn seconds(text: &str) -> Result<Duration, String> {
    let seconds = text.parse().ok().filter(|seconds| (0.2..=3600.0).contains(seconds));
    seconds.map(Duration::from_secs_f64).ok_or_else(|| "a number from 0.2 to 3600 is expected".to_owned())
}

/// By what `top` orders, the largest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Sort {
    /// How long the running turn has been running
    Running,
    /// Waiting turns
    Inbox,
    /// Messages in the mailbox
    Mailbox,
    /// Restarts
    Restarts,
}

/// Arguments of `logs`.
#[derive(Debug, Args)]
pub struct LogsArgs {
    /// Only actors whose path matches this glob (`*` and `?`)
    #[arg(long, value_name = "GLOB")]
    pub path: Option<String>,
    /// Only actors of this kind, for example `session`; may be repeated
    #[arg(long, value_name = "KIND", value_delimiter = ',')]
    pub kind: Vec<String>,
    /// Only this event, for example `restarted`; may be repeated
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    pub event: Vec<String>,
    /// Only this session
    #[arg(long, value_name = "KEY")]
    pub session: Option<String>,
    /// Only this turn
    #[arg(long, value_name = "ID")]
    pub turn: Option<String>,
    /// Only events at or after this time: 2h (ago), 2026-11-29 or 2026-11-29T20:53:00Z
    #[arg(long, value_name = "TIME")]
    pub since: Option<String>,
    /// Only events before this time
    #[arg(long, value_name = "TIME")]
    pub until: Option<String>,
    /// Only the last N of those that are there; with `--follow` and no `--since` the last 20, and of a story (`--why`) the
    /// last 100, unless this says otherwise
    #[arg(long, value_name = "N")]
    pub tail: Option<usize>,
    /// Go on printing as events come, also over restarts of the gateway
    #[arg(short, long)]
    pub follow: bool,
    /// Tell in plain words what happened to a session or turn, what was lost and what runs again
    #[arg(long, value_name = "KEY|TURN", conflicts_with_all = ["path", "kind", "event", "session", "turn", "follow"])]
    pub why: Option<String>,
    /// How to print.
    #[command(flatten)]
    pub output: Output,
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
        let mut open = vec![Cli::command()];
        while let Some(command) = open.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            assert!(help.contains("greenroom "), "{} has no example", command.get_name());
            open.extend(command.get_subcommands().cloned());
        }
    }

    /// `restore` reads from a directory that `backup` has made.
    #[test]
    fn only_a_backup_wants_a_directory_that_is_not_there() {
        for (name, wants) in [("backup", true), ("restore", false)] {
            let mut command = Cli::command();
            let help = command.find_subcommand_mut(name).unwrap().render_long_help().to_string();
            assert_eq!(help.contains("a directory that is not there yet"), wants, "{help}");
            assert!(!help.contains("must not be there"), "{help}");
        }
    }

    /// Examples are commands that are understood.
    #[test]
    fn every_example_parses() {
        let mut open = vec![Cli::command()];
        let mut examples = 0;
        while let Some(command) = open.pop() {
            let help = command.get_after_help().map(ToString::to_string).unwrap_or_default();
            for line in help.lines().filter(|line| line.starts_with("  ") && line.contains(" greenroom ")) {
                let after = line.rsplit_once(" greenroom ").unwrap().1;
                let example = after.split("  ").next().unwrap().split(" <").next().unwrap();
                // What stands in quotes is one word.
                let parts = example.split(['"', '\'']).enumerate();
                let words = parts.flat_map(|(at, part)| match at % 2 {
                    0 => part.split_whitespace().collect(),
                    _ => vec![part],
                });
                let words: Vec<&str> = std::iter::once("greenroom").chain(words).collect();
                assert!(Cli::try_parse_from(&words).is_ok(), "{line}: {words:?}");
                examples += 1;
            }
            open.extend(command.get_subcommands().cloned());
        }
        assert!(examples > 30, "{examples}");
    }

    #[test]
    fn intervals_are_sensible_numbers() {
        for (text, expect) in [("0.2", true), ("3600", true), ("0", false), ("-1", false), ("nan", false), ("x", false)]
        {
            assert_eq!(seconds(text).is_ok(), expect, "{text}");
        }
    }

    #[test]
    fn place_arguments_are_global() {
        let cli = Cli::try_parse_from(["greenroom", "status", "--config", "/x/config.json"]).unwrap();
        assert_eq!(cli.place.config, Some(PathBuf::from("/x/config.json")));
    }
}
