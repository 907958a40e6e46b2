//! The ceilings: the least that a durable chat server of this shape can cost on this machine.
//! An axum server parses a turn, an actor on one of the arbiters handles it, a thread writes two lines with group commit
//! into a preallocated file, and the answer leaves after the sync. No sessions, no dedupe, no supervision.

use std::io::{self, Write};
use std::sync::mpsc;
use std::time::Duration;

use actix::{Actor, Context, Handler, Message, ResponseFuture};
use axum::extract::State;
use axum::routing::post;
use axum::{Json, Router};
use serde_json::{Value, json};
use tokio::sync::oneshot;

const FILE_BYTES: u64 = 256 << 20;
const BATCH_MAX: usize = 4096;

type Waiter = (Vec<u8>, oneshot::Sender<()>);

/// One thread, one preallocated file, one `fdatasync` per batch.
#[derive(Clone)]
pub struct Wal(mpsc::Sender<Waiter>);

impl Wal {
    /// Writes into `path`.
    pub fn start(path: &std::path::Path) -> io::Result<Self> {
        let mut file = std::fs::File::create(path)?;
        let zeros = vec![0u8; 1 << 20];
        for _ in 0..(FILE_BYTES >> 20) {
            file.write_all(&zeros)?;
        }
        file.sync_all()?;
        let (tx, rx) = mpsc::channel::<Waiter>();
        std::thread::spawn(move || {
            use std::os::unix::fs::FileExt;
            let mut at = 0u64;
            let mut batch = Vec::new();
            let mut waiters = Vec::new();
            while let Ok((bytes, done)) = rx.recv() {
                batch.extend_from_slice(&bytes);
                waiters.push(done);
                while waiters.len() < BATCH_MAX {
                    let Ok((bytes, done)) = rx.try_recv() else { break };
                    batch.extend_from_slice(&bytes);
                    waiters.push(done);
                }
                if at + batch.len() as u64 > FILE_BYTES {
                    at = 0;
                }
                file.write_all_at(&batch, at).expect("the bare log can be written");
                file.sync_data().expect("the bare log can be synced");
                at += batch.len() as u64;
                batch.clear();
                for done in waiters.drain(..) {
                    let _ = done.send(());
                }
            }
        });
        Ok(Self(tx))
    }

    /// Returns once `bytes` are on the device.
    pub async fn append(&self, bytes: Vec<u8>) {
        let (done, wait) = oneshot::channel();
        self.0.send((bytes, done)).expect("the log thread lives");
        wait.await.expect("the log thread answers");
    }
}

struct Turns {
    wal: Wal,
    model: Option<(reqwest::Client, String)>,
}

impl Actor for Turns {
    type Context = Context<Self>;
}

#[derive(Message)]
#[rtype(result = "String")]
struct Turn(Value);

impl Handler<Turn> for Turns {
    type Result = ResponseFuture<String>;
    fn handle(&mut self, turn: Turn, _: &mut Context<Self>) -> Self::Result {
        let (wal, model) = (self.wal.clone(), self.model.clone());
        Box::pin(async move {
            let text = turn.0["messages"][0]["content"].as_str().unwrap_or_default().to_owned();
            let answer = match model {
                None => format!("echo:{text}"),
                Some((client, url)) => ask_model(&client, &url, &turn.0).await,
            };
            wal.append(two_lines(&text, &answer)).await;
            answer
        })
    }
}

async fn ask_model(client: &reqwest::Client, url: &str, turn: &Value) -> String {
    let reply: Value = client
        .post(format!("{url}/chat/completions"))
        .json(turn)
        .send()
        .await
        .expect("the model answers")
        .json()
        .await
        .expect("the model speaks JSON");
    reply["choices"][0]["message"]["content"].as_str().unwrap_or_default().to_owned()
}

fn two_lines(text: &str, answer: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(1024);
    for (role, text) in [("user", text), ("assistant", answer)] {
        let line = json!({"type": "message", "id": "0123456789abcdef", "parentId": "0123456789abcdef",
            "timestamp": "2026-01-01T00:00:00.000Z", "message": {"role": role, "content": text}});
        serde_json::to_writer(&mut bytes, &line).expect("writing to memory succeeds");
        bytes.push(b'\n');
    }
    bytes
}

#[expect(clippy::disallowed_methods, reason = "the bare server has no supervisor; that is the point of it")]
fn actors(wal: &Wal, model: Option<&str>) -> Vec<actix::Addr<Turns>> {
    (0..2)
        .map(|_| {
            let (wal, url) = (wal.clone(), model.map(str::to_owned));
            Turns::start_in_arbiter(&actix::Arbiter::new().handle(), move |_| Turns {
                wal,
                model: url.map(|url| (provider::http_client().expect("a client can be made"), url)),
            })
        })
        .collect()
}

#[expect(clippy::disallowed_methods, reason = "the bare server has no supervisor; that is the point of it")]
async fn handle(State(actors): State<Vec<actix::Addr<Turns>>>, Json(turn): Json<Value>) -> Json<Value> {
    let user = turn["user"].as_str().unwrap_or_default();
    let shard = user.bytes().fold(0usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into())) % actors.len();
    let answer = actors[shard].send(Turn(turn)).await.expect("the actor lives");
    Json(json!({"id": "x", "object": "chat.completion", "created": 0, "model": "bare",
        "choices": [{"index": 0, "message": {"role": "assistant", "content": answer}, "finish_reason": "stop"}]}))
}

/// Serves until killed; the child process of the benchmark.
pub async fn serve(directory: &std::path::Path, port: u16, model: Option<&str>) -> anyhow::Result<()> {
    let wal = Wal::start(&directory.join("bare.log"))?;
    let app = Router::new().route("/v1/chat/completions", post(handle)).with_state(actors(&wal, model));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", port)).await?;
    axum::serve(listener, app).await?;
    Ok(())
}

/// C3: durable turns per second inside one process, without HTTP.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub async fn in_process(directory: &std::path::Path, concurrency: usize, run: Duration) -> anyhow::Result<f64> {
    let wal = Wal::start(&directory.join("c3.log"))?;
    let actors = actors(&wal, None);
    let begin = std::time::Instant::now();
    let tasks: Vec<_> = (0..concurrency)
        .map(|task| {
            let actor = actors[task % actors.len()].clone();
            tokio::spawn(async move {
                let mut done = 0u64;
                while begin.elapsed() < run {
                    let turn = json!({"messages": [{"role": "user", "content": "x".repeat(200)}]});
                    actor.send(Turn(turn)).await.expect("the actor lives");
                    done += 1;
                }
                done
            })
        })
        .collect();
    let mut total = 0;
    for task in tasks {
        total += task.await?;
    }
    Ok(total as f64 / begin.elapsed().as_secs_f64())
}
