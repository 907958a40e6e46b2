//! `greenroom agent`: one message, or a conversation. Talks to the running gateway when there is one; otherwise the same
//! actors run in this process, with the doors closed.

use std::io::{IsTerminal, Write};

use anyhow::Context;
use domain::ids::SessionKey;
use futures::StreamExt;
use protocol::turn::{TurnProgress, TurnResult};
use serde_json::{Value, json};
use tokio::sync::{mpsc, oneshot};

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
    Finished { result: TurnResult, text: String },
}

/// Whoever runs the turns.
enum Host {
    Gateway(Admin),
    Here(Box<App>),
}

/// Runs the command.
pub async fn run(loaded: Loaded, arguments: AgentArgs) -> anyhow::Result<()> {
    let key = SessionKey::new(&arguments.session)
        .map_err(|error| Exit::new(ExitCode::Usage, format!("--session: {error}")))?;
    let host = match Admin::find(&loaded.paths).await? {
        Some(admin) => Host::Gateway(admin),
        None => Host::Here(Box::new(App::start(Options::one_shot(loaded)).await?)),
    };
    let outcome = match arguments.message {
        Some(text) => once(&host, &key, &text).await,
        None => converse(&host, &key, loaded_history()).await,
    };
    if let Host::Here(app) = host {
        app.stop().await;
    }
    outcome
}

async fn once(host: &Host, key: &SessionKey, text: &str) -> anyhow::Result<()> {
    let mut shown = Shown::default();
    tokio::select! {
        biased;
        _ = tokio::signal::ctrl_c() => {
            host.stop(key).await?;
            Err(Exit::new(ExitCode::Interrupted, "interrupted").into())
        }
        said = host.say(key, text, |piece| shown.show(piece)) => match said? {
            TurnResult::Done => Ok(()),
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
                write!(out, "{text}")?;
                self.text.push_str(&text);
            }
            Piece::Tool(name) => {
                let newline = if self.text.is_empty() { "" } else { "\n" };
                self.text.clear();
                write!(out, "{newline}")?;
                out.flush()?;
                eprintln!("[{name}]");
            }
            Piece::Finished { text, .. } => {
                if self.text.is_empty() {
                    writeln!(out, "{text}")?;
                } else {
                    let newline = if text == self.text { String::new() } else { format!("\n{text}") };
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
                        TurnProgress::Finished(finished) => {
                            show(Piece::Finished { result: finished.result, text: finished.text.clone() })?;
                            return Ok(finished.result);
                        }
                        TurnProgress::Started
                        | TurnProgress::Reasoning(_)
                        | TurnProgress::StreamEnd { .. }
                        | TurnProgress::ToolEnded { .. } => {}
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

    async fn stop(&self, key: &SessionKey) -> anyhow::Result<()> {
        match self {
            Self::Here(app) => app.cancel(key).await,
            Self::Gateway(admin) => {
                admin.post(&format!("sessions/{}/stop", encode(key.as_str())), &json!({})).await?;
            }
        }
        Ok(())
    }
}

/// One line of the admin API's event stream.
fn read_piece(line: &str) -> Option<Piece> {
    let event: Value = serde_json::from_str(line).ok()?;
    let text = || event["text"].as_str().unwrap_or_default().to_owned();
    match event["event"].as_str()? {
        "delta" => Some(Piece::Delta(text())),
        "tool_started" => Some(Piece::Tool(event["name"].as_str().unwrap_or_default().to_owned())),
        "finished" => {
            let result = match event["result"].as_str()? {
                "done" => TurnResult::Done,
                "cancelled" => TurnResult::Cancelled,
                "dead_lettered" => TurnResult::DeadLettered,
                _ => TurnResult::Failed,
            };
            Some(Piece::Finished { result, text: text() })
        }
        _ => None,
    }
}

const HELP: &str =
    "/help  this text\n/status  what the session does\n/quit  leave (also Ctrl-D)\nCtrl-C  cancel the running turn";

fn loaded_history() -> Option<std::path::PathBuf> {
    std::env::home_dir().map(|home| home.join(".greenroom/history"))
}

async fn converse(host: &Host, key: &SessionKey, history: Option<std::path::PathBuf>) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        return converse_piped(host, key).await;
    }
    let (ask, mut asked) = mpsc::channel::<(String, oneshot::Sender<()>)>(1);
    let editor = std::thread::Builder::new().name("line-editor".to_owned()).spawn(move || edit(&ask, history))?;
    while let Some((line, go_on)) = asked.recv().await {
        match line.trim() {
            "" => {}
            "/quit" | "/exit" => break,
            "/help" => print(HELP)?,
            "/status" => print(&host.status(key).await?)?,
            text => {
                if let Err(error) = once(host, key, text).await {
                    eprintln!("{error:#}");
                }
            }
        }
        // The editor may be gone already; then the loop ends by itself.
        let _ = go_on.send(());
    }
    drop(asked);
    editor.join().map_err(|_| anyhow::anyhow!("the line editor failed"))?
}

/// Lines from a pipe: each is a message.
async fn converse_piped(host: &Host, key: &SessionKey) -> anyhow::Result<()> {
    use tokio::io::AsyncBufReadExt;
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.context("standard input cannot be read as UTF-8 lines")? {
        if !line.trim().is_empty() {
            once(host, key, line.trim()).await?;
        }
    }
    Ok(())
}

/// The line editor's thread: reads a line, hands it over, waits until it was answered.
fn edit(ask: &mpsc::Sender<(String, oneshot::Sender<()>)>, history: Option<std::path::PathBuf>) -> anyhow::Result<()> {
    use reedline::{DefaultPrompt, DefaultPromptSegment, FileBackedHistory, Reedline, Signal};
    const HISTORY_LINES_MAX: usize = 1000;
    let mut editor = Reedline::create();
    if let Some(file) = history {
        editor = editor.with_history(Box::new(FileBackedHistory::with_file(HISTORY_LINES_MAX, file)?));
    }
    let prompt = DefaultPrompt::new(DefaultPromptSegment::Basic("you".to_owned()), DefaultPromptSegment::Empty);
    loop {
        let signal = editor.read_line(&prompt)?;
        if matches!(signal, Signal::CtrlD) {
            return Ok(());
        }
        // Ctrl-C at the prompt gives up the line.
        let Signal::Success(line) = signal else { continue };
        let (go_on, wait) = oneshot::channel();
        if ask.blocking_send((line, go_on)).is_err() || wait.blocking_recv().is_err() {
            return Ok(());
        }
    }
}

impl Host {
    async fn status(&self, key: &SessionKey) -> anyhow::Result<String> {
        let value = match self {
            Self::Here(app) => serde_json::to_value(app.status(key).await?)?,
            Self::Gateway(admin) => admin.get(&format!("sessions/{}", encode(key.as_str()))).await?,
        };
        Ok(serde_json::to_string_pretty(&value)?)
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
