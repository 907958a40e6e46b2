//! `greenroom subagents`: through the gateway, in which they run.

use domain::ids::RunId;
use serde_json::{Value, json};

use super::admin::Admin;
use super::{print, print_json};
use crate::cli::{Output, Subagents};
use crate::config::Loaded;

/// Runs the subcommand.
pub async fn run(loaded: Loaded, what: Subagents) -> anyhow::Result<()> {
    let admin = Admin::require(&loaded.paths).await?;
    match what {
        Subagents::List(output) => list(&admin, output).await,
        Subagents::Show { run, output } => {
            let body = admin.get(&format!("subagents/{run}")).await?;
            if output.json { print_json(&body) } else { print(&in_words(&body)) }
        }
        Subagents::Cancel { run, output } => act(&admin, run, "cancel", output).await,
        Subagents::Retry { run, output } => act(&admin, run, "retry", output).await,
    }
}

fn field<'a>(item: &'a Value, name: &str) -> &'a str {
    item[name].as_str().unwrap_or_default()
}

fn line(item: &Value) -> String {
    let [run, state, parent, label, delivery] =
        ["run", "state", "parent", "label", "delivery"].map(|name| field(item, name));
    let delivery = match delivery {
        "" => String::new(),
        word => format!("  (report {word})"),
    };
    format!("{run}  {state:9}  {parent}  {label}{delivery}")
}

fn in_words(body: &Value) -> String {
    let text = field(body, "text");
    let said = if text.is_empty() { String::new() } else { format!("\n\n{text}") };
    format!("{}\nsession  {}{said}", line(body), field(body, "key"))
}

async fn list(admin: &Admin, output: Output) -> anyhow::Result<()> {
    let items = admin.list("subagents").await?;
    let undelivered = admin.get("subagents?limit=1").await?["undelivered"].take();
    if output.json {
        return print_json(&json!({"items": items, "undelivered": undelivered, "next": null}));
    }
    let undelivered = undelivered.as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() && undelivered.is_empty() {
        return print("no sub-agents");
    }
    items.iter().try_for_each(|item| print(&line(item)))?;
    undelivered.iter().try_for_each(|letter| {
        let [id, key, reason] = ["id", "key", "reason"].map(|name| field(letter, name));
        print(&format!("report not taken: {id}  {key}  {reason}; `greenroom deadletters retry {id}`"))
    })
}

async fn act(admin: &Admin, run: RunId, what: &str, output: Output) -> anyhow::Result<()> {
    let body: Value = admin.post(&format!("subagents/{run}/{what}"), &json!({})).await?.json().await?;
    match what {
        _ if output.json => print_json(&body),
        "cancel" => print("is being stopped"),
        _ => {
            print(&format!("runs again as {}", field(&body, "run")))?;
            let called: Vec<&str> =
                body["had_called"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
            if called.is_empty() {
                return Ok(());
            }
            print(&format!("{run} had called {}: what that did stands, and may be done again", called.join(", ")))
        }
    }
}
