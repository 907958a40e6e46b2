//! The turn that is being worked on.

use std::sync::Arc;
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{AssistantMessage, StopReason, ToolCall, Usage};
use domain::command::Command;
use domain::ids::{Attempt, Seq, TurnId};
use domain::prompt::Nudge;
use domain::request::ToolSpec;
use domain::reset::Reason;
use domain::run::{Ended, Report, Status};
use domain::transcript::TurnClose;
use protocol::journal::{Accepted, InboxItem, LogPosition, Out, TurnEnd};
use protocol::turn::{Finished, Route, TurnProgress, TurnResult};
use supervision::planted::{Bug, planted};

use super::calls::{Calls, synthetic};
use super::guard::Guard;
use super::machine::COMPACTIONS_MAX;
use super::pursuit::Pursuit;
use super::recover::{self, Cut};
use super::replies::replies;
use super::runner::Runner;
use super::{Batch, Effect, Now, Record, Rules, Shown, Waits};
use crate::inbox::Cancelled;

/// Everything that is known of it.
#[derive(Debug)]
pub(super) struct Running {
    pub item: InboxItem,
    pub accepted: Option<Arc<Accepted>>,
    pub body: TurnBody,
    /// What the body asks for, if it is a command: then no model is called.
    pub command: Option<Command>,
    /// Whether what the model is told is read anew for it.
    pub refresh: bool,
    /// Until the body is read.
    pub cut: Option<Box<Cut>>,
    pub attempt: Attempt,
    pub round: u32,
    pub phase: Phase,
    pub user_written: bool,
    /// The last message that waited when it began, or itself when it goes on.
    pub behind: Option<Seq>,
    /// Messages may be taken up now: a group of calls has ended.
    pub boundary: bool,
    /// How often that was done.
    pub steered: u32,
    /// A message that waits and is read for it.
    pub reading: Option<LogPosition>,
    /// One that cannot be read.
    pub unread: Option<LogPosition>,
    /// It was found out whether the conversation begins anew.
    pub anew_known: bool,
    /// Why the conversation begins anew with it.
    pub anew: Option<Reason>,
    pub calls: Calls,
    /// A group that runs as soon as it is durable that it begins.
    pub next_group: Vec<ToolCall>,
    pub usage: Usage,
    pub runner: Runner,
    pub pursuit: Pursuit,
    pub guard: Guard,
    /// Whether this round can call no tool.
    pub withheld: bool,
    /// The rounds with tools that it had, once its answer comes behind them.
    pub used_up: Option<u32>,
    /// What this round's model call is told behind the conversation.
    pub told: Option<Nudge>,
    /// How often more of the conversation may be summarised.
    pub compactions: u8,
    /// Whether the model has said that a request was too long for it.
    pub overflowed: bool,
    /// What this round's model call has said so far.
    pub partial: String,
    pub stop: Option<Why>,
    pub ending: Option<Box<Ending>>,
    /// How many of its batches the journal will never hold.
    pub refusals: u32,
    pub event_seq: u64,
    /// What people are to be told as soon as its attempt is shown.
    pub untold: Vec<Arc<str>>,
    pub began: Duration,
    pub progress: Duration,
}

/// What a turn does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Phase {
    Loading,
    /// Messages that it may take up are read.
    Steering,
    WaitingForPermit,
    Thinking,
    RunningTools,
    Compacting,
    Commanding,
    Saving,
}

impl Phase {
    /// What a turn waits for in it.
    pub fn waits(self) -> Waits {
        match self {
            Self::Loading | Self::Steering => Waits::Message,
            Self::WaitingForPermit => Waits::Permit,
            Self::Thinking => Waits::Model,
            Self::RunningTools => Waits::Tools,
            Self::Compacting => Waits::Summary,
            Self::Commanding => Waits::Command,
            Self::Saving => Waits::Journal,
        }
    }
}

/// Why a turn is to end before its answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Why {
    Cancelled(Cancelled),
    Stuck(Waits),
    Leaving,
    /// What it said fits into no record of the journal.
    TooLarge {
        /// About how large that was.
        bytes: u64,
    },
}

/// The end that a commit under way makes durable.
#[derive(Debug)]
pub(super) struct Ending {
    pub result: TurnResult,
    /// Why, when it is no answer.
    pub reason: Option<&'static str>,
    pub text: String,
    pub stop: StopReason,
    pub model: Arc<str>,
}

/// What the model reads of a call that a cancelled turn did not make.
const NOT_RUN: &str = "Error: the turn was stopped before this call ran.";

// === impl Running ===

impl Running {
    pub fn new(item: InboxItem, cut: Option<Box<Cut>>, now: Now) -> Self {
        Self {
            item,
            accepted: None,
            body: TurnBody::text(""),
            command: None,
            refresh: false,
            cut,
            attempt: Attempt::FIRST,
            round: 0,
            phase: Phase::Loading,
            user_written: false,
            behind: None,
            boundary: false,
            steered: 0,
            reading: None,
            unread: None,
            anew_known: false,
            anew: None,
            calls: Calls::default(),
            next_group: Vec::new(),
            usage: Usage::default(),
            runner: Runner::default(),
            pursuit: Pursuit::default(),
            guard: Guard::default(),
            withheld: false,
            used_up: None,
            told: None,
            compactions: COMPACTIONS_MAX,
            overflowed: false,
            partial: String::new(),
            stop: None,
            ending: None,
            refusals: 0,
            event_seq: 0,
            untold: Vec::new(),
            began: now.mono,
            progress: now.mono,
        }
    }

    pub fn id(&self) -> TurnId {
        self.item.turn
    }

    /// Takes over what the transcript has of it.
    pub fn go_on_from(&mut self, cut: &Cut) {
        let progress = recover::progress(&cut.written);
        self.user_written |= cut.written.user;
        self.steered = cut.written.steered;
        self.round = progress.rounds;
        self.usage = progress.usage;
        self.guard = Guard::rebuild(&cut.written);
        self.runner = Runner::rebuild(&cut.written);
        self.pursuit.go_on_from(&cut.written);
        self.calls = Calls::new(&progress.calls);
        for result in &progress.results {
            self.calls.settle(result);
        }
    }

    /// Tells that it begins, and of what if that is an event.
    pub fn show_begin(&mut self, out: &mut Vec<Effect>) {
        out.push(Effect::Emit(self.show(TurnProgress::Started)));
        if let Some(event) = self.body.event.clone() {
            out.push(Effect::Emit(self.show(TurnProgress::Notice(event.to_string().into()))));
        }
        for text in std::mem::take(&mut self.untold) {
            self.tell(text, out);
        }
    }

    /// Tells people something that is no part of the answer, once the attempt is shown.
    pub fn tell(&mut self, text: Arc<str>, out: &mut Vec<Effect>) {
        if self.event_seq == 0 {
            self.untold.push(text);
        } else {
            out.push(Effect::Emit(self.show(TurnProgress::Notice(text))));
        }
    }

    pub fn show(&mut self, what: TurnProgress) -> Shown {
        self.event_seq += 1;
        Shown { turn: self.id(), attempt: self.attempt, seq: self.event_seq, what }
    }

    /// A batch of this turn; the user's line leads the first one, behind the reset that the turn begins with.
    pub fn batch(&mut self) -> Batch {
        let mut batch = Batch { turn: Some(self.id()), records: Vec::with_capacity(2), ..Batch::default() };
        if !self.user_written {
            self.user_written = true;
            batch.records.extend(self.anew.map(Record::Reset));
            batch.records.extend(self.pursuit.take_new().map(Record::Goal));
            // What it is told later does not change what it was sent to do.
            batch.records.extend(self.body.run.clone().filter(|_| self.body.saying.is_none()).map(Record::Run));
            batch.records.push(Record::User);
        }
        batch
    }

    /// Lets the next calls begin with `batch`. Those that the guard refuses have their result in it.
    pub fn begin_calls(&mut self, tools: &[ToolSpec], batch: &mut Batch) {
        loop {
            let group = self.calls.begin_group(tools);
            let none_waits = group.is_empty();
            for call in group {
                match self.guard.ask(&call) {
                    None => self.next_group.push(call),
                    Some(result) => {
                        self.calls.finish(&call.id);
                        self.guard.saw(&call, &result);
                        batch.records.push(Record::Tool(result));
                    }
                }
            }
            if none_waits || !self.next_group.is_empty() {
                break;
            }
        }
        batch.tools_started = self.next_group.iter().map(|call| call.id.clone()).collect();
    }

    /// The end with the model's answer.
    pub fn answer(&mut self, message: Box<AssistantMessage>) -> Batch {
        let ending = Ending {
            result: TurnResult::Done,
            reason: None,
            text: format!("{}{}", self.runner.begun(), message.text),
            stop: message.stop,
            model: Arc::clone(&message.model),
        };
        let mut batch = self.batch();
        if planted(Bug::DoubleReply) && self.attempt > Attempt::FIRST {
            batch.records.push(Record::Assistant(message.clone(), None));
        }
        batch.records.push(Record::Assistant(message, Some(TurnClose::Done)));
        self.end(batch, TurnEnd::Done, ending)
    }

    /// The end with what the program itself says.
    pub fn told(&mut self, text: String, rules: &Rules) -> Batch {
        self.answer(notice(StopReason::Stop, text, None, rules))
    }

    /// The end with a failure that the user is told; `why` is its word in the log.
    pub fn failure(&mut self, why: &'static str, text: String, rules: &Rules) -> Batch {
        let message = notice(StopReason::Error, std::mem::take(&mut self.partial), Some(text.clone()), rules);
        let mut batch = self.closing_batch();
        let (stop, model) = (message.stop, Arc::clone(&message.model));
        let ending = Ending { result: TurnResult::Failed, reason: Some(why), text, stop, model };
        batch.records.push(Record::Assistant(message, Some(TurnClose::Failed)));
        self.end(batch, TurnEnd::Done, ending)
    }

    /// The end as a dead letter.
    pub fn dead_letter(&mut self, reason: &'static str, text: String, rules: &Rules) -> Batch {
        let message = notice(StopReason::Error, String::new(), Some(text.clone()), rules);
        let mut batch = self.closing_batch();
        let (stop, model) = (message.stop, Arc::clone(&message.model));
        let ending = Ending { result: TurnResult::DeadLettered, reason: Some(reason), text, stop, model };
        batch.records.push(Record::Assistant(message, Some(TurnClose::Dead)));
        self.end(batch, TurnEnd::Dead { reason: reason.into() }, ending)
    }

    /// The end that somebody asked for.
    pub fn cancellation(&mut self, why: Cancelled, rules: &Rules) -> Batch {
        let partial = std::mem::take(&mut self.partial);
        let message = notice(StopReason::Aborted, partial, Some(why.notice().to_owned()), rules);
        let mut batch = self.closing_batch();
        let (stop, model) = (message.stop, Arc::clone(&message.model));
        let text = why.notice().to_owned();
        let reason = Some(why.reason());
        let ending = Ending { result: TurnResult::Cancelled, reason, text, stop, model };
        if why == Cancelled::Stopped && self.command.is_none() {
            // Else whatever comes next, perhaps an event, would go on with it.
            batch.records.push(Record::PauseGoal);
            self.pursuit.pause();
        }
        batch.records.push(Record::Assistant(message, Some(TurnClose::Cancelled)));
        self.end(batch, TurnEnd::Cancelled { why: why.word().into() }, ending)
    }

    /// What the last event of the turn says.
    pub fn finished(&mut self, ending: Ending, now: Now) -> (u64, Shown) {
        let accepted_ms = self.accepted.as_ref().map_or(now.wall_ms, |accepted| accepted.accepted_ms);
        let latency_ms = now.wall_ms.saturating_sub(accepted_ms);
        let Ending { result, text, stop, model, reason: _ } = ending;
        let finished =
            Finished { result, into: None, text, stop, model, usage: self.usage, latency_ms, standing: None };
        (latency_ms, self.show(TurnProgress::Finished(Arc::new(finished))))
    }

    /// Which way its answer goes. A turn that ends before its message was read tells only whether it is pushed.
    pub fn route(&self) -> &'static str {
        match self.accepted.as_ref().map(|accepted| &accepted.route) {
            Some(Route::Push(_)) => "push",
            Some(Route::Reply) => "reply",
            Some(Route::Live) => "live",
            None if self.item.push_route().is_some() => "push",
            None => "live",
        }
    }

    /// What its end says to a chat that waits for no connection.
    pub fn replies(&self, rules: &Rules) -> Vec<Out> {
        let (Some(ending), Some(route)) = (&self.ending, self.item.push_route()) else { return Vec::new() };
        let Some(run) = &self.body.run else {
            return replies(self.item.turn, route, &ending.text, &rules.push_limits);
        };
        // Nobody wants to hear of a run whose parent was stopped or is gone.
        if self.stop == Some(Why::Cancelled(Cancelled::Left)) {
            return Vec::new();
        }
        let report = run.report(&self.run_ended(ending));
        let report = report.map(|report| Report { later: self.body.saying.is_some(), ..report });
        let report = report.and_then(|report| serde_json::to_string(&report).ok());
        report.map_or_else(Vec::new, |report| replies(self.item.turn, route, &report, &rules.push_limits))
    }

    /// How the run of a sub-agent ended.
    fn run_ended(&self, ending: &Ending) -> Ended {
        let status = match (ending.result, self.stop) {
            (TurnResult::Done | TurnResult::Joined, _) => Status::Done,
            (TurnResult::Failed | TurnResult::DeadLettered, _) => Status::Failed,
            (TurnResult::Cancelled, Some(Why::Cancelled(Cancelled::TimedOut))) => Status::TimedOut,
            (TurnResult::Cancelled, Some(Why::Cancelled(Cancelled::Spent))) => Status::OverBudget,
            (TurnResult::Cancelled, _) => Status::Cancelled,
        };
        let steps = self.guard.steps();
        Ended { status, text: ending.text.clone(), rounds_used_up: self.used_up, steps, usage: self.usage }
    }

    /// How many rounds with tools it has.
    pub fn rounds(&self, rules: &Rules) -> u32 {
        let own = self.body.run.as_ref().map(|run| run.rounds).filter(|own| *own > 0).unwrap_or(u32::MAX);
        self.pursuit.rounds(rules.max_tool_iterations.min(own))
    }

    /// Whether the time of a sub-agent is over.
    pub fn is_late(&self, now: Now) -> bool {
        let limit = self.body.run.as_ref().map(|run| run.timeout_s).filter(|limit| *limit > 0);
        let accepted_ms = self.accepted.as_ref().map_or(now.wall_ms, |accepted| accepted.accepted_ms);
        limit.is_some_and(|limit| now.wall_ms.saturating_sub(accepted_ms) >= u64::from(limit) * 1000)
    }

    /// Whether a sub-agent has used up its tokens.
    pub fn is_spent(&self) -> bool {
        let limit = self.body.run.as_ref().map(|run| run.budget_tokens).filter(|limit| *limit > 0);
        limit.is_some_and(|limit| self.usage.input_tokens.saturating_add(self.usage.output_tokens) >= limit)
    }

    /// A batch that answers every call that has no result.
    fn closing_batch(&mut self) -> Batch {
        let mut batch = self.batch();
        self.next_group = Vec::new();
        batch.records.extend(self.calls.abandon().iter().map(|call| Record::Tool(synthetic(call, NOT_RUN))));
        batch
    }

    fn end(&mut self, mut batch: Batch, end: TurnEnd, ending: Ending) -> Batch {
        batch.ended.push((self.id(), end));
        self.ending = Some(Box::new(ending));
        batch
    }
}

/// A message in place of the model's.
fn notice(stop: StopReason, text: String, error: Option<String>, rules: &Rules) -> Box<AssistantMessage> {
    Box::new(AssistantMessage {
        stop,
        error,
        ..AssistantMessage::new(text, Arc::clone(&rules.provider), Arc::clone(&rules.model))
    })
}
