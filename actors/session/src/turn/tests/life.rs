//! The steps of a life: what each means to the machine and to the model.

use super::kept::has_result;
use super::*;

impl World {
    #[expect(clippy::too_many_lines, reason = "one arm for each step of the model")]
    pub(super) fn take(&mut self, step: Step) {
        self.now.mono += Duration::from_millis(1);
        match step {
            Step::Enqueue => {
                let seq = self.next_seq;
                self.next_seq += 1;
                self.open.push(seq);
                self.turns.insert(turn_id(seq), Kept::default());
                self.give(Input::Queued(self.item(seq)));
            }
            Step::Goal => self.enqueue_goal(),
            Step::Read => {
                if let Some(seq) = self.reading.pop_front() {
                    self.give(Input::Read(self.accepted(seq)));
                }
            }
            Step::Follow if std::mem::take(&mut self.command) => {
                let drawn = Some(Box::default());
                self.give(Input::Commanded(Box::new(Commanded { text: "told".to_owned(), drawn, resumes: None })));
            }
            Step::Woke if std::mem::take(&mut self.wakes) => {
                self.now.mono += self.queue.debounce;
                self.give(Input::Woke);
            }
            Step::Mode(mode) => {
                let set = QueueSet { mode: Some(mode), ..QueueSet::default() };
                if let Some((state, effects)) = self.machine.ask_queue(QueueAsk::Set(set), self.now) {
                    assert_eq!(state.rules.mode, mode);
                    self.perform(effects);
                    self.place();
                }
            }
            Step::OverBudget if self.machine.may_compact() && self.call.take().is_some() => {
                self.give(Input::OverBudget);
            }
            Step::TooLong if self.call.take().is_some() => self.give(Input::TooLong("too long".to_owned())),
            Step::Compacted(done) if std::mem::take(&mut self.compacting) => {
                self.give(Input::Compacted(done.then(Box::default)));
            }
            Step::Permit if std::mem::take(&mut self.permit) => self.give(Input::Permitted),
            Step::Delta if self.call.is_some() => self.give(Input::Delta(Delta::Text("x".to_owned()))),
            Step::Answer if self.call.take().is_some() => self.give(Input::Completed(message(&[]))),
            Step::Declare(status) if self.call.take().is_some() => {
                self.give(Input::Completed(declares(status)));
            }
            Step::Cut if self.call.take().is_some() => {
                self.give(Input::Completed(Box::new(AssistantMessage { stop: StopReason::Length, ..*message(&[]) })));
            }
            Step::Blank if self.call.take().is_some() => {
                self.give(Input::Completed(Box::new(AssistantMessage { text: " ".to_owned(), ..*message(&[]) })));
            }
            Step::Nameless if self.call.take().is_some() => {
                self.serial += 1;
                self.give(Input::Completed(message(&[(format!("{}-n", self.serial), "")])));
            }
            Step::Calls(reads) if self.call.take().is_some() => {
                self.serial += 1;
                let name = |read: &bool| if *read { "read" } else { "exec" };
                let calls: Vec<_> =
                    reads.iter().enumerate().map(|(at, read)| (format!("{}-{at}", self.serial), name(read))).collect();
                self.give(Input::Completed(message(&calls)));
            }
            Step::Fail if self.call.take().is_some() => self.give(Input::Failed("refused", "no".to_owned())),
            Step::ToolEnds(at) if !self.running.is_empty() => {
                let id = self.running.remove(at % self.running.len());
                self.give(Input::ToolFinished(result(&id), None));
            }
            Step::ToolEnds(_) if !self.adrift.is_empty() => {
                let id = self.adrift.remove(0);
                self.give(Input::ToolFinished(result(&id), None));
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
            Step::Close => {
                self.unwanted.extend(self.open.iter().map(|seq| turn_id(*seq)));
                let at_ms = u64::from(self.ended);
                self.give(Input::Close(Move { to: Shelf::Deleted, at_ms }));
            }
            Step::Stall => {
                self.now.mono += Duration::from_secs(301);
                (self.stalled, self.stuck) = (true, false);
                self.give(Input::Tick { heard: Duration::ZERO });
                self.stalled = false;
                if !self.stuck {
                    // The turn was stopped before.
                    self.adrift.append(&mut self.running);
                }
                if std::mem::take(&mut self.reload) {
                    // What is under way gets written before the load is answered.
                    self.load(usize::MAX, LeftBy::Crash, false);
                }
            }
            Step::Crowd(crowded) => {
                self.crowded = crowded;
                self.place();
            }
            Step::Late => self.give(Input::ToolFinished(result(&ToolCallId("no-such".into())), None)),
            Step::Crash(durable) => self.restart(durable, LeftBy::Crash),
            Step::Death(durable) => self.restart(durable, LeftBy::Death),
            Step::Interrupt => {
                self.give(Input::Interrupt);
                let before = self.ended;
                while !self.left && self.ended == before {
                    let all = [Step::Read, Step::ToolEnds(0), Step::Durable, Step::View];
                    all.into_iter().for_each(|step| self.take(step));
                }
                self.restart(0, LeftBy::Interrupted);
            }
            Step::Follow
            | Step::Woke
            | Step::Permit
            | Step::OverBudget
            | Step::TooLong
            | Step::Compacted(_)
            | Step::Delta
            | Step::Answer
            | Step::Declare(_)
            | Step::Cut
            | Step::Blank
            | Step::Nameless
            | Step::Calls(_)
            | Step::Fail
            | Step::ToolEnds(_)
            | Step::Durable
            | Step::View => {}
        }
    }

    pub(super) fn restart(&mut self, durable: usize, left_by: LeftBy) {
        let blamed = self.begun.is_some();
        self.load(durable, left_by, blamed);
    }

    pub(super) fn load(&mut self, durable: usize, left_by: LeftBy, blamed: bool) {
        for _ in 0..durable {
            if !self.write() {
                break;
            }
        }
        self.begun = None;
        (self.asks_place, self.holds_place) = (false, false);
        self.commits.clear();
        self.goals.seen = self.goals.kept.clone();
        self.reading.clear();
        self.wakes = false;
        (self.permit, self.call, self.view, self.left) = (false, None, false, false);
        self.compacting = false;
        self.command = false;
        self.running.clear();
        self.adrift.clear();
        self.machine = Machine::new(rules_with(self.queue));
        let cut = self.open.first().map(|seq| {
            let turn = turn_id(*seq);
            let kept = &self.turns[&turn];
            let fresh = Started { turn, attempt: Attempt::FIRST, crashes: 0, deaths: 0, alone: false };
            Cut {
                turn: CutTurn {
                    started: self.started.unwrap_or(fresh),
                    left_by: if self.interrupted { LeftBy::Interrupted } else { left_by },
                    blamed: false,
                    tools_started: kept.started.iter().filter(|id| !has_result(kept, id)).cloned().collect(),
                },
                blamed: blamed && left_by == LeftBy::Crash,
                alone: blamed,
                written: Written { user: kept.user, messages: kept.messages.clone(), steered: kept.steered },
            }
        });
        let items = self.open.iter().map(|seq| self.item(*seq)).collect();
        let through = Seq(self.next_seq - 1);
        let standing = Standing { cut, queue: self.own_queue, ..Standing::default() };
        let effects = self.machine.load(items, through, Inbox::default(), standing, self.now);
        self.perform(effects);
        self.place();
    }

    /// Lets everything come to its end.
    pub(super) fn settle(&mut self) {
        self.take(Step::Crowd(false));
        for _ in 0..2000 {
            for step in [
                Step::Woke,
                Step::Read,
                Step::Follow,
                Step::Permit,
                Step::Compacted(true),
                Step::Answer,
                Step::ToolEnds(0),
                Step::Durable,
                Step::View,
            ] {
                self.take(step);
            }
            if self.open.is_empty() && self.machine.is_idle() {
                return;
            }
        }
        panic!("does not come to rest: {:?}", self.machine);
    }
}
