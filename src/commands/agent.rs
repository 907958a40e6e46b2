//! `greenroom agent`: one message, or a conversation. Talks to the running gateway when there is one; otherwise the same
//! actors run in this process, with the doors closed.

mod host;
mod line;
mod shown;
mod terminal;
mod typed;

use std::io::{IsTerminal, Write};

use anyhow::Context;
use domain::command::{self, Control};
use domain::ids::SessionKey;
use domain::keys::Key;
use domain::text::{counted, harmless};
use futures::StreamExt;
use protocol::turn::TurnResult;

use self::host::Host;
use self::line::{Line, understand};
use self::shown::{Out, Piece, Shown};
use super::admin::Admin;
use super::print;
use crate::app::ask::Joins;
use crate::app::{App, Options};
use crate::cli::AgentArgs;
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Runs the command.
pub async fn run(loaded: Loaded, arguments: AgentArgs) -> anyhow::Result<()> {
    let named = session(&loaded, arguments.session.as_deref())?;
    if arguments.message.as_ref().is_some_and(|text| text.trim().is_empty()) {
        return Err(Exit::new(ExitCode::Usage, "--message: the text is empty").into());
    }
    let key = match arguments.continues {
        true => super::sessions::last_used(&loaded).await?.unwrap_or(named),
        false => named,
    };
    if arguments.continues {
        eprintln!("[{key}]");
    }
    let history = loaded.paths.data.join("history");
    let host = match Admin::find(&loaded.paths).await? {
        Some(admin) => Host::Gateway(admin),
        None => Host::here(App::start(Options::one_shot(loaded)).await?),
    };
    let outcome = match arguments.message {
        Some(text) => answer(&host, &key, &text).await.map(|_| ()),
        None if std::io::stdin().is_terminal() => terminal::converse(&host, &key, history).await,
        None => converse_piped(&host, &key).await,
    };
    if let Host::Here { app, .. } = host {
        app.stop().await;
    }
    outcome
}

/// The session that is spoken to: the one that is named, else the terminal's own or the unified one.
fn session(loaded: &Loaded, named: Option<&str>) -> Result<SessionKey, Exit> {
    let usage = |error| Exit::new(ExitCode::Usage, format!("--session: {error}"));
    let Some(named) = named else {
        let own = SessionKey::new(OWN_SESSION).map_err(usage)?;
        let unified = loaded.config.agents.defaults.unified_session;
        return Ok(if unified { Key::unified(own, &loaded.config.session.main_key) } else { own });
    };
    Key::canonical(named).map_err(usage)
}

/// The terminal's own session.
const OWN_SESSION: &str = "cli:direct";

/// Whether a conversation goes on.
#[derive(Debug, PartialEq, Eq)]
enum GoOn {
    Yes,
    No,
}

/// Lines from a pipe: each is a message or a command, and is answered before the next is read. What cannot be followed
/// is told, and makes the command fail in the end.
async fn converse_piped(host: &Host, key: &SessionKey) -> anyhow::Result<()> {
    use tokio::io::AsyncBufReadExt;
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    let (mut failed, mut code) = (0_u64, ExitCode::Ok);
    while let Some(line) = lines.next_line().await.context("standard input cannot be read as UTF-8 lines")? {
        match answer(host, key, &line).await {
            Ok(GoOn::Yes) => {}
            Ok(GoOn::No) => break,
            Err(error) => {
                let this = Exit::code_of(&error);
                // Those behind it would fare no better.
                if matches!(this, ExitCode::Interrupted | ExitCode::Disk | ExitCode::NoGateway) {
                    return Err(error);
                }
                eprintln!("{}", harmless(&format!("{error:#}")));
                failed += 1;
                code = if code == ExitCode::Ok { this } else { code };
            }
        }
    }
    match failed {
        0 => Ok(()),
        failed => Err(Exit::new(code, format!("{} of the input failed", counted(failed, "line"))).into()),
    }
}

/// What `/help` says at the terminal.
fn help() -> String {
    format!("{}\n/quit – leave (also Ctrl-D)", command::help())
}

/// Answers a line: commands at once, messages by the agent.
async fn answer(host: &Host, key: &SessionKey, text: &str) -> anyhow::Result<GoOn> {
    match understand(text) {
        Line::Empty => {}
        Line::Quit => return Ok(GoOn::No),
        Line::Control(Control::Help) => print(&help())?,
        Line::Control(control) => print(&host.control(key, control, text.trim()).await?)?,
        Line::Refused(refused) => return Err(Exit::new(ExitCode::Usage, refused.to_string()).into()),
        Line::Message(text) => once(host, key, text).await?,
    }
    Ok(GoOn::Yes)
}

async fn once(host: &Host, key: &SessionKey, text: &str) -> anyhow::Result<()> {
    let mut shown = Shown::default();
    let turn = async {
        let mut pieces = host.say(key, text, Joins::No).await?.pieces;
        let mut ended = None;
        while let Some(piece) = pieces.next().await {
            let piece = piece?;
            if let Piece::Finished { result, .. } = &piece {
                ended = Some(*result);
            }
            write_out(shown.step(piece))?;
        }
        ended.context("the turn ended without an outcome")
    };
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {
            host.stop(key).await?;
            Err(Exit::new(ExitCode::Interrupted, "interrupted").into())
        }
        said = turn => match said? {
            TurnResult::Done | TurnResult::Joined => Ok(()),
            TurnResult::Failed | TurnResult::DeadLettered | TurnResult::Cancelled => {
                Err(Exit::new(ExitCode::Failed, "the turn was not answered; the text above says why").into())
            }
        }
    }
}

/// Writes what is shown.
fn write_out(out: Vec<Out>) -> anyhow::Result<()> {
    let mut to = std::io::stdout().lock();
    for one in out {
        match one {
            Out::Text(text) => write!(to, "{}", harmless(&text))?,
            Out::Note(text) => {
                to.flush()?;
                eprintln!("[{}]", harmless(&text));
            }
        }
    }
    Ok(to.flush()?)
}
