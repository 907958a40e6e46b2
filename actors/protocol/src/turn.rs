//! What a turn shows to the outside while it runs, and the stamp that ties late events to it.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use actix::Recipient;
use domain::chat::{StopReason, Usage};
use domain::command::Parsed;
use domain::goal::Goal;
use domain::ids::{Attempt, Epoch, SessionKey, Source, ToolCallId, TurnId};

/// Says which incarnation and which attempt an event belongs to. An event with another stamp than the running one is
/// dropped and counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Stamp {
    /// Ownership number of the session at that time.
    pub epoch: Epoch,
    /// The turn.
    pub turn: TurnId,
    /// Its attempt.
    pub attempt: Attempt,
    /// Which model round of the attempt, from 1.
    pub round: u32,
}

/// The last sign of life of something that others wait for: monotonic time. One writes, others look.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<AtomicU64>);

impl Pulse {
    /// It lives at `now`.
    pub fn beat(&self, now: Duration) {
        self.0.fetch_max(u64::try_from(now.as_millis()).unwrap_or(u64::MAX), Ordering::Relaxed);
    }

    /// When it lived last; zero at first.
    pub fn last(&self) -> Duration {
        Duration::from_millis(self.0.load(Ordering::Relaxed))
    }
}

/// Where a reply goes. Stored with the message, so that it outlives a restart.
#[derive(Debug, Clone, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Route {
    /// To whoever watches the chat; the transcript is the delivery.
    Live,
    /// To the one who asked and waits; the transcript is the delivery.
    Reply,
    /// To a chat of a channel that is told: through the outbox.
    Push(PushRoute),
}

/// Which account of a channel is meant where none is named.
pub const DEFAULT_ACCOUNT: &str = "default";

/// What a message must have in common with the running turn to be taken up by it: its door, and the way back. Only good
/// for a comparison.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane(NonZeroU32);

/// A chat of a channel. Every part is a name of the channel's own.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
pub struct PushRoute {
    /// The channel: `webhook`, `telegram`.
    pub channel: Arc<str>,
    /// Which of its accounts.
    pub account: Arc<str>,
    /// The chat.
    pub chat: Arc<str>,
    /// The thread in the chat.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub thread: Option<Arc<str>>,
}

// === impl PushRoute ===

impl PushRoute {
    /// The chat that a session is named after, if it is one of a channel that `is_told`: `webhook:7`,
    /// `webhook:7:thread:t`. Sessions that several chats share are named after none.
    pub fn of_session(key: &SessionKey, is_told: impl Fn(&str) -> bool) -> Option<Self> {
        let (channel, place) = key.as_str().split_once(':').filter(|(channel, _)| is_told(channel))?;
        let (chat, thread) = match place.split_once(":thread:") {
            Some((chat, thread)) => (chat, Some(thread)),
            None => (place, None),
        };
        let given = |text: &str| !text.is_empty();
        (given(chat) && thread.is_none_or(given)).then(|| Self {
            channel: channel.into(),
            account: DEFAULT_ACCOUNT.into(),
            chat: chat.into(),
            thread: thread.map(Arc::from),
        })
    }
}

// === impl Lane ===

impl Lane {
    /// That of a message; none for one whose sender waits for an answer of its own.
    pub fn of(source: &Source, route: &Route) -> Option<Self> {
        if *route == Route::Reply {
            return None;
        }
        let mut hasher = DefaultHasher::new();
        (source, route).hash(&mut hasher);
        NonZeroU32::new(hasher.finish() as u32 | 1).map(Self)
    }

    /// That of a message that was understood as `parsed`; none for a command, which has a turn of its own.
    pub fn of_message(source: &Source, route: &Route, parsed: &Parsed) -> Option<Self> {
        if matches!(parsed, Parsed::Text) { Self::of(source, route) } else { None }
    }
}

/// One event of a turn. `seq` counts from 1 in each attempt; `(turn, attempt, seq)` is a cursor to resume from.
#[derive(Debug, Clone)]
pub struct TurnEvent {
    /// Session.
    pub key: SessionKey,
    /// Turn.
    pub turn: TurnId,
    /// Attempt.
    pub attempt: Attempt,
    /// Place in the attempt.
    pub seq: u64,
    /// What happened.
    pub what: TurnProgress,
}

/// What happened in a turn.
#[derive(Debug, Clone)]
pub enum TurnProgress {
    /// It began; an attempt above the first means that an earlier one was cut.
    Started,
    /// A piece of visible text.
    Delta(String),
    /// A piece of reasoning.
    Reasoning(String),
    /// The model's message of this round is complete; `more` says whether tools run next.
    StreamEnd {
        /// The whole text of the round.
        text: Arc<str>,
        /// Whether the turn goes on.
        more: bool,
        /// Whether the next message goes on in the middle of this one: to people both are one.
        merge: bool,
    },
    /// A tool call began.
    ToolStarted {
        /// Call id.
        call: ToolCallId,
        /// Tool name.
        name: String,
        /// Arguments as JSON text.
        arguments: String,
    },
    /// A tool call ended.
    ToolEnded {
        /// Call id.
        call: ToolCallId,
        /// Tool name.
        name: String,
        /// Whether it failed.
        is_error: bool,
        /// What the model is shown of it, as far as people are: up to [`RESULT_CHARS_SHOWN`] characters.
        result: Arc<str>,
        /// How long it ran, in milliseconds.
        took_ms: u64,
        /// What it made of a file.
        edit: Option<Arc<FileEdit>>,
    },
    /// Told to people by the program: no part of the answer.
    Notice(Arc<str>),
    /// The goal of the session was set, or ended, and that is durable.
    Goal(Arc<Goal>),
    /// The one last event, sent when the end of the turn is durable.
    Finished(Arc<Finished>),
}

/// How much of a tool's result [`TurnProgress::ToolEnded`] tells, in characters.
pub const RESULT_CHARS_SHOWN: usize = 2000;

/// What a tool call made of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileEdit {
    /// The file, as the model is told of it.
    pub path: String,
    /// Lines that are new.
    pub added: usize,
    /// Lines that are gone.
    pub removed: usize,
    /// Both in context, as a unified diff; shortened when long, empty when the contents were not compared.
    pub diff: String,
}

/// How a turn ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Finished {
    /// The verdict.
    pub result: TurnResult,
    /// Of a turn that [`TurnResult::Joined`]: the one that took its message up.
    pub into: Option<TurnId>,
    /// The final text: the answer, or the notice that the user is shown.
    pub text: String,
    /// Why the model stopped; [`StopReason::Error`] or [`StopReason::Aborted`] when the turn was not answered.
    pub stop: StopReason,
    /// Model name.
    pub model: Arc<str>,
    /// Sum over all model calls of the turn.
    pub usage: Usage,
    /// From accepted to finished.
    pub latency_ms: u64,
    /// How the session stands behind it; of a turn that is told from the transcript how it stands now, if that is known.
    pub standing: Option<Standing>,
}

/// What doors show of a session when a turn of it ended, or when somebody comes back to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Standing {
    /// Tokens that the context of its model holds, answer included.
    pub window_tokens: u64,
    /// The goal that was set last in this conversation.
    pub goal: Option<Arc<Goal>>,
}

/// The verdict over a turn.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum TurnResult {
    /// Answered.
    Done,
    /// The model call failed; the text says why. The turn counts as answered.
    Failed,
    /// Given up after repeated crashes; kept as a dead letter.
    DeadLettered,
    /// Cancelled by the user or by the system.
    Cancelled,
    /// Its message was taken up by another turn, whose answer is its answer too. The text is empty.
    Joined,
}

impl TurnResult {
    /// Its word in metrics, events and what doors say.
    pub fn word(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed => "failed",
            Self::DeadLettered => "dead_lettered",
            Self::Cancelled => "cancelled",
            Self::Joined => "joined",
        }
    }
}

/// A turn that was watched has ended.
#[derive(Debug, Clone, PartialEq, actix::Message)]
#[rtype(result = "()")]
pub struct TurnEnded {
    /// Session.
    pub key: SessionKey,
    /// Turn.
    pub turn: TurnId,
    /// The verdict.
    pub result: TurnResult,
    /// The answer, or the notice in its place; empty of one that [`TurnResult::Joined`].
    pub text: Arc<str>,
    /// Sum over all its model calls.
    pub usage: Usage,
    /// Model name.
    pub model: Arc<str>,
}

/// How many turns can be watched at a time.
pub const WATCHED_MAX: usize = 100_000;

/// Too many turns are watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("too many turns are watched already")]
pub struct WatchedTooMany;

/// Tells other actors of the ends of turns.
///
/// Watch a turn before it is enqueued: then its end is told once, when it is durable, also if its session crashes
/// meanwhile. Nothing is remembered over a restart of the process: whoever waits enqueues again, and asks
/// [`Mail::ReadTurn`](crate::session::Mail::ReadTurn) when that is answered as a duplicate that has ended.
pub trait TurnWatch: Send + Sync + 'static {
    /// Tells `to` of the end of `turn`, once, besides others who watch it.
    fn watch(&self, key: &SessionKey, turn: TurnId, to: Recipient<TurnEnded>) -> Result<(), WatchedTooMany>;
    /// It was accepted before anybody watched it, perhaps by an earlier process. Of others this is known by itself.
    fn accepted(&self, turn: TurnId);
    /// Its end became known otherwise: whoever watches it is told, unless it was told before.
    fn ended(&self, ended: TurnEnded);
    /// Nobody waits for it any more: it was refused.
    fn unwatch(&self, turn: TurnId);
}

/// Where turn events go: the doors' hub. Called on an arbiter, so it never blocks; nobody watching is fine.
pub trait TurnEvents: Send + Sync + 'static {
    /// Passes one event on.
    fn emit(&self, event: TurnEvent);

    /// The turns of a session that somebody follows and whose `Finished` has not passed, each with its attempt. A session
    /// that was loaded tells their end when that is durable: its earlier life may have crashed before it could.
    fn unfinished(&self, key: &SessionKey) -> Vec<(TurnId, Attempt)>;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_session_that_is_named_after_a_chat_has_its_route() {
        for (key, expect) in [
            ("webhook:7", Some(("7", None))),
            ("webhook:7:thread:t", Some(("7", Some("t")))),
            ("webhook:!room:server:thread:thread:x", Some(("!room:server", Some("thread:x")))),
            ("webhook:7:thread:", None),
            ("webhook:", None),
            ("webhook", None),
            ("websocket:7", None),
            ("agent:main:webhook:direct:ann", None),
        ] {
            let route = PushRoute::of_session(&SessionKey::new(key).unwrap(), |channel| channel == "webhook");
            let found = route.as_ref().map(|route| (&*route.chat, route.thread.as_deref()));
            assert_eq!(found, expect, "{key}");
            assert!(route.is_none_or(|route| (&*route.channel, &*route.account) == ("webhook", "default")));
        }
    }
}
