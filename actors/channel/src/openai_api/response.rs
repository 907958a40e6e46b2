//! OpenAI's shapes, written. Pure.

use axum::body::Body;
use axum::http::Response;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE, HeaderName, HeaderValue, RETRY_AFTER};
use domain::chat::{StopReason, Usage};
use domain::ids::TurnId;
use protocol::provider::TOO_LONG;
use protocol::turn::{Finished, TurnResult};

use super::follow::Mark;
use super::request::Wrong;
use crate::http::{json, retry_after_seconds};
use crate::json::quoted;
use crate::outcome::Refusal;

/// Says which turn answered.
pub(crate) const TURN_HEADER: HeaderName = HeaderName::from_static("x-greenroom-turn");

/// OpenAI's clients repeat a request after most errors unless this says `false`.
const SHOULD_RETRY: HeaderName = HeaderName::from_static("x-should-retry");

/// An error object with its status.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ApiError {
    pub(crate) status: u16,
    pub(crate) kind: &'static str,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) param: Option<String>,
    pub(crate) retry_after_ms: Option<u64>,
    /// The turn that ended so; repeating the request would run another one.
    pub(crate) turn: Option<TurnId>,
}

impl ApiError {
    /// A mistake in the request.
    pub(crate) fn request(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        let (kind, message) = ("invalid_request_error", message.into());
        Self { status, kind, code, message, param: None, retry_after_ms: None, turn: None }
    }

    /// A failure on this side.
    pub(crate) fn server(status: u16, code: &'static str, message: impl Into<String>) -> Self {
        Self { kind: "server_error", ..Self::request(status, code, message) }
    }

    /// How a turn that gave no answer is told.
    pub(crate) fn of_turn(turn: TurnId, finished: &Finished) -> Option<Self> {
        let (status, code) = match finished.result {
            // Other turns join none of a request's, nor it one of theirs: it waits for an answer of its own.
            TurnResult::Done | TurnResult::Joined => return None,
            TurnResult::Failed if finished.text.starts_with(TOO_LONG) => {
                let error = Self::request(400, "context_length_exceeded", &finished.text);
                return Some(Self { turn: Some(turn), ..error });
            }
            TurnResult::Failed => (502, "provider_error"),
            TurnResult::DeadLettered => (500, "dead_lettered"),
            TurnResult::Cancelled => (409, "cancelled"),
        };
        let message = if finished.text.is_empty() { "the turn was cancelled" } else { &finished.text };
        Some(Self { turn: Some(turn), ..Self::server(status, code, message) })
    }

    /// The object alone.
    pub(crate) fn object(&self) -> String {
        let param = self.param.as_deref().map_or_else(|| "null".to_owned(), quoted);
        let (message, kind, code) = (quoted(&self.message), self.kind, self.code);
        format!(r#"{{"error":{{"message":{message},"type":"{kind}","param":{param},"code":"{code}"}}}}"#)
    }

    /// The whole answer.
    pub(crate) fn response(&self) -> Response<Body> {
        let mut response = json(self.status, self.object());
        let headers = response.headers_mut();
        if let Some(ms) = self.retry_after_ms {
            headers.insert(RETRY_AFTER, retry_after_seconds(ms));
        }
        if let Some(turn) = self.turn {
            headers.insert(TURN_HEADER, turn_value(turn));
            headers.insert(SHOULD_RETRY, HeaderValue::from_static("false"));
        }
        if self.status == 401 {
            headers.insert(axum::http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
        }
        response
    }
}

impl From<Wrong> for ApiError {
    fn from(wrong: Wrong) -> Self {
        let status = if wrong.code == "model_not_found" { 404 } else { 400 };
        Self { param: wrong.param, ..Self::request(status, wrong.code, wrong.message) }
    }
}

impl From<Refusal> for ApiError {
    fn from(refusal: Refusal) -> Self {
        let status = refusal.status();
        let error = match refusal {
            Refusal::Conflict => Self::request(status, "idempotency_key_conflict", refusal.detail()),
            Refusal::SessionFull { .. } => {
                Self { kind: "rate_limit_error", ..Self::request(status, refusal.metric(), refusal.detail()) }
            }
            Refusal::ProcessFull { .. }
            | Refusal::MemoryFull { .. }
            | Refusal::Disk { .. }
            | Refusal::Transcript { .. }
            | Refusal::Quarantined { .. }
            | Refusal::Draining => Self::server(status, refusal.metric(), refusal.detail()),
        };
        Self { retry_after_ms: refusal.retry_after_ms(), ..error }
    }
}

/// A turn id as a header.
pub(crate) fn turn_value(turn: TurnId) -> HeaderValue {
    HeaderValue::from_str(&turn.to_string()).expect("a UUID is printable ASCII")
}

fn usage(usage: Usage) -> String {
    format!(
        r#"{{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{},"prompt_tokens_details":{{"cached_tokens":{}}}}}"#,
        usage.input_tokens,
        usage.output_tokens,
        usage.input_tokens.saturating_add(usage.output_tokens),
        usage.cached_tokens
    )
}

/// `length`: the model ran into its token limit, the text is cut there; else `stop`. Tools are run here, never by the client.
fn finish_reason(finished: &Finished) -> &'static str {
    match finished.stop {
        StopReason::Length => "length",
        StopReason::Stop | StopReason::ToolUse | StopReason::Error | StopReason::Aborted => "stop",
    }
}

/// A whole `chat.completion`.
pub(crate) fn completion(turn: TurnId, created_s: u64, model: &str, finished: &Finished) -> Response<Body> {
    let (model, content, usage) = (quoted(model), quoted(&finished.text), usage(finished.usage));
    let reason = finish_reason(finished);
    let body = format!(
        r#"{{"id":"chatcmpl-{turn}","object":"chat.completion","created":{created_s},"model":{model},"choices":[{{"index":0,"message":{{"role":"assistant","content":{content},"refusal":null}},"logprobs":null,"finish_reason":"{reason}"}}],"usage":{usage}}}"#
    );
    let mut response = json(200, body);
    response.headers_mut().insert(TURN_HEADER, turn_value(turn));
    response
}

/// What the program says itself to a command, in the shape of an answer. No turn of that id is kept. `stream`: as an
/// event stream, with or without its usage.
pub(crate) fn told(id: TurnId, created_s: u64, model: &str, text: String, stream: Option<bool>) -> Response<Body> {
    let (result, stop, usage) = (TurnResult::Done, StopReason::Stop, Usage::default());
    let finished =
        Finished { result, into: None, text, stop, model: model.into(), usage, latency_ms: 0, standing: None };
    let Some(include_usage) = stream else {
        let mut response = completion(id, created_s, model, &finished);
        response.headers_mut().remove(TURN_HEADER);
        return response;
    };
    let (chunks, mut out) = (Chunks::new(id, created_s, model, include_usage), String::new());
    chunks.role(&mut out, None);
    chunks.text(&mut out, None, &finished.text);
    chunks.end(&mut out, &finished);
    events(Body::from(out))
}

/// An event stream.
pub(crate) fn events(body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    response
}

/// `GET /v1/models`.
pub(crate) fn models(model: &str, created_s: u64) -> String {
    let model = quoted(model);
    format!(
        r#"{{"object":"list","data":[{{"id":{model},"object":"model","created":{created_s},"owned_by":"greenroom"}}]}}"#
    )
}

/// Writes the events of one `chat.completion.chunk` stream.
pub(crate) struct Chunks {
    head: String,
    include_usage: bool,
}

impl Chunks {
    pub(crate) fn new(turn: TurnId, created_s: u64, model: &str, include_usage: bool) -> Self {
        let model = quoted(model);
        let head = format!(
            r#"data: {{"id":"chatcmpl-{turn}","object":"chat.completion.chunk","created":{created_s},"model":{model}"#
        );
        Self { head, include_usage }
    }

    fn chunk(&self, out: &mut String, mark: Option<Mark>, delta: &str, finish: &str) {
        if let Some(mark) = mark {
            out.push_str(&format!("id: {mark}\n"));
        }
        let (head, usage) = (&self.head, if self.include_usage { r#","usage":null"# } else { "" });
        let choice = format!(r#"{{"index":0,"delta":{delta},"logprobs":null,"finish_reason":{finish}}}"#);
        out.push_str(&format!("{head},\"choices\":[{choice}]{usage}}}\n\n"));
    }

    /// The first one.
    pub(crate) fn role(&self, out: &mut String, mark: Option<Mark>) {
        self.chunk(out, mark, r#"{"role":"assistant","content":""}"#, "null");
    }

    /// A piece of text; `mark` says what the client has with it.
    pub(crate) fn text(&self, out: &mut String, mark: Option<Mark>, text: &str) {
        if !text.is_empty() {
            self.chunk(out, mark, &format!(r#"{{"content":{}}}"#, quoted(text)), "null");
        }
    }

    /// The end of an answer.
    pub(crate) fn end(&self, out: &mut String, finished: &Finished) {
        self.chunk(out, None, "{}", &quoted(finish_reason(finished)));
        if self.include_usage {
            let (head, usage) = (&self.head, usage(finished.usage));
            out.push_str(&format!("{head},\"choices\":[],\"usage\":{usage}}}\n\n"));
        }
        out.push_str("data: [DONE]\n\n");
    }

    /// The end of a turn without an answer: no `[DONE]`.
    pub(crate) fn error(out: &mut String, error: &ApiError) {
        out.push_str(&format!("data: {}\n\n", error.object()));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;

    fn finished(result: TurnResult) -> Finished {
        let (usage, stop) = (Usage { input_tokens: 3, output_tokens: 2, cached_tokens: 1 }, StopReason::Stop);
        let text = "he said \"hi\"".into();
        Finished { result, into: None, text, stop, model: "m".into(), usage, latency_ms: 1, standing: None }
    }

    fn turn() -> TurnId {
        "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap()
    }

    #[test]
    fn a_stream_begins_with_the_role_and_ends_with_done() {
        let chunks = Chunks::new(turn(), 5, "m\"", true);
        let mut out = String::new();
        chunks.role(&mut out, None);
        chunks.text(&mut out, None, "a\nb");
        chunks.text(&mut out, None, "");
        chunks.end(&mut out, &finished(TurnResult::Done));
        let events: Vec<&str> = out.split("\n\n").filter(|event| !event.is_empty()).collect();
        assert_eq!(events.last(), Some(&"data: [DONE]"));
        let parsed: Vec<Value> = events
            .iter()
            .filter_map(|event| serde_json::from_str(event.strip_prefix("data: ").unwrap()).ok())
            .collect();
        assert_eq!(parsed.len(), 4);
        assert_eq!(parsed[0]["choices"][0]["delta"]["role"], "assistant");
        assert_eq!(parsed[1]["choices"][0]["delta"]["content"], "a\nb");
        assert_eq!(parsed[1]["usage"], Value::Null);
        assert_eq!(parsed[2]["choices"][0]["finish_reason"], "stop");
        assert_eq!(parsed[3]["usage"]["total_tokens"], 5);
        assert_eq!(parsed[3]["model"], "m\"");
    }

    #[test]
    fn turns_without_an_answer_are_errors() {
        assert_eq!(ApiError::of_turn(turn(), &finished(TurnResult::Done)), None);
        for (result, status, code) in [
            (TurnResult::Failed, 502, "provider_error"),
            (TurnResult::DeadLettered, 500, "dead_lettered"),
            (TurnResult::Cancelled, 409, "cancelled"),
        ] {
            let error = ApiError::of_turn(turn(), &finished(result)).unwrap();
            assert_eq!((error.status, error.code), (status, code));
            let object: Value = serde_json::from_str(&error.object()).unwrap();
            assert_eq!(object["error"]["message"], "he said \"hi\"");
            assert_eq!(error.response().headers()["x-should-retry"], "false");
        }
    }

    #[test]
    fn a_conversation_that_is_too_long_is_a_mistake_of_the_request() {
        let finished = Finished { text: format!("{TOO_LONG} (p answered 400)"), ..finished(TurnResult::Failed) };
        let error = ApiError::of_turn(turn(), &finished).unwrap();
        assert_eq!((error.status, error.code, error.kind), (400, "context_length_exceeded", "invalid_request_error"));
        assert_eq!(error.response().headers()["x-should-retry"], "false");
    }

    #[test]
    fn refusals_say_when_to_come_back() {
        for (refusal, status, retry) in [
            (Refusal::Conflict, 422, None),
            (Refusal::SessionFull { retry_after_ms: 1500 }, 429, Some("2")),
            (Refusal::Disk { retry_after_ms: 1, space: None }, 503, Some("1")),
            (Refusal::Draining, 503, Some("5")),
        ] {
            let response = ApiError::from(refusal).response();
            assert_eq!(response.status(), status);
            assert_eq!(response.headers().get("retry-after").map(|value| value.to_str().unwrap()), retry);
        }
    }
}
