//! A receiver of webhooks over real HTTP, on a thread of its own: keeps what comes and answers as it is told.

use std::collections::{BTreeMap, VecDeque};
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Response};
use axum::routing::post;
use bytes::Bytes;
use serde_json::Value;
use tokio::net::TcpSocket;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use crate::deadline::with_deadline;

/// How one request is answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// Taken, with this status; a 2xx counts as receipt.
    Status(u16),
    /// This status, and when to come back in the header `Retry-After`.
    RetryAfter(u16, u64),
    /// Taken; the answer never comes.
    Silence,
    /// Taken; the answer comes when [`Receiver::release`] is called.
    Held,
}

/// One request as it came.
#[derive(Debug, Clone)]
pub struct Request {
    /// Header names and values.
    pub headers: HeaderMap,
    /// The body as it was sent.
    pub raw: Bytes,
    /// The body, or null when it is no JSON.
    pub body: Value,
    /// Whether it was answered as received, or may have been.
    pub taken: bool,
}

impl Request {
    /// The id of the message.
    pub fn id(&self) -> &str {
        self.body["id"].as_str().unwrap_or_default()
    }

    /// A header's text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }
}

#[derive(Debug, Default)]
struct Books {
    requests: Vec<Request>,
    /// How the next requests are answered; 200 after them.
    plan: VecDeque<Answer>,
    /// How all requests are answered while this is set.
    always: Option<Answer>,
}

#[derive(Debug, Default)]
struct Shared {
    books: Mutex<Books>,
    /// Told of each request.
    came: Notify,
    release: Notify,
    stop: CancellationToken,
}

/// A running receiver; dropping it closes its port.
#[derive(Debug)]
pub struct Receiver {
    address: SocketAddr,
    shared: Arc<Shared>,
    thread: Option<std::thread::JoinHandle<()>>,
}

// === impl Receiver ===

impl Receiver {
    /// Listens on a free port.
    pub fn start() -> Self {
        Self::start_at(0)
    }

    /// Listens on this port; 0 is a free one.
    pub fn start_at(port: u16) -> Self {
        let shared = Arc::new(Shared::default());
        let (tell, told) = std::sync::mpsc::channel();
        let its = Arc::clone(&shared);
        let thread = std::thread::Builder::new().name("receiver".to_owned()).spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
            runtime.expect("a runtime needs only file handles").block_on(async move {
                let socket = TcpSocket::new_v4().expect("IPv4 is there");
                // A receiver that comes back takes the port of the one before.
                socket.set_reuseaddr(true).expect("a fresh socket takes options");
                socket.bind(SocketAddr::from((Ipv4Addr::LOCALHOST, port))).expect("the port is free");
                let listener = socket.listen(1024).expect("a bound socket can listen");
                tell.send(listener.local_addr().expect("it is bound")).expect("the starter waits");
                let stop = its.stop.clone();
                let app = Router::new().route("/{*path}", post(receive)).with_state(its);
                tokio::spawn(async move { axum::serve(listener, app).await });
                // Leaving drops the runtime and every connection with it.
                stop.cancelled().await;
            });
        });
        let thread = Some(thread.expect("threads can be made"));
        let address = told.recv().expect("the thread tells its address first thing");
        Self { address, shared, thread }
    }

    /// Where to send to.
    pub fn url(&self) -> String {
        format!("http://{}/hook", self.address)
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.address.port()
    }

    /// Answers the next requests so, in order.
    pub fn plan(&self, answers: impl IntoIterator<Item = Answer>) {
        self.shared.books().plan.extend(answers);
    }

    /// Answers all requests so; `None` ends that.
    pub fn always(&self, answer: Option<Answer>) {
        self.shared.books().always = answer;
    }

    /// Lets the held requests of now be answered with 200.
    pub fn release(&self) {
        self.shared.release.notify_waiters();
    }

    /// All requests, in the order of their arrival.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.books().requests.clone()
    }

    /// The texts that each chat got, each message once: what a receiver shows that takes ids.
    pub fn texts(&self) -> BTreeMap<String, Vec<String>> {
        let (mut seen, mut texts) = (std::collections::BTreeSet::new(), BTreeMap::<String, Vec<String>>::new());
        for request in self.shared.books().requests.iter().filter(|request| request.taken) {
            if seen.insert(request.id().to_owned()) {
                let text = |name: &str| request.body[name].as_str().unwrap_or_default().to_owned();
                texts.entry(text("chat_id")).or_default().push(text("text"));
            }
        }
        texts
    }

    /// Waits until `enough` is true of all requests so far.
    pub async fn wait_for(&self, what: &str, enough: impl Fn(&[Request]) -> bool) -> Vec<Request> {
        with_deadline(what, async {
            loop {
                let came = self.shared.came.notified();
                let mut came = std::pin::pin!(came);
                came.as_mut().enable();
                let requests = self.requests();
                if enough(&requests) {
                    return requests;
                }
                came.await;
            }
        })
        .await
    }
}

impl Drop for Receiver {
    fn drop(&mut self) {
        self.shared.stop.cancel();
        if let Some(thread) = self.thread.take() {
            // A panic of the server was seen by its clients already.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn books(&self) -> MutexGuard<'_, Books> {
        self.books.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps a request and says how it is answered.
    fn keep(&self, headers: HeaderMap, raw: Bytes) -> Answer {
        let mut books = self.books();
        let planned = books.plan.pop_front();
        let answer = planned.or_else(|| books.always.clone()).unwrap_or(Answer::Status(200));
        let taken = match &answer {
            Answer::Status(status) | Answer::RetryAfter(status, _) => (200..300).contains(status),
            Answer::Silence | Answer::Held => true,
        };
        let body = serde_json::from_slice(&raw).unwrap_or_default();
        books.requests.push(Request { headers, raw, body, taken });
        drop(books);
        self.came.notify_waiters();
        answer
    }
}

async fn receive(State(shared): State<Arc<Shared>>, headers: HeaderMap, raw: Bytes) -> Response<Body> {
    let released = shared.release.notified();
    let mut released = std::pin::pin!(released);
    released.as_mut().enable();
    let respond = |status: u16, retry_after: Option<u64>| {
        let mut response = Response::builder().status(status);
        if let Some(seconds) = retry_after {
            response = response.header("retry-after", seconds);
        }
        response.body(Body::empty()).expect("statuses given here are valid")
    };
    match shared.keep(headers, raw) {
        Answer::Status(status) => respond(status, None),
        Answer::RetryAfter(status, seconds) => respond(status, Some(seconds)),
        Answer::Silence => {
            tokio::time::sleep(Duration::from_secs(3600)).await;
            respond(200, None)
        }
        Answer::Held => {
            released.await;
            respond(200, None)
        }
    }
}
