use std::sync::Arc;

use domain::chat::{AssistantMessage, StopReason};
use domain::ids::ToolCallId;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

fn call(id: usize, name: &str, arguments: Value) -> ToolCall {
    let Value::Object(arguments) = arguments else { panic!("no object") };
    ToolCall { id: ToolCallId(format!("c{id}").into()), name: name.to_owned(), arguments: Arguments::Object(arguments) }
}

fn result(call: &ToolCall, text: &str, is_error: bool) -> ToolResult {
    ToolResult { call: call.id.clone(), name: call.name.clone(), content: vec![Content::text(text)], is_error }
}

/// Runs a call if it may; what the model reads.
fn run(guard: &mut Guard, call: &ToolCall, output: &str) -> String {
    let result = guard.ask(call).unwrap_or_else(|| result(call, output, output.contains("outside")));
    guard.saw(call, &result);
    text(&result).unwrap().to_owned()
}

#[test]
fn a_call_that_changes_nothing_runs_three_times_and_then_costs_the_tools() {
    let mut guard = Guard::default();
    for number in 1..=6 {
        assert!(!guard.withholds_tools());
        // The order of the arguments makes no other call.
        let arguments = if number % 2 == 0 { json!({"a": 1, "b": 2}) } else { json!({"b": 2, "a": 1}) };
        let read = run(&mut guard, &call(number, "exec", arguments), "same");
        assert_eq!(read == LOOPS, number > 3, "{number}: {read}");
    }
    assert!(guard.withholds_tools());
}

#[test]
fn another_result_or_another_call_in_between_is_no_loop() {
    let mut guard = Guard::default();
    for number in 0..20 {
        let output = (number / 2).to_string();
        assert_eq!(run(&mut guard, &call(number, "exec", json!({})), &output), output);
    }
    let mut guard = Guard::default();
    for number in 0..20 {
        let test = call(number, if number % 4 == 3 { "write_file" } else { "exec" }, json!({}));
        assert_eq!(run(&mut guard, &test, "same"), "same");
    }
}

#[test]
fn long_results_are_the_same_wherever_they_are_kept() {
    let mut guard = Guard::default();
    let kept = |number: usize, size: usize| {
        format!("{PERSISTED}\npath: .greenroom/tool-results/s/{number}.txt\nsize: {size} characters\npreview:\nx")
    };
    for number in 0..4 {
        let read = run(&mut guard, &call(number, "exec", json!({})), &kept(number, 20_000));
        assert_eq!(read == LOOPS, number == 3, "{read}");
    }
    let mut guard = Guard::default();
    for number in 0..4 {
        let output = kept(number, 20_000 + number);
        assert_eq!(run(&mut guard, &call(number, "exec", json!({})), &output), output);
    }
}

#[test]
fn a_path_outside_the_workspace_is_refused_for_good_whichever_tool_asks() {
    let mut guard = Guard::default();
    let outside = format!("Error: `/etc/x` {OUTSIDE_WORKSPACE}; give a path inside it");
    for (number, name) in ["read_file", "list_dir"].into_iter().enumerate() {
        assert_eq!(run(&mut guard, &call(number, name, json!({"path": "/etc/x"})), &outside), outside);
    }
    assert_eq!(run(&mut guard, &call(2, "write_file", json!({"path": "/etc/x"})), &outside), STAYS_OUTSIDE);
    assert_eq!(run(&mut guard, &call(3, "read_file", json!({"path": "notes"})), "mine"), "mine");
}

fn asked(call: &ToolCall) -> Message {
    Message::Assistant(Arc::new(AssistantMessage {
        calls: vec![call.clone()],
        stop: StopReason::ToolUse,
        ..AssistantMessage::new("", "p", "m")
    }))
}

proptest! {
    #[test]
    fn a_turn_that_was_cut_goes_on_with_what_it_had_seen(steps in proptest::collection::vec((0..3usize, 0..2u8), 0..30)) {
        let mut guard = Guard::default();
        let mut written = Written::default();
        for (number, (which, output)) in steps.into_iter().enumerate() {
            let call = match which {
                0 => call(number, "exec", json!({})),
                1 => call(number, "list_dir", json!({"path": "notes"})),
                _ => call(number, "read_file", json!({"path": "/etc/x"})),
            };
            let output = if which == 2 { format!("Error: it {OUTSIDE_WORKSPACE}") } else { output.to_string() };
            let result = guard.ask(&call).unwrap_or_else(|| result(&call, &output, which == 2));
            guard.saw(&call, &result);
            written.messages.extend([asked(&call), Message::ToolResult(Arc::new(result))]);
            prop_assert_eq!(format!("{:?}", Guard::rebuild(&written)), format!("{:?}", guard));
        }
    }
}
