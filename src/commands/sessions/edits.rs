//! Shows and changes how a conversation hangs together: through the gateway or, when none runs, by the same session actor
//! in this process.

use std::path::Path;

use channel::gateway::edits::{self, Verb};
use channel::gateway::letters::Fault;
use domain::exchange::single::Format;
use domain::ids::SessionKey;
use domain::text::counted;
use protocol::transcripts::TranscriptReader;
use serde_json::{Value, json};
use supervision::real::real_ports;

use super::{drawn, files, has_file, parse};
use crate::app::{App, Options};
use crate::cli::Output;
use crate::cli::edits::{CompactArgs, Edits, FileFormat, KeyArgs};
use crate::commands::admin::{Admin, encode};
use crate::commands::closing::exit;
use crate::commands::{print, print_json};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// The word for the place before the first entry.
const ROOT: &str = "root";

/// Runs the subcommand.
pub async fn run(loaded: Loaded, what: Edits) -> anyhow::Result<()> {
    let (key, verb, body, output) = match what {
        Edits::Tree(KeyArgs { key, output }) => return tree(&loaded, &parse(&key)?, output).await,
        Edits::Import { file, key, output } => return import(loaded, &file, key.as_deref(), output).await,
        Edits::Export { key, file, to, output } => {
            let format = match to {
                FileFormat::Greenroom => Format::Greenroom,
                FileFormat::Nanobot => Format::Nanobot,
                FileFormat::Openclaw => Format::Openclaw,
            };
            (key, Verb::Export, json!({"file": std::path::absolute(file)?, "format": format}), output)
        }
        Edits::Check { key, output } => return check(&loaded, key.as_deref(), output).await,
        Edits::Label { key, entry, text, output } => (key, Verb::Label, json!({"entry": entry, "text": text}), output),
        Edits::Rename { key, name, output } => (key, Verb::Rename, json!({"name": name}), output),
        Edits::Branch { key, entry, summary, output } => {
            let entry = Some(entry).filter(|entry| entry != ROOT);
            (key, Verb::Branch, json!({"entry": entry, "summary": summary}), output)
        }
        Edits::Reset(KeyArgs { key, output }) => (key, Verb::Reset, json!({}), output),
        Edits::Repair(KeyArgs { key, output }) => (key, Verb::Repair, json!({}), output),
        Edits::Compact(arguments) => {
            let CompactArgs { key, keep_last, keep_days, keep_important, summary, output } = arguments;
            let body = json!({"keep_last": keep_last, "keep_days": keep_days, "keep_important": keep_important,
                "summary": summary});
            (key, Verb::Compact, body, output)
        }
        Edits::Fork { key, newkey, entry, output } => {
            (key, Verb::Fork, json!({"to": parse(&newkey)?, "entry": entry}), output)
        }
    };
    let key = parse(&key)?;
    // What the session mends when it reads its file is mended before it comes to the repair.
    let mut asked = body.clone();
    if verb == Verb::Repair {
        asked = look(&loaded, &key, "check", checked(&key)).await.unwrap_or_default();
    }
    let answer = edit(loaded, &key, verb, body).await?;
    if output.json { print_json(&answer) } else { print(&in_words(&key, verb, &asked, &answer)) }
}

async fn edit(loaded: Loaded, key: &SessionKey, verb: Verb, mut body: Value) -> anyhow::Result<Value> {
    if let Some(admin) = Admin::find(&loaded.paths).await? {
        let path = format!("sessions/{}/{}", encode(key.as_str()), verb.word());
        return Ok(admin.post(&path, &body).await?.json().await?);
    }
    // A turn that was cut goes on with the next gateway, not here.
    body["wait"] = false.into();
    let asked = verb.parse(body.to_string().as_bytes());
    let (asked, patience) = asked.map_err(|why| Exit::new(ExitCode::Usage, why))?;
    loaded.require_workspace().map_err(Exit::from)?;
    if !has_file(&loaded, key)? {
        return Err(no_session(key).into());
    }
    let app = App::start(Options::at_rest(loaded)).await?;
    let edited = edits::edit((app.sessions(), app.journal()), key, asked, patience).await;
    app.stop().await;
    Ok(serde_json::to_value(edited.map_err(refused)?)?)
}

fn no_session(key: &SessionKey) -> Exit {
    Exit::new(ExitCode::Failed, format!("there is no session {key}")).named("not_found")
}

fn refused(fault: Fault) -> anyhow::Error {
    exit(fault).into()
}

/// What an edit did, from what was asked and answered; of a repair, from what was wrong before.
fn in_words(key: &SessionKey, verb: Verb, asked: &Value, answer: &Value) -> String {
    let wrote = answer["entries"].as_array().is_some_and(|entries| !entries.is_empty());
    let leaf = answer["leaf"].as_str().unwrap_or(ROOT);
    match verb {
        Verb::Label => {
            let entry = asked["entry"].as_str().unwrap_or_default();
            match asked["text"].as_str() {
                Some(text) => format!("entry {entry} of {key} has the label {text}"),
                None => format!("entry {entry} of {key} has no label now"),
            }
        }
        Verb::Rename => match asked["name"].as_str() {
            None | Some("") => format!("{key} has no name now"),
            Some(name) => format!("{key} is now called {name}"),
        },
        Verb::Branch if wrote => format!("{key} goes on from {leaf}"),
        Verb::Branch => format!("{key} stands at {leaf} already"),
        Verb::Reset => format!("{key} begins anew; its transcript keeps everything"),
        Verb::Compact => {
            let tokens = |name: &str| answer[name].as_u64().unwrap_or_default();
            let kept =
                answer["first_kept"].as_str().map_or("only the summary".to_owned(), |id| format!("from {id} on"));
            let (before, after) = (tokens("tokens_before"), tokens("tokens_after"));
            format!("{key}: the model is shown {kept}; about {after} tokens instead of {before}")
        }
        Verb::Fork => {
            let copied = counted(answer["copied"].as_u64().unwrap_or_default(), "line");
            let without = match answer["attachments_missing"].as_u64() {
                None | Some(0) => String::new(),
                Some(count) => format!(", without {}, which cannot be read", counted(count, "attachment")),
            };
            format!("{} has {copied} of {key}{without}", answer["key"].as_str().unwrap_or_default())
        }
        Verb::Export => {
            let file = answer["file"].as_str().unwrap_or_default();
            format!("{key} is in {file}, {} bytes{}", answer["bytes"], remarks(answer))
        }
        Verb::Repair if wrote || asked["repairable"] == true => {
            format!("{key} is mended; `greenroom sessions check {key}` says what is left")
        }
        Verb::Repair => format!("{key} has nothing that could be mended"),
    }
}

/// Each on a line of its own.
fn remarks(answer: &Value) -> String {
    let told = answer["remarks"].as_array().into_iter().flatten().map(|remark| {
        let line = remark["line"].as_u64().map(|line| format!("line {line}: ")).unwrap_or_default();
        format!("\n  {line}{}", remark["what"].as_str().unwrap_or_default())
    });
    told.collect()
}

async fn import(loaded: Loaded, file: &Path, key: Option<&str>, output: Output) -> anyhow::Result<()> {
    let (file, key) = (std::path::absolute(file)?, key.map(parse).transpose()?);
    let body: Value = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.post("import", &json!({"file": file, "key": key})).await?.json().await?,
        None => {
            loaded.require_workspace().map_err(Exit::from)?;
            let app = App::start(Options::at_rest(loaded)).await?;
            let bring = move || {
                let who = (app.sessions(), app.journal());
                let brought = edits::bring_in(who, &**app.transcripts(), &file, key.as_ref());
                (app, brought)
            };
            let (app, brought) = tokio::task::spawn_blocking(bring).await?;
            if let Ok(brought) = &brought {
                edits::tell_imported(&**app.kernel().log(), &brought.key);
            }
            app.stop().await;
            serde_json::to_value(brought.map_err(|why| refused(edits::fault(&why)))?)?
        }
    };
    if output.json {
        return print_json(&body);
    }
    let messages = counted(body["messages"].as_u64().unwrap_or_default(), "message");
    print(&format!("{} has {messages}{}", body["key"].as_str().unwrap_or_default(), remarks(&body)))
}

async fn tree(loaded: &Loaded, key: &SessionKey, output: Output) -> anyhow::Result<()> {
    let body = look(loaded, key, "tree", |files| Ok(files.tree(key)?.map(serde_json::to_value).transpose()?)).await?;
    if output.json {
        return print_json(&body);
    }
    let lines = drawn::tree(&body, &loaded.config.agents.defaults.timezone);
    lines.iter().try_for_each(|line| print(line))
}

/// What the gateway answers or, without one, what the files say.
async fn look(
    loaded: &Loaded,
    key: &SessionKey,
    what: &str,
    at_rest: impl FnOnce(&dyn TranscriptReader) -> anyhow::Result<Option<Value>>,
) -> anyhow::Result<Value> {
    if let Some(admin) = Admin::find(&loaded.paths).await? {
        return admin.get(&format!("sessions/{}/{what}", encode(key.as_str()))).await;
    }
    loaded.require_workspace().map_err(Exit::from)?;
    Ok(at_rest(&*files(loaded, real_ports(1)?))?.ok_or_else(|| no_session(key))?)
}

/// What is wrong with the file of `key`.
fn checked(key: &SessionKey) -> impl FnOnce(&dyn TranscriptReader) -> anyhow::Result<Option<Value>> {
    |files| Ok(files.check(key)?.map(serde_json::to_value).transpose()?)
}

async fn check(loaded: &Loaded, key: Option<&str>, output: Output) -> anyhow::Result<()> {
    let keys = match key {
        Some(key) => vec![parse(key)?],
        None => {
            loaded.require_workspace().map_err(Exit::from)?;
            files(loaded, real_ports(1)?).keys()?
        }
    };
    let mut bodies = Vec::with_capacity(keys.len());
    for key in &keys {
        bodies.push(look(loaded, key, "check", checked(key)).await?);
    }
    let healthy = bodies.iter().all(|body| body["healthy"] == true);
    if output.json {
        match bodies.as_slice() {
            [only] if key.is_some() => print_json(only)?,
            all => print_json(&json!({"items": all, "next": null}))?,
        }
    } else {
        let told = bodies.iter().filter(|body| key.is_some() || body["healthy"] != true);
        told.flat_map(problems).try_for_each(|line| print(&line))?;
        if key.is_none() {
            print(&format!("checked {}", counted(bodies.len(), "transcript")))?;
        }
    }
    if healthy {
        return Ok(());
    }
    Err(Exit::new(ExitCode::Failed, "there are problems").printed().into())
}

/// A check, for people.
fn problems(body: &Value) -> Vec<String> {
    let file = body["file"].as_str().unwrap_or_default();
    if body["healthy"] == true {
        return vec![format!("{file}: nothing is wrong; {}", counted(body["entries"].as_u64().unwrap_or(0), "entry"))];
    }
    let all = body["problems"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = all
        .iter()
        .map(|problem| {
            let place = match (problem["line"].as_u64(), problem["entry"].as_str()) {
                (None, None) if problem["what"] == "unreadable" => "all of it".to_owned(),
                (Some(line), _) => format!("line {line}"),
                (None, Some(entry)) => format!("entry {entry}"),
                (None, None) => "the end".to_owned(),
            };
            let word = problem["what"].as_str().unwrap_or_default();
            let bytes =
                problem["bytes"].as_u64().map(|bytes| format!(", {}", counted(bytes, "byte"))).unwrap_or_default();
            let repair = problem["repair"].as_str().unwrap_or_default();
            let other = problem["other_line"].as_u64().map(|line| format!(" as line {line}")).unwrap_or_default();
            let detail = problem["detail"].as_str().map(|why| format!(": {why}")).unwrap_or_default();
            format!("{file}: {place}: {}{other}{bytes}{detail}. Repair: {repair}.", sentence(word))
        })
        .collect();
    let more = body["problems_total"].as_u64().unwrap_or_default().saturating_sub(all.len() as u64);
    if more > 0 {
        lines.push(format!("{file}: {more} more"));
    }
    lines
}

fn sentence(word: &str) -> &str {
    match word {
        "not_json" => "no JSON",
        "header_missing" => "the first line is no session header",
        "too_long" => "too long to be read",
        "torn_tail" => "a line that was cut short",
        "duplicate_id" => "the same id",
        "unreadable" => "it cannot be read",
        "unended" => "a line without an end",
        "parent_missing" => "it follows an entry that is not there",
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn problems_name_file_place_and_repair() {
        let body = json!({"file": "/s/a.jsonl", "healthy": false, "problems_total": 4, "problems": [
            {"line": 3, "what": "not_json", "repair": "none"},
            {"what": "torn_tail", "bytes": 1, "repair": "moved aside"},
            {"entry": "a1", "what": "parent_missing", "repair": "none"}]});
        assert_eq!(
            problems(&body),
            [
                "/s/a.jsonl: line 3: no JSON. Repair: none.",
                "/s/a.jsonl: the end: a line that was cut short, 1 byte. Repair: moved aside.",
                "/s/a.jsonl: entry a1: it follows an entry that is not there. Repair: none.",
                "/s/a.jsonl: 1 more",
            ]
        );
    }

    #[test]
    fn answers_are_sentences() {
        let key = SessionKey::new("api:7").unwrap();
        let none = json!({});
        let label = json!({"entry": "03f7", "text": "tax"});
        for (verb, asked, answer, text) in [
            (Verb::Rename, json!({"name": "Taxes"}), json!({}), "api:7 is now called Taxes"),
            (Verb::Rename, json!({"name": ""}), json!({}), "api:7 has no name now"),
            (Verb::Label, label, json!({}), "entry 03f7 of api:7 has the label tax"),
            (Verb::Label, json!({"entry": "03f7", "text": null}), json!({}), "entry 03f7 of api:7 has no label now"),
            (Verb::Branch, none.clone(), json!({"entries": [], "leaf": null}), "api:7 stands at root already"),
            (Verb::Branch, none.clone(), json!({"entries": ["b"], "leaf": "a"}), "api:7 goes on from a"),
            (
                Verb::Compact,
                none.clone(),
                json!({"entries": ["c"], "first_kept": "a", "tokens_before": 9, "tokens_after": 4}),
                "api:7: the model is shown from a on; about 4 tokens instead of 9",
            ),
            (Verb::Fork, none.clone(), json!({"key": "api:8", "copied": 1}), "api:8 has 1 line of api:7"),
            (
                Verb::Fork,
                none.clone(),
                json!({"key": "api:8", "copied": 2, "attachments_missing": 2}),
                "api:8 has 2 lines of api:7, without 2 attachments, which cannot be read",
            ),
            (Verb::Repair, none, json!({"entries": []}), "api:7 has nothing that could be mended"),
        ] {
            assert_eq!(in_words(&key, verb, &asked, &answer), text);
        }
    }
}
