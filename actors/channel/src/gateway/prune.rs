//! `POST prune`: tells which old sessions and files have to go, as `domain::retention` decides, and lets them go where the
//! configuration or the request wants that; once a day by itself where that is configured. Free of HTTP, so that a command
//! without a gateway does the same. A session that is done stands as a tombstone; only what was removed is freed.
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

/// What a request says about itself: `dry_run=true&enforce=true`, both `false` unless given.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
pub struct Asked {
    /// Only tell, whatever is configured.
    #[serde(default)]
    pub dry_run: bool,
    /// Let go, whatever is configured.
    #[serde(default)]
    pub enforce: bool,
}

impl Pruning {
    /// Whether a request is carried out: only where it says so or where the gateway prunes by itself.
    pub fn run(&self, asked: Asked) -> Run {
        match (asked, self.daily) {
            (Asked { dry_run: true, .. }, _) => Run::Dry,
            (Asked { enforce: true, .. }, _) | (_, Daily::Prune) => Run::Real,
            (_, Daily::Nothing | Daily::Tell) => Run::Dry,
        }
    }
}

/// Whether anything is done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Run {
    /// Only answered.
    Dry,
    /// Answered, and told in the log.
    Tell,
    /// Done, and told in the log.
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
    let (mut items, mut done, mut freed) = (Vec::new(), (0, 0), 0);
    for (file, why) in &plan.files {
        let gone = run == Run::Real && remove(&parts, file.file.clone()).await;
        done.0 += usize::from(gone);
        freed += if gone { file.bytes } else { 0 };
        items.push(json!({"file": file.file, "why": why, "bytes": file.bytes, "at_ms": file.at_ms, "done": gone}));
    }
    for (entry, why) in &plan.sessions {
        let gone = run == Run::Real && let_go(&parts, entry, *why, &mut freed).await;
        done.1 += usize::from(gone);
        items.push(json!({
            "session": entry.key, "why": why, "bytes": entry.bytes, "updated_ms": entry.updated_ms, "done": gone,
        }));
    }
    let dry = run != Run::Real;
    if run != Run::Dry {
        tell(&parts, &plan, dry, done);
    }
    let freed = if dry { plan.freed_bytes } else { freed };
    Ok(json!({"dry_run": dry, "items": items, "bytes": plan.bytes, "freed_bytes": freed, "next": null}))
}

async fn planned(parts: &Parts<'_>, pruning: &Pruning) -> Result<Plan, Fault> {
    let unfinished =
        parts.journal.unfinished().await.map_err(|_| Fault::new(503, "draining", "the journal is closed"))?;
    let open: BTreeSet<SessionKey> = unfinished.into_iter().map(|one| one.key).collect();
    let transcripts = Arc::clone(&parts.transcripts);
    let files = offload(&*parts.ports.offload, move || transcripts.put_away()).await;
    let files = files.unwrap_or_else(|_| Err(io::Error::other("the reader failed")));
    let files = files.map_err(|why| Fault::new(500, "unreadable", format!("the archive cannot be read: {why}")))?;
    let entry = |one: protocol::transcripts::Summary| Entry {
        busy: open.contains(&one.key),
        key: one.key,
        updated_ms: one.updated_ms,
        bytes: one.bytes,
    };
    let sessions = parts.transcripts.page(None, usize::MAX).items.into_iter().map(entry).collect();
    Ok(plan(&pruning.limits, &pruning.main_key, sessions, files, parts.ports.clock.wall_ms()))
}

/// Makes a tombstone of a session; removes that, too, if it is space that is wanted. Returns whether the session is gone.
async fn let_go(parts: &Parts<'_>, entry: &Entry, why: Why, freed: &mut u64) -> bool {
    match close(parts.sessions, &entry.key, Shelf::Deleted, Open::Refused).await {
        Ok(closed) => {
            if let (Why::Disk, Some(file)) = (why, closed["file"].as_str())
                && remove(parts, file.to_owned()).await
            {
                *freed += entry.bytes;
            }
            true
        }
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

fn tell(parts: &Parts<'_>, plan: &Plan, dry: bool, (files, sessions): (usize, usize)) {
    let mut event = Event::new(EventName::SessionsPruned, ActorPath("/registry".into()), Kind::Registry);
    let counts = |sessions: usize, files: usize| (counted(sessions, "session"), counted(files, "file"));
    event.reason = Some(if dry {
        let (sessions, files) = counts(plan.sessions.len(), plan.files.len());
        format!("{sessions} and {files} would go, nothing was done")
    } else {
        let (sessions, files) = counts(sessions, files);
        format!("{sessions} deleted, {files} removed")
    });
    parts.log.record(event);
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
        Daily::Tell => Run::Tell,
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

pub(super) async fn post(
    State(gateway): State<Arc<Gateway>>,
    asked: Result<Query<Asked>, QueryRejection>,
) -> Response<Body> {
    let Ok(Query(asked)) = asked else {
        return error(400, "bad_query", "the query is dry_run=true|false&enforce=true|false");
    };
    let transcripts = &gateway.config.transcripts;
    if !all_known(&**transcripts).await {
        return error(503, "recovering", "the sessions are still being read from the disk");
    }
    let pruning = &gateway.config.pruning;
    match prune(parts_of(&gateway.doors, transcripts), pruning, pruning.run(asked)).await {
        Ok(body) => ok(&body),
        Err(fault) => error(fault.status, fault.code, &fault.message),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_carried_out_where_it_or_the_configuration_says_so() {
        for (daily, dry_run, enforce, run) in [
            (Daily::Nothing, false, false, Run::Dry),
            (Daily::Tell, false, false, Run::Dry),
            (Daily::Prune, false, false, Run::Real),
            (Daily::Nothing, false, true, Run::Real),
            (Daily::Tell, false, true, Run::Real),
            (Daily::Prune, true, false, Run::Dry),
            (Daily::Prune, true, true, Run::Dry),
        ] {
            let pruning = Pruning { daily, ..Pruning::default() };
            assert_eq!(pruning.run(Asked { dry_run, enforce }), run, "{daily:?} {dry_run} {enforce}");
        }
    }
}
