//! The load: closed loops over HTTP, with reqwest and with a client written by hand.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use serde::Serialize;
use serde_json::json;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

/// What one run gave.
#[derive(Debug, Clone, Serialize)]
pub struct Measured {
    /// Turns per second.
    pub turns_per_s: f64,
    /// Median, milliseconds.
    pub p50_ms: f64,
    /// 99th percentile, milliseconds.
    pub p99_ms: f64,
    /// CPU of the server process per turn, microseconds.
    pub cpu_us_per_turn: f64,
    /// Turns that failed.
    pub failed: u64,
}

/// How a run is made.
#[derive(Debug, Clone)]
pub struct Run {
    /// `http://host:port`.
    pub url: String,
    /// Closed loops at once.
    pub connections: usize,
    /// Different users, taken in turn.
    pub users: u64,
    /// How long.
    pub length: Duration,
    /// Process whose CPU counts.
    pub pid: u32,
}

/// The body of one request.
pub fn body(user: u64) -> Vec<u8> {
    let turn =
        json!({"model": null, "user": format!("u{user}"), "messages": [{"role": "user", "content": "x".repeat(200)}]});
    serde_json::to_vec(&turn).expect("writing to memory succeeds")
}

/// Closed loops with reqwest.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub async fn with_reqwest(run: &Run) -> anyhow::Result<Measured> {
    let client = provider::http_client()?;
    let next = Arc::new(AtomicU64::new(0));
    let cpu = cpu_us(run.pid)?;
    let begin = Instant::now();
    let tasks: Vec<_> = (0..run.connections)
        .map(|_| {
            let (client, next, run) = (client.clone(), next.clone(), run.clone());
            tokio::spawn(async move {
                let (mut times, mut failed) = (Vec::new(), 0);
                while begin.elapsed() < run.length {
                    let user = next.fetch_add(1, Ordering::Relaxed) % run.users;
                    let start = Instant::now();
                    match turn(&client, &run.url, user).await {
                        Ok(()) => times.push(start.elapsed()),
                        Err(_) => failed += 1,
                    }
                }
                (times, failed)
            })
        })
        .collect();
    collect(tasks, begin, cpu, run.pid).await
}

/// One turn of one user.
pub async fn turn(client: &reqwest::Client, url: &str, user: u64) -> reqwest::Result<()> {
    ask(client, url, body(user)).await
}

async fn ask(client: &reqwest::Client, url: &str, body: Vec<u8>) -> reqwest::Result<()> {
    let request = client.post(format!("{url}/v1/chat/completions")).header("content-type", "application/json");
    request.body(body).send().await?.error_for_status()?.bytes().await?;
    Ok(())
}

/// Closed loops with a keep-alive client that does the least possible.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub async fn by_hand(run: &Run) -> anyhow::Result<Measured> {
    let address = run.url.trim_start_matches("http://").to_owned();
    let next = Arc::new(AtomicU64::new(0));
    let cpu = cpu_us(run.pid)?;
    let begin = Instant::now();
    let tasks: Vec<_> = (0..run.connections)
        .map(|_| {
            let (next, run, address) = (next.clone(), run.clone(), address.clone());
            tokio::spawn(async move {
                let mut stream = TcpStream::connect(&address).await.expect("the server listens");
                stream.set_nodelay(true).expect("a TCP socket takes this option");
                let (mut times, mut buffer) = (Vec::new(), vec![0u8; 16 << 10]);
                while begin.elapsed() < run.length {
                    let user = next.fetch_add(1, Ordering::Relaxed) % run.users;
                    let start = Instant::now();
                    exchange(&mut stream, &body(user), &mut buffer).await.expect("the server answers");
                    times.push(start.elapsed());
                }
                (times, 0)
            })
        })
        .collect();
    collect(tasks, begin, cpu, run.pid).await
}

async fn exchange(stream: &mut TcpStream, body: &[u8], buffer: &mut [u8]) -> std::io::Result<()> {
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    stream.write_all(&[head.as_bytes(), body].concat()).await?;
    let mut have = 0;
    loop {
        let got = stream.read(&mut buffer[have..]).await?;
        if got == 0 {
            return Err(std::io::ErrorKind::UnexpectedEof.into());
        }
        have += got;
        if let Some(total) = response_length(&buffer[..have])
            && have >= total
        {
            return Ok(());
        }
    }
}

fn response_length(bytes: &[u8]) -> Option<usize> {
    let head = bytes.windows(4).position(|four| four == b"\r\n\r\n")?;
    let text = std::str::from_utf8(&bytes[..head]).ok()?.to_ascii_lowercase();
    let length = text.lines().find_map(|line| line.strip_prefix("content-length:"))?;
    Some(head + 4 + length.trim().parse::<usize>().ok()?)
}

type Task = tokio::task::JoinHandle<(Vec<Duration>, u64)>;

async fn collect(tasks: Vec<Task>, begin: Instant, cpu: u64, pid: u32) -> anyhow::Result<Measured> {
    let (mut times, mut failed) = (Vec::new(), 0);
    for task in tasks {
        let (more, bad) = task.await?;
        times.extend(more);
        failed += bad;
    }
    let seconds = begin.elapsed().as_secs_f64();
    let used = cpu_us(pid)? - cpu;
    let (p50_ms, p99_ms) = percentiles(&mut times);
    Ok(Measured {
        turns_per_s: (times.len() as f64 / seconds).round(),
        p50_ms,
        p99_ms,
        cpu_us_per_turn: used as f64 / times.len().max(1) as f64,
        failed,
    })
}

/// The median and the 99th percentile, milliseconds.
pub fn percentiles(times: &mut [Duration]) -> (f64, f64) {
    times.sort_unstable();
    let at = |share: f64| {
        let index = ((times.len() as f64 * share) as usize).min(times.len().saturating_sub(1));
        times.get(index).map_or(0.0, |time| time.as_secs_f64() * 1000.0)
    };
    (at(0.5), at(0.99))
}

/// User and system time of a process so far, microseconds (from `/proc/<pid>/stat`, fields 14 and 15, in ticks of 10 ms).
pub fn cpu_us(pid: u32) -> anyhow::Result<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat"))?;
    let after_name = stat.rsplit(')').next().unwrap_or_default();
    let fields: Vec<&str> = after_name.split_whitespace().collect();
    let ticks: u64 = [11, 12].iter().filter_map(|at| fields.get(*at)?.parse::<u64>().ok()).sum();
    Ok(ticks * 10_000)
}

/// Resident memory of a process, bytes.
pub fn rss(pid: u32) -> anyhow::Result<u64> {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).unwrap_or_default();
    Ok(line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).unwrap_or(0) * 1024)
}

/// Turns with much text, until the log uses its segments again, as in a gateway that has served for a while. The bare
/// server has its whole log from the start. Their sessions end at once, so no conversation stays in memory.
pub async fn age(url: &str) -> anyhow::Result<()> {
    const TEXTS: usize = 240;
    const TEXT_BYTES: usize = 1 << 20;
    let client = provider::http_client()?;
    let said = |role: &str, text: &str| json!({"role": role, "content": text});
    let messages = [said("user", "hi"), said("assistant", "hi"), said("user", &"x".repeat(TEXT_BYTES))];
    let whole = serde_json::to_vec(&json!({"messages": messages}))?;
    for _ in 0..TEXTS {
        ask(&client, url, whole.clone()).await?;
    }
    Ok(())
}

/// One turn for each of `sessions` different users.
pub async fn each_once(url: &str, sessions: u64) -> anyhow::Result<()> {
    let client = provider::http_client()?;
    let next = Arc::new(AtomicU64::new(0));
    let tasks: Vec<_> = (0..64)
        .map(|_| {
            let (client, next, url) = (client.clone(), next.clone(), url.to_owned());
            tokio::spawn(async move {
                loop {
                    let user = next.fetch_add(1, Ordering::Relaxed);
                    if user >= sessions {
                        return Ok::<(), reqwest::Error>(());
                    }
                    turn(&client, &url, user).await?;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await??;
    }
    Ok(())
}
