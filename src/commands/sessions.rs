//! `greenroom sessions`: lists, shows and changes conversations; ends quarantines.

mod drawn;
mod edits;
mod shown;

use std::sync::Arc;

use channel::gateway::closing::shown as archived;
use channel::gateway::prune::Asked;
use channel::gateway::{listed, open_turns};
use domain::ids::SessionKey;
use domain::keys::{Key, SessionKind};
use domain::text::one_line;
use protocol::journal::Shelf;
use protocol::transcripts::TranscriptReader;
use serde_json::{Value, json};
use session::Transcripts;
use supervision::ports::{Open, Ports};
use supervision::real::real_ports;

use self::shown::{conversation, waiting};
use super::admin::{Admin, encode};
use super::closing::{self, Act};
use super::{print, print_json, prune};
use crate::app::{App, Options};
use crate::cli::{Output, Sessions};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Runs the subcommand, through the gateway or, when none runs, on the files.
pub async fn run(loaded: Loaded, what: Sessions) -> anyhow::Result<()> {
    match what {
        Sessions::List { archived, deleted, limit, output } => {
            let which = match (archived, deleted) {
                (true, _) => Which::Ended(Shelf::Archive),
                (false, true) => Which::Ended(Shelf::Deleted),
                (false, false) => Which::All,
            };
            list(&loaded, which, limit, output).await
        }
        Sessions::Show { key, archived: false, output } => show(loaded, &parse(&key)?, output).await,
        Sessions::Show { key, archived: true, output } => show_archived(&loaded, &parse(&key)?, output).await,
        Sessions::Edits(what) => edits::run(loaded, what).await,
        Sessions::Delete { key, archived, output } => {
            let act = if archived { Act::DeleteArchived } else { Act::Delete };
            closing::run(loaded, &parse(&key)?, act, output).await
        }
        Sessions::Archive(one) => closing::run(loaded, &parse(&one.key)?, Act::Archive, one.output).await,
        Sessions::Unarchive(one) => closing::run(loaded, &parse(&one.key)?, Act::Unarchive, one.output).await,
        // What has to go is never decided by half of what was meant.
        Sessions::Prune { .. } if loaded.problems.iter().any(|problem| problem.path.starts_with("session")) => {
            Err(loaded.require_valid().map_or_else(Exit::from, |()| Exit::new(ExitCode::Failed, "")).into())
        }
        Sessions::Prune { dry_run, enforce, output } => prune::run(loaded, Asked { dry_run, enforce }, output).await,
        Sessions::Release { key, output } => release(loaded, &parse(&key)?, output).await,
    }
}

/// Which sessions.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Which {
    /// Those that go on.
    All,
    /// Those that ended, by where their transcripts are.
    Ended(Shelf),
}

fn parse(key: &str) -> Result<SessionKey, Exit> {
    SessionKey::new(key).map_err(|error| Exit::new(ExitCode::Usage, error.to_string()))
}

fn files(loaded: &Loaded, ports: Ports) -> Arc<Transcripts> {
    Arc::new(Transcripts::new(ports, loaded.paths.sessions.clone()))
}

/// Whether the session has a file; why it cannot be read is told at once, as no session could be loaded from it.
pub(super) fn has_file(loaded: &Loaded, key: &SessionKey) -> anyhow::Result<bool> {
    let ports = real_ports(1)?;
    let file = files(loaded, ports.clone()).file_of(key);
    match ports.disk.open(&file, Open::Read) {
        // An empty file is no session.
        Ok(file) => Ok(file.opened().length > 0),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(false),
        Err(error) => {
            let message = format!("{} cannot be read: {error}", file.display());
            Err(Exit::new(ExitCode::Failed, message).named("unreadable").into())
        }
    }
}

/// All sessions, as the gateway would list them.
async fn at_rest(loaded: &Loaded) -> anyhow::Result<Vec<Value>> {
    loaded.require_workspace().map_err(Exit::from)?;
    let ports = real_ports(1)?;
    let transcripts = files(loaded, ports.clone());
    Arc::clone(&transcripts).discover(ports.offload).await?;
    let mut body = serde_json::to_value(listed(&transcripts.page(None, usize::MAX), |_| None))?;
    Ok(body["items"].as_array_mut().map(std::mem::take).unwrap_or_default())
}

/// The session of the terminal, or the owner's main one, that was used last: what is said in one of the others is said to
/// somebody else.
pub(super) async fn last_used(loaded: &Loaded) -> anyhow::Result<Option<SessionKey>> {
    let main_key = &loaded.config.session.main_key;
    let ours = |key: &SessionKey| matches!(Key::from(key).kind(main_key), SessionKind::Cli | SessionKind::Main);
    let items = all(loaded, Which::All).await?;
    let keys = items.iter().filter_map(|item| {
        let key = SessionKey::new(item["key"].as_str()?).ok().filter(ours)?;
        Some((item["updated_ms"].as_u64(), key))
    });
    Ok(keys.max_by_key(|(updated_ms, _)| *updated_ms).map(|(_, key)| key))
}

async fn all(loaded: &Loaded, which: Which) -> anyhow::Result<Vec<Value>> {
    match (Admin::find(&loaded.paths).await?, which) {
        (Some(admin), Which::All) => admin.list("sessions").await,
        (Some(admin), Which::Ended(Shelf::Archive)) => admin.list("archive").await,
        (Some(admin), Which::Ended(Shelf::Deleted)) => admin.list("deleted").await,
        (None, Which::All) => at_rest(loaded).await,
        (None, Which::Ended(shelf)) => {
            loaded.require_workspace().map_err(Exit::from)?;
            let page = files(loaded, real_ports(1)?).ended(shelf, None, usize::MAX)?;
            page.items.into_iter().map(|one| Ok(serde_json::to_value(one)?)).collect()
        }
    }
}

async fn show_archived(loaded: &Loaded, key: &SessionKey, output: Output) -> anyhow::Result<()> {
    let session = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.get(&format!("archive/{}", encode(key.as_str()))).await?,
        None => {
            loaded.require_workspace().map_err(Exit::from)?;
            let lines = files(loaded, real_ports(1)?).read_archived(key)?;
            let missing =
                || Exit::new(ExitCode::Failed, format!("there is no archived session {key}")).named("not_found");
            archived(key, &lines.ok_or_else(missing)?)
        }
    };
    if output.json {
        return print_json(&session);
    }
    let entries = session["entries"].as_array().map(Vec::as_slice).unwrap_or_default();
    conversation(key, entries, &loaded.config.agents.defaults.timezone).iter().try_for_each(|text| print(text))
}

async fn list(loaded: &Loaded, which: Which, limit: Option<usize>, output: Output) -> anyhow::Result<()> {
    let mut items = all(loaded, which).await?;
    items.sort_by_key(|item| std::cmp::Reverse(item["updated_ms"].as_u64()));
    items.truncate(limit.unwrap_or(usize::MAX));
    if output.json {
        return print_json(&json!({"items": items, "next": null}));
    }
    if items.is_empty() {
        return print("no sessions yet");
    }
    let zone = &loaded.config.agents.defaults.timezone;
    for item in &items {
        let at = item["updated_ms"].as_i64().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
        let at = at.and_then(|at| at.in_tz(zone).ok()).map(|at| at.strftime("%Y-%m-%d %H:%M").to_string());
        let field = |name: &str| item[name].as_str().unwrap_or_default().to_owned();
        let name = item["name"].as_str().map(|name| format!("[{}] ", one_line(name))).unwrap_or_default();
        let words = format!("{name}{}", one_line(&field("preview")));
        print(&format!("{:16}  {:32}  {words}", at.unwrap_or_default(), field("key")))?;
    }
    Ok(())
}

async fn show(loaded: Loaded, key: &SessionKey, output: Output) -> anyhow::Result<()> {
    let zone = loaded.config.agents.defaults.timezone.clone();
    let session = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.get(&format!("sessions/{}", encode(key.as_str()))).await?,
        None => shown_at_rest(loaded, key).await?,
    };
    let [entries, open] =
        ["entries", "open"].map(|name| session[name].as_array().map(Vec::as_slice).unwrap_or_default());
    if output.json {
        return print_json(&json!({"key": key, "entries": entries, "open": open}));
    }
    if entries.is_empty() && open.is_empty() {
        return print("no entries yet");
    }
    let texts = conversation(key, entries, &zone).into_iter().chain(open.iter().map(|turn| waiting(turn, &zone)));
    texts.into_iter().try_for_each(|text| print(&text))
}

/// The session as its file has it, and what the journal still has to do for it.
async fn shown_at_rest(loaded: Loaded, key: &SessionKey) -> anyhow::Result<Value> {
    loaded.require_workspace().map_err(Exit::from)?;
    let lines = files(&loaded, real_ports(1)?).read(key)?;
    let open = if loaded.paths.journal.exists() { open_at_rest(loaded, key).await? } else { Vec::new() };
    if lines.is_none() && open.is_empty() {
        return Err(Exit::new(ExitCode::Failed, format!("there is no session {key}")).named("not_found").into());
    }
    let entry = |line: &String| serde_json::from_str(line).unwrap_or(Value::String(line.clone()));
    let entries: Vec<Value> = lines.iter().flatten().map(entry).collect();
    Ok(json!({"entries": entries, "open": open}))
}

/// The turns that wait; without a journal that can be read, the file still has something to show.
async fn open_at_rest(loaded: Loaded, key: &SessionKey) -> anyhow::Result<Vec<Value>> {
    let app = match App::start(Options::at_rest(loaded)).await {
        Ok(app) => app,
        Err(error) => {
            eprintln!("greenroom: the journal cannot be asked, so waiting turns are not shown: {error:#}");
            return Ok(Vec::new());
        }
    };
    let open = app.journal().open_of(key.clone()).await;
    app.stop().await;
    Ok(open_turns(open?, |_| false))
}

async fn release(loaded: Loaded, key: &SessionKey, output: Output) -> anyhow::Result<()> {
    let (answer, then) = match Admin::find(&loaded.paths).await? {
        Some(admin) => {
            let path = format!("sessions/{}/release", encode(key.as_str()));
            (admin.post(&path, &json!({})).await?.json().await?, "runs again")
        }
        None => {
            let app = App::start(Options::at_rest(loaded)).await?;
            let released = app.release(key).await;
            app.stop().await;
            if !released? {
                return Err(Exit::new(ExitCode::Failed, "this session is not quarantined")
                    .named("not_quarantined")
                    .into());
            }
            (json!({"released": true}), "runs again when the gateway does")
        }
    };
    if output.json { print_json(&answer) } else { print(&format!("{key} {then}")) }
}
