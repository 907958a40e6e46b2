//! Answers what the transcript says about a turn.

use std::io;
use std::sync::Arc;

use actix::{ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::ids::TurnId;
use domain::run::RunSpec;
use protocol::session::TurnRecord;
use tokio::sync::oneshot;

use super::{Life, Session, answer};
use crate::context::{Told, record};
use crate::file;
use crate::reading;

/// A turn without an end that nobody runs has none: its message was in a part of the journal that was damaged.
fn has_ended(record: &TurnRecord) -> bool {
    matches!(record, TurnRecord::Ended { .. })
}

// === impl Session ===

impl Session {
    pub(super) fn read_turn(&mut self, turn: TurnId, reply: oneshot::Sender<Option<TurnRecord>>, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        if live.machine.knows(turn) {
            answer(reply, Some(TurnRecord::Open));
            return;
        }
        match live.context.as_ref().map_or(Told::Unknown, |context| context.record(turn)) {
            Told::Known(record) => answer(reply, record.filter(has_ended)),
            Told::Unknown => self.read_file(turn, ctx, |_, record, _| match record {
                Ok(record) => answer(reply, record.filter(has_ended)),
                // The asker sees a closed channel: it is not known, which is not the same as that there is nothing.
                Err(_) => drop(reply),
            }),
        }
    }

    /// Says whether a turn is one of this conversation, and not of one before it.
    pub(super) fn has_turn(&mut self, turn: TurnId, reply: oneshot::Sender<bool>, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let known = match live.context.as_ref().map_or(Told::Unknown, |context| context.record(turn)) {
            _ if live.machine.knows(turn) => Some(true),
            Told::Known(record) => Some(record.is_some()),
            Told::Unknown => None,
        };
        match known {
            Some(has) => answer(reply, has),
            None => self.look_up(
                turn,
                ctx,
                |_| Ok(None),
                |_, record, _| match record {
                    Ok(record) => answer(reply, record.is_some()),
                    // The asker sees a closed channel, and asks again.
                    Err(_) => drop(reply),
                },
            ),
        }
    }

    /// Says what it was sent to do, once it knows.
    pub(super) fn tell_run(&self, reply: oneshot::Sender<(Arc<RunSpec>, Option<TurnId>)>) {
        let Life::Live(live) = &self.state else { return };
        let said = live.machine.body().and_then(|(_, body, _)| body.run.clone());
        if let Some(run) = live.ledger.tally().run.clone().or(said) {
            answer(reply, (run, live.machine.first_open()));
        }
    }

    /// Asks the file about a turn, and has `tell` told, in whichever life.
    pub(super) fn read_file(
        &mut self,
        turn: TurnId,
        ctx: &mut Ctx<Self>,
        tell: impl FnOnce(&mut Self, io::Result<Option<TurnRecord>>, &mut Ctx<Self>) + 'static,
    ) {
        let (transcripts, key) = (self.shared.transcripts.clone(), self.lease.key().clone());
        // It may belong to a session of before.
        self.look_up(turn, ctx, move |turn| transcripts.closed_turn(&key, turn), tell);
    }

    /// Asks the file about a turn, and if that does not know it, `elsewhere`.
    fn look_up(
        &mut self,
        turn: TurnId,
        ctx: &mut Ctx<Self>,
        elsewhere: impl FnOnce(TurnId) -> io::Result<Option<TurnRecord>> + Send + 'static,
        tell: impl FnOnce(&mut Self, io::Result<Option<TurnRecord>>, &mut Ctx<Self>) + 'static,
    ) {
        let Life::Live(live) = &mut self.state else { return };
        live.readers += 1;
        let life = self.life;
        let (at, pending) = (live.view.length(), live.view.pending().to_vec());
        let read = self.on_file(move |ports, path| {
            let (_, source) = file::peek(&*ports.disk, path, at, &pending)?;
            match record(&reading::read_turn(&source, turn)?, turn) {
                None => elsewhere(turn),
                known => io::Result::Ok(known),
            }
        });
        ctx.spawn(read.into_actor(self).map(move |outcome, session, ctx| {
            tell(session, outcome.unwrap_or_else(|_| Err(io::Error::other("the read panicked"))), ctx);
            if session.life == life
                && let Life::Live(live) = &mut session.state
            {
                live.readers -= 1;
            }
        }));
    }
}
