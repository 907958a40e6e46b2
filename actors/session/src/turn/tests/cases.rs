//! What the machine must do, in examples and over any life.

use super::*;

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
            prop_assert!(open_calls(kept) == 0 || world.cut_off.contains(turn));
            // A crash between the durable end and its event loses the event; the transcript has the end.
            prop_assert!(crashed || world.finished.contains_key(turn));
        }
    }
}

/// A world with one message that waits for the model.
pub(super) fn thinking() -> World {
    let mut world = World::new();
    world.take(Step::Enqueue);
    world.take(Step::Read);
    world.take(Step::Permit);
    assert!(world.call.is_some());
    world
}

pub(super) fn calls(reads: &[bool]) -> Step {
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
    assert_eq!(world.call, Some(Call { round: 4, tools: Tools::Withheld, nudge: None, trim: Trim::Usual }));
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
    assert_eq!(world.commits[0].records.len(), 4, "two results, a goal would pause, and the notice");
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
fn an_end_of_all_that_is_too_large_for_one_record_loses_no_line() {
    let mut world = thinking();
    world.take(Step::Enqueue);
    world.take(Step::Close);
    world.take(Step::Refuse);
    let [Record::User, Record::Assistant(_, Some(TurnClose::Cancelled))] = &*world.commits[0].records else {
        panic!("{:?}", world.commits)
    };
    assert!(world.commits[0].closes.is_none());
    world.settle();
    assert_eq!(world.finished.values().collect::<Vec<_>>(), [&TurnResult::Cancelled; 2]);
    assert_eq!(world.ended, 1);
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
    assert_eq!(world.reading, [1]);
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
    assert!(world.machine.state() == State::Waiting && world.reading.is_empty());
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
    assert!(world.machine.state() == State::Waiting && world.reading.is_empty());
    world.take(Step::Cancel(1));
    world.take(Step::Cancel(2));
    for step in [Step::Read, Step::Durable, Step::View, Step::Read, Step::Durable, Step::View] {
        world.take(step);
    }
    world.take(Step::Crowd(false));
    assert!(!world.holds_place && world.machine.is_idle());
    world.take(Step::Enqueue);
    assert_eq!(world.reading, [3]);
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
        turn: CutTurn { started, left_by: LeftBy::Death, blamed: false, tools_started: Vec::new() },
        blamed: false,
        alone: false,
        written: Written { user: true, ..Written::default() },
    };
    let standing = Standing { cut: Some(cut), answered: [turn_id(2)].into(), ..Standing::default() };
    let effects = machine.load(items, Seq(4), Inbox::default(), standing, now);
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
pub(super) fn pushing() -> World {
    let mut world = World::new();
    let pushed = |route| Arc::new(Accepted { route, ..Accepted::clone(&accepted(2)) });
    offer(&mut world, InboxItem { inline: Some(pushed(Route::Push(hook()))), ..item(2) });
    world.take(Step::Permit);
    assert!(world.call.is_some());
    world
}

pub(super) fn told(world: &World) -> Vec<(u32, &str)> {
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
    let unreadable = machine.step(Input::Unreadable(LogPosition(1)), now);
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

#[test]
fn a_cut_turn_whose_message_is_gone_leaves_no_call_without_a_result() {
    let now = Now { mono: Duration::ZERO, wall_ms: 0 };
    let mut machine = Machine::new(rules());
    let started = Started { turn: turn_id(2), attempt: Attempt(2), crashes: 0, deaths: 0, alone: false };
    let said = message(&[("c0".to_owned(), "exec")]);
    let call = said.calls[0].id.clone();
    let cut = Cut {
        turn: CutTurn { started, left_by: LeftBy::Death, blamed: false, tools_started: Vec::new() },
        blamed: false,
        alone: false,
        written: Written { user: true, messages: vec![Message::Assistant(said.into())], steered: 0 },
    };
    let items = vec![InboxItem { inline: None, ..item(2) }];
    machine.load(items, Seq(2), Inbox::default(), Standing { cut: Some(cut), ..Standing::default() }, now);
    machine.step(Input::Placed, now);
    let effects = machine.step(Input::Unreadable(LogPosition(2)), now);
    let batch = effects.iter().find_map(|effect| if let Effect::Commit(batch) = effect { Some(batch) } else { None });
    let records = &batch.unwrap().records;
    let answered = |record: &Record| matches!(record, Record::Tool(result) if result.call == call);
    assert!(records.iter().any(answered), "{records:?}");
}
