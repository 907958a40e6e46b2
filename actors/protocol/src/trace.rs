//! Traces: one for each turn, across all actors and all processes that worked on it.
//!
//! Nothing is carried along for it: every message names its turn, the trace's id is the turn's id, and the id of a span
//! follows from what the span is about. So a turn that a crash cut goes on in the same trace, and whoever ends a span
//! knows its parent without having been told.
//!
//! ```text
//!  turn                      from the door to the last event
//!  ├─ accept                 the door, until the message is durable
//!  │  └─ journal enqueue     the write and sync that made it so
//!  ├─ invoke_agent           one for each attempt
//!  │  ├─ chat                a model call
//!  │  ├─ execute_tool        a tool call
//!  │  └─ journal commit      a step that became durable
//!  ├─ deliver                the answer was handed on, to whoever watches, waits, or pushes it
//!  └─ push                   one for each attempt to send a part of it through a channel
//! ```
//!
//! Without the feature `traces` a [`Traces`] has no size and [`Traces::end`] is nothing. No field ever holds what somebody
//! said, a session's key, or a secret.

use std::fmt;
use std::sync::Arc;

use domain::ids::{Attempt, ToolCallId, TurnId};

/// What a span is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Step {
    /// The whole turn; the root.
    Turn,
    /// A door took the message.
    Accept,
    /// The journal made it durable.
    Enqueue,
    /// One attempt.
    Attempt(Attempt),
    /// A model call.
    Model {
        /// Of this attempt.
        attempt: Attempt,
        /// In this round.
        round: u32,
    },
    /// A tool call.
    Tool {
        /// Of this attempt.
        attempt: Attempt,
        /// In this round.
        round: u32,
        /// See [`Step::tool`].
        call: u64,
    },
    /// A commit.
    Commit {
        /// Of this attempt.
        attempt: Attempt,
        /// The commit's number.
        number: u64,
    },
    /// The answer was handed on.
    Deliver,
    /// An attempt to send a part of it.
    Push {
        /// The part, from 1.
        part: u32,
        /// When it began, microseconds since 1970: attempts of two processes have no number in common.
        begun_us: u64,
    },
}

/// A value of a span's field.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Value {
    /// One of our own words.
    Word(&'static str),
    /// A name from the configuration, or an id.
    Text(Arc<str>),
    /// A number.
    Number(u64),
}

/// A span that ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Span {
    /// The turn, and so the trace.
    pub turn: TurnId,
    /// What it is about.
    pub step: Step,
    /// When it began, microseconds since 1970.
    pub begun_us: u64,
    /// When it ended, microseconds since 1970.
    pub ended_us: u64,
    /// The class of its failure.
    pub error: Option<&'static str>,
    /// Names as in OpenTelemetry's conventions.
    pub fields: Vec<(&'static str, Value)>,
}

/// Takes spans. Called on arbiters, so it never blocks.
pub trait Spans: Send + Sync + 'static {
    /// Takes one.
    fn end(&self, span: Span);
}

/// Where spans go, if anywhere. Cheap to clone.
#[derive(Clone, Default)]
pub struct Traces {
    #[cfg(feature = "traces")]
    to: Option<Arc<dyn Spans>>,
}

/// When a span began; of no size without the feature `traces`.
#[derive(Debug, Clone, Copy, Default)]
pub struct Begun {
    #[cfg(feature = "traces")]
    us: u64,
}

// === impl Step ===

impl Step {
    /// The call of this id.
    pub fn tool(attempt: Attempt, round: u32, call: &ToolCallId) -> Self {
        Self::Tool { attempt, round, call: fnv1a(FNV_START, call.0.as_bytes()) }
    }

    /// The id of its span in the trace of `turn`; never 0.
    pub fn id(self, turn: TurnId) -> u64 {
        let (kind, numbers): (u8, [u64; 3]) = match self {
            Self::Turn => (0, [0; 3]),
            Self::Accept => (1, [0; 3]),
            Self::Enqueue => (2, [0; 3]),
            Self::Attempt(attempt) => (3, [attempt.0.into(), 0, 0]),
            Self::Model { attempt, round } => (4, [attempt.0.into(), round.into(), 0]),
            Self::Tool { attempt, round, call } => (5, [attempt.0.into(), round.into(), call]),
            Self::Commit { attempt, number } => (6, [attempt.0.into(), number, 0]),
            Self::Deliver => (7, [0; 3]),
            Self::Push { part, begun_us } => (8, [part.into(), begun_us, 0]),
        };
        let mut hash = fnv1a(fnv1a(FNV_START, turn.0.as_bytes()), &[kind]);
        for number in numbers {
            hash = fnv1a(hash, &number.to_le_bytes());
        }
        hash.max(1)
    }

    /// The step that it is part of; the root has none.
    pub fn parent(self) -> Option<Self> {
        match self {
            Self::Turn => None,
            Self::Accept | Self::Attempt(_) | Self::Deliver | Self::Push { .. } => Some(Self::Turn),
            Self::Enqueue => Some(Self::Accept),
            Self::Model { attempt, .. } | Self::Tool { attempt, .. } | Self::Commit { attempt, .. } => {
                Some(Self::Attempt(attempt))
            }
        }
    }

    /// What it is called in a trace.
    pub fn name(self) -> &'static str {
        match self {
            Self::Turn => "turn",
            Self::Accept => "accept",
            Self::Enqueue => "journal enqueue",
            Self::Attempt(_) => "invoke_agent",
            Self::Model { .. } => "chat",
            Self::Tool { .. } => "execute_tool",
            Self::Commit { .. } => "journal commit",
            Self::Deliver => "deliver",
            Self::Push { .. } => "push",
        }
    }
}

const FNV_START: u64 = 0xcbf2_9ce4_8422_2325;

fn fnv1a(start: u64, bytes: &[u8]) -> u64 {
    bytes.iter().fold(start, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3))
}

/// When the id of a turn was made, microseconds since 1970: a version 7 id begins with the milliseconds.
pub fn born_us(turn: TurnId) -> u64 {
    u64::try_from(turn.0.as_u128() >> 80).unwrap_or(0) * 1000
}

// === impl Traces ===

impl Traces {
    /// To whoever exports them.
    #[cfg(feature = "traces")]
    pub fn to(spans: Arc<dyn Spans>) -> Self {
        Self { to: Some(spans) }
    }

    /// Whether anybody takes spans.
    #[cfg(feature = "traces")]
    #[inline]
    pub fn on(&self) -> bool {
        self.to.is_some()
    }

    /// Whether anybody takes spans.
    #[cfg(not(feature = "traces"))]
    #[inline]
    pub const fn on(&self) -> bool {
        false
    }

    /// A span begins; `now_us` is asked only when somebody takes spans.
    #[inline]
    pub fn begin(&self, now_us: impl FnOnce() -> u64) -> Begun {
        if self.on() { Begun::at(now_us()) } else { Begun::default() }
    }

    /// A span ended; it is made only when somebody takes spans.
    #[inline]
    pub fn end(&self, span: impl FnOnce() -> Span) {
        #[cfg(feature = "traces")]
        if let Some(to) = &self.to {
            to.end(span());
        }
        #[cfg(not(feature = "traces"))]
        drop(span);
    }
}

impl fmt::Debug for Traces {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Traces").field("on", &self.on()).finish()
    }
}

impl Begun {
    /// At this time, microseconds since 1970.
    #[cfg(feature = "traces")]
    pub fn at(us: u64) -> Self {
        Self { us }
    }

    /// At this time, microseconds since 1970.
    #[cfg(not(feature = "traces"))]
    pub const fn at(_: u64) -> Self {
        Self {}
    }

    /// The time; 0 when it was not kept.
    #[cfg(feature = "traces")]
    pub fn us(self) -> u64 {
        self.us
    }

    /// The time; 0 when it was not kept.
    #[cfg(not(feature = "traces"))]
    pub const fn us(self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    fn steps() -> Vec<Step> {
        let mut steps = vec![Step::Turn, Step::Accept, Step::Enqueue];
        for attempt in (1..4).map(Attempt) {
            steps.push(Step::Attempt(attempt));
            for round in 1..4 {
                steps.push(Step::Model { attempt, round });
                steps.extend(["a", "b"].map(|id| Step::tool(attempt, round, &ToolCallId(id.into()))));
                steps.push(Step::Commit { attempt, number: round.into() });
            }
        }
        steps.push(Step::Deliver);
        for part in 1..4 {
            steps.extend([1, 2].map(|begun_us| Step::Push { part, begun_us }));
        }
        steps
    }

    #[test]
    fn the_spans_of_a_turn_have_ids_of_their_own_that_follow_from_the_turn() {
        let turns = ["01890a5d-ac96-774b-bcce-b302099a8057", "01890a5d-ac96-774b-bcce-b302099a8058"];
        let turns = turns.map(|turn| turn.parse::<TurnId>().unwrap());
        let mut ids = HashSet::new();
        for turn in turns {
            for step in steps() {
                assert_ne!(step.id(turn), 0);
                assert_eq!(step.id(turn), step.id(turn));
                assert!(ids.insert(step.id(turn)), "{step:?} shares its id");
            }
        }
    }

    #[test]
    fn every_step_leads_to_the_turn() {
        for step in steps() {
            let mut at = step;
            for _ in 0..3 {
                at = at.parent().unwrap_or(at);
            }
            assert_eq!(at, Step::Turn, "{step:?}");
        }
    }

    #[test]
    fn a_turn_was_born_when_its_id_says() {
        let turn: TurnId = "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap();
        assert_eq!(born_us(turn), 0x0189_0a5d_ac96 * 1000);
    }

    #[cfg(not(feature = "traces"))]
    #[test]
    fn what_is_off_has_no_size_and_makes_no_span() {
        assert_eq!((size_of::<Traces>(), size_of::<Begun>()), (0, 0));
        Traces::default().end(|| panic!("a span was made"));
    }
}
