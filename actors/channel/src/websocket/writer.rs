//! The writing half of one connection: takes what the outlet has, writes it, and is the one that says goodbye.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::extract::ws::{CloseFrame, Message as WsMessage};
use domain::ids::TurnId;
use futures::{Sink, SinkExt};
use protocol::turn::TurnProgress;
use supervision::ports::Clock;
use tokio_util::sync::CancellationToken;

use super::Showing;
use super::shows::Shows;
use crate::hub::outlet::{Out, Outlet};
use crate::hub::{CHAT_PREFIX, Shown};

/// How long a peer may take to read a goodbye.
const GOODBYE_MAX: Duration = Duration::from_secs(1);

/// What the connection itself adds to the hub's events.
pub(crate) enum Note {
    /// A frame, ready.
    Frame(String),
    /// A ping.
    Ping,
    /// A message was handed to the journal: its turn's events wait for the verdict.
    Submitted { turn: TurnId, client_turn_id: Option<Arc<str>> },
    /// The verdict: these frames come before any event of the turn.
    Answered { submitted: TurnId, accepted: bool, frames: Vec<String> },
    /// A client came back to a chat: its goal is being read.
    GoalAsked { chat_id: String },
    /// The goal that was read, told unless something newer was told meanwhile.
    Goal { chat_id: String, frame: Option<String> },
    /// The last thing.
    Close { code: u16, reason: &'static str },
}

/// Where frames are written.
pub(crate) trait Socket: Sink<WsMessage, Error = axum::Error> + Unpin {}

impl<S: Sink<WsMessage, Error = axum::Error> + Unpin> Socket for S {}

/// The writing half.
pub(crate) struct Writer {
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) outlet: Arc<Outlet<Note>>,
    pub(crate) showing: Showing,
    /// The process begins to stop: leave as soon as no turn of one's own is open.
    pub(crate) stopping: CancellationToken,
    /// The process stops: leave now.
    pub(crate) cut: CancellationToken,
    /// Cancelled when this half ends, and by the reader when the peer is gone.
    pub(crate) gone: CancellationToken,
}

#[derive(Default)]
struct Frames {
    shows: Shows,
    /// Events of turns whose verdict has not come.
    held: HashMap<TurnId, Held>,
    /// Own turns that have not ended.
    open: HashSet<TurnId>,
    /// Chats whose goal is being read, as long as nothing newer is known of it.
    goals: HashSet<String>,
    texts: Vec<String>,
    pings: usize,
    close: Option<(u16, &'static str)>,
}

#[derive(Default)]
struct Held {
    shown: Vec<Shown>,
    client_turn_id: Option<Arc<str>>,
}

impl Writer {
    /// Writes until the connection ends.
    pub(crate) async fn run(self, mut socket: impl Socket) {
        let _gone = self.gone.clone().drop_guard();
        let mut frames = Frames::default();
        let goodbye = loop {
            let stopping = self.stopping.is_cancelled() && frames.open.is_empty() && frames.held.is_empty();
            let batch = tokio::select! {
                biased;
                () = self.gone.cancelled() => return,
                () = self.outlet.too_slow() => break (1013, "reads too slowly"),
                () = self.cut.cancelled() => break (1001, "the gateway is stopping"),
                batch = self.outlet.take() => batch,
                () = self.outlet.closed() => break (1001, "the gateway is stopping"),
                () = self.stopping.cancelled(), if !self.stopping.is_cancelled() => continue,
                () = std::future::ready(()), if stopping => break (1001, "the gateway is stopping"),
            };
            let now_ms = self.clock.wall_ms();
            for out in batch {
                frames.take(out, self.showing, now_ms);
            }
            let written = tokio::select! {
                biased;
                () = self.outlet.too_slow() => break (1013, "reads too slowly"),
                () = self.cut.cancelled() => break (1001, "the gateway is stopping"),
                written = write(&mut socket, &mut frames) => written,
            };
            if written.is_err() {
                return;
            }
            if let Some(close) = frames.close {
                break close;
            }
        };
        let (code, reason) = goodbye;
        let close = WsMessage::Close(Some(CloseFrame { code, reason: reason.into() }));
        let sent = tokio::time::timeout(GOODBYE_MAX, socket.send(close)).await;
        tracing::debug!(code, reason, sent = sent.is_ok_and(|sent| sent.is_ok()), "connection closed");
    }
}

async fn write(socket: &mut impl Socket, frames: &mut Frames) -> Result<(), axum::Error> {
    for text in frames.texts.drain(..) {
        socket.feed(WsMessage::Text(text.into())).await?;
    }
    for _ in 0..std::mem::take(&mut frames.pings) {
        socket.feed(WsMessage::Ping(bytes::Bytes::new())).await?;
    }
    socket.flush().await
}

impl Frames {
    fn take(&mut self, out: Out<Note>, showing: Showing, now_ms: u64) {
        match out {
            Out::Shown(shown) => match self.held.get_mut(&shown.event.turn) {
                Some(held) => held.shown.push(shown),
                None => self.show(&shown, showing, now_ms),
            },
            Out::Note(Note::Frame(text)) => self.texts.push(text),
            Out::Note(Note::Ping) => self.pings += 1,
            Out::Note(Note::GoalAsked { chat_id }) => {
                self.goals.insert(chat_id);
            }
            Out::Note(Note::Goal { chat_id, frame }) => {
                if self.goals.remove(&chat_id) {
                    self.texts.extend(frame);
                }
            }
            Out::Note(Note::Close { code, reason }) => self.close = Some((code, reason)),
            Out::Note(Note::Submitted { turn, client_turn_id }) => {
                self.held.insert(turn, Held { shown: Vec::new(), client_turn_id });
            }
            Out::Note(Note::Answered { submitted, accepted, frames }) => {
                self.texts.extend(frames);
                let held = self.held.remove(&submitted).unwrap_or_default();
                if accepted {
                    self.open.insert(submitted);
                    if let Some(name) = held.client_turn_id {
                        self.shows.name_turn(submitted, name);
                    }
                }
                for shown in held.shown {
                    self.show(&shown, showing, now_ms);
                }
            }
        }
    }

    fn show(&mut self, shown: &Shown, showing: Showing, now_ms: u64) {
        let chat_id = shown.event.key.as_str().strip_prefix(CHAT_PREFIX).unwrap_or_default();
        self.shows.show(chat_id, shown, showing, now_ms, &mut self.texts);
        match &shown.event.what {
            TurnProgress::Goal(_) => {
                self.goals.remove(chat_id);
            }
            TurnProgress::Finished(finished) => {
                self.open.remove(&shown.event.turn);
                if finished.standing.is_some() {
                    self.goals.remove(chat_id);
                }
            }
            TurnProgress::Started
            | TurnProgress::Delta(_)
            | TurnProgress::Reasoning(_)
            | TurnProgress::StreamEnd { .. }
            | TurnProgress::ToolStarted { .. }
            | TurnProgress::ToolEnded { .. }
            | TurnProgress::Notice(_) => {}
        }
    }
}

#[cfg(test)]
mod tests;
