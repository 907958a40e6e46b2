//! A session's surroundings as the machine sees them: a model of the journal, the doors and the tools, which checks what
//! the machine does.

use std::collections::VecDeque;

use super::goals::Goals;
use super::kept::keep;
use super::*;

pub(super) struct World {
    pub(super) machine: Machine,
    pub(super) now: Now,
    pub(super) next_seq: u64,
    pub(super) turns: BTreeMap<TurnId, Kept>,
    pub(super) open: Vec<u64>,
    pub(super) started: Option<Started>,
    pub(super) interrupted: bool,
    pub(super) commits: VecDeque<Batch>,
    pub(super) queue: QueueRules,
    /// What the transcript says of it.
    pub(super) own_queue: QueueSet,
    pub(super) wakes: bool,
    pub(super) reading: VecDeque<u64>,
    pub(super) crowded: bool,
    pub(super) asks_place: bool,
    pub(super) holds_place: bool,
    pub(super) permit: bool,
    pub(super) call: Option<Call>,
    /// A command is followed.
    pub(super) command: bool,
    pub(super) compacting: bool,
    pub(super) running: Vec<ToolCallId>,
    /// Tools that did not even end when they were cancelled, and that nobody waits for any more.
    pub(super) adrift: Vec<ToolCallId>,
    /// Whether a turn was found stuck.
    pub(super) stuck: bool,
    pub(super) runs: BTreeMap<ToolCallId, (u32, bool)>,
    pub(super) view: bool,
    pub(super) left: bool,
    pub(super) finished: BTreeMap<TurnId, TurnResult>,
    pub(super) ended_order: Vec<TurnId>,
    pub(super) begun: Option<TurnId>,
    pub(super) refused: BTreeSet<TurnId>,
    pub(super) pushed: Vec<Out>,
    pub(super) serial: u32,
    /// Turns that were cancelled: they may be taken up without a place, to end them.
    pub(super) unwanted: BTreeSet<TurnId>,
    /// What a run is told for later: it holds up nothing.
    pub(super) asides: BTreeSet<u64>,
    pub(super) stalled: bool,
    pub(super) reload: bool,
    /// Transcripts that have ended.
    pub(super) ended: u32,
    pub(super) moves: bool,
    /// Turns that ended with their transcript before they went on.
    pub(super) cut_off: BTreeSet<TurnId>,
    pub(super) goals: Goals,
}

impl World {
    /// With a turn for each message.
    pub(super) fn new() -> Self {
        Self::with(QueueRules { mode: QueueMode::Followup, ..QueueRules::default() })
    }

    pub(super) fn with(queue: QueueRules) -> Self {
        Self {
            machine: Machine::new(rules_with(queue)),
            queue,
            own_queue: QueueSet::default(),
            wakes: false,
            now: Now { mono: Duration::ZERO, wall_ms: 10 },
            next_seq: 1,
            turns: BTreeMap::new(),
            open: Vec::new(),
            started: None,
            interrupted: false,
            commits: VecDeque::new(),
            reading: VecDeque::new(),
            crowded: false,
            asks_place: false,
            holds_place: false,
            permit: false,
            call: None,
            command: false,
            running: Vec::new(),
            adrift: Vec::new(),
            stuck: false,
            runs: BTreeMap::new(),
            view: false,
            compacting: false,
            left: false,
            finished: BTreeMap::new(),
            ended_order: Vec::new(),
            begun: None,
            refused: BTreeSet::new(),
            pushed: Vec::new(),
            serial: 0,
            unwanted: BTreeSet::new(),
            asides: BTreeSet::new(),
            stalled: false,
            reload: false,
            ended: 0,
            moves: false,
            cut_off: BTreeSet::new(),
            goals: Goals::default(),
        }
    }

    pub(super) fn give(&mut self, input: Input) {
        let effects = self.machine.step(input, self.now);
        self.perform(effects);
        self.place();
        if std::mem::take(&mut self.moves) {
            // What came meanwhile begins the next transcript.
            self.load(0, LeftBy::Interrupted, false);
        }
    }

    /// Gives the place that is asked for, unless others have all of them.
    pub(super) fn place(&mut self) {
        if self.asks_place && !self.crowded {
            self.asks_place = false;
            // One that is not waited for any more is given back.
            if self.machine.awaits_place() {
                self.holds_place = true;
                self.give(Input::Placed);
            }
        }
    }

    pub(super) fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ReadBody(at) => self.reading.push_back(at.0),
                Effect::AskAnew => self.give(Input::AnewKnown),
                Effect::Wake(_) => assert!(!std::mem::replace(&mut self.wakes, true), "woken twice"),
                Effect::QueueKept | Effect::Refresh => {}
                Effect::Began(turn, _) => {
                    assert!(self.begun.is_none(), "two turns at once");
                    let dropped = self.queue.drop != QueueDrop::Refuse;
                    assert!(self.holds_place || dropped || self.unwanted.contains(&turn), "begun without a place");
                    assert_eq!(self.open.first().map(|seq| turn_id(*seq)), Some(turn), "out of order");
                    self.begun = Some(turn);
                }
                Effect::AskPermit(round) => {
                    assert!(round <= self.rounds_max() + 1 + 3, "rounds are bounded");
                    assert!(!self.begun.is_some_and(is_command), "a model is asked to follow a command");
                    self.permit = true;
                }
                Effect::CallModel(call) => self.called(call),
                Effect::Compact => {
                    assert!(!self.begun.is_some_and(is_command), "a command needs no room");
                    self.compacting = true;
                }
                Effect::Command(_) => {
                    assert!(self.begun.is_some_and(is_command));
                    self.command = true;
                }
                Effect::RunTool(_, call) => self.run(&call),
                Effect::Commit(batch) => {
                    self.see_goals(&batch);
                    self.commits.push_back(batch);
                }
                Effect::WriteView => self.view = true,
                Effect::Emit(shown) => self.shown(&shown),
                Effect::CancelWork => {
                    self.permit = false;
                    self.call = None;
                    self.command = false;
                    self.compacting = false;
                }
                Effect::Ended(verdict) => {
                    if self.begun == Some(verdict.turn) {
                        self.begun = None;
                        self.holds_place = false;
                    }
                }
                Effect::Leave => self.left = true,
                Effect::MoveAway(_, cancelled) => {
                    assert!(self.commits.is_empty(), "a commit behind the end of the transcript");
                    assert!(self.begun.is_none() && !self.left && cancelled <= 200);
                    self.moves = true;
                }
                Effect::Stuck(..) => self.stuck = true,
                Effect::Recovered(..) | Effect::Stale | Effect::FileStuck => {}
                Effect::EnterPlace => {
                    assert!(!self.holds_place, "a second place");
                    self.asks_place = true;
                }
                Effect::LeavePlace => assert!(std::mem::take(&mut self.holds_place), "no place to leave"),
                // Not asked for, unless the journal does not answer.
                Effect::Reload if self.stalled => self.reload = true,
                Effect::Reload | Effect::Archive | Effect::Closed | Effect::Edited => panic!("none was asked for"),
            }
        }
    }

    fn called(&mut self, call: Call) {
        assert!(self.call.is_none());
        let last = call.round > self.rounds_max();
        assert_eq!(call.tools == Tools::Withheld, last || call.nudge == Some(Nudge::Words));
        self.machine.follow_goal(self.goals.seen.as_ref());
        self.call = Some(call);
    }

    fn shown(&mut self, shown: &Shown) {
        let TurnProgress::Finished(finished) = &shown.what else { return };
        let kept = &self.turns[&shown.turn];
        assert!(kept.end.is_some(), "finished before it is durable");
        if finished.result == TurnResult::Done {
            assert_eq!(finished.text, kept.answer(), "another answer than is kept");
        }
        assert!(self.finished.insert(shown.turn, finished.result).is_none(), "finished twice");
    }

    pub(super) fn run(&mut self, call: &ToolCall) {
        let turn = self.begun.unwrap();
        assert!(self.turns[&turn].started.contains(&call.id), "runs before it is durable that it begins");
        assert!(!self.running.contains(&call.id));
        self.running.push(call.id.clone());
        let idempotent = call.name == "read";
        let runs = self.runs.entry(call.id.clone()).or_insert((0, idempotent));
        runs.0 += 1;
        assert!(idempotent || runs.0 == 1, "a call with effects runs twice");
        let parallel = self.running.len() > 1;
        assert!(!parallel || self.running.iter().all(|id| self.runs[id].1), "only reads run together");
    }

    /// The journal writes the oldest commit.
    pub(super) fn write(&mut self) -> bool {
        let Some(batch) = self.commits.pop_front() else { return false };
        let first = self.open.first().map(|seq| turn_id(*seq));
        if let Some(started) = batch.started {
            let before = self.started.map_or(1, |started| started.attempt.0);
            assert_eq!((started.attempt.0, Some(started.turn)), (before + 1, first));
            self.started = Some(started);
            self.interrupted = false;
        }
        if let Some(turn) = batch.turn {
            assert_eq!(Some(turn), first, "commits belong to the first open turn");
            for record in batch.records {
                match record {
                    Record::Said(accepted) => self.said(turn, accepted.seq.0, &batch.ended),
                    Record::Goal(goal) => self.keep_goal(turn, goal),
                    Record::PauseGoal => self.pause_goal(),
                    record @ (Record::Reset(_)
                    | Record::User
                    | Record::Run(_)
                    | Record::Queue(_)
                    | Record::Assistant(..)
                    | Record::Tool(_)) => keep(self.turns.get_mut(&turn).unwrap(), record),
                }
            }
            let kept = self.turns.get_mut(&turn).unwrap();
            kept.started.extend(batch.tools_started);
            let joins = batch.ended.iter().any(|(_, end)| matches!(end, TurnEnd::Joined { .. }));
            kept.steered += u32::from(joins && !kept.messages.is_empty());
            assert!(kept.steered <= STEERS_MAX, "messages are taken up for ever");
        } else {
            for record in batch.records {
                let Record::Queue(set) = record else { panic!("{record:?} of no turn") };
                self.own_queue = set;
            }
        }
        self.interrupted |= batch.interrupted;
        self.pushed.extend(batch.out);
        if batch.closes.is_some() {
            assert!(self.running.is_empty(), "the transcript ends while a tool runs");
            self.ended += 1;
            self.goals.kept = None;
            self.cut_off.extend(batch.ended.iter().map(|(turn, _)| *turn).filter(|turn| Some(*turn) != batch.turn));
        }
        for (turn, end) in batch.ended {
            let kept = self.turns.get_mut(&turn).unwrap();
            let joined = matches!(end, TurnEnd::Joined { .. });
            assert!(kept.end.replace(end).is_none(), "ends twice");
            assert!(!joined || (kept.user && kept.messages.is_empty() && self.begun != Some(turn)));
            if Some(turn) == self.open.first().map(|seq| turn_id(*seq)) {
                self.started = None;
                self.interrupted = false;
            }
            self.open.retain(|seq| turn_id(*seq) != turn);
            self.ended_order.push(turn);
        }
        true
    }

    /// The line of `seq` is written as its turn ends by joining the running one.
    fn said(&mut self, into: TurnId, seq: u64, ended: &[(TurnId, TurnEnd)]) {
        let turn = turn_id(seq);
        assert!(ended.contains(&(turn, TurnEnd::Joined { into })));
        assert!(self.joins(into.0.as_u128() as u64, seq), "{seq} joins");
        assert_eq!(open_calls(&self.turns[&into]), 0, "a message among calls and results");
        let before = self.open.iter().filter(|other| **other < seq && turn_id(**other) != into);
        let before = before.filter(|seq| !self.asides.contains(seq));
        let passed: Vec<_> = before.filter(|seq| !self.unwanted.contains(&turn_id(**seq))).collect();
        let ends = |seq: &&u64| ended.iter().any(|(turn, _)| *turn == turn_id(**seq));
        assert!(self.queue.drop != QueueDrop::Refuse || passed.iter().all(ends), "{passed:?} wait before {seq}");
        let kept = self.turns.get_mut(&turn).unwrap();
        assert!(!std::mem::replace(&mut kept.user, true), "the user's line is there twice");
    }

    /// The journal refuses the newest commit, if it is a turn's first large one.
    pub(super) fn refuse(&mut self) {
        let Some(batch) = self.commits.back() else { return };
        let Some(turn) = batch.turn.filter(|turn| !batch.interrupted && !self.refused.contains(turn)) else { return };
        self.refused.insert(turn);
        self.commits.pop_back();
        self.forget_goals();
        self.give(Input::Refused { bytes: 20_000_000 });
    }
}
