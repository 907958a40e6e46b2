//! The turn machine: decides everything that a session does, and does nothing.
//!
//! [`Machine::step`] takes what happened and says what to do, in order. It holds no clock, no disk and no address, so
//! that a test can run it through any life.
//!
//! ```text
//!                 ┌──────────────────────────────────────────────────────────────┐
//!                 ▼                                                              │
//!   Idle ──▶ Loading ──▶ WaitingForPermit(round) ──▶ Thinking(round) ──▶ Saving ─┴─▶ Idle
//!             │  ▲              ▲                        │ calls           ▲
//!             │  │ attempt ≥ 2  │ all results durable    ▼                 │ last message of the turn,
//!             └──┘ is durable   └─── RunningTools ◀── Saving ──────────────┘ or the notice in its place
//! ```
//!
//! | state | event | decision |
//! |---|---|---|
//! | Idle | first turn of the inbox, earlier lines in the file | read its body if it is not at hand, begin |
//! | Loading | body read; attempt 1 | ask for a permit |
//! | Loading | body read; a command | follow it instead: no permit, no model; see `machine/command.rs` |
//! | Loading | body read; attempt ≥ 2 | commit `Started`, wait for it, go on where the last commit stands |
//! | Loading | body read; crashed or died too often | commit the notice, end as dead letter |
//! | WaitingForPermit | permit | call the model |
//! | Thinking | message without calls, or where none is allowed | commit it with the end of the turn |
//! | Thinking | message that was cut at the token limit | commit it; next round asks for the rest |
//! | Thinking | blank message, or none but nameless calls | keep nothing of it; next round, in the end without tools |
//! | Thinking | message with calls | commit it with the first group as begun; run the group when durable |
//! | Thinking | the request is over its budget | have the beginning summarised, commit that, ask for a permit again |
//! | Thinking | the model says that the request is too long | the same, once; see `machine/compact.rs` |
//! | Compacting | nothing can be summarised | ask for a permit, and go on without what does not fit |
//! | Thinking | failure | commit an error message with the end of the turn |
//! | RunningTools | a result | commit it; behind the last one of its group, with the next group as begun |
//! | RunningTools | last result durable | next round |
//! | RunningTools | last result of a group durable, a message waits that joins | commit it, and that other calls are skipped; next round |
//! | Loading | mode collect, others wait that join | ask whether the conversation begins anew, commit all their lines |
//! | any | mode interrupt, a message comes that could join | cancel, as below |
//! | any | the guard refuses a call of the group that begins | its result stands in the same commit; it does not run |
//! | Idle | a turn waits | ask for a place among the running turns of the process; begin when it is there |
//! | any | cancel | cancel the token, await running tools, answer the other calls, commit, end |
//! | WaitingForPermit, Thinking, RunningTools, Compacting | no progress | the same, as failed |
//! | Loading, Saving | no progress | load again: the journal is asked anew how far it is |
//! | Idle | the file is not written | turns go on without it; the journal has what it lacks |
//! | any | its newest commit fits into no record | end with a notice in its place; without the user's line if need be |
//! | any | an edit is asked for | begin no turn, but let a cut one go on, until all edits are durable |
//! | any | close | cancel the running turn as above; one commit ends it and all that wait, and the transcript |
//! | any | orderly stop | cancel the token, await running tools, commit `interrupted`, leave |
//!
//! **Invariant:** one turn at a time, in order; the user's line and the first message are one commit; a call is begun
//! only after a commit says so; one `Finished` per turn, after its end is durable; every call gets one result.

mod calls;
mod guard;
mod machine;
mod pursuit;
mod recover;
mod replies;
mod runner;
mod running;
#[cfg(test)]
mod tests;

use std::sync::Arc;
use std::time::Duration;

use domain::chat::{AssistantMessage, ToolCall, ToolResult};
use domain::command::Command;
use domain::goal::Goal;
use domain::history::Trim;
use domain::ids::{Attempt, TurnId};
use domain::prompt::Nudge;
use domain::queue::{QueueRules, QueueSet};
use domain::request::ToolSpec;
use domain::reset::Reason;
use domain::run::RunSpec;
use domain::transcript::{Addition, TurnClose};
use protocol::edit::Compacted;
use protocol::journal::{Accepted, Closes, InboxItem, LeftBy, LogPosition, Move, Out, Started, TurnEnd};
use protocol::provider::Delta;
use protocol::turn::{FileEdit, TurnProgress};

use crate::inbox::Cancelled;

pub use machine::{COMPACTIONS_MAX, Machine};
pub use recover::{Cut, Standing, Written};
pub use replies::PushLimits;

/// What the machine goes by; the same for all sessions.
#[derive(Debug)]
pub struct Rules {
    /// Rounds with tools; one more follows without.
    pub max_tool_iterations: u32,
    /// Characters of one tool result.
    pub max_tool_result_chars: usize,
    /// Crashes after which a turn is given up.
    pub poison_attempts: u32,
    /// Process deaths after which a turn is given up.
    pub process_deaths: u32,
    /// Time without progress after which a turn is cancelled.
    pub stall: Duration,
    /// Tools on offer.
    pub tools: Arc<[ToolSpec]>,
    /// Provider name, for messages that no model wrote.
    pub provider: Arc<str>,
    /// Model name, for messages that no model wrote.
    pub model: Arc<str>,
    /// How replies are cut that are pushed.
    pub push_limits: PushLimits,
    /// What becomes of messages that come while a turn runs, where their session does not say.
    pub queue: QueueRules,
}

/// The time of a step.
#[derive(Debug, Clone, Copy)]
pub struct Now {
    /// Since an arbitrary point.
    pub mono: Duration,
    /// Milliseconds since 1970.
    pub wall_ms: u64,
}

/// What happened.
#[derive(Debug)]
pub enum Input {
    /// A message of this session is durable.
    Queued(InboxItem),
    /// An accepted message was read.
    Read(Arc<Accepted>),
    /// The one that lies there cannot be read.
    Unreadable(LogPosition),
    /// [`Machine::begin_anew`] was told whether the conversation begins anew.
    AnewKnown,
    /// The time is over that messages were waited for.
    Woke,
    /// The model may be called.
    Permitted,
    /// A piece of the model's answer.
    Delta(Delta),
    /// The model's whole answer.
    Completed(Box<AssistantMessage>),
    /// The model call failed for good: why in a word, and what the user is told.
    Failed(&'static str, String),
    /// The model was not called: the request has more than its budget.
    OverBudget,
    /// The model says that the request is too long for it; what the user is told if nothing helps.
    TooLong(String),
    /// The beginning of the conversation was summarised, unless it could not be.
    Compacted(Option<Box<Drawn>>),
    /// A tool call ended; perhaps it made something of a file.
    ToolFinished(ToolResult, Option<Arc<FileEdit>>),
    /// A command was followed.
    Commanded(Box<Commanded>),
    /// The oldest commit under way is durable.
    Committed,
    /// The newest commit under way, of about that many bytes, fits into no record; nothing of it was kept.
    Refused {
        /// About how large it was.
        bytes: u64,
    },
    /// The file has all durable lines, or need not be waited for.
    ViewWritten,
    /// Cancel this turn, running or waiting.
    Cancel(TurnId),
    /// The turn that waits may begin.
    Placed,
    /// Time passed.
    Tick {
        /// The last sign of life of what the turn waits for, as far as the machine cannot know of it.
        heard: Duration,
    },
    /// The transcript was moved away.
    Archived,
    /// An edit was drawn up; no turn runs, and everything is durable.
    Edit(Box<Drawn>),
    /// No edit waits any more.
    Released,
    /// End the transcript, and with it every turn that runs or waits.
    Close(Move),
    /// An orderly stop: the running turn may end, no other begins.
    Drain,
    /// Orderly stop: checkpoint and leave.
    Interrupt,
}

/// What to do, in order.
#[derive(Debug)]
pub enum Effect {
    /// Read an accepted message; answer with [`Input::Read`] or [`Input::Unreadable`].
    ReadBody(LogPosition),
    /// Have everything that the model is told read anew for the running turn.
    Refresh,
    /// Find out whether the conversation begins anew with the running turn; answer with [`Input::AnewKnown`].
    AskAnew,
    /// Answer with [`Input::Woke`] after that time.
    Wake(Duration),
    /// A turn begins to be worked on, under this attempt; a fresh cancel token is needed.
    Began(TurnId, Attempt),
    /// Ask for a permit for this round.
    AskPermit(u32),
    /// Build the prompt and call the model.
    CallModel(Call),
    /// Run a tool call of this round.
    RunTool(u32, ToolCall),
    /// Have the beginning of the conversation summarised; answer with [`Input::Compacted`].
    Compact,
    /// Follow a command; answer with [`Input::Commanded`].
    Command(Command),
    /// Submit a commit; answer with [`Input::Committed`] in order of submission, or with [`Input::Refused`] while it is
    /// the newest.
    Commit(Batch),
    /// Bring the file up to the durable commits; answer with [`Input::ViewWritten`].
    WriteView,
    /// Tell the outside.
    Emit(Shown),
    /// Cancel the model call and the tools of the running turn.
    CancelWork,
    /// The work on a turn is over.
    Ended(Verdict),
    /// A cut turn goes on.
    Recovered(TurnId, Attempt, LeftBy),
    /// Ask for a place among the running turns; answer with [`Input::Placed`].
    EnterPlace,
    /// Give the place back that no turn needs. The end of a turn gives it back too.
    LeavePlace,
    /// A turn made no progress for its limit; what it waits for.
    Stuck(TurnId, Attempt, Waits),
    /// The file was not written for that long; turns go on without it.
    FileStuck,
    /// What came belongs to work that is over.
    Stale,
    /// The journal has turns that this inbox has not, or will not take what has to be kept: load again.
    Reload,
    /// The only turn of a stateless session ended: move its transcript away, once it is complete; answer with
    /// [`Input::Archived`].
    Archive,
    /// The edit is durable.
    Edited,
    /// The oldest rules of the queue are durable that were set and of which that was not said.
    QueueKept,
    /// The transcript has ended, with so many turns, and the journal knows where its file has to go: move it there, then
    /// leave, or begin a new one.
    MoveAway(Move, u32),
    /// The journal has forgotten the session: leave, or begin a new one.
    Closed,
    /// Everything is checkpointed; leave memory.
    Leave,
}

/// What a turn waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits {
    /// Its message, which is read from the log.
    Message,
    /// The right to call the model.
    Permit,
    /// The model.
    Model,
    /// Its tools.
    Tools,
    /// Its command to be followed.
    Command,
    /// A summary of the conversation's beginning.
    Summary,
    /// The journal.
    Journal,
}

impl Waits {
    /// As it is told.
    pub fn word(self) -> &'static str {
        match self {
            Self::Message => "its message to be read",
            Self::Permit => "the right to call the model",
            Self::Model => "the model",
            Self::Tools => "its tools",
            Self::Command => "its command to be followed",
            Self::Summary => "a summary of the conversation",
            Self::Journal => "the journal",
        }
    }
}

/// A model call.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Call {
    /// Round, from 1.
    pub round: u32,
    /// Whether tools are on offer; without them the model is asked to sum up, unless it is told something else.
    pub tools: Tools,
    /// What it is told behind the conversation.
    pub nudge: Option<Nudge>,
    /// How the turn's own results are cut to fit.
    pub trim: Trim,
}

/// Whether a model call offers tools.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Tools {
    /// It does.
    Offered,
    /// An answer is wanted.
    Withheld,
}

/// A transcript entry to be written; the shell gives it id, parent and time.
#[derive(Debug, Clone, PartialEq)]
pub enum Record {
    /// The conversation begins anew.
    Reset(Reason),
    /// What the session works on from now on, or how that ended.
    Goal(Goal),
    /// The goal waits for a person, if one is worked on.
    PauseGoal,
    /// What the session was sent to do: that of the running turn's body.
    Run(Arc<RunSpec>),
    /// What the user said: the content of the running turn's body.
    User,
    /// A message that the turn took up: it was said for another turn, which ends with that.
    Said(Arc<Accepted>),
    /// The rules that the session sets for its queue, all of them; of no turn.
    Queue(QueueSet),
    /// A message of the model, or in its place.
    Assistant(Box<AssistantMessage>, Option<TurnClose>),
    /// The result of a tool call.
    Tool(ToolResult),
}

/// One atomic unit of progress.
#[derive(Debug, Default)]
pub struct Batch {
    /// The turn that the records belong to.
    pub turn: Option<TurnId>,
    /// Entries, in order.
    pub records: Vec<Record>,
    /// Calls that may have an effect from now on.
    pub tools_started: Vec<domain::ids::ToolCallId>,
    /// Turns that end.
    pub ended: Vec<(TurnId, TurnEnd)>,
    /// What they say to chats that wait for no connection.
    pub out: Vec<Out>,
    /// An attempt above the first.
    pub started: Option<Started>,
    /// An orderly stop.
    pub interrupted: bool,
    /// The transcript ends here.
    pub closes: Option<Closes>,
    /// What an edit appends, before all entries.
    pub edit: Option<Box<Drawn>>,
}

impl Batch {
    /// Whether it is all that the transcript has of a message that was dropped: whoever said it was told to say it again.
    pub fn is_of_dropped(&self) -> bool {
        let dropped = |(turn, end): &(TurnId, TurnEnd)| {
            let why = matches!(end, TurnEnd::Cancelled { why } if **why == *Cancelled::Dropped.word());
            why && Some(*turn) == self.turn
        };
        self.ended.iter().any(dropped) && self.records.iter().any(|record| matches!(record, Record::User))
    }

    /// What it changes of the conversation besides going on with it, in the words of the log: that it begins anew, or
    /// what a command edits.
    pub fn changes(&self) -> Option<String> {
        let anew = self.records.iter().find_map(|record| match record {
            Record::Reset(reason) => Some(format!("reset: {}", reason.word())),
            Record::Goal(_)
            | Record::PauseGoal
            | Record::Run(_)
            | Record::User
            | Record::Said(_)
            | Record::Queue(_)
            | Record::Assistant(..)
            | Record::Tool(_) => None,
        });
        let edit = self.edit.as_ref().filter(|drawn| self.turn.is_some() && !drawn.additions.is_empty());
        anew.or_else(|| edit.map(|drawn| drawn.word.to_owned()))
    }
}

/// What an edit appends.
#[derive(Debug, Default)]
pub struct Drawn {
    /// The word that the log has for the edit.
    pub word: &'static str,
    /// In order.
    pub additions: Vec<Addition>,
    /// The parent of the line behind them.
    pub append_parent: Option<Arc<str>>,
    /// Where the conversation stands behind them.
    pub leaf: Option<Arc<str>>,
    /// What a compaction does.
    pub compacted: Option<Compacted>,
}

/// What came of a command.
#[derive(Debug, Default)]
pub struct Commanded {
    /// What its sender is told.
    pub text: String,
    /// What it appends.
    pub drawn: Option<Box<Drawn>>,
    /// The goal that the turn is to go on with: then it is a message.
    pub resumes: Option<Arc<str>>,
}

/// A turn event without the session's key.
#[derive(Debug)]
pub struct Shown {
    /// Turn.
    pub turn: TurnId,
    /// Attempt.
    pub attempt: Attempt,
    /// Place in the attempt, from 1.
    pub seq: u64,
    /// What happened.
    pub what: TurnProgress,
}

/// How a turn ended, for books and log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Verdict {
    /// Turn.
    pub turn: TurnId,
    /// Its last attempt.
    pub attempt: Attempt,
    /// Result.
    pub result: protocol::turn::TurnResult,
    /// Why, in a word or a few, when it was not answered.
    pub reason: Option<&'static str>,
    /// Which way its answer goes: `live`, `reply` or `push`.
    pub route: &'static str,
    /// From accepted to finished.
    pub latency_ms: u64,
}
