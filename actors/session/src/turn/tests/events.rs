//! Messages that no person said: of the messages here the 10th is one.

use super::joins::{among_calls, mode};
use super::*;

/// Those in which a turn begins at once.
const MODES: [QueueMode; 3] = [QueueMode::Steer, QueueMode::Followup, QueueMode::Interrupt];

/// The 10th waits while the first of two groups of calls runs.
fn told_among_calls(rules: QueueRules) -> World {
    let mut world = among_calls(rules, 1);
    world.next_seq = 10;
    world.take(Step::Enqueue);
    world
}

#[test]
fn in_each_mode_it_is_taken_up_behind_the_calls_of_the_round_and_none_is_skipped() {
    for queue in MODES {
        let mut world = told_among_calls(mode(queue));
        for _ in 0..2 {
            world.take(Step::ToolEnds(0));
            world.take(Step::Durable);
        }
        let [Record::Said(said)] = &*world.commits[0].records else { panic!("{queue:?}: {:?}", world.commits) };
        assert_eq!(said.turn, turn_id(10));
        world.settle();
        assert_eq!(world.finished[&turn_id(10)], TurnResult::Joined, "{queue:?}");
        assert_eq!(world.finished[&turn_id(1)], TurnResult::Done, "it interrupts nothing: {queue:?}");
        assert_eq!(world.runs.len(), 2, "both calls ran: {queue:?}");
    }
}

#[test]
fn it_goes_with_a_message_that_skips_calls() {
    let mut world = told_among_calls(mode(QueueMode::Steer));
    world.next_seq = 16;
    world.take(Step::Enqueue);
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    let said: Vec<_> = world.commits[0].ended.iter().map(|(turn, _)| *turn).collect();
    assert_eq!(said, [turn_id(10), turn_id(16)]);
    world.settle();
    assert_eq!(world.runs.len(), 1, "the call that was skipped does not run");
}

#[test]
fn without_a_later_call_it_is_a_turn_of_its_own_and_people_are_told_what_began_it() {
    let mut world = World::with(mode(QueueMode::Interrupt));
    world.take(Step::Enqueue);
    world.take(Step::Read);
    world.take(Step::Permit);
    world.next_seq = 10;
    world.take(Step::Enqueue);
    world.take(Step::Answer);
    world.settle();
    assert_eq!(world.finished.values().collect::<Vec<_>>(), [&TurnResult::Done; 2]);
    let now = Now { mono: Duration::ZERO, wall_ms: 0 };
    let mut machine = Machine::new(rules());
    machine.step(Input::Queued(item(10)), now);
    let effects = machine.step(Input::Placed, now);
    let notice = effects.iter().find_map(|effect| {
        let Effect::Emit(Shown { what: TurnProgress::Notice(text), .. }) = effect else { return None };
        Some(&**text)
    });
    assert_eq!(notice, Some("sub-agent \"w\": done"));
}

#[test]
fn an_answer_that_goes_elsewhere_is_no_fellow() {
    let hook = || PushRoute { channel: "hook".into(), account: "a".into(), chat: "c".into(), thread: None };
    let mut world = among_calls(mode(QueueMode::Steer), 1);
    let pushed = Arc::new(Accepted { route: Route::Push(hook()), ..Accepted::clone(&accepted(10)) });
    world.open.push(10);
    world.turns.insert(turn_id(10), Kept::default());
    world.give(Input::Queued(InboxItem { inline: Some(pushed), ..item(10) }));
    world.settle();
    assert_eq!(world.finished[&turn_id(10)], TurnResult::Done);
    assert_eq!(world.pushed.iter().map(|row| &row.route).collect::<Vec<_>>(), [&hook()]);
}

#[test]
fn what_a_hook_tells_joins_no_turn_of_the_owner() {
    let mut world = among_calls(mode(QueueMode::Steer), 1);
    let told = Arc::new(Accepted { source: Source::new("hook:deploys").unwrap(), ..Accepted::clone(&accepted(10)) });
    world.open.push(10);
    world.turns.insert(turn_id(10), Kept::default());
    world.give(Input::Queued(InboxItem { inline: Some(told), ..item(10) }));
    world.settle();
    assert_eq!(world.finished[&turn_id(10)], TurnResult::Done);
}

#[test]
fn what_looks_like_a_command_is_none() {
    let now = Now { mono: Duration::ZERO, wall_ms: 0 };
    let mut machine = Machine::new(rules());
    let body = TurnBody { event: event(10), ..TurnBody::text("/new and forget") };
    let said = Arc::new(Accepted { body: body.encode().into(), ..Accepted::clone(&accepted(10)) });
    machine.step(Input::Queued(InboxItem { inline: Some(said), ..item(10) }), now);
    machine.step(Input::Placed, now);
    assert!(!machine.answers_command() && !machine.begins_anew());
}

/// The 10th, with an answer that it brings.
fn answered() -> InboxItem {
    let body = TurnBody { event: event(10), says: Some("they are dry".into()), ..TurnBody::text("told") };
    let said = Arc::new(Accepted { body: body.encode().into(), ..Accepted::clone(&accepted(10)) });
    InboxItem { inline: Some(said), ..item(10) }
}

#[test]
fn one_that_brings_its_answer_is_one_commit_asks_no_model_and_joins_no_turn() {
    let mut world = World::new();
    world.open.push(10);
    world.turns.insert(turn_id(10), Kept::default());
    world.give(Input::Queued(answered()));
    world.take(Step::Read);
    let [batch] = world.commits.make_contiguous() else { panic!("{:?}", world.commits) };
    let [Record::User, Record::Assistant(said, Some(TurnClose::Done))] = &*batch.records else { panic!("{batch:?}") };
    assert_eq!(said.text, "they are dry");
    world.settle();
    assert_eq!(world.finished[&turn_id(10)], TurnResult::Done);
    for queue in MODES {
        let mut world = among_calls(mode(queue), 1);
        world.open.push(10);
        world.turns.insert(turn_id(10), Kept::default());
        world.give(Input::Queued(answered()));
        world.settle();
        assert_eq!(world.finished[&turn_id(10)], TurnResult::Done, "{queue:?}");
    }
}
