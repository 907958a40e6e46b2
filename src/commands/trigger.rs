//! `greenroom trigger`: hands a message in for a session, as a file that the gateway takes; also when none runs.

use std::io::Read as _;

use anyhow::Context;
use cron::{NotQueued, TriggerStore};
use domain::text::one_line;
use domain::trigger::{CONTENT_BYTES_MAX, Run, Trigger, TriggerId};
use jiff::tz::TimeZone;
use protocol::trigger::TriggerBook as _;
use serde_json::json;
use supervision::real::real_ports;

use super::cron::moment;
use super::{print, print_json};
use crate::app::cron::zones;
use crate::cli::{Output, TriggerArgs};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Does it, and prints what came of it.
pub fn run(loaded: &Loaded, arguments: TriggerArgs) -> anyhow::Result<()> {
    loaded.require_workspace().map_err(Exit::from)?;
    let store = TriggerStore::new(loaded.paths.workspace.clone(), real_ports(1)?);
    let TriggerArgs { id, message, list: _, act, output } = arguments;
    let Some(id) = id else { return list(&store, output) };
    let id = TriggerId::new(&id)
        .map_err(|bad| Exit::new(ExitCode::Usage, format!("{bad}, and {:?} is none", one_line(&id))))?;
    let unknown = || Exit::new(ExitCode::Failed, format!("there is no trigger {id}; --list shows all"));
    if act.remove {
        if !store.remove(&id)? {
            return Err(unknown().into());
        }
        let body = json!({"id": id, "removed": true});
        return if output.json { print_json(&body) } else { print(&format!("{id} is removed")) };
    }
    if act.enable || act.disable {
        let trigger = store.enable(&id, act.enable)?.ok_or_else(unknown)?;
        return if output.json { print_json(&json!(trigger)) } else { print(&line(&trigger)) };
    }
    if act.history {
        let trigger = store.list()?.into_iter().find(|trigger| trigger.id == id).ok_or_else(unknown)?;
        return history(&trigger, &zones(&loaded.config).local, output);
    }
    let message = match message {
        Some(message) => message,
        None => from_standard_input()?,
    };
    let file = store.put(&id, message).map_err(|error| {
        let code = match &error {
            NotQueued::Full => ExitCode::Refused,
            NotQueued::Unknown(_) | NotQueued::Disabled(_) | NotQueued::Bad(_) | NotQueued::Io(_) => ExitCode::Failed,
        };
        Exit::new(code, error.to_string())
    })?;
    let body = json!({"trigger_id": id, "file": format!("triggers/inbox/{file}")});
    if output.json { print_json(&body) } else { print(&format!("handed in as triggers/inbox/{file}")) }
}

fn from_standard_input() -> anyhow::Result<String> {
    let mut text = String::new();
    // One byte more than is taken, so that what is too long is told and not cut.
    let most = u64::try_from(CONTENT_BYTES_MAX + 1)?;
    std::io::stdin().take(most).read_to_string(&mut text).context("standard input cannot be read as text")?;
    Ok(text)
}

fn list(store: &TriggerStore, output: Output) -> anyhow::Result<()> {
    let triggers = store.list()?;
    if output.json {
        return print_json(&json!({"items": triggers, "next": null}));
    }
    if triggers.is_empty() {
        return print("no triggers; /trigger NAME in a chat makes one");
    }
    triggers.iter().try_for_each(|trigger| print(&line(trigger)))
}

fn line(trigger: &Trigger) -> String {
    let Trigger { id, name, session_key, enabled, last_error, last_run_at_ms, .. } = trigger;
    let state = match (enabled, last_error, last_run_at_ms) {
        (false, _, _) => "disabled".to_owned(),
        (true, Some(error), _) => format!("last failed: {}", one_line(error)),
        (true, None, Some(_)) => "last ok".to_owned(),
        (true, None, None) => "not used yet".to_owned(),
    };
    format!("{id}  {}  {}  {state}", one_line(session_key), one_line(name))
}

fn history(trigger: &Trigger, zone: &TimeZone, output: Output) -> anyhow::Result<()> {
    let runs = &trigger.run_history;
    if output.json {
        return print_json(&json!({"items": runs, "next": null}));
    }
    if runs.is_empty() {
        return print("nothing was delivered yet");
    }
    runs.iter().try_for_each(|Run { run_at_ms, error, .. }| {
        let how = error.as_deref().map_or_else(|| "ok".to_owned(), |error| format!("failed: {}", one_line(error)));
        print(&format!("{}  {how}", moment(*run_at_ms, zone)))
    })
}
