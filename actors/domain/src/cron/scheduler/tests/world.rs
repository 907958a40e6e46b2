//! A journal, a disk and a clock for one scheduler.

use std::collections::BTreeMap;

use jiff::tz::TimeZone;
use serde_json::{Value, json};
use uuid::Uuid;

use super::*;
use crate::cron::file;

pub const MINUTE: u64 = 60_000;
pub const HOUR: u64 = 60 * MINUTE;
/// 2026-03-28T08:00:00Z.
pub const NOW: u64 = 1_774_684_800_000;

pub struct World {
    pub scheduler: Scheduler,
    pub now_ms: u64,
    disk: File,
    /// Turns by job and moment: the journal gives each message one.
    turns: BTreeMap<(String, u64), TurnId>,
    fired: Vec<(String, u64)>,
    notes: Vec<Note>,
    pub watched: Vec<TurnId>,
    pub cancelled: Vec<TurnId>,
    /// What the journal says instead of accepting.
    pub refuse: Option<u64>,
    pub fail_saves: bool,
    /// A save is lost with the power.
    pub lose_saves: bool,
    /// The next save finds that somebody changed the file.
    pub changed_meanwhile: bool,
}

pub fn zones() -> Zones {
    Zones { local: TimeZone::UTC, named: |name| TimeZone::get(name).ok() }
}

pub fn every(ms: u64) -> Schedule {
    Schedule::every(ms)
}

pub fn cron(expr: &str, tz: &str) -> Schedule {
    Schedule::cron(expr, Some(tz))
}

pub fn job(id: &str, schedule: Schedule, missed: Option<&str>) -> Value {
    let next = schedule.timing(&zones()).unwrap().next_after(NOW);
    let mut job = json!({
        "id": id, "name": id, "schedule": schedule, "payload": {"message": "m", "sessionKey": "cli:x"},
        "state": {"nextRunAtMs": next},
    });
    if let Some(missed) = missed {
        job["missed"] = json!(missed);
    }
    job
}

pub fn file<const N: usize>(jobs: [Value; N]) -> File {
    File::decode(json!({"version": 1, "jobs": jobs.to_vec()}).to_string().as_bytes()).unwrap()
}

pub fn action(word: &str, params: Value) -> Action {
    let line = json!({"action": word, "params": params}).to_string();
    file::actions(line.as_bytes()).0.remove(0)
}

impl World {
    pub fn new(disk: File) -> Self {
        Self {
            scheduler: Scheduler::new(zones()),
            now_ms: NOW,
            disk,
            turns: BTreeMap::new(),
            fired: Vec::new(),
            notes: Vec::new(),
            watched: Vec::new(),
            cancelled: Vec::new(),
            refuse: None,
            fail_saves: false,
            lose_saves: false,
            changed_meanwhile: false,
        }
    }

    pub fn start(&mut self) {
        self.read();
    }

    pub fn crash(&mut self) {
        self.scheduler = Scheduler::new(zones());
    }

    pub fn read(&mut self) {
        self.act(Vec::new());
    }

    pub fn act(&mut self, actions: Vec<Action>) {
        self.step(Input::Read { file: Some(self.disk.clone()), actions });
    }

    pub fn put(&mut self, file: File) {
        self.disk = file;
    }

    pub fn on_disk(&self) -> File {
        self.disk.clone()
    }

    pub fn tick(&mut self) {
        self.step(Input::Tick);
    }

    pub fn advance(&mut self, by_ms: u64) {
        self.now_ms += by_ms;
        self.tick();
    }

    pub fn step(&mut self, input: Input) {
        let effects = self.scheduler.step(input, self.now_ms);
        self.perform(effects);
    }

    pub fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Fire(fire) => self.enqueue(*fire),
                Effect::Watch { turn, .. } => self.watched.push(turn),
                Effect::Cancel { turn, .. } => self.cancelled.push(turn),
                Effect::Read => self.read(),
                Effect::Save { revision, file } => self.save(revision, file),
                Effect::Note(note) => self.notes.push(note),
            }
        }
    }

    fn enqueue(&mut self, fire: Fire) {
        let at = (fire.job.id.as_str().to_owned(), fire.due_ms);
        self.fired.push(at.clone());
        let verdict = match self.refuse {
            Some(retry_after_ms) => Verdict::Refused { retry_after_ms, why: "busy".to_owned() },
            None => {
                let number = self.turns.len() as u128 + 1;
                Verdict::Accepted(*self.turns.entry(at).or_insert(TurnId(Uuid::from_u128(number))))
            }
        };
        self.step(Input::Verdict { job: fire.job.id, due_ms: fire.due_ms, verdict });
    }

    fn save(&mut self, revision: u64, file: File) {
        let outcome = if self.fail_saves {
            SaveOutcome::Failed("the disk is full".to_owned())
        } else if std::mem::take(&mut self.changed_meanwhile) {
            SaveOutcome::Changed
        } else {
            if !self.lose_saves {
                self.disk = file;
            }
            SaveOutcome::Done
        };
        self.step(Input::Saved { revision, outcome });
    }

    /// The jobs that run.
    pub fn running(&self) -> Vec<String> {
        let running = self.scheduler.entries.iter().filter(|entry| entry.job.state.running.is_some());
        running.map(|entry| entry.job.id.as_str().to_owned()).collect()
    }

    /// Ends the run of a job.
    pub fn end(&mut self, job: &str, status: RunStatus, error: Option<&str>) {
        let Some(turn) = self.scheduler.find(&JobId::new(job).unwrap()).and_then(|entry| entry.turn()) else { return };
        self.step(Input::Ended {
            job: JobId::new(job).unwrap(),
            turn,
            end: End { status, error: error.map(str::to_owned) },
        });
    }

    /// What was handed over since the last question.
    pub fn fired(&mut self) -> Vec<(&'static str, u64)> {
        let name = |name: String| ["a", "b", "c", "d"].into_iter().find(|known| *known == name).unwrap();
        std::mem::take(&mut self.fired).into_iter().map(|(job, due)| (name(job), due)).collect()
    }

    pub fn notes(&mut self, what: Noted) -> usize {
        let (found, rest): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.notes).into_iter().partition(|note| note.what == what);
        self.notes = rest;
        found.len()
    }

    pub fn turn(&self, job: &str, due_ms: u64) -> TurnId {
        self.turns[&(job.to_owned(), due_ms)]
    }

    /// Every moment that became a turn.
    pub fn accepted(&self) -> Vec<(String, u64)> {
        self.turns.keys().cloned().collect()
    }

    /// The first job.
    pub fn job(&self) -> Job {
        self.scheduler.file().jobs.remove(0)
    }
}
