//! `greenroom logs --why`: what happened to a session or a turn, in plain words.

use std::sync::Arc;

use channel::gateway::{Sources, why};
use session::Transcripts;
use supervision::log_read::Query;
use supervision::real::real_ports;
use supervision::why::{SENTENCES_DEFAULT, Story, Subject, Window};

use super::address;
use super::line::local;
use crate::app::{App, Options};
use crate::cli::Output;
use crate::commands::admin::{Admin, encode};
use crate::commands::{print, print_json};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// Asks the gateway, or looks itself when none runs. Of `query` only the times and the number count.
pub async fn run(loaded: Loaded, subject: &str, query: Query, output: Output) -> anyhow::Result<()> {
    let parsed = Subject::parse(subject).map_err(|why| Exit::new(ExitCode::Usage, format!("--why: {why}")))?;
    let zone = loaded.config.agents.defaults.timezone.clone();
    let body = match Admin::find(&loaded.paths).await? {
        Some(admin) => admin.get(&format!("why/{}?{}", encode(subject), address(&query))).await?,
        None => {
            let Query { filter, tail, .. } = query;
            let tail = tail.unwrap_or(SENTENCES_DEFAULT);
            let window = Window { since: filter.since, until: filter.until, tail };
            serde_json::to_value(at_rest(loaded, parsed, &window).await?)?
        }
    };
    let story: Story = serde_json::from_value(body.clone())?;
    if output.json {
        print_json(&body)?;
    } else if story.known {
        print(&told(&story, &zone))?;
    }
    match story.known {
        true => Ok(()),
        false => {
            let exit = Exit::new(ExitCode::Failed, nothing_known(&story));
            Err(if output.json { exit.printed() } else { exit }.into())
        }
    }
}

async fn at_rest(loaded: Loaded, subject: Subject, window: &Window) -> anyhow::Result<Story> {
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
    let story = why(&sources, app.as_ref().map(App::journal), None, subject, window).await;
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
    let events = |count: u64| if count == 1 { "1 event".to_owned() } else { format!("{count} events") };
    if story.left_out > 0 {
        lines.insert(0, format!("… left out before: {}; --tail N or --since shows more", events(story.left_out)));
    }
    if story.left_out_after > 0 {
        lines.push(format!("… left out after: {}", events(story.left_out_after)));
    }
    lines.push(format!("now: {}", story.now));
    lines.push(format!("lost: {}", story.lost));
    lines.push(format!("runs again: {}", story.runs_again));
    lines.join("\n")
}

#[cfg(test)]
mod tests {
    use supervision::why::Sentence;

    use super::*;

    #[test]
    fn what_is_left_out_is_said_where_it_would_stand() {
        let sentence =
            Sentence { ts: "2026-11-29T20:00:00.000000Z".into(), id: "b-1".into(), cause: None, text: "So.".into() };
        let story = Story {
            subject: "api:1".into(),
            known: true,
            sentences: vec![sentence],
            left_out: 1,
            left_out_after: 2,
            now: "idle".into(),
            lost: "nothing".into(),
            runs_again: "nothing".into(),
            nearest: Vec::new(),
        };
        let lines = [
            "… left out before: 1 event; --tail N or --since shows more",
            "2026-11-29 20:00:00.000  So.",
            "… left out after: 2 events",
            "now: idle",
            "lost: nothing",
            "runs again: nothing",
        ];
        assert_eq!(told(&story, "UTC"), lines.join("\n"));
    }
}
