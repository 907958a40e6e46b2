//! Model calls: one front-end actor per arbiter, over state that the whole process shares.
//!
//! A session asks for a place, builds its prompt when it has one, and sends it with
//! [`Complete`](protocol::provider::Complete). The answer streams back; a failure is tried again as long as nothing of
//! the answer was shown ([`retry`]). Each call is a task of its own, so that none can take another one down.
//!
//! A provider that fails again and again is left alone for a while ([`breaker`]).
//!
//! Reading order: [`actor`], [`retry`], [`breaker`], [`wire::openai`], [`offline`].

#![cfg_attr(test, allow(clippy::unwrap_used, clippy::wildcard_enum_match_arm))]

pub mod actor;
pub mod arguments;
pub mod breaker;
mod gate;
pub mod http;
mod model;
pub mod offline;
mod permits;
pub mod retry;
pub mod sse;
pub mod wire;

use std::sync::Arc;
use std::time::Duration;

use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use protocol::metrics::{
    ByBound, ByKind, ByProvider, ByProviderDirection, ByProviderReason, ByProviderResult, ByProviderState, Metrics,
    gauge,
};
use protocol::supervision::{Kind, SupervisionLog};
use protocol::turn::Pulse;
use supervision::ports::Ports;

pub use self::http::http_client;
pub use actor::Provider;
pub use model::Model;
pub use wire::openai::{Answer, BadServer, Server};

use gate::Gate;
use permits::Places;
use wire::openai::Endpoint;

/// Who answers.
#[derive(Debug, Clone)]
pub enum Backend {
    /// The built-in model.
    Offline,
    /// A server.
    OpenAi(Server),
    /// A model of the program's own.
    Own(Arc<dyn Model>),
}

/// Time limits of one try.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// How long the server may send nothing at all, before its answer or in it.
    pub idle: Duration,
    /// How long the whole answer may take.
    pub total: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        Self { idle: Duration::from_secs(90), total: Duration::from_secs(1800) }
    }
}

/// Everything configurable.
#[derive(Debug, Clone)]
pub struct Settings {
    /// Who answers.
    pub backend: Backend,
    /// How many calls may run at once in this process.
    pub concurrent_max: usize,
    /// Time limits.
    pub limits: Limits,
}

/// What the front ends of one process share.
pub struct Shared {
    /// Of the provider, as in messages and metrics.
    name: Arc<str>,
    answerer: Answerer,
    limits: Limits,
    places: Arc<Places>,
    gate: Arc<Gate>,
    metrics: Metrics,
    /// Looked up once, as most calls end well.
    answered: Counter,
    seconds: Histogram,
    tokens: [Counter; 2],
    /// Messages in the mailboxes of the front ends; sessions count them up.
    mailbox: Gauge,
    ports: Ports,
}

/// Who answers, checked.
enum Answerer {
    Offline,
    Server(Arc<Endpoint>),
    Own(Arc<dyn Model>),
}

impl Shared {
    /// Checks the settings.
    pub fn new(
        settings: Settings,
        metrics: Metrics,
        ports: Ports,
        log: Arc<dyn SupervisionLog>,
    ) -> Result<Arc<Self>, BadServer> {
        let Settings { backend, concurrent_max, limits } = settings;
        let (answerer, name) = match backend {
            Backend::Offline => (Answerer::Offline, offline::NAME.into()),
            Backend::OpenAi(server) => {
                let endpoint = Arc::new(Endpoint::new(server)?);
                let name: Arc<str> = endpoint.name.clone();
                (Answerer::Server(endpoint), name)
            }
            Backend::Own(model) => {
                let name = model.name();
                (Answerer::Own(model), name)
            }
        };
        let provider = || name.to_string();
        let answered =
            metrics.provider_calls.get_or_create_owned(&ByProviderResult { provider: provider(), result: "ok" });
        let seconds = metrics.provider_seconds.get_or_create_owned(&ByProvider { provider: provider() });
        let tokens = ["input", "output"].map(|direction| {
            metrics.work.provider_tokens.get_or_create_owned(&ByProviderDirection { provider: provider(), direction })
        });
        let mailbox = metrics.mailbox_messages.get_or_create_owned(&ByKind { kind: Kind::Provider.word() });
        let bound = ByBound { bound: "provider_permits" };
        metrics.work.limit.get_or_create(&bound).set(gauge(concurrent_max));
        // What rules ask for is there from the start, at zero.
        drop(
            metrics
                .work
                .provider_retries
                .get_or_create(&ByProviderReason { provider: provider(), reason: "transient" }),
        );
        let places = Places::new(concurrent_max, ports.clock.clone());
        let gate = Gate::new(name.clone(), ports.clock.clone(), log, metrics.clone());
        Ok(Arc::new(Self { name, answerer, limits, places, gate, metrics, answered, seconds, tokens, mailbox, ports }))
    }

    /// Brings the gauges up to date.
    pub fn show(&self) {
        for (state, places) in ["taken", "waiting"].into_iter().zip(self.places.count()) {
            let labels = ByProviderState { provider: self.name.to_string(), state };
            self.metrics.work.provider_permits.get_or_create(&labels).set(gauge(places));
        }
    }

    /// Counts a try that failed and is followed by another.
    fn count_retry(&self, reason: &'static str) {
        let labels = ByProviderReason { provider: self.name.to_string(), reason };
        self.metrics.work.provider_retries.get_or_create(&labels).inc();
    }

    /// Beats whenever somebody gets the right to call the model, and whenever such a call gets on: as long as it does, those
    /// who wait are not stuck.
    pub fn moves(&self) -> Pulse {
        self.places.moves().clone()
    }

    /// Counts a call that ended.
    fn count(&self, result: Option<&'static str>, took: Duration) {
        self.seconds.observe(took.as_secs_f64());
        match result {
            None => self.answered.inc(),
            Some(result) => {
                let labels = ByProviderResult { provider: self.name.to_string(), result };
                self.metrics.provider_calls.get_or_create(&labels).inc()
            }
        };
    }
}
