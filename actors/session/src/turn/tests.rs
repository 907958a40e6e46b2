//! Random lives of a session against a small model of the journal: crashes, deaths and stops at any point.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;

use domain::body::TurnBody;
use domain::chat::{Arguments, Content, Message, StopReason, ToolResult, Usage};
use domain::ids::{MessageId, Seq, Source, ToolCallId};
use domain::text::{TextLimit, TextUnit};
use proptest::prelude::*;
use protocol::journal::{CutTurn, LeftBy};
use protocol::session::State;
use protocol::turn::{PushRoute, Route, TurnResult};
use serde_json::{Map, Value};
use uuid::Uuid;

use super::*;
use crate::inbox::Inbox;

fn rules() -> Arc<Rules> {
    let spec = |name: &str, parallel, idempotent| ToolSpec {
        name: name.to_owned(),
        description: String::new(),
        parameters: Value::Null,
        parallel,
        idempotent,
    };
    Arc::new(Rules {
        max_tool_iterations: 3,
        max_tool_result_chars: 1000,
        poison_attempts: 3,
        process_deaths: 20,
        stall: Duration::from_secs(300),
        tools: [spec("read", true, true), spec("exec", false, false)].into(),
        provider: "p".into(),
        model: "m".into(),
        push_limits: [("hook".into(), TextLimit { unit: TextUnit::Chars, max: 100 })].into(),
    })
}

fn turn_id(seq: u64) -> TurnId {
    TurnId(Uuid::from_u128(u128::from(seq)))
}

fn accepted(seq: u64) -> Arc<Accepted> {
    Arc::new(Accepted {
        turn: turn_id(seq),
        seq: Seq(seq),
        source: Source::new("ws").unwrap(),
        message_id: MessageId::new(&seq.to_string()).unwrap(),
        body_hash: seq,
        route: Route::Live,
        body: TurnBody::text(seq.to_string()).encode().into(),
        accepted_ms: 5,
        retry_of: None,
    })
}

/// Even messages are small, odd ones have to be read from the log.
fn item(seq: u64) -> InboxItem {
    let inline = seq.is_multiple_of(2).then(|| accepted(seq));
    InboxItem { turn: turn_id(seq), seq: Seq(seq), at: LogPosition(seq), inline, push: None }
}

fn message(calls: &[(String, &str)]) -> Box<AssistantMessage> {
    let call = |(id, name): &(String, &str)| ToolCall {
        id: ToolCallId(id.as_str().into()),
        name: (*name).to_owned(),
        arguments: Arguments::Object(Map::new()),
    };
    Box::new(AssistantMessage {
        text: "answer".to_owned(),
        reasoning: None,
        calls: calls.iter().map(call).collect(),
        stop: StopReason::Stop,
        usage: Usage::default(),
        provider: "p".into(),
        model: "m".into(),
        error: None,
    })
}

fn result(id: &ToolCallId) -> ToolResult {
    ToolResult { call: id.clone(), name: "t".to_owned(), content: vec![Content::text("out")], is_error: false }
}

#[derive(Debug, Clone)]
enum Step {
    Enqueue,
    Read,
    Permit,
    Delta,
    Answer,
    Calls(Vec<bool>),
    Fail,
    ToolEnds(usize),
    Durable,
    /// The journal will never hold the newest commit.
    Refuse,
    View,
    Stop(bool),
    Cancel(u64),
    Stall,
    /// Other sessions take all places, or give them back.
    Crowd(bool),
    Late,
    /// The actor crashes; this many of the commits under way become durable.
    Crash(usize),
    Death(usize),
    Interrupt,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => Just(Step::Enqueue),
        6 => Just(Step::Read),
        9 => Just(Step::Permit),
        2 => Just(Step::Delta),
        5 => Just(Step::Answer),
        6 => proptest::collection::vec(any::<bool>(), 1..5).prop_map(Step::Calls),
        1 => Just(Step::Fail),
        9 => (0..4usize).prop_map(Step::ToolEnds),
        12 => Just(Step::Durable),
        1 => Just(Step::Refuse),
        9 => Just(Step::View),
        1 => any::<bool>().prop_map(Step::Stop),
        1 => (1..9u64).prop_map(Step::Cancel),
        1 => Just(Step::Stall),
        1 => any::<bool>().prop_map(Step::Crowd),
        1 => Just(Step::Late),
        1 => (0..3usize).prop_map(Step::Crash),
        1 => (0..3usize).prop_map(Step::Death),
        1 => Just(Step::Interrupt),
    ]
}

/// What the journal knows of a turn.
#[derive(Debug, Default)]
struct Kept {
    user: bool,
    messages: Vec<Message>,
    started: BTreeSet<ToolCallId>,
    end: Option<TurnEnd>,
}

struct World {
    machine: Machine,
    now: Now,
    next_seq: u64,
    turns: BTreeMap<TurnId, Kept>,
    open: Vec<u64>,
    started: Option<Started>,
    interrupted: bool,
    commits: VecDeque<Batch>,
    reading: Option<u64>,
    crowded: bool,
    asks_place: bool,
    holds_place: bool,
    permit: bool,
    call: Option<Call>,
    running: Vec<ToolCallId>,
    runs: BTreeMap<ToolCallId, (u32, bool)>,
    view: bool,
    left: bool,
    finished: BTreeMap<TurnId, TurnResult>,
    ended_order: Vec<TurnId>,
    begun: Option<TurnId>,
    refused: BTreeSet<TurnId>,
    pushed: Vec<Out>,
    serial: u32,
    /// Turns that were cancelled: they may be taken up without a place, to end them.
    unwanted: BTreeSet<TurnId>,
    stalled: bool,
    reload: bool,
}

impl World {
    fn new() -> Self {
        Self {
            machine: Machine::new(rules()),
            now: Now { mono: Duration::ZERO, wall_ms: 10 },
            next_seq: 1,
            turns: BTreeMap::new(),
            open: Vec::new(),
            started: None,
            interrupted: false,
            commits: VecDeque::new(),
            reading: None,
            crowded: false,
            asks_place: false,
            holds_place: false,
            permit: false,
            call: None,
            running: Vec::new(),
            runs: BTreeMap::new(),
            view: false,
            left: false,
            finished: BTreeMap::new(),
            ended_order: Vec::new(),
            begun: None,
            refused: BTreeSet::new(),
            pushed: Vec::new(),
            serial: 0,
            unwanted: BTreeSet::new(),
            stalled: false,
            reload: false,
        }
    }

    fn give(&mut self, input: Input) {
        let effects = self.machine.step(input, self.now);
        self.perform(effects);
        self.place();
    }

    /// Gives the place that is asked for, unless others have all of them.
    fn place(&mut self) {
        if self.asks_place && !self.crowded {
            self.asks_place = false;
            // One that is not waited for any more is given back.
            if self.machine.awaits_place() {
                self.holds_place = true;
                self.give(Input::Placed);
            }
        }
    }

    fn perform(&mut self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::ReadBody(at) => self.reading = Some(at.0),
                Effect::Began(turn, _) => {
                    assert!(self.begun.is_none(), "two turns at once");
                    assert!(self.holds_place || self.unwanted.contains(&turn), "begun without a place");
                    assert_eq!(self.open.first().map(|seq| turn_id(*seq)), Some(turn), "out of order");
                    self.begun = Some(turn);
                }
                Effect::AskPermit(round) => {
                    assert!(round <= rules().max_tool_iterations + 1 + 3, "rounds are bounded");
                    self.permit = true;
                }
                Effect::CallModel(call) => {
                    assert!(self.call.is_none());
                    assert_eq!(call.tools == Tools::Withheld, call.round > rules().max_tool_iterations);
                    self.call = Some(call);
                }
                Effect::RunTool(_, call) => self.run(&call),
                Effect::Commit(batch) => self.commits.push_back(batch),
                Effect::WriteView => self.view = true,
                Effect::Emit(shown) => {
                    if let TurnProgress::Finished(finished) = shown.what {
                        assert!(self.turns[&shown.turn].end.is_some(), "finished before it is durable");
                        assert!(self.finished.insert(shown.turn, finished.result).is_none(), "finished twice");
                    }
                }
                Effect::CancelWork => {
                    self.permit = false;
                    self.call = None;
                }
                Effect::Ended(verdict) => {
                    if self.begun == Some(verdict.turn) {
                        self.begun = None;
                        self.holds_place = false;
                    }
                }
                Effect::Leave => self.left = true,
                Effect::Recovered(..) | Effect::Stuck(..) | Effect::Stale | Effect::FileStuck => {}
                Effect::EnterPlace => {
                    assert!(!self.holds_place, "a second place");
                    self.asks_place = true;
                }
                Effect::LeavePlace => assert!(std::mem::take(&mut self.holds_place), "no place to leave"),
                // Not asked for, unless the journal does not answer.
                Effect::Reload if self.stalled => self.reload = true,
                Effect::Reload | Effect::Archive | Effect::Closed => panic!("neither was asked for"),
            }
        }
    }

    fn run(&mut self, call: &ToolCall) {
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
    fn write(&mut self) -> bool {
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
            let kept = self.turns.get_mut(&turn).unwrap();
            for record in batch.records {
                keep(kept, record);
            }
            kept.started.extend(batch.tools_started);
        }
        self.interrupted |= batch.interrupted;
        self.pushed.extend(batch.out);
        for (turn, end) in batch.ended {
            let kept = self.turns.get_mut(&turn).unwrap();
            assert!(kept.end.replace(end).is_none(), "ends twice");
            if Some(turn) == self.open.first().map(|seq| turn_id(*seq)) {
                self.started = None;
                self.interrupted = false;
            }
            self.open.retain(|seq| turn_id(*seq) != turn);
            self.ended_order.push(turn);
        }
        true
    }

    /// The journal refuses the newest commit, if it is a turn's first large one.
    fn refuse(&mut self) {
        let Some(batch) = self.commits.back() else { return };
        let Some(turn) = batch.turn.filter(|turn| !batch.interrupted && !self.refused.contains(turn)) else { return };
        self.refused.insert(turn);
        self.commits.pop_back();
        self.give(Input::Refused { bytes: 20_000_000 });
    }

    #[expect(clippy::too_many_lines, reason = "one arm for each step of the model")]
    fn take(&mut self, step: Step) {
        self.now.mono += Duration::from_millis(1);
        match step {
            Step::Enqueue => {
                let seq = self.next_seq;
                self.next_seq += 1;
                self.open.push(seq);
                self.turns.insert(turn_id(seq), Kept::default());
                self.give(Input::Queued(item(seq)));
            }
            Step::Read => {
                if let Some(seq) = self.reading.take() {
                    self.give(Input::Read(accepted(seq)));
                }
            }
            Step::Permit if std::mem::take(&mut self.permit) => self.give(Input::Permitted),
            Step::Delta if self.call.is_some() => self.give(Input::Delta(Delta::Text("x".to_owned()))),
            Step::Answer if self.call.take().is_some() => self.give(Input::Completed(message(&[]))),
            Step::Calls(reads) if self.call.take().is_some() => {
                self.serial += 1;
                let name = |read: &bool| if *read { "read" } else { "exec" };
                let calls: Vec<_> =
                    reads.iter().enumerate().map(|(at, read)| (format!("{}-{at}", self.serial), name(read))).collect();
                self.give(Input::Completed(message(&calls)));
            }
            Step::Fail if self.call.take().is_some() => self.give(Input::Failed("no".to_owned())),
            Step::ToolEnds(at) if !self.running.is_empty() => {
                let id = self.running.remove(at % self.running.len());
                self.give(Input::ToolFinished(result(&id)));
            }
            Step::Durable if self.write() => self.give(Input::Committed),
            Step::Refuse => self.refuse(),
            Step::View if std::mem::take(&mut self.view) => self.give(Input::ViewWritten),
            Step::Stop(all) => {
                let reached = if all { self.open.len() } else { 1 };
                self.unwanted.extend(self.open.iter().take(reached).map(|seq| turn_id(*seq)));
                let (_, effects) = self.machine.stop(all, self.now);
                self.perform(effects);
                self.place();
            }
            Step::Cancel(seq) => {
                self.unwanted.insert(turn_id(seq));
                self.give(Input::Cancel(turn_id(seq)));
            }
            Step::Stall => {
                self.now.mono += Duration::from_secs(301);
                self.stalled = true;
                self.give(Input::Tick { heard: Duration::ZERO });
                self.stalled = false;
                if std::mem::take(&mut self.reload) {
                    // What is under way gets written before the load is answered.
                    self.load(usize::MAX, LeftBy::Crash, false);
                }
            }
            Step::Crowd(crowded) => {
                self.crowded = crowded;
                self.place();
            }
            Step::Late => self.give(Input::ToolFinished(result(&ToolCallId("no-such".into())))),
            Step::Crash(durable) => self.restart(durable, LeftBy::Crash),
            Step::Death(durable) => self.restart(durable, LeftBy::Death),
            Step::Interrupt => {
                self.give(Input::Interrupt);
                while !self.left {
                    let all = [Step::Read, Step::ToolEnds(0), Step::Durable, Step::View];
                    all.into_iter().for_each(|step| self.take(step));
                }
                self.restart(0, LeftBy::Interrupted);
            }
            Step::Permit
            | Step::Delta
            | Step::Answer
            | Step::Calls(_)
            | Step::Fail
            | Step::ToolEnds(_)
            | Step::Durable
            | Step::View => {}
        }
    }

    fn restart(&mut self, durable: usize, left_by: LeftBy) {
        let blamed = self.begun.is_some();
        self.load(durable, left_by, blamed);
    }

    fn load(&mut self, durable: usize, left_by: LeftBy, blamed: bool) {
        for _ in 0..durable {
            if !self.write() {
                break;
            }
        }
        self.begun = None;
        (self.asks_place, self.holds_place) = (false, false);
        self.commits.clear();
        (self.reading, self.permit, self.call, self.view, self.left) = (None, false, None, false, false);
        self.running.clear();
        self.machine = Machine::new(rules());
        let cut = self.open.first().map(|seq| {
            let turn = turn_id(*seq);
            let kept = &self.turns[&turn];
            let fresh = Started { turn, attempt: Attempt::FIRST, crashes: 0, deaths: 0, alone: false };
            Cut {
                turn: CutTurn {
                    started: self.started.unwrap_or(fresh),
                    left_by: if self.interrupted { LeftBy::Interrupted } else { left_by },
                    tools_started: kept.started.iter().filter(|id| !has_result(kept, id)).cloned().collect(),
                },
                blamed,
                alone: blamed,
                written: Written { user: kept.user, messages: kept.messages.clone() },
            }
        });
        let items = self.open.iter().map(|seq| item(*seq)).collect();
        let effects = self.machine.load(items, Inbox::default(), Standing { cut, ..Standing::default() }, self.now);
        self.perform(effects);
        self.place();
    }

    /// Lets everything come to its end.
    fn settle(&mut self) {
        self.take(Step::Crowd(false));
        for _ in 0..2000 {
            for step in [Step::Read, Step::Permit, Step::Answer, Step::ToolEnds(0), Step::Durable, Step::View] {
                self.take(step);
            }
            if self.open.is_empty() && self.machine.is_idle() {
                return;
            }
        }
        panic!("does not come to rest: {:?}", self.machine);
    }
}

fn has_result(kept: &Kept, id: &ToolCallId) -> bool {
    kept.messages.iter().any(|message| matches!(message, Message::ToolResult(result) if result.call == *id))
}

fn keep(kept: &mut Kept, record: Record) {
    match record {
        Record::User => {
            assert!(!kept.user, "the user's line is there twice");
            kept.user = true;
        }
        Record::Assistant(message, close) => {
            assert!(kept.user, "an answer before the question");
            assert_eq!(open_calls(kept), 0, "a message while calls have no result");
            assert!(close.is_none() || message.calls.is_empty());
            kept.messages.push(Message::Assistant(message.into()));
        }
        Record::Tool(result) => {
            assert!(!has_result(kept, &result.call), "two results");
            let before = open_calls(kept);
            kept.messages.push(Message::ToolResult(result.into()));
            assert_eq!(open_calls(kept) + 1, before, "a result without its call");
        }
    }
}

fn open_calls(kept: &Kept) -> usize {
    let last = kept.messages.iter().rev().find_map(|message| match message {
        Message::Assistant(assistant) => Some(assistant),
        Message::User(_) | Message::ToolResult(_) => None,
    });
    last.map_or(0, |last| last.calls.iter().filter(|call| !has_result(kept, &call.id)).count())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, ..ProptestConfig::default() })]
    #[test]
    fn every_life_keeps_the_promises(steps in proptest::collection::vec(step(), 0..120)) {
        let mut world = World::new();
        let mut crashed = false;
        for step in steps {
            crashed |= matches!(step, Step::Crash(_) | Step::Death(_) | Step::Stall);
            world.take(step);
        }
        world.settle();
        for (turn, kept) in &world.turns {
            prop_assert!(kept.end.is_some(), "{} is still open", turn);
            prop_assert_eq!(open_calls(kept), 0);
            // A crash between the durable end and its event loses the event; the transcript has the end.
            prop_assert!(crashed || world.finished.contains_key(turn));
        }
    }
}

/// A world with one message that waits for the model.
fn thinking() -> World {
    let mut world = World::new();
    world.take(Step::Enqueue);
    world.take(Step::Read);
    world.take(Step::Permit);
    assert!(world.call.is_some());
    world
}

fn calls(reads: &[bool]) -> Step {
    Step::Calls(reads.to_vec())
}

#[test]
fn a_plain_turn_is_one_commit() {
    let mut world = thinking();
    world.take(Step::Answer);
    assert_eq!(world.commits.len(), 1);
    assert_eq!(world.commits[0].records.len(), 2);
    assert!(world.finished.is_empty());
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
}

#[test]
fn the_next_turn_waits_for_the_file() {
    let mut world = thinking();
    world.take(Step::Enqueue);
    world.take(Step::Answer);
    world.take(Step::Durable);
    assert_eq!(world.begun, None);
    world.take(Step::View);
    assert_eq!(world.begun, Some(turn_id(2)));
}

#[test]
fn too_many_rounds_end_in_a_summary() {
    let mut world = thinking();
    for _ in 0..3 {
        for step in [calls(&[true]), Step::Durable, Step::ToolEnds(0), Step::Durable, Step::Permit] {
            world.take(step);
        }
    }
    assert_eq!(world.call, Some(Call { round: 4, tools: Tools::Withheld }));
    world.take(calls(&[true]));
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
}

#[test]
fn a_stop_awaits_the_running_tool_and_answers_the_others() {
    let mut world = thinking();
    world.take(calls(&[false, false, true]));
    world.take(Step::Durable);
    assert_eq!(world.running.len(), 1);
    world.take(Step::Stop(false));
    assert!(world.commits.is_empty());
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    assert_eq!(world.commits[0].records.len(), 3, "two results and the notice");
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Cancelled);
}

#[test]
fn an_answer_that_cannot_be_kept_ends_its_turn_with_a_notice() {
    let mut world = thinking();
    world.take(Step::Delta);
    world.take(Step::Answer);
    world.take(Step::Refuse);
    let [Record::User, Record::Assistant(notice, Some(TurnClose::Failed))] = &*world.commits[0].records else {
        panic!("{:?}", world.commits)
    };
    assert_eq!((notice.text.as_str(), notice.stop), ("", StopReason::Error));
    assert!(notice.error.as_ref().unwrap().contains("20 MB"));
    world.settle();
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
    world.take(Step::Enqueue);
    world.settle();
    assert_eq!(world.finished[&turn_id(2)], TurnResult::Done);
}

#[test]
fn calls_that_cannot_be_kept_do_not_run_and_get_no_results() {
    let mut world = thinking();
    world.take(calls(&[true, false]));
    world.take(Step::Refuse);
    assert_eq!(world.commits[0].records.len(), 2);
    world.settle();
    assert!(world.runs.is_empty());
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
}

#[test]
fn a_result_that_cannot_be_kept_is_replaced_once_the_other_calls_have_ended() {
    let mut world = thinking();
    world.take(calls(&[true, true, false]));
    world.take(Step::Durable);
    world.take(Step::ToolEnds(0));
    world.take(Step::Refuse);
    assert!(world.commits.is_empty());
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    assert_eq!(world.commits[0].records.len(), 3, "two results and the notice");
    world.settle();
    assert_eq!(world.runs.len(), 2);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
}

#[test]
fn a_refusal_of_what_is_smaller_leaves_the_message_out_and_then_loads_again() {
    let mut world = thinking();
    world.take(Step::Answer);
    for records in [2, 1] {
        world.commits.pop_back();
        world.give(Input::Refused { bytes: 1 });
        assert_eq!(world.commits[0].records.len(), records);
    }
    let effects = world.machine.step(Input::Refused { bytes: 1 }, world.now);
    assert!(matches!(*effects, [Effect::Reload]), "{effects:?}");
}

#[test]
fn stop_all_cancels_the_waiting_turns_each_in_its_place() {
    let mut world = thinking();
    for _ in 0..3 {
        world.take(Step::Enqueue);
    }
    world.take(Step::Stop(true));
    world.settle();
    assert_eq!(world.ended_order, [1, 2, 3, 4].map(turn_id));
    assert!(world.finished.values().all(|result| *result == TurnResult::Cancelled), "{:?}", world.finished);
}

#[test]
fn a_turn_without_progress_is_reported_and_ended() {
    let mut world = thinking();
    world.take(Step::Stall);
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
}

#[test]
fn an_orderly_stop_between_two_turns_is_no_death_of_the_second() {
    let mut world = thinking();
    world.take(Step::Enqueue);
    world.take(Step::Answer);
    world.take(Step::Durable);
    world.give(Input::Interrupt);
    assert!(!world.left && world.commits[0].interrupted);
    world.take(Step::Durable);
    assert!(world.left && world.interrupted);
}

#[test]
fn a_drained_session_ends_its_turn_and_keeps_the_queue() {
    let mut world = thinking();
    world.take(Step::Enqueue);
    world.give(Input::Drain);
    world.take(Step::Answer);
    world.take(Step::Durable);
    assert_eq!(world.finished.get(&turn_id(1)), Some(&TurnResult::Done));
    assert!(!world.left && world.commits[0].interrupted, "the next turn is no death");
    world.take(Step::Durable);
    assert!(world.left && !world.finished.contains_key(&turn_id(2)));
}

#[test]
fn waiting_for_a_permit_is_no_stall_as_long_as_others_get_one() {
    let mut world = World::new();
    world.take(Step::Enqueue);
    world.take(Step::Read);
    world.now.mono += Duration::from_secs(900);
    world.give(Input::Tick { heard: world.now.mono - Duration::from_secs(299) });
    assert!(world.commits.is_empty());
    world.now.mono += Duration::from_secs(1);
    assert_eq!(world.machine.overdue(world.now), Some(Waits::Permit));
    world.give(Input::Tick { heard: world.now.mono - Duration::from_secs(300) });
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
}

#[test]
fn new_messages_do_not_reset_the_timer_and_tokens_do() {
    let mut world = thinking();
    world.now.mono += Duration::from_secs(299);
    world.take(Step::Delta);
    world.now.mono += Duration::from_secs(299);
    world.take(Step::Enqueue);
    world.give(Input::Tick { heard: Duration::ZERO });
    assert!(world.commits.is_empty());
    world.now.mono += Duration::from_secs(1);
    world.give(Input::Tick { heard: Duration::ZERO });
    assert_eq!(world.commits.len(), 1);
}

#[test]
fn the_timer_of_a_recovered_turn_starts_when_it_is_loaded() {
    let mut world = thinking();
    world.now.mono += Duration::from_secs(100_000);
    world.take(Step::Crash(0));
    world.take(Step::Read);
    world.give(Input::Tick { heard: Duration::ZERO });
    assert!(world.commits.iter().all(|batch| batch.ended.is_empty()), "{:?}", world.commits);
}

#[test]
fn a_turn_that_waits_for_the_journal_too_long_asks_it_anew() {
    let mut world = World::new();
    world.take(Step::Enqueue);
    assert_eq!(world.reading, Some(1));
    world.now.mono += Duration::from_secs(300);
    let effects = world.machine.step(Input::Tick { heard: Duration::ZERO }, world.now);
    assert!(matches!(effects[..], [Effect::Stuck(_, _, Waits::Message), Effect::Reload]), "{effects:?}");
    let mut world = thinking();
    world.take(Step::Answer);
    world.now.mono += Duration::from_secs(300);
    let effects = world.machine.step(Input::Tick { heard: Duration::ZERO }, world.now);
    assert!(matches!(effects[..], [Effect::Stuck(_, _, Waits::Journal), Effect::Reload]), "{effects:?}");
}

#[test]
fn a_file_that_is_not_written_holds_no_turn_up_for_longer() {
    let mut world = thinking();
    world.take(Step::Answer);
    world.take(Step::Enqueue);
    world.take(Step::Durable);
    assert!(world.view && world.begun.is_none());
    world.now.mono += Duration::from_secs(300);
    world.give(Input::Tick { heard: Duration::ZERO });
    assert_eq!(world.begun, Some(turn_id(2)));
}

#[test]
fn a_cut_turn_that_is_stopped_while_it_waits_for_a_place_gets_its_results_and_its_end() {
    let mut world = thinking();
    world.take(calls(&[false]));
    world.take(Step::Crowd(true));
    world.take(Step::Crash(1));
    assert_eq!((world.machine.state(), world.reading), (State::Waiting, None));
    world.take(Step::Stop(true));
    for step in [Step::Read, Step::Durable, Step::Durable, Step::Durable] {
        world.take(step);
    }
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Cancelled);
    assert_eq!(open_calls(&world.turns[&turn_id(1)]), 0);
}

#[test]
fn a_turn_begins_when_there_is_a_place_and_a_cancelled_one_needs_none() {
    let mut world = World::new();
    world.take(Step::Crowd(true));
    world.take(Step::Enqueue);
    world.take(Step::Enqueue);
    assert_eq!((world.machine.state(), world.reading), (State::Waiting, None));
    world.take(Step::Cancel(1));
    world.take(Step::Cancel(2));
    for step in [Step::Read, Step::Durable, Step::View, Step::Read, Step::Durable, Step::View] {
        world.take(step);
    }
    world.take(Step::Crowd(false));
    assert!(!world.holds_place && world.machine.is_idle());
    world.take(Step::Enqueue);
    assert_eq!(world.reading, Some(3));
}

#[test]
fn a_tool_that_never_ends_is_left_behind() {
    let mut world = thinking();
    world.take(calls(&[false]));
    world.take(Step::Durable);
    world.take(Step::Stall);
    assert!(world.commits.is_empty());
    world.take(Step::Stall);
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
}

#[test]
fn a_turn_that_crashes_three_times_is_given_up_and_the_next_one_runs() {
    let mut world = thinking();
    world.take(Step::Enqueue);
    for _ in 0..3 {
        world.take(Step::Crash(0));
        world.take(Step::Read);
        world.take(Step::Durable);
    }
    assert_eq!(world.finished[&turn_id(1)], TurnResult::DeadLettered);
    world.settle();
    assert_eq!(world.finished[&turn_id(2)], TurnResult::Done);
}

#[test]
fn a_call_of_unknown_outcome_is_not_repeated_and_an_idempotent_one_is() {
    for (read, runs) in [(false, 1), (true, 2)] {
        let mut world = thinking();
        world.take(calls(&[read]));
        world.take(Step::Durable);
        world.take(Step::Crash(0));
        world.settle();
        assert_eq!(world.runs.values().map(|(runs, _)| *runs).sum::<u32>(), runs);
        assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
    }
}

#[test]
fn a_turn_whose_end_stands_in_the_transcript_ends_without_running_again() {
    let now = Now { mono: Duration::ZERO, wall_ms: 0 };
    let mut machine = Machine::new(rules());
    let items = vec![item(2), item(4)];
    let started = Started { turn: turn_id(2), attempt: Attempt::FIRST, crashes: 0, deaths: 0, alone: false };
    let cut = Cut {
        turn: CutTurn { started, left_by: LeftBy::Death, tools_started: Vec::new() },
        blamed: false,
        alone: false,
        written: Written { user: true, messages: Vec::new() },
    };
    let standing = Standing { cut: Some(cut), answered: [turn_id(2)].into() };
    let effects = machine.load(items, Inbox::default(), standing, now);
    let Some(Effect::Commit(batch)) = effects.first() else { panic!("{effects:?}") };
    assert_eq!(batch.ended, [(turn_id(2), TurnEnd::Done)]);
    machine.step(Input::Committed, now);
    machine.step(Input::Placed, now);
    assert_eq!(machine.running().map(|(turn, attempt, ..)| (turn, attempt)), Some((turn_id(4), Attempt::FIRST)));
}

fn hook() -> PushRoute {
    PushRoute { channel: "hook".into(), account: "a".into(), chat: "c".into(), thread: None }
}

fn offer(world: &mut World, item: InboxItem) {
    world.open.push(item.seq.0);
    world.turns.insert(item.turn, Kept::default());
    world.give(Input::Queued(item));
}

/// A world whose one message came from a chat that is sent its reply; the turn waits for the model.
fn pushing() -> World {
    let mut world = World::new();
    let pushed = |route| Arc::new(Accepted { route, ..Accepted::clone(&accepted(2)) });
    offer(&mut world, InboxItem { inline: Some(pushed(Route::Push(hook()))), ..item(2) });
    world.take(Step::Permit);
    assert!(world.call.is_some());
    world
}

fn told(world: &World) -> Vec<(u32, &str)> {
    world.commits.iter().flat_map(|batch| &batch.out).map(|row| (row.id.n, &*row.text)).collect()
}

#[test]
fn a_pushed_reply_is_in_the_commit_that_ends_its_turn() {
    let mut world = pushing();
    world.take(calls(&[true]));
    assert_eq!(told(&world), [], "the turn goes on");
    for step in [Step::Durable, Step::ToolEnds(0), Step::Durable, Step::Permit, Step::Answer] {
        world.take(step);
    }
    assert_eq!(told(&world), [(1, "answer")]);
    let batch = world.commits.back().unwrap();
    assert_eq!((batch.ended.as_slice(), &batch.out[0].route), ([(turn_id(2), TurnEnd::Done)].as_slice(), &hook()));
}

#[test]
fn notices_of_failed_cancelled_and_given_up_turns_are_pushed_too() {
    let mut world = pushing();
    world.take(Step::Fail);
    assert_eq!(told(&world).len(), 1);
    let mut world = pushing();
    world.take(Step::Stop(false));
    assert_eq!(told(&world), [(1, domain::prompt::CANCELLED_NOTICE)]);
    let mut world = pushing();
    world.take(Step::Answer);
    world.take(Step::Refuse);
    assert!(told(&world)[0].1.contains("20 MB"), "{:?}", told(&world));
    let now = Now { mono: Duration::ZERO, wall_ms: 0 };
    let mut machine = Machine::new(rules());
    machine.step(Input::Queued(InboxItem { inline: None, push: Some(hook().into()), ..item(1) }), now);
    machine.step(Input::Placed, now);
    let unreadable = machine.step(Input::Unreadable, now);
    let dead = unreadable.iter().find_map(|effect| if let Effect::Commit(batch) = effect { Some(batch) } else { None });
    let [row] = dead.unwrap().out.as_slice() else { panic!("{dead:?}") };
    assert!(row.text.contains("given up"), "{row:?}");
}

#[test]
fn turns_that_are_cancelled_while_they_wait_tell_their_chats() {
    let mut world = pushing();
    for seq in [3, 5] {
        offer(&mut world, InboxItem { push: Some(hook().into()), ..item(seq) });
    }
    offer(&mut world, item(7));
    world.take(Step::Cancel(3));
    world.take(Step::Stop(true));
    world.settle();
    let told: Vec<(TurnId, &str)> = world.pushed.iter().map(|row| (row.turn, &*row.text)).collect();
    assert_eq!(told, [2, 3, 5].map(|seq| (turn_id(seq), domain::prompt::CANCELLED_NOTICE)));
}

#[test]
fn live_turns_push_nothing() {
    let mut world = thinking();
    world.take(Step::Answer);
    assert_eq!(world.commits.len(), 1);
    assert_eq!(told(&world), []);
}
