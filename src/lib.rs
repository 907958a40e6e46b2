//! Greenroom hosts AI-agent conversations as supervised actors.
//!
//! # The picture
//!
//! ```text
//!  door (WebSocket, OpenAI API, command line)
//!    │ Enqueue{key, turn, source, message id, body, route}
//!    ▼
//!  journal ── on disk, deduplicated, ordered ──▶ Queued ──▶ registry ── finds or starts ──▶ session (one actor per key)
//!    ▲                                                                                        │ step(input) -> effects
//!    └──────────────────────────── Commit{lines, ended} ──────────────────────────────────────┤
//!                                                                    provider ◀── Complete ───┤
//!                                                                    tools    ◀── RunTool ────┤
//!  door ◀── hub ◀── TurnEvent (deltas, tool activity, exactly one Finished) ──────────────────┘
//! ```
//!
//! A door submits a message to the journal. The journal's thread writes everything that waits in one batch, syncs once,
//! hands each message to the registry in log order, and only then answers the doors. The registry finds the session's
//! slot or starts the actor. The session keeps its own inbox, ordered by the journal's numbers, and runs one turn at a
//! time: it asks the provider on its own arbiter, runs tools, commits what happened, and tells the hub. The transcript
//! file is a view that is written after the commit; the log is the truth.
//!
//! # Crates
//!
//! | crate | what | in one line |
//! |---|---|---|
//! | [`domain`] | values and rules | no IO, no clock, no async |
//! | [`protocol`] | messages | one file per receiver, each with its table |
//! | [`supervision`] | the kernel | the only code that starts actors |
//! | [`journal`] | durability | write-ahead log, admission, order, dedupe |
//! | [`session`] | conversations | the turn machine and its shell |
//! | [`registry`] | lifecycle | finds, starts, quarantines, passivates |
//! | [`provider`] | models | OpenAI-compatible servers and the offline model |
//! | [`subagent`] | runs | begins, stops and knows what sub-agents were sent to do |
//! | [`tools`] | tools | catalogue, path policy, sandbox |
//! | [`cron`] | time | jobs that are due at times, local triggers, the heartbeat |
//! | [`channel`] | doors | WebSocket, OpenAI API, health, admin |
//!
//! No actor crate imports another; only [`app`] knows them all and hands out recipients and trait objects.
//!
//! # What a message is promised
//!
//! * Mailboxes carry hints and control only. Turns live in the journal and in the session's inbox, so a mailbox that
//!   dies with its actor costs nothing.
//! * From one sender to one actor, messages arrive in order. `Queued` hints may come late or twice; the inbox sorts
//!   them by number and drops what it has.
//! * Control (`Stop`, `Status`, cancel) is handled between two polls of a turn, never behind it.
//! * Every event that returns to a session carries a stamp (epoch, turn, attempt, round); one with another stamp than
//!   the running one is dropped and counted.
//! * A reply travels on a channel of its own; whoever stops waiting cancels nothing by that alone.
//!
//! # Invariants
//!
//! 1. An acknowledged message stands answered in its transcript exactly once, or is a dead letter and its user knows.
//! 2. Turns of one session run one after the other in the order of acceptance; sessions run in parallel.
//! 3. At most one actor lives per session key.
//! 4. A crash ends one incarnation, sends one `Down`, and never reaches a neighbour.
//! 5. A turn that crashes its session too often is set aside; the rest of the queue goes on.
//! 6. Every queue, retry, buffer and file has a bound with a name.
//! 7. A tool call that a crash cut is not run again unless the tool says that it may be.
//! 8. Every tool call in a request has exactly one result.
//! 9. An idle session costs no memory, and no message is lost when it wakes.
//! 10. The same entries, configuration and time give the same prompt, byte for byte.
//!
//! `tests/gateway/` checks them on the real program; `tidy.rs` there checks the layers.
//!
//! # Reading order
//!
//! `protocol::session`, `session::turn`, `session::actor`, `supervision::supervise`, `journal::state`, `app`.

pub mod app;
pub mod cli;
pub mod commands;
pub mod config;
pub mod exit;
pub mod onboard;
#[cfg(feature = "otel")]
pub mod otel;
pub mod telemetry;

use std::ffi::OsString;
use std::future::Future;

use clap::Parser;
use serde_json::Value;

use exit::{Exit, ExitCode};

/// Runs the program with these arguments (the first is its name) and returns the exit code.
pub fn main_with<T: Into<OsString>>(arguments: impl IntoIterator<Item = T>) -> i32 {
    let arguments: Vec<OsString> = arguments.into_iter().map(Into::into).collect();
    let json = arguments.iter().any(|argument| argument == "--json");
    let cli = match cli::Cli::try_parse_from(arguments) {
        Ok(cli) => cli,
        Err(error) => return unparsed(&error, json),
    };
    telemetry::init("warn");
    match run(commands::run(cli)) {
        Ok(()) => ExitCode::Ok as i32,
        Err(error) => {
            eprintln!("greenroom: {error:#}");
            print_error(json, Exit::body_of(&error));
            Exit::code_of(&error) as i32
        }
    }
}

/// Help, the version, or what is wrong with the command line.
fn unparsed(error: &clap::Error, json: bool) -> i32 {
    // Printing fails only when nobody reads; the code says it all.
    let _ = error.print();
    if !error.use_stderr() {
        return ExitCode::Ok as i32;
    }
    let text = error.to_string();
    let sentence = text.lines().next().unwrap_or_default().trim_start_matches("error: ");
    print_error(json, Some(exit::error_body(ExitCode::Usage.word(), sentence)));
    ExitCode::Usage as i32
}

/// With `--json`, failures are JSON too.
fn print_error(json: bool, body: Option<Value>) {
    if let Some(body) = body.filter(|_| json) {
        // Nobody is left to tell.
        let _ = commands::print_json(&body);
    }
}

/// Runs a future inside an actor system: a multi-thread runtime for doors and clients; the calling thread for itself.
pub fn run<T>(work: impl Future<Output = anyhow::Result<T>>) -> anyhow::Result<T> {
    let system = actix::System::with_tokio_rt(|| {
        tokio::runtime::Builder::new_multi_thread()
            .enable_all()
            .build()
            .expect("a runtime needs only threads, which every machine gives")
    });
    system.block_on(work)
}
