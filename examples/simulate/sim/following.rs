//! Those who make jobs, change and remove them: by asking, and by editing their files.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::cron::file::File;
use domain::cron::scheduler::{Draft, Refusal};
use protocol::cron::{Answer, Ask, Jobs};
use supervision::memory::PowerCutDisk;
use supervision::ports::{Disk, Open};

use super::drive::{HOME, Running};
use super::process::Process;
use super::work::{Job, JobAct, Way};

/// How often somebody looks at the jobs.
const LOOK_EVERY: Duration = Duration::from_secs(300);
/// How often their end is asked for.
const TRIES: u32 = 200;

fn place(name: &str) -> PathBuf {
    Path::new(HOME).join("workspace/cron").join(name)
}

/// The jobs of a disk; an error if they cannot be read.
pub fn file_of(disk: &PowerCutDisk) -> Result<Option<File>, String> {
    match disk.read(&place("jobs.json")) {
        Ok(bytes) => File::decode(&bytes).map(Some).map_err(|bad| format!("jobs.json is damaged: {bad}")),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(format!("jobs.json cannot be read: {error}")),
    }
}

fn draft(job: &Job, n: usize) -> Draft {
    Draft {
        name: Some(format!("j{n}")),
        message: job.text.clone(),
        schedule: job.rule.schedule(),
        key: Some(job.key.clone()),
        origin: None,
        metadata: Default::default(),
        missed: Some(job.missed),
        timeout_ms: None,
        keep: true,
    }
}

/// As another program writes it.
fn written(job: &Job, n: usize) -> serde_json::Value {
    serde_json::json!({
        "id": format!("x{n}"), "name": format!("j{n}"), "schedule": job.rule.schedule(), "missed": job.missed,
        "payload": {"message": job.text, "sessionKey": job.key.as_str()},
    })
}

// === impl Running ===

impl Running {
    /// Looks at the jobs from time to time, as long as the process lives.
    pub fn watch_jobs(&self) {
        let (Some(jobs), process) = (self.app.jobs().cloned(), self.process.clone()) else { return };
        if process.world.plan.work.is_none() {
            return;
        }
        tokio::task::spawn_local(async move {
            while process.is_alive() {
                look(&process, &jobs).await;
                tokio::time::sleep(LOOK_EVERY).await;
            }
        });
    }

    /// Changes a job.
    pub fn change_job(&self, act: JobAct) {
        let (Some(work), Some(jobs)) = (&self.process.world.plan.work, self.app.jobs().cloned()) else { return };
        let (JobAct::Make(n, _) | JobAct::Remove(n, _) | JobAct::Enable(n, _) | JobAct::Run(n)) = act;
        let (Some(job), now_ms) = (work.jobs.get(n), self.process.wall_ms()) else { return };
        let mut books = self.process.world.books();
        if books.jobs.is_made(n) == matches!(act, JobAct::Make(..)) {
            return;
        }
        let id = books.jobs.of(n).id.clone();
        match act {
            JobAct::Run(_) => {}
            JobAct::Make(..) | JobAct::Remove(..) | JobAct::Enable(..) => books.jobs.changing(n, now_ms),
        }
        drop(books);
        let ask = match (act, id) {
            (JobAct::Make(_, Way::Asked), _) => Ask::Add(draft(job, n).into()),
            (JobAct::Make(_, Way::Edited), _) => return self.edit_jobs(|list| list.push(written(job, n))),
            (JobAct::Make(_, Way::Acted), _) => {
                return self.leave_action(&serde_json::json!({"action": "add", "params": written(job, n)}));
            }
            (_, None) => return,
            (JobAct::Remove(_, Way::Asked), Some(id)) => Ask::Remove(id),
            (JobAct::Remove(_, Way::Edited), Some(id)) => {
                return self.edit_jobs(|list| list.retain(|job| job["id"] != id.as_str()));
            }
            (JobAct::Remove(_, Way::Acted), Some(id)) => {
                return self.leave_action(&serde_json::json!({"action": "del", "params": {"job_id": id}}));
            }
            (JobAct::Enable(_, enabled), Some(id)) => Ask::Enable { id, enabled },
            (JobAct::Run(_), Some(id)) => {
                self.process.world.books().jobs.by_hand(n, now_ms, None);
                Ask::Run(id)
            }
        };
        let process = self.process.clone();
        tokio::task::spawn_local(async move { told(&process, &jobs, act, n, ask).await });
    }

    /// Edits `jobs.json` as another program does that takes the lock and writes it in one piece.
    fn edit_jobs(&self, edit: impl FnOnce(&mut Vec<serde_json::Value>)) {
        let disk = &self.process.disk;
        let bytes = disk.read(&place("jobs.json")).unwrap_or_else(|_| b"{\"jobs\":[]}".to_vec());
        let Ok(mut file) = serde_json::from_slice::<serde_json::Value>(&bytes) else { return };
        if let Some(jobs) = file["jobs"].as_array_mut() {
            edit(jobs);
        }
        let done = write(disk, "jobs.json.edited", file.to_string().as_bytes())
            .and_then(|()| disk.rename(&place("jobs.json.edited"), &place("jobs.json")))
            .and_then(|()| disk.sync_dir(&place("")));
        self.process.note(|_| format!("jobs.json is edited, done={}", done.is_ok()));
    }

    fn leave_action(&self, line: &serde_json::Value) {
        let disk = &self.process.disk;
        let mut bytes = disk.read(&place("action.jsonl")).unwrap_or_default();
        bytes.extend(format!("{line}\n").bytes());
        let done = write(disk, "action.jsonl", &bytes).and_then(|()| disk.sync_dir(&place("")));
        self.process.note(|_| format!("an action is left, done={}", done.is_ok()));
    }

    /// Removes all jobs: from now on nothing is due.
    pub async fn end_jobs(&self) {
        let (Some(_), Some(jobs)) = (&self.process.world.plan.work, self.app.jobs().cloned()) else { return };
        let process = &self.process;
        // What was written into the files before this is noticed first.
        tokio::time::sleep(Duration::from_secs(60)).await;
        for _ in 0..TRIES {
            let list = look(process, &jobs).await;
            if !process.is_alive() {
                return;
            }
            if list.as_ref().is_some_and(Vec::is_empty) && file_of(&process.disk).is_ok_and(is_empty) {
                return;
            }
            for (id, n) in list.into_iter().flatten() {
                process.world.books().jobs.changing(n, process.wall_ms());
                told(process, &jobs, JobAct::Remove(n, Way::Asked), n, Ask::Remove(id)).await;
            }
            tokio::time::sleep(Duration::from_secs(20)).await;
        }
        process.note(|books| {
            books.wrong("the jobs cannot be removed");
            "jobs stay".to_owned()
        });
    }
}

fn is_empty(file: Option<File>) -> bool {
    file.is_none_or(|file| file.jobs.is_empty())
}

fn write(disk: &PowerCutDisk, name: &str, bytes: &[u8]) -> std::io::Result<()> {
    disk.create_dir_all(&place(""))?;
    let file = disk.open(&place(name), Open::Create)?;
    file.set_length(0)?;
    file.write_at(bytes, 0)?;
    file.sync_data()
}

/// Looks at all jobs; their ids and numbers, if they were told.
async fn look(process: &Arc<Process>, jobs: &Arc<dyn Jobs>) -> Option<Vec<(String, usize)>> {
    let answer = jobs.ask(Ask::List).await.ok()?;
    process.note(|books| match &answer {
        Ok(Answer { jobs, .. }) => {
            books.jobs.listed(jobs, process.wall_ms());
            format!("there are {} jobs, {} run", jobs.len(), jobs.iter().filter(|job| job.running).count())
        }
        Err(Refusal::Damaged(why)) => {
            books.wrong(format!("the jobs are refused: {why}"));
            "the jobs are refused".to_owned()
        }
        Err(why) => format!("the jobs are not told: {why}"),
    });
    let number = |name: &str| name.strip_prefix('j').and_then(|n| n.parse().ok());
    answer.ok()?.jobs.iter().map(|job| Some((job.id.as_str().to_owned(), number(&job.name)?))).collect()
}

async fn told(process: &Arc<Process>, jobs: &Arc<dyn Jobs>, act: JobAct, n: usize, ask: Ask) {
    let Ok(answer) = jobs.ask(ask).await else { return };
    process.note(|books| {
        let now_ms = process.wall_ms();
        let (jobs, saved) = (&mut books.jobs, matches!(&answer, Ok(Answer { unsaved: None, .. })));
        match (act, &answer) {
            (JobAct::Run(_), Ok(_)) => jobs.by_hand(n, now_ms, Some(now_ms)),
            (JobAct::Remove(..), Ok(_)) if saved => jobs.removed(n, now_ms),
            (_, Ok(_)) => jobs.changed(n, saved),
            (_, Err(_)) => {}
        }
        let answer = answer.as_ref().map(|answer| answer.unsaved.is_none()).map_err(ToString::to_string);
        format!("{act:?} is answered, saved: {answer:?}")
    });
    look(process, jobs).await;
}
