use std::sync::Arc;

use domain::chat::{Arguments, StopReason, ToolCall};
use domain::ids::ToolCallId;
use proptest::prelude::*;
use serde_json::Map;

use super::*;

const OPEN: Terms = Terms { withheld: false, used_up: None, reader: Reader::Chat };
const WITHHELD: Terms = Terms { withheld: true, used_up: None, reader: Reader::Chat };
const LAST: Terms = Terms { withheld: true, used_up: Some(3), reader: Reader::Chat };

fn said(text: &str, calls: &[&str]) -> AssistantMessage {
    let call = |name: &&str| ToolCall {
        id: ToolCallId((*name).into()),
        name: (*name).to_owned(),
        arguments: Arguments::Object(Map::new()),
    };
    AssistantMessage {
        calls: calls.iter().map(call).collect(),
        stop: if calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse },
        ..AssistantMessage::new(text, "p", "m")
    }
}

fn cut(text: &str) -> AssistantMessage {
    AssistantMessage { stop: StopReason::Length, ..said(text, &[]) }
}

fn judge(runner: &mut Runner, mut message: AssistantMessage, terms: Terms) -> (Next, AssistantMessage, Option<Nudge>) {
    let next = runner.judge(&mut message, terms);
    (next, message, runner.take_nudge())
}

#[test]
fn a_blank_answer_is_asked_for_again_then_asked_for_in_words_then_excused() {
    let mut runner = Runner::default();
    for (terms, next, nudge) in [(OPEN, Next::Again, None), (OPEN, Next::Again, Some(Nudge::Words))] {
        let (was, _, told) = judge(&mut runner, said(" \n", &[]), terms);
        assert_eq!((was, told), (next, nudge));
    }
    let (next, message, nudge) = judge(&mut runner, said("", &[]), WITHHELD);
    assert_eq!((next, message.text.as_str(), nudge), (Next::Answer, EMPTY_ANSWER, None));
}

#[test]
fn a_blank_last_round_says_that_the_rounds_are_used_up() {
    let (next, message, _) = judge(&mut Runner::default(), said("", &["read"]), LAST);
    assert_eq!((next, message.calls.len()), (Next::Answer, 0));
    assert!(message.text.contains("all 3 tool rounds") && message.text.contains("Say `continue`"), "{}", message.text);
    let brought = Terms { reader: Reader::Client, ..LAST };
    let (_, message, _) = judge(&mut Runner::default(), said("", &[]), brought);
    assert!(message.text.contains("all 3 tool rounds") && !message.text.contains("continue"), "{}", message.text);
    let (next, message, _) = judge(&mut Runner::default(), said("so far", &["read"]), LAST);
    assert_eq!((next, message.text.as_str()), (Next::Answer, "so far"));
}

#[test]
fn calls_without_a_name_are_left_out_and_told_about_when_there_is_no_other() {
    let mut runner = Runner::default();
    let (next, message, _) = judge(&mut runner, said("", &["", "read", " "]), OPEN);
    assert_eq!((next, message.calls.len(), message.calls[0].name.as_str()), (Next::Calls, 1, "read"));
    for nudge in [Nudge::Nameless, Nudge::Words] {
        let (next, _, told) = judge(&mut runner, said("let me look", &[""]), OPEN);
        assert_eq!((next, told), (Next::Again, Some(nudge)));
    }
    let (next, message, _) = judge(&mut runner, said("let me look", &[""]), WITHHELD);
    assert_eq!((next, message.calls.len()), (Next::Answer, 0));
}

#[test]
fn a_call_that_runs_lets_all_count_anew() {
    let mut runner = Runner::default();
    judge(&mut runner, said("", &[]), OPEN);
    judge(&mut runner, said("", &["read"]), OPEN);
    assert_eq!(judge(&mut runner, said("", &[]), OPEN).2, None);
}

#[test]
fn an_answer_that_was_cut_goes_on_three_times_at_most() {
    let mut runner = Runner::default();
    for (at, begun) in ["a ", "a b", "a b c"].into_iter().enumerate() {
        let (next, _, nudge) = judge(&mut runner, cut(["a ", "b", " c"][at]), if at == 2 { LAST } else { OPEN });
        assert_eq!((next, nudge, runner.begun()), (Next::Part, Some(Nudge::go_on(begun)), begun));
    }
    assert_eq!(judge(&mut runner, cut("d"), LAST).0, Next::Answer);
    // What was begun needs no other words.
    let mut runner = Runner::default();
    judge(&mut runner, cut("a"), OPEN);
    let (next, message, nudge) = judge(&mut runner, said("", &[]), OPEN);
    assert_eq!((next, message.text.as_str(), nudge, runner.begun()), (Next::Answer, "", None, "a"));
    // Calls begin something else.
    judge(&mut runner, said("b", &["read"]), OPEN);
    assert_eq!(runner.begun(), "");
    // Nothing is no beginning.
    assert_eq!(judge(&mut Runner::default(), cut(" "), OPEN), (Next::Again, cut(" "), None));
}

#[test]
fn a_turn_that_was_cut_goes_on_behind_the_parts_that_it_has() {
    let parts = |messages: Vec<AssistantMessage>| {
        let messages = messages.into_iter().map(|message| Message::Assistant(Arc::new(message))).collect();
        let mut runner = Runner::rebuild(&Written { user: true, messages, steered: 0 });
        (runner.take_nudge(), runner.begun().to_owned())
    };
    assert_eq!(parts(vec![]), (None, String::new()));
    assert_eq!(parts(vec![cut("x"), said("", &["read"])]), (None, String::new()));
    let expected = (Some(Nudge::go_on("ab")), "ab".to_owned());
    assert_eq!(parts(vec![said("", &["read"]), cut("a"), cut("b")]), expected);
}

proptest! {
    #[test]
    fn every_turn_ends_and_with_words(answers in proptest::collection::vec(0..5usize, 0..60), max in 0..6u32) {
        let mut runner = Runner::default();
        let mut answers = answers.into_iter().cycle();
        let mut nudge = None;
        for round in 1.. {
            prop_assert!(round <= max + 8, "no end");
            let used_up = (round > max).then_some(max);
            let withheld = used_up.is_some() || nudge == Some(Nudge::Words);
            let terms = Terms { withheld, used_up, reader: Reader::Chat };
            let message = match answers.next() {
                Some(0) | None => said("", &[]),
                Some(1) => said("", &["", ""]),
                Some(4) => cut("half"),
                Some(2) => said("look", &["", "read"]),
                Some(_) => said("answer", &[]),
            };
            let (next, message, told) = judge(&mut runner, message, terms);
            nudge = told;
            match next {
                Next::Again | Next::Part => {}
                Next::Calls => prop_assert!(!message.calls.is_empty() && !terms.withheld),
                Next::Answer => {
                    let said = !message.text.trim().is_empty() || !runner.begun().is_empty();
                    prop_assert!(message.calls.is_empty() && said);
                    break;
                }
            }
        }
    }
}
