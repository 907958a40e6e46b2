//! Reads and saves, one at a time, on the blocking pool.

use std::sync::Arc;
use std::time::Duration;

use actix::{ActorFutureExt, AsyncContext, Context, WrapFuture};
use domain::cron::file::File;
use domain::cron::scheduler::{Input, Note, Noted, SaveOutcome};
use protocol::cron::AskCron;
use supervision::ports::offload;

use super::{Cron, LOOK_EVERY};
use crate::store::{Found, OnDamage, Read, Saved, Seen, Store};

/// How soon one tries again that found the lock taken.
const LOCK_RETRY: Duration = Duration::from_millis(200);
/// How often.
const LOCK_TRIES_MAX: u32 = 50;

/// What is wanted of the files, and what is known of them.
pub(super) struct Files {
    store: Arc<Store>,
    seen: Option<Seen>,
    read: Option<Look>,
    save: Option<(u64, File)>,
    /// One job is under way, or waits for the lock.
    busy: bool,
    lock_tries: u32,
    looked: Duration,
    /// The first attempt to read them is over.
    tried: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Look {
    /// Unless they are as they were.
    IfChanged,
    /// In any case.
    Always,
}

// === impl Files ===

impl Files {
    pub(super) fn new(store: Arc<Store>) -> Self {
        let (read, save, looked) = (None, None, Duration::ZERO);
        Self { store, seen: None, read, save, busy: false, lock_tries: 0, looked, tried: false }
    }

    pub(super) fn want_read(&mut self, always: bool) {
        self.read = self.read.max(Some(if always { Look::Always } else { Look::IfChanged }));
    }

    /// Whether it is known what is in them, or that this cannot be known.
    pub(super) fn were_read(&self) -> bool {
        self.tried
    }

    pub(super) fn want_save(&mut self, revision: u64, file: File) {
        self.save = Some((revision, file));
    }
}

impl Cron {
    /// Looks at the files if it is time for that.
    pub(super) fn look(&mut self, _: &mut Context<Self>) {
        let now = self.deps.ports.clock.mono();
        if now.saturating_sub(self.files.looked) >= LOOK_EVERY {
            self.files.want_read(false);
        }
    }

    /// Begins the next job, if none is under way.
    pub(super) fn work_on_files(&mut self, ctx: &mut Context<Self>) {
        if self.files.busy {
            return;
        }
        let (store, ports) = (Arc::clone(&self.files.store), self.deps.ports.clone());
        if let Some(look) = self.files.read {
            self.files.busy = true;
            self.files.looked = ports.clock.mono();
            let before = self.files.seen.filter(|_| look == Look::IfChanged);
            let pool = Arc::clone(&ports.offload);
            let read = offload(&*pool, move || store.read(&ports, before, OnDamage::SetAside));
            ctx.spawn(read.into_actor(self).map(|read, cron, ctx| {
                let read = read.unwrap_or_else(|_| Err(std::io::Error::other("the reader failed")));
                cron.files_read(read.map_err(|error| error.to_string()), ctx);
            }));
        } else if let Some((revision, file)) = self.files.save.clone() {
            self.files.busy = true;
            let before = self.files.seen.unwrap_or_default();
            let pool = Arc::clone(&ports.offload);
            let save = offload(&*pool, move || store.save(&ports, &file, before));
            ctx.spawn(save.into_actor(self).map(move |saved, cron, ctx| {
                let saved = saved.unwrap_or_else(|_| Err(std::io::Error::other("the writer failed")));
                cron.file_saved(revision, saved.map_err(|error| error.to_string()), ctx);
            }));
        }
    }

    fn files_read(&mut self, read: Result<Read, String>, ctx: &mut Context<Self>) {
        let input = match read {
            Ok(Read::Locked) => return self.wait_for_lock(ctx),
            Ok(Read::Unchanged) => None,
            Ok(Read::Files(found)) => {
                let Found { file, aside, actions, bad, seen } = *found;
                self.files.seen = Some(seen);
                if let Some(name) = aside.filter(|_| !self.files.tried) {
                    let text =
                        format!("there is no cron/jobs.json, so no job is followed; the damaged one is kept as {name}");
                    self.note(Note { what: Noted::Damaged, job: None, turn: None, text });
                }
                if bad > 0 {
                    tracing::warn!(
                        lines = bad,
                        "cron/action.jsonl has lines that say nothing usable; they are left out"
                    );
                }
                Some(Input::Read { file, actions })
            }
            Ok(Read::Damaged(why)) => {
                self.files.seen = None;
                self.files.want_read(true);
                self.files_done();
                self.step(Input::Damaged(why), ctx);
                self.hear_early(ctx);
                return;
            }
            Err(why) => Some(Input::Unreadable(why)),
        };
        self.files.read = None;
        self.files_done();
        match input {
            Some(input) => self.step(input, ctx),
            None => self.work_on_files(ctx),
        }
        self.hear_early(ctx);
    }

    /// Answers those who asked before the files were read.
    fn hear_early(&mut self, ctx: &mut Context<Self>) {
        self.files.tried = true;
        for AskCron { ask, reply } in std::mem::take(&mut self.early) {
            self.asked(ask, reply, ctx);
        }
    }

    fn file_saved(&mut self, revision: u64, saved: Result<Saved, String>, ctx: &mut Context<Self>) {
        let outcome = match saved {
            Ok(Saved::Locked) => return self.wait_for_lock(ctx),
            Ok(Saved::Done(seen)) => {
                self.files.seen = Some(seen);
                SaveOutcome::Done
            }
            Ok(Saved::Changed) => SaveOutcome::Changed,
            Err(why) => {
                self.deps.metrics.cron.unsaved.inc();
                SaveOutcome::Failed(why)
            }
        };
        self.files.save = None;
        self.files_done();
        match &outcome {
            SaveOutcome::Done => self.answer(revision, None, usize::MAX),
            SaveOutcome::Failed(why) => self.answer(u64::MAX, Some(why), usize::MAX),
            SaveOutcome::Changed => {}
        }
        self.step(Input::Saved { revision, outcome }, ctx);
    }

    fn files_done(&mut self) {
        self.files.busy = false;
        self.files.lock_tries = 0;
    }

    /// Another process is at the files: soon it is done, or it is told.
    fn wait_for_lock(&mut self, ctx: &mut Context<Self>) {
        self.files.lock_tries += 1;
        if self.files.lock_tries < LOCK_TRIES_MAX {
            ctx.run_later(LOCK_RETRY, |cron, ctx| {
                cron.files.busy = false;
                cron.work_on_files(ctx);
            });
            return;
        }
        self.files_done();
        let why = "another process holds cron.lock".to_owned();
        match (self.files.read.take(), self.files.save.take()) {
            (Some(_), _) => {
                self.step(Input::Unreadable(why), ctx);
                self.hear_early(ctx);
            }
            (None, Some((revision, _))) => {
                self.answer(u64::MAX, Some(&why), usize::MAX);
                self.step(Input::Saved { revision, outcome: SaveOutcome::Failed(why) }, ctx);
            }
            (None, None) => {}
        }
    }
}
