//! What a provider front end (one per arbiter) is asked.
//!
//! | message | from | answer | order |
//! |---|---|---|---|
//! | [`AskPermit`] | session | one [`Event::Permitted`] at `reply_to`, when a place is free | turns first, fair between sessions, FIFO inside one |
//! | [`Complete`] | session, with its permit | [`Event::Delta`]s, then exactly one [`Event::Completed`] or [`Event::Failed`] | as the model sent it |
//!
//! Nothing here is durable. A cancelled call answers nothing more. Every event carries the [`Stamp`] of the asker,
//! so that a later incarnation can drop what belongs to an earlier one.

use actix::Recipient;
use domain::body::Reader;
use domain::chat::AssistantMessage;
use domain::ids::SessionKey;
use domain::prompt::again;
use domain::request::ChatRequest;
use tokio_util::sync::CancellationToken;

use crate::turn::Stamp;

/// Asks for the right to call the model. The prompt is built only after it was granted.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub struct AskPermit {
    /// Who asks.
    pub stamp: Stamp,
    /// For fairness: no session gets a second place while another waits for its first.
    pub key: SessionKey,
    /// Who waits for the call.
    pub urgency: Urgency,
    /// Gives up the wait. A call that is [`Urgency::Spare`] is cancelled with it, too, as soon as another waits for a
    /// place.
    pub cancel: CancellationToken,
    /// Where the event goes.
    pub reply_to: Recipient<Event>,
}

/// How urgent a model call is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Urgency {
    /// Somebody waits for it.
    Turn,
    /// Nobody does: it takes a place that no turn wants, for as long as no turn wants it.
    Spare,
}

/// One model call.
#[derive(actix::Message)]
#[rtype(result = "()")]
pub struct Complete {
    /// Who asks.
    pub stamp: Stamp,
    /// The right to call; given back when the call ends.
    pub permit: Permit,
    /// What to ask.
    pub request: ChatRequest,
    /// Ends the call at once.
    pub cancel: CancellationToken,
    /// Where the events go.
    pub reply_to: Recipient<Event>,
}

/// A place among the running model calls; dropping it frees the place.
pub struct Permit {
    _guard: Box<dyn std::any::Any + Send>,
}

impl Permit {
    /// Wraps whatever frees the place when it is dropped.
    pub fn new(guard: impl std::any::Any + Send) -> Self {
        Self { _guard: Box::new(guard) }
    }
}

impl std::fmt::Debug for Permit {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Permit")
    }
}

/// What comes back.
#[derive(Debug, actix::Message)]
#[rtype(result = "()")]
pub enum Event {
    /// A place is free.
    Permitted {
        /// Of the asker.
        stamp: Stamp,
        /// The place.
        permit: Permit,
    },
    /// A piece of the answer.
    Delta {
        /// Of the asker.
        stamp: Stamp,
        /// The piece.
        delta: Delta,
    },
    /// The whole answer; the last event of a call.
    Completed {
        /// Of the asker.
        stamp: Stamp,
        /// The answer.
        message: Box<AssistantMessage>,
    },
    /// The call failed for good (retries included); the last event of a call.
    Failed {
        /// Of the asker.
        stamp: Stamp,
        /// Why.
        failure: Failure,
    },
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delta {
    /// Visible text.
    Text(String),
    /// Reasoning.
    Reasoning(String),
}

/// Classes of failure that a caller treats differently.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FailureKind {
    /// Network, 5xx, timeout, cut stream.
    Transient,
    /// Too many requests.
    RateLimited,
    /// The provider is overloaded.
    Overloaded,
    /// Key missing or refused.
    Unauthorized,
    /// Account in arrears, quota used up.
    Billing,
    /// The prompt is too long for the model.
    ContextTooLong,
    /// The provider refused the request for another reason.
    Refused,
}

impl FailureKind {
    /// The word that logs and metric labels use.
    pub fn word(self) -> &'static str {
        match self {
            Self::Transient => "transient",
            Self::RateLimited => "rate_limited",
            Self::Overloaded => "overloaded",
            Self::Unauthorized => "unauthorized",
            Self::Billing => "billing",
            Self::ContextTooLong => "context_too_long",
            Self::Refused => "refused",
        }
    }
}

/// How the notice begins of a turn that is too long for the model. Transcripts keep it, and no other word of that.
pub const TOO_LONG: &str = "This conversation is too long for the model, also after it was summarised. Start a new one \
                            with /new, or send less at once.";

/// Why a model call failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{detail}")]
pub struct Failure {
    /// The class.
    pub kind: FailureKind,
    /// What happened, as a user may be told: names provider and cause; no key, no message contents. At most 300
    /// characters.
    pub detail: String,
}

// === impl Failure ===

impl Failure {
    /// What the user is told in place of an answer: what is wrong, what to do about it, and how it showed. `reader`: who that
    /// is.
    pub fn told(&self, provider: &str, model: &str, reader: Reader) -> String {
        let go_on = format!("{} to have it answered", again(reader));
        let what = match self.kind {
            // How it showed is all that there is to say.
            FailureKind::Transient => return format!("{}. {go_on}.", self.detail.trim_end_matches('.')),
            FailureKind::RateLimited => {
                format!("{provider} is limiting requests at the moment. {go_on} in a minute.")
            }
            FailureKind::Overloaded => {
                format!("{provider} is overloaded at the moment. {go_on} in a few minutes.")
            }
            FailureKind::Unauthorized => format!(
                "{provider} does not accept the configured key. Check providers.{provider}.apiKey in the configuration."
            ),
            FailureKind::Billing => format!(
                "The account at {provider} has no credit left, so no answer is possible. Top it up, or configure another \
                 provider."
            ),
            FailureKind::ContextTooLong => TOO_LONG.to_owned(),
            FailureKind::Refused => format!(
                "{provider} refused this request. Check that it has the model {model} (agents.defaults.model, modelPresets), \
                 or say it differently."
            ),
        };
        format!("{what} ({})", self.detail)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_is_told_what_is_wrong_what_to_do_and_how_it_showed() {
        use FailureKind::*;
        for (kind, part) in [
            (RateLimited, "x is limiting requests at the moment. Your message stands in the conversation: say `go on`"),
            (Overloaded, "say `go on` to have it answered in a few minutes."),
            (Unauthorized, "Check providers.x.apiKey in the configuration."),
            (Billing, "The account at x has no credit left"),
            (ContextTooLong, "too long for the model, also after it was summarised. Start a new one with /new"),
            (Refused, "x refused this request. Check that it has the model big"),
        ] {
            let told = Failure { kind, detail: "x answered 400".to_owned() }.told("x", "big", Reader::Chat);
            assert!(told.contains(part) && told.ends_with(". (x answered 400)"), "{told}");
        }
        for how in ["x answered 500", "x cannot be reached: refused", "x broke off in the middle of its answer: reset."]
        {
            let failure = Failure { kind: Transient, detail: how.to_owned() };
            let told = failure.told("x", "big", Reader::Chat);
            let brought = failure.told("x", "big", Reader::Client);
            assert!(brought.ends_with(". Send the same request again to have it answered."), "{brought}");
            let parents = failure.told("x", "big", Reader::Parent);
            assert!(parents.ends_with("`subagents` (send), or spawn another one, to have it answered."), "{parents}");
            let how = how.trim_end_matches('.');
            assert_eq!(
                told,
                format!("{how}. Your message stands in the conversation: say `go on` to have it answered.")
            );
        }
    }
}
