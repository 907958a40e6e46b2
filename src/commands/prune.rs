//! `greenroom sessions prune`: through the gateway or, when none runs, by the same actors here.

use std::sync::Arc;

use channel::gateway::prune::{Asked, Parts, prune};
use domain::text::counted;
use serde_json::{Value, json};

use super::admin::Admin;
use super::closing::exit;
use super::{print, print_json};
use crate::app::{App, Options, parts};
use crate::cli::Output;
use crate::config::Loaded;

/// Runs the command.
pub async fn run(loaded: Loaded, asked: Asked, output: Output) -> anyhow::Result<()> {
    let body: Value = match Admin::find(&loaded.paths).await? {
        Some(admin) => {
            let Asked { dry_run, enforce } = asked;
            admin.post(&format!("prune?dry_run={dry_run}&enforce={enforce}"), &json!({})).await?.json().await?
        }
        None => at_rest(loaded, asked).await?,
    };
    if output.json {
        return print_json(&body);
    }
    told(&body).iter().try_for_each(|line| print(line))
}

async fn at_rest(loaded: Loaded, asked: Asked) -> anyhow::Result<Value> {
    let pruning = parts::pruning(&loaded.config);
    let app = App::start(Options::at_rest(loaded)).await?;
    let transcripts = Arc::clone(app.transcripts());
    let listed = Arc::clone(&transcripts).discover(Arc::clone(&app.ports().offload)).await;
    let done = match listed {
        Ok(()) => {
            let log = app.kernel().log().clone();
            let parts =
                Parts { journal: app.journal(), sessions: app.sessions(), transcripts, ports: app.ports(), log: &*log };
            prune(parts, &pruning, pruning.run(asked)).await.map_err(|fault| exit(fault).into())
        }
        Err(error) => Err(error.into()),
    };
    app.stop().await;
    done
}

/// One line for each item, and one for all.
fn told(body: &Value) -> Vec<String> {
    let items = body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return vec!["nothing has to go".to_owned()];
    }
    let dry = body["dry_run"] == true;
    let mut lines: Vec<String> = items.iter().map(|item| line(item, dry)).collect();
    let count =
        |name: &str| items.iter().filter(|item| item[name].is_string() && (dry || item["done"] == true)).count();
    let (sessions, files) = (counted(count("session"), "session"), counted(count("file"), "file"));
    lines.push(if dry {
        format!("{sessions} and {files} would go; --enforce does it")
    } else {
        let (freed, bytes) = (&body["freed_bytes"], &body["bytes"]);
        let stay = match items.iter().filter(|item| item["done"] != true).count() {
            0 => String::new(),
            1 => ", 1 stays".to_owned(),
            more => format!(", {more} stay"),
        };
        format!("{sessions} deleted, {files} removed{stay}, {freed} of {bytes} bytes freed")
    });
    lines
}

fn line(item: &Value, dry: bool) -> String {
    let (session, file) = (item["session"].as_str(), item["file"].as_str());
    let why = match item["why"].as_str() {
        Some("age") => "too old",
        Some("count") => "too many",
        _ => "too much space",
    };
    let what = match (dry, item["done"] == true, session) {
        (true, _, _) => "would go",
        (false, true, Some(_)) => "deleted",
        (false, true, None) => "removed",
        (false, false, Some(_)) => "stays: it is in use, or cannot be moved",
        (false, false, None) => "stays: it cannot be removed",
    };
    format!("{}: {why}; {what}", session.or(file).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_would_go_is_not_told_as_done() {
        let items = |done: [bool; 3]| {
            json!([
                {"file": "archive/a", "why": "age", "done": done[0]},
                {"session": "api:1", "why": "count", "done": done[1]},
                {"session": "api:2", "why": "disk", "done": done[2]},
            ])
        };
        let body = |dry: bool, items: Value| json!({"dry_run": dry, "items": items, "bytes": 90, "freed_bytes": 9});
        for (body, lines) in [
            (body(true, json!([])), vec!["nothing has to go"]),
            (body(false, json!([])), vec!["nothing has to go"]),
            (
                body(true, items([false; 3])),
                vec![
                    "archive/a: too old; would go",
                    "api:1: too many; would go",
                    "api:2: too much space; would go",
                    "2 sessions and 1 file would go; --enforce does it",
                ],
            ),
            (
                body(false, items([true, true, false])),
                vec![
                    "archive/a: too old; removed",
                    "api:1: too many; deleted",
                    "api:2: too much space; stays: it is in use, or cannot be moved",
                    "1 session deleted, 1 file removed, 1 stays, 9 of 90 bytes freed",
                ],
            ),
        ] {
            assert_eq!(told(&body), lines);
        }
    }
}
