//! What runs are told when they have begun.

use std::sync::Arc;

use domain::ids::{RunId, SessionKey, Source, TurnId};
use domain::run::{RunSpec, Saying};
use protocol::turn::TurnResult;

use super::{End, Machine, OPEN_OF_SESSION_MAX, State, ended, tokens};

/// What a run may be told that has not ended.
pub(super) const LATER_MAX: usize = 64;

/// Why a run is not told something; the text is for the model, or whoever asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotSaid {
    #[error("there is no such sub-agent of this session")]
    Unknown,
    #[error("it was sent off by somebody who may do more")]
    NotHis,
    #[error("it has ended; what is sent, and does not steer, it takes up in a turn of its own")]
    Ended,
    #[error("{OPEN_OF_SESSION_MAX} other sub-agents of this session are running, and no more are allowed")]
    TooMany,
    #[error("it has used up its tokens")]
    Spent,
    #[error("{LATER_MAX} messages wait for it, and no more are allowed")]
    Full,
}

// === impl Machine ===

impl Machine {
    /// Lets a run be told something, which begins `turn` if it is taken up by no other one: what it was sent to do. Whoever
    /// is of a door (`by`) that its people need not own tells only runs that such a turn began.
    pub fn say(
        &mut self,
        (parent, run): (&SessionKey, RunId),
        (saying, by): (Saying, Option<&Source>),
        turn: TurnId,
    ) -> Result<Arc<RunSpec>, NotSaid> {
        let working = self.runs.values().filter(|run| run.works() && run.spec.parent == *parent).count();
        let run = self.runs.get_mut(&run).filter(|run| run.spec.parent == *parent).ok_or(NotSaid::Unknown)?;
        match saying {
            _ if by.is_some_and(|by| *by != run.spec.source) => return Err(NotSaid::NotHis),
            Saying::Steer if !run.works() => return Err(NotSaid::Ended),
            Saying::Send if !run.works() && working >= OPEN_OF_SESSION_MAX => return Err(NotSaid::TooMany),
            _ if run.later.len() >= LATER_MAX => return Err(NotSaid::Full),
            _ if run.spec.budget_tokens > 0 && run.left() == 0 => return Err(NotSaid::Spent),
            Saying::Send | Saying::Steer => {}
        }
        run.later.push(turn);
        Ok(match run.used {
            0 => Arc::clone(&run.spec),
            _ => Arc::new(RunSpec { budget_tokens: run.left(), ..RunSpec::clone(&run.spec) }),
        })
    }

    /// It was not told.
    pub fn unsaid(&mut self, run: RunId, turn: TurnId) {
        if let Some(run) = self.runs.get_mut(&run) {
            run.later.retain(|later| *later != turn);
        }
    }

    /// The end of what a run was told later; with an answer of its own, that is what it said last.
    pub(super) fn later_ended(&mut self, turn: TurnId, end: End) {
        let Some(run) = self.runs.values_mut().find(|run| run.later.contains(&turn)) else { return };
        run.later.retain(|later| *later != turn);
        run.used = run.used.saturating_add(tokens(end.usage));
        match (&mut run.state, end.result) {
            (State::Ended { .. }, TurnResult::Joined) | (State::Starting { .. } | State::Running, _) => {}
            (state @ State::Ended { .. }, _) => {
                *state = ended(end, false);
                run.waits = false;
                self.notes.extend(run.note_of_end());
            }
        }
    }
}
