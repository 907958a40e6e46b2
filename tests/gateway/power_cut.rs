//! The whole system on a disk in memory whose power fails at every single write, in turn.
//! What was not synced is dropped, torn or reordered by a seed; then the system starts anew on what is left.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use domain::ids::{MessageId, SessionKey, TurnId};
use domain::transcript::read_lines;
use futures::future::{Either, select};
use greenroom::app::{App, Options, World};
use protocol::session::TurnRecord;
use protocol::turn::TurnResult;
use supervision::LocalPlacement;
use supervision::log::MemoryLog;
use supervision::memory::{PowerCutDisk, RuntimeClock, memory_ports};
use supervision::ports::Disk;

const SEEDS: u64 = 4;
const MESSAGES: [(&str, &str); 6] = [
    ("cli:a", "one"),
    ("cli:b", "uno"),
    ("cli:a", "two [[tool=list_dir {\"path\": \".\"}]]"),
    ("cli:b", "dos"),
    ("cli:a", "three"),
    ("cli:b", "tres [[tool=list_dir {\"path\": \".\"}]] [[tool=read_file {\"path\": \"none\"}]]"),
];

/// A message that was acknowledged.
struct Acked {
    key: SessionKey,
    id: MessageId,
    turn: TurnId,
    text: &'static str,
    /// Whether its end was shown to the client.
    finished: bool,
}

/// Runs on one thread under a paused clock.
fn simulate<T>(life: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, life)
}

async fn start(directory: &Path, disk: &Arc<PowerCutDisk>, seed: u64) -> anyhow::Result<(App, Arc<MemoryLog>)> {
    let log = MemoryLog::new();
    let ports = memory_ports(disk.clone(), RuntimeClock::new(), seed);
    let world = World { ports, placement: Arc::new(LocalPlacement::new()), log: log.clone(), model: None };
    let options = Options::in_directory(directory)?.with_segment_bytes(64 * 1024).in_world(world);
    Ok((App::start(options).await?, log))
}

/// Submits everything and follows it to its end, or to the end of the power.
async fn first_life(directory: &Path, disk: &Arc<PowerCutDisk>) -> Vec<Acked> {
    let Ok((app, _)) = start(directory, disk, 1).await else { return Vec::new() };
    let mut acked = Vec::new();
    let mut streams = Vec::new();
    for (number, (key, text)) in MESSAGES.into_iter().enumerate() {
        let key = SessionKey::new(key).unwrap();
        let id = MessageId::new(&format!("m{number}")).unwrap();
        if let Ok(stream) = app.submit_as(&key, text, id.clone()).await {
            acked.push(Acked { key, id, turn: stream.turn, text, finished: false });
            streams.push(stream);
        }
    }
    for (acked, stream) in acked.iter_mut().zip(streams) {
        let failed = Box::pin(app.failed());
        match select(Box::pin(stream.finished()), failed).await {
            Either::Left((finished, _)) => acked.finished = finished.is_ok_and(|end| end.result == TurnResult::Done),
            Either::Right(_) => break,
        }
    }
    if !disk.is_off() {
        app.stop().await;
    }
    acked
}

/// Starts on what is left, waits until nothing is open, repeats every message, and stops in order.
async fn second_life(directory: &Path, disk: &Arc<PowerCutDisk>, acked: &[Acked], story: &str) {
    let (app, log) = start(directory, disk, 2).await.unwrap();
    let settled = async {
        while app.journal().status().open > 0 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    let settled = tokio::time::timeout(Duration::from_secs(3600), settled).await;
    assert!(settled.is_ok(), "turns stay open: {:?} {:#?}", app.journal().status(), log.events());
    let accepted = app.journal().status().accepted;
    for acked in acked {
        // Reading wakes the session, which writes into its file what only the journal has.
        let record = app.turn(&acked.key, acked.turn).await.unwrap();
        assert!(matches!(record, Some(TurnRecord::Ended { .. })), "{story}: {:?} is {record:?}", acked.text);
        let again = app.submit_as(&acked.key, acked.text, acked.id.clone()).await;
        assert!(again.is_err(), "{story}: {:?} was accepted twice", acked.text);
    }
    assert_eq!(app.journal().status().accepted, accepted, "{story}: a repeated message started a turn");
    app.stop().await;
}

/// Checks the transcripts against what was acknowledged.
fn check(directory: &Path, disk: &Arc<PowerCutDisk>, acked: &[Acked], story: &str) {
    for key in ["cli:a", "cli:b"] {
        let file = directory.join(format!("workspace/sessions/{}.jsonl", key.replace(':', ".")));
        let of_key: Vec<&Acked> = acked.iter().filter(|acked| acked.key.as_str() == key).collect();
        let bytes = match disk.read(&file) {
            Ok(bytes) => bytes,
            Err(_) if of_key.is_empty() => continue,
            Err(error) => panic!("{story}: {key} has no transcript: {error}"),
        };
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert!(text.lines().all(|line| serde_json::from_str::<serde_json::Value>(line).is_ok()), "{story}: {text}");
        let transcript = read_lines(&bytes);
        assert_eq!(transcript.problems_total, 0, "{story}: {key}");
        let users: Vec<String> = users(&text);
        let mut expected = of_key.iter().map(|acked| acked.text);
        // Unacknowledged messages may have made it; acknowledged ones must have, once each and in order.
        let mut wanted = expected.next();
        for user in &users {
            if Some(user.as_str()) == wanted {
                wanted = expected.next();
            }
        }
        assert_eq!(wanted, None, "{story}: {key} has only {users:?}");
        let mut unique = users.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), users.len(), "{story}: {key} has a message twice: {users:?}");
        for acked in of_key {
            let record = domain::transcript::turn_record(&transcript, acked.turn)
                .unwrap_or_else(|| panic!("{story}: {key} does not know {:?}", acked.text));
            assert!(
                record.end.is_some(),
                "{story}: {:?} is not answered (shown as finished: {})",
                acked.text,
                acked.finished
            );
        }
        check_calls(&text, story);
    }
}

fn users(text: &str) -> Vec<String> {
    let lines: Vec<serde_json::Value> = text.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    crate::support::said(&lines).into_iter().filter(|(role, _)| role == "user").map(|(_, text)| text).collect()
}

/// Every tool call has exactly one result.
fn check_calls(text: &str, story: &str) {
    let (mut calls, mut results) = (Vec::new(), Vec::new());
    for line in text.lines() {
        let line: serde_json::Value = serde_json::from_str(line).unwrap();
        for block in line["message"]["content"].as_array().into_iter().flatten() {
            if block["type"] == "toolCall" {
                calls.push(block["id"].as_str().unwrap().to_owned());
            }
        }
        if let Some(call) = line["message"]["toolCallId"].as_str() {
            results.push(call.to_owned());
        }
    }
    calls.sort();
    results.sort();
    assert_eq!(calls, results, "{story}");
}

#[test]
fn nothing_acknowledged_is_lost_or_doubled_whichever_write_the_power_fails_at() {
    let directory = tempfile::tempdir().unwrap();
    let whole = PowerCutDisk::new();
    let acked = simulate(first_life(directory.path(), &whole));
    assert!(
        acked.len() == MESSAGES.len() && acked.iter().all(|acked| acked.finished),
        "the script runs without faults"
    );
    check(directory.path(), &whole, &acked, "no fault");
    let operations = whole.operations();
    assert!(operations > 20, "{operations} operations are too few to mean anything");
    for operation in 1..=operations {
        let disk = PowerCutDisk::new();
        disk.power_off_at(operation);
        let acked = simulate(first_life(directory.path(), &disk));
        for seed in 0..SEEDS {
            let story = format!("power fails at operation {operation} of {operations}, seed {seed}");
            let left = disk.cut(operation * 1000 + seed);
            simulate(second_life(directory.path(), &left, &acked, &story));
            check(directory.path(), &left, &acked, &story);
        }
    }
}
