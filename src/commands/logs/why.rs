//! `greenroom logs --why`: what happened to a session or a turn, in plain words.

use std::sync::Arc;

use channel::gateway::{Sources, why};
use session::Transcripts;
use supervision::real::real_ports;
use supervision::why::{Story, Subject};

use super::line::local;
use crate::app::{App, Options};
use crate::cli::Output;
use crate::commands::admin::{Admin, encode};
use crate::commands::{print, print_json};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Asks the gateway, or looks itself when none runs.
pub async fn run(loaded: Loaded, subject: &str, output: Output) -> anyhow::Result<()> {
    let parsed = Subject::parse(subject).map_err(|why| Exit::new(ExitCode::Usage, format!("--why: {why}")))?;
    let zone = loaded.config.agents.defaults.timezone.clone();
    let body = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.get(&format!("why/{}", encode(subject))).await?,
        None => serde_json::to_value(at_rest(loaded, parsed).await?)?,
    };
    let story: Story = serde_json::from_value(body.clone())?;
    if output.json {
        print_json(&body)?;
    } else if story.known {
        print(&told(&story, &zone))?;
    }
    match story.known {
        true => Ok(()),
        false => Err(Exit::new(ExitCode::Failed, nothing_known(&story)).into()),
    }
}

async fn at_rest(loaded: Loaded, subject: Subject) -> anyhow::Result<Story> {
    let ports = real_ports(1)?;
    let transcripts = Arc::new(Transcripts::new(ports.clone(), loaded.paths.sessions.clone()));
    Arc::clone(&transcripts).discover(ports.offload.clone()).await?;
    let sources = Sources { disk: ports.disk, offload: ports.offload, logs: loaded.paths.logs.clone(), transcripts };
    // Without a journal the files still have something to tell.
    let app = match App::start(Options::at_rest(loaded)).await {
        Ok(app) => Some(app),
        Err(error) => {
            eprintln!("greenroom: the journal cannot be asked: {error:#}");
            None
        }
    };
    let story = why(&sources, app.as_ref().map(App::journal), None, subject).await;
    if let Some(app) = app {
        app.stop().await;
    }
    Ok(story?)
}

fn nothing_known(story: &Story) -> String {
    let mut text = format!("nothing is known of {:?}: {}", story.subject, story.now.trim_start_matches("unknown: "));
    if !story.nearest.is_empty() {
        text.push_str(&format!("; did you mean {}?", story.nearest.join(" or ")));
    }
    text
}

fn told(story: &Story, zone: &str) -> String {
    let mut lines: Vec<String> =
        story.sentences.iter().map(|sentence| format!("{}  {}", local(&sentence.ts, zone), sentence.text)).collect();
    if story.left_out > 0 {
        lines.insert(lines.len() / 2, format!("… {} more events here", story.left_out));
    }
    lines.push(format!("now: {}", story.now));
    lines.push(format!("lost: {}", story.lost));
    lines.push(format!("runs again: {}", story.runs_again));
    lines.join("\n")
}
