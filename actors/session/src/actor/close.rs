//! Deleting, archiving, and taking back from the archive.

use std::io;
use std::sync::{Arc, OnceLock};

use actix::{ActorFutureExt, AsyncContext, Context as Ctx, WrapFuture};
use domain::text::counted;
use protocol::journal::{JournalError, Move, Shelf};
use protocol::session::{Closed, NotClosed, NotRestored, Restored};
use protocol::supervision::EventName;
use supervision::planted::{Bug, planted};
use supervision::ports::offload;
use tokio::sync::oneshot;

use super::live::Exit;
use super::{Life, Session, answer};
use crate::turn::Input;

/// Where the answer to a wish to close goes.
pub(super) type CloseReply = oneshot::Sender<Result<Closed, NotClosed>>;
/// Where the answer to a wish to have it back goes.
pub(super) type RestoreReply = oneshot::Sender<Result<Restored, NotRestored>>;

/// Whoever wants it back, and what was taken back already: a crash in between changes nothing of that.
pub(super) struct Restoring {
    pub reply: RestoreReply,
    pub taken: Arc<OnceLock<Restored>>,
}

/// Whoever wants the session closed, and how far it is.
pub(super) struct Closer {
    reply: CloseReply,
    /// Where the file goes, and how many turns were cancelled, once the end is durable.
    ended: Option<(Move, u32)>,
}

// === impl Session ===

impl Session {
    /// Begins to end the transcript.
    pub(super) fn close(&mut self, to: Shelf, if_quiet: bool, reply: CloseReply, ctx: &mut Ctx<Self>) {
        let at_ms = self.shared.transcripts.closing_at(self.shared.ports.clock.wall_ms());
        let Life::Live(live) = &mut self.state else { return };
        let refusal = if live.exit != Exit::No || live.closer.is_some() || live.edits.is_some() {
            Some(NotClosed::Leaving)
        } else if live.row.is_none() && live.machine.is_quiet() {
            Some(live.set_aside().map_or(NotClosed::Nothing, |lost| NotClosed::Lost(lost.to_owned())))
        } else if if_quiet && !live.machine.is_quiet() {
            Some(NotClosed::Busy)
        } else {
            None
        };
        if let Some(refusal) = refusal {
            return answer(reply, Err(refusal));
        }
        let reply = if planted(Bug::EarlyDelete) {
            answer(reply, Ok(Closed { session: live.ledger.session, cancelled: 0, file: None, unmoved: None }));
            oneshot::channel().0
        } else {
            reply
        };
        live.closer = Some(Box::new(Closer { reply, ended: None }));
        self.step(Input::Close(Move { to, at_ms }), ctx);
    }

    /// The end is durable.
    pub(super) fn transcript_ended(&mut self, place: Move, cancelled: u32) {
        if let Life::Live(live) = &mut self.state
            && let Some(closer) = &mut live.closer
        {
            closer.ended = Some((place, cancelled));
        }
    }

    /// The end is durable: puts the file where it belongs, with all that the journal has for it.
    pub(super) fn move_away(&mut self, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &mut self.state else { return };
        let Some(closer) = live.closer.take() else { return };
        let Closer { reply, ended: Some((place, cancelled)) } = *closer else { return };
        let (life, key, session) = (self.life, self.lease.key().clone(), live.ledger.session);
        let (shared, file, journal) =
            (Arc::clone(&self.shared), Arc::clone(&self.file), self.shared.journal.ended(key));
        let moved = async move {
            let ended = journal.await.unwrap_or(Err(JournalError::Closed)).map_err(io::Error::other)?;
            let Some(moving) = ended.filter(|moving| moving.session == session) else { return Ok(None) };
            let pool = Arc::clone(&shared.ports.offload);
            let moved = offload(&*pool, move || {
                let _turn = file.enter(life).ok_or_else(|| io::Error::other("the session crashed"))?;
                shared.transcripts.shelve(&moving)
            });
            moved.await.unwrap_or_else(|_| Err(io::Error::other("moving it panicked")))
        };
        ctx.spawn(moved.into_actor(self).map(move |outcome, actor, ctx| {
            if actor.life != life {
                return;
            }
            let (file, unmoved) = match outcome {
                Ok(file) => {
                    actor.shared.journal.moved(actor.lease.key().clone(), session);
                    (file, None)
                }
                // The next activation, or the next start, tries it again.
                Err(error) => (None, Some(error.to_string())),
            };
            let closed = Closed { session, cancelled, file, unmoved };
            actor.tell_closed(place.to, &closed);
            answer(reply, Ok(closed));
            let how = match place.to {
                Shelf::Archive => "archived",
                Shelf::Deleted => "deleted",
            };
            actor.closed(how, ctx);
        }));
    }

    fn tell_closed(&self, to: Shelf, closed: &Closed) {
        let name = match to {
            Shelf::Archive => EventName::SessionArchived,
            Shelf::Deleted => EventName::SessionDeleted,
        };
        let mut event = self.event(name, None);
        let file = closed.file.as_ref().map(|file| format!(", its transcript is {file}")).unwrap_or_default();
        let unmoved = closed.unmoved.as_ref().map(|why| format!(", its transcript cannot be put away yet: {why}"));
        let unmoved = unmoved.unwrap_or_default();
        event.reason = Some(format!("{} cancelled{file}{unmoved}", counted(closed.cancelled as usize, "turn")));
        self.shared.log.record(event);
    }

    /// Loads anew, with the archived transcript back in its place.
    pub(super) fn restore(&mut self, reply: RestoreReply, ctx: &mut Ctx<Self>) {
        let Life::Live(live) = &self.state else { return };
        let free = live.machine.is_idle() && live.view.is_clean() && live.exit == Exit::No && live.closer.is_none();
        if !free || live.row.is_some() {
            return answer(reply, Err(NotRestored::InUse));
        }
        self.forget();
        if let Life::Loading(loading) = &mut self.state {
            loading.restore = Some(Restoring { reply, taken: Arc::default() });
        }
        self.begin_load(ctx);
    }

    pub(super) fn restored(&self, reply: RestoreReply, restored: Result<Restored, NotRestored>) {
        if restored.is_ok() {
            self.shared.log.record(self.event(EventName::SessionRestored, None));
        }
        answer(reply, restored);
    }
}
