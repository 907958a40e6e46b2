//! The processes that are measured: this program again, as a bare server, a model or a gateway.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

/// A child of this program, killed when dropped.
pub struct Server {
    child: Child,
    /// `http://host:port`, without a path.
    pub url: String,
}

impl Server {
    /// Starts this program with `words` and waits until `ready` answers with anything but 503.
    pub async fn start(words: &[&str], port: u16, ready: &str) -> anyhow::Result<Self> {
        let server = Self::spawn(words, port)?;
        server.until_ready(ready, Duration::from_millis(50)).await?;
        Ok(server)
    }

    fn spawn(words: &[&str], port: u16) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe()?).args(words).stdout(Stdio::null()).spawn()?;
        Ok(Self { child, url: format!("http://127.0.0.1:{port}") })
    }

    async fn until_ready(&self, url: &str, look_every: Duration) -> anyhow::Result<()> {
        let client = provider::http_client()?;
        let looks = Duration::from_secs(60).as_millis() / look_every.as_millis().max(1);
        for _ in 0..looks {
            if client.get(url).send().await.is_ok_and(|reply| reply.status() != 503) {
                return Ok(());
            }
            tokio::time::sleep(look_every).await;
        }
        bail!("{url} did not become ready")
    }

    /// Process id.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// `SIGKILL`, and the end of it.
    pub fn kill(&mut self) {
        // A child that already ended needs no killing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.kill();
    }
}

/// A port that was free a moment ago.
pub fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

/// A bare server, with a model when one is given.
pub async fn start_bare(directory: &Path, model: Option<&str>) -> anyhow::Result<Server> {
    let port = free_port()?;
    let text = port.to_string();
    let mut words = vec!["bare", directory.to_str().context("a temporary directory has a plain name")?, &text];
    let model = model.map(|url| format!("{url}/v1"));
    words.extend(model.as_deref());
    Server::start(&words, port, &format!("http://127.0.0.1:{port}/")).await
}

/// A model server; answers a call when `hold` of them are there, or at once when that is 0.
pub async fn start_model(hold: usize) -> anyhow::Result<Server> {
    let port = free_port()?;
    Server::start(&["model", &port.to_string(), &hold.to_string()], port, &format!("http://127.0.0.1:{port}/held"))
        .await
}

/// A gateway on free ports.
pub struct Gateway {
    /// The process; its `url` is the API.
    pub server: Server,
    /// `ws://host:port/`.
    pub websocket: String,
    /// `http://host:port` of health and metrics.
    pub operations: String,
}

impl Gateway {
    /// Starts one on `directory`; `runtime` is its configuration of that name. Returns when it is ready.
    pub async fn start(directory: &Path, model: Option<&str>, runtime: Value) -> anyhow::Result<Self> {
        let (api, websocket, gateway) = (free_port()?, free_port()?, free_port()?);
        let mut config = json!({
            "agents": {"defaults": {"workspace": directory.join("workspace")}},
            "api": {"port": api}, "gateway": {"port": gateway}, "channels": {"websocket": {"port": websocket}},
            "runtime": runtime,
        });
        if let Some(url) = model {
            config["session"]["titles"] = false.into();
            config["providers"] = json!({"custom": {"apiBase": format!("{url}/v1")}});
            config["agents"]["defaults"]["provider"] = json!("custom");
            config["agents"]["defaults"]["model"] = json!("m");
        }
        let file = directory.join("config.json");
        std::fs::write(&file, serde_json::to_vec_pretty(&config)?)?;
        let file = file.to_str().context("a temporary directory has a plain name")?;
        let server = Server::spawn(&["gateway", file], api)?;
        let operations = format!("http://127.0.0.1:{gateway}");
        server.until_ready(&format!("{operations}/ready"), Duration::from_millis(10)).await?;
        Ok(Self { server, websocket: format!("ws://127.0.0.1:{websocket}/"), operations })
    }

    /// The value of the metric whose line begins with `name`, or 0 when there is none yet.
    pub async fn metric(&self, name: &str) -> anyhow::Result<u64> {
        let text = provider::http_client()?.get(format!("{}/metrics", self.operations)).send().await?.text().await?;
        let line = text.lines().find(|line| line.starts_with(name)).unwrap_or_default();
        Ok(line.rsplit(' ').next().and_then(|value| value.parse::<f64>().ok()).map_or(0, |value| value as u64))
    }
}
