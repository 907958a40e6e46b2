//! A gateway as a child process, and clients for its doors.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::Duration;

use futures::{SinkExt, StreamExt};
use greenroom::app::beacon::Beacon;
use serde_json::{Value, json};
use testkit::deadline::with_deadline;
use tokio::net::TcpStream;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::{MaybeTlsStream, WebSocketStream};

/// How long anything may take before a test gives up: far beyond what a loaded machine needs.
pub const PATIENCE: Duration = Duration::from_secs(120);

/// A data directory of its own.
pub struct Place {
    pub directory: tempfile::TempDir,
}

impl Place {
    /// An empty one: no configuration at all.
    pub fn empty() -> Self {
        Self::empty_in(&std::env::temp_dir())
    }

    /// An empty one below `parent`.
    pub fn empty_in(parent: &Path) -> Self {
        Self { directory: tempfile::tempdir_in(parent).unwrap() }
    }

    /// One whose doors take free ports, with `extra` merged over.
    pub fn new(extra: Value) -> Self {
        Self::new_in(&std::env::temp_dir(), extra)
    }

    /// Like [`new`](Self::new), below `parent`.
    pub fn new_in(parent: &Path, extra: Value) -> Self {
        let place = Self::empty_in(parent);
        let mut config = json!({
            "channels": {"websocket": {"port": 0}}, "api": {"port": 0}, "gateway": {"port": 0},
        });
        merge(&mut config, extra);
        place.write_config(&serde_json::to_string_pretty(&config).unwrap());
        place
    }

    /// Like [`new`](Self::new), with a model server over HTTP.
    pub fn with_model(url: &str, extra: Value) -> Self {
        Self::new(with_model(url, extra))
    }

    pub fn path(&self) -> &Path {
        self.directory.path()
    }

    pub fn write_config(&self, text: &str) {
        std::fs::write(self.path().join("config.json"), text).unwrap();
    }

    /// The program with this data directory and a clean environment.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command.args(arguments).env_clear().env("GREENROOM_HOME", self.path()).env("HOME", self.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end.
    pub fn run(&self, arguments: &[&str]) -> Output {
        self.command(arguments).output().unwrap()
    }

    /// Starts a gateway and waits until it is ready.
    pub async fn start(&self) -> Gateway {
        self.start_with(&[]).await
    }

    /// Like [`start`](Self::start), with more environment.
    pub async fn start_with(&self, environment: &[(&str, &str)]) -> Gateway {
        let mut gateway = self.spawn_with(environment);
        gateway.wait_until_ready().await;
        gateway
    }

    /// Starts a gateway and waits for nothing.
    pub fn spawn(&self) -> Gateway {
        self.spawn_with(&[])
    }

    fn spawn_with(&self, environment: &[(&str, &str)]) -> Gateway {
        // Not in the data directory, which may be full.
        let log = tempfile::NamedTempFile::new().unwrap();
        let stderr = log.reopen().unwrap();
        let child = self
            .command(&["gateway"])
            .envs(environment.iter().copied())
            .stdout(Stdio::null())
            .stderr(stderr)
            .spawn()
            .unwrap();
        Gateway { child, run: self.path().join("run"), log }
    }

    /// All supervision events, oldest first.
    pub fn events(&self) -> Vec<Value> {
        let rotated = (1..).map(|number| format!("logs/supervision.{number}.jsonl"));
        let rotated: Vec<_> = rotated.map_while(|name| std::fs::read_to_string(self.path().join(name)).ok()).collect();
        let newest = std::fs::read_to_string(self.path().join("logs/supervision.jsonl")).unwrap_or_default();
        let lines = rotated.iter().rev().chain([&newest]).flat_map(|text| text.lines());
        lines.map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The transcript lines of a session, the header left out.
    pub fn transcript(&self, stem: &str) -> Vec<Value> {
        let file = self.path().join(format!("workspace/sessions/{stem}.jsonl"));
        let text = std::fs::read_to_string(&file).unwrap_or_else(|error| panic!("{}: {error}", file.display()));
        let lines: Vec<&str> = text.lines().collect();
        let parse = |(number, line): (usize, &&str)| {
            serde_json::from_str(line).unwrap_or_else(|error| {
                let (lines, tail) = (lines.len(), line.get(line.len().saturating_sub(100)..).unwrap_or_default());
                panic!("{}: line {} of {lines}: {error}; it ends with {tail:?}", file.display(), number + 1)
            })
        };
        lines.iter().enumerate().skip(1).map(parse).collect()
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("{} is kept", self.path().display());
            self.directory.disable_cleanup(true);
        }
    }
}

/// The program under test: the one built along with the tests, or what `GREENROOM_BIN` names.
pub fn program() -> std::ffi::OsString {
    std::env::var_os("GREENROOM_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_greenroom").into())
}

/// A configuration that names a model server over HTTP, with `extra` merged over.
pub fn with_model(url: &str, extra: Value) -> Value {
    let mut config = json!({
        "agents": {"defaults": {"provider": "custom", "model": "scripted"}},
        "providers": {"custom": {"apiBase": url}},
        // So that the model is asked for nothing but answers.
        "session": {"titles": false},
    });
    merge(&mut config, extra);
    config
}

/// (role, text) of each message of a transcript.
pub fn said(lines: &[Value]) -> Vec<(String, String)> {
    lines
        .iter()
        .filter(|line| line["type"] == "message")
        .map(|line| {
            let message = &line["message"];
            let content = &message["content"];
            let blocks = content.as_array().into_iter().flatten().filter_map(|block| block["text"].as_str());
            let text = content.as_str().into_iter().chain(blocks).collect::<Vec<_>>().join("\n");
            (message["role"].as_str().unwrap().to_owned(), text)
        })
        .collect()
}

pub fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert(Value::Null), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// A running gateway; killed when dropped.
pub struct Gateway {
    child: Child,
    run: PathBuf,
    log: tempfile::NamedTempFile,
}

impl Gateway {
    async fn wait_until_ready(&mut self) {
        let ready = tokio::time::timeout(PATIENCE, async {
            while !self.is_ready().await {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        });
        assert!(ready.await.is_ok(), "the gateway is not ready after {PATIENCE:?}");
    }

    async fn is_ready(&mut self) -> bool {
        let Some(beacon) = self.listening() else { return false };
        let ready = provider::http_client().unwrap().get(format!("{}/ready", beacon.admin_url)).send().await;
        ready.is_ok_and(|reply| reply.status() == 200)
    }

    /// Where it listens, once it does.
    pub fn listening(&mut self) -> Option<Beacon> {
        if let Some(status) = self.child.try_wait().unwrap() {
            panic!("the gateway ended with {status}: {}", self.complaints());
        }
        // A beacon of a killed predecessor names another process.
        Beacon::read(&self.run).filter(|beacon| beacon.pid == self.child.id())
    }

    /// Waits until it listens: its doors may be open before it is ready.
    pub async fn wait_until_listening(&mut self) -> Beacon {
        let listening = tokio::time::timeout(PATIENCE, async {
            loop {
                match self.listening() {
                    Some(beacon) => return beacon,
                    None => tokio::time::sleep(Duration::from_millis(5)).await,
                }
            }
        });
        listening.await.unwrap_or_else(|_| panic!("the gateway does not listen after {PATIENCE:?}"))
    }

    /// What it wrote to its standard error.
    fn complaints(&self) -> String {
        std::fs::read_to_string(self.log.path()).unwrap_or_default()
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn beacon(&self) -> Beacon {
        Beacon::read(&self.run).unwrap()
    }

    pub fn api(&self) -> String {
        self.beacon().api_url.unwrap()
    }

    /// SIGKILL, and waits for the end.
    pub fn kill_nine(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// SIGTERM, and waits for the end; returns the exit code.
    pub async fn terminate(self) -> Option<i32> {
        self.signal("TERM");
        self.ended().await
    }

    /// Waits for the end; returns the exit code, if no signal was the end.
    pub async fn ended(mut self) -> Option<i32> {
        let wait = tokio::task::spawn_blocking(move || self.child.wait().unwrap().code());
        with_deadline("orderly stop", wait).await.unwrap()
    }

    pub fn signal(&self, name: &str) {
        let status = Command::new("kill").args([&format!("-{name}"), &self.child.id().to_string()]).status().unwrap();
        assert!(status.success());
    }

    pub async fn get(&self, path: &str) -> (u16, String) {
        let url = format!("{}{path}", self.beacon().admin_url);
        let reply = provider::http_client().unwrap().get(url).send().await.unwrap();
        (reply.status().as_u16(), reply.text().await.unwrap())
    }

    /// `GET /admin/v1/…` with the token.
    pub async fn admin(&self, path: &str) -> Value {
        let beacon = self.beacon();
        let url = format!("{}/admin/v1/{path}", beacon.admin_url);
        let reply = provider::http_client().unwrap().get(url).bearer_auth(&beacon.token).send().await.unwrap();
        reply.json().await.unwrap()
    }

    /// `POST /admin/v1/…` with the token and no body.
    pub async fn post(&self, path: String) -> Value {
        let beacon = self.beacon();
        let url = format!("{}/admin/v1/{path}", beacon.admin_url);
        let reply = provider::http_client().unwrap().post(url).bearer_auth(&beacon.token).send().await.unwrap();
        reply.json().await.unwrap()
    }

    /// Says something to any session through the admin API and waits for the end of its turn: the word for it.
    pub async fn say(&self, key: &str, text: &str, message_id: &str) -> String {
        let beacon = self.beacon();
        let key = key.replace('/', "%2F").replace(':', "%3A");
        let url = format!("{}/admin/v1/sessions/{key}/messages", beacon.admin_url);
        let body = json!({"content": text, "message_id": message_id});
        let request = provider::http_client().unwrap().post(url).bearer_auth(&beacon.token).json(&body);
        let answer = async {
            let reply = request.send().await;
            reply.unwrap_or_else(|error| panic!("{key}: {error:?}: {}", self.complaints())).text().await.unwrap()
        };
        let answer = with_deadline("a turn through the admin API", answer).await;
        let last: Value = serde_json::from_str(answer.lines().last().unwrap_or_default()).unwrap();
        last["result"].as_str().unwrap_or_else(|| panic!("{key}: {answer}")).to_owned()
    }

    /// Waits until no turn is open, and the transcripts have what there is.
    pub async fn settle(&self) {
        let settled = tokio::time::timeout(PATIENCE, async {
            while !self.is_settled().await {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(settled.await.is_ok(), "turns are still open: {}", self.admin("status").await);
    }

    async fn is_settled(&self) -> bool {
        let status = self.admin("status").await;
        // A session that has let go of its turn has counted the lines that its transcript lacks.
        status["journal"]["open"] == 0
            && status["turns_running"] == 0
            && self.get("/metrics").await.1.contains("\ngreenroom_view_lag_bytes 0\n")
    }

    /// Waits until no turn is open and nothing waits to be delivered.
    pub async fn delivered(&self) {
        self.settle().await;
        let empty = tokio::time::timeout(PATIENCE, async {
            while self.admin("status").await["journal"]["outbox"] != 0 {
                tokio::time::sleep(Duration::from_millis(20)).await;
            }
        });
        assert!(empty.await.is_ok(), "{}", self.admin("status").await);
    }

    pub async fn websocket(&self, query: &str) -> Socket {
        let url = format!("{}{query}", self.beacon().websocket_url.unwrap());
        let (stream, _) = with_deadline("websocket handshake", tokio_tungstenite::connect_async(url)).await.unwrap();
        Socket(stream)
    }

    /// A client from elsewhere, as a proxy on this machine lets it in.
    pub async fn websocket_through_a_proxy(&self) -> Socket {
        let mut request = self.beacon().websocket_url.unwrap().into_client_request().unwrap();
        request.headers_mut().insert("x-forwarded-for", "192.0.2.7".parse().unwrap());
        let connecting = tokio_tungstenite::connect_async(request);
        let (stream, _) = with_deadline("websocket handshake", connecting).await.unwrap();
        Socket(stream)
    }

    /// A WebSocket client that was told that the door is ready.
    pub async fn client(&self) -> Socket {
        let mut socket = self.websocket("").await;
        socket.until("ready").await;
        socket
    }

    /// One plain request to the API.
    pub async fn chat(&self, body: Value, idempotency_key: Option<&str>) -> (u16, Value) {
        let mut request = provider::http_client().unwrap().post(format!("{}/chat/completions", self.api())).json(&body);
        if let Some(key) = idempotency_key {
            request = request.header("idempotency-key", key);
        }
        let reply = with_deadline("chat completion", request.send()).await.unwrap();
        (reply.status().as_u16(), reply.json().await.unwrap())
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        // It may have been ended by the test itself.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// A WebSocket client.
pub struct Socket(WebSocketStream<MaybeTlsStream<TcpStream>>);

impl Socket {
    /// Connects; `None` when nobody answers as a WebSocket server does.
    pub async fn connect(url: &str) -> Option<Self> {
        let connecting = tokio_tungstenite::connect_async(url);
        let (stream, _) = with_deadline("websocket handshake", connecting).await.ok()?;
        Some(Self(stream))
    }

    /// Sends if the server is still there, and says whether it seems so.
    pub async fn try_send(&mut self, frame: &Value) -> bool {
        self.0.send(Message::text(frame.to_string())).await.is_ok()
    }

    pub async fn send(&mut self, frame: Value) {
        self.send_raw(Message::text(frame.to_string())).await;
    }

    pub async fn send_raw(&mut self, frame: Message) {
        self.0.send(frame).await.unwrap();
    }

    /// The next event, or `None` when the server closed.
    pub async fn next(&mut self) -> Option<Value> {
        loop {
            let next = tokio::time::timeout(PATIENCE, self.0.next()).await;
            match next.expect("a websocket event comes in time")? {
                Ok(Message::Text(text)) => return Some(serde_json::from_str(&text).unwrap()),
                Ok(Message::Close(_)) | Err(_) => return None,
                Ok(Message::Binary(_) | Message::Ping(_) | Message::Pong(_) | Message::Frame(_)) => {}
            }
        }
    }

    /// Skips events until one of this name.
    pub async fn until(&mut self, event: &str) -> Value {
        loop {
            let next = self.next().await.unwrap_or_else(|| panic!("closed while waiting for {event}"));
            if next["event"] == event {
                return next;
            }
        }
    }

    pub async fn say(&mut self, chat: &str, text: &str, message_id: &str) {
        self.send(json!({"type": "message", "chat_id": chat, "content": text, "message_id": message_id})).await;
    }
}
