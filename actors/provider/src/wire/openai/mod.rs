//! Chat completions of OpenAI and of the many servers that say they are compatible.
//!
//! `async-openai` makes the requests; what is sent (`request`) and what comes back (`chunk`) are our own tolerant forms,
//! what single servers and models want otherwise is known in one place (`quirks`), and the HTTP service below (`service`), which reads the stream, is ours too.

mod chunk;
mod quirks;
mod request;
mod service;

use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use async_openai::Client;
use async_openai::config::Config;
use domain::request::ChatRequest;
use protocol::provider::Delta;
use reqwest::header::{AUTHORIZATION, HeaderMap, HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;
use serde_json::{Map, Value};
use supervision::ports::Clock;
use tokio::time::timeout;

use crate::Limits;
use crate::retry::CallError;
pub use chunk::Answer;
use chunk::Assembly;
use quirks::Quirks;
use request::{Body, Steady};
use service::{Events, Exchange, Outcome, Said};

/// How long the counts and the end mark may take after the answer said that it is complete.
const TAIL_MAX: Duration = Duration::from_secs(5);

/// A server as configured. Everything but name and address may hold secrets and is not printed.
#[derive(Clone, Default)]
pub struct Server {
    /// Name of the provider, for messages and metrics.
    pub name: String,
    /// `https://host/v1`.
    pub base: String,
    /// Bearer key; servers of one's own may need none.
    pub key: Option<SecretString>,
    /// Further headers.
    pub extra_headers: Vec<(String, String)>,
    /// Further query parameters.
    pub extra_query: Vec<(String, String)>,
    /// Further fields of the body; null removes one of ours.
    pub extra_body: Map<String, Value>,
    /// Whether tool calls that a model writes into its text are calls.
    pub text_calls: bool,
}

/// What is wrong with a [`Server`].
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadServer {
    /// The base is no address.
    #[error("apiBase of provider {name} is not an http or https address")]
    Base {
        /// Of the provider.
        name: String,
    },
    /// The key cannot be sent.
    #[error("apiKey of provider {name} holds characters that cannot be sent in a header")]
    Key {
        /// Of the provider.
        name: String,
    },
    /// A header cannot be sent.
    #[error("header {header} of provider {name} cannot be sent")]
    Header {
        /// Of the provider.
        name: String,
        /// The header's name.
        header: String,
    },
}

/// A checked [`Server`], as `async-openai` wants it.
pub(crate) struct Endpoint {
    pub(crate) name: Arc<str>,
    base: String,
    key: SecretString,
    headers: HeaderMap,
    query: Vec<(String, String)>,
    quirks: Quirks,
    /// Of the last request.
    steady: Mutex<Option<Arc<Steady>>>,
}

// === impl Server ===

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Server").field("name", &self.name).field("base", &self.base).finish_non_exhaustive()
    }
}

// === impl Endpoint ===

impl Endpoint {
    pub(crate) fn new(server: Server) -> Result<Self, BadServer> {
        let Server { name, base, key, extra_headers, extra_query, extra_body, text_calls } = server;
        let url =
            reqwest::Url::parse(&base).ok().filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
        let Some(url) = url else { return Err(BadServer::Base { name }) };
        let mut headers = HeaderMap::new();
        if let Some(key) = key.as_ref().filter(|key| !key.expose_secret().is_empty()) {
            let value = HeaderValue::from_str(&format!("Bearer {}", key.expose_secret()));
            let Ok(mut value) = value else { return Err(BadServer::Key { name }) };
            value.set_sensitive(true);
            headers.insert(AUTHORIZATION, value);
        }
        for (header, value) in extra_headers {
            match (HeaderName::from_bytes(header.as_bytes()), HeaderValue::from_str(&value)) {
                (Ok(known), Ok(value)) => headers.insert(known, value),
                (Err(_), _) | (_, Err(_)) => return Err(BadServer::Header { name, header }),
            };
        }
        let quirks = Quirks { text_calls, extra_body, ..Quirks::of(&name, url.host_str().unwrap_or_default()) };
        let base = base.trim_end_matches('/').to_owned();
        let (name, key, query) = (name.into(), key.unwrap_or_default(), extra_query);
        Ok(Self { name, base, key, headers, query, quirks, steady: Mutex::default() })
    }

    /// The key, to be kept out of messages.
    pub(crate) fn secret(&self) -> &str {
        self.key.expose_secret()
    }

    pub(crate) fn body<'a>(&'a self, request: &'a ChatRequest) -> Body<'a> {
        let marked = self.quirks.marks_cache(&request.model);
        let mut last = self.steady.lock().unwrap_or_else(PoisonError::into_inner);
        let steady = match last.as_ref().filter(|steady| steady.fits(request, marked)) {
            Some(steady) => Arc::clone(steady),
            None => Arc::clone(last.insert(Arc::new(Steady::of(request, marked)))),
        };
        Body { request, quirks: &self.quirks, steady }
    }
}

impl Config for Endpoint {
    fn headers(&self) -> HeaderMap {
        self.headers.clone()
    }

    fn url(&self, path: &str) -> String {
        format!("{}{path}", self.base)
    }

    fn query(&self) -> Vec<(&str, &str)> {
        self.query.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect()
    }

    fn api_base(&self) -> &str {
        &self.base
    }

    fn api_key(&self) -> &SecretString {
        &self.key
    }
}

/// Makes calls on one runtime.
#[derive(Clone)]
pub(crate) struct Caller {
    pub(crate) endpoint: Arc<Endpoint>,
    pub(crate) http: reqwest::Client,
    pub(crate) limits: Limits,
    pub(crate) clock: Arc<dyn Clock>,
}

// === impl Caller ===

impl Caller {
    /// Tries once. `show` gets every piece; calls without an id get one that begins with `id_prefix`.
    pub(crate) async fn attempt(
        &self,
        body: &impl Serialize,
        id_prefix: &str,
        show: &mut impl FnMut(Delta),
    ) -> Result<Answer, CallError> {
        let total = self.limits.total;
        match timeout(total, self.exchange(body, show)).await {
            Ok(assembly) => assembly?.finish(id_prefix),
            Err(_) => Err(CallError::TooSlow(total)),
        }
    }

    async fn exchange(&self, body: &impl Serialize, show: &mut impl FnMut(Delta)) -> Result<Assembly, CallError> {
        let response = self.open(body).await?;
        let mut events = Events::new(response.bytes_stream(), self.limits.idle);
        let mut assembly = Assembly::new(self.endpoint.quirks.text_calls);
        loop {
            let next = if assembly.is_finished() {
                timeout(TAIL_MAX, events.next()).await.unwrap_or(Ok(Said::Over))
            } else {
                events.next().await
            };
            match next {
                Ok(Said::Chunk(chunk)) => assembly.take(&chunk)?.into_iter().for_each(&mut *show),
                Ok(Said::Done | Said::Over) | Err(_) if assembly.is_finished() => break,
                Ok(Said::Done) if !assembly.is_empty() => break,
                Ok(Said::Done | Said::Over) => return Err(CallError::Truncated),
                Err(error) => return Err(error),
            }
        }
        assembly.flush()?.into_iter().for_each(show);
        Ok(assembly)
    }

    /// Sends the request; the answer is an event stream.
    async fn open(&self, body: &impl Serialize) -> Result<reqwest::Response, CallError> {
        let outcome = Arc::new(Outcome::default());
        let exchange = Exchange {
            http: self.http.clone(),
            limits: self.limits,
            clock: self.clock.clone(),
            outcome: outcome.clone(),
        };
        let config: Arc<dyn Config> = self.endpoint.clone();
        let client = Client::build(self.http.clone(), config)
            .with_http_service(tower::service_fn(move |request| exchange.clone().send(request)));
        let sent = client.chat().create_byot::<_, ()>(body).await;
        outcome.take().unwrap_or_else(|| {
            let why = sent.err().map_or_else(|| "nothing was sent".to_owned(), |error| error.to_string());
            Err(CallError::Request(why))
        })
    }
}

#[cfg(test)]
mod tests;
