//! A conversation at the terminal: line editing and history while nothing runs, plain lines while something does, Ctrl-C
//! for the running turn.

use std::path::PathBuf;

use domain::command::Control;
use domain::ids::SessionKey;
use futures::StreamExt;
use futures::stream::{BoxStream, SelectAll};

use super::host::Host;
use super::line::{Line, understand};
use super::shown::{Piece, Shown};
use super::typed::{Editor, Typed};
use super::{help, write_out};
use crate::app::ask::Joins;
use crate::commands::print;

/// Reads lines and answers them until the user leaves. `history` is the file of earlier lines.
pub(super) async fn converse(host: &Host, key: &SessionKey, history: PathBuf) -> anyhow::Result<()> {
    print(&format!("session {key}; /help lists the commands"))?;
    let editor = Editor::start(history)?;
    let mut typed = Typed::new()?;
    let mut talk = Talk { host, key, turns: SelectAll::new(), shown: Shown::default(), leaving: false };
    loop {
        if talk.turns.is_empty() {
            if talk.leaving {
                break;
            }
            // What was typed just before the last turn ended comes first.
            let line = match typed.ready()? {
                Some(line) => Some(line),
                None => editor.line().await?,
            };
            match line {
                Some(line) => talk.heard(&line).await?,
                None => break,
            }
            continue;
        }
        let leaving = talk.leaving;
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => talk.interrupted().await?,
            line = typed.line(), if !leaving => match line? {
                Some(line) => talk.heard(&line).await?,
                None => talk.leave()?,
            },
            // Behind the end of the last one there is nothing to wait for.
            piece = talk.turns.next() => piece.map_or(Ok(()), |piece| talk.show(piece))?,
        }
    }
    editor.end()
}

/// The turns of this terminal that have not ended, and what is shown of them.
struct Talk<'a> {
    host: &'a Host,
    key: &'a SessionKey,
    turns: SelectAll<BoxStream<'static, anyhow::Result<Piece>>>,
    shown: Shown,
    leaving: bool,
}

impl Talk<'_> {
    /// Does what a line asks for; what goes wrong is told, and the conversation goes on.
    async fn heard(&mut self, line: &str) -> anyhow::Result<()> {
        match understand(line) {
            Line::Empty => Ok(()),
            Line::Quit => self.leave(),
            Line::Control(Control::Help) => self.tell(&help()),
            Line::Control(control) => match self.host.control(self.key, control, line.trim()).await {
                Ok(text) => self.tell(&text),
                Err(error) => self.complain(&error),
            },
            Line::Refused(refused) => self.complain(&anyhow::anyhow!("{refused}")),
            Line::Message(text) => match self.host.say(self.key, text, Joins::Yes).await {
                Ok(followed) => {
                    self.turns.push(followed.pieces);
                    match followed.note {
                        Some(note) => self.show(Ok(Piece::Note(note))),
                        None => Ok(()),
                    }
                }
                Err(error) => self.complain(&error),
            },
        }
    }

    async fn interrupted(&mut self) -> anyhow::Result<()> {
        match self.host.stop(self.key).await {
            Ok(text) => self.tell(&text),
            Err(error) => self.complain(&error),
        }
    }

    fn leave(&mut self) -> anyhow::Result<()> {
        self.leaving = true;
        if self.turns.is_empty() {
            return Ok(());
        }
        self.show(Ok(Piece::Note("leaves when all is answered; Ctrl-C stops the running turn".to_owned())))
    }

    /// An answer that is no turn's.
    fn tell(&mut self, text: &str) -> anyhow::Result<()> {
        self.end_line()?;
        print(text)
    }

    fn complain(&mut self, error: &anyhow::Error) -> anyhow::Result<()> {
        self.end_line()?;
        eprintln!("{}", domain::text::harmless(&format!("{error:#}")));
        Ok(())
    }

    fn end_line(&mut self) -> anyhow::Result<()> {
        write_out(self.shown.interrupt().into_iter().collect())
    }

    fn show(&mut self, piece: anyhow::Result<Piece>) -> anyhow::Result<()> {
        match piece {
            Ok(piece) => write_out(self.shown.step(piece)),
            Err(error) => self.complain(&error),
        }
    }
}
