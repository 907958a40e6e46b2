//! Whoever runs the turns: the running gateway, or this process.

use anyhow::Context;
use channel::Doors;
use domain::command::Control;
use domain::ids::SessionKey;
use domain::text::one_line;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use protocol::turn::{TurnProgress, TurnResult};
use serde_json::{Value, json};

use super::shown::Piece;
use crate::app::App;
use crate::app::ask::{Joins, Taken, TurnStream};
use crate::commands::admin::{Admin, Lines, encode};
use crate::exit::{Exit, ExitCode};

/// Characters of what a tool says of its failure.
const FAILURE_CHARS_MAX: usize = 200;

/// Whoever runs the turns.
pub(super) enum Host {
    Gateway(Admin),
    Here { app: Box<App>, doors: Doors },
}

/// A message that was taken, and what becomes of it, to its end.
pub(super) struct Followed {
    /// What its sender is told, unless its turn begins at once.
    pub note: Option<String>,
    /// What its turn says; ends behind [`Piece::Finished`], or with an error.
    pub pieces: BoxStream<'static, anyhow::Result<Piece>>,
}

impl Host {
    /// In this process.
    pub(super) fn here(app: App) -> Self {
        let doors = app.make_doors();
        Self::Here { app: Box::new(app), doors }
    }

    /// Says something; returns once it is on disk.
    pub(super) async fn say(&self, key: &SessionKey, text: &str, joins: Joins) -> anyhow::Result<Followed> {
        match self {
            Self::Here { app, doors } => {
                if let Some(text) = channel::nothing_said(doors, key, text).await {
                    let told = Piece::Finished { result: TurnResult::Done, text: text.to_owned() };
                    return Ok(Followed { note: None, pieces: stream::iter([Ok(told)]).boxed() });
                }
                let events = app.say(key, text, joins).await?;
                Ok(Followed { note: note(events.taken), pieces: from_here(events) })
            }
            Self::Gateway(admin) => {
                let path = format!("sessions/{}/messages", encode(key.as_str()));
                let body = json!({"content": text, "joins": joins == Joins::Yes});
                let mut lines = lines(admin.post(&path, &body).await?);
                let first = lines.next().await.context("the gateway did not say what became of the message")??;
                let first: Value = serde_json::from_str(&first)?;
                let pieces = lines.filter_map(async |line| line.map(|line| read_piece(&line)).transpose());
                Ok(Followed { note: note(taken(&first)), pieces: to_the_end(pieces.boxed()) })
            }
        }
    }

    /// Does what is asked at once, and says what came of it.
    pub(super) async fn control(&self, key: &SessionKey, control: Control, text: &str) -> anyhow::Result<String> {
        match self {
            Self::Here { .. } if control == Control::Restart => {
                Err(Exit::new(ExitCode::NoGateway, "no gateway runs here to be restarted").into())
            }
            Self::Here { doors, .. } => Ok(channel::perform(doors, key, control).await),
            Self::Gateway(_) => {
                let mut pieces = self.say(key, text, Joins::No).await?.pieces;
                while let Some(piece) = pieces.next().await {
                    if let Piece::Finished { text, .. } = piece? {
                        return Ok(text);
                    }
                }
                anyhow::bail!("the gateway did not answer")
            }
        }
    }

    /// Cancels the running turn.
    pub(super) async fn stop(&self, key: &SessionKey) -> anyhow::Result<String> {
        self.control(key, Control::Stop { all: false }, "/stop").await
    }
}

/// What a sender is told of a message that is not answered at once.
fn note(taken: Taken) -> Option<String> {
    match taken {
        Taken::Running | Taken::Before => None,
        Taken::Steered => Some("the running turn is shown this at its next step".to_owned()),
        Taken::Queued { position } => Some(format!("queued, {position} before it")),
        Taken::Quarantined => Some("kept: the session is held back after crashes".to_owned()),
    }
}

/// The admin API's words for it.
fn taken(accepted: &Value) -> Taken {
    let position = accepted["position"].as_u64().and_then(|position| position.try_into().ok()).unwrap_or(0);
    match accepted["state"].as_str().unwrap_or_default() {
        "steered" => Taken::Steered,
        "queued" => Taken::Queued { position },
        "quarantined" => Taken::Quarantined,
        "running" => Taken::Running,
        _ => Taken::Before,
    }
}

fn from_here(events: TurnStream) -> BoxStream<'static, anyhow::Result<Piece>> {
    to_the_end(events.filter_map(async |event| piece_of(event.what).map(Ok)).boxed())
}

/// Ends the stream behind the end of the turn; without one, with an error.
fn to_the_end(pieces: BoxStream<'static, anyhow::Result<Piece>>) -> BoxStream<'static, anyhow::Result<Piece>> {
    let next = |pieces: Option<BoxStream<'static, _>>| async move {
        let mut pieces = pieces?;
        let missing = || Err(anyhow::anyhow!("the turn goes on, but is no longer followed here; its message is kept"));
        let piece = pieces.next().await.unwrap_or_else(missing);
        let goes_on = matches!(&piece, Ok(piece) if !matches!(piece, Piece::Finished { .. }));
        Some((piece, goes_on.then_some(pieces)))
    };
    stream::unfold(Some(pieces), next).boxed()
}

fn piece_of(what: TurnProgress) -> Option<Piece> {
    match what {
        TurnProgress::Started => Some(Piece::Began),
        TurnProgress::Delta(text) => Some(Piece::Delta(text)),
        TurnProgress::StreamEnd { text, merge, .. } => Some(Piece::Whole { text: text.to_string(), merge }),
        TurnProgress::ToolStarted { name, arguments, .. } => Some(tool_started(&name, &arguments)),
        TurnProgress::ToolEnded { name, is_error: true, result, .. } => Some(tool_failed(&name, &result)),
        TurnProgress::Notice(text) => Some(Piece::Note(text.to_string())),
        TurnProgress::Finished(finished) => {
            Some(Piece::Finished { result: finished.result, text: finished.text.clone() })
        }
        TurnProgress::Reasoning(_) | TurnProgress::ToolEnded { .. } | TurnProgress::Goal(_) => None,
    }
}

fn tool_started(name: &str, arguments: &str) -> Piece {
    Piece::Note(channel::hints::of(name, arguments, FAILURE_CHARS_MAX))
}

fn tool_failed(name: &str, result: &str) -> Piece {
    let why = domain::text::ellipsis(&one_line(result), FAILURE_CHARS_MAX).into_owned();
    Piece::Note(format!("{name} failed: {why}"))
}

/// The lines of a stream of them.
fn lines(response: reqwest::Response) -> BoxStream<'static, anyhow::Result<String>> {
    let mut cut = Lines::default();
    let lines = response.bytes_stream().flat_map(move |chunk| {
        let lines: Vec<anyhow::Result<String>> = match chunk.context("the gateway went away; the message is kept") {
            Ok(bytes) => cut.push(&bytes).into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error)],
        };
        stream::iter(lines)
    });
    lines.boxed()
}

/// One line of the admin API's event stream.
fn read_piece(line: &str) -> Option<Piece> {
    let event: Value = serde_json::from_str(line).ok()?;
    let of = |field: &str| event[field].as_str().unwrap_or_default().to_owned();
    match event["event"].as_str()? {
        "started" => Some(Piece::Began),
        "delta" => Some(Piece::Delta(of("text"))),
        "stream_end" => Some(Piece::Whole { text: of("text"), merge: event["merge"] == true }),
        "tool_started" => Some(tool_started(&of("name"), &of("arguments"))),
        "tool_ended" if event["is_error"] == true => Some(tool_failed(&of("name"), &of("result"))),
        "notice" => Some(Piece::Note(of("text"))),
        "finished" => {
            let result = match event["result"].as_str()? {
                "done" => TurnResult::Done,
                "cancelled" => TurnResult::Cancelled,
                "dead_lettered" => TurnResult::DeadLettered,
                "joined" => TurnResult::Joined,
                _ => TurnResult::Failed,
            };
            Some(Piece::Finished { result, text: of("text") })
        }
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stream_lines_become_pieces() {
        let note = |text: &str| Some(Piece::Note(text.to_owned()));
        let end = |result, text: &str| Some(Piece::Finished { result, text: text.to_owned() });
        for (line, piece) in [
            (r#"{"event":"delta","text":"a"}"#, Some(Piece::Delta("a".to_owned()))),
            (
                r#"{"event":"stream_end","text":"a","more":true,"merge":false}"#,
                Some(Piece::Whole { text: "a".to_owned(), merge: false }),
            ),
            (r#"{"event":"tool_started","name":"exec","arguments":"{\"command\":\"ls\"}"}"#, note("$ ls")),
            (r#"{"event":"tool_ended","name":"exec","is_error":true,"result":"no\nway"}"#, note("exec failed: no way")),
            (r#"{"event":"tool_ended","name":"exec","is_error":false,"result":"x"}"#, None),
            (r#"{"event":"finished","result":"dead_lettered","text":"sorry"}"#, end(TurnResult::DeadLettered, "sorry")),
            (r#"{"event":"something_new"}"#, None),
            ("not json", None),
        ] {
            assert_eq!(read_piece(line), piece, "{line}");
        }
    }
}
