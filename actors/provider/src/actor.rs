//! The front end: takes the messages of [`protocol::provider`] and starts a task for each call.

use std::cell::{Cell, RefCell};
use std::sync::Arc;
use std::time::Duration;

use actix::{Actor, Context, Handler, Recipient, Supervised};
use backon::{ExponentialBuilder, Retryable};
use domain::chat::AssistantMessage;
use domain::request::ChatRequest;
use protocol::provider::{AskPermit, Complete, Delta, Event, Failure, FailureKind, Permit};
use protocol::trace::{Span, Step, Value};
use protocol::turn::Stamp;
use supervision::{Gone, tell};
use tokio_util::sync::CancellationToken;

use crate::gate::Pass;
use crate::retry::{CallError, RETRIES_MAX, WAIT_MAX, classify, failure};
use crate::wire::openai::{Answer, Caller};
use crate::{Answerer, Model, Shared, http, offline};

/// First wait before a further try; doubled each time, with jitter.
const WAIT_MIN: Duration = Duration::from_millis(500);

/// The actor. Holds no state of its own but this arbiter's HTTP client, so a restart loses nothing.
pub struct Provider {
    shared: Arc<Shared>,
    backend: Backend,
}

enum Backend {
    Offline,
    Server(Caller),
    Own(Arc<dyn Model>),
    /// There can be no client; every call says so.
    Unusable(CallError),
}

/// Takes the pieces of an answer as they come.
type Show<'a> = &'a dyn Fn(Delta);

/// The asker's end of one call. Answers exactly once, also when the call panics; a cancelled call answers no more.
struct Reply {
    shared: Arc<Shared>,
    stamp: Stamp,
    to: Recipient<Event>,
    model: Arc<str>,
    /// How much was asked, by the estimate.
    asked_tokens: u64,
    cancel: CancellationToken,
    permit: Option<Permit>,
    begun: Duration,
    open: bool,
}

// === impl Provider ===

impl Provider {
    /// A front end for the arbiter on which it is made.
    pub fn new(shared: Arc<Shared>) -> Self {
        let backend = match &shared.answerer {
            Answerer::Offline => Backend::Offline,
            Answerer::Own(model) => Backend::Own(model.clone()),
            Answerer::Server(endpoint) => match http::http_client() {
                Ok(http) => Backend::Server(Caller {
                    endpoint: endpoint.clone(),
                    http,
                    limits: shared.limits,
                    clock: shared.ports.clock.clone(),
                }),
                Err(error) => Backend::Unusable(CallError::Request(format!("no HTTPS client can be made: {error}"))),
            },
        };
        Self { shared, backend }
    }
}

impl Actor for Provider {
    type Context = Context<Self>;
}

impl Supervised for Provider {}

impl Handler<AskPermit> for Provider {
    type Result = ();

    fn handle(&mut self, ask: AskPermit, _: &mut Self::Context) {
        self.shared.mailbox.dec();
        self.shared.places.ask(ask);
    }
}

impl Handler<Complete> for Provider {
    type Result = ();

    fn handle(&mut self, call: Complete, _: &mut Self::Context) {
        self.shared.mailbox.dec();
        let Complete { stamp, permit, request, cancel, reply_to } = call;
        let (shared, begun) = (self.shared.clone(), self.shared.ports.clock.mono());
        let model = request.model.clone();
        let asked_tokens = request.tokens;
        let permit = Some(permit);
        let reply = Reply { shared, stamp, to: reply_to, model, asked_tokens, cancel, permit, begun, open: true };
        match &self.backend {
            Backend::Offline => answer_offline(reply, &request),
            Backend::Server(caller) => {
                let caller = caller.clone();
                actix_rt::spawn(async move {
                    let (name, body) = (caller.endpoint.name.clone(), caller.endpoint.body(&request));
                    let secret = Some(caller.endpoint.secret());
                    let prefix = id_prefix(reply.stamp);
                    carry_out(reply, &name, secret, async |mut show| caller.attempt(&body, &prefix, &mut show).await)
                        .await;
                });
            }
            Backend::Own(model) => {
                let model = model.clone();
                actix_rt::spawn(async move {
                    let prefix = id_prefix(reply.stamp);
                    let name = model.name();
                    carry_out(reply, &name, None, async |mut show| model.attempt(&request, &prefix, &mut show).await)
                        .await;
                });
            }
            Backend::Unusable(error) => {
                let failure = failure(&self.shared.name, None, error);
                reply.fail(failure);
            }
        }
    }
}

/// Ids that the model did not give; short, as some servers take no more than 40 characters back.
fn id_prefix(stamp: Stamp) -> String {
    let turn = stamp.turn.0.as_u128() & 0xffff_ffff_ffff;
    format!("call_{turn:012x}_{}_{}_", stamp.attempt, stamp.round)
}

/// At once where no delay is asked for: without a task and without a timer.
fn answer_offline(reply: Reply, request: &ChatRequest) {
    let answer = offline::answer(request, &id_prefix(reply.stamp));
    if answer.delay.is_zero() && answer.piece_delay.is_zero() {
        for delta in answer.deltas {
            // If the asker is gone, so is the receiver of the last event, and nothing more happens.
            let _ = reply.show(delta);
        }
        reply.complete(answer.message);
        return;
    }
    actix_rt::spawn(async move {
        let cancel = reply.cancel.clone();
        tokio::select! {
            biased;
            () = cancel.cancelled() => reply.cancelled(),
            () = play(&reply, answer.delay, answer.piece_delay, answer.deltas) => reply.complete(answer.message),
        }
    });
}

async fn play(reply: &Reply, delay: Duration, piece_delay: Duration, deltas: Vec<Delta>) {
    tokio::time::sleep(delay).await;
    for (place, delta) in deltas.into_iter().enumerate() {
        if place > 0 && !piece_delay.is_zero() {
            tokio::time::sleep(piece_delay).await;
        }
        // As above.
        let _ = reply.show(delta);
    }
}

/// Carries out one call to whoever `attempt` asks; `secret` is kept out of what is said about it.
async fn carry_out(
    reply: Reply,
    name: &Arc<str>,
    secret: Option<&str>,
    attempt: impl AsyncFn(Show<'_>) -> Result<Answer, CallError>,
) {
    let mut pass = match reply.shared.gate.enter() {
        Ok(pass) => pass,
        Err(failure) => return reply.refuse(failure),
    };
    let cancel = reply.cancel.clone();
    let gone = CancellationToken::new();
    let result = tokio::select! {
        biased;
        () = cancel.cancelled() => return reply.cancelled(),
        () = gone.cancelled() => return reply.cancelled(),
        result = try_to_complete(&reply, name, &gone, attempt, &mut pass) => result,
    };
    match result {
        Ok(message) => reply.complete(message),
        Err(error) => {
            let failure = failure(name, secret, &error);
            reply.fail(failure);
        }
    }
}

/// Tries, and tries again as long as it makes sense and nothing of the answer was shown.
async fn try_to_complete(
    reply: &Reply,
    name: &Arc<str>,
    gone: &CancellationToken,
    attempt: impl AsyncFn(Show<'_>) -> Result<Answer, CallError>,
    pass: &mut Pass,
) -> Result<AssistantMessage, CallError> {
    let shown = Cell::new(false);
    let pass = RefCell::new(pass);
    let once = async || {
        let show = |delta| {
            shown.set(true);
            if reply.show(delta).is_err() {
                gone.cancel();
            }
        };
        let answer = attempt(&show).await;
        pass.borrow_mut().ended(answer.as_ref().err().map(|error| classify(error).kind));
        answer
    };
    let backoff = ExponentialBuilder::new()
        .with_min_delay(WAIT_MIN)
        .with_max_delay(WAIT_MAX)
        .with_max_times(RETRIES_MAX)
        .with_jitter()
        .with_jitter_seed(reply.shared.ports.ids.random());
    let answer = once
        .retry(backoff)
        .sleep(tokio::time::sleep)
        .when(|error| classify(error).again && !shown.get())
        .adjust(|error, wait| {
            wait.map(|wait| classify(error).after.map_or(wait, |after| after.max(wait).min(WAIT_MAX)))
        })
        .notify(|error, wait| {
            reply.shared.count_retry(classify(error).kind.word());
            let wait_ms = u64::try_from(wait.as_millis()).unwrap_or(u64::MAX);
            tracing::warn!(
                provider = &**name,
                class = classify(error).kind.word(),
                wait_ms,
                "a model call failed and is tried again"
            );
        })
        .await?;
    Ok(AssistantMessage {
        reasoning: answer.reasoning,
        calls: answer.calls,
        stop: answer.stop,
        usage: answer.usage,
        ..AssistantMessage::new(answer.text, name.clone(), reply.model.clone())
    })
}

// === impl Reply ===

impl Reply {
    fn show(&self, delta: Delta) -> Result<(), Gone> {
        self.shared.places.moved();
        tell(&self.to, Event::Delta { stamp: self.stamp, delta })
    }

    fn complete(mut self, mut message: AssistantMessage) {
        message.asked_tokens = self.asked_tokens;
        let [input, output] = &self.shared.tokens;
        input.inc_by(message.usage.input_tokens);
        output.inc_by(message.usage.output_tokens);
        self.span(None, Some(&message));
        let event = Event::Completed { stamp: self.stamp, message: Box::new(message) };
        self.end(None, Some(event));
    }

    fn fail(mut self, failure: Failure) {
        self.end(Some(failure.kind.word()), Some(Event::Failed { stamp: self.stamp, failure }));
    }

    /// The provider is not asked.
    fn refuse(mut self, failure: Failure) {
        self.end(Some("not_asked"), Some(Event::Failed { stamp: self.stamp, failure }));
    }

    fn cancelled(mut self) {
        self.end(Some("cancelled"), None);
    }

    /// Without a `result` the call ended well.
    fn end(&mut self, result: Option<&'static str>, event: Option<Event>) {
        self.open = false;
        if result.is_some() {
            self.span(result, None);
        }
        self.shared.count(result, self.shared.ports.clock.mono().saturating_sub(self.begun));
        // The place is free before the asker hears of the end and asks again.
        self.permit = None;
        if let Some(event) = event {
            // An asker that is gone has no use for the answer.
            let _ = tell(&self.to, event);
        }
    }
}

impl Reply {
    /// The call's span; no content goes into it.
    fn span(&self, error: Option<&'static str>, message: Option<&AssistantMessage>) {
        let Self { shared, stamp, .. } = self;
        shared.metrics.traces.end(|| {
            let took = shared.ports.clock.mono().saturating_sub(self.begun);
            let ended_us = shared.ports.clock.wall_us();
            let begun_us = ended_us.saturating_sub(u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
            let step = Step::Model { attempt: stamp.attempt, round: stamp.round };
            let mut fields = vec![
                ("gen_ai.operation.name", Value::Word("chat")),
                ("gen_ai.provider.name", Value::Text(shared.name.clone())),
                ("gen_ai.request.model", Value::Text(self.model.clone())),
            ];
            if let Some(message) = message {
                fields.push(("gen_ai.usage.input_tokens", Value::Number(message.usage.input_tokens)));
                fields.push(("gen_ai.usage.output_tokens", Value::Number(message.usage.output_tokens)));
            }
            Span { turn: stamp.turn, step, begun_us, ended_us, error, fields }
        });
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if self.cancel.is_cancelled() {
            self.end(Some("cancelled"), None);
            return;
        }
        let detail = format!("the call to {} ended unexpectedly", self.shared.name);
        let failure = Failure { kind: FailureKind::Transient, detail };
        self.end(Some("crashed"), Some(Event::Failed { stamp: self.stamp, failure }));
    }
}

#[cfg(test)]
mod tests;
