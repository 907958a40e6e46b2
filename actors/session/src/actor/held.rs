//! A session that cannot begin yet, by no fault of its messages: the transcript of the session before stands where its own
//! belongs, and cannot be put away. Its messages wait; it tries again, and goes on by itself.

use std::time::Duration;

use actix::{AsyncContext, Context as Ctx};
use prometheus_client::metrics::gauge::Gauge;
use protocol::edit::EditError;
use protocol::session::{Mail, NotClosed, NotRestored, State};
use protocol::supervision::EventName;

use super::{Life, Loading, Session, answer};

/// The first wait; each further one doubles it.
const WAIT_FIRST: Duration = Duration::from_secs(1);
/// How often it is doubled.
const DOUBLED_MAX: u32 = 6;

/// It, counted while it is there.
pub(super) struct Held {
    why: String,
    times: u32,
    counted: Gauge,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.counted.dec();
    }
}

// === impl Held ===

impl Held {
    /// What is in the way.
    pub(super) fn why(&self) -> &str {
        &self.why
    }
}

// === impl Loading ===

impl Loading {
    /// What those outside are told that it does.
    pub(super) fn state(&self) -> State {
        if self.held.is_some() { State::Held } else { State::Loading }
    }

    /// Whether somebody would wait for an answer that may be long in coming.
    pub(super) fn refuses(&self, mail: &Mail) -> bool {
        self.held.is_some()
            && matches!(
                mail,
                Mail::Edit { .. }
                    | Mail::Condense { .. }
                    | Mail::Close { .. }
                    | Mail::Restore { .. }
                    | Mail::Drain
                    | Mail::Interrupt
            )
    }
}

// === impl Session ===

impl Session {
    /// Loads again a little later. It is told as long as the waits grow.
    pub(super) fn hold(&mut self, why: &str, ctx: &mut Ctx<Self>) {
        let Life::Loading(loading) = &mut self.state else { return };
        let held = loading.held.get_or_insert_with(|| {
            let counted = self.shared.metrics.sessions_held.clone();
            counted.inc();
            Held { why: String::new(), times: 0, counted }
        });
        why.clone_into(&mut held.why);
        let wait = WAIT_FIRST.saturating_mul(1 << held.times.min(DOUBLED_MAX));
        let grows = held.times <= DOUBLED_MAX;
        held.times = held.times.saturating_add(1);
        let restore = loading.restore.take();
        let kept = std::mem::take(&mut loading.kept);
        let (refused, kept): (Vec<Mail>, Vec<Mail>) = kept.into_iter().partition(|mail| loading.refuses(mail));
        loading.kept = kept;
        if grows {
            let mut event = self.event(EventName::TurnStuck, None);
            event.reason = Some(why.to_owned());
            event.verdict = Some(format!("its messages wait, and it is tried again in {} s", wait.as_secs()));
            self.shared.log.record(event);
        }
        if let Some(restoring) = restore {
            answer(restoring.reply, Err(NotRestored::Failed(why.to_owned())));
        }
        for mail in refused {
            self.refuse_held(mail, ctx);
        }
        self.note();
        let life = self.life;
        ctx.run_later(wait, move |session, ctx| {
            if session.life == life {
                session.begin_load(ctx);
            }
        });
    }

    /// Tells at once why it cannot be done; a process that stops waits for nothing.
    pub(super) fn refuse_held(&mut self, mail: Mail, ctx: &mut Ctx<Self>) {
        let Life::Loading(loading) = &self.state else { return };
        let why = loading.held.as_ref().map(|held| held.why.clone()).unwrap_or_default();
        match mail {
            Mail::Edit { reply, .. } | Mail::Condense { reply } => answer(reply, Err(EditError::Io(why))),
            Mail::Close { reply, .. } => answer(reply, Err(NotClosed::Held)),
            Mail::Restore { reply } => answer(reply, Err(NotRestored::Failed(why))),
            Mail::Drain | Mail::Interrupt => self.halt(ctx),
            Mail::Queued(_)
            | Mail::Queue { .. }
            | Mail::Stop { .. }
            | Mail::Status { .. }
            | Mail::Passivate
            | Mail::CancelTurn { .. }
            | Mail::ReadTurn { .. }
            | Mail::Has { .. }
            | Mail::Standing { .. }
            | Mail::Run { .. } => {}
        }
    }
}
