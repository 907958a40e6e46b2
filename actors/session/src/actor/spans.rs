//! The session's part of a turn's trace. Every span is made in a closure that runs only when somebody takes spans.

use domain::ids::{Attempt, TurnId};
use protocol::journal::LeftBy;
use protocol::trace::{Begun, Span, Step, Value, born_us};

use super::Session;
use super::live::{Submitted, Work};
use crate::shared::Shared;
use crate::turn::Verdict;

// === impl Session ===

impl Session {
    /// The attempt before `attempt`, when the process that worked on it could not tell of it any more: it began at the
    /// earliest when the turn was made, and ended at the latest now.
    pub(super) fn span_of_cut(&self, turn: TurnId, attempt: Attempt, left_by: LeftBy) {
        let cut = Attempt(attempt.0.saturating_sub(1));
        match left_by {
            // The dying incarnation has told.
            LeftBy::Crash | LeftBy::Interrupted => {}
            LeftBy::Death => self.shared.span(turn, Step::Attempt(cut), born_us(turn), Some("process_died"), || {
                self.shared.agent_fields(Vec::new())
            }),
        }
    }
}

// === impl Shared ===

impl Shared {
    pub(super) fn begin_span(&self) -> Begun {
        self.metrics.traces.begin(|| self.ports.clock.wall_us())
    }

    fn span(
        &self,
        turn: TurnId,
        step: Step,
        begun_us: u64,
        error: Option<&'static str>,
        fields: impl FnOnce() -> Vec<(&'static str, Value)>,
    ) {
        self.metrics.traces.end(|| {
            let ended_us = self.ports.clock.wall_us();
            Span { turn, step, begun_us, ended_us, error, fields: fields() }
        });
    }

    fn agent_fields(&self, mut fields: Vec<(&'static str, Value)>) -> Vec<(&'static str, Value)> {
        fields.extend([
            ("gen_ai.operation.name", Value::Word("invoke_agent")),
            ("gen_ai.agent.name", Value::Word("greenroom")),
            ("gen_ai.provider.name", Value::Text(self.config.provider.clone())),
            ("gen_ai.request.model", Value::Text(self.config.preset.model.clone())),
        ]);
        fields
    }

    pub(super) fn span_of_turn(&self, verdict: &Verdict, result: &'static str) {
        let failed = (result != "done").then_some(result);
        self.span(verdict.turn, Step::Turn, born_us(verdict.turn), failed, || {
            vec![
                ("greenroom.turn.id", Value::Text(verdict.turn.to_string().into())),
                ("greenroom.turn.result", Value::Word(result)),
                ("greenroom.turn.attempts", Value::Number(verdict.attempt.0.into())),
            ]
        });
    }

    pub(super) fn span_of_attempt(&self, work: &Work) {
        let error = work.result.map_or(Some("cut"), |result| (result != "done").then_some(result));
        self.span(work.turn, Step::Attempt(work.attempt), work.begun.us(), error, || {
            self.agent_fields(vec![("gen_ai.conversation.id", Value::Text(work.session.to_string().into()))])
        });
    }

    pub(super) fn span_of_commit(&self, commit: &Submitted) {
        let Some((turn, attempt)) = commit.work else { return };
        self.span(turn, Step::Commit { attempt, number: commit.number }, commit.begun.us(), None, || {
            vec![("greenroom.commit.lines", Value::Number(commit.lines.len() as u64))]
        });
    }

    /// The answer was handed to whoever watches or waits, and to the outbox if it is pushed: all at once.
    pub(super) fn span_of_delivery(&self, verdict: &Verdict) {
        let begun = self.begin_span();
        let fields = || vec![("greenroom.route", Value::Word(verdict.route))];
        self.span(verdict.turn, Step::Deliver, begun.us(), None, fields);
    }
}
