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
/// Events that `--follow` begins with, unless it is said how many.
const FOLLOW_TAIL: usize = 20;
/// Of an answer without any, on standard error.
const NO_EVENTS: &str = "greenroom: no events match";

/// Prints what is there, and with `--follow` what comes.
pub async fn run(loaded: Loaded, arguments: LogsArgs) -> anyhow::Result<()> {
    let zone = &loaded.config.agents.defaults.timezone;
    let query = query(&arguments, zone, jiff::Timestamp::now())?;
    if let Some(subject) = &arguments.why {
        return why::run(loaded, subject, query, arguments.output).await;
    }
    let Some(admin) = Admin::find(&loaded.paths).await? else {
        return from_files(&loaded, query, &arguments, zone).await;
    };
    let begun = jiff::Timestamp::now();
    let response = match ask(&admin, &query, arguments.follow).await {
        Ok(response) => response,
        Err(error) => {
            // Just then the log is wanted most.
            eprintln!("greenroom: {error:#}; reading the files");
            return from_files(&loaded, query, &arguments, zone).await;
        }
    };
    let (last, ended) = through_gateway(response, &arguments, zone).await?;
    if !arguments.follow {
        if last.is_none() && ended.is_ok() {
            eprintln!("{NO_EVENTS}");
        }
        return ended.context("the gateway broke off");
    }
    // Its files have what it said at last, and what the next one says.
    eprintln!("greenroom: the gateway ended; following the files of the log, where the next one writes on");
    from_files(&loaded, rest(query, last, begun), &arguments, zone).await
}

/// What is wanted after `last`, the last event that was seen; without one, what came since `begun`.
fn rest(query: Query, last: Option<String>, begun: jiff::Timestamp) -> Query {
    let mut rest = Query { after: last.or(query.after), tail: None, ..query };
    if rest.after.is_none() {
        let begun = format!("{begun:.6}");
        let since = rest.filter.since.take().filter(|since| *since > begun);
        rest.filter.since = Some(since.unwrap_or(begun));
    }
    rest
}

fn address(query: &Query) -> String {
    let pairs: Vec<String> = query.pairs().iter().map(|(name, value)| format!("{name}={}", encode(value))).collect();
    pairs.join("&")
}

async fn ask(admin: &Admin, query: &Query, follow: bool) -> anyhow::Result<reqwest::Response> {
    admin.stream(&format!("logs?follow={follow}&{}", address(query))).await
}

/// Prints what the gateway sends; the id of the last event, and how the stream ended.
async fn through_gateway(
    response: reqwest::Response,
    arguments: &LogsArgs,
    zone: &str,
) -> anyhow::Result<(Option<String>, reqwest::Result<()>)> {
    let (mut lines, mut last) = (Lines::default(), None);
    let mut body = response.bytes_stream();
    while let Some(bytes) = body.next().await {
        let bytes = match bytes {
            Ok(bytes) => bytes,
            Err(broken) => return Ok((last, Err(broken))),
        };
        for line in lines.push(&bytes) {
            let event: Event = serde_json::from_str(&line)?;
            print(&if arguments.output.json { line } else { line::of(&event, zone) })?;
            last = Some(event.id);
        }
    }
    Ok((last, Ok(())))
}

async fn from_files(loaded: &Loaded, query: Query, arguments: &LogsArgs, zone: &str) -> anyhow::Result<()> {
    const UNREADABLE: &str = "the supervision log cannot be read";
    let mut search = Search::open(Arc::new(RealDisk), &loaded.paths.logs, query).context(UNREADABLE)?;
    let (mut told, mut none) = (0, true);
    loop {
        let page = search.page(PAGE).context(UNREADABLE)?;
        for event in &page.events {
            show(event, arguments, zone)?;
        }
        if search.unreadable() > told {
            told = search.unreadable();
            eprintln!("greenroom: {told} line(s) of the log are no events and were left out");
        }
        none &= page.events.is_empty();
        if page.at_end && !arguments.follow {
            if none {
                eprintln!("{NO_EVENTS}");
            }
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
    let all = arguments.tail.is_none() && filter.since.is_none() && arguments.follow && arguments.why.is_none();
    Ok(Query { filter, after: None, tail: if all { Some(FOLLOW_TAIL) } else { arguments.tail } })
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
    fn to_follow_begins_with_the_last_events_unless_more_is_wanted() {
        for (line, tail) in [
            (&["--follow"][..], Some(FOLLOW_TAIL)),
            (&["--follow", "--session", "api:1"], Some(FOLLOW_TAIL)),
            (&["--follow", "--tail", "5"], Some(5)),
            (&["--follow", "--since", "2h"], None),
            (&["--session", "api:1"], None),
        ] {
            assert_eq!(asked(line).unwrap().tail, tail, "{line:?}");
        }
    }

    #[test]
    fn what_follows_a_gateway_begins_after_its_last_event() {
        let begun = "2026-11-29T12:00:00Z".parse().unwrap();
        let query = || asked(&["--session", "api:1", "--tail", "5"]).unwrap();
        let seen = rest(query(), Some("b-7".to_owned()), begun);
        assert_eq!((seen.after.as_deref(), seen.tail, &seen.filter.since), (Some("b-7"), None, &None));
        assert_eq!(seen.filter.session, query().filter.session);
        assert_eq!(rest(query(), None, begun).filter.since.as_deref(), Some("2026-11-29T12:00:00.000000Z"));
        for (since, expect) in
            [("2h", "2026-11-29T12:00:00.000000Z"), ("2026-12-01T00:00:00Z", "2026-12-01T00:00:00.000000Z")]
        {
            let query = asked(&["--since", since]).unwrap();
            assert_eq!(rest(query, None, begun).filter.since.as_deref(), Some(expect));
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
