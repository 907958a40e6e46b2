//! `greenroom logs`: the supervision log, filtered, from the files; works with and without a running gateway.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Context;
use protocol::supervision::{Event, EventName};
use supervision::log_read::{Events, Filter, Follow};
use supervision::real::RealDisk;

use super::print;
use crate::cli::LogsArgs;
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

const WANTED_TIME: &str = "a time is expected, such as 2026-11-29 or 2026-11-29T20:53:00Z";
const POLL: Duration = Duration::from_millis(200);

/// Prints what is there, and with `--follow` what comes.
pub async fn run(loaded: &Loaded, arguments: LogsArgs) -> anyhow::Result<()> {
    let zone = &loaded.config.agents.defaults.timezone;
    let filter = filter(&arguments, zone)?;
    let logs = &loaded.paths.logs;
    let mut follow = match arguments.follow {
        true => Some(Follow::from_end(Arc::new(RealDisk), logs.clone())?),
        false => None,
    };
    let show = |event: &Event| match arguments.output.json {
        true => print(&serde_json::to_string(event)?),
        false => print(&line(event, zone)),
    };
    let mut events = Events::open(Arc::new(RealDisk), logs).context("the supervision log cannot be read")?;
    for event in events.by_ref() {
        let event = event.context("the supervision log cannot be read")?;
        if filter.wants(&event) {
            show(&event)?;
        }
    }
    if events.unreadable() > 0 {
        eprintln!("greenroom: {} line(s) of the log are no events and were left out", events.unreadable());
    }
    while let Some(follow) = &mut follow {
        tokio::time::sleep(POLL).await;
        for event in follow.poll()?.iter().filter(|event| filter.wants(event)) {
            show(event)?;
        }
    }
    Ok(())
}

fn filter(arguments: &LogsArgs, zone: &str) -> Result<Filter, Exit> {
    let usage = |name: &str, error: String| Exit::new(ExitCode::Usage, format!("--{name}: {error}"));
    let event = |text: &String| {
        serde_json::from_value::<EventName>(serde_json::Value::String(text.clone()))
            .map_err(|error| usage("event", error.to_string()))
    };
    let time = |name: &str, text: Option<&String>| {
        text.map(|text| instant(text, zone).ok_or_else(|| usage(name, WANTED_TIME.to_owned()))).transpose()
    };
    Ok(Filter {
        path: arguments.path.clone(),
        events: arguments.event.iter().map(event).collect::<Result<_, _>>()?,
        session: parsed("session", arguments.session.as_ref())?,
        turn: parsed("turn", arguments.turn.as_ref())?,
        since: time("since", arguments.since.as_ref())?,
        until: time("until", arguments.until.as_ref())?,
    })
}

/// A point in time, or the start of a day or a local time in `zone`, in the log's own form.
fn instant(text: &str, zone: &str) -> Option<String> {
    let exact = text.parse::<jiff::Timestamp>().ok();
    let local = || text.parse::<jiff::civil::DateTime>().ok()?.in_tz(zone).ok().map(|at| at.timestamp());
    exact.or_else(local).map(|at| format!("{at:.6}"))
}

fn parsed<T: std::str::FromStr<Err = domain::ids::BadId>>(
    name: &str,
    text: Option<&String>,
) -> Result<Option<T>, Exit> {
    let parse = |text: &String| {
        text.parse().map_err(|error: domain::ids::BadId| Exit::new(ExitCode::Usage, format!("--{name}: {error}")))
    };
    text.map(parse).transpose()
}

/// One event for people: local time, name, who, why, and what was lost.
fn line(event: &Event, zone: &str) -> String {
    let time = event.ts.parse::<jiff::Timestamp>().ok().and_then(|at| at.in_tz(zone).ok());
    let time = time.map_or_else(|| event.ts.clone(), |at| at.strftime("%Y-%m-%d %H:%M:%S%.3f").to_string());
    let name = serde_json::to_value(event.event).ok().and_then(|name| name.as_str().map(str::to_owned));
    let mut text = format!("{time}  {:18} {}", name.unwrap_or_default(), event.path);
    let mut add = |word: &str, value: Option<String>| {
        if let Some(value) = value {
            text.push_str(&format!("  {word} {value}"));
        }
    };
    add("turn", event.turn.map(|turn| turn.to_string()));
    add("attempt", event.attempt.map(|attempt| attempt.to_string()));
    add("because", event.reason.clone());
    add("panic", event.panic.as_ref().map(|panic| format!("{:?} at {}", panic.text, panic.at)));
    add("backoff", event.backoff_ms.map(|ms| format!("{ms} ms")));
    add("verdict", event.verdict.clone());
    add("inbox", event.inbox.map(|count| count.to_string()));
    add("lost", (event.lost != "nothing").then(|| event.lost.clone()));
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use protocol::supervision::{ActorPath, Kind, Panic};

    #[test]
    fn a_line_tells_who_died_why_and_what_was_lost() {
        let mut event = Event::new(EventName::Restarted, ActorPath("/registry/0/session/a".into()), Kind::Session);
        event.ts = "2026-11-29T20:53:29.000001Z".to_owned();
        event.reason = Some("panicked".to_owned());
        event.panic = Some(Panic { text: "boom".to_owned(), at: "x.rs:1:2".to_owned() });
        assert_eq!(
            line(&event, "Europe/Berlin"),
            "2026-11-29 21:53:29.000  restarted          /registry/0/session/a  because panicked  panic \"boom\" at x.rs:1:2"
        );
        event.lost = "one line".to_owned();
        assert!(line(&event, "UTC").ends_with("lost one line"));
    }

    #[test]
    fn bad_filters_are_usage_errors_that_name_the_option() {
        let arguments = |event: Option<&str>, since: Option<&str>| LogsArgs {
            path: None,
            event: event.map(str::to_owned),
            session: None,
            turn: None,
            since: since.map(str::to_owned),
            until: None,
            follow: false,
            output: crate::cli::Output::default(),
        };
        let error = filter(&arguments(Some("exploded"), None), "UTC").unwrap_err();
        assert!(error.code == ExitCode::Usage && error.message.starts_with("--event: "), "{error}");
        let error = filter(&arguments(None, Some("yesterday")), "UTC").unwrap_err();
        assert!(error.message.starts_with("--since: "), "{error}");
        for (given, expected) in [
            ("2026-11-29T21:53:29+01:00", "2026-11-29T20:53:29.000000Z"),
            ("2026-11-29", "2026-11-28T23:00:00.000000Z"),
            ("2026-11-29T21:53", "2026-11-29T20:53:00.000000Z"),
        ] {
            let filter = filter(&arguments(Some("restarted"), Some(given)), "Europe/Berlin").unwrap();
            assert_eq!(filter.since.as_deref(), Some(expected), "{given}");
        }
    }
}
