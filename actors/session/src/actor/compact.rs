//! Compactions with a summary by the model.
//!
//! ```text
//!   wanted ──▶ part chosen on the blocking pool ──▶ summarised by the memory ──▶ drawn up on the blocking pool ──▶ told
//!                 │ nothing has to go                                               │ the conversation has changed
//!                 └─────────────────────────────────────────────────────────────────┴────────────────────────▶ told
//! ```
//!
//! No permit is held meanwhile. One runs at a time; dropping it gives it up.

use std::io;
use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context as Ctx, Handler, WrapFuture};
use domain::compaction::Spared;
use domain::compaction::failed::FAILURES_MAX;
use domain::ids::{Attempt, TurnId};
use protocol::edit::{Edit, EditError, FAILED_WORD, Occasion, Part, Patience, RAW_WORD};
use protocol::memory::{Summarise, Summarised, Summary};
use protocol::turn::{Pulse, Stamp};
use tokio::sync::oneshot;
use tokio_util::sync::{CancellationToken, DropGuard};

use super::edit::Reply;
use super::live::{Exit, Fill};
use super::{Life, Session, answer};
use crate::condense::{self, Prepared, Wanted, Wish};
use crate::draw;
use crate::file::{self, Standing};
use crate::reading;
use crate::shared::tell_front;
use crate::turn::{Commanded, Drawn, Input};

/// Messages that stay when a person asks for it, or nothing was said for long.
pub(crate) const KEPT_MESSAGES: u32 = 8;

/// One under way.
pub(super) struct Compaction {
    stamp: Stamp,
    goal: Goal,
    /// Once it is chosen.
    part: Option<Part>,
    /// Whoever has it done because nothing was said for long.
    asker: Option<Reply>,
    /// Of the memory.
    pub pulse: Pulse,
    cancel: CancellationToken,
    _given_up: DropGuard,
}

/// What waits for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Goal {
    /// The running turn, to call the model.
    Turn,
    /// The running turn, which is a command.
    Command,
    /// Nobody: turns go on meanwhile.
    Nobody,
}

/// What a job says, unless the file is another one than was known.
type Looked<T> = (Standing, Option<T>);

// === impl Session ===

impl Session {
    /// Has the beginning of the conversation summarised for the running turn.
    pub(super) fn compact(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let asked = live.work.as_ref().and_then(|work| work.asked);
        let stays = self.half_of(asked.map_or(0, |fill| fill.tokens.min(fill.budget)));
        self.compact_in_turn(Goal::Turn, stays, None, ctx);
    }

    /// Has the beginning of a conversation summarised that the next turn would find too long.
    pub(super) fn compact_behind_turn(&mut self, fill: Fill, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        if fill.tokens < fill.budget || live.exit != Exit::No || live.machine.is_leaving() {
            return;
        }
        let turn = TurnId(self.shared.ports.ids.uuid_v7());
        let stamp = Stamp { epoch: live.ledger.epoch, turn, attempt: Attempt::FIRST, round: 0 };
        let wish = Wish {
            key: self.lease.key().clone(),
            kind: fill.kind,
            settings: self.shared.settings(fill.kind, live.ledger.tally()),
            scope: live.ledger.scope().cloned(),
            turn,
            stays: self.half_of(fill.budget),
            spared: Spared::Last,
            more_than: None,
            asked: None,
        };
        self.begin_compaction(Goal::Nobody, stamp, CancellationToken::new(), wish, ctx);
    }

    /// Has all but the last messages summarised, if nothing was said for long and nothing is to be done.
    pub(super) fn condense(&mut self, reply: Reply, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let busy = !live.machine.is_idle() || live.exit != Exit::No || live.machine.is_leaving();
        let silence_ms = self.now().wall_ms.saturating_sub(live.ledger.last_ms());
        let spoken = self.shared.config.idle_compact.is_none_or(|most| u128::from(silence_ms) < most.as_millis());
        if busy || spoken || self.compaction.is_some() {
            answer(reply, Err(EditError::Busy));
            return;
        }
        let turn = TurnId(self.shared.ports.ids.uuid_v7());
        let stamp = Stamp { epoch: live.ledger.epoch, turn, attempt: Attempt::FIRST, round: 0 };
        let kind = self.shared.config.policies.kind_of(self.lease.key());
        let wish = Wish {
            key: self.lease.key().clone(),
            kind,
            settings: self.shared.settings(kind, live.ledger.tally()),
            scope: live.ledger.scope().cloned(),
            turn,
            stays: Wanted::Messages(KEPT_MESSAGES),
            spared: Spared::Last,
            more_than: Some(KEPT_MESSAGES as usize),
            asked: None,
        };
        self.begin_compaction(Goal::Nobody, stamp, CancellationToken::new(), wish, ctx);
        if let Some(compaction) = &mut self.compaction {
            compaction.asker = Some(reply);
        }
    }

    /// What stays of a request of so many tokens.
    fn half_of(&self, tokens: u64) -> Wanted {
        Wanted::Request(tokens.saturating_mul(u64::from(self.shared.config.consolidation_per_mille)) / 1000)
    }

    /// Has all but the last messages summarised, as the running turn asks for.
    pub(super) fn compact_as_asked(&mut self, asked: Option<String>, ctx: &mut Ctx<Self>) {
        self.compact_in_turn(Goal::Command, Wanted::Messages(KEPT_MESSAGES), asked, ctx);
    }

    fn compact_in_turn(&mut self, goal: Goal, stays: Wanted, asked: Option<String>, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let (Some(stamp), Some(work)) = (live.stamp(), live.work.as_ref()) else { return };
        let Some((accepted, ..)) = live.machine.body() else { return };
        let key = self.lease.key().clone();
        let kind = self.shared.config.policies.kind(&key, &accepted.source);
        let spared = match goal {
            Goal::Turn => Spared::Running(stamp.turn),
            Goal::Command | Goal::Nobody => Spared::Last,
        };
        let scope = live.ledger.scope().cloned();
        let settings = self.shared.settings(kind, live.ledger.tally());
        let wish = Wish { key, kind, settings, scope, turn: stamp.turn, stays, spared, more_than: None, asked };
        self.begin_compaction(goal, stamp, work.cancel.child_token(), wish, ctx);
    }

    fn begin_compaction(
        &mut self,
        goal: Goal,
        stamp: Stamp,
        cancel: CancellationToken,
        wish: Wish,
        ctx: &mut Ctx<Self>,
    ) {
        let window_tokens = self.shared.window_tokens;
        let Life::Live(live) = &self.state else { return };
        let (life, at, pending) = (self.life, live.view.length(), live.view.pending().to_vec());
        let _given_up = cancel.clone().drop_guard();
        self.compaction = Some(Box::new(Compaction {
            stamp,
            goal,
            part: None,
            asker: None,
            pulse: Pulse::default(),
            cancel,
            _given_up,
        }));
        let shared = Arc::clone(&self.shared);
        let job = self.on_file(move |ports, path| -> io::Result<Looked<Option<Prepared>>> {
            let (standing, source) = file::peek(&*ports.disk, path, at, &pending)?;
            if standing.behind {
                return Ok((standing, None));
            }
            let read = reading::read(&source, window_tokens, None)?;
            let prepared = condense::prepare(&shared, &read, &source, &wish)?;
            Ok((standing, Some(prepared)))
        });
        ctx.spawn(job.into_actor(self).map(move |outcome, session, ctx| {
            if session.life == life && session.compacts(stamp) {
                let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the read panicked")));
                if let Some(prepared) = session.looked(outcome, at, ctx) {
                    session.summarise(prepared.flatten(), ctx);
                }
                session.note();
            }
        }));
    }

    /// Whether that one is under way.
    fn compacts(&self, stamp: Stamp) -> bool {
        self.compaction.as_ref().is_some_and(|compaction| compaction.stamp == stamp)
    }

    /// What a job found when `at` bytes of the file were known; `None` if the session loads again.
    fn looked<T>(&mut self, outcome: io::Result<Looked<T>>, at: u64, ctx: &mut Ctx<Self>) -> Option<Option<T>> {
        let Life::Live(live) = &mut self.state else { return None };
        match outcome {
            Ok((standing, found)) => {
                live.view.found(at, &standing);
                if found.is_none() {
                    self.report_found(standing.found, None);
                    self.reload(ctx);
                    return None;
                }
                Some(found)
            }
            Err(error) => {
                tracing::warn!(session = %self.lease.key(), %error, "transcript cannot be read");
                Some(None)
            }
        }
    }

    fn summarise(&mut self, prepared: Option<Prepared>, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let Some(compaction) = &mut self.compaction else { return };
        // What the model refuses as too long gets shorter now, or is not answered.
        let is_urgent = compaction.goal == Goal::Turn && live.machine.has_overflowed();
        let is_last = is_urgent || live.ledger.tally().failures.is_next_last();
        let Some(Prepared { part, request, raw }) = prepared else {
            self.end_compaction(Err(EditError::NotCompacted(NOTHING_TO_DO.to_owned())), ctx);
            return;
        };
        compaction.part = Some(part.clone());
        let ask = Summarise {
            stamp: compaction.stamp,
            key: self.lease.key().clone(),
            part,
            request,
            raw,
            is_last,
            pulse: compaction.pulse.clone(),
            cancel: compaction.cancel.clone(),
            reply_to: ctx.address().recipient(),
        };
        if tell_front(&self.neighbours.memory, &self.shared.mail.memory, ask).is_err() {
            self.end_compaction(Err(EditError::Stopping), ctx);
        }
    }

    fn summarised(&mut self, summary: Summary, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let Some((stamp, Some(part))) = self.compaction.as_mut().map(|one| (one.stamp, one.part.take())) else {
            return;
        };
        if let Some(one) = self.compaction.take_if(|one| one.goal == Goal::Nobody) {
            let occasion = if one.asker.is_some() { Occasion::Silence } else { Occasion::Length };
            let reply = one.asker.unwrap_or_else(|| oneshot::channel().0);
            // Turns may have changed the conversation meanwhile: then it is dropped.
            self.edit(Edit::Apply { part, summary, occasion }, Patience::Wait, reply, ctx);
            return;
        }
        let edit = Edit::Apply { part, summary, occasion: Occasion::Length };
        let (life, at, pending) = (self.life, live.view.length(), live.view.pending().to_vec());
        let job = self.on_file(move |ports, path| -> io::Result<Looked<Result<Drawn, EditError>>> {
            let (standing, source) = file::peek(&*ports.disk, path, at, &pending)?;
            if standing.behind {
                return Ok((standing, None));
            }
            let read = reading::read(&source, 0, None)?;
            Ok((standing, Some(draw::draw(read, &source, &edit, ports))))
        });
        ctx.spawn(job.into_actor(self).map(move |outcome, session, ctx| {
            if session.life == life && session.compacts(stamp) {
                let outcome = outcome.unwrap_or_else(|_| Err(io::Error::other("the read panicked")));
                if let Some(drawn) = session.looked(outcome, at, ctx) {
                    let unreadable = || Err(EditError::Io("the transcript cannot be read".to_owned()));
                    session.end_compaction(drawn.unwrap_or_else(unreadable), ctx);
                }
                session.note();
            }
        }));
    }

    fn end_compaction(&mut self, drawn: Result<Drawn, EditError>, ctx: &mut Ctx<Self>) {
        let Some(Compaction { goal, asker, .. }) = self.compaction.take().map(|compaction| *compaction) else { return };
        if let Err(error) = &drawn {
            tracing::debug!(session = %self.lease.key(), %error, "the conversation is not compacted");
        }
        let input = match goal {
            Goal::Turn => Input::Compacted(drawn.ok().map(Box::new)),
            Goal::Command => Input::Commanded(Box::new(told(drawn))),
            Goal::Nobody => {
                if let (Some(asker), Err(error)) = (asker, drawn) {
                    answer(asker, Err(error));
                }
                return;
            }
        };
        self.step(input, ctx);
    }
}

/// Why none is made.
const NOTHING_TO_DO: &str = "there is nothing to summarise yet";

/// What the person is told who asked for it.
fn told(drawn: Result<Drawn, EditError>) -> Commanded {
    let drawn = match drawn {
        Ok(drawn) => drawn,
        Err(error) => return Commanded { text: format!("Nothing was changed: {error}."), ..Commanded::default() },
    };
    if drawn.word == FAILED_WORD {
        let text = format!(
            "The model could not sum up the earlier messages this time. Nothing was changed. When that happens {FAILURES_MAX} \
             times in a row, they are archived as they are."
        );
        return Commanded { text, drawn: Some(Box::new(drawn)), ..Commanded::default() };
    }
    let size = drawn.compacted.as_ref().map_or_else(String::new, |compacted| {
        format!("about {} → {} tokens", compacted.tokens_before, compacted.tokens_after)
    });
    let text = if drawn.word == RAW_WORD {
        format!("The model could not sum up the earlier messages; they were archived as they are: {size}.")
    } else {
        format!("Summarised: {size}.")
    };
    Commanded {
        text: format!("{text} Nothing was removed from the transcript."),
        drawn: Some(Box::new(drawn)),
        ..Commanded::default()
    }
}

impl Handler<Summarised> for Session {
    type Result = ();

    fn handle(&mut self, Summarised { stamp, summary }: Summarised, ctx: &mut Self::Context) {
        // The memory has written what it kept, and the next request shows it.
        self.shared.system.outdate();
        if self.compacts(stamp) {
            self.summarised(summary, ctx);
        } else {
            self.stale();
        }
        self.note();
    }
}
