//! An answer as an event stream, written while the turn runs.

use std::collections::VecDeque;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::http::Response;
use bytes::Bytes;
use domain::ids::TurnId;
use domain::text::one_line;
use futures::stream;
use protocol::turn::{Finished, TurnProgress};

use super::ApiConfig;
use super::chat::{Admitted, Guard};
use super::follow::{Follow, Mark};
use super::response::{ApiError, Chunks, TURN_HEADER, events, turn_value};
use crate::doors::Doors;
use crate::hub::outlet::{Out, Outlet};
use crate::outcome::Refusal;

/// A comment is sent when nothing was for this long, so that nobody between here and the client gives up.
const QUIET_MAX: Duration = Duration::from_secs(15);

struct Stream {
    turn: TurnId,
    chunks: Chunks,
    follow: Follow,
    outlet: Arc<Outlet<Infallible>>,
    guard: Guard,
    begun: bool,
    over: bool,
    past: Option<Arc<Finished>>,
    /// The client comes back.
    again: bool,
}

/// Starts the answer.
pub(crate) fn respond(
    doors: &Doors,
    config: &ApiConfig,
    admitted: Admitted,
    outlet: Arc<Outlet<Infallible>>,
    include_usage: bool,
) -> Response<Body> {
    let Admitted { turn, past, guard, mark } = admitted;
    let chunks = Chunks::new(turn, doors.ports.clock.wall_ms() / 1000, &config.model, include_usage);
    // Whoever comes back has had the beginning.
    let (begun, follow) = (mark.is_some() && past.is_none(), Follow::new(mark));
    let begin = Stream { turn, chunks, follow, outlet, guard, begun, over: false, past, again: mark.is_some() };
    let body = stream::unfold(begin, |mut stream| async {
        let piece = stream.next().await?;
        Some((piece, stream))
    });
    let mut response = events(Body::from_stream(body));
    response.headers_mut().insert(TURN_HEADER, turn_value(turn));
    response
}

impl Stream {
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        if self.over {
            return None;
        }
        let mut out = String::new();
        if !self.begun {
            self.begun = true;
            if !self.again {
                self.chunks.role(&mut out, Some(self.mark()));
            }
            if let Some(finished) = self.past.take() {
                if is_answer(self.turn, &finished) {
                    let rest = self.follow.past(&finished);
                    self.chunks.text(&mut out, Some(self.mark()), &rest);
                }
                self.end(&finished, &mut out);
            }
            return Some(Ok(out.into()));
        }
        let batch = tokio::select! {
            biased;
            () = self.outlet.too_slow() => {
                self.over = true;
                return Some(Err(io::Error::other("the client reads too slowly")));
            }
            batch = self.outlet.take() => batch,
            () = self.outlet.closed() => {
                self.over = true;
                let mut out = String::new();
                Chunks::error(&mut out, &Refusal::Draining.into());
                return Some(Ok(out.into()));
            }
            () = tokio::time::sleep(QUIET_MAX) => VecDeque::new(),
        };
        for item in batch {
            match item {
                Out::Shown(shown) => match &shown.event.what {
                    TurnProgress::Finished(finished) => {
                        if is_answer(self.turn, finished) {
                            let rest = self.follow.see(&shown);
                            self.chunks.text(&mut out, Some(self.mark()), &rest);
                        }
                        self.end(finished, &mut out);
                    }
                    TurnProgress::Started
                    | TurnProgress::Delta(_)
                    | TurnProgress::Reasoning(_)
                    | TurnProgress::StreamEnd { .. }
                    | TurnProgress::ToolStarted { .. }
                    | TurnProgress::ToolEnded { .. }
                    | TurnProgress::Notice(_)
                    | TurnProgress::Goal(_) => {
                        let more = self.follow.see(&shown);
                        self.chunks.text(&mut out, Some(self.mark()), &more);
                        if let TurnProgress::Notice(text) = &shown.event.what {
                            comment(&mut out, &one_line(text));
                        }
                    }
                },
                Out::Note(never) => match never {},
            }
        }
        if out.is_empty() {
            comment(&mut out, "running");
        }
        Some(Ok(out.into()))
    }

    fn mark(&self) -> Mark {
        self.follow.mark(self.turn)
    }

    fn end(&mut self, finished: &Finished, out: &mut String) {
        self.over = true;
        self.guard.done();
        match ApiError::of_turn(self.turn, finished) {
            Some(error) => Chunks::error(out, &error),
            None => self.chunks.end(out, finished),
        }
    }
}

/// Shown by those who look, read by no client. No blank line stands behind it: there the official Python client would read
/// an event without data, once an event has had an id.
fn comment(out: &mut String, text: &str) {
    out.push_str(": ");
    out.push_str(text);
    out.push('\n');
}

fn is_answer(turn: TurnId, finished: &Finished) -> bool {
    ApiError::of_turn(turn, finished).is_none()
}
