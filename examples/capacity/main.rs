//! Measures what this machine can serve, next to the ceilings that the same machine sets in the same run.
//! Prints one JSON object. `--quick` makes every run short.
//!
//! C1 durable turns over HTTP with a client written by hand, C2 the same with reqwest, C2m with one model call over HTTP
//! besides, C3 in process. The product is driven with reqwest, so its ratios are to C2 and C2m.
//! `scale` measures how far one process goes instead: see `scale.rs`. `listing` measures lists of many sessions,
//! `long` one very long session.

mod bare;
mod flood;
mod listing;
mod load;
mod long;
mod model;
mod scale;
mod server;

use std::path::Path;
use std::time::Duration;

use serde_json::{Value, json};

use load::{Measured, Run};
use scale::Size;
use server::{Gateway, Server, start_bare, start_model};

// As in the program itself.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const USERS: u64 = 5_000;
const LISTED: u64 = 10_000;
const LONG_ENTRIES: u64 = 200_000;
const FULL: Effort = Effort { length: Duration::from_secs(4), rounds: 3 };
const QUICK: Effort = Effort { length: Duration::from_secs(1), rounds: 3 };
const FULL_SIZE: Size = Size {
    running: 1_000,
    asks: 500,
    in_flight: 100_000,
    delay: Duration::from_secs(30),
    model_calls: 5_000,
    unfinished: 100_000,
};
const QUICK_SIZE: Size = Size {
    running: 200,
    asks: 100,
    in_flight: 5_000,
    delay: Duration::from_secs(5),
    model_calls: 500,
    unfinished: 5_000,
};

const HELP: &str = "\
Measures what this machine can serve and prints one JSON object.

Usage: capacity [scale | listing [SESSIONS] | long [ENTRIES]] [--quick]

  (nothing)   turns per second and memory, next to the ceilings of the same machine
  scale       how far one process goes: turns in flight, model calls, recovery
  listing     lists of many sessions, 10000 unless said
  long        turns in a session of 200000 entries unless said, next to a new one
  --quick     short runs, for a first look

Example: cargo run --release --example capacity -- scale --quick";

fn main() -> anyhow::Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        ["bare", directory, port] => greenroom::run(bare::serve(Path::new(directory), port.parse()?, None)),
        ["bare", directory, port, model] => {
            greenroom::run(bare::serve(Path::new(directory), port.parse()?, Some(model)))
        }
        ["gateway", config] => std::process::exit(greenroom::main_with(["greenroom", "--config", config, "gateway"])),
        ["model", port, hold] => greenroom::run(model::serve(port.parse()?, hold.parse()?)),
        [] => greenroom::run(measure(FULL, &[1_000, 10_000, 100_000])),
        ["--quick"] => greenroom::run(measure(QUICK, &[1_000])),
        ["scale"] => greenroom::run(print(scale::measure(FULL_SIZE))),
        ["scale", "--quick"] => greenroom::run(print(scale::measure(QUICK_SIZE))),
        ["listing"] => greenroom::run(print(listing::measure(LISTED))),
        ["listing", sessions] => greenroom::run(print(listing::measure(sessions.parse()?))),
        ["long"] => greenroom::run(print(long::measure(LONG_ENTRIES))),
        ["long", entries] => greenroom::run(print(long::measure(entries.parse()?))),
        ["-h" | "--help" | "help"] => {
            println!("{HELP}");
            Ok(())
        }
        _ => {
            eprintln!("capacity: these arguments mean nothing: {}\n\n{HELP}", words.join(" "));
            std::process::exit(2)
        }
    }
}

/// Memory with `sessions` sessions that each had one turn; `idle_s` decides whether they are still live.
async fn memory(sessions: u64, idle_s: u64) -> anyhow::Result<Value> {
    let directory = tempfile::tempdir()?;
    let runtime = json!({"idleSeconds": idle_s, "contextSeconds": 1, "maxLiveSessions": 200_000});
    let server = Gateway::start(directory.path(), None, runtime).await?.server;
    let empty = load::rss(server.pid())?;
    load::each_once(&server.url, sessions).await?;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let full = load::rss(server.pid())?;
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
        bares.push(load::with_reqwest(&run(bare, connections, effort)).await?);
        products.push(load::with_reqwest(&run(product, connections, effort)).await?);
    }
    Ok(Pair { bare: median(bares), product: median(products) })
}

fn run(server: &Server, connections: usize, effort: Effort) -> Run {
    Run { url: server.url.clone(), connections, users: USERS, length: effort.length, pid: server.pid() }
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
    let gateway = Gateway::start(place.path(), None, json!({})).await?.server;
    // What it costs to open the sessions is in the memory figures, not in these.
    load::each_once(&gateway.url, USERS).await?;
    load::age(&gateway.url).await?;
    let c1 = load::by_hand(&run(&bare, 64, effort)).await?;
    let at_64 = compare(&bare, &gateway, 64, effort).await?;
    let at_512 = compare(&bare, &gateway, 512, effort).await?;
    drop((bare, gateway));
    let c3 = bare::in_process(scratch.path(), 1024, effort.length).await?;

    let model = start_model(0).await?;
    let place = tempfile::tempdir()?;
    let bare = start_bare(scratch.path(), Some(&model.url)).await?;
    let gateway = Gateway::start(place.path(), Some(&model.url), json!({})).await?.server;
    load::each_once(&gateway.url, USERS).await?;
    load::age(&gateway.url).await?;
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

async fn print(report: impl Future<Output = anyhow::Result<Value>>) -> anyhow::Result<()> {
    println!("{}", serde_json::to_string_pretty(&report.await?)?);
    Ok(())
}

/// `a / b`, to three digits.
fn share(a: f64, b: f64) -> f64 {
    (a / b * 1000.0).round() / 1000.0
}
