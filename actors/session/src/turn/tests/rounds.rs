//! Rounds that bring no answer, and how they end.

use super::cases::{calls, pushing, thinking, told};
use super::*;

#[test]
fn blank_answers_are_not_kept_and_the_third_one_ends_the_turn_with_a_notice() {
    let mut world = thinking();
    for (round, tools, nudge) in [(2, Tools::Offered, None), (3, Tools::Withheld, Some(Nudge::Words))] {
        world.take(Step::Blank);
        assert!(world.commits.is_empty());
        world.take(Step::Permit);
        assert_eq!(world.call, Some(Call { round, tools, nudge }));
    }
    world.take(Step::Blank);
    let [Record::User, Record::Assistant(notice, Some(TurnClose::Done))] = &*world.commits[0].records else {
        panic!("{:?}", world.commits)
    };
    assert_eq!(notice.text, domain::prompt::EMPTY_ANSWER);
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
}

#[test]
fn an_answer_that_was_cut_goes_on_and_is_pushed_as_one() {
    let mut world = pushing();
    for round in 2..5 {
        world.take(Step::Cut);
        assert!(world.commits[0].ended.is_empty() && told(&world).is_empty());
        world.take(Step::Durable);
        world.take(Step::Permit);
        let call = world.call.clone().unwrap();
        assert_eq!((call.round, matches!(call.nudge, Some(Nudge::GoOn { .. }))), (round, true));
    }
    world.take(Step::Cut);
    assert_eq!(told(&world), [(1, "answeransweransweranswer")]);
}

#[test]
fn a_call_without_a_name_is_explained_to_the_model_and_not_run() {
    let mut world = thinking();
    for (round, tools, nudge) in [(2, Tools::Offered, Nudge::Nameless), (3, Tools::Withheld, Nudge::Words)] {
        world.take(Step::Nameless);
        world.take(Step::Permit);
        assert_eq!(world.call, Some(Call { round, tools, nudge: Some(nudge) }));
    }
    world.take(Step::Answer);
    assert_eq!(world.commits[0].records.len(), 2);
    world.take(Step::Durable);
    assert!(world.runs.is_empty());
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
}

#[test]
fn a_call_that_changes_nothing_is_not_run_a_fourth_time_and_costs_the_tools_in_the_end() {
    let mut world = thinking();
    world.take(calls(&[false; 6]));
    for _ in 0..3 {
        world.take(Step::Durable);
        world.take(Step::ToolEnds(0));
    }
    let batch = &world.commits[0];
    assert_eq!((batch.records.len(), batch.tools_started.len()), (4, 0), "a result and three refusals");
    world.take(Step::Durable);
    world.take(Step::Permit);
    assert_eq!(world.call, Some(Call { round: 2, tools: Tools::Withheld, nudge: Some(Nudge::Words) }));
    world.take(Step::Answer);
    world.take(Step::Durable);
    assert_eq!((world.runs.len(), world.finished[&turn_id(1)]), (3, TurnResult::Done));
}

#[test]
fn a_last_round_without_a_word_says_that_the_rounds_are_used_up() {
    let mut world = thinking();
    for _ in 0..3 {
        for step in [calls(&[true]), Step::Durable, Step::ToolEnds(0), Step::Durable, Step::Permit] {
            world.take(step);
        }
    }
    world.take(Step::Blank);
    let Some(Record::Assistant(notice, Some(TurnClose::Done))) = world.commits[0].records.last() else {
        panic!("{:?}", world.commits)
    };
    assert!(notice.text.contains("all 3 tool rounds"), "{}", notice.text);
}
