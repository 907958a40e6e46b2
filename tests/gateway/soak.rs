//! Ten thousand turns of one conversation: what the process holds does not grow with them.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::json;

use crate::support::{Gateway, PATIENCE, Place, said};

const TURNS: usize = 10_000;
/// After so many everything has its size.
const WARM: usize = 1_000;
/// Messages that are open at once.
const AT_ONCE: usize = 40;
const SEGMENT: u64 = 32 << 20;
/// What the log keeps of turns that have ended: the newest segments, before the older ones are used again.
const SEGMENTS_MAX: u64 = 5;
/// Of one turn in a transcript, with room for longer numbers.
const TURN_BYTES_MAX: f64 = 2_000.0;

/// The conversation while it is hot; bounded by `runtime.contextCacheBytes` for all sessions together.
const CONTEXT: &str = "greenroom_cache_bytes{cache=\"context\"}";
const JOURNAL: &str = "greenroom_journal_bytes{state=\"total\"}";

/// Runs the turns `from..to`, in order.
async fn converse(gateway: &Gateway, from: usize, to: usize) {
    let mut socket = gateway.websocket("").await;
    socket.until("ready").await;
    let (mut sent, mut ended) = (from, from);
    while ended < to {
        while sent < to && sent - ended < AT_ONCE {
            socket.say("long", &format!("turn {sent}"), &format!("m{sent}")).await;
            sent += 1;
        }
        let end = socket.until("turn_end").await;
        assert_eq!(end["result"], "done", "turn {ended}");
        ended += 1;
    }
}

/// All gauges of the program, by name and labels; those of the process are for benchmarks.
async fn gauges(gateway: &Gateway) -> BTreeMap<String, f64> {
    let (_, text) = gateway.get("/metrics").await;
    let types: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# TYPE ")?.strip_suffix(" gauge")).collect();
    let samples = text.lines().filter(|line| !line.starts_with('#'));
    let samples = samples.filter_map(|line| line.rsplit_once(' '));
    let of_ours = samples.filter(|(name, _)| types.contains(&name.split('{').next().unwrap_or_default()));
    of_ours.map(|(name, value)| (name.to_owned(), value.parse().unwrap())).collect()
}

/// The gauges once everything of the last turns is written.
async fn settled(gateway: &Gateway) -> BTreeMap<String, f64> {
    gateway.settle().await;
    let written = tokio::time::timeout(PATIENCE, async {
        loop {
            let gauges = gauges(gateway).await;
            if gauges["greenroom_view_lag_bytes"] == 0.0 && gauges["greenroom_connections{door=\"ws\"}"] == 0.0 {
                return gauges;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    });
    written.await.expect("the transcript is written")
}

/// What is larger now than in `before`, of what has no bound of its own here.
async fn grown_since(before: &BTreeMap<String, f64>, gateway: &Gateway) -> Vec<String> {
    let now = gauges(gateway).await;
    let before = |name: &String| before.get(name).copied().unwrap_or_default();
    now.iter()
        .filter(|(name, _)| ![CONTEXT, JOURNAL].contains(&name.as_str()) && !name.starts_with("process_"))
        .filter(|(name, value)| **value > before(name))
        .map(|(name, value)| format!("{name}: {} -> {value}", before(name)))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn ten_thousand_turns_of_one_session_leave_everything_as_large_as_after_the_first_thousand() {
    let place = Place::new(json!({
        "journal": {"segmentBytes": SEGMENT},
        "runtime": {"contextSeconds": 1},
        "queue": {"cap": AT_ONCE},
    }));
    let gateway = place.start().await;
    converse(&gateway, 0, WARM).await;
    let warm = settled(&gateway).await;
    converse(&gateway, WARM, TURNS).await;
    let last = settled(&gateway).await;
    assert!(last[CONTEXT] <= TURNS as f64 * TURN_BYTES_MAX, "{}", last[CONTEXT]);
    assert!(last[JOURNAL] <= (SEGMENTS_MAX * SEGMENT) as f64, "{}", last[JOURNAL]);
    // Some gauges are brought up to date once in a while only.
    let mut grown = grown_since(&warm, &gateway).await;
    let small_again = tokio::time::timeout(PATIENCE, async {
        while !grown.is_empty() {
            tokio::time::sleep(Duration::from_millis(50)).await;
            grown = grown_since(&warm, &gateway).await;
        }
    });
    assert!(small_again.await.is_ok(), "{grown:#?}");
    // A conversation that rests leaves memory; what stays of it is one row in the list of sessions.
    let rested = tokio::time::timeout(PATIENCE, async {
        while gauges(&gateway).await[CONTEXT] > 0.0 {
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    });
    assert!(rested.await.is_ok(), "a conversation stays in memory");
    let row = &gateway.admin("sessions").await["items"][0];
    assert_eq!(row["key"], "websocket:long");
    // Besides the messages a line for each time that the conversation outgrew the model.
    let summaries = row["entries"].as_u64().unwrap() - 2 * TURNS as u64;
    assert!((1..=20).contains(&summaries), "{summaries}");
    assert_eq!(gateway.terminate().await, Some(0));
    assert_eq!(said(&place.transcript("websocket.long")).len(), 2 * TURNS);
}
