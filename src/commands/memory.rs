//! `greenroom memory`: what is remembered, and what is made of it. Through the gateway; when none runs, the files of the
//! workspace are read here, and changed under its locks.

use anyhow::Context;
use domain::command::DreamAsk;
use domain::memory::LINES_MAX;
use domain::text::counted;
use protocol::memory::WhichLines;
use serde_json::{Value, json};
use supervision::real::real_ports;

use super::admin::{Admin, encode};
use super::{print, print_json};
use crate::app::{App, Options, archive};
use crate::cli::{Memory, Output, Which};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Runs the subcommand.
pub async fn run(loaded: Loaded, what: Memory) -> anyhow::Result<()> {
    loaded.require_workspace().map_err(Exit::from)?;
    match what {
        Memory::Show(output) => show(&loaded, output).await,
        Memory::Search { words, which } => history(&loaded, words.join(" "), which).await,
        Memory::History { which } => history(&loaded, String::new(), which).await,
        Memory::Dream(output) => {
            let body = Admin::require(&loaded.paths).await?.post("memory/dream", &json!({})).await?.json().await?;
            told(&body, output)
        }
        Memory::Log { id, output } => {
            let path = id.as_deref().map_or_else(String::new, |id| format!("?id={}", encode(id)));
            let body = match Admin::find(&loaded.paths).await? {
                Some(admin) => admin.get(&format!("memory/log{path}")).await?,
                None => text_here(&loaded, &DreamAsk::Log(id))?,
            };
            told(&body, output)
        }
        Memory::Restore { id: None, output } => {
            let body = match Admin::find(&loaded.paths).await? {
                Some(admin) => admin.get("memory/versions").await?,
                None => text_here(&loaded, &DreamAsk::Restore(None))?,
            };
            told(&body, output)
        }
        Memory::Restore { id: Some(id), output } => {
            let body = match Admin::find(&loaded.paths).await? {
                Some(admin) => {
                    let path = format!("memory/restore/{}", encode(&id));
                    admin.post(&path, &json!({})).await?.json().await?
                }
                None => restore_here(loaded, id).await?,
            };
            told(&body, output)
        }
    }
}

/// What files say, which are whole at any moment.
fn text_here(loaded: &Loaded, ask: &DreamAsk) -> anyhow::Result<Value> {
    let told = archive(loaded).tell(&real_ports(1)?, ask).map_err(|why| refused(why.to_string()))?;
    Ok(json!({ "text": told }))
}

/// By the same actor as in a gateway, so that the workspace has one writer.
async fn restore_here(loaded: Loaded, id: String) -> anyhow::Result<Value> {
    let app = App::start(Options::at_rest(loaded)).await?;
    let done = app.memory().dream(DreamAsk::Restore(Some(id))).await;
    app.stop().await;
    let told = done.context("Dream does not answer")?.map_err(refused)?;
    Ok(json!({ "text": told }))
}

/// The same as when the gateway says it.
fn refused(why: String) -> Exit {
    Exit::new(ExitCode::of_answer(409, "refused"), why).named("refused")
}

fn told(body: &Value, output: Output) -> anyhow::Result<()> {
    if output.json { print_json(body) } else { print(body["text"].as_str().unwrap_or_default()) }
}

async fn show(loaded: &Loaded, output: Output) -> anyhow::Result<()> {
    let body = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.get("memory").await?,
        None => {
            let max = loaded.config.agents.defaults.dream.memory_bytes_max;
            let shown = archive(loaded).shown(&*real_ports(1)?.disk, max).context("the memory cannot be read")?;
            serde_json::to_value(shown)?
        }
    };
    if output.json { print_json(&body) } else { print(&in_words(&body)) }
}

fn in_words(body: &Value) -> String {
    let mut parts = Vec::new();
    for file in body["files"].as_array().into_iter().flatten() {
        let path = file["path"].as_str().unwrap_or_default();
        let Some(text) = file["text"].as_str() else {
            parts.push(format!("{path}: does not exist"));
            continue;
        };
        let over =
            body["memory_bytes_max"].as_u64().filter(|max| path == "memory/MEMORY.md" && text.len() as u64 > *max);
        let over =
            over.map(|max| format!(", more than {max}: the next Dream is asked to shorten it")).unwrap_or_default();
        parts.push(format!("{path} ({}{over})\n\n{}", counted(text.len(), "byte"), text.trim_end()));
    }
    let waiting = counted(body["not_worked_in"].as_u64().unwrap_or(0), "line");
    let versions = counted(body["versions"].as_u64().unwrap_or(0), "version");
    let newest = body["newest_version"]["timestamp"].as_str();
    let newest = newest.map(|at| format!(", the newest of {at}")).unwrap_or_default();
    parts.push(format!("{waiting} of the archive not worked in yet; {versions} kept{newest}"));
    parts.join("\n\n")
}

async fn history(loaded: &Loaded, words: String, which: Which) -> anyhow::Result<()> {
    let Which { session, limit, output } = which;
    let body = match Admin::find(&loaded.paths).await? {
        Some(admin) => {
            let session = session.map_or_else(String::new, |key| format!("&session={}", encode(&key)));
            admin.get(&format!("memory/lines?words={}&limit={limit}{session}", encode(&words))).await?
        }
        None => {
            let lines = archive(loaded).lines(&*real_ports(1)?.disk, &WhichLines { words, session, limit });
            serde_json::to_value(lines.context("the archive cannot be read")?)?
        }
    };
    if output.json {
        return print_json(&body);
    }
    let lines = body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    if lines.is_empty() {
        return print("nothing found");
    }
    if body["more"] == true {
        print(&format!("(only the newest {limit}; --limit shows more, of about {LINES_MAX} that are kept)"))?;
    }
    lines.iter().try_for_each(|line| {
        let text = |name: &str| line[name].as_str();
        let (at, key) = (text("timestamp").unwrap_or_default(), text("session_key").unwrap_or("-"));
        let content = text("content").unwrap_or_default().trim().replace('\n', "\n  ");
        print(&format!("{}  {at}  {key}\n  {content}", line["cursor"]))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_there_is_is_told_in_words() {
        let body = json!({
            "files": [{"path": "SOUL.md", "bytes": null, "text": null}, {"path": "memory/MEMORY.md", "bytes": 5, "text": "facts"}],
            "memory_bytes_max": 4, "not_worked_in": 1, "versions": 2, "newest_version": {"timestamp": "2026-11-30 14:19"},
        });
        assert_eq!(
            in_words(&body),
            "SOUL.md: does not exist\n\nmemory/MEMORY.md (5 bytes, more than 4: the next Dream is asked to shorten it)\n\nfacts\n\n\
             1 line of the archive not worked in yet; 2 versions kept, the newest of 2026-11-30 14:19"
        );
    }
}
