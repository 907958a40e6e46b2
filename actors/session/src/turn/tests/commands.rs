//! Turns that are commands. Of the messages here, the 4th is `/new`, the 5th `/history`, the 6th `/new day`.

use super::*;

/// A world in which the command `seq` runs, those before it having ended.
fn following(seq: u64) -> World {
    let mut world = World::new();
    for _ in 1..seq {
        world.take(Step::Enqueue);
        world.settle();
    }
    world.take(Step::Enqueue);
    world.take(Step::Read);
    world
}

#[test]
fn a_command_is_one_commit_and_asks_no_model() {
    let mut world = following(5);
    assert!(world.command && !world.permit && world.commits.is_empty());
    world.take(Step::Follow);
    let [batch] = world.commits.make_contiguous() else { panic!("{:?}", world.commits) };
    assert!(
        matches!(&*batch.records, [Record::User, Record::Assistant(told, Some(TurnClose::Done))] if told.text == "told")
    );
    assert!(batch.edit.is_some());
    world.settle();
    assert_eq!(world.finished[&turn_id(5)], TurnResult::Done);
}

#[test]
fn a_new_conversation_begins_behind_the_old_one() {
    for (seq, waits) in [(4, false), (6, true)] {
        let mut world = following(seq);
        assert_eq!(world.permit, waits, "the text behind the command is for the model");
        world.take(Step::Permit);
        // What the reset rules say of a call changes nothing.
        world.machine.begin_anew(None);
        world.take(Step::Answer);
        let records = &world.commits[0].records;
        assert!(
            matches!(&**records, [Record::Reset(Reason::Asked), Record::User, Record::Assistant(..)]),
            "{records:?}"
        );
        world.settle();
        assert_eq!(world.finished[&turn_id(seq)], TurnResult::Done);
    }
}

#[test]
fn a_new_conversation_that_was_cancelled_while_it_waited_does_not_begin() {
    let mut world = following(1);
    (2..=4).for_each(|_| world.take(Step::Enqueue));
    world.take(Step::Stop(true));
    for _ in 0..40 {
        let resets = world.commits.iter().flat_map(|batch| &batch.records);
        assert_eq!(resets.filter(|record| matches!(record, Record::Reset(_))).count(), 0);
        [Step::Read, Step::Durable, Step::View].into_iter().for_each(|step| world.take(step));
    }
    assert_eq!(world.finished[&turn_id(4)], TurnResult::Cancelled);
}

#[test]
fn a_stop_ends_a_command_and_what_comes_of_it_later_is_stale() {
    let mut world = following(5);
    world.take(Step::Stop(false));
    assert_eq!(world.commits.len(), 1);
    let late = Input::Commanded(Box::default());
    assert!(matches!(world.machine.step(late, world.now)[..], [Effect::Stale]));
    world.settle();
    assert_eq!(world.finished[&turn_id(5)], TurnResult::Cancelled);
}

#[test]
fn a_command_that_was_cut_is_followed_again() {
    let mut world = following(5);
    world.take(Step::Follow);
    world.take(Step::Death(0));
    assert!(world.turns[&turn_id(5)].messages.is_empty());
    world.settle();
    assert_eq!(world.finished[&turn_id(5)], TurnResult::Done);
    assert_eq!(world.turns[&turn_id(5)].messages.len(), 1);
}
