//! What was seen of sub-agents, and what must be true of them.
//!
//! - At each moment at most so many runs of a session, and of the process, are open; in the end none is.
//! - A run that a transcript says to have begun has reported once in the files of its parent, or its report is among the
//!   dead letters; unless its parent was stopped, ended, or held back meanwhile. In one file no report stands twice.
//! - While a run is open, somebody gets on.
//! - A report is never a message of a person.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use domain::event::EventKind;
use domain::ids::{LetterId, RunId, SessionKey};
use domain::run::run_of;
use domain::transcript::{EntryKind, TurnClose, read_lines};
use protocol::journal::DeadLetter;
use protocol::subagent::{RunMail, RunRow};
use protocol::turn::{TurnEvent, TurnProgress, TurnResult};
use supervision::tell;
use tokio::sync::oneshot;

use super::books::{Books, READ_TRIES};
use super::drive::Running;
use super::files::File;

/// What a process allows, as the product says.
const OF_SESSION_MAX: usize = 5;
const OF_PROCESS_MAX: usize = 64;
/// How the result of a call begins that began a run, up to its id.
const BEGUN: &str = " is at work: run ";
/// Quarantines, stalls, retries and their pauses are over by then, in milliseconds.
const STILL_MS_MAX: u64 = 1_200_000;
/// How often open runs are asked for in the end.
const TRIES: u32 = 100;

/// What the files of one parent say.
#[derive(Debug, Default)]
struct Told {
    begun: BTreeSet<RunId>,
    reports: BTreeMap<RunId, u32>,
    /// Turns were cancelled or given up.
    halted: bool,
}

impl Books {
    /// A turn shows something that no client sent: a job, or the report of a run.
    pub fn shown_of_work(&mut self, event: &TurnEvent) {
        if let TurnProgress::Finished(finished) = &event.what
            && matches!(finished.result, TurnResult::Cancelled | TurnResult::DeadLettered)
        {
            self.halted.insert(event.key.clone());
        }
        self.guests.insert(event.turn, event.key.clone());
        if matches!(event.what, TurnProgress::Started) {
            self.began(&event.key, event.turn);
        }
    }

    /// All runs were told.
    pub fn runs_are(&mut self, rows: &[RunRow]) {
        let mut open: BTreeMap<&SessionKey, usize> = BTreeMap::new();
        for row in rows.iter().filter(|row| is_open(row)) {
            *open.entry(&row.parent).or_default() += 1;
        }
        let all: usize = open.values().sum();
        if all > OF_PROCESS_MAX || open.values().any(|open| *open > OF_SESSION_MAX) {
            self.wrong(format!("too many runs are open: {open:?}"));
        }
    }

    /// Checks the files of the parents.
    pub fn check_runs(&mut self, files: &[(SessionKey, Vec<File>)], letters: &[DeadLetter]) {
        let lost = letters.iter().filter(|letter| matches!(letter.id, LetterId::Delivery(_)));
        let lost: BTreeSet<RunId> = lost.filter_map(|letter| run_of(&letter.key)).collect();
        for (key, files) in files {
            let mut told = Told::default();
            for file in files {
                if let Err(wrong) = told.read(file) {
                    self.wrong(format!("{key}: {wrong}"));
                }
            }
            let excused = told.halted || self.halted.contains(key) || self.read_faults >= READ_TRIES;
            self.counts.runs += told.begun.len() as u64;
            self.counts.reports += told.reports.len() as u64;
            for run in told.begun {
                let times = told.reports.get(&run).copied().unwrap_or(0);
                let lost = lost.contains(&run);
                if !excused && (times > 1 || (times == 0 && !lost)) {
                    self.wrong(format!("{key}: run {run} was reported {times} times, lost={lost}"));
                }
            }
        }
    }
}

fn is_open(row: &RunRow) -> bool {
    matches!(row.state, "starting" | "running")
}

impl Told {
    fn read(&mut self, file: &File) -> Result<(), String> {
        let mut here = BTreeSet::new();
        for entry in read_lines(&file.bytes).entries() {
            match &entry.kind {
                EntryKind::User(user) => {
                    let Some(mark) = &user.mark else { continue };
                    let run = mark.idempotency_key.split_once(":run:").and_then(|(_, run)| run.parse::<RunId>().ok());
                    let Some(run) = run else { continue };
                    if user.event.as_ref().is_none_or(|event| event.kind != EventKind::Subagent) {
                        return Err(format!("the report of run {run} is a person's message"));
                    }
                    if !here.insert(run) {
                        return Err(format!("run {run} is reported twice in one file"));
                    }
                    *self.reports.entry(run).or_default() += 1;
                }
                EntryKind::ToolResult(result) => {
                    let text = domain::chat::plain_text(&result.result.content);
                    let run = text.split_once(BEGUN).and_then(|(_, rest)| rest.split(',').next());
                    self.begun.extend(run.and_then(|run| run.parse::<RunId>().ok()));
                }
                EntryKind::Assistant(answer) => {
                    self.halted |= matches!(answer.end, Some(TurnClose::Cancelled | TurnClose::Dead));
                }
                _ => {}
            }
        }
        Ok(())
    }
}

// === impl Running ===

impl Running {
    /// Asks for all runs.
    pub fn look_at_runs(&self) -> impl Future<Output = Option<usize>> + use<> {
        let (reply, rows) = oneshot::channel();
        // A keeper that has just crashed does not answer.
        let _ = tell(self.app.runs(), RunMail::List { parent: None, reply });
        let process = self.process.clone();
        async move {
            let rows = rows.await.ok()?;
            let open = rows.iter().filter(|row| is_open(row)).count();
            process.note(|books| {
                books.runs_are(&rows);
                let still_ms = process.still_ms();
                if open > 0 && still_ms > STILL_MS_MAX && !process.is_full() {
                    books.wrong(format!("{open} runs are open, and nobody has asked the model for {still_ms} ms"));
                }
                format!("{open} runs are open, {} are known", rows.len())
            });
            Some(open)
        }
    }

    /// In the end no run is open.
    pub async fn end_runs(&self) {
        if self.process.world.plan.work.is_none() {
            return;
        }
        let mut open = None;
        for _ in 0..TRIES {
            open = self.look_at_runs().await;
            if open == Some(0) || !self.process.is_alive() {
                return;
            }
            tokio::time::sleep(Duration::from_secs(10)).await;
        }
        self.process.note(|books| {
            books.wrong(format!("runs stay open: {open:?}"));
            "runs stay open".to_owned()
        });
    }
}
