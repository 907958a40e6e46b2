//! `greenroom agent`: one message, or a conversation. Talks to the running gateway when there is one; otherwise the same
//! actors run in this process, with the doors closed.

mod line;
mod terminal;

use std::io::Write;

use anyhow::Context;
use domain::command::{self, Control};
use domain::ids::SessionKey;
use domain::keys::Key;
use domain::text::harmless;
use futures::StreamExt;
use protocol::turn::{TurnProgress, TurnResult};
use serde_json::{Value, json};

use self::line::{Line, understand};
use super::admin::{Admin, Lines, encode};
use super::print;
use crate::app::{App, Options};
use crate::cli::AgentArgs;
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// What the terminal shows of a turn.
enum Piece {
    Delta(String),
    Tool(String),
    Notice(String),
    Finished { result: TurnResult, text: String },
}

/// Whoever runs the turns.
enum Host {
    Gateway(Admin),
    Here(Box<App>),
}

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
        None => Host::Here(Box::new(App::start(Options::one_shot(loaded)).await?)),
    };
    let outcome = match arguments.message {
        Some(text) => answer(&host, &key, &text).await.map(|_| ()),
        None => terminal::converse(&host, &key, history).await,
    };
    if let Host::Here(app) = host {
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

/// Answers a line: commands here, messages by the agent.
async fn answer(host: &Host, key: &SessionKey, text: &str) -> anyhow::Result<GoOn> {
    match understand(text) {
        Line::Empty => {}
        Line::Quit => return Ok(GoOn::No),
        Line::Control(Control::Help) => print(&format!("{}\n/quit – leave (also Ctrl-D)", command::help()))?,
        Line::Control(Control::Status) => print(&host.status(key).await?)?,
        Line::Control(Control::Restart) => match host {
            Host::Gateway(_) => once(host, key, text).await?,
            Host::Here(_) => return Err(Exit::new(ExitCode::NoGateway, "no gateway runs here to be restarted").into()),
        },
        Line::Control(Control::Queue(ask)) => match host {
            Host::Here(app) => print(&app.queue(key, ask).await?.to_string())?,
            // The gateway answers it like a message.
            Host::Gateway(_) => once(host, key, text).await?,
        },
        Line::Control(Control::Stop { all }) => print(&host.stop(key, all).await?)?,
        Line::Refused(refused) => return Err(Exit::new(ExitCode::Usage, refused.to_string()).into()),
        Line::Message(text) => once(host, key, text).await?,
    }
    Ok(GoOn::Yes)
}

async fn once(host: &Host, key: &SessionKey, text: &str) -> anyhow::Result<()> {
    let mut shown = Shown::default();
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {
            host.stop(key, false).await?;
            Err(Exit::new(ExitCode::Interrupted, "interrupted").into())
        }
        said = host.say(key, text, |piece| shown.show(piece)) => match said? {
            TurnResult::Done | TurnResult::Joined => Ok(()),
            TurnResult::Failed | TurnResult::DeadLettered | TurnResult::Cancelled => {
                Err(Exit::new(ExitCode::Failed, "the turn was not answered; the text above says why").into())
            }
        }
    }
}

/// What of the current round already stands on the terminal.
#[derive(Default)]
struct Shown {
    text: String,
}

impl Shown {
    fn show(&mut self, piece: Piece) -> anyhow::Result<()> {
        let mut out = std::io::stdout().lock();
        match piece {
            Piece::Delta(text) => {
                write!(out, "{}", harmless(&text))?;
                self.text.push_str(&text);
            }
            Piece::Tool(text) | Piece::Notice(text) => {
                let newline = if self.text.is_empty() { "" } else { "\n" };
                self.text.clear();
                write!(out, "{newline}")?;
                out.flush()?;
                eprintln!("[{}]", harmless(&text));
            }
            Piece::Finished { text, .. } => {
                if self.text.is_empty() {
                    writeln!(out, "{}", harmless(&text))?;
                } else {
                    let newline = if text == self.text { String::new() } else { format!("\n{}", harmless(&text)) };
                    writeln!(out, "{newline}")?;
                }
                self.text.clear();
            }
        }
        Ok(out.flush()?)
    }
}

impl Host {
    /// Says something and shows what comes back, until the turn is finished.
    async fn say(
        &self,
        key: &SessionKey,
        text: &str,
        mut show: impl FnMut(Piece) -> anyhow::Result<()>,
    ) -> anyhow::Result<TurnResult> {
        match self {
            Self::Here(app) => {
                let mut events = app.submit(key, text).await?;
                while let Some(event) = events.next().await {
                    match event.what {
                        TurnProgress::Delta(text) => show(Piece::Delta(text))?,
                        TurnProgress::ToolStarted { name, .. } => show(Piece::Tool(name))?,
                        TurnProgress::Notice(text) => show(Piece::Notice(text.to_string()))?,
                        TurnProgress::Finished(finished) => {
                            show(Piece::Finished { result: finished.result, text: finished.text.clone() })?;
                            return Ok(finished.result);
                        }
                        TurnProgress::Started
                        | TurnProgress::Reasoning(_)
                        | TurnProgress::StreamEnd { .. }
                        | TurnProgress::ToolEnded { .. }
                        | TurnProgress::Goal(_) => {}
                    }
                }
                anyhow::bail!("the turn ended without an outcome")
            }
            Self::Gateway(admin) => {
                let path = format!("sessions/{}/messages", encode(key.as_str()));
                let mut bytes = admin.post(&path, &json!({"content": text})).await?.bytes_stream();
                let mut lines = Lines::default();
                while let Some(chunk) = bytes.next().await {
                    for line in lines.push(&chunk.context("the gateway went away; the message is kept")?) {
                        let Some(piece) = read_piece(&line) else { continue };
                        let result = if let Piece::Finished { result, .. } = &piece { Some(*result) } else { None };
                        show(piece)?;
                        if let Some(result) = result {
                            return Ok(result);
                        }
                    }
                }
                anyhow::bail!("the gateway ended the stream before the turn was finished; the message is kept")
            }
        }
    }

    /// Cancels the running turn, and says what came of it.
    async fn stop(&self, key: &SessionKey, all: bool) -> anyhow::Result<String> {
        let stopped = match self {
            Self::Here(app) => serde_json::to_value(app.cancel(key, all).await)?,
            Self::Gateway(admin) => {
                let path = format!("sessions/{}/stop?all={all}", encode(key.as_str()));
                admin.post(&path, &json!({})).await?.json().await?
            }
        };
        let running = if stopped["cancelled"].is_string() { "stopped the running turn" } else { "nothing was running" };
        let later =
            if stopped["later"] == true { "; what would run next is stopped when the session is back" } else { "" };
        let count = |name: &str| stopped[name].as_u64().unwrap_or(0);
        Ok(format!("{running}; {} dropped, {} waiting{later}", count("dropped"), count("waiting")))
    }
}

/// One line of the admin API's event stream.
fn read_piece(line: &str) -> Option<Piece> {
    let event: Value = serde_json::from_str(line).ok()?;
    let text = || event["text"].as_str().unwrap_or_default().to_owned();
    match event["event"].as_str()? {
        "delta" => Some(Piece::Delta(text())),
        "tool_started" => Some(Piece::Tool(event["name"].as_str().unwrap_or_default().to_owned())),
        "notice" => Some(Piece::Notice(text())),
        "finished" => {
            let result = match event["result"].as_str()? {
                "done" => TurnResult::Done,
                "cancelled" => TurnResult::Cancelled,
                "dead_lettered" => TurnResult::DeadLettered,
                "joined" => TurnResult::Joined,
                _ => TurnResult::Failed,
            };
            Some(Piece::Finished { result, text: text() })
        }
        _ => None,
    }
}

impl Host {
    /// What the session does, in a line.
    async fn status(&self, key: &SessionKey) -> anyhow::Result<String> {
        let status = match self {
            Self::Here(app) => serde_json::to_value(app.status(key).await?)?,
            Self::Gateway(admin) => match admin.get(&format!("sessions/{}", encode(key.as_str()))).await {
                Ok(session) => session["status"].clone(),
                // Whoever has said nothing yet has no session.
                Err(_) => Value::Null,
            },
        };
        let state = status["state"].as_str().unwrap_or("asleep");
        let model = status["about"]["model"].as_str().map(|model| format!(", model {model}")).unwrap_or_default();
        Ok(format!("{key}: {}, {} waiting{model}", state.replace('_', " "), status["inbox"].as_u64().unwrap_or(0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_lines_become_pieces() {
        assert!(matches!(read_piece(r#"{"event":"delta","text":"a"}"#), Some(Piece::Delta(text)) if text == "a"));
        assert!(matches!(
            read_piece(r#"{"event":"finished","result":"dead_lettered","text":"sorry"}"#),
            Some(Piece::Finished { result: TurnResult::DeadLettered, .. })
        ));
        assert!(read_piece(r#"{"event":"something_new"}"#).is_none());
        assert!(read_piece("not json").is_none());
    }
}
