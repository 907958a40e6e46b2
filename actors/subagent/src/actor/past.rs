//! Keeps notes of runs, reads those of before when somebody asks, and finds out what became of reports.

use std::io;

use actix::{ActorFutureExt, AsyncContext, Context, Handler, WrapFuture};
use domain::ids::SessionKey;
use protocol::subagent::{DELIVERED, PENDING, REPORTS, RunMail, RunRow, UNDELIVERED};
use supervision::ports::offload;
use tokio::sync::oneshot;

use super::Keeper;
use crate::history::{NOTES_MAX, Note, append, lines, read, replace};
use crate::machine::Input;

/// How many questions wait while the notes are read; whoever comes then is told to try again.
const KEPT_MAX: usize = 1024;

/// The file of notes, as far as it is known.
#[derive(Default)]
pub(super) struct Notes {
    state: State,
    /// Whether it was read.
    known: bool,
    /// How many notes are in it.
    count: usize,
    /// Not written yet.
    unwritten: Vec<Note>,
    /// Questions that wait until it is read.
    kept: Vec<RunMail>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum State {
    /// Nobody has asked.
    #[default]
    Unread,
    /// It is being read or written.
    Busy,
    /// Nothing is done with it.
    Free,
    /// Something is missing in it: it is to be written anew.
    Wrong,
}

// === impl Keeper ===

impl Keeper {
    /// The mail, if it can be answered; a question about runs waits until those of before are known.
    pub(super) fn with_notes(&mut self, mail: RunMail, ctx: &mut Context<Self>) -> Option<RunMail> {
        let asks = match &mail {
            // What others of its turn have used counts.
            RunMail::Spawn { .. } => self.deps.tree_tokens > 0,
            RunMail::CancelChildren { .. } | RunMail::Reported { .. } => false,
            RunMail::List { .. }
            | RunMail::Say { .. }
            | RunMail::Wait { .. }
            | RunMail::Cancel { .. }
            | RunMail::Retry { .. } => true,
        };
        if !asks || self.notes.known {
            return Some(mail);
        }
        if self.notes.kept.len() < KEPT_MAX {
            self.notes.kept.push(mail);
        }
        self.read_notes(ctx);
        None
    }

    fn read_notes(&mut self, ctx: &mut Context<Self>) {
        if self.notes.state != State::Unread {
            return;
        }
        self.notes.state = State::Busy;
        let (disk, path) = (self.deps.ports.disk.clone(), self.deps.notes.clone());
        let found = offload(&*self.deps.ports.offload, move || read(&*disk, &path));
        ctx.spawn(found.into_actor(self).map(|found, keeper, ctx| {
            let path = keeper.deps.notes.display();
            let found = found.unwrap_or_else(|_| Err(io::Error::other("the read panicked"))).unwrap_or_else(|error| {
                tracing::warn!(%path, %error, "what is known of earlier sub-agents cannot be read");
                Default::default()
            });
            if found.bad > 0 {
                tracing::warn!(%path, lines = found.bad, "notes of sub-agents say nothing");
            }
            keeper.notes.state = State::Free;
            keeper.notes.known = true;
            keeper.notes.count = found.notes;
            keeper.step(Input::Past { runs: found.runs }, ctx);
            keeper.settle(ctx);
            for mail in std::mem::take(&mut keeper.notes.kept) {
                <Self as Handler<RunMail>>::handle(keeper, mail, ctx);
            }
        }));
    }

    /// Writes down what the machine wants to be kept.
    pub(super) fn keep_notes(&mut self, ctx: &mut Context<Self>) {
        self.notes.unwritten.append(&mut self.machine.take_notes());
        // So many that all are written anew.
        self.notes.unwritten.truncate(NOTES_MAX + 1);
        if self.notes.unwritten.is_empty() {
            return;
        }
        let anew = match self.notes.state {
            State::Unread => return self.read_notes(ctx),
            State::Busy => return,
            State::Free => self.notes.count + self.notes.unwritten.len() > NOTES_MAX,
            State::Wrong => true,
        };
        let mut notes = std::mem::take(&mut self.notes.unwritten);
        if anew {
            notes = self.machine.all_notes();
            self.notes.count = 0;
        }
        self.notes.count += notes.len();
        self.notes.state = State::Busy;
        let (disk, path) = (self.deps.ports.disk.clone(), self.deps.notes.clone());
        let write = if anew { replace } else { append };
        let written = offload(&*self.deps.ports.offload, move || write(&*disk, &path, &lines(&notes)));
        ctx.spawn(written.into_actor(self).map(|written, keeper, ctx| {
            match written.unwrap_or_else(|_| Err(io::Error::other("the write panicked"))) {
                Ok(()) => {
                    keeper.notes.state = State::Free;
                    keeper.keep_notes(ctx);
                }
                Err(error) => {
                    // All of them are written with the next one.
                    keeper.notes.state = State::Wrong;
                    let path = keeper.deps.notes.display();
                    tracing::warn!(%path, %error, "what is known of sub-agents cannot be kept");
                }
            }
        }));
    }

    /// Answers with what is known of runs, and of their reports.
    pub(super) fn list(
        &mut self,
        parent: Option<SessionKey>,
        reply: oneshot::Sender<Vec<RunRow>>,
        ctx: &mut Context<Self>,
    ) {
        let mut rows = self.machine.rows(parent.as_ref());
        let pending: Vec<SessionKey> =
            rows.iter().filter(|row| row.delivery == Some(PENDING)).map(|row| row.key.clone()).collect();
        if pending.is_empty() {
            // Whoever asked may be gone, here as below.
            return drop(reply.send(rows));
        }
        let standing = self.standing(pending);
        ctx.spawn(standing.into_actor(self).map(move |standing, _, _| {
            for (key, word) in standing {
                rows.iter_mut().filter(|row| row.key == key).for_each(|row| row.delivery = Some(word));
            }
            drop(reply.send(rows));
        }));
    }

    /// Reports of before that are not on their way any more were handed over: the process ended before that was noted.
    fn settle(&mut self, ctx: &mut Context<Self>) {
        let untold = self.machine.untold();
        if untold.is_empty() {
            return;
        }
        let standing = self.standing(untold.iter().map(|(_, key)| key.clone()).collect());
        ctx.spawn(standing.into_actor(self).map(move |standing, keeper, ctx| {
            for ((run, _), (_, word)) in untold.into_iter().zip(standing) {
                if word == DELIVERED {
                    keeper.step(Input::Reported { run }, ctx);
                }
            }
        }));
    }

    /// What became of the reports of these sessions, in their order.
    fn standing(&self, keys: Vec<SessionKey>) -> impl Future<Output = Vec<(SessionKey, &'static str)>> + use<> {
        let journal = self.deps.journal.clone();
        async move {
            // A journal that does not answer ends with its process.
            let mut letters = journal.dead_letters().await.unwrap_or_default();
            letters.retain(|letter| letter.channel.as_deref() == Some(REPORTS));
            let mut standing = Vec::with_capacity(keys.len());
            for key in keys {
                let word = if letters.iter().any(|letter| letter.key == key) {
                    UNDELIVERED
                } else {
                    let open = journal.open_of(key.clone()).await;
                    let is_through = open.is_ok_and(|open| open.rows.iter().all(|row| *row.channel != *REPORTS));
                    if is_through { DELIVERED } else { PENDING }
                };
                standing.push((key, word));
            }
            standing
        }
    }
}
