//! What an actor and its supervisor tell each other across a crash.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use domain::ids::{Attempt, Epoch, MessageId, TurnId};
use protocol::supervision::{Crash, ExitReason};
use tokio_util::sync::CancellationToken;

/// Shared between an actor and its supervisor; outlives the actor's value, which a crash leaves in pieces.
#[derive(Debug, Clone, Default)]
pub struct CrashCell(Arc<Mutex<State>>);

/// A crash with the id of its event, to be named as the cause of what follows from it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoggedCrash {
    /// What happened.
    pub crash: Crash,
    /// Id of its `restarted` or `gave_up` event.
    pub event: String,
}

#[derive(Debug, Default)]
struct State {
    turn: Option<(TurnId, Attempt)>,
    message: Option<MessageId>,
    epoch: Option<Epoch>,
    forgiven: bool,
    event: Option<String>,
    exit: Option<ExitReason>,
    linked: Option<CancellationToken>,
    last: Option<Box<LoggedCrash>>,
    blamed: Option<TurnId>,
}

impl CrashCell {
    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// From now on a crash is this turn's. To be called when what was to blame before is on its way to the journal.
    pub fn set_turn(&self, turn: TurnId, attempt: Attempt) {
        let mut state = self.state();
        state.turn = Some((turn, attempt));
        state.blamed = None;
    }

    /// The turn whose crash still has to be counted: a crash during which no turn was worked on is nobody's, and does not
    /// clear the turn that crashed before.
    pub fn blamed(&self) -> Option<TurnId> {
        self.state().blamed
    }

    /// The sender's id of the message that this turn answers, for the events of a crash.
    pub fn set_message(&self, message: MessageId) {
        self.state().message = Some(message);
    }

    /// That id, while the turn is being worked on.
    pub fn message(&self) -> Option<MessageId> {
        self.state().message.clone()
    }

    /// No turn is being worked on.
    pub fn clear_turn(&self) {
        let mut state = self.state();
        state.turn = None;
        state.message = None;
        state.linked = None;
    }

    /// Ties what the turn has started (model call, tools and their processes) to this incarnation: `token` is cancelled
    /// as soon as it crashes or ends, while its value may stay until the backoff is over.
    pub fn link(&self, token: CancellationToken) {
        self.state().linked = Some(token);
    }

    /// Ends what is linked.
    pub(crate) fn sever(&self) {
        let linked = self.state().linked.take();
        if let Some(linked) = linked {
            linked.cancel();
        }
    }

    /// The ownership number, for the events of this incarnation.
    pub fn set_epoch(&self, epoch: Epoch) {
        self.state().epoch = Some(epoch);
    }

    /// The crashes so far leave the intensity window: they have been dealt with (they ended in a dead letter).
    pub fn forgive(&self) {
        self.state().forgiven = true;
    }

    /// Why the actor is about to stop; to be set before `ctx.stop()`. Otherwise the reason is [`ExitReason::Normal`].
    pub fn exit_reason(&self, reason: ExitReason) {
        self.state().exit = Some(reason);
    }

    /// Id of the event that led to what happens to the actor now: the supervisor's last one about it (`started`,
    /// `restarted`, `gave_up`, `exited`), unless [`because_of`](Self::because_of) named another.
    pub fn last_event(&self) -> Option<String> {
        self.state().event.clone()
    }

    /// The next event of the supervisor about this actor follows from `event`.
    pub fn because_of(&self, event: String) {
        self.state().event = Some(event);
    }

    /// The crash that ended the incarnation before this one.
    pub fn last_crash(&self) -> Option<LoggedCrash> {
        self.state().last.as_deref().cloned()
    }

    pub(crate) fn take_turn(&self) -> (Option<(TurnId, Attempt)>, Option<MessageId>) {
        let mut state = self.state();
        (state.turn.take(), state.message.take())
    }

    pub(crate) fn epoch(&self) -> Option<Epoch> {
        self.state().epoch
    }

    pub(crate) fn take_forgiven(&self) -> bool {
        std::mem::take(&mut self.state().forgiven)
    }

    pub(crate) fn exit(&self) -> Option<ExitReason> {
        self.state().exit
    }

    pub(crate) fn crashed(&self, crash: Crash, event: String) {
        let mut state = self.state();
        state.blamed = crash.turn.map(|(turn, _)| turn).or(state.blamed);
        state.last = Some(Box::new(LoggedCrash { crash, event }));
    }
}

#[cfg(test)]
mod tests {
    use protocol::supervision::Panic;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn a_turn_is_to_blame_until_it_begins_again_whatever_crashes_in_between() {
        let (cell, turn) = (CrashCell::default(), TurnId(Uuid::from_u128(1)));
        let crash = |turn: Option<TurnId>| {
            let panic = Panic { text: String::new(), at: String::new() };
            let turn = turn.map(|turn| (turn, Attempt::FIRST));
            cell.crashed(Crash { panic, backtrace: String::new(), turn }, "1".to_owned());
        };
        crash(None);
        assert_eq!(cell.blamed(), None);
        crash(Some(turn));
        // While it loads, or waits for its place.
        crash(None);
        cell.clear_turn();
        assert_eq!(cell.blamed(), Some(turn));
        cell.set_turn(turn, Attempt(2));
        assert_eq!(cell.blamed(), None);
    }
}
