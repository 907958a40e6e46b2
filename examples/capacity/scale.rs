//! How far one process goes: control messages under load, turns in flight, model connections, and a start with work left.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, ensure};
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::Message;

use crate::flood::{Frame, Tally, Until, connect, flood, message};
use crate::load;
use crate::server::{Gateway, start_model};

/// How often something is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// Longest that one measurement may take.
const PATIENCE: Duration = Duration::from_secs(600);

/// How much of each.
#[derive(Debug, Clone, Copy)]
pub struct Size {
    /// Turns that run while control messages are asked.
    pub running: u64,
    /// Control messages.
    pub asks: u64,
    /// Turns in flight.
    pub in_flight: u64,
    /// How long each of them takes.
    pub delay: Duration,
    /// Model calls over HTTP at once.
    pub model_calls: u64,
    /// Turns that a killed gateway leaves to the next one.
    pub unfinished: u64,
}

/// All four.
pub async fn measure(size: Size) -> anyhow::Result<Value> {
    Ok(json!({
        "control": control(size).await?,
        "in_flight": in_flight(size).await?,
        "model_connections": model_connections(size.model_calls).await?,
        "boot": boot(size.unfinished).await?,
    }))
}

/// `/status` to a session whose inbox is full, while `running` turns of other sessions write their answers.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
async fn control(size: Size) -> anyhow::Result<Value> {
    let directory = tempfile::tempdir()?;
    let gateway = Gateway::start(directory.path(), None, json!({})).await?;
    let url = gateway.websocket.clone();
    // Answers of 10 minutes, one piece each second: they outlast the asking.
    let text = "[[tokens=600;itd=1000]] x";
    let chatter = flood(&url, size.running, text, Until::Accepted, Arc::default()).await?;
    let stop = Arc::new(AtomicBool::new(false));
    let readers: Vec<_> = chatter
        .into_iter()
        .map(|mut socket| {
            let stop = stop.clone();
            tokio::spawn(async move { while !stop.load(Ordering::Relaxed) && socket.next().await.is_some() {} })
        })
        .collect();
    let mut socket = connect(&url).await?;
    let mut refused = false;
    for id in 0.. {
        socket.send(message("busy", "[[delay=600000]] x", id)).await?;
        if next(&mut socket, |frame| matches!(frame.event.as_ref(), "accepted" | "error")).await? == "error" {
            refused = true;
            break;
        }
    }
    ensure!(refused, "the inbox never filled");
    let mut times = Vec::new();
    for id in 0..size.asks {
        let begin = Instant::now();
        socket.send(message("busy", "/status", 1_000_000 + id)).await?;
        next(&mut socket, |frame| frame.control && frame.event == "message").await?;
        times.push(begin.elapsed());
        tokio::time::sleep(LOOK).await;
    }
    let running = gateway.metric("greenroom_turns_running ").await?;
    stop.store(true, Ordering::Relaxed);
    readers.into_iter().for_each(|reader| reader.abort());
    let (p50_ms, p99_ms) = load::percentiles(&mut times);
    Ok(json!({"turns_running": running, "asks": size.asks, "p50_ms": p50_ms, "p99_ms": p99_ms}))
}

/// The event name of the next frame that `wanted` takes.
async fn next(
    socket: &mut (impl StreamExt<Item = Result<Message, tokio_tungstenite::tungstenite::Error>> + Unpin),
    wanted: impl Fn(&Frame<'_>) -> bool,
) -> anyhow::Result<String> {
    loop {
        let Message::Text(text) = socket.next().await.context("the gateway closed the connection")?? else { continue };
        let frame: Frame<'_> = serde_json::from_str(&text)?;
        if wanted(&frame) {
            return Ok(frame.event.into_owned());
        }
    }
}

/// Turns of the built-in model that all run at once.
async fn in_flight(size: Size) -> anyhow::Result<Value> {
    let directory = tempfile::tempdir()?;
    let runtime = json!({"maxRunningTurns": size.in_flight, "maxLiveSessions": 2 * size.in_flight});
    let gateway = Gateway::start(directory.path(), None, runtime).await?;
    let empty = load::rss(gateway.server.pid())?;
    let tally = Arc::new(Tally::default());
    let text = format!("[[delay={}]] {}", size.delay.as_millis(), "x".repeat(200));
    let url = gateway.websocket.clone();
    let counted = tally.clone();
    let chats = size.in_flight;
    let flood = tokio::spawn(async move { flood(&url, chats, &text, Until::Ended, counted).await });
    let (mut rss, mut running) = (0, 0);
    while !flood.is_finished() {
        rss = rss.max(load::rss(gateway.server.pid())?);
        running = running.max(gateway.metric("greenroom_turns_running ").await?);
        tokio::time::sleep(10 * LOOK).await;
    }
    flood.await??;
    Ok(json!({
        "turns": size.in_flight, "running_at_once": running, "answered": tally.ended.load(Ordering::Relaxed),
        "refused": tally.refused.load(Ordering::Relaxed), "rss_bytes": rss, "rss_empty_bytes": empty,
        "bytes_per_turn": rss.saturating_sub(empty) / size.in_flight.max(1),
    }))
}

/// Real connections to a model that answers when all of them are there.
async fn model_connections(calls: u64) -> anyhow::Result<Value> {
    let directory = tempfile::tempdir()?;
    let model = start_model(usize::try_from(calls)?).await?;
    let gateway = Gateway::start(directory.path(), Some(&model.url), json!({})).await?;
    let empty = load::rss(gateway.server.pid())?;
    let tally = Arc::new(Tally::default());
    let (url, counted) = (gateway.websocket.clone(), tally.clone());
    let flood = tokio::spawn(async move { flood(&url, calls, "hello", Until::Ended, counted).await });
    let mut rss = 0;
    while !flood.is_finished() {
        rss = rss.max(load::rss(gateway.server.pid())?);
        tokio::time::sleep(LOOK).await;
    }
    flood.await??;
    let held: u64 = provider::http_client()?.get(format!("{}/held", model.url)).send().await?.text().await?.parse()?;
    Ok(json!({
        "calls_at_once": held, "answered": tally.ended.load(Ordering::Relaxed), "rss_bytes": rss,
        "bytes_per_call": rss.saturating_sub(empty) / calls.max(1),
    }))
}

/// A gateway is killed with `turns` unfinished turns; how long the next one takes to be ready and to answer them all,
/// next to as many fresh turns.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
async fn boot(turns: u64) -> anyhow::Result<Value> {
    let fresh = {
        let directory = tempfile::tempdir()?;
        let gateway = Gateway::start(directory.path(), None, json!({})).await?;
        let begin = Instant::now();
        drop(flood(&gateway.websocket, turns, "hello", Until::Ended, Arc::default()).await?);
        begin.elapsed()
    };
    let directory = tempfile::tempdir()?;
    let model = start_model(usize::MAX).await?;
    let mut gateway = Gateway::start(directory.path(), Some(&model.url), json!({})).await?;
    let tally = Arc::new(Tally::default());
    drop(flood(&gateway.websocket, turns, "hello", Until::Accepted, tally.clone()).await?);
    gateway.server.kill();
    let begin = Instant::now();
    let gateway = Gateway::start(directory.path(), None, json!({})).await?;
    let ready = begin.elapsed();
    let answered = AtomicU64::new(0);
    while answered.load(Ordering::Relaxed) < tally.accepted.load(Ordering::Relaxed) && begin.elapsed() < PATIENCE {
        answered.store(gateway.metric("greenroom_turns_total{result=\"done\"}").await?, Ordering::Relaxed);
        tokio::time::sleep(LOOK).await;
    }
    let all = begin.elapsed();
    Ok(json!({
        "unfinished": tally.accepted.load(Ordering::Relaxed), "answered": answered.load(Ordering::Relaxed),
        "ready_s": seconds(ready), "all_answered_s": seconds(all), "fresh_s": seconds(fresh),
        "to_fresh": (all.as_secs_f64() / fresh.as_secs_f64() * 100.0).round() / 100.0,
    }))
}

fn seconds(time: Duration) -> f64 {
    (time.as_secs_f64() * 1000.0).round() / 1000.0
}
