//! Measures what this machine can serve, next to the ceilings that the same machine sets in the same run.
//! Prints one JSON object. `--quick` makes every run short.
//!
//! C1 durable turns over HTTP with a client written by hand, C2 the same with reqwest, C2m with one model call over HTTP
//! besides, C3 in process. The product is driven with reqwest, so its ratios are to C2 and C2m.

mod bare;
mod load;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::{Value, json};

use load::{Measured, Run};

// As in the program itself.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USERS: u64 = 5_000;

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["bare", directory, port] => greenroom::run(bare::serve(Path::new(directory), port.parse()?, None)),
        ["bare", directory, port, model] => {
            greenroom::run(bare::serve(Path::new(directory), port.parse()?, Some(model)))
        }
        ["gateway", config] => std::process::exit(greenroom::main_with(["greenroom", "--config", config, "gateway"])),
        ["model", port] => greenroom::run(serve_model(port.parse()?)),
        [] => greenroom::run(measure(Effort { length: Duration::from_secs(4), rounds: 3 }, &[1_000, 10_000, 100_000])),
        ["--quick"] => greenroom::run(measure(Effort { length: Duration::from_secs(1), rounds: 1 }, &[1_000])),
        _ => bail!("usage: capacity [--quick]"),
    }
}

async fn serve_model(port: u16) -> anyhow::Result<()> {
    let answer = || async {
        axum::Json(json!({"id": "x", "object": "chat.completion", "created": 0, "model": "m", "choices": [
            {"index": 0, "message": {"role": "assistant", "content": "echo"}, "finish_reason": "stop"}]}))
    };
    let stream = "data: {\"choices\":[{\"index\":0,\"delta\":{\"content\":\"echo\"},\"finish_reason\":\"stop\"}]}\n\ndata: [DONE]\n\n";
    let route = axum::routing::post(move |body: axum::Json<Value>| async move {
        use axum::response::IntoResponse;
        if body["stream"] == true {
            ([("content-type", "text/event-stream")], stream).into_response()
        } else {
            answer().await.into_response()
        }
    });
    let app = axum::Router::new().route("/v1/chat/completions", route);
    axum::serve(tokio::net::TcpListener::bind(("127.0.0.1", port)).await?, app).await?;
    Ok(())
}

/// A child of this program, killed when dropped.
struct Server {
    child: Child,
    url: String,
}

impl Server {
    async fn start(words: &[&str], port: u16, ready: &str) -> anyhow::Result<Self> {
        let child = Command::new(std::env::current_exe()?).args(words).stdout(Stdio::null()).spawn()?;
        let server = Self { child, url: format!("http://127.0.0.1:{port}/v1") };
        let client = provider::http_client()?;
        for _ in 0..200 {
            if client.get(ready).send().await.is_ok_and(|reply| reply.status() != 503) {
                return Ok(server);
            }
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
        bail!("{words:?} did not become ready")
    }

    fn run(&self, connections: usize, length: Duration) -> Run {
        Run { url: self.url.clone(), connections, users: USERS, length, pid: self.child.id() }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // A child that already ended needs no killing.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn free_port() -> anyhow::Result<u16> {
    Ok(std::net::TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

async fn start_bare(directory: &Path, model: Option<&str>) -> anyhow::Result<Server> {
    let port = free_port()?;
    let text = port.to_string();
    let mut words = vec!["bare", directory.to_str().context("a temporary directory has a plain name")?, &text];
    words.extend(model);
    Server::start(&words, port, &format!("http://127.0.0.1:{port}/")).await
}

/// A gateway in a fresh directory; `runtime` is merged into its configuration.
async fn start_gateway(directory: &Path, model: Option<&str>, runtime: Value) -> anyhow::Result<Server> {
    let (api, gateway) = (free_port()?, free_port()?);
    let mut config = json!({
        "agents": {"defaults": {"workspace": directory.join("workspace")}},
        "api": {"port": api}, "gateway": {"port": gateway}, "channels": {"websocket": {"enabled": false}},
        "runtime": runtime,
    });
    if let Some(url) = model {
        config["providers"] = json!({"custom": {"apiBase": url}});
        config["agents"]["defaults"]["provider"] = json!("custom");
        config["agents"]["defaults"]["model"] = json!("m");
    }
    let file = directory.join("config.json");
    std::fs::write(&file, serde_json::to_vec_pretty(&config)?)?;
    let file = file.to_str().context("a temporary directory has a plain name")?;
    Server::start(&["gateway", file], api, &format!("http://127.0.0.1:{gateway}/ready")).await
}

/// Memory with `sessions` sessions that each had one turn; `idle_s` decides whether they are still live.
async fn memory(sessions: u64, idle_s: u64) -> anyhow::Result<Value> {
    let directory = tempfile::tempdir()?;
    let runtime = json!({"idleSeconds": idle_s, "contextSeconds": 1, "maxLiveSessions": 200_000});
    let server = start_gateway(directory.path(), None, runtime).await?;
    let empty = load::rss(server.child.id())?;
    load::each_once(&server.url, sessions).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let full = load::rss(server.child.id())?;
    Ok(json!({"sessions": sessions, "rss_bytes": full, "rss_empty_bytes": empty,
        "bytes_per_session": full.saturating_sub(empty) / sessions}))
}

/// A ceiling and the product under the same load, taken in turns, so that whatever else the machine does meets both.
struct Pair {
    bare: Measured,
    product: Measured,
}

async fn compare(bare: &Server, product: &Server, connections: usize, effort: Effort) -> anyhow::Result<Pair> {
    let (mut bares, mut products) = (Vec::new(), Vec::new());
    for _ in 0..effort.rounds {
        bares.push(load::with_reqwest(&bare.run(connections, effort.length)).await?);
        products.push(load::with_reqwest(&product.run(connections, effort.length)).await?);
    }
    Ok(Pair { bare: median(bares), product: median(products) })
}

/// The run with the middle rate.
fn median(mut runs: Vec<Measured>) -> Measured {
    runs.sort_by(|a, b| a.turns_per_s.total_cmp(&b.turns_per_s));
    runs.swap_remove(runs.len() / 2)
}

/// How long and how often.
#[derive(Clone, Copy)]
struct Effort {
    length: Duration,
    rounds: usize,
}

async fn measure(effort: Effort, sizes: &[u64]) -> anyhow::Result<()> {
    let (scratch, place) = (tempfile::tempdir()?, tempfile::tempdir()?);
    let bare = start_bare(scratch.path(), None).await?;
    let gateway = start_gateway(place.path(), None, json!({})).await?;
    // A first run opens the sessions; what it costs is in the memory figures, not in these.
    load::with_reqwest(&gateway.run(64, effort.length)).await?;
    let c1 = load::by_hand(&bare.run(64, effort.length)).await?;
    let at_64 = compare(&bare, &gateway, 64, effort).await?;
    let at_512 = compare(&bare, &gateway, 512, effort).await?;
    drop((bare, gateway));
    let c3 = bare::in_process(scratch.path(), 1024, effort.length).await?;

    let port = free_port()?;
    let model = Server::start(&["model", &port.to_string()], port, &format!("http://127.0.0.1:{port}/")).await?;
    let place = tempfile::tempdir()?;
    let bare = start_bare(scratch.path(), Some(&model.url)).await?;
    let gateway = start_gateway(place.path(), Some(&model.url), json!({})).await?;
    load::with_reqwest(&gateway.run(64, effort.length)).await?;
    let model_64 = compare(&bare, &gateway, 64, effort).await?;
    let model_512 = compare(&bare, &gateway, 512, effort).await?;
    drop((bare, gateway, model));

    let (mut live, mut passivated) = (Vec::new(), Vec::new());
    for size in sizes {
        live.push(memory(*size, 3_600).await?);
        passivated.push(memory(*size, 1).await?);
    }
    let ratio = |pair: &Pair| share(pair.product.turns_per_s, pair.bare.turns_per_s);
    let report = json!({
        "ratios": {
            "to_c1": share(at_64.product.turns_per_s, c1.turns_per_s), "to_c2": ratio(&at_64),
            "to_c2_512": ratio(&at_512), "to_c2m": ratio(&model_64), "to_c2m_512": ratio(&model_512),
            "to_c3": share(at_64.product.turns_per_s, c3),
        },
        "ceilings": {"c1": c1, "c2": at_64.bare, "c2_512": at_512.bare, "c2m": model_64.bare,
            "c2m_512": model_512.bare, "c3_turns_per_s": c3.round()},
        "api_in_process_model": {"64": at_64.product, "512": at_512.product},
        "api_model_over_http": {"64": model_64.product, "512": model_512.product},
        "memory": {"live": live, "passivated": passivated},
    });
    println!("{}", serde_json::to_string_pretty(&report)?);
    Ok(())
}

/// `a / b`, to three digits.
fn share(a: f64, b: f64) -> f64 {
    (a / b * 1000.0).round() / 1000.0
}
