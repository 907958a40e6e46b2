//! What a loaded session holds.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use domain::goal::Status;
use domain::ids::{Attempt, SessionId, TurnId};
use domain::keys::SessionKind;
use protocol::journal::Line;
use protocol::provider::Permit;
use protocol::session::{About, QueueState};
use protocol::trace::Begun;
use protocol::turn::{Pulse, Stamp};
use tokio::sync::oneshot;
use tokio_util::sync::CancellationToken;

use super::close::Closer;
use super::edit::Edits;
use super::{Life, Session};
use crate::context::Context;
use crate::drain::{Asked, Drain};
use crate::index::Row;
use crate::ledger::Ledger;
use crate::places::Place;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::turn::{Call, Machine};
use crate::view::View;

/// A loaded session.
pub(super) struct Live {
    pub machine: Machine,
    pub ledger: Ledger,
    pub view: View,
    /// In the list of sessions, from the first message on.
    pub row: Option<Arc<Row>>,
    /// While it is hot.
    pub context: Option<Box<Context>>,
    /// Among the running turns of the process, from before a turn begins to its end.
    pub place: Option<Place>,
    /// While a turn is worked on.
    pub work: Option<Box<Work>>,
    pub drain: Option<Box<Drain>>,
    /// Commits that were submitted, oldest first.
    pub submitted: VecDeque<Submitted>,
    pub used_at: Duration,
    /// Reads of the file under way.
    pub readers: u32,
    pub exit: Exit,
    /// Whoever set rules of the queue that are not durable yet, and what they are told then.
    pub set_queue: Option<Box<SetQueue>>,
    /// While there are any.
    pub edits: Option<Box<Edits>>,
    /// Whoever wants the session closed.
    pub closer: Option<Box<Closer>>,
    pub shared: Arc<Shared>,
}

/// Askers, oldest first.
#[derive(Default)]
pub(super) struct SetQueue(pub VecDeque<(oneshot::Sender<QueueState>, QueueState)>);

/// Whether the session is on its way out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Exit {
    No,
    /// It leaves as soon as the file is as good as it gets.
    Wanted,
    /// Its only turn ended: its file is moved away before that is written down.
    Closing,
    /// Its transcript has ended, and its file has to be moved away: its closer knows where to.
    Moving,
    /// It was moved away.
    Closed,
}

/// A commit under way.
pub(super) struct Submitted {
    pub number: u64,
    pub lines: Vec<Line>,
    pub durable: bool,
    /// Whether it gets the session on, instead of only beginning a turn again.
    pub progress: bool,
    /// Where its lines begin.
    pub before: Ledger,
    /// The attempt that it belongs to.
    pub work: Option<(TurnId, Attempt)>,
    /// What it changes of the conversation, for the log.
    pub changes: Option<String>,
    pub begun: Begun,
}

/// How far a conversation fills what its requests may have.
#[derive(Debug, Clone, Copy)]
pub(super) struct Fill {
    pub tokens: u64,
    pub budget: u64,
    /// Of the turn.
    pub kind: SessionKind,
}

/// The work on one attempt of a turn. Dropping it cancels whatever runs.
pub(super) struct Work {
    pub turn: TurnId,
    pub attempt: Attempt,
    pub cancel: CancellationToken,
    pub permit: Option<Permit>,
    /// A model call that waits for the conversation to be read.
    pub call: Option<Call>,
    /// How far the latest request and its answer fill the model's window.
    pub asked: Option<Fill>,
    /// Tool calls that were sent and have not ended.
    pub tools: Vec<Asked>,
    /// How the turn ended; without it the attempt was cut.
    pub result: Option<&'static str>,
    pub begun: Begun,
    pub session: SessionId,
    /// Of the tools.
    pub pulse: Option<Pulse>,
    pub shared: Arc<Shared>,
}

// === impl Session ===

impl Session {
    /// What holds for the running turn, or else the next one.
    pub(super) fn settings_of(&self, live: &Live) -> Settings {
        let key = self.lease.key();
        let of_turn = live.machine.body().map(|(accepted, ..)| &accepted.source);
        let kind = match of_turn {
            Some(source) => self.shared.config.policies.kind(key, source),
            None => self.shared.config.policies.kind_of(key),
        };
        self.shared.settings(kind, live.ledger.tally())
    }

    /// Which model answers.
    pub(super) fn model_of_turn(&self) -> Arc<str> {
        match &self.state {
            Life::Live(live) => self.settings_of(live).preset.model,
            Life::Loading(_) | Life::Gone => Arc::clone(&self.shared.config.preset.model),
        }
    }

    /// The model and the conversation.
    pub(super) fn about(&self, live: &Live) -> About {
        let tally = live.ledger.tally();
        let Settings { name, preset } = self.settings_of(live);
        let goal = tally.goal.as_ref().filter(|goal| matches!(goal.status, Status::Active | Status::Paused));
        About {
            model: preset.model,
            preset: name,
            effort: preset.effort,
            context_window_tokens: preset.context_window_tokens,
            last: tally.last,
            fill: tally.fill(live.context.as_deref().map(Context::shown)),
            goal: goal.map(|goal| Arc::clone(&goal.objective)),
            goal_paused: goal.is_some_and(|goal| !goal.is_active()),
            messages: tally.messages,
            unwritten: live.view.pending().to_vec(),
        }
    }
}

// === impl Live ===

impl Live {
    /// What could not be read of the file when it was loaded, as long as the conversation is in memory since.
    pub fn set_aside(&self) -> Option<&str> {
        self.context.as_ref()?.set_aside.as_deref()
    }

    /// The stamp of what belongs to the running turn, in its present round.
    pub fn stamp(&self) -> Option<Stamp> {
        let (turn, attempt, round, _) = self.machine.running()?;
        Some(Stamp { epoch: self.ledger.epoch, turn, attempt, round })
    }

    /// Tool calls that may still run.
    pub fn take_tools(&mut self) -> Vec<Asked> {
        let mut tools = self.drain.take().map(|drain| drain.into_awaited()).unwrap_or_default();
        if let Some(work) = &mut self.work {
            tools.append(&mut work.tools);
        }
        tools
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        self.shared.metrics.view_lag_bytes.dec_by(self.view.lag_bytes() as i64);
    }
}

// === impl Work ===

impl Work {
    pub fn new(turn: TurnId, attempt: Attempt, session: SessionId, shared: &Arc<Shared>) -> Self {
        shared.metrics.turns_running.inc();
        Self {
            turn,
            attempt,
            cancel: CancellationToken::new(),
            permit: None,
            call: None,
            asked: None,
            tools: Vec::new(),
            result: None,
            begun: shared.begin_span(),
            session,
            pulse: None,
            shared: Arc::clone(shared),
        }
    }
}

impl Drop for Work {
    fn drop(&mut self) {
        self.cancel.cancel();
        self.shared.metrics.turns_running.dec();
        self.shared.span_of_attempt(self);
    }
}
