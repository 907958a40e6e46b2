//! What is to be looked after, and who would be told. Blocks.

use std::io;
use std::path::Path;

use domain::heartbeat::{Candidate, EVALUATOR, EVALUATOR_FILE, newest, tasks};
use supervision::ports::Open;

use super::HeartbeatDeps;

const TASKS: &str = "HEARTBEAT.md";
/// The largest file that is read, in bytes; more is cut.
const BYTES_MAX: usize = 256 * 1024;
/// Sessions of one page.
const PAGE: usize = 1000;

/// What a look found.
#[derive(Debug, PartialEq, Eq)]
pub enum Found {
    /// Nothing is to be looked after.
    NoTasks,
    /// Nobody could be told.
    NoTarget,
    /// A beat.
    Beat {
        /// What is to be looked after.
        tasks: String,
        /// Who would be told.
        target: Candidate,
        /// What the model is told that decides.
        evaluator: String,
    },
}

pub fn look(deps: &HeartbeatDeps) -> io::Result<Found> {
    let Some(tasks) = read(deps, TASKS)?.and_then(|text| tasks(&text)) else { return Ok(Found::NoTasks) };
    let mut best: Option<Candidate> = None;
    let mut after = None;
    loop {
        let page = deps.transcripts.page(after.as_ref(), PAGE);
        let candidates = page.items.into_iter().map(|row| Candidate { key: row.key, updated_ms: row.updated_ms });
        best = newest(best.into_iter().chain(candidates), |channel| deps.enabled.contains(channel));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    let Some(target) = best else { return Ok(Found::NoTarget) };
    let evaluator = read(deps, EVALUATOR_FILE)?.filter(|text| !text.trim().is_empty());
    Ok(Found::Beat { tasks, target, evaluator: evaluator.unwrap_or_else(|| EVALUATOR.to_owned()) })
}

fn read(deps: &HeartbeatDeps, below: &str) -> io::Result<Option<String>> {
    let file = match deps.ports.disk.open_inside(&deps.workspace, Path::new(below), Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let mut bytes = vec![0; BYTES_MAX];
    let got = file.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}
