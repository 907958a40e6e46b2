//! Messages that the running turn takes up, interrupts, drops. Of the messages here the 4th is `/new`, the 5th `/history`.

use super::cases::calls;
use super::recover::Standing;
use super::*;

pub(super) fn mode(mode: QueueMode) -> QueueRules {
    QueueRules { mode, ..QueueRules::default() }
}

fn any_rules() -> impl Strategy<Value = QueueRules> {
    let modes = [QueueMode::Steer, QueueMode::Followup, QueueMode::Collect, QueueMode::Interrupt];
    let drops = [QueueDrop::Refuse, QueueDrop::Old, QueueDrop::Summarize];
    let rules = (proptest::sample::select(modes.to_vec()), proptest::sample::select(drops.to_vec()), 1..4u32);
    rules.prop_map(|(mode, drop, cap)| QueueRules { mode, drop, cap, ..QueueRules::default() })
}

fn any_step() -> impl Strategy<Value = Step> {
    let modes = [QueueMode::Steer, QueueMode::Collect, QueueMode::Interrupt];
    prop_oneof![30 => step(), 1 => proptest::sample::select(modes.to_vec()).prop_map(Step::Mode)]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, ..ProptestConfig::default() })]
    #[test]
    fn every_life_keeps_the_promises_in_every_mode(rules in any_rules(), steps in proptest::collection::vec(any_step(), 0..140)) {
        let mut world = World::with(rules);
        let mut crashed = false;
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

/// A world in which two groups of calls were made, the first of which runs, and messages up to `last` wait.
pub(super) fn among_calls(rules: QueueRules, last: u64) -> World {
    let mut world = World::with(rules);
    world.take(Step::Enqueue);
    for step in [Step::Read, Step::Permit, calls(&[true, false]), Step::Durable] {
        world.take(step);
    }
    (2..=last).for_each(|_| world.take(Step::Enqueue));
    world
}

#[test]
fn what_waits_is_taken_up_between_two_groups_of_calls() {
    let mut world = among_calls(mode(QueueMode::Steer), 2);
    assert!(world.machine.steers().is_some());
    world.take(Step::ToolEnds(0));
    assert!(world.commits[0].tools_started.is_empty(), "the second group waits");
    world.take(Step::Durable);
    let [Record::Tool(skipped), Record::Said(said)] = &*world.commits[0].records else { panic!("{:?}", world.commits) };
    assert!(skipped.is_error && said.turn == turn_id(2));
    assert!(!world.finished.contains_key(&turn_id(2)), "its end is not durable");
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(2)], TurnResult::Joined);
    assert!(world.permit, "the next round follows");
    world.settle();
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
    assert_eq!(world.runs.len(), 1, "the call that was skipped does not run");
}

#[test]
fn nothing_that_comes_behind_a_command_or_another_door_is_offered_to_the_running_turn() {
    let waiting = |last| among_calls(mode(QueueMode::Steer), last).machine.steers().is_some();
    assert_eq!([1, 2, 3, 4, 5].map(waiting), [true, true, true, false, false], "the 4th is a command");
}

#[test]
fn three_are_taken_up_at_once_those_in_the_log_are_read_and_a_command_stays() {
    // 3 has to be read; 4 is a command.
    let mut world = among_calls(mode(QueueMode::Steer), 5);
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    assert!(world.commits.is_empty() && world.reading == [3]);
    world.take(Step::Read);
    assert_eq!(world.commits[0].ended.len(), 2);
    world.settle();
    assert_eq!((world.finished[&turn_id(2)], world.finished[&turn_id(3)]), (TurnResult::Joined, TurnResult::Joined));
    assert_eq!((world.finished[&turn_id(4)], world.finished[&turn_id(5)]), (TurnResult::Done, TurnResult::Done));
}

#[test]
fn a_message_without_a_later_call_is_a_turn_of_its_own() {
    let mut world = World::with(mode(QueueMode::Steer));
    world.take(Step::Enqueue);
    world.take(Step::Read);
    world.take(Step::Permit);
    world.take(Step::Enqueue);
    world.take(Step::Answer);
    world.settle();
    assert_eq!(world.finished.values().collect::<Vec<_>>(), [&TurnResult::Done; 2]);
}

#[test]
fn a_crash_around_the_commit_that_takes_up_neither_loses_nor_repeats() {
    for durable in 0..=1 {
        for end in [Step::Crash(durable), Step::Death(durable)] {
            let mut world = among_calls(mode(QueueMode::Steer), 2);
            world.take(Step::ToolEnds(0));
            world.take(Step::Durable);
            assert!(!world.commits.is_empty());
            world.take(end);
            assert_eq!(world.turns[&turn_id(2)].user, durable == 1);
            world.settle();
            let joined = world.turns[&turn_id(2)].end == Some(TurnEnd::Joined { into: turn_id(1) });
            // What was not taken up in time is taken up behind the call that runs now, or runs by itself.
            assert!(joined || durable == 0);
            assert_eq!(world.turns[&turn_id(1)].end, Some(TurnEnd::Done));
        }
    }
}

#[test]
fn a_commit_that_cannot_be_kept_gives_back_what_it_took_up() {
    let mut world = among_calls(mode(QueueMode::Steer), 2);
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    world.take(Step::Refuse);
    world.settle();
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
    assert_eq!(world.finished[&turn_id(2)], TurnResult::Done, "it is a turn of its own");
}

#[test]
fn a_stop_while_messages_are_read_leaves_them_where_they_are() {
    let mut world = among_calls(mode(QueueMode::Steer), 3);
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    assert_eq!(world.reading, [3]);
    world.take(Step::Stop(false));
    world.settle();
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Cancelled);
    assert_eq!((world.finished[&turn_id(2)], world.finished[&turn_id(3)]), (TurnResult::Done, TurnResult::Done));
}

#[test]
fn a_message_that_cannot_be_read_is_left_to_its_own_turn() {
    let mut world = among_calls(mode(QueueMode::Steer), 3);
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    world.reading.clear();
    world.give(Input::Unreadable(LogPosition(3)));
    assert_eq!(world.commits[0].ended.len(), 1, "the one before it is taken up");
}

#[test]
fn what_waits_is_collected_once_nothing_more_comes() {
    let mut world = World::with(mode(QueueMode::Collect));
    world.take(Step::Enqueue);
    world.take(Step::Read);
    assert!(!world.wakes && world.permit, "what comes when nothing runs waits for nothing");
    (2..=3).for_each(|_| world.take(Step::Enqueue));
    for step in [Step::Permit, Step::Answer, Step::Durable, Step::View] {
        world.take(step);
    }
    assert!(world.wakes && world.begun.is_none(), "what came meanwhile waits for more");
    world.take(Step::Woke);
    // 3 is read.
    world.take(Step::Read);
    let [Record::User, Record::Said(third)] = &*world.commits[0].records else { panic!("{:?}", world.commits) };
    assert_eq!(third.turn, turn_id(3));
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(3)], TurnResult::Joined);
    world.settle();
    assert_eq!((world.finished[&turn_id(1)], world.finished[&turn_id(2)]), (TurnResult::Done, TurnResult::Done));
    assert_eq!(world.turns[&turn_id(2)].messages.len(), 1);
}

#[test]
fn a_message_that_wakes_a_session_waits_for_no_others() {
    let mut machine = Machine::new(rules_with(mode(QueueMode::Collect)));
    let now = Now { mono: Duration::ZERO, wall_ms: 10 };
    let effects = machine.load(vec![item(2)], Seq(2), Inbox::default(), Standing::default(), now);
    assert!(matches!(&*effects, [Effect::EnterPlace]), "{effects:?}");
    let mut machine = Machine::new(rules_with(mode(QueueMode::Collect)));
    let effects = machine.load(vec![item(2), item(3)], Seq(3), Inbox::default(), Standing::default(), now);
    assert!(matches!(&*effects, [Effect::Wake(_)]), "some waited to be collected: {effects:?}");
}

#[test]
fn whoever_watches_is_told_at_once_that_a_message_was_dropped() {
    for drop in [QueueDrop::Old, QueueDrop::Summarize] {
        let mut world = among_calls(QueueRules { cap: 1, drop, ..mode(QueueMode::Followup) }, 2);
        let effects = world.machine.step(Input::Queued(item(3)), world.now);
        let [Effect::Emit(Shown { turn, what: TurnProgress::Notice(text), .. })] = &*effects else {
            panic!("{effects:?}")
        };
        assert_eq!(*turn, turn_id(1));
        assert_eq!(&**text, "Too many messages are waiting, so the oldest was dropped: 2");
    }
}

#[test]
fn a_new_message_interrupts_the_running_turn_but_not_those_that_wait() {
    let mut world = among_calls(mode(QueueMode::Interrupt), 2);
    assert!(world.machine.steers().is_none());
    world.take(Step::ToolEnds(0));
    world.settle();
    let cancelled = TurnEnd::Cancelled { why: "interrupted_by_message".into() };
    assert_eq!(world.turns[&turn_id(1)].end, Some(cancelled));
    assert_eq!(world.finished[&turn_id(2)], TurnResult::Done);
    // One in the log is read first; a command interrupts nothing.
    let mut world = among_calls(mode(QueueMode::Interrupt), 1);
    world.next_seq = 3;
    world.take(Step::Enqueue);
    assert_eq!(world.reading, [3]);
    world.take(Step::Read);
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    assert_eq!(world.commits[0].ended.len(), 1);
    let mut world = among_calls(mode(QueueMode::Interrupt), 1);
    world.next_seq = 4;
    world.take(Step::Enqueue);
    world.settle();
    assert_eq!(world.finished.values().collect::<Vec<_>>(), [&TurnResult::Done; 2]);
}

#[test]
fn the_oldest_of_too_many_are_dropped_and_the_next_turn_is_told() {
    let rules = QueueRules { cap: 1, drop: QueueDrop::Summarize, ..mode(QueueMode::Followup) };
    let mut world = among_calls(rules, 3);
    for step in [Step::ToolEnds(0), Step::Durable, Step::ToolEnds(0), Step::Durable, Step::Permit, Step::Answer] {
        world.take(step);
    }
    for step in [Step::Durable, Step::View, Step::Read, Step::Durable, Step::View, Step::Read, Step::Permit] {
        world.take(step);
    }
    assert_eq!(world.turns[&turn_id(2)].end, Some(TurnEnd::Cancelled { why: "dropped".into() }));
    let (_, body, _) = world.machine.body().unwrap();
    let said = [Content::text("[Messages that were dropped]\n- 2"), Content::text("3")];
    assert_eq!(&*body.content, &said);
    world.settle();
    assert_eq!(world.finished[&turn_id(3)], TurnResult::Done);
}

#[test]
fn of_too_many_dropped_messages_the_newest_are_told_and_how_many_there_were_before() {
    for (drop, told) in [
        (QueueDrop::Summarize, Some("[Messages that were dropped]\n(2 older ones are left out)\n- day")),
        (QueueDrop::Old, None),
    ] {
        let mut world = among_calls(QueueRules { cap: 1, drop, ..mode(QueueMode::Followup) }, 7);
        for step in [Step::ToolEnds(0), Step::Durable, Step::ToolEnds(0), Step::Durable, Step::Permit, Step::Answer] {
            world.take(step);
        }
        // Two of the five that are dropped are commands, which no model is told, and the last begins a new conversation.
        (0..6).for_each(|_| [Step::Durable, Step::View, Step::Read].into_iter().for_each(|step| world.take(step)));
        world.take(Step::Permit);
        let (_, body, _) = world.machine.body().unwrap();
        let said: Vec<Content> = told.into_iter().chain(["7"]).map(Content::text).collect();
        assert_eq!(&*body.content, &said);
    }
}

#[test]
fn rules_that_were_set_hold_over_a_load() {
    let mut world = World::new();
    world.take(Step::Mode(QueueMode::Steer));
    world.take(Step::Durable);
    world.take(Step::View);
    world.take(Step::Death(0));
    let (state, effects) = world.machine.ask_queue(QueueAsk::Show, world.now).unwrap();
    assert!(state.rules.mode == QueueMode::Steer && effects.is_empty());
    let (state, _) = world.machine.ask_queue(QueueAsk::Default, world.now).unwrap();
    assert_eq!(state.rules.mode, QueueMode::Followup);
}
