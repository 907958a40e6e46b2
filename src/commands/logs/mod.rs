//! `greenroom logs`: the supervision log, filtered, through the running gateway or from a stopped one's files; and the
//! story of one session or turn (`--why`).

mod line;
mod times;
mod why;

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use futures::StreamExt;
use protocol::supervision::{Event, EventName};
use serde::de::DeserializeOwned;
use serde_json::Value;
use supervision::log_read::{Filter, Query, Search};
use supervision::real::RealDisk;

use super::admin::{Admin, Lines, encode};
use super::print;
use crate::cli::LogsArgs;
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// How often files are looked at for more.
const POLL: Duration = Duration::from_millis(200);
/// Events that are read at once.
const PAGE: usize = 1_000;

/// Prints what is there, and with `--follow` what comes.
pub async fn run(loaded: Loaded, arguments: LogsArgs) -> anyhow::Result<()> {
    if let Some(subject) = &arguments.why {
        return why::run(loaded, subject, arguments.output).await;
    }
    let zone = &loaded.config.agents.defaults.timezone;
    let query = query(&arguments, zone, jiff::Timestamp::now())?;
    match Admin::find(&loaded.paths).await? {
        Some(admin) => match ask(&admin, &query, arguments.follow).await {
            Ok(response) => through_gateway(response, &arguments, zone).await,
            Err(error) => {
                // Just then the log is wanted most.
                eprintln!("greenroom: {error:#}; reading the files");
                from_files(&loaded, query, &arguments, zone).await
            }
        },
        None => from_files(&loaded, query, &arguments, zone).await,
    }
}

async fn ask(admin: &Admin, query: &Query, follow: bool) -> anyhow::Result<reqwest::Response> {
    let pairs: Vec<String> = query.pairs().iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    admin.stream(&format!("logs?follow={follow}&{}", pairs.join("&"))).await
}

async fn through_gateway(response: reqwest::Response, arguments: &LogsArgs, zone: &str) -> anyhow::Result<()> {
    let mut lines = Lines::default();
    let mut body = response.bytes_stream();
    while let Some(bytes) = body.next().await {
        for line in lines.push(&bytes.context("the gateway broke off")?) {
            if arguments.output.json {
                print(&line)?;
            } else {
                print(&line::of(&serde_json::from_str(&line)?, zone))?;
            }
        }
    }
    Ok(())
}

async fn from_files(loaded: &Loaded, query: Query, arguments: &LogsArgs, zone: &str) -> anyhow::Result<()> {
    const UNREADABLE: &str = "the supervision log cannot be read";
    let mut search = Search::open(Arc::new(RealDisk), &loaded.paths.logs, query).context(UNREADABLE)?;
    let mut told = 0;
    loop {
        let page = search.page(PAGE).context(UNREADABLE)?;
        for event in &page.events {
            show(event, arguments, zone)?;
        }
        if search.unreadable() > told {
            told = search.unreadable();
            eprintln!("greenroom: {told} line(s) of the log are no events and were left out");
        }
        if page.at_end && !arguments.follow {
            return Ok(());
        }
        if page.at_end {
            tokio::time::sleep(POLL).await;
        }
    }
}

fn show(event: &Event, arguments: &LogsArgs, zone: &str) -> anyhow::Result<()> {
    match arguments.output.json {
        true => print(&serde_json::to_string(event)?),
        false => print(&line::of(event, zone)),
    }
}

fn query(arguments: &LogsArgs, zone: &str, now: jiff::Timestamp) -> Result<Query, Exit> {
    let time = |name: &str, text: Option<&String>| {
        let parse = |text: &String| times::instant(text, zone, now).ok_or_else(|| usage(name, times::WANTED));
        text.map(parse).transpose()
    };
    let filter = Filter {
        path: arguments.path.clone(),
        kinds: words("kind", &arguments.kind)?,
        events: words::<EventName>("event", &arguments.event)?,
        session: parsed("session", arguments.session.as_ref())?,
        turn: parsed("turn", arguments.turn.as_ref())?,
        since: time("since", arguments.since.as_ref())?,
        until: time("until", arguments.until.as_ref())?,
    };
    Ok(Query { filter, after: None, tail: arguments.tail })
}

fn usage(name: &str, why: impl std::fmt::Display) -> Exit {
    Exit::new(ExitCode::Usage, format!("--{name}: {why}"))
}

fn words<T: DeserializeOwned>(name: &str, texts: &[String]) -> Result<Vec<T>, Exit> {
    let word = |text: &String| serde_json::from_value(Value::String(text.clone())).map_err(|why| usage(name, why));
    texts.iter().map(word).collect()
}

fn parsed<T: std::str::FromStr<Err = domain::ids::BadId>>(
    name: &str,
    text: Option<&String>,
) -> Result<Option<T>, Exit> {
    text.map(|text| text.parse().map_err(|why: domain::ids::BadId| usage(name, why))).transpose()
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;
    use crate::cli::{Cli, Command};

    fn asked(line: &[&str]) -> Result<Query, Exit> {
        let cli = Cli::try_parse_from(["greenroom", "logs"].iter().chain(line)).unwrap();
        let Command::Logs(arguments) = cli.command else { panic!("logs") };
        query(&arguments, "Europe/Berlin", "2026-11-29T12:00:00Z".parse().unwrap())
    }

    #[test]
    fn bad_filters_are_usage_errors_that_name_the_option() {
        for (line, start) in [
            (["--event", "exploded"], "--event: "),
            (["--kind", "planet"], "--kind: "),
            (["--since", "yesterday"], "--since: a time is expected"),
            (["--until", "2026-13-01"], "--until: "),
            (["--turn", "7"], "--turn: "),
            (["--session", ""], "--session: "),
        ] {
            let error = asked(&line).unwrap_err();
            assert!(error.code == ExitCode::Usage && error.message.starts_with(start), "{error}");
        }
    }

    #[test]
    fn the_arguments_become_a_query_that_survives_an_address() {
        let query = asked(&[
            "--path",
            "/registry/*",
            "--kind",
            "session",
            "--kind",
            "tools",
            "--event",
            "restarted,gave_up",
            "--session",
            "api:a b",
            "--turn",
            "01890a5d-ac96-774b-bcce-b302099a8057",
            "--since",
            "2h",
            "--until",
            "2026-11-29T13:00",
            "--tail",
            "5",
        ])
        .unwrap();
        assert_eq!(query.filter.events, [EventName::Restarted, EventName::GaveUp]);
        assert_eq!(query.filter.since.as_deref(), Some("2026-11-29T10:00:00.000000Z"));
        assert_eq!(query.filter.until.as_deref(), Some("2026-11-29T12:00:00.000000Z"));
        let pairs = query.pairs();
        let back = Query::parse(pairs.iter().map(|(name, value)| (*name, value.as_str()))).unwrap();
        assert_eq!(back, query);
    }
}
