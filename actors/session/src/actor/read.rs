//! Answers what the transcript says about a turn.

use actix::{ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::ids::TurnId;
use domain::transcript::read_lines;
use protocol::session::TurnRecord;
use tokio::sync::oneshot;

use super::{Life, Session, answer};
use crate::context::record;
use crate::file;

/// A turn without an end that nobody runs has none: its message was in a part of the journal that was damaged.
fn has_ended(record: &TurnRecord) -> bool {
    matches!(record, TurnRecord::Ended { .. })
}

// === impl Session ===

impl Session {
    pub(super) fn read_turn(&mut self, turn: TurnId, reply: oneshot::Sender<Option<TurnRecord>>, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        if live.machine.knows(turn) {
            answer(reply, Some(TurnRecord::Open));
            return;
        }
        if let Some(context) = &live.context {
            answer(reply, context.record(turn).filter(has_ended));
            return;
        }
        live.readers += 1;
        let life = self.life;
        let (at, pending) = (live.view.length(), live.view.pending().to_vec());
        let read = self.on_file(move |ports, path| {
            let (bytes, _) = file::peek(&*ports.disk, path, at, &pending)?;
            std::io::Result::Ok(record(&read_lines(&bytes), turn))
        });
        ctx.spawn(read.into_actor(self).map(move |outcome, session, _| {
            match outcome {
                Ok(Ok(record)) => answer(reply, record.filter(has_ended)),
                // The asker sees a closed channel: it is not known, which is not the same as that there is nothing.
                Ok(Err(_)) | Err(_) => drop(reply),
            }
            if session.life == life
                && let Life::Live(live) = &mut session.state
            {
                live.readers -= 1;
            }
        }));
    }
}
