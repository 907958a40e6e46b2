//! One file per command: a message sent, a reply printed.

pub mod admin;
pub mod agent;
pub mod backup;
pub mod check_config;
mod closing;
pub mod cron;
pub mod deadletters;
pub mod doctor;
pub mod drain;
pub mod export;
pub mod gateway;
pub mod import;
pub mod journal;
pub mod logs;
pub mod memory;
pub mod onboard;
mod prune;
mod repaired;
mod report;
pub mod sessions;
pub mod status;
pub mod subagents;
pub mod top;
pub mod tree;
pub mod trigger;
mod words;

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context;
use domain::text::harmless;
use serde_json::Value;

use crate::cli::{Cli, Command, Config, Gateway, Place};
use crate::config::{self, FileState, LoadRequest, Loaded};
use crate::exit::Exit;

/// Runs one command.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    let place = cli.place;
    match cli.command {
        Command::Gateway { what: None } => gateway::run(&place).await,
        Command::Gateway { what: Some(Gateway::Drain(arguments)) } => drain::run(&look(&place)?, &arguments).await,
        Command::Agent(arguments) => agent::run(load_quietly(&place)?, arguments).await,
        Command::Onboard(output) => onboard::run(&place, output),
        Command::Status(output) => status::run(&look(&place)?, output).await,
        Command::Sessions(what) => sessions::run(look(&place)?, what).await,
        Command::Memory(what) => memory::run(look(&place)?, what).await,
        Command::Trigger(arguments) => trigger::run(&look(&place)?, arguments),
        Command::Logs(arguments) => logs::run(look(&place)?, arguments).await,
        Command::Tree(arguments) => tree::run(&look(&place)?, arguments).await,
        Command::Top(arguments) => top::run(&look(&place)?, arguments).await,
        Command::Cron(what) => cron::run(look(&place)?, what).await,
        Command::Subagents(what) => subagents::run(look(&place)?, what).await,
        Command::Deadletters(what) => deadletters::run(look(&place)?, what).await,
        Command::Doctor(output) => doctor::run(&place, output),
        Command::Config(Config::Check(output)) => check_config::run(&place, output),
        Command::Journal(what) => journal::run(&look(&place)?, what),
        Command::Backup(arguments) => backup::backup(look(&place)?, &arguments).await,
        Command::Import(what) => import::run(look(&place)?, what).await,
        Command::Export(arguments) => export::run(look(&place)?, arguments).await,
        Command::Restore(arguments) => backup::restore(&look(&place)?, &arguments),
    }
}

/// The configuration for what runs agents: its warnings are printed, and nothing in it may be unusable.
fn load(place: &Place) -> anyhow::Result<Loaded> {
    let loaded = survey(place)?;
    warn(&loaded);
    loaded.require_valid().map_err(Exit::from)?;
    Ok(loaded)
}

/// Like [`load`], for a command that is used many times a day: its warnings are `config check`'s to say, and the gateway's
/// when it starts.
fn load_quietly(place: &Place) -> anyhow::Result<Loaded> {
    let loaded = survey(place)?;
    loaded.require_valid().map_err(Exit::from)?;
    Ok(loaded)
}

/// The configuration for what looks after a data directory: what cannot be used is printed, and goes without; what is
/// unused is `config check`'s to say. A file that
/// was named has to be there, for its directory is the data directory.
fn look(place: &Place) -> anyhow::Result<Loaded> {
    let loaded = survey(place)?;
    if loaded.file == FileState::Missing {
        loaded.require_valid().map_err(Exit::from)?;
    }
    warn_of_problems(&loaded);
    Ok(loaded)
}

/// Reads the configuration.
pub fn survey(place: &Place) -> Result<Loaded, Exit> {
    config::survey(&load_request(place)).map_err(Exit::from)
}

fn warn(loaded: &Loaded) {
    for warning in &loaded.warnings {
        tracing::warn!(target: "config", "{warning}");
    }
}

/// Says what is left out of the configuration.
fn warn_of_problems(loaded: &Loaded) {
    for problem in &loaded.problems {
        tracing::warn!(target: "config", "{problem}; this command goes on without it");
    }
}

/// What the command line and the environment say about where things are.
pub fn load_request(place: &Place) -> LoadRequest {
    LoadRequest { config: place.config.clone(), workspace: place.workspace.clone(), env: environment() }
}

/// The environment, as far as it is text.
pub fn environment() -> BTreeMap<String, String> {
    std::env::vars_os()
        .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
        .collect()
}

/// Prints a line, in which nothing commands the terminal: much of it was said by others.
pub fn print(text: &str) -> anyhow::Result<()> {
    write(&harmless(text))
}

/// Writes a line; a reader that went away is no failure.
fn write(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("standard output cannot be written"),
    }
}

/// Prints JSON, indented.
pub fn print_json(value: &Value) -> anyhow::Result<()> {
    write(&serde_json::to_string_pretty(value)?)
}
