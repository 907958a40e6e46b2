//! Turns whose conversation is too long.

use super::cases::{calls, thinking};
use super::*;

/// The notices that people were told.
fn notices(effects: &[Effect]) -> Vec<String> {
    let notice = |effect: &Effect| {
        let Effect::Emit(Shown { what: TurnProgress::Notice(text), .. }) = effect else { return None };
        Some(text.to_string())
    };
    effects.iter().filter_map(notice).collect()
}

fn drawn(word: &'static str) -> Option<Box<Drawn>> {
    let compacted = Compacted { first_kept: None, tokens_before: 180_500, tokens_after: 900 };
    Some(Box::new(Drawn { word, compacted: Some(compacted), ..Drawn::default() }))
}

#[test]
fn a_request_over_its_budget_waits_until_room_is_durable_and_costs_no_round() {
    let mut world = thinking();
    assert_eq!(world.call.take().map(|call| call.round), Some(1));
    world.give(Input::OverBudget);
    assert!(world.compacting && world.call.is_none());
    let effects = world.machine.step(Input::Compacted(drawn("compact")), world.now);
    assert_eq!(notices(&effects), ["Earlier messages were summarised to make room (about 180k → 900 tokens)."]);
    world.perform(effects);
    assert!(world.commits[0].records.is_empty() && world.commits[0].edit.is_some());
    assert!(!world.permit, "not before it is durable");
    world.take(Step::Durable);
    world.take(Step::Permit);
    assert_eq!(world.call.as_ref().map(|call| call.round), Some(1));
    world.take(Step::Answer);
    assert_eq!(world.commits[0].records.len(), 2, "the user's line comes behind");
}

#[test]
fn what_cannot_be_summarised_is_tried_once_and_five_times_are_enough() {
    for (outcome, times) in [(None, 1), (drawn(protocol::edit::RAW_WORD), 1), (drawn("compact"), 5)] {
        let mut world = thinking();
        for _ in 0..times {
            assert!(world.machine.may_compact());
            world.call = None;
            world.give(Input::OverBudget);
            world.compacting = false;
            let outcome = outcome.as_ref().map(|drawn| {
                let Drawn { word, compacted, .. } = &**drawn;
                Box::new(Drawn { word, compacted: compacted.clone(), ..Drawn::default() })
            });
            let effects = world.machine.step(Input::Compacted(outcome), world.now);
            if let [notice] = &notices(&effects)[..] {
                assert!(notice.contains("Earlier messages"), "{notice}");
            }
            world.perform(effects);
            world.take(Step::Durable);
            world.take(Step::Permit);
        }
        assert!(!world.machine.may_compact(), "{times}");
        world.take(Step::Answer);
        world.take(Step::Durable);
        assert_eq!(world.finished[&turn_id(1)], TurnResult::Done);
    }
}

#[test]
fn a_model_that_finds_it_too_long_is_asked_once_more() {
    let mut world = thinking();
    world.take(Step::TooLong);
    assert!(world.compacting);
    world.take(Step::Compacted(true));
    world.take(Step::Durable);
    world.take(Step::Permit);
    assert_eq!(world.call.as_ref().map(|call| call.trim), Some(Trim::Hard));
    world.take(Step::TooLong);
    assert!(!world.compacting);
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
}

#[test]
fn what_the_model_is_told_survives_the_wait_and_a_stop_ends_it() {
    let mut world = thinking();
    world.take(Step::Cut);
    world.take(Step::Durable);
    world.take(Step::Permit);
    let told = world.call.take().and_then(|call| call.nudge);
    assert!(matches!(told, Some(Nudge::GoOn { .. })));
    world.give(Input::OverBudget);
    world.take(Step::Compacted(false));
    world.take(Step::Permit);
    assert_eq!(world.call.take().and_then(|call| call.nudge), told);
    world.give(Input::OverBudget);
    world.take(Step::Stop(false));
    assert!(!world.compacting);
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Cancelled);
    assert!(matches!(world.machine.step(Input::Compacted(None), world.now)[..], [Effect::Stale]));
}

#[test]
fn a_turn_that_waits_for_a_summary_says_so_and_does_not_wait_for_ever() {
    let mut world = thinking();
    world.take(calls(&[true]));
    world.take(Step::Durable);
    world.take(Step::ToolEnds(0));
    world.take(Step::Durable);
    world.take(Step::Permit);
    world.take(Step::OverBudget);
    assert_eq!(world.machine.state(), State::Thinking);
    world.now.mono += Duration::from_secs(301);
    assert_eq!(world.machine.overdue(world.now), Some(Waits::Summary));
    world.give(Input::Tick { heard: world.now.mono });
    assert!(world.compacting, "the summary gets on");
    world.give(Input::Tick { heard: Duration::ZERO });
    world.take(Step::Durable);
    assert_eq!(world.finished[&turn_id(1)], TurnResult::Failed);
}
