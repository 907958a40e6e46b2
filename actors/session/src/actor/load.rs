//! From asleep or crashed to live: asks journal and file what there is.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use actix::{ActorContext, ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::chat::{StopReason, Usage};
use domain::ids::{Attempt, SessionKey, TurnId};
use domain::prompt::CANCELLED_NOTICE;
use domain::text::counted;
use protocol::journal::{CutTurn, JournalError, Loaded, RecentIds, ViewWritten};
use protocol::session::{NotRestored, Restored, State, TurnRecord};
use protocol::supervision::{EventName, ExitReason};
use protocol::turn::{Finished, TurnProgress, TurnResult};
use supervision::planted::{Bug, planted};
use supervision::ports::{Disk, offload};

use super::live::{Exit, Live};
use super::{Life, Loading, Session};
use crate::context::{Context, Told, answered, dropped, written};
use crate::drain::Drain;
use crate::file::{self, Found, Standing};
use crate::index::Row;
use crate::ledger::Ledger;
use crate::reading::{self, Faults, Reading};
use crate::shared::Shared;
use crate::turn::{self, Cut, Machine, Shown, Verdict};
use crate::view::View;

/// A session as journal and file have it.
pub(super) struct Opened {
    loaded: Loaded,
    standing: Standing,
    read: Reading,
    /// Whether the file could be brought up to the journal.
    complete: bool,
    /// The archived transcript that a new one follows.
    follows: Option<Arc<str>>,
    /// What became of the wish to have it back.
    restored: Option<Result<Restored, NotRestored>>,
}

/// Why a session cannot be loaded.
#[derive(Debug, thiserror::Error)]
pub(super) enum LoadError {
    #[error(transparent)]
    Journal(#[from] JournalError),
    #[error("transcript cannot be read: {0}")]
    File(#[from] io::Error),
    #[error("reading the transcript panicked")]
    Lost,
    /// It passes once the obstacle is gone.
    #[error("the transcript of the session before cannot be put away: {0}")]
    Unmoved(io::Error),
}

// === impl Session ===

impl Session {
    /// Replaces everything by what a fresh start has; the running work is cancelled, mail that was kept stays.
    pub(super) fn forget(&mut self) {
        self.life = self.file.begin_life();
        self.crash.clear_turn();
        self.title = None;
        self.compaction = None;
        let loading = match std::mem::replace(&mut self.state, Life::Gone) {
            Life::Loading(loading) => loading,
            Life::Live(mut live) => {
                let (awaited, early) = (live.take_tools(), live.machine.take_inbox().into_early());
                Box::new(Loading { awaited, early, ..Loading::default() })
            }
            Life::Gone => Box::default(),
        };
        self.state = Life::Loading(loading);
        // The registry may have shown it as waiting for its restart.
        self.noted.state = State::Restarting;
        self.note();
    }

    /// Loads again, in place.
    pub(super) fn reload(&mut self, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let ending = match &mut self.state {
            Life::Live(live) => live.machine.take_ending(now),
            Life::Loading(loading) => loading.ending.take(),
            Life::Gone => None,
        };
        self.forget();
        if let Life::Loading(loading) = &mut self.state {
            loading.ending = ending;
        }
        self.begin_load(ctx);
    }

    pub(super) fn begin_load(&mut self, ctx: &mut Ctx<Self>) {
        let (life, now) = (self.life, self.now());
        let mut restore = None;
        if let Life::Loading(loading) = &mut self.state {
            loading.since = now.mono;
            restore = loading.restore.as_ref().map(|restoring| Arc::clone(&restoring.taken));
        }
        self.join_sweep(ctx);
        let (shared, file, key) = (Arc::clone(&self.shared), Arc::clone(&self.file), self.lease.key().clone());
        let load = self.shared.journal.load(key.clone());
        let open = async move {
            let mut loaded = load.await.map_err(|_| JournalError::Closed)??;
            let pool = Arc::clone(&shared.ports.offload);
            let mut restored = None;
            if let Some(taken) = restore {
                let (around, file, of) = (Arc::clone(&shared), Arc::clone(&file), key.clone());
                let back = offload(&*pool, move || {
                    let _turn = file.enter(life).ok_or(LoadError::Lost)?;
                    take_back(&around, &of, &loaded, &taken)
                });
                restored = Some(back.await.map_err(|_| LoadError::Lost)??);
                // Its answer means that what was moved away before is durable: else that would move this one.
                loaded = shared.journal.load(key.clone()).await.map_err(|_| JournalError::Closed)??;
            }
            let opened = offload(&*pool, move || {
                let _turn = file.enter(life).ok_or(LoadError::Lost)?;
                shared.system.refresh(&shared.ports);
                let now_ms = shared.ports.clock.wall_ms();
                let window_tokens = shared.window_tokens;
                move_away(&shared, &loaded)?;
                shared.transcripts.sync_names()?;
                let opened =
                    open(&*shared.ports.disk, &shared.transcripts.file_of(&key), loaded, now_ms, window_tokens)?;
                if let Some(scope) = &opened.read.tally.scope {
                    shared.system.refresh_project(&scope.project_path, &shared.ports);
                }
                let fresh = opened.read.header.is_none() && opened.read.tree.is_empty();
                let follows = if fresh { shared.transcripts.newest_archive(&key)? } else { None };
                Ok::<_, LoadError>(Opened { restored, follows, ..opened })
            });
            opened.await.map_err(|_| LoadError::Lost)?
        };
        ctx.spawn(open.into_actor(self).map(move |outcome, session, ctx| {
            if session.life == life {
                session.opened(outcome, ctx);
            }
        }));
    }

    fn opened(&mut self, outcome: Result<Opened, LoadError>, ctx: &mut Ctx<Self>) {
        match outcome {
            Ok(opened) => self.go_live(opened, ctx),
            Err(LoadError::Journal(JournalError::Closed)) => self.halt(ctx),
            Err(error @ LoadError::Unmoved(_)) => self.hold(&error.to_string(), ctx),
            // The supervisor tries again with a growing pause, and at last holds the session back.
            Err(error) => panic!("session cannot be loaded: {error}"),
        }
    }

    fn go_live(&mut self, opened: Opened, ctx: &mut Ctx<Self>) {
        let Life::Loading(loading) = std::mem::replace(&mut self.state, Life::Gone) else { return };
        let Loading { early, kept, awaited, since: _, ending, restore, held: _ } = *loading;
        self.stuck_loads = 0;
        let now = self.now();
        let Opened { loaded, standing, read, complete, follows, restored } = opened;
        let cut = loaded.cut.map(|turn| self.cut(turn, &read));
        let last = loaded.lines.last().map(|line| Arc::clone(&line.id)).or(loaded.view.last_entry);
        let through = loaded.next_commit.saturating_sub(1);
        let mut view = View::new(&standing, last, through);
        // One that was taken back is on the device as it is: the journal has to know where its own lines begin.
        let tells = complete && (!loaded.lines.is_empty() || matches!(restored, Some(Ok(_))));
        if !complete {
            view.owe(loaded.view.length, loaded.lines, now.mono);
            self.shared.metrics.view_lag_bytes.inc_by(view.lag_bytes() as i64);
        }
        let ledger = Ledger::new(loaded.session, loaded.epoch, loaded.next_commit, &read).following(follows);
        let mut machine = Machine::new(Arc::clone(&self.shared.rules));
        let answered = answered(&read.tree, &loaded.inbox.iter().map(|item| item.turn).collect());
        let open: Vec<TurnId> = ending.iter().flat_map(|_| loaded.inbox.iter().map(|item| item.turn)).collect();
        let turns =
            turn::Standing { cut, answered, queue: read.tally.queue, dropped: dropped(&read.window.transcript) };
        machine.set_condensed(ledger.tally().condensed);
        let effects = machine.load(loaded.inbox, loaded.through, early, turns, now);
        let inbox = machine.waiting();
        let row =
            (!read.tree.is_empty()).then(|| self.shared.transcripts.index().loaded(self.lease.key(), Row::read(&read)));
        self.crash.set_epoch(loaded.epoch);
        self.state = Life::Live(Box::new(Live {
            machine,
            ledger,
            view,
            row,
            context: Some(Box::new(Context::new(read.window, now.mono, &self.shared).found(&standing))),
            place: None,
            work: None,
            drain: Drain::new(awaited, now.mono),
            submitted: VecDeque::new(),
            used_at: now.mono,
            readers: 0,
            exit: Exit::No,
            set_queue: None,
            edits: None,
            closer: None,
            shared: Arc::clone(&self.shared),
        }));
        self.bound_queue();
        let mut event = self.event(EventName::Activated, None);
        event.inbox = Some(inbox as u64);
        event.cause = self.crash.last_event();
        let id = self.shared.log.record(event);
        self.report_file(standing.found, read.faults, id);
        if tells {
            self.tell_written(through);
        }
        if inbox > 0 {
            self.list();
        }
        if let (Some(restoring), Some(restored)) = (restore, restored) {
            self.restored(restoring.reply, restored);
        }
        self.join_sweep(ctx);
        self.stand_in_line(ctx);
        self.tell_ends(ending.filter(|(_, verdict)| !open.contains(&verdict.turn)), ctx);
        self.perform(effects, ctx);
        for mail in kept {
            self.mail(mail, ctx);
        }
        self.note();
        self.leave_if_wanted(ctx);
    }

    fn cut(&self, turn: CutTurn, read: &Reading) -> Cut {
        Cut {
            blamed: turn.blamed || self.crash.blamed() == Some(turn.started.turn),
            alone: self.lease.alone(),
            written: written(&read.window.transcript, turn.started.turn),
            turn,
        }
    }

    /// Tells the ends that became durable just before an earlier life reloaded (`ending`) or crashed: whoever follows
    /// these turns still waits.
    fn tell_ends(&mut self, ending: Option<(Shown, Verdict)>, ctx: &mut Ctx<Self>) {
        if let Some((shown, verdict)) = ending {
            self.emit(shown);
            self.ended(verdict, ctx);
        }
        for (turn, attempt) in self.shared.events.unfinished(self.lease.key()) {
            let Life::Live(live) = &self.state else { return };
            if live.machine.knows(turn) {
                continue;
            }
            match live.context.as_ref().map_or(Told::Unknown, |context| context.record(turn)) {
                Told::Known(record) => self.tell_end(turn, attempt, record, ctx),
                Told::Unknown => self.read_file(turn, ctx, move |session, record, ctx| {
                    if let Ok(record) = record {
                        session.tell_end(turn, attempt, record, ctx);
                    }
                }),
            }
        }
    }

    fn tell_end(&mut self, turn: TurnId, attempt: Attempt, record: Option<TurnRecord>, ctx: &mut Ctx<Self>) {
        let finished = match record {
            Some(TurnRecord::Ended { result, into, text, stop, usage, model }) => {
                // What the other one answered is shown as its own.
                let text = if into.is_some() { String::new() } else { text };
                Finished { result, into, text, stop, model: model.into(), usage, latency_ms: 0, standing: None }
            }
            Some(TurnRecord::Open) => return,
            None => return self.ask_open(turn, attempt, ctx),
        };
        self.tell_finished(turn, attempt, finished);
    }

    fn tell_finished(&self, turn: TurnId, attempt: Attempt, finished: Finished) {
        let what = TurnProgress::Finished(Arc::new(finished));
        self.emit(Shown { turn, attempt: attempt.next(), seq: 1, what });
    }

    /// A turn that no transcript knows was cancelled with the one that it stands in, unless it has come just now: the
    /// journal knows that, and whoever runs it by then tells its end.
    fn ask_open(&mut self, turn: TurnId, attempt: Attempt, ctx: &mut Ctx<Self>) {
        let (open, life) = (self.shared.journal.find_turn(turn), self.life);
        ctx.spawn(open.into_actor(self).map(move |open, session, _| {
            let Life::Live(live) = &session.state else { return };
            let waits = |(other, _): &(TurnId, Attempt)| *other == turn;
            let waited_for = session.shared.events.unfinished(session.lease.key()).iter().any(waits);
            if session.life != life || open != Ok(None) || live.machine.knows(turn) || !waited_for {
                return;
            }
            let finished = Finished {
                result: TurnResult::Cancelled,
                into: None,
                text: CANCELLED_NOTICE.to_owned(),
                stop: StopReason::Aborted,
                model: Arc::clone(&session.shared.rules.model),
                usage: Usage::default(),
                latency_ms: 0,
                standing: None,
            };
            session.tell_finished(turn, attempt, finished);
        }));
    }

    /// Tells the checkpointer how far the file is.
    pub(super) fn tell_written(&self, commit: u64) {
        if let Life::Live(live) = &self.state
            && !live.view.is_behind()
        {
            self.shared.journal.view_written(ViewWritten {
                key: self.lease.key().clone(),
                session: live.ledger.session,
                commit,
                mark: live.view.mark(),
            });
        }
    }

    /// Says what was found in the file that did not belong there.
    pub(super) fn report_found(&self, found: Option<Found>, cause: Option<String>) {
        let Some(found) = found else { return };
        let mut event = self.event(EventName::ViewRepaired, None);
        event.cause = cause;
        event.reason = Some(match found.changed {
            Some((had, has)) => format!("somebody else changed the transcript: {had} bytes were written, it has {has}"),
            None => format!("{} of somebody else", counted(found.foreign_lines, "line")),
        });
        if let Some(lost) = found.lost {
            event.lost = lost;
        }
        self.shared.log.record(event);
    }

    /// Says what was found in the file, and what of it cannot be read.
    fn report_file(&self, found: Option<Found>, faults: Option<Faults>, activated: String) {
        self.report_found(found, Some(activated.clone()));
        let Some(Faults { count, first_line }) = faults else { return };
        let mut event = self.event(EventName::ViewDamaged, None);
        event.cause = Some(activated);
        event.reason = Some(format!(
            "{}, the first in line {first_line}; `greenroom sessions check` lists them",
            counted(count as u64, "fault")
        ));
        self.shared.log.record(event);
    }

    /// The journal has closed: the process is ending, and nothing can be made durable any more.
    pub(super) fn halt(&mut self, ctx: &mut Ctx<Self>) {
        self.crash.exit_reason(ExitReason::Shutdown);
        self.state = Life::Gone;
        ctx.stop();
    }
}

/// Puts the file of an ended transcript away, before any other is opened.
fn move_away(shared: &Shared, loaded: &Loaded) -> Result<(), LoadError> {
    if let Some(moving) = &loaded.moving {
        shared.transcripts.move_away(moving).map_err(LoadError::Unmoved)?;
        shared.journal.moved(moving.key.clone(), moving.session);
    }
    Ok(())
}

/// Takes an archived transcript back, if its place is free, unless that was done before a crash.
fn take_back(
    shared: &Shared,
    key: &SessionKey,
    loaded: &Loaded,
    taken: &OnceLock<Restored>,
) -> Result<Result<Restored, NotRestored>, LoadError> {
    if let Some(taken) = taken.get() {
        return Ok(Ok(taken.clone()));
    }
    move_away(shared, loaded)?;
    let in_use = loaded.view.length > 0 || !loaded.lines.is_empty() || !loaded.inbox.is_empty();
    let restored = if in_use { Err(NotRestored::InUse) } else { shared.transcripts.restore(key) };
    if let Ok(restored) = &restored {
        // It is the first: else this was answered above.
        let _ = taken.set(restored.clone());
    }
    Ok(restored)
}

fn open(disk: &dyn Disk, path: &Path, loaded: Loaded, now_ms: u64, window_tokens: u64) -> io::Result<Opened> {
    let at = loaded.view.length;
    let lines = if planted(Bug::NoViewRepair) { &[] } else { &*loaded.lines };
    let (standing, source, complete) = match file::open(disk, path, at, lines, now_ms) {
        Ok((standing, source)) => (standing, source, true),
        // A link or a pipe is nobody's transcript.
        Err(error) if error.kind() == io::ErrorKind::InvalidInput => return Err(error),
        // It cannot be written now: what the journal has stands in for what the file lacks.
        Err(_) => {
            let (standing, source) = file::peek(disk, path, at, &loaded.lines)?;
            (standing, source, false)
        }
    };
    let cut = loaded.cut.as_ref().map(|turn| turn.started.turn);
    let read = reading::read(&source, window_tokens, cut)?;
    Ok(Opened { loaded, standing, read, complete, follows: None, restored: None })
}
