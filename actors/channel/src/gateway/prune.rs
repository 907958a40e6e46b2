//! `POST prune`: lets old sessions and files go, as `domain::retention` decides; once a day by itself where that is
//! configured. Free of HTTP, so that a command without a gateway does the same.
//!
//! ```json
//! {"dry_run":false,"items":[{"session":"hook:1","why":"age","bytes":812,"done":true},
//!  {"file":"archive/api.7.jsonl.archived.…","why":"disk","bytes":9,"done":true}],"bytes":821,"freed_bytes":9,"next":null}
//! ```

use std::collections::BTreeSet;
use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::extract::rejection::QueryRejection;
use axum::extract::{Query, State};
use axum::http::Response;
use domain::ids::SessionKey;
use domain::retention::{Entry, Limits, Plan, Why, plan};
use domain::text::counted;
use protocol::journal::{Journal, Shelf};
use protocol::registry::Sessions;
use protocol::supervision::{ActorPath, Event, EventName, Kind, SupervisionLog};
use protocol::transcripts::TranscriptReader;
use serde::Deserialize;
use serde_json::{Value, json};
use supervision::ports::{Ports, offload};
use tokio_util::sync::CancellationToken;

use super::admin::{error, ok};
use super::closing::{Open, close};
use super::letters::Fault;
use super::serve::Gateway;
use super::sessions::all_known;
use crate::doors::Doors;

/// How often the gateway looks by itself.
const EVERY: Duration = Duration::from_secs(24 * 3600);

/// What is to go.
#[derive(Debug, Clone, Default)]
pub struct Pruning {
    /// The limits.
    pub limits: Limits,
    /// The last part of the main session's key.
    pub main_key: String,
    /// What the gateway does by itself.
    pub daily: Daily,
}

/// What the gateway does once a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Daily {
    /// Nothing.
    #[default]
    Nothing,
    /// It tells what would go.
    Tell,
    /// It lets it go.
    Prune,
}

/// Whether anything is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// Only told.
    Dry,
    /// Done.
    Real,
}

/// Whom a run works with.
#[derive(Clone)]
pub struct Parts<'a> {
    /// Knows who has open turns.
    pub journal: &'a dyn Journal,
    /// Closes sessions.
    pub sessions: &'a dyn Sessions,
    /// Lists them, once all are known, and the files.
    pub transcripts: Arc<dyn TranscriptReader>,
    /// Clock and pool.
    pub ports: &'a Ports,
    /// Where it is told.
    pub log: &'a dyn SupervisionLog,
}

/// Decides what has to go, and lets it go.
pub async fn prune(parts: Parts<'_>, pruning: &Pruning, run: Run) -> Result<Value, Fault> {
    let plan = planned(&parts, pruning).await?;
    let (mut items, mut done) = (Vec::new(), (0, 0));
    for (file, why) in &plan.files {
        let gone = run == Run::Real && remove(&parts, file.file.clone()).await;
        done.0 += usize::from(gone);
        items.push(json!({"file": file.file, "why": why, "bytes": file.bytes, "at_ms": file.at_ms, "done": gone}));
    }
    for (entry, why) in &plan.sessions {
        let gone = run == Run::Real && let_go(&parts, entry, *why).await;
        done.1 += usize::from(gone);
        items.push(json!({
            "session": entry.key, "why": why, "bytes": entry.bytes, "updated_ms": entry.updated_ms, "done": gone,
        }));
    }
    tell(&parts, &plan, run, done);
    Ok(json!({
        "dry_run": run == Run::Dry, "items": items, "bytes": plan.bytes, "freed_bytes": plan.freed_bytes, "next": null,
    }))
}

async fn planned(parts: &Parts<'_>, pruning: &Pruning) -> Result<Plan, Fault> {
    let unfinished = parts.journal.unfinished().await.map_err(|_| fault(503, "draining", "the journal is closed"))?;
    let open: BTreeSet<SessionKey> = unfinished.into_iter().map(|one| one.key).collect();
    let transcripts = Arc::clone(&parts.transcripts);
    let files = offload(&*parts.ports.offload, move || transcripts.put_away()).await;
    let files = files.unwrap_or_else(|_| Err(io::Error::other("the reader failed")));
    let files = files.map_err(|why| fault(500, "unreadable", format!("the archive cannot be read: {why}")))?;
    let entry = |one: protocol::transcripts::Summary| Entry {
        busy: open.contains(&one.key),
        key: one.key,
        updated_ms: one.updated_ms,
        bytes: one.bytes,
    };
    let sessions = parts.transcripts.page(None, usize::MAX).items.into_iter().map(entry).collect();
    Ok(plan(&pruning.limits, &pruning.main_key, sessions, files, parts.ports.clock.wall_ms()))
}

/// Makes a tombstone of a session; removes that, too, if it is space that is wanted.
async fn let_go(parts: &Parts<'_>, entry: &Entry, why: Why) -> bool {
    match close(parts.sessions, &entry.key, Shelf::Deleted, Open::Refused).await {
        Ok(closed) => match (why, closed["file"].as_str()) {
            (Why::Disk, Some(file)) => remove(parts, file.to_owned()).await,
            (Why::Disk | Why::Age | Why::Count, _) => true,
        },
        // It was used meanwhile, or cannot be reached; the next run looks again.
        Err(why) => {
            tracing::debug!(session = %entry.key, why = why.message, "not pruned");
            false
        }
    }
}

async fn remove(parts: &Parts<'_>, file: String) -> bool {
    let transcripts = Arc::clone(&parts.transcripts);
    let removed = offload(&*parts.ports.offload, move || transcripts.remove_put_away(&file)).await;
    match removed.unwrap_or_else(|_| Err(io::Error::other("removing it panicked"))) {
        Ok(()) => true,
        Err(error) => {
            tracing::warn!(%error, "a file in the archive cannot be removed");
            false
        }
    }
}

fn tell(parts: &Parts<'_>, plan: &Plan, run: Run, (files, sessions): (usize, usize)) {
    let mut event = Event::new(EventName::SessionsPruned, ActorPath("/registry".into()), Kind::Registry);
    event.reason = Some(match run {
        Run::Dry => format!(
            "{} and {} would go, nothing was done",
            counted(plan.sessions.len(), "session"),
            counted(plan.files.len(), "file")
        ),
        Run::Real => format!("{} and {} went", counted(sessions, "session"), counted(files, "file")),
    });
    parts.log.record(event);
}

fn fault(status: u16, code: &'static str, message: impl Into<String>) -> Fault {
    Fault { status, code, message: message.into() }
}

/// Looks once a day, as long as the gateway serves.
pub async fn daily(
    doors: Doors,
    transcripts: Arc<dyn TranscriptReader>,
    pruning: Pruning,
    shutdown: CancellationToken,
) {
    let run = match pruning.daily {
        Daily::Nothing => return,
        Daily::Tell => Run::Dry,
        Daily::Prune => Run::Real,
    };
    let looks = async {
        let mut known = transcripts.all_known();
        while known.wait_for(|known| *known).await.is_ok() {
            let parts = parts_of(&doors, &transcripts);
            if let Err(why) = prune(parts, &pruning, run).await {
                tracing::warn!(why = why.message, "old sessions cannot be looked through; it is tried again tomorrow");
            }
            tokio::time::sleep(EVERY).await;
        }
    };
    // What is half done then is as good as done, or not done.
    shutdown.run_until_cancelled(looks).await;
}

fn parts_of<'a>(doors: &'a Doors, transcripts: &Arc<dyn TranscriptReader>) -> Parts<'a> {
    Parts {
        journal: &*doors.journal,
        sessions: &*doors.sessions,
        transcripts: Arc::clone(transcripts),
        ports: &doors.ports,
        log: &*doors.log,
    }
}

#[derive(Debug, Deserialize)]
pub(super) struct Asked {
    #[serde(default)]
    dry_run: bool,
}

pub(super) async fn post(
    State(gateway): State<Arc<Gateway>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(Asked { dry_run })) = asked else { return error(400, "bad_query", "the query is dry_run=true|false") };
    let transcripts = &gateway.config.transcripts;
    if !all_known(&**transcripts).await {
        return error(503, "recovering", "the sessions are still being read from the disk");
    }
    let run = if dry_run { Run::Dry } else { Run::Real };
    match prune(parts_of(&gateway.doors, transcripts), &gateway.config.pruning, run).await {
        Ok(body) => ok(&body),
        Err(fault) => error(fault.status, fault.code, &fault.message),
    }
}
