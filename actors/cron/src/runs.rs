//! What is kept of each run of a job: `cron/runs/<turn id>.json`, as nanobot keeps it (`queued`, `ok` or `error`, with the
//! prompt, its SHA-256 and the answer). All functions block.
//!
//! A run is written down when its message was accepted and when its turn has ended; the two may come in any order, and the
//! first of them twice. People read the files; nothing here depends on them.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use domain::cron::JobId;
use domain::cron::scheduler::End;
use domain::ids::{SessionKey, TurnId};
use domain::text::ellipsis;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use supervision::ports::Ports;

use crate::inside::{self, RECORD_BYTES_MAX};

const DIRECTORY: &str = "cron/runs";
/// Runs that are kept; the oldest go first.
const KEPT_MAX: usize = 500;
/// Characters of a prompt or an answer that are kept.
const CHARS_MAX: usize = 4000;

/// The runs of one workspace.
pub struct Runs {
    workspace: PathBuf,
    ports: Ports,
    /// Held while a file is changed.
    changing: Mutex<()>,
}

/// Which run of which job.
#[derive(Debug, Clone)]
pub struct Run {
    /// The turn.
    pub turn: TurnId,
    /// The job.
    pub job: JobId,
    /// The session.
    pub key: SessionKey,
}

// === impl Runs ===

impl Runs {
    /// Those of a workspace.
    pub fn new(workspace: PathBuf, ports: Ports) -> Self {
        Self { workspace, ports, changing: Mutex::default() }
    }

    /// The message of a run was accepted. What is known of the run already, stays.
    pub fn queued(&self, run: &Run, name: &str, due_ms: u64, prompt: &str) -> io::Result<()> {
        let hash: String = Sha256::digest(prompt).iter().map(|byte| format!("{byte:02x}")).collect();
        let fields = json!({
            "status": "queued",
            "job_name": name,
            "due_at_ms": due_ms,
            "queued_at_ms": self.ports.clock.wall_ms(),
            "prompt": ellipsis(prompt, CHARS_MAX),
            "prompt_sha256": hash,
        });
        self.merge(run, fields, false)?;
        inside::prune(&*self.ports.disk, &self.workspace.join(DIRECTORY), KEPT_MAX)
    }

    /// The turn of a run has ended, with that answer.
    pub fn ended(&self, run: &Run, end: &End, response: &str) -> io::Result<()> {
        let (key, text) = match &end.error {
            None => ("response", response),
            Some(error) => ("error", error.as_str()),
        };
        let now_ms = self.ports.clock.wall_ms();
        self.merge(run, json!({"status": end.status, "ended_at_ms": now_ms, key: ellipsis(text, CHARS_MAX)}), true)
    }

    /// What is kept of the runs of a job, oldest first.
    pub fn of(&self, job: &str) -> io::Result<Vec<Value>> {
        let disk = &*self.ports.disk;
        let mut found = Vec::new();
        for name in inside::names(disk, &self.workspace.join(DIRECTORY))? {
            // One that is damaged, or gone since, tells nothing.
            let bytes = inside::read(disk, &self.workspace, &Path::new(DIRECTORY).join(name), RECORD_BYTES_MAX)?;
            let record: Option<Value> = bytes.and_then(|bytes| serde_json::from_slice(&bytes).ok());
            found.extend(record.filter(|record| record["job_id"] == job));
        }
        Ok(found)
    }

    fn merge(&self, run: &Run, fields: Value, over: bool) -> io::Result<()> {
        let Run { turn, job, key } = run;
        let of =
            json!({"kind": "cron", "run_id": turn.to_string(), "job_id": job.as_str(), "session_key": key.as_str()});
        let fields = [of, fields].into_iter().filter_map(|part| part.as_object().cloned()).flatten().collect();
        let _one_at_a_time = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let (disk, name) = (&*self.ports.disk, format!("{turn}.json"));
        inside::merge(disk, &self.workspace, Path::new(DIRECTORY), &name, fields, over)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use domain::cron::RunStatus;
    use supervision::memory::{PowerCutDisk, TestClock, memory_ports};
    use supervision::ports::Disk;
    use uuid::Uuid;

    use super::*;

    fn world() -> (Arc<PowerCutDisk>, Runs) {
        let disk = PowerCutDisk::new();
        let ports = memory_ports(Arc::clone(&disk), TestClock::new(), 1);
        (disk, Runs::new("/w".into(), ports))
    }

    fn run(number: u128) -> Run {
        let turn = TurnId(Uuid::from_u128(number));
        Run { turn, job: JobId::new("1a2b").unwrap(), key: SessionKey::new("websocket:1").unwrap() }
    }

    fn record(disk: &PowerCutDisk, run: &Run) -> Value {
        let path = format!("/w/cron/runs/{}.json", run.turn);
        serde_json::from_slice(&disk.read(Path::new(&path)).unwrap()).unwrap()
    }

    fn ended(error: Option<&str>) -> End {
        let status = if error.is_some() { RunStatus::Error } else { RunStatus::Ok };
        End { status, error: error.map(str::to_owned) }
    }

    #[test]
    fn a_run_is_written_down_in_whichever_order_it_is_told() {
        let (disk, runs) = world();
        let (early, late) = (run(1), run(2));
        for run in [&early, &early] {
            runs.queued(run, "tea", 1_767_225_600_000, "make tea").unwrap();
        }
        assert_eq!(record(&disk, &early)["status"], "queued");
        runs.ended(&early, &ended(None), "made").unwrap();
        runs.ended(&late, &ended(None), "made").unwrap();
        runs.queued(&late, "tea", 1_767_225_600_000, "make tea").unwrap();
        for run in [&early, &late] {
            assert_eq!(
                record(&disk, run),
                json!({"kind": "cron", "run_id": run.turn.to_string(), "job_id": "1a2b", "job_name": "tea",
                    "session_key": "websocket:1", "status": "ok", "due_at_ms": 1_767_225_600_000_u64,
                    "queued_at_ms": 1_767_225_600_000_u64, "ended_at_ms": 1_767_225_600_000_u64, "prompt": "make tea",
                    "prompt_sha256": "9651f6c2fd08ce22a73910cfb05a58659de76de310e5cce799d8d42fa506e9dd",
                    "response": "made"})
            );
        }
    }

    #[test]
    fn a_failure_says_why_and_a_damaged_file_is_made_anew() {
        let (disk, runs) = world();
        let run = run(1);
        inside::write(&*disk, Path::new("/w"), Path::new(DIRECTORY), &format!("{}.json", run.turn), b"{\"a").unwrap();
        runs.ended(&run, &ended(Some("no credit")), "Sorry.").unwrap();
        let record = record(&disk, &run);
        assert_eq!((&record["status"], &record["error"]), (&json!("error"), &json!("no credit")));
        assert_eq!(record.get("response"), None);
    }

    #[test]
    fn long_texts_are_cut_and_old_runs_go() {
        let (disk, runs) = world();
        for number in 0..=KEPT_MAX as u128 {
            runs.queued(&run(number), "tea", 1, &"ö".repeat(CHARS_MAX + 1)).unwrap();
        }
        assert_eq!((runs.of("1a2b").unwrap().len(), runs.of("1a2").unwrap().len()), (KEPT_MAX, 0));
        let names = inside::names(&*disk, Path::new("/w/cron/runs")).unwrap();
        assert_eq!((names.len(), &*names[0]), (KEPT_MAX, &*format!("{}.json", run(1).turn)));
        let kept = record(&disk, &run(1));
        assert_eq!(kept["prompt"].as_str().unwrap().chars().count(), CHARS_MAX);
    }
}
