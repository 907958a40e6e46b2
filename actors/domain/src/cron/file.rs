//! `cron/jobs.json`: nanobot's form. Written in camel case with an indent of 2; snake case is read as well, and fields that
//! are not known are kept. `cron/action.jsonl` holds what other processes want done to it.
//!
//! ```json
//! {"version": 1, "jobs": [{"id": "1a2b3c4d", "name": "water", "enabled": true,
//!   "schedule": {"kind": "cron", "atMs": null, "everyMs": null, "expr": "0 9 * * *", "tz": "Europe/Berlin"},
//!   "payload": {"kind": "agent_turn", "message": "…", "sessionKey": "websocket:1", …},
//!   "state": {"nextRunAtMs": 1774767600000, "lastRunAtMs": null, "lastStatus": null, "lastError": null, "runHistory": []},
//!   "createdAtMs": 1771228800000, "updatedAtMs": 1774512000000, "deleteAfterRun": false}]}
//! ```
//!
//! Ours are `missed`, `timeoutMs`, `state.lastDueMs` and `state.running`; nanobot ignores them.
//!
//! **Source:** `nanobot/cron/service.py`, `types.py` 0.3.5.

use std::collections::BTreeSet;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::job::{Job, JobId, RunStatus};

/// The largest file that is read, in bytes.
pub const BYTES_MAX: u64 = 16 << 20;
/// Jobs of a file that are followed.
pub const JOBS_MAX: usize = 10_000;

/// All jobs.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct File {
    /// 1.
    #[serde(default = "first")]
    pub version: u64,
    /// In the order of the file.
    pub jobs: Vec<Job>,
    /// What else the file says.
    #[serde(flatten)]
    pub extra: Map<String, Value>,
    /// Jobs that were switched off when they were read, and why.
    #[serde(skip)]
    pub switched_off: Vec<(JobId, String)>,
}

/// What another process wants done. An action that is found again changes nothing more.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Add this job, or take it in place of the one of this id.
    Put(Box<Job>),
    /// Remove this job.
    Remove(JobId),
}

/// A file that cannot be used, and where.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{place}{what}")]
pub struct BadFile {
    place: String,
    what: String,
}

/// The fields of each object that have another name in snake case.
const OF_JOB: &[(&str, &str)] = &[
    ("created_at_ms", "createdAtMs"),
    ("updated_at_ms", "updatedAtMs"),
    ("delete_after_run", "deleteAfterRun"),
    ("timeout_ms", "timeoutMs"),
];
const OF_SCHEDULE: &[(&str, &str)] = &[("at_ms", "atMs"), ("every_ms", "everyMs")];
const OF_PAYLOAD: &[(&str, &str)] = &[
    ("channel_meta", "channelMeta"),
    ("session_key", "sessionKey"),
    ("origin_channel", "originChannel"),
    ("origin_chat_id", "originChatId"),
    ("origin_metadata", "originMetadata"),
];
const OF_STATE: &[(&str, &str)] = &[
    ("next_run_at_ms", "nextRunAtMs"),
    ("last_run_at_ms", "lastRunAtMs"),
    ("last_status", "lastStatus"),
    ("last_error", "lastError"),
    ("run_history", "runHistory"),
    ("last_due_ms", "lastDueMs"),
];
const OF_RUN: &[(&str, &str)] = &[
    ("run_at_ms", "runAtMs"),
    ("duration_ms", "durationMs"),
    ("run_id", "runId"),
    ("due_ms", "dueMs"),
    ("at_ms", "atMs"),
];

// === impl File ===

impl Default for File {
    fn default() -> Self {
        Self { version: first(), jobs: Vec::new(), extra: Map::new(), switched_off: Vec::new() }
    }
}

impl File {
    /// Reads it. Jobs of old files are made like new ones.
    pub fn decode(bytes: &[u8]) -> Result<Self, BadFile> {
        let bad = |what: String| BadFile { place: String::new(), what };
        let mut value: Value = serde_json::from_slice(bytes).map_err(|error| bad(error.to_string()))?;
        let object = value.as_object_mut().ok_or_else(|| bad("an object is expected".to_owned()))?;
        let Some(Value::Array(list)) = object.insert("jobs".to_owned(), Value::Array(Vec::new())) else {
            return Err(bad("`jobs` is missing, or no list".to_owned()));
        };
        let mut file: Self = read(value, "")?;
        let mut ids = BTreeSet::new();
        for (at, one) in list.into_iter().enumerate() {
            let job: Job = read(camel_job(one), &format!("jobs[{at}]"))?;
            if !ids.insert(job.id.clone()) {
                return Err(BadFile {
                    place: format!("jobs[{at}]: "),
                    what: format!("the id {} is used twice", job.id),
                });
            }
            let (enabled, job) = (job.enabled, modern(job));
            if enabled && !job.enabled {
                file.switched_off.push((job.id.clone(), job.state.last_error.clone().unwrap_or_default()));
            }
            file.jobs.push(job);
        }
        Ok(file)
    }

    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec_pretty(self).expect("jobs have only string keys, so they always serialise")
    }
}

/// Reads the lines of `action.jsonl`; the number of those that say nothing usable comes along.
pub fn actions(bytes: &[u8]) -> (Vec<Action>, usize) {
    let lines = bytes.split(|byte| *byte == b'\n').filter(|line| !line.trim_ascii().is_empty());
    let read: Vec<Option<Action>> = lines.map(action).collect();
    let bad = read.iter().filter(|action| action.is_none()).count();
    (read.into_iter().flatten().collect(), bad)
}

fn action(line: &[u8]) -> Option<Action> {
    let mut line: Value = serde_json::from_slice(line).ok()?;
    let params = line.get_mut("params")?.take();
    match line.get("action")?.as_str()? {
        "add" | "update" => {
            let job: Job = read(camel_job(params), "").ok()?;
            Some(Action::Put(Box::new(modern(job))))
        }
        "del" => {
            let id = params.get("job_id").or_else(|| params.get("jobId"))?;
            Some(Action::Remove(serde_json::from_value(id.clone()).ok()?))
        }
        _ => None,
    }
}

fn read<T: DeserializeOwned>(value: Value, place: &str) -> Result<T, BadFile> {
    serde_path_to_error::deserialize(value).map_err(|error| {
        let path = error.path().to_string();
        let inside = if path == "." { "" } else { path.as_str() };
        let dot = if place.is_empty() || inside.is_empty() { "" } else { "." };
        let colon = if place.is_empty() && inside.is_empty() { "" } else { ": " };
        BadFile { place: format!("{place}{dot}{inside}{colon}"), what: error.into_inner().to_string() }
    })
}

fn camel_job(mut job: Value) -> Value {
    camel(&mut job, OF_JOB);
    for (name, table) in [("schedule", OF_SCHEDULE), ("payload", OF_PAYLOAD), ("state", OF_STATE)] {
        let Some(part) = job.get_mut(name) else { continue };
        if part.is_null() {
            *part = Value::Object(Map::new());
        }
        camel(part, table);
        for name in ["channelMeta", "originMetadata"] {
            if part.get(name).is_some_and(Value::is_null) {
                part[name] = Value::Object(Map::new());
            }
        }
    }
    let Some(state) = job.get_mut("state") else { return job };
    for run in state.get_mut("runHistory").and_then(Value::as_array_mut).into_iter().flatten() {
        camel(run, OF_RUN);
    }
    if let Some(running) = state.get_mut("running") {
        camel(running, OF_RUN);
    }
    job
}

/// Gives fields their other name, in place; where both are there, the one in snake case is left alone.
fn camel(value: &mut Value, table: &[(&str, &str)]) {
    let Some(object) = value.as_object_mut() else { return };
    if !object.keys().any(|key| table.iter().any(|(snake, _)| key == snake)) {
        return;
    }
    let renamed = std::mem::take(object).into_iter().map(|(key, value)| {
        let other = table.iter().find(|(snake, _)| key == *snake).map(|(_, camel)| (*camel).to_owned());
        (other.unwrap_or(key), value)
    });
    for (key, value) in renamed {
        object.entry(key).or_insert(value);
    }
}

/// Binds a job of an old file to a session. One that cannot be bound is switched off, and says why.
fn modern(mut job: Job) -> Job {
    let payload = &mut job.payload;
    if payload.is_system() {
        return job;
    }
    let legacy = payload.deliver || payload.channel.is_some() || payload.to.is_some();
    let mut why = None;
    if legacy {
        payload.deliver = false;
        match (payload.channel.take(), payload.to.take()) {
            (Some(channel), Some(to)) => {
                payload.session_key.get_or_insert_with(|| format!("{channel}:{to}"));
                payload.origin_metadata = std::mem::take(&mut payload.channel_meta);
                payload.origin_channel = Some(channel);
                payload.origin_chat_id = Some(to);
            }
            (_, _) if payload.session_key.is_some() => {}
            (_, _) => why = Some("legacy cron payload is missing channel/to; recreate it from a chat session"),
        }
    } else if payload.session_key.is_none() {
        why = Some("agent cron payload is missing bound session delivery context; recreate it from a chat session");
    }
    if let Some(why) = why.filter(|_| job.enabled) {
        job.enabled = false;
        job.state.next_run_at_ms = None;
        job.state.last_status = Some(RunStatus::Error);
        job.state.last_error = Some(why.to_owned());
    }
    job
}

fn first() -> u64 {
    1
}

#[cfg(test)]
mod tests;
