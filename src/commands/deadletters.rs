//! `greenroom deadletters`: turns and deliveries that were given up. Through the gateway or, when none runs, on the
//! journal itself.

use channel::gateway::letters::{self, Fault};
use domain::ids::{LetterId, TurnId};
use domain::text::counted;
use serde_json::{Value, json};

use super::admin::{Admin, encode};
use super::{print, print_json};
use crate::app::{App, Options};
use crate::cli::{Deadletters, Output};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Runs the subcommand.
pub async fn run(loaded: Loaded, what: Deadletters) -> anyhow::Result<()> {
    match what {
        Deadletters::List(output) => list(loaded, output).await,
        Deadletters::Show { id, content, output } => show(loaded, id, content, output).await,
        Deadletters::Retry { id, output } => retry(loaded, id, output).await,
        Deadletters::Drop { id, output } => drop_letter(loaded, id, output).await,
    }
}

fn path(id: LetterId) -> String {
    format!("deadletters/{}", encode(&id.to_string()))
}

fn refused(fault: Fault) -> anyhow::Error {
    let code = if fault.status == 503 { ExitCode::Refused } else { ExitCode::Failed };
    Exit::new(code, fault.message).named(fault.code).into()
}

async fn list(loaded: Loaded, output: Output) -> anyhow::Result<()> {
    let body = match Admin::find(&loaded.paths).await? {
        Some(admin) => json!({"items": admin.list("deadletters").await?, "next": null}),
        None => {
            let app = App::start(Options::at_rest(loaded)).await?;
            let body = letters::list(app.journal()).await;
            app.stop().await;
            body.map_err(refused)?
        }
    };
    if output.json {
        return print_json(&body);
    }
    let items = body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if items.is_empty() {
        return print("no dead letters");
    }
    items.iter().try_for_each(|item| print(&line(item)))
}

fn field<'a>(item: &'a Value, name: &str) -> &'a str {
    item[name].as_str().unwrap_or_default()
}

fn time(item: &Value, name: &str) -> String {
    let at = item[name].as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    at.map(|at| format!("{at:.0}")).unwrap_or_default()
}

fn line(item: &Value) -> String {
    let [kind, id, key, reason] = ["kind", "id", "key", "reason"].map(|name| field(item, name));
    format!("{}  {kind:8}  {id}  {key}  {reason}", time(item, "at_ms"))
}

async fn show(loaded: Loaded, id: LetterId, content: bool, output: Output) -> anyhow::Result<()> {
    let body = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.get(&format!("{}?content={content}", path(id))).await?,
        None => {
            let dir = loaded.paths.logs.clone();
            let app = App::start(Options::at_rest(loaded)).await?;
            let events = letters::events(&*app.ports().disk, &dir, id);
            let body = letters::show(app.journal(), id, &events, content).await;
            app.stop().await;
            body.map_err(refused)?
        }
    };
    if output.json { print_json(&body) } else { print(&in_words(&body)) }
}

fn in_words(body: &Value) -> String {
    let mut lines = vec![
        format!("{} {}", field(body, "kind"), field(body, "id")),
        format!("session     {}", field(body, "key")),
        format!("given up    {}: {}", time(body, "at_ms"), field(body, "reason")),
    ];
    let mut add = |name: &str, text: String| {
        if !text.is_empty() {
            lines.push(format!("{name:11} {text}"));
        }
    };
    add("turn", field(body, "turn").to_owned());
    add("message", field(body, "message_id").to_owned());
    add("accepted", time(body, "accepted_ms"));
    add("committed", time(body, "committed_ms"));
    add("route", if body["route"].is_null() { String::new() } else { body["route"].to_string() });
    add("size", body["bytes"].as_u64().map(|bytes| counted(bytes, "byte")).unwrap_or_default());
    add("missing", field(body, "missing").to_owned());
    add("text", field(body, "text").to_owned());
    for event in body["events"].as_array().map(Vec::as_slice).unwrap_or_default() {
        let [ts, name, path, reason] = ["ts", "event", "path", "reason"].map(|name| field(event, name));
        let panic = event["panic"]["text"].as_str().unwrap_or_default();
        lines.push(format!("{ts}  {name}  {path}  {reason} {panic}").trim_end().to_owned());
    }
    lines.join("\n")
}

async fn retry(loaded: Loaded, id: LetterId, output: Output) -> anyhow::Result<()> {
    let Some(admin) = Admin::find(&loaded.paths).await? else { return retry_here(loaded, id, output).await };
    let body: Value = admin.post(&format!("{}/retry", path(id)), &json!({})).await?.json().await?;
    told_retried(&body, output)
}

fn told_retried(body: &Value, output: Output) -> anyhow::Result<()> {
    if output.json {
        return print_json(body);
    }
    match field(body, "kind") {
        "turn" => print(&format!("runs again as turn {} ({})", field(body, "turn_id"), field(body, "state"))),
        _ => print("will be delivered again"),
    }
}

/// Without a gateway the turn runs in this process; a delivery waits for the next gateway.
async fn retry_here(loaded: Loaded, id: LetterId, output: Output) -> anyhow::Result<()> {
    let app = App::start(Options::one_shot(loaded)).await?;
    let done = run_here(&app, id, output).await;
    app.stop().await;
    done
}

async fn run_here(app: &App, id: LetterId, output: Output) -> anyhow::Result<()> {
    let turn = TurnId(app.ports().ids.uuid_v7());
    let key = app.dead_letters().await?.into_iter().find(|letter| letter.id == id).map(|letter| letter.key);
    let stream = key.map(|key| app.watch(&key, turn));
    let retried = letters::retry(app.journal(), app.ports(), &**app.kernel().log(), id, turn).await.map_err(refused)?;
    told_retried(&retried.body, output)?;
    let (Some(stream), Some(_)) = (stream, retried.turn) else { return Ok(()) };
    let finished = stream.finished().await?;
    if output.json { Ok(()) } else { print(&finished.text) }
}

async fn drop_letter(loaded: Loaded, id: LetterId, output: Output) -> anyhow::Result<()> {
    let body: Value = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.post(&format!("{}/drop", path(id)), &json!({})).await?.json().await?,
        None => {
            let app = App::start(Options::at_rest(loaded)).await?;
            let body = letters::drop_letter(app.journal(), &**app.kernel().log(), id).await;
            app.stop().await;
            body.map_err(refused)?
        }
    };
    if output.json { print_json(&body) } else { print("dropped") }
}
