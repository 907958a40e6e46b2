//! One file per command: a message sent, a reply printed.

pub mod admin;
pub mod agent;
pub mod backup;
pub mod deadletters;
pub mod doctor;
pub mod drain;
pub mod gateway;
pub mod journal;
pub mod logs;
pub mod onboard;
pub mod sessions;
pub mod status;
pub mod top;
pub mod tree;

use std::collections::BTreeMap;
use std::io::Write;

use anyhow::Context;
use serde_json::Value;

use crate::cli::{Cli, Command, Config, Gateway, Place};
use crate::config::{self, LoadRequest, Loaded};
use crate::exit::{Exit, ExitCode};

/// Runs one command.
pub async fn run(cli: Cli) -> anyhow::Result<()> {
    let place = cli.place;
    match cli.command {
        Command::Gateway { what: None } => gateway::run(gateway::load(&place)?).await,
        Command::Gateway { what: Some(Gateway::Drain(arguments)) } => drain::run(&load(&place)?, &arguments).await,
        Command::Agent(arguments) => agent::run(load(&place)?, arguments).await,
        Command::Onboard => onboard::run(&place),
        Command::Status(output) => status::run(&load(&place)?, output).await,
        Command::Sessions(what) => sessions::run(load(&place)?, what).await,
        Command::Logs(arguments) => logs::run(load(&place)?, arguments).await,
        Command::Tree(arguments) => tree::run(&load(&place)?, arguments).await,
        Command::Top(arguments) => top::run(&load(&place)?, arguments).await,
        Command::Deadletters(what) => deadletters::run(load(&place)?, what).await,
        Command::Doctor(output) => doctor::run(&place, output),
        Command::Config(Config::Check(output)) => doctor::check_config(&place, output),
        Command::Journal(what) => journal::run(&load(&place)?, what),
        Command::Backup { dir } => backup::backup(load(&place)?, &dir).await,
        Command::Restore { dir } => backup::restore(&load(&place)?, &dir),
    }
}

/// Reads the configuration and prints its warnings.
pub fn load(place: &Place) -> anyhow::Result<Loaded> {
    let loaded = try_load(place).map_err(|error| Exit::new(ExitCode::Config, error.to_string()))?;
    for warning in &loaded.warnings {
        tracing::warn!(target: "config", "{warning}");
    }
    Ok(loaded)
}

/// Reads the configuration.
pub fn try_load(place: &Place) -> Result<Loaded, config::ConfigError> {
    config::load(&load_request(place))
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

/// Prints a line; a reader that went away is no failure.
pub fn print(text: &str) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    match writeln!(out, "{text}").and_then(|()| out.flush()) {
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other.context("standard output cannot be written"),
    }
}

/// Prints JSON, indented.
pub fn print_json(value: &Value) -> anyhow::Result<()> {
    print(&serde_json::to_string_pretty(value)?)
}
