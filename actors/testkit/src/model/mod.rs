//! A scripted model server in OpenAI's form over real HTTP.
//!
//! It answers `echo:` and the user's own text, unless [`Config`] or directives in that text ([`domain::script`]) say
//! otherwise, and calls no tool where `tool_choice` is `none`. It counts what it sees and checks the order of the requests that carry a `[[seq=KEY:N]]`.
//!
//! [`Model::start`] serves on the current runtime, where a paused clock reaches its delays;
//! [`Model::start_on_thread`] serves on a thread of its own, for a program under test that outlives the caller's awaits.

mod answer;
mod books;
mod serve;

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;
use tokio::net::TcpSocket;
use tokio_util::sync::CancellationToken;

pub use books::{Call, Stats};
use serve::Shared;

/// Connections that may wait to be accepted; load tests open thousands at once.
const BACKLOG: u32 = 4096;

/// What every request gets when no directive says otherwise.
#[derive(Debug, Clone)]
pub struct Config {
    /// Time before the first token.
    pub delay: Duration,
    /// Pieces of an answer.
    pub tokens: usize,
    /// Time between two pieces.
    pub piece_delay: Duration,
    /// The error to answer with.
    pub error: Option<PlannedError>,
    /// If set, requests need it as bearer token.
    pub api_key: Option<String>,
    /// Whether bodies are kept for [`Model::requests`]; load runs turn it off.
    pub record: bool,
}

/// An error to answer with.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlannedError {
    /// A status, `context` or `quota`.
    pub what: String,
    /// Seconds in the `Retry-After` header of 429, 503 and 529; 1 when absent.
    pub retry_after_s: Option<u64>,
    /// How many more requests get it; all when absent.
    pub times: Option<u64>,
}

impl PlannedError {
    /// For every request from now on.
    pub fn always(what: impl ToString) -> Self {
        Self { what: what.to_string(), retry_after_s: None, times: None }
    }

    /// For the next `times` requests.
    pub fn times(what: impl ToString, times: u64) -> Self {
        Self { times: Some(times), ..Self::always(what) }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self { delay: Duration::ZERO, tokens: 1, piece_delay: Duration::ZERO, error: None, api_key: None, record: true }
    }
}

/// A running server; dropping it closes its port and breaks off what it was answering.
#[derive(Debug)]
pub struct Model {
    address: SocketAddr,
    shared: Arc<Shared>,
    stop: CancellationToken,
    thread: Option<std::thread::JoinHandle<()>>,
}

impl Model {
    /// Serves on the current tokio runtime.
    pub async fn start() -> Self {
        let (shared, stop) = (Arc::new(Shared::default()), CancellationToken::new());
        let (address, serving) = bind(shared.clone(), stop.clone());
        tokio::spawn(serving);
        Self { address, shared, stop, thread: None }
    }

    /// Serves on a thread with a runtime of its own.
    pub fn start_on_thread() -> Self {
        let (shared, stop) = (Arc::new(Shared::default()), CancellationToken::new());
        let (tell, told) = std::sync::mpsc::channel();
        let (its_shared, its_stop) = (shared.clone(), stop.clone());
        let thread = std::thread::Builder::new().name("scripted-model".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            let runtime = runtime.expect("a runtime needs only file handles");
            let until = its_stop.clone();
            runtime.block_on(async move {
                let (address, serving) = bind(its_shared, its_stop);
                tell.send(address).expect("the starter waits for the address");
                tokio::spawn(serving);
                // Leaving drops the runtime and every connection with it.
                until.cancelled().await;
            });
        });
        let thread = Some(thread.expect("threads can be made"));
        let address = told.recv().expect("the thread tells its address first thing");
        Self { address, shared, stop, thread }
    }

    /// Base URL, as a provider's `apiBase`.
    pub fn url(&self) -> String {
        format!("http://{}/v1", self.address)
    }

    /// Changes what requests get from now on.
    pub fn config(&self, change: impl FnOnce(&mut Config)) {
        self.shared.with_config(change);
    }

    /// The counters.
    pub fn stats(&self) -> Stats {
        self.shared.books.stats()
    }

    /// Bodies of the latest requests, oldest first.
    pub fn requests(&self) -> Vec<Value> {
        self.calls().into_iter().map(|call| call.body).collect()
    }

    /// The latest requests, oldest first, with what surrounded their bodies.
    pub fn calls(&self) -> Vec<Call> {
        self.shared.books.calls()
    }
}

impl Drop for Model {
    fn drop(&mut self) {
        self.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the server was seen by its clients already.
            let _ = thread.join();
        }
    }
}

/// Binds a free port of the current runtime; the future serves until `stop`.
fn bind(shared: Arc<Shared>, stop: CancellationToken) -> (SocketAddr, impl Future<Output = ()> + Send) {
    let socket = TcpSocket::new_v4().expect("IPv4 is there");
    socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, 0))).expect("loopback has free ports");
    let listener = socket.listen(BACKLOG).expect("a bound socket can listen");
    let address = listener.local_addr().expect("a bound socket has an address");
    (address, serve::run(listener, shared, stop))
}

#[cfg(test)]
mod tests;
