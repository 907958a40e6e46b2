//! The way out: one `POST` per message.

use std::sync::Arc;
use std::time::Duration;

use domain::text::{TextLimit, TextUnit};
use domain::time::retry_after;
use futures::FutureExt;
use futures::future::BoxFuture;
use reqwest::header::{CONTENT_TYPE, RETRY_AFTER};
use reqwest::{Client, Url};
use supervision::ports::Clock;

use super::{CHANNEL, SigningSecret};
use crate::json::Json;
use crate::outbox::{Delivery, Outcome, PushChannel};

/// Where messages go, and how.
#[derive(Debug, Clone)]
pub struct SenderConfig {
    /// Takes the messages.
    pub url: Url,
    /// Signs them.
    pub secret: Option<SigningSecret>,
    /// Characters of one message.
    pub max_message_chars: usize,
    /// Time for one attempt.
    pub timeout: Duration,
}

/// Sends messages to the configured address. The client belongs to the runtime on which it sends.
pub struct Sender {
    config: Arc<SenderConfig>,
    client: Client,
    clock: Arc<dyn Clock>,
}

// === impl Sender ===

impl Sender {
    /// Sends with `client`.
    pub fn new(config: SenderConfig, client: Client, clock: Arc<dyn Clock>) -> Self {
        Self { config: Arc::new(config), client, clock }
    }
}

impl PushChannel for Sender {
    fn name(&self) -> &str {
        CHANNEL
    }

    fn limit(&self) -> TextLimit {
        TextLimit { unit: TextUnit::Chars, max: self.config.max_message_chars }
    }

    fn patience(&self) -> Duration {
        self.config.timeout
    }

    fn send(&self, delivery: Delivery) -> BoxFuture<'static, Outcome> {
        let (config, client, clock) = (Arc::clone(&self.config), self.client.clone(), Arc::clone(&self.clock));
        async move {
            let id = delivery.id.to_string();
            let body = body(&delivery);
            let mut request = client
                .post(config.url.clone())
                .header(CONTENT_TYPE, "application/json")
                .header("idempotency-key", &id)
                .header("webhook-id", &id);
            if let Some(secret) = &config.secret {
                let timestamp_s = clock.wall_ms() / 1000;
                let signature = secret.sign(&id, timestamp_s, body.as_bytes());
                request = request.header("webhook-timestamp", timestamp_s).header("webhook-signature", signature);
            }
            match request.body(body).send().await {
                Ok(response) => {
                    let wait = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
                    let wait = wait.and_then(|value| retry_after(value, clock.wall_ms()));
                    outcome(response.status().as_u16(), wait)
                }
                // Its text would name the address, which may hold a secret.
                Err(error) if error.is_connect() => Outcome::failed("the receiver cannot be reached"),
                Err(error) if error.is_builder() => Outcome::failed("the request cannot be made"),
                Err(_) => Outcome::unknown("the receiver broke off"),
            }
        }
        .boxed()
    }
}

fn body(delivery: &Delivery) -> String {
    let json = Json::begin().plain("id", delivery.id).text("chat_id", &delivery.route.chat);
    json.maybe("thread", delivery.route.thread.as_deref())
        .text("text", &delivery.text)
        .plain("turn_id", delivery.turn)
        .raw("part", delivery.id.n)
        .raw("parts", delivery.parts)
        .raw("repeat", delivery.repeat)
        .done()
}

/// What a status says about a message.
///
/// | status | outcome |
/// |---|---|
/// | 2xx | delivered |
/// | 425, 429 | failed; not taken |
/// | 408, 409 (the same id is being handled) | failed; perhaps taken |
/// | other 4xx | refused |
/// | all others | failed; perhaps taken |
fn outcome(status: u16, retry_after: Option<Duration>) -> Outcome {
    let reason = format!("the receiver answered {status}").into();
    match status {
        200..=299 => Outcome::Delivered,
        425 | 429 => Outcome::Failed { reason, retry_after, taken: false },
        408 | 409 => Outcome::Failed { reason, retry_after, taken: true },
        400..=499 => Outcome::Refused { reason },
        _ => Outcome::Failed { reason, retry_after, taken: true },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_decides() {
        let wait = Some(Duration::from_secs(7));
        for (status, word, taken) in [
            (200, "delivered", None),
            (204, "delivered", None),
            (302, "failed", Some(true)),
            (400, "refused", None),
            (401, "refused", None),
            (404, "refused", None),
            (408, "failed", Some(true)),
            (409, "failed", Some(true)),
            (410, "refused", None),
            (422, "refused", None),
            (425, "failed", Some(false)),
            (429, "failed", Some(false)),
            (500, "failed", Some(true)),
            (503, "failed", Some(true)),
        ] {
            let found = match outcome(status, wait) {
                Outcome::Delivered => ("delivered", None),
                Outcome::Refused { .. } => ("refused", None),
                Outcome::Failed { retry_after, taken, .. } => {
                    assert_eq!(retry_after, wait, "{status}");
                    ("failed", Some(taken))
                }
            };
            assert_eq!(found, (word, taken), "{status}");
        }
    }
}
