//! The machine itself: see the table in the module above.

mod begin;
mod close;
mod command;
mod compact;
mod durable;
mod model;
mod queue;
mod refuse;
mod stall;
pub(super) mod steer;
mod tools;

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use domain::body::{HistorySource, TurnBody};
use domain::goal::Goal;
use domain::ids::{Attempt, Seq, TurnId};
use domain::prompt::{stuck_notice, too_large_notice};
use domain::queue::QueueSet;
use domain::reset::Reason;
use protocol::journal::{Accepted, Closes, InboxItem, TurnEnd};
use protocol::session::{State, Stopped};

use super::recover::{Cut, Standing};
use super::running::{Phase, Running, Why};
use super::{Batch, Effect, Input, Now, Record, Rules};
use crate::inbox::{Cancelled, Inbox};
use close::Closing;
pub use compact::COMPACTIONS_MAX;
use refuse::Claims;

/// One session's decisions.
#[derive(Debug)]
pub struct Machine {
    rules: Arc<Rules>,
    inbox: Inbox,
    /// Most sessions have none.
    own: Option<Box<Own>>,
    /// When the last message came.
    heard: Duration,
    /// It is asleep until more messages may have come.
    sleeps: bool,
    /// The message that is next came when nothing ran: it waits for no others.
    prompt: bool,
    cut: Option<Box<Cut>>,
    turn: Option<Box<Running>>,
    /// Commits under way, oldest first.
    commits: VecDeque<Pending>,
    /// Since when the file has been written.
    view_busy: Option<Duration>,
    place: Place,
    leaving: bool,
    /// Whether the journal knows that the first open turn was left in order.
    checkpointed: bool,
    closed: bool,
    /// An edit waits or is worked on: no turn begins, but one that was cut goes on.
    held: bool,
    /// Earlier messages were summarised, and no turn has told of it.
    condensed: bool,
    /// The transcript is to end.
    closing: Option<Box<Closing>>,
}

/// What a session has of its own besides its turns.
#[derive(Debug, Default)]
struct Own {
    /// What it sets of its queue's rules.
    queue: QueueSet,
    /// What dropped messages said that no turn was told of: the newest of them.
    dropped: VecDeque<String>,
    /// How many more there were.
    dropped_before: usize,
}

/// The place of this session's turn among those of the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Place {
    None,
    Asked,
    Held,
}

/// What follows when a commit is durable.
#[derive(Debug, Default)]
struct Pending {
    /// Of a batch of the running turn.
    claims: Option<Claims>,
    lines: bool,
    /// Turns that it ends as the running one took them up.
    joined: Vec<InboxItem>,
    /// Rules of the queue.
    queue: bool,
    /// The attempt that it begins is shown from then on: its number is not given twice.
    starts: bool,
    ends_turn: bool,
    leaves: bool,
    closes: Option<Closes>,
    edits: bool,
}

// === impl Machine ===

impl Machine {
    /// A session that has nothing to do.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self {
            rules,
            inbox: Inbox::default(),
            own: None,
            heard: Duration::ZERO,
            sleeps: false,
            prompt: false,
            cut: None,
            turn: None,
            commits: VecDeque::new(),
            view_busy: None,
            place: Place::None,
            leaving: false,
            checkpointed: false,
            closed: false,
            held: false,
            condensed: false,
            closing: None,
        }
    }

    /// Takes what the journal has: the waiting turns (the cut one first), how far these go, and how the cut one was left.
    /// `early` are hints that came in the meantime. Turns whose end stands in the transcript (`answered`: it is ahead of
    /// a journal that was restored from a backup) end as done and do not run.
    pub fn load(
        &mut self,
        items: Vec<InboxItem>,
        through: Seq,
        early: Inbox,
        loaded: Standing,
        now: Now,
    ) -> Vec<Effect> {
        let mut out = Vec::new();
        let Standing { cut, answered, queue, dropped } = loaded;
        self.own_mut(|own| *own = Own { queue, ..Own::default() });
        dropped.into_iter().for_each(|said| self.keep_dropped(&said));
        self.heard = now.mono;
        let (done, items): (Vec<_>, Vec<_>) = items.into_iter().partition(|item| answered.contains(&item.turn));
        self.inbox = early;
        self.inbox.restore(items, through);
        self.cut = cut.filter(|cut| !answered.contains(&cut.turn.started.turn)).map(Box::new);
        if !done.is_empty() {
            let ended = done.iter().map(|item| (item.turn, TurnEnd::Done)).collect();
            self.commit(Batch { ended, ..Batch::default() }, &mut out);
        }
        // One by itself woke the session, or was about to begin.
        self.prompt = self.inbox.len() == 1;
        self.drop_surplus(&mut out);
        self.begin_next(now, &mut out);
        out
    }

    /// Takes one input.
    pub fn step(&mut self, input: Input, now: Now) -> Vec<Effect> {
        let mut out = Vec::new();
        match input {
            Input::Queued(item) => self.queued(item, now, &mut out),
            Input::Read(accepted) => self.read(accepted, now, &mut out),
            Input::Unreadable(at) => self.unreadable_at(at, now, &mut out),
            Input::AnewKnown => self.anew_known(now, &mut out),
            Input::Woke => {
                self.sleeps = false;
                self.begin_next(now, &mut out);
            }
            Input::Permitted => self.permitted(now, &mut out),
            Input::Delta(delta) => self.delta(delta, now, &mut out),
            Input::Completed(message) => self.completed(message, now, &mut out),
            Input::Failed(why, text) => self.failed(why, text, now, &mut out),
            Input::OverBudget => self.over_budget(now, &mut out),
            Input::TooLong(text) => self.too_long(text, now, &mut out),
            Input::Compacted(drawn) => self.compacted(drawn, now, &mut out),
            Input::ToolFinished(result, edit) => self.tool_finished(result, edit, now, &mut out),
            Input::Commanded(commanded) => self.commanded(*commanded, now, &mut out),
            Input::Committed => self.committed(now, &mut out),
            Input::Refused { bytes } => self.refused(bytes, &mut out),
            Input::ViewWritten => {
                self.view_busy = None;
                self.begin_next(now, &mut out);
            }
            Input::Cancel(turn) => self.cancel(turn, now, &mut out),
            Input::Placed => self.placed(now, &mut out),
            Input::Tick { heard } => self.tick(heard, now, &mut out),
            Input::Archived => self.commit(Batch { closes: Some(Closes::Moved), ..Batch::default() }, &mut out),
            Input::Edit(drawn) => self.commit(Batch { edit: Some(drawn), ..Batch::default() }, &mut out),
            Input::Released => {
                self.held = false;
                self.begin_next(now, &mut out);
            }
            Input::Close(place) => self.close(place, now, &mut out),
            Input::Drain => {
                self.leaving = true;
                self.leave_if_done(&mut out);
            }
            Input::Interrupt => {
                self.leaving = true;
                self.stop_running(Why::Leaving, now, &mut out);
                self.leave_if_done(&mut out);
            }
        }
        out
    }

    /// Cancels the running turn; with `all`, the waiting ones too.
    pub fn stop(&mut self, all: bool, now: Now) -> (Stopped, Vec<Effect>) {
        let mut out = Vec::new();
        let cut = self.cancel_cut();
        let cancelled = self.turn.as_ref().filter(|turn| turn.ending.is_none()).map(|turn| turn.id()).or(cut);
        self.stop_running(Why::Cancelled(Cancelled::Stopped), now, &mut out);
        let dropped = if all { self.inbox.cancel_all() } else { 0 };
        self.begin_next(now, &mut out);
        let count = |turns: usize| u32::try_from(turns).unwrap_or(u32::MAX);
        let waiting = count(self.inbox.len() - self.inbox.cancelled());
        (Stopped { cancelled, dropped: count(dropped), waiting, goal_paused: false, later: false }, out)
    }

    /// The state word.
    pub fn state(&self) -> State {
        match self.turn.as_ref().map(|turn| turn.phase) {
            None if self.place == Place::Asked => State::Waiting,
            None => State::Idle,
            Some(Phase::Loading | Phase::Steering | Phase::Commanding) => State::Loading,
            Some(Phase::WaitingForPermit) => State::Waiting,
            Some(Phase::Thinking | Phase::Compacting) => State::Thinking,
            Some(Phase::RunningTools) => State::RunningTools,
            Some(Phase::Saving) => State::Saving,
        }
    }

    /// The running turn, its attempt, its round, and when it began.
    pub fn running(&self) -> Option<(TurnId, Attempt, u32, Duration)> {
        self.turn.as_ref().map(|turn| (turn.id(), turn.attempt, turn.round, turn.began))
    }

    /// The message that the running turn answers, and whether its user line is committed.
    pub fn body(&self) -> Option<(&Arc<Accepted>, &TurnBody, bool)> {
        let turn = self.turn.as_ref()?;
        turn.accepted.as_ref().map(|accepted| (accepted, &turn.body, turn.user_written))
    }

    /// What the session works on, as the transcript says. Not for a turn that brings its own conversation.
    pub fn follow_goal(&mut self, goal: Option<&Arc<Goal>>) {
        if let Some(turn) = self.turn.as_deref_mut()
            && turn.body.history == HistorySource::Session
            && !turn.body.ephemeral
        {
            turn.pursuit.follow(goal);
        }
    }

    /// What the running turn works on besides its message.
    pub fn goal(&self) -> Option<&Goal> {
        self.turn.as_deref()?.pursuit.active()
    }

    /// Whether, and why, the conversation begins anew with the running turn, whose user's line is not yet kept.
    pub fn begin_anew(&mut self, why: Option<Reason>) {
        let asked = |turn: &Running| turn.user_written || turn.anew == Some(Reason::Asked);
        if let Some(turn) = self.turn.as_deref_mut().filter(|turn| !asked(turn)) {
            turn.anew = why;
        }
    }

    /// Whether it does, and the transcript does not say so yet.
    pub fn begins_anew(&self) -> bool {
        self.turn.as_deref().is_some_and(|turn| turn.anew.is_some() && !turn.user_written)
    }

    /// Whether a turn waits or runs.
    pub fn knows(&self, turn: TurnId) -> bool {
        self.inbox.waits(turn) || self.inbox.running() == Some(turn)
    }

    /// The turn that runs, or else the first that waits.
    pub fn first_open(&self) -> Option<TurnId> {
        self.inbox.running().or_else(|| self.inbox.wanted().next().map(|item| item.turn))
    }

    /// Whether a turn waits for its place.
    pub fn awaits_place(&self) -> bool {
        self.place == Place::Asked
    }

    /// Takes the inbox out, at the end of a life.
    pub fn take_inbox(&mut self) -> Inbox {
        std::mem::take(&mut self.inbox)
    }

    /// Whether the running turn waits for the right to call the model.
    pub fn awaits_permit(&self) -> bool {
        self.turn.as_ref().is_some_and(|turn| turn.phase == Phase::WaitingForPermit)
    }

    /// Number of waiting turns.
    pub fn waiting(&self) -> usize {
        self.inbox.len()
    }

    /// Whether it can leave memory: nothing waits, runs, or is on its way to disk.
    pub fn is_idle(&self) -> bool {
        // A turn that was checkpointed for an orderly stop is gone from here, but still open.
        let no_turn = self.turn.is_none() && self.inbox.running().is_none() && self.inbox.is_empty();
        no_turn && !self.held && self.commits.is_empty() && self.view_busy.is_none()
    }

    fn commit(&mut self, mut batch: Batch, out: &mut Vec<Effect>) {
        let ends_turn = self.turn.as_ref().is_some_and(|turn| turn.ending.is_some()) && batch.turn.is_some();
        if let Some(turn) = self.turn.as_ref().filter(|_| ends_turn) {
            batch.out = turn.replies(&self.rules);
            // What does not fit together ends one after the other.
            if turn.refusals == 0 {
                self.end_waiting(&mut batch);
            }
        }
        let claims = batch.turn.is_some().then(|| Claims::of(&batch));
        let edits = batch.edit.is_some() && batch.turn.is_none();
        let queue = batch.records.iter().any(|record| matches!(record, Record::Queue(_)));
        let lines = batch.edit.is_some() || !batch.records.is_empty();
        let (starts, leaves, closes) = (batch.started.is_some(), batch.interrupted, batch.closes);
        let joined = Vec::new();
        self.commits.push_back(Pending { claims, lines, joined, queue, starts, ends_turn, leaves, closes, edits });
        out.push(Effect::Commit(batch));
    }

    /// Submits a batch of the running turn and waits for everything that is under way.
    fn save(&mut self, batch: Batch, out: &mut Vec<Effect>) {
        if let Some(turn) = &mut self.turn {
            turn.phase = Phase::Saving;
        }
        self.commit(batch, out);
    }

    // --- cancel ---

    fn stop_running(&mut self, why: Why, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut() else { return };
        if turn.ending.is_some() || turn.stop.is_some() {
            return;
        }
        turn.stop = Some(why);
        turn.progress = now.mono;
        out.push(Effect::CancelWork);
        match turn.phase {
            Phase::WaitingForPermit | Phase::Thinking | Phase::Compacting | Phase::Commanding | Phase::Steering => {
                self.wind_up(out);
            }
            // What is under way ends first; then the stop is seen.
            Phase::Loading | Phase::RunningTools | Phase::Saving => {}
        }
    }

    /// Ends a stopped turn of which nothing runs any more.
    fn wind_up(&mut self, out: &mut Vec<Effect>) {
        self.summarize_dropped();
        let rules = &self.rules;
        let Some(turn) = self.turn.as_deref_mut() else { return };
        let batch = match turn.stop {
            Some(Why::Leaving) => Batch { turn: Some(turn.id()), interrupted: true, ..Batch::default() },
            Some(Why::Stuck(waits)) => {
                let text = stuck_notice(rules.stall.as_secs(), waits.word(), turn.body.reader());
                turn.failure("stuck", text, rules)
            }
            Some(Why::TooLarge { bytes }) => turn.failure("too_large", too_large_notice(bytes), rules),
            Some(Why::Cancelled(why)) => turn.cancellation(why, rules),
            None => turn.cancellation(Cancelled::Stopped, rules),
        };
        self.save(batch, out);
    }
}
