//! Control never waits: for a session that cannot answer, the registry does.

use domain::ids::{Epoch, SessionKey};
use protocol::session::{Mail, State, Status, Stopped};
use supervision::lease::Note;
use tokio::sync::oneshot;

use crate::registry::Registry;

impl Registry {
    /// Answers control mail for a session that waits for its restart or the end of its quarantine; a stop is remembered.
    /// All other mail comes back.
    pub(crate) fn answer_for(&self, key: &SessionKey, mail: Mail) -> Result<(), Mail> {
        if !matches!(mail, Mail::Stop { .. } | Mail::Status { .. }) {
            return Err(mail);
        }
        let (_, sector) = self.sector(key);
        let note = match sector.slots.view(key) {
            Some(slot) if slot.note.state == State::Restarting => slot.note,
            Some(_) => return Err(mail),
            None if sector.waitlist.is_quarantined(key) => {
                Note { state: State::Quarantined, turn: None, inbox: sector.waitlist.inbox(key), steers: None }
            }
            None => return Err(mail),
        };
        match mail {
            Mail::Status { reply } => answer(reply, status(key, note)),
            Mail::Stop { all, reply } => {
                answer(
                    reply,
                    Stopped { cancelled: None, dropped: 0, waiting: note.inbox, goal_paused: false, later: true },
                );
                if note.state == State::Quarantined {
                    sector.waitlist.remember_stop(key, all);
                } else {
                    // Its mailbox outlives the crash. Should it be gone meanwhile, so is the turn.
                    let _ = sector.slots.tell_live(key, stop(all));
                }
            }
            mail @ (Mail::Queued(_)
            | Mail::Queue { .. }
            | Mail::CancelTurn { .. }
            | Mail::ReadTurn { .. }
            | Mail::Has { .. }
            | Mail::Standing { .. }
            | Mail::Run { .. }
            | Mail::Edit { .. }
            | Mail::Condense { .. }
            | Mail::Close { .. }
            | Mail::Restore { .. }
            | Mail::Passivate
            | Mail::Drain
            | Mail::Interrupt) => return Err(mail),
        }
        Ok(())
    }
}

/// A stop whose asker has been answered.
pub(crate) fn stop(all: bool) -> Mail {
    Mail::Stop { all, reply: oneshot::channel().0 }
}

fn status(key: &SessionKey, note: Note) -> Status {
    Status {
        key: key.clone(),
        session: None,
        state: note.state,
        epoch: Epoch::default(),
        turn: note.turn,
        attempt: None,
        running_ms: None,
        inbox: note.inbox,
        why: None,
        about: None,
    }
}

/// Answers an asker, who may be gone.
fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    let _ = reply.send(value);
}
