//! Goals: what the model knows of them, and checks of it.

use domain::goal::{CONTINUATIONS_MAX, Goal};

use super::*;

/// The goals of a world.
#[derive(Debug, Default)]
pub(super) struct Goals {
    /// Messages that set one.
    messages: BTreeSet<u64>,
    /// What the journal has.
    pub(super) kept: Option<Arc<Goal>>,
    /// What it has when all is written that is under way.
    pub(super) seen: Option<Arc<Goal>>,
}

/// An answer behind which nobody is sent on.
pub(super) fn declares(status: Status) -> Box<AssistantMessage> {
    let word = if status == Status::Completed { "completed" } else { "blocked" };
    Box::new(AssistantMessage::new(format!("that is it\nGOAL: {word} so be it"), "p", "m"))
}

fn follow(goal: &mut Option<Arc<Goal>>, record: &Record) {
    match record {
        Record::Goal(new) => *goal = Some(Arc::new(new.clone())),
        Record::PauseGoal => pause(goal),
        Record::Reset(_) => *goal = None,
        Record::User
        | Record::Run(_)
        | Record::Said(_)
        | Record::Queue(_)
        | Record::Assistant(..)
        | Record::Tool(_) => {}
    }
}

fn pause(goal: &mut Option<Arc<Goal>>) {
    if let Some(active) = goal.as_deref().filter(|goal| goal.is_active()) {
        *goal = Some(Arc::new(active.ended(Status::Paused, None)));
    }
}

impl World {
    /// A message that sets a goal, where no command and no event would stand.
    pub(super) fn enqueue_goal(&mut self) {
        if !matches!(self.next_seq % 7, 4..=6) && event(self.next_seq).is_none() {
            self.goals.messages.insert(self.next_seq);
        }
        self.take(Step::Enqueue);
    }

    pub(super) fn accepted(&self, seq: u64) -> Arc<Accepted> {
        let accepted = accepted(seq);
        if !self.goals.messages.contains(&seq) {
            return accepted;
        }
        let body = TurnBody::text(format!("/goal reach {seq}")).encode().into();
        Arc::new(Accepted { body, ..Accepted::clone(&accepted) })
    }

    pub(super) fn item(&self, seq: u64) -> InboxItem {
        let item = item(seq);
        InboxItem { inline: item.inline.as_ref().map(|_| self.accepted(seq)), ..item }
    }

    /// Whether `other` may be taken up by the turn of `seq`.
    pub(super) fn joins(&self, seq: u64, other: u64) -> bool {
        joins(seq, other) && !self.goals.messages.contains(&other)
    }

    /// How many rounds with tools the running turn may have by now.
    pub(super) fn rounds_max(&self) -> u32 {
        let continued = self.begun.map_or(0, |turn| self.turns[&turn].continued);
        rules().max_tool_iterations * (continued + 1)
    }

    /// A commit is under way.
    pub(super) fn see_goals(&mut self, batch: &Batch) {
        for record in &batch.records {
            if let Record::Assistant(answer, None) = record
                && answer.calls.is_empty()
                && !answer.is_cut()
            {
                let sets = batch.records.iter().any(|record| matches!(record, Record::Goal(goal) if goal.is_active()));
                let works = self.goals.seen.as_deref().is_some_and(Goal::is_active);
                assert!(works || sets, "the model is sent on without a goal");
                assert_eq!(self.open.len(), 1, "the model is sent on while others wait");
            }
        }
        batch.records.iter().for_each(|record| follow(&mut self.goals.seen, record));
    }

    /// The newest commit is not one any more.
    pub(super) fn forget_goals(&mut self) {
        let mut seen = self.goals.kept.clone();
        let under_way = self.commits.iter().flat_map(|batch| &batch.records);
        under_way.for_each(|record| follow(&mut seen, record));
        self.goals.seen = seen;
    }

    pub(super) fn pause_goal(&mut self) {
        pause(&mut self.goals.kept);
    }

    pub(super) fn keep_goal(&mut self, turn: TurnId, goal: Goal) {
        let kept = &self.turns[&turn];
        if goal.is_active() {
            let sets = self.goals.messages.contains(&(turn.0.as_u128() as u64));
            assert!(sets && !kept.user, "a goal that nobody sets, or twice");
        } else {
            let before = self.goals.kept.as_deref().filter(|before| before.is_active());
            assert_eq!(before.map(|before| &before.objective), Some(&goal.objective), "the end of another goal");
            assert!(kept.answer().contains("GOAL:"), "the model did not say so");
        }
        self.goals.kept = Some(Arc::new(goal));
    }
}

/// Few messages, so that the model is sent on.
fn any_step() -> impl Strategy<Value = Step> {
    let ends = proptest::sample::select(vec![Status::Completed, Status::Blocked]);
    prop_oneof![
        2 => Just(Step::Goal),
        1 => ends.prop_map(Step::Declare),
        1 => Just(Step::Enqueue),
        20 => Just(Step::Read),
        20 => Just(Step::Permit),
        12 => Just(Step::Answer),
        30 => Just(Step::Durable),
        12 => Just(Step::View),
        20 => step().prop_filter("messages come seldom", |step| !matches!(step, Step::Enqueue)),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn every_life_with_goals_keeps_the_promises(
        mode in proptest::sample::select(vec![QueueMode::Followup, QueueMode::Steer, QueueMode::Collect]),
        steps in proptest::collection::vec(any_step(), 0..200),
    ) {
        let mut world = World::with(QueueRules { mode, ..QueueRules::default() });
        let mut crashed = false;
        world.take(Step::Goal);
        for step in steps {
            crashed |= matches!(step, Step::Crash(_) | Step::Death(_) | Step::Stall);
            world.take(step);
        }
        world.settle();
        for (turn, kept) in &world.turns {
            prop_assert!(kept.end.is_some(), "{} is still open", turn);
            prop_assert!(open_calls(kept) == 0 || world.cut_off.contains(turn));
            prop_assert!(crashed || world.finished.contains_key(turn));
        }
    }
}

/// A world in which the model is asked for the first answer to a message that sets a goal.
fn pursuing() -> World {
    let mut world = World::new();
    world.take(Step::Goal);
    world.take(Step::Read);
    world.take(Step::Permit);
    world
}

/// The model answers, that is durable, and it is asked again.
fn sent_on(world: &mut World) {
    for step in [Step::Answer, Step::Durable, Step::Permit] {
        world.take(step);
    }
}

#[test]
fn the_model_is_sent_on_twelve_times_also_over_crashes_and_then_the_turn_ends() {
    for crash in [None, Some(Step::Crash(0)), Some(Step::Death(0)), Some(Step::Interrupt)] {
        let mut world = pursuing();
        (0..5).for_each(|_| sent_on(&mut world));
        world.take(Step::Answer);
        world.take(Step::Durable);
        crash.into_iter().for_each(|crash| world.take(crash));
        world.settle();
        assert_eq!(
            (world.turns[&turn_id(1)].continued, world.finished[&turn_id(1)]),
            (CONTINUATIONS_MAX, TurnResult::Done)
        );
        assert!(world.goals.kept.as_deref().is_some_and(Goal::is_active), "the next message goes on with it");
    }
}

#[test]
fn a_message_that_comes_meanwhile_ends_the_turn_and_goes_on_with_the_goal() {
    let mut world = pursuing();
    sent_on(&mut world);
    world.take(Step::Enqueue);
    world.take(Step::Answer);
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
    world.settle();
    assert_eq!(world.turns[&turn_id(1)].continued, 1);
    assert_eq!(world.turns[&turn_id(2)].continued, CONTINUATIONS_MAX);
}

#[test]
fn what_was_said_before_the_model_was_sent_on_is_no_part_of_the_next_answer() {
    let mut world = pursuing();
    for step in [Step::Cut, Step::Durable, Step::Permit] {
        world.take(step);
    }
    sent_on(&mut world);
    // A blank answer is asked for again, as it would be of a turn that has said nothing.
    world.take(Step::Blank);
    assert!(world.permit);
    world.take(Step::Permit);
    world.take(Step::Declare(Status::Completed));
    world.settle();
    assert_eq!(world.turns[&turn_id(1)].messages.len(), 3);
}

#[test]
fn a_goal_whose_message_was_cancelled_while_it_waited_is_not_set() {
    let mut world = World::new();
    world.take(Step::Enqueue);
    world.take(Step::Goal);
    world.take(Step::Stop(true));
    world.settle();
    assert_eq!((world.finished[&turn_id(2)], world.goals.kept), (TurnResult::Cancelled, None));
}

#[test]
fn a_goal_is_set_also_when_the_first_answer_cannot_be_kept() {
    let mut world = pursuing();
    world.take(Step::Answer);
    world.take(Step::Refuse);
    world.settle();
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
    assert!(world.goals.kept.as_deref().is_some_and(Goal::is_active));
}

#[test]
fn an_answer_that_stays_cut_is_sent_no_further() {
    let mut world = pursuing();
    for _ in 0..4 {
        for step in [Step::Cut, Step::Durable, Step::Permit] {
            world.take(step);
        }
    }
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
}

#[test]
fn what_a_stop_interrupts_is_worked_on_no_further_and_events_begin_nothing_either() {
    for (before, stop) in [(0, Step::Stop(false)), (3, Step::Stop(true))] {
        let mut world = pursuing();
        (0..before).for_each(|_| sent_on(&mut world));
        world.take(stop);
        world.settle();
        assert_eq!(world.finished[&turn_id(1)], TurnResult::Cancelled);
        assert_eq!(world.goals.kept.as_deref().map(|goal| goal.status), Some(Status::Paused));
        world.take(Step::Enqueue);
        world.settle();
        assert_eq!((world.finished[&turn_id(2)], world.turns[&turn_id(2)].continued), (TurnResult::Done, 0));
    }
}
