//! The HTTP service below `async-openai`: sends one request and hands up nothing but a clean event stream.
//!
//! Here status, `Retry-After` and content type are looked at before any library can lose them, time and size limits
//! hold, and the event stream is read by our own parser and written anew, so that what is above never meets an odd
//! line. A failure goes up twice: as an error of the library's kind, and exactly in the [`Outcome`] of the call.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use async_openai::error::OpenAIError;
use async_openai::middleware::HttpRequestFactory;
use bytes::Bytes;
use domain::time::retry_after;
use futures::{Stream, StreamExt};
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Body, Client, Response};
use serde_json::Value;
use supervision::ports::Clock;
use tokio::time::timeout;

use super::chunk::error_answer;
use crate::Limits;
use crate::retry::{CallError, ErrorAnswer};
use crate::sse::{DONE, Parser, TooLong, is_json};

/// Most bytes of a whole stream, most of which is wrapping: what is kept of it is far less.
pub const STREAM_BYTES_MAX: usize = 64 << 20;
/// Most bytes of an error's body that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// How long the body may take to end after its end mark, so that the connection can be used again.
const DRAIN_MAX: Duration = Duration::from_millis(50);

/// What became of one exchange.
#[derive(Debug, Default)]
pub struct Outcome {
    error: OnceLock<CallError>,
    done: AtomicBool,
}

impl Outcome {
    /// Why it failed.
    pub fn error(&self) -> Option<CallError> {
        self.error.get().cloned()
    }

    /// Whether the end mark was seen.
    pub fn is_done(&self) -> bool {
        self.done.load(Ordering::Acquire)
    }

    fn fail(&self, error: CallError) -> CallError {
        self.error.get_or_init(|| error).clone()
    }
}

/// One exchange: what it needs besides the request.
#[derive(Clone)]
pub struct Exchange {
    /// This runtime's client.
    pub http: Client,
    /// Time limits.
    pub limits: Limits,
    /// For `Retry-After` dates.
    pub clock: Arc<dyn Clock>,
    /// Where the outcome goes.
    pub outcome: Arc<Outcome>,
}

impl Exchange {
    /// Sends the request and returns its answer, whose body is a clean event stream.
    pub async fn send(self, request: HttpRequestFactory) -> Result<Response, OpenAIError> {
        let result = self.exchange(request).await;
        result.map_err(|error| OpenAIError::Boxed(Box::new(self.outcome.fail(error))))
    }

    async fn exchange(&self, request: HttpRequestFactory) -> Result<Response, CallError> {
        let built = request.build().await;
        let request = built.map_err(|error| {
            let OpenAIError::Reqwest(error) = error else { return CallError::Request(error.to_string()) };
            CallError::Request(cause(error))
        })?;
        let idle = self.limits.idle;
        let sent = timeout(idle, self.http.execute(request)).await.map_err(|_| CallError::Idle(idle))?;
        let response = sent.map_err(sending_failed)?;
        let status = response.status();
        if !status.is_success() {
            return Err(CallError::Answered(self.refusal(response).await));
        }
        let content_type = header(&response, CONTENT_TYPE.as_str()).to_ascii_lowercase();
        if !content_type.is_empty() && !content_type.starts_with("text/event-stream") {
            return Err(self.no_stream(response, &content_type).await);
        }
        let stream = cleaned(response.bytes_stream(), idle, self.outcome.clone());
        let clean = http::Response::builder().status(status).body(Body::wrap_stream(stream));
        Ok(clean.expect("a status that was received can be handed on").into())
    }

    /// Reads an answer with a status that is no success.
    async fn refusal(&self, response: Response) -> ErrorAnswer {
        let status = response.status().as_u16();
        let wait = retry_after(header(&response, RETRY_AFTER.as_str()), self.clock.wall_ms());
        let body = self.error_body(response).await;
        ErrorAnswer { retry_after: wait, ..read_error(status, &body) }
    }

    /// A 200 that is no event stream may still hold an error worth telling.
    async fn no_stream(&self, response: Response, content_type: &str) -> CallError {
        let body = self.error_body(response).await;
        let error = serde_json::from_slice::<Value>(&body).ok();
        match error.as_ref().and_then(|body| body.get("error")).filter(|error| !error.is_null()) {
            Some(error) => CallError::Answered(error_answer(200, error)),
            None => CallError::ContentType(content_type.chars().take_while(|c| *c != ';').take(60).collect()),
        }
    }

    /// As much of the body as comes in time and fits.
    async fn error_body(&self, response: Response) -> Vec<u8> {
        let mut body = Vec::new();
        let mut stream = response.bytes_stream();
        while let Ok(Some(Ok(bytes))) = timeout(self.limits.idle, stream.next()).await {
            let room = ERROR_BYTES_MAX.saturating_sub(body.len());
            body.extend(bytes.iter().take(room));
            if bytes.len() >= room {
                break;
            }
        }
        body
    }
}

fn header<'a>(response: &'a Response, name: &str) -> &'a str {
    response.headers().get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
}

/// The innermost cause; the outer ones repeat the address, which may hold a key.
fn cause(error: reqwest::Error) -> String {
    let error = error.without_url();
    let mut cause: &dyn std::error::Error = &error;
    while let Some(inner) = cause.source() {
        cause = inner;
    }
    cause.to_string()
}

fn sending_failed(error: reqwest::Error) -> CallError {
    if error.is_connect() {
        CallError::Connect(cause(error))
    } else if error.is_builder() || error.is_request() && error.url().is_none() {
        CallError::Request(cause(error))
    } else {
        CallError::Cut(cause(error))
    }
}

/// Reads an error's body: OpenAI's form, its many variants, HTML, or plain text.
pub fn read_error(status: u16, body: &[u8]) -> ErrorAnswer {
    let text = String::from_utf8_lossy(body);
    let plain = |message: String| ErrorAnswer { status, message, ..ErrorAnswer::default() };
    let Ok(value) = serde_json::from_str::<Value>(&text) else {
        let page = text.trim_start().starts_with('<');
        return plain(if page { "an HTML page".to_owned() } else { text.trim().to_owned() });
    };
    let value = value.get(0).unwrap_or(&value);
    match value.get("error").filter(|error| error.is_object()) {
        Some(error) => error_answer(status, error),
        None => error_answer(status, value),
    }
}

/// State of [`cleaned`].
struct Tape<S> {
    inner: S,
    parser: Parser,
    bytes: usize,
    ended: bool,
    idle: Duration,
    outcome: Arc<Outcome>,
}

/// Reads an event stream and writes it anew: one line per event, nothing but JSON and the end mark, cut at the limits.
pub fn cleaned<S, E>(inner: S, idle: Duration, outcome: Arc<Outcome>) -> impl Stream<Item = io::Result<Bytes>> + Send
where
    S: Stream<Item = Result<Bytes, E>> + Send,
    E: Into<CutCause> + Send,
{
    let tape = Tape { inner: Box::pin(inner), parser: Parser::default(), bytes: 0, ended: false, idle, outcome };
    futures::stream::unfold(tape, |mut tape| async move {
        let item = tape.next().await?;
        Some((item, tape))
    })
}

/// Why a body broke off, in words.
pub struct CutCause(String);

impl From<reqwest::Error> for CutCause {
    fn from(error: reqwest::Error) -> Self {
        Self(cause(error))
    }
}

impl From<io::Error> for CutCause {
    fn from(error: io::Error) -> Self {
        Self(error.to_string())
    }
}

impl<S, E> Tape<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<CutCause>,
{
    async fn next(&mut self) -> Option<io::Result<Bytes>> {
        let mut clean = String::new();
        while clean.is_empty() && !self.ended {
            if let Err(error) = self.advance(&mut clean).await {
                self.ended = true;
                return Some(Err(io::Error::other(self.outcome.fail(error))));
            }
        }
        Some(clean).filter(|clean| !clean.is_empty()).map(|clean| Ok(Bytes::from(clean)))
    }

    async fn advance(&mut self, clean: &mut String) -> Result<(), CallError> {
        let mut events = Vec::new();
        let read = match timeout(self.idle, self.inner.next()).await {
            Err(_) => return Err(CallError::Idle(self.idle)),
            Ok(None) => {
                self.ended = true;
                self.parser.finish(&mut events)
            }
            Ok(Some(Err(error))) => return Err(CallError::Cut(error.into().0)),
            Ok(Some(Ok(bytes))) => {
                self.bytes += bytes.len();
                if self.bytes > STREAM_BYTES_MAX {
                    return Err(CallError::TooLarge("a very long answer"));
                }
                self.parser.push(&bytes, &mut events)
            }
        };
        for event in events {
            if event.trim() == DONE {
                self.outcome.done.store(true, Ordering::Release);
                self.ended = true;
                // Whatever comes or fails after the end mark is of no interest.
                let _ = timeout(DRAIN_MAX, async { while self.inner.next().await.is_some_and(|next| next.is_ok()) {} })
                    .await;
                clean.push_str("data: [DONE]\n\n");
                return Ok(());
            }
            if is_json(&event) {
                clean.push_str("data: ");
                clean.extend(event.chars().map(|c| if matches!(c, '\n' | '\r') { ' ' } else { c }));
                clean.push_str("\n\n");
            } else if !event.is_empty() {
                tracing::warn!(bytes = event.len(), "a model's stream held a line that is no JSON; it was skipped");
            }
        }
        read.map_err(|long| match long {
            TooLong::Line => CallError::TooLarge("a very long line"),
            TooLong::Event => CallError::TooLarge("a very long event"),
        })
    }
}
