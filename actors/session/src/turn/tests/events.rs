//! Messages that no person said: of the messages here the 10th is one.

use domain::run::{RunSpec, Saying};

use super::cases::calls;
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

/// The 10th, said to a sub-agent, and answered to its parent.
fn said_to_run(saying: Saying) -> InboxItem {
    let route = PushRoute { channel: "session".into(), account: "".into(), chat: "p".into(), thread: None };
    let body = TurnBody { run: Some(run()), saying: Some(saying), ..TurnBody::text("/new and count newts") };
    let said = Accepted { body: body.encode().into(), route: Route::Push(route), ..Accepted::clone(&accepted(10)) };
    InboxItem { inline: Some(said.into()), ..item(10) }
}

fn run() -> Arc<RunSpec> {
    let spec = serde_json::json!({"run": turn_id(7), "parent": "p:1", "turn": turn_id(6), "source": "ws", "label": "w",
                                  "task": "count"});
    Arc::new(serde_json::from_value(spec).unwrap())
}

/// A run whose turn, the first one, does the first of two groups of calls.
fn run_among_calls(queue: QueueMode) -> World {
    let mut world = World::with(mode(queue));
    let Some(said) = said_to_run(Saying::Send).inline else { panic!("it is at hand") };
    let body = TurnBody { run: Some(run()), ..TurnBody::text("count") };
    let body = body.encode().into();
    let said = Accepted { turn: turn_id(1), seq: Seq(1), body, ..Accepted::clone(&said) };
    hand(&mut world, InboxItem { inline: Some(said.into()), event: true, ..item(1) });
    for step in [Step::Permit, calls(&[true, false]), Step::Durable] {
        world.take(step);
    }
    world
}

fn hand(world: &mut World, item: InboxItem) {
    world.open.push(item.seq.0);
    world.turns.insert(item.turn, Kept::default());
    world.give(Input::Queued(item));
}

#[test]
fn what_a_run_is_told_steers_it_or_waits_and_holds_up_nothing() {
    for queue in MODES {
        let mut world = run_among_calls(queue);
        world.asides.insert(9);
        let later = said_to_run(Saying::Send);
        let said = later.inline.as_deref().map(|said| Accepted { turn: turn_id(9), seq: Seq(9), ..said.clone() });
        hand(&mut world, InboxItem { turn: turn_id(9), seq: Seq(9), inline: said.map(Arc::new), ..later });
        hand(&mut world, said_to_run(Saying::Steer));
        world.settle();
        assert_eq!(world.finished[&turn_id(10)], TurnResult::Joined, "{queue:?}");
        let ended = |number| world.finished[&turn_id(number)];
        assert_eq!((ended(1), ended(9)), (TurnResult::Done, TurnResult::Done), "{queue:?}");
        let sent = [1, 9].map(|number| world.turns[&turn_id(number)].run);
        assert_eq!(sent, [true, false], "what it is told later does not change what it was sent to do");
        let reports = world.pushed.iter().filter(|row| row.turn == turn_id(9));
        assert!(reports.clone().count() == 1 && reports.clone().all(|row| row.text.contains("\"later\":true")));
    }
}
