//! Those who edit sessions, end them, and take them back.

use std::sync::Arc;

use domain::ids::SessionKey;
use domain::transcript::read_lines;
use protocol::edit::{Edit, EditError, Edited, Keep, Patience};
use protocol::journal::Shelf;
use protocol::session::{Closed, Mail, NotClosed, NotRestored, Restored};
use supervision::ports::Disk;
use tokio::sync::oneshot;

use super::drive::{Running, transcript};
use super::files::{Place, files_of};
use super::plan::Change;
use super::process::Process;

// === impl Running ===

impl Running {
    /// Edits a session; `step` makes names that are given once.
    pub fn edit(&self, index: usize, change: Change, pick: usize, step: usize) {
        let key = self.key(index).clone();
        let edit = edit(&self.process, &key, change, pick, step);
        let forks = matches!(edit, Edit::Fork { .. });
        let (reply, answer) = oneshot::channel();
        let patience = if pick.is_multiple_of(3) { Patience::Refuse } else { Patience::Wait };
        if self.app.sessions().tell(&key, Mail::Edit { edit, patience, reply }).is_err() {
            return;
        }
        let process = self.process.clone();
        tokio::task::spawn_local(async move {
            let Ok(answer) = answer.await else { return };
            edited(&process, &key, forks, answer);
        });
    }

    /// Deletes or archives a session.
    pub fn close(&self, index: usize, to: Shelf, if_quiet: bool) {
        let key = self.key(index).clone();
        let (reply, answer) = oneshot::channel();
        let wish = self.process.world.books().closing(&key, to);
        if self.app.sessions().tell(&key, Mail::Close { to, if_quiet, reply }).is_err() {
            return self.process.world.books().files(&key).refused(wish);
        }
        let process = self.process.clone();
        tokio::task::spawn_local(async move {
            closed(&process, &key, wish, answer.await.ok());
        });
    }

    /// Takes a session back from the archive.
    pub fn restore(&self, index: usize) {
        let key = self.key(index).clone();
        let (reply, answer) = oneshot::channel();
        let wish = self.process.world.books().files(&key).wish(Place::Live);
        if self.app.sessions().tell(&key, Mail::Restore { reply }).is_err() {
            return self.process.world.books().files(&key).refused(wish);
        }
        let process = self.process.clone();
        tokio::task::spawn_local(async move {
            restored(&process, &key, wish, answer.await.ok());
        });
    }
}

fn edit(process: &Process, key: &SessionKey, change: Change, pick: usize, step: usize) -> Edit {
    // On a copy: whoever looks here is no part of what is simulated, and meets no fault.
    let file = process.disk.copy().read(&transcript(key)).unwrap_or_default();
    let read = read_lines(&file);
    let entries: Vec<&Arc<str>> = read.entries().iter().map(|entry| &entry.id).collect();
    let entry = entries.get(pick % entries.len().max(1)).map_or_else(|| "none".to_owned(), |id| id.to_string());
    match change {
        Change::Label => Edit::Label { entry, text: (!pick.is_multiple_of(4)).then(|| format!("label {step}")) },
        Change::Rename => Edit::Rename { name: format!("name {step}") },
        Change::Branch { summary } => Edit::Branch {
            to: (!pick.is_multiple_of(5)).then_some(entry),
            summary: summary.then(|| format!("what was said before {step}")),
        },
        Change::Reset => Edit::Reset,
        Change::Compact(count) => Edit::Compact { keep: Keep::Messages(count), summary: Some(format!("sum {step}")) },
        Change::Repair => Edit::Repair,
        Change::Fork { whole } => Edit::Fork {
            to: SessionKey::new(&format!("fork:{step}")).expect("a short printable key"),
            entry: (!whole).then_some(entry),
        },
    }
}

fn edited(process: &Process, key: &SessionKey, forks: bool, answer: Result<Edited, EditError>) {
    let disk = process.disk.copy();
    process.note(|books| {
        let told = match answer {
            Err(error) => format!("refused: {}", error.code()),
            Ok(Edited::Exported { .. }) => "written out".to_owned(),
            Ok(Edited::Appended { entries, .. }) => {
                books.counts.edits += 1;
                let count = entries.len();
                let seen = books.files(key).edited(entries.iter().map(|id| id.to_string()), &files_of(&disk, key));
                if let Err(wrong) = seen {
                    books.wrong(format!("{key}: {wrong}"));
                }
                format!("done, {count} entries")
            }
            Ok(Edited::Forked { key: to, copied, .. }) => {
                books.counts.forks += 1;
                match disk.read(&transcript(&to)) {
                    Ok(bytes) => drop(books.forks.insert(to, bytes)),
                    Err(error) => books.wrong(format!("{to} was made and is not there: {error}")),
                }
                format!("copied {copied} lines")
            }
        };
        format!("edit of {key}, fork={forks}: {told}")
    });
}

fn closed(process: &Process, key: &SessionKey, wish: usize, answer: Option<Result<Closed, NotClosed>>) {
    let disk = process.disk.copy();
    process.note(|books| {
        books.ended_by_others(key);
        match answer {
            None => {
                books.files(key).lost(wish);
                format!("the end of {key} stays unanswered")
            }
            Some(Err(why)) => {
                books.files(key).refused(wish);
                format!("the end of {key} is refused: {why:?}")
            }
            Some(Ok(closed)) => {
                books.counts.closes += 1;
                let name = match &closed.file {
                    // Its place has the newest one of them.
                    Some(_) => None,
                    None => Some(closed.session.to_string()),
                };
                if let Err(wrong) = books.files(key).put(wish, name.as_deref(), &files_of(&disk, key)) {
                    books.wrong(format!("{key}: {wrong}"));
                }
                format!("{key} has ended, {} cancelled, moved={}", closed.cancelled, closed.file.is_some())
            }
        }
    });
}

fn restored(process: &Process, key: &SessionKey, wish: usize, answer: Option<Result<Restored, NotRestored>>) {
    let disk = process.disk.copy();
    process.note(|books| match answer {
        None => {
            books.files(key).lost(wish);
            format!("the return of {key} stays unanswered")
        }
        // A rename that failed at its sync has happened all the same.
        Some(Err(NotRestored::Failed(_))) => {
            books.files(key).lost(wish);
            format!("{key} cannot be taken back")
        }
        Some(Err(why)) => {
            books.files(key).refused(wish);
            format!("the return of {key} is refused: {why:?}")
        }
        Some(Ok(_)) => {
            books.counts.restores += 1;
            if let Err(wrong) = books.files(key).put(wish, None, &files_of(&disk, key)) {
                books.wrong(format!("{key}: {wrong}"));
            }
            format!("{key} was taken back")
        }
    });
}
