//! Failures of model calls: what class they are, and whether trying again makes sense. Pure.
//!
//! | seen | class | tried again |
//! |---|---|---|
//! | code `insufficient_quota`, `billing_*` ...; 402 | billing | no |
//! | code `context_length_exceeded` ...; 413 | context too long | no |
//! | 401, 403 | unauthorized | no |
//! | 429 | rate limited | yes |
//! | 503, 529, code `overloaded*` | overloaded | yes |
//! | 408, 409, 425, other 5xx; no connection, no answer, cut or truncated stream | transient | yes |
//! | other 4xx, 3xx | refused | no |
//! | an answer that is none (content type, size) | refused | no |
//!
//! A code decides before the status does; English text is looked at only for a 400 without a code.

use std::fmt;
use std::time::Duration;

use domain::text::ellipsis;
use protocol::provider::{Failure, FailureKind};

/// How often a call is tried again.
pub const RETRIES_MAX: usize = 3;
/// The longest wait before a further try, also where the provider asks for more.
pub const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest part of a provider's own message that is passed on, in characters.
const MESSAGE_CHARS_MAX: usize = 200;
/// Longest code that is passed on, in characters.
const CODE_CHARS_MAX: usize = 40;
/// Longest detail, in characters.
const DETAIL_CHARS_MAX: usize = 300;

/// Codes and types that mean that money is missing.
const BILLING: &[&str] = &[
    "insufficient_quota",
    "insufficient_balance",
    "insufficient_credits",
    "billing_hard_limit_reached",
    "billing_not_active",
    "billing_error",
    "payment_required",
    "account_deactivated",
];
/// Codes and types that mean that the prompt is too long.
const CONTEXT: &[&str] = &[
    "context_length_exceeded",
    "context_window_exceeded",
    "model_context_window_exceeded",
    "exceed_context_size_error",
    "request_too_large",
    "prompt_too_long",
];
/// Codes and types that mean that the provider has too much to do for everybody.
const OVERLOADED: &[&str] = &["overloaded", "overloaded_error", "engine_overloaded", "server_overloaded"];
/// Codes and types that mean that this account asked too often.
const RATE: &[&str] = &["rate_limit_exceeded", "rate_limit_error", "rate_limit_reached_error", "too_many_requests"];
/// Codes and types that mean that the key is not accepted.
const KEY: &[&str] = &["invalid_api_key", "authentication_error", "permission_error", "invalid_authentication"];
/// Texts of a 400 without a code that mean that the prompt is too long.
const CONTEXT_TEXTS: &[&str] = &["maximum context length", "prompt is too long", "context window", "too many tokens"];

/// Why one try failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CallError {
    /// The provider said so, with a status or inside its stream.
    #[error("{0}")]
    Answered(ErrorAnswer),
    /// No connection.
    #[error("cannot be reached: {0}")]
    Connect(String),
    /// Nothing came for too long.
    #[error("sent nothing for {} s", .0.as_secs())]
    Idle(Duration),
    /// The whole call took too long.
    #[error("did not finish within {} s", .0.as_secs())]
    TooSlow(Duration),
    /// The connection broke in the middle of the answer.
    #[error("broke off in the middle of its answer: {0}")]
    Cut(String),
    /// The answer ended without saying that it is complete.
    #[error("ended its answer without finishing it")]
    Truncated,
    /// A stream was asked for and something else came.
    #[error("sent {0} where an event stream was asked for")]
    ContentType(String),
    /// More than is accepted.
    #[error("sent {0}, which is more than is accepted")]
    TooLarge(&'static str),
    /// The request could not be made.
    #[error("could not be asked: {0}")]
    Request(String),
}

/// An error object of a provider.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ErrorAnswer {
    /// HTTP status, or the number given as code inside a stream; 200 when there was none.
    pub status: u16,
    /// `error.code`, or else `error.type`, as text.
    pub codes: Vec<String>,
    /// `error.message`, or whatever the body held.
    pub message: String,
    /// From the header.
    pub retry_after: Option<Duration>,
}

impl fmt::Display for ErrorAnswer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.status {
            200 => f.write_str("reported an error")?,
            status => write!(f, "answered {status}")?,
        }
        let status = self.status.to_string();
        // Some providers give the status again as the code.
        if let Some(code) = self.codes.iter().find(|code| **code != status) {
            write!(f, " ({})", ellipsis(code, CODE_CHARS_MAX))?;
        }
        if self.message.is_empty() { Ok(()) } else { write!(f, ": {}", self.message) }
    }
}

/// What is to be done about a failed try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// The class.
    pub kind: FailureKind,
    /// Whether another try makes sense.
    pub again: bool,
    /// The wait that the provider asked for, capped.
    pub after: Option<Duration>,
}

/// Classifies a failed try.
pub fn classify(error: &CallError) -> Verdict {
    let verdict = |kind, again| Verdict { kind, again, after: None };
    match error {
        CallError::Answered(answer) => {
            let kind = kind_of(answer);
            let again = match kind {
                FailureKind::Transient | FailureKind::RateLimited | FailureKind::Overloaded => true,
                FailureKind::Unauthorized
                | FailureKind::Billing
                | FailureKind::ContextTooLong
                | FailureKind::Refused => false,
            };
            Verdict { kind, again, after: answer.retry_after.map(|wait| wait.min(WAIT_MAX)) }
        }
        CallError::Connect(_) | CallError::Idle(_) | CallError::Cut(_) | CallError::Truncated => {
            verdict(FailureKind::Transient, true)
        }
        CallError::TooSlow(_) => verdict(FailureKind::Transient, false),
        CallError::ContentType(_) | CallError::TooLarge(_) | CallError::Request(_) => {
            verdict(FailureKind::Refused, false)
        }
    }
}

fn kind_of(answer: &ErrorAnswer) -> FailureKind {
    let coded = |known: &[&str]| answer.codes.iter().any(|code| known.contains(&code.as_str()));
    for (codes, kind) in [
        (BILLING, FailureKind::Billing),
        (CONTEXT, FailureKind::ContextTooLong),
        (OVERLOADED, FailureKind::Overloaded),
        (RATE, FailureKind::RateLimited),
        (KEY, FailureKind::Unauthorized),
    ] {
        if coded(codes) {
            return kind;
        }
    }
    match answer.status {
        402 => FailureKind::Billing,
        413 => FailureKind::ContextTooLong,
        401 | 403 => FailureKind::Unauthorized,
        429 => FailureKind::RateLimited,
        503 | 529 => FailureKind::Overloaded,
        408 | 409 | 425 | 500.. => FailureKind::Transient,
        400 if says_too_long(&answer.message) => FailureKind::ContextTooLong,
        // An error inside a good answer, without a code that says more.
        200 if answer.codes.iter().any(|code| code == "content_filter") => FailureKind::Refused,
        200 => FailureKind::Transient,
        _ => FailureKind::Refused,
    }
}

fn says_too_long(message: &str) -> bool {
    let message = message.to_ascii_lowercase();
    CONTEXT_TEXTS.iter().any(|text| message.contains(text))
}

/// What a user may be told: who failed, and how.
pub fn failure(provider: &str, secret: Option<&str>, error: &CallError) -> Failure {
    let kind = classify(error).kind;
    let mut shown = error.clone();
    if let CallError::Answered(answer) = &mut shown {
        answer.message = presentable(&answer.message, secret);
    }
    let detail = ellipsis(&format!("{provider} {shown}"), DETAIL_CHARS_MAX).into_owned();
    Failure { kind, detail }
}

/// One line of a provider's message, shortened, without anything that looks like a key.
fn presentable(message: &str, secret: Option<&str>) -> String {
    let message = match secret.filter(|secret| !secret.is_empty()) {
        Some(secret) => message.replace(secret, "…"),
        None => message.to_owned(),
    };
    let words = message.split_whitespace().map(|word| if looks_like_key(word) { "…" } else { word });
    ellipsis(&words.collect::<Vec<_>>().join(" "), MESSAGE_CHARS_MAX).into_owned()
}

fn looks_like_key(word: &str) -> bool {
    let word = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
    ["sk-", "pk-", "gsk_", "xai-", "AIza"].iter().any(|prefix| word.starts_with(prefix)) && word.len() > 8
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(status: u16, codes: &[&str], message: &str) -> CallError {
        let codes = codes.iter().map(|code| (*code).to_owned()).collect();
        CallError::Answered(ErrorAnswer { status, codes, message: message.to_owned(), retry_after: None })
    }

    #[test]
    fn classes_follow_code_then_status() {
        use FailureKind::*;
        for (status, codes, message, kind, again) in [
            (429, &["rate_limit_exceeded"][..], "", RateLimited, true),
            (429, &[], "", RateLimited, true),
            (429, &["insufficient_quota"], "", Billing, false),
            (403, &["insufficient_quota"], "", Billing, false),
            (402, &[], "", Billing, false),
            (401, &[], "", Unauthorized, false),
            (403, &[], "<html>", Unauthorized, false),
            (400, &["invalid_api_key"], "", Unauthorized, false),
            (413, &[], "", ContextTooLong, false),
            (400, &["context_length_exceeded"], "", ContextTooLong, false),
            (400, &[], "This model's maximum context length is 8192 tokens", ContextTooLong, false),
            (400, &[], "bad", Refused, false),
            (400, &["rate_limit_exceeded"], "", RateLimited, true),
            (404, &[], "", Refused, false),
            (308, &[], "", Refused, false),
            (503, &[], "", Overloaded, true),
            (529, &[], "", Overloaded, true),
            (500, &["overloaded_error"], "", Overloaded, true),
            (500, &[], "rate limit reached", Transient, true),
            (502, &[], "", Transient, true),
            (408, &[], "", Transient, true),
            (200, &[], "", Transient, true),
        ] {
            let verdict = classify(&answered(status, codes, message));
            assert_eq!((verdict.kind, verdict.again), (kind, again), "{status} {codes:?} {message}");
        }
        for (error, kind, again) in [
            (CallError::Connect(String::new()), Transient, true),
            (CallError::Idle(WAIT_MAX), Transient, true),
            (CallError::TooSlow(WAIT_MAX), Transient, false),
            (CallError::Cut(String::new()), Transient, true),
            (CallError::Truncated, Transient, true),
            (CallError::ContentType("text/html".to_owned()), Refused, false),
            (CallError::TooLarge("a line"), Refused, false),
        ] {
            let verdict = classify(&error);
            assert_eq!((verdict.kind, verdict.again), (kind, again), "{error}");
        }
    }

    #[test]
    fn a_wait_that_a_provider_asks_for_is_capped() {
        let hour = ErrorAnswer { status: 429, retry_after: Some(Duration::from_secs(3600)), ..ErrorAnswer::default() };
        assert_eq!(classify(&CallError::Answered(hour)).after, Some(WAIT_MAX));
    }

    #[test]
    fn what_a_user_is_told_has_no_key_and_is_short() {
        let error = answered(401, &[], "Incorrect API key provided: sk-abcdefghijkl. And secret-1 too.\n\nBye");
        let told = failure("openai", Some("secret-1"), &error).detail;
        assert_eq!(told, "openai answered 401: Incorrect API key provided: … And … too. Bye");
        let twice = failure("openai", None, &answered(401, &["401"], "No.")).detail;
        assert_eq!(twice, "openai answered 401: No.");
        let long = failure("p", None, &answered(500, &[], &"é".repeat(1000))).detail;
        assert!(long.chars().count() <= MESSAGE_CHARS_MAX + 20, "{long}");
    }
}
