//! `greenroom sessions prune`: through the gateway or, when none runs, by the same actors here.

use std::sync::Arc;

use channel::gateway::prune::{Parts, Run, prune};
use domain::text::counted;
use serde_json::{Value, json};

use super::admin::Admin;
use super::closing::exit;
use super::{print, print_json};
use crate::app::{App, Options, parts};
use crate::cli::Output;
use crate::config::Loaded;

/// Runs the command.
pub async fn run(loaded: Loaded, dry_run: bool, output: Output) -> anyhow::Result<()> {
    let body: Value = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.post(&format!("prune?dry_run={dry_run}"), &json!({})).await?.json().await?,
        None => at_rest(loaded, dry_run).await?,
    };
    if output.json {
        return print_json(&body);
    }
    let items = body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    for item in items {
        let what = item["session"].as_str().or(item["file"].as_str()).unwrap_or_default();
        let why = match item["why"].as_str() {
            Some("age") => "too old",
            Some("count") => "too many",
            _ => "too much space",
        };
        let done = if dry_run || item["done"] == true { "" } else { ", and stays: it is in use, or cannot be moved" };
        print(&format!("{what}: {why}{done}"))?;
    }
    let would = if dry_run { "would go" } else { "looked through" };
    let (bytes, freed) = (body["bytes"].as_u64().unwrap_or(0), body["freed_bytes"].as_u64().unwrap_or(0));
    print(&format!("{} {would}, {freed} of {bytes} bytes", counted(items.len(), "item")))
}

async fn at_rest(loaded: Loaded, dry_run: bool) -> anyhow::Result<Value> {
    let pruning = parts::pruning(&loaded.config);
    let app = App::start(Options::at_rest(loaded)).await?;
    let transcripts = Arc::clone(app.transcripts());
    let listed = Arc::clone(&transcripts).discover(Arc::clone(&app.ports().offload)).await;
    let run = if dry_run { Run::Dry } else { Run::Real };
    let done = match listed {
        Ok(()) => {
            let log = app.kernel().log().clone();
            let parts =
                Parts { journal: app.journal(), sessions: app.sessions(), transcripts, ports: app.ports(), log: &*log };
            prune(parts, &pruning, run).await.map_err(|fault| exit(fault).into())
        }
        Err(error) => Err(error.into()),
    };
    app.stop().await;
    done
}
