//! A conversation at the terminal: line editing, history, Ctrl-C for the running turn.

use std::fs::OpenOptions;
use std::io::IsTerminal;
use std::os::unix::fs::OpenOptionsExt;
use std::path::PathBuf;

use anyhow::Context;
use domain::ids::SessionKey;
use tokio::sync::{mpsc, oneshot};

use super::{GoOn, Host, answer};
use crate::commands::print;

/// Reads lines and answers them until the user leaves. `history` is the file of earlier lines.
pub(super) async fn converse(host: &Host, key: &SessionKey, history: PathBuf) -> anyhow::Result<()> {
    if !std::io::stdin().is_terminal() {
        return converse_piped(host, key).await;
    }
    print(&format!("session {key}; /help lists the commands"))?;
    let (ask, mut asked) = mpsc::channel::<(String, oneshot::Sender<()>)>(1);
    let editor = std::thread::Builder::new().name("line-editor".to_owned()).spawn(move || edit(&ask, history))?;
    while let Some((line, go_on)) = asked.recv().await {
        match answer(host, key, &line).await {
            Ok(GoOn::Yes) => {}
            Ok(GoOn::No) => break,
            Err(error) => eprintln!("{error:#}"),
        }
        // The editor may be gone already; then the loop ends by itself.
        let _ = go_on.send(());
    }
    drop(asked);
    editor.join().map_err(|_| anyhow::anyhow!("the line editor failed"))?
}

/// Lines from a pipe: each is a message or a command.
async fn converse_piped(host: &Host, key: &SessionKey) -> anyhow::Result<()> {
    use tokio::io::AsyncBufReadExt;
    let mut lines = tokio::io::BufReader::new(tokio::io::stdin()).lines();
    while let Some(line) = lines.next_line().await.context("standard input cannot be read as UTF-8 lines")? {
        if answer(host, key, &line).await? == GoOn::No {
            break;
        }
    }
    Ok(())
}

/// The line editor's thread: reads a line, hands it over, waits until it was answered.
fn edit(ask: &mpsc::Sender<(String, oneshot::Sender<()>)>, history: PathBuf) -> anyhow::Result<()> {
    use reedline::{DefaultPrompt, DefaultPromptSegment, FileBackedHistory, Reedline, Signal};
    const HISTORY_LINES_MAX: usize = 1000;
    // What somebody wrote is nobody else's business.
    OpenOptions::new().create(true).append(true).mode(0o600).open(&history)?;
    let lines = FileBackedHistory::with_file(HISTORY_LINES_MAX, history)?;
    let mut editor = Reedline::create().with_history(Box::new(lines));
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
