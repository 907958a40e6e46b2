//! The rules of the queue: shown, set, kept.

use actix::Context as Ctx;
use domain::queue::QueueAsk;
use protocol::session::QueueState;
use tokio::sync::oneshot;

use super::{Life, Session, answer};

// === impl Session ===

impl Session {
    /// Shows them at once, or sets them and answers when that is durable. Whoever asks a session that is on its way out
    /// sees a closed channel.
    pub(super) fn ask_queue(&mut self, ask: QueueAsk, reply: oneshot::Sender<QueueState>, ctx: &mut Ctx<Self>) {
        let now = self.now();
        let Life::Live(live) = &mut self.state else { return };
        let Some((state, effects)) = live.machine.ask_queue(ask, now) else { return };
        match ask {
            QueueAsk::Show => answer(reply, state),
            QueueAsk::Set(_) | QueueAsk::Default => {
                live.set_queue.get_or_insert_default().0.push_back((reply, state));
            }
        }
        self.bound_queue();
        self.perform(effects, ctx);
    }

    /// What was set first is durable.
    pub(super) fn queue_kept(&mut self) {
        if let Life::Live(live) = &mut self.state
            && let Some(asked) = &mut live.set_queue
        {
            if let Some((reply, state)) = asked.0.pop_front() {
                answer(reply, state);
            }
            live.set_queue.take_if(|asked| asked.0.is_empty());
        }
    }

    /// Tells the journal how many messages may wait here.
    pub(super) fn bound_queue(&self) {
        if let Life::Live(live) = &self.state {
            self.shared.journal.bound(self.lease.key().clone(), live.machine.own_bound());
        }
    }
}
