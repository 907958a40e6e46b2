//! `greenroom gateway drain`: tells the running gateway to stop in order, and follows it to its end.

use std::sync::Arc;
use std::time::Duration;

use domain::text::counted;
use protocol::supervision::EventName;
use serde_json::{Value, json};
use supervision::log_read::{Filter, Query, Search};
use supervision::real::RealDisk;

use super::admin::Admin;
use super::{print, print_json};
use crate::app::lock::Lock;
use crate::cli::DrainArgs;
use crate::config::Loaded;

/// How often the gateway is asked how far it is.
const LOOK_EVERY: Duration = Duration::from_millis(200);

/// Drains; with `--wait` returns when the gateway's process has let its directory go.
pub async fn run(loaded: &Loaded, arguments: &DrainArgs) -> anyhow::Result<()> {
    let admin = Admin::require(&loaded.paths).await?;
    let since = format!("{:.6}", jiff::Timestamp::now());
    let json = arguments.output.json;
    let mut answer: Value = admin.post("drain", &json!({})).await?.json().await?;
    let mut told = progress(&answer);
    if !json {
        print(&told)?;
    }
    if arguments.wait {
        let lock = loaded.paths.run.join("lock");
        while Lock::holder(&lock).is_some() {
            tokio::time::sleep(LOOK_EVERY).await;
            // It closes its doors before it ends.
            let Ok(status) = admin.get("status").await else { continue };
            let now = progress(&status);
            if now != told && !json {
                print(&now)?;
            }
            told = now;
        }
    }
    if arguments.wait {
        // Of a gateway that has ended there is nothing more to say.
        answer["ended"] = true.into();
    }
    match (json, arguments.wait) {
        (true, _) => print_json(&answer),
        (false, true) => print(&ended(kept(loaded, &since))),
        (false, false) => Ok(()),
    }
}

/// How many turns the gateway that has ended kept for the next start, as the log says; `None` when it does not.
fn kept(loaded: &Loaded, since: &str) -> Option<u64> {
    let filter = Filter { events: vec![EventName::GatewayStopped], since: Some(since.to_owned()), ..Filter::default() };
    let query = Query { filter, after: None, tail: None };
    let page =
        Search::open(Arc::new(RealDisk), &loaded.paths.logs, query).and_then(|mut search| search.page(1)).ok()?;
    page.events.first()?.inbox
}

fn ended(kept: Option<u64>) -> String {
    match kept {
        None => "the gateway has ended; what is open, if anything, goes on at the next start".to_owned(),
        Some(0) => "the gateway has ended".to_owned(),
        Some(1) => "the gateway has ended; 1 open turn goes on at the next start".to_owned(),
        Some(more) => format!("the gateway has ended; {more} open turns go on at the next start"),
    }
}

fn progress(status: &Value) -> String {
    let count = |value: &Value| value.as_u64().unwrap_or(0);
    let running = counted(count(&status["turns_running"]), "turn");
    format!("draining: {running} running, {} open", count(&status["journal"]["open"]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_names_what_is_open_only_if_something_is() {
        assert_eq!(ended(Some(0)), "the gateway has ended");
        assert_eq!(ended(Some(1)), "the gateway has ended; 1 open turn goes on at the next start");
        assert!(ended(Some(2)).contains("2 open turns go on") && ended(None).contains("if anything"));
    }

    #[test]
    fn progress_is_one_line() {
        for (running, words) in [(1, "1 turn running"), (2, "2 turns running")] {
            let status = json!({"turns_running": running, "journal": {"open": 5}});
            assert_eq!(progress(&status), format!("draining: {words}, 5 open"));
        }
    }
}
