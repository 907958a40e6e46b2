//! The HTTP service below `async-openai`: sends one request and sees to its answer.
//!
//! Here status, `Retry-After` and content type are looked at before any library can lose them, time and size limits
//! hold, and the event stream is read by our own parser, which knows odd lines. Answer and failure go past the library,
//! in the [`Outcome`] of the call: it would lose the one, and read the other a second time, in a task of its own.

use std::collections::VecDeque;
use std::io;
use std::sync::{Arc, Mutex, PoisonError};
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
use crate::sse::{DONE, Parser, TooLong};

/// Most bytes of a whole stream, most of which is wrapping: what is kept of it is far less.
pub const STREAM_BYTES_MAX: usize = 64 << 20;
/// Most bytes of an error's body that are read.
const ERROR_BYTES_MAX: usize = 64 << 10;
/// How long the body may take to end after its end mark, so that the connection can be used again.
const DRAIN_MAX: Duration = Duration::from_millis(50);

/// What the library is told of every answer.
const ANSWERED: &str = "null";

/// What became of one exchange: an answer that is an event stream, or why there is none.
#[derive(Debug, Default)]
pub struct Outcome(Mutex<Option<Result<Response, CallError>>>);

impl Outcome {
    /// Takes it out; `None` when nothing was sent.
    pub fn take(&self) -> Option<Result<Response, CallError>> {
        self.held().take()
    }

    fn held(&self) -> std::sync::MutexGuard<'_, Option<Result<Response, CallError>>> {
        // Nothing panics while it is held.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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
    /// Sends the request and keeps its answer in the outcome; what it returns says only that there is one.
    pub async fn send(self, request: HttpRequestFactory) -> Result<Response, OpenAIError> {
        let result = self.exchange(request).await;
        let error = result.as_ref().err().cloned();
        *self.outcome.held() = Some(result);
        match error {
            None => Ok(http::Response::new(Body::from(ANSWERED)).into()),
            Some(error) => Err(OpenAIError::Boxed(Box::new(error))),
        }
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
        Ok(response)
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

/// What an event stream says.
#[derive(Debug, PartialEq)]
pub enum Said {
    /// A piece of the answer.
    Chunk(Value),
    /// The end mark: nothing follows.
    Done,
    /// The stream is over.
    Over,
}

/// Reads an event stream: nothing but JSON and the end mark, within the limits.
pub struct Events<S> {
    inner: S,
    parser: Parser,
    /// What was read and not given yet.
    ready: VecDeque<String>,
    /// What comes behind that.
    rest: Rest,
    bytes: usize,
    idle: Duration,
}

/// What comes of a stream.
#[derive(Debug, Clone, Copy)]
enum Rest {
    /// More.
    More,
    /// Nothing.
    Nothing,
    /// What is too long to be read.
    TooLong(TooLong),
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

impl<S, E> Events<S>
where
    S: Stream<Item = Result<Bytes, E>> + Unpin,
    E: Into<CutCause>,
{
    /// Of `inner`, which may say nothing for `idle`.
    pub fn new(inner: S, idle: Duration) -> Self {
        Self { inner, parser: Parser::default(), ready: VecDeque::new(), rest: Rest::More, bytes: 0, idle }
    }

    /// The next thing that it says.
    pub async fn next(&mut self) -> Result<Said, CallError> {
        loop {
            while let Some(event) = self.ready.pop_front() {
                if event.trim() == DONE {
                    // Whatever comes or fails after the end mark is of no interest.
                    let rest = async { while self.inner.next().await.is_some_and(|next| next.is_ok()) {} };
                    let _ = timeout(DRAIN_MAX, rest).await;
                    return Ok(Said::Done);
                }
                match serde_json::from_str(&event) {
                    Ok(chunk) => return Ok(Said::Chunk(chunk)),
                    Err(_) if event.is_empty() => {}
                    Err(_) => {
                        let bytes = event.len();
                        tracing::warn!(bytes, "a model's stream held a line that is no JSON; it was skipped");
                    }
                }
            }
            match self.rest {
                Rest::More => self.advance().await?,
                Rest::Nothing => return Ok(Said::Over),
                Rest::TooLong(TooLong::Line) => return Err(CallError::TooLarge("a very long line")),
                Rest::TooLong(TooLong::Event) => return Err(CallError::TooLarge("a very long event")),
            }
        }
    }

    async fn advance(&mut self) -> Result<(), CallError> {
        let mut events = Vec::new();
        let read = match timeout(self.idle, self.inner.next()).await {
            Err(_) => return Err(CallError::Idle(self.idle)),
            Ok(None) => {
                self.rest = Rest::Nothing;
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
        self.ready.extend(events);
        if let Err(long) = read {
            self.rest = Rest::TooLong(long);
        }
        Ok(())
    }
}
