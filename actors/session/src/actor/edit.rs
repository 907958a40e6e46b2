//! Edits: changes of a conversation between its turns.
//!
//! ```text
//!   asked ──▶ waits for the running turn ──▶ drawn up on the blocking pool ──▶ committed ──▶ answered
//! ```
//!
//! While an edit waits or is worked on, the machine begins no turn but one that was cut.

use std::collections::VecDeque;
use std::io;
use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::ids::{Attempt, SessionKey, TurnId};
use domain::text::counted;
use protocol::edit::{EDITS_MAX, Edit, EditError, Edited, Patience};
use protocol::supervision::EventName;
use tokio::sync::oneshot;

use super::live::Exit;
use super::{Life, Session, answer};
use crate::draw::{self, NewSession};
use crate::file::{self, Standing};
use crate::reading;
use crate::turn::{Drawn, Input};

/// Who asked for an edit.
pub(super) type Reply = oneshot::Sender<Result<Edited, EditError>>;

/// The edits of a live session.
#[derive(Default)]
pub(super) struct Edits {
    /// Oldest first.
    waiting: VecDeque<(Edit, Reply)>,
    /// The one that is worked on, by its word.
    working: Option<(&'static str, Reply)>,
    /// What it will be answered once its commit is durable.
    outcome: Option<Edited>,
}

/// What a job made of an edit.
enum Made {
    Drawn(Drawn),
    Copied(Edited),
}

// === impl Edits ===

impl Edits {
    fn refuse_all(&mut self) {
        for (_, reply) in self.waiting.drain(..) {
            answer(reply, Err(EditError::Stopping));
        }
    }
}

// === impl Session ===

impl Session {
    pub(super) fn edit(&mut self, edit: Edit, patience: Patience, reply: Reply, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        let refused = if live.exit != Exit::No || live.machine.is_leaving() {
            Some(EditError::Stopping)
        } else if live.edits.as_ref().is_some_and(|edits| edits.waiting.len() >= EDITS_MAX) {
            Some(EditError::Full)
        } else if patience == Patience::Refuse && live.machine.runs_turn() {
            Some(EditError::Busy)
        } else {
            edit.check().err()
        };
        if let Some(refused) = refused {
            answer(reply, Err(refused));
            return;
        }
        live.machine.hold();
        live.edits.get_or_insert_default().waiting.push_back((edit, reply));
        self.next_edit(ctx);
    }

    /// Takes the next edit up, when no turn runs and everything is durable; lets turns begin when there is none.
    pub(super) fn next_edit(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        let Some(edits) = live.edits.as_mut().filter(|edits| edits.working.is_none()) else { return };
        if live.exit != Exit::No || live.machine.is_leaving() {
            edits.refuse_all();
        }
        if edits.waiting.is_empty() {
            live.edits = None;
            self.step(Input::Released, ctx);
            return;
        }
        if !live.machine.is_settled() {
            return;
        }
        let Some((edit, reply)) = edits.waiting.pop_front() else { return };
        edits.working = Some((edit.word(), reply));
        self.draw_up(edit, ctx);
    }

    fn draw_up(&mut self, edit: Edit, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        let (life, number) = (self.life, live.ledger.next_commit);
        let (at, pending) = (live.view.length(), live.view.pending().to_vec());
        let (shared, key) = (Arc::clone(&self.shared), self.lease.key().clone());
        let job = self.on_file(move |ports, path| -> io::Result<(Standing, Result<Made, EditError>)> {
            let (standing, source) = file::peek(&*ports.disk, path, at, &pending)?;
            if standing.behind {
                return Ok((standing, Err(EditError::Stopping)));
            }
            let read = reading::read(&source, 0, None)?;
            let made = match &edit {
                Edit::Fork { to, entry } => {
                    let cwd = shared.config.workspace.to_string_lossy();
                    let to_path = shared.transcripts.file_of(to);
                    let new = NewSession {
                        key: to,
                        path: &to_path,
                        from: &key,
                        from_path: path,
                        cwd: &cwd,
                        attachments: &shared.config.attachments,
                    };
                    let version = read.header.as_ref().map_or(3, |header| header.version);
                    draw::fork(&read.tree, version, &source, entry.as_deref(), &new, ports).map(|forked| {
                        shared.transcripts.list_new(to);
                        let draw::Forked { copied, missing } = forked;
                        let (key, forked_from) = (to.clone(), key);
                        Made::Copied(Edited::Forked { key, forked_from, copied, attachments_missing: missing })
                    })
                }
                Edit::Export { file, format } => draw::export(&source, &key, file, *format, ports).map(Made::Copied),
                Edit::Scope { .. } => draw::draw_first(read, &source, &edit, ports).map(Made::Drawn),
                Edit::Label { .. }
                | Edit::Rename { .. }
                | Edit::Branch { .. }
                | Edit::Reset
                | Edit::Repair
                | Edit::Compact { .. }
                | Edit::Apply { .. } => draw::draw(read, &source, &edit, ports).map(Made::Drawn),
            };
            Ok((standing, made))
        });
        ctx.spawn(job.into_actor(self).map(move |outcome, session, ctx| {
            if session.life == life {
                let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the read panicked")));
                session.drawn(outcome, (number, at), ctx);
                session.note();
                session.leave_if_wanted(ctx);
            }
        }));
    }

    /// Takes what was drawn up when the next commit was `number` and `at` bytes of the file were known.
    fn drawn(
        &mut self,
        outcome: io::Result<(Standing, Result<Made, EditError>)>,
        (number, at): (u64, u64),
        ctx: &mut Ctx<Self>,
    ) {
        let key = self.lease.key().clone();
        let Life::Live(live) = &mut self.state else { return };
        let made = match outcome {
            Ok((standing, _)) if standing.behind => {
                live.view.found(at, &standing);
                self.report_found(standing.found, None);
                // Nothing was done; whoever asked may ask again.
                self.end_edit(Err(EditError::Stopping), ctx);
                return;
            }
            Ok((standing, made)) => {
                live.view.found(at, &standing);
                made
            }
            Err(error) => Err(draw::unreadable(&error)),
        };
        let drawn = match made {
            Ok(Made::Drawn(drawn)) => drawn,
            Ok(Made::Copied(copied)) => {
                self.end_edit(Ok(copied), ctx);
                return;
            }
            Err(error) => {
                let lost = live.set_aside().filter(|_| error == EditError::NoSession);
                let error = lost.map_or(error, |lost| EditError::Lost(lost.to_owned()));
                self.end_edit(Err(error), ctx);
                return;
            }
        };
        if live.ledger.next_commit != number {
            // An orderly stop was faster.
            self.end_edit(Err(EditError::Stopping), ctx);
            return;
        }
        let edited = edited(key, &drawn);
        if drawn.additions.is_empty() {
            self.end_edit(Ok(edited), ctx);
            return;
        }
        live.edits.get_or_insert_default().outcome = Some(edited);
        self.step(Input::Edit(Box::new(drawn)), ctx);
    }

    /// The edit that is worked on is durable.
    pub(super) fn edit_done(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        live.machine.set_condensed(live.ledger.tally().condensed);
        if let Some(outcome) = live.edits.as_mut().and_then(|edits| edits.outcome.take()) {
            self.end_edit(Ok(outcome), ctx);
        }
    }

    fn end_edit(&mut self, outcome: Result<Edited, EditError>, ctx: &mut Ctx<Self>) {
        if let Life::Live(live) = &mut self.state
            && let Some((word, reply)) = live.edits.as_mut().and_then(|edits| edits.working.take())
        {
            if let Ok(edited) = &outcome {
                self.tell_edited(word, edited);
            }
            answer(reply, outcome);
        }
        self.next_edit(ctx);
    }

    fn tell_edited(&self, word: &str, edited: &Edited) {
        let copy = match edited {
            // Everything was so already.
            Edited::Appended { entries, .. } if entries.is_empty() => return,
            Edited::Appended { .. } | Edited::Exported { .. } => None,
            Edited::Forked { key, attachments_missing: 0, .. } => Some(format!("{key} has the copy")),
            Edited::Forked { key, attachments_missing: missing, .. } => {
                Some(format!("{key} has the copy, without {}", counted(*missing, "attachment")))
            }
        };
        let mut event = self.event(EventName::SessionEdited, None);
        event.reason = Some(word.to_owned());
        event.verdict = copy;
        self.shared.log.record(event);
    }

    /// Tells that the conversation began anew, or what a command changed of it, once that is durable.
    pub(super) fn tell_changes(&self, what: Option<String>, work: Option<(TurnId, Attempt)>) {
        let Some(what) = what else { return };
        let mut event = self.event(EventName::SessionEdited, work.map(|(turn, _)| turn));
        event.reason = Some(what);
        self.shared.log.record(event);
    }
}

fn edited(key: SessionKey, drawn: &Drawn) -> Edited {
    let entries = drawn.additions.iter().map(|addition| addition.entry.id.clone()).collect();
    Edited::Appended { key, entries, leaf: drawn.leaf.clone(), compacted: drawn.compacted.clone() }
}
