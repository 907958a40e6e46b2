use domain::chat::Arguments;
use serde_json::json;

use super::*;

fn assembled(chunks: &[Value]) -> Answer {
    let mut assembly = Assembly::default();
    for chunk in chunks {
        assembly.take(chunk).unwrap();
    }
    assembly.finish("made_").unwrap()
}

fn delta(delta: Value) -> Value {
    json!({"choices": [{"index": 0, "delta": delta, "finish_reason": null}]})
}

fn calls(parts: &[Value]) -> Vec<(String, String, String)> {
    let answer = assembled(&parts.iter().map(|part| delta(json!({"tool_calls": part}))).collect::<Vec<_>>());
    let shown = answer.calls.into_iter().map(|call| match call.arguments {
        Arguments::Object(map) => (call.id.0.to_string(), call.name, json!(map).to_string()),
        Arguments::Malformed { text, .. } => (call.id.0.to_string(), call.name, text),
    });
    shown.collect()
}

fn owned(calls: &[(&str, &str, &str)]) -> Vec<(String, String, String)> {
    calls.iter().map(|(id, name, text)| ((*id).to_owned(), (*name).to_owned(), (*text).to_owned())).collect()
}

#[test]
fn text_and_reasoning_come_in_order_and_whole() {
    let mut assembly = Assembly::default();
    let shown: Vec<Delta> = [
        delta(json!({"role": "assistant", "content": ""})),
        delta(json!({"reasoning_content": "hm"})),
        delta(json!({"reasoning": "m", "content": null})),
        delta(json!({"content": "a"})),
        delta(json!({"content": [{"type": "text", "text": "b"}]})),
    ]
    .iter()
    .flat_map(|chunk| assembly.take(chunk).unwrap())
    .collect();
    let (text, reasoning) = (|s: &str| Delta::Text(s.to_owned()), |s: &str| Delta::Reasoning(s.to_owned()));
    assert_eq!(shown, [reasoning("hm"), reasoning("m"), text("a"), text("b")]);
    let answer = assembly.finish("").unwrap();
    assert_eq!((answer.text.as_str(), answer.reasoning.as_deref()), ("ab", Some("hmm")));
}

#[test]
fn parts_of_calls_find_each_other() {
    let f = |name: &str, arguments: &str| json!({"name": name, "arguments": arguments});
    let g = |arguments: &str| json!({"arguments": arguments});
    // By index, interleaved, not from 0.
    assert_eq!(
        calls(&[
            json!([{"index": 3, "id": "x", "function": f("a", "")}, {"index": 4, "id": "y", "function": f("b", "{")}]),
            json!([{"index": 4, "function": g("}")}, {"index": 3, "function": g("{\"k\":1}")}]),
        ]),
        owned(&[("x", "a", r#"{"k":1}"#), ("y", "b", "{}")])
    );
    // By id, without index; type empty; a single object in place of a list.
    assert_eq!(
        calls(&[
            json!([{"id": "x", "type": "", "function": f("a", "{")}]),
            json!({"id": "y", "function": f("b", "{}")}),
            json!([{"id": "x", "function": g("}")}]),
        ]),
        owned(&[("x", "a", "{}"), ("y", "b", "{}")])
    );
    // By order: neither index nor id.
    assert_eq!(
        calls(&[
            json!([{"function": f("a", "{\"k\"")}]),
            json!([{"function": g(":1}")}]),
            json!([{"function": f("a", "{}")}]),
        ]),
        owned(&[("made_0", "a", r#"{"k":1}"#), ("made_1", "a", "{}")])
    );
    // Every call numbered 0, told apart by id.
    assert_eq!(
        calls(&[
            json!([{"index": 0, "id": "x", "function": f("a", "{}")}]),
            json!([{"index": 0, "id": "y", "function": f("b", "{}")}]),
        ]),
        owned(&[("x", "a", "{}"), ("y", "b", "{}")])
    );
    // Spaces around a name.
    assert_eq!(calls(&[json!([{"id": "x", "function": f(" a ", "{}")}])]), owned(&[("x", "a", "{}")]));
    // Arguments as an object; repeated whole at the end; ids given twice.
    assert_eq!(
        calls(&[
            json!([{"index": 0, "id": "x", "function": {"name": "a", "arguments": {"k": 1}}}]),
            json!([{"index": 0, "id": "x", "function": f("a", "{\"k\":1}")}]),
            json!([{"index": 1, "id": "x", "function": f("b", "")}]),
        ]),
        owned(&[("x", "a", r#"{"k":1}"#), ("made_1", "b", "{}")])
    );
}

#[test]
fn what_a_server_declines_with_is_the_answer() {
    let parts = [json!({"content": null, "refusal": "I can"}), json!({"refusal": "not."})].map(delta);
    assert_eq!(assembled(&parts).text, "I cannot.");
}

#[test]
fn odd_fields_are_as_good_as_absent() {
    for odd in [
        json!({}),
        json!(null),
        json!([1]),
        json!({"choices": null, "created": 1.5, "service_tier": "on_demand"}),
        json!({"choices": []}),
        json!({"choices": [{"delta": null, "finish_reason": ""}]}),
        json!({"choices": [{"delta": {"role": "model", "content": 7, "tool_calls": null}}], "usage": null, "error": null}),
    ] {
        let mut assembly = Assembly::default();
        assert_eq!(assembly.take(&odd), Ok(Vec::new()), "{odd}");
        assert!(assembly.is_empty() && !assembly.is_finished(), "{odd}");
    }
}

#[test]
fn the_end_is_understood() {
    let ended =
        |reason: &str| assembled(&[json!({"choices": [{"delta": {"content": "x"}, "finish_reason": reason}]})]).stop;
    for (reason, stop) in [
        ("stop", StopReason::Stop),
        ("eos_token_of_theirs", StopReason::Stop),
        ("length", StopReason::Length),
        ("max_tokens", StopReason::Length),
    ] {
        assert_eq!(ended(reason), stop, "{reason}");
    }
    let mut filtered = Assembly::default();
    filtered.take(&json!({"choices": [{"delta": {}, "finish_reason": "content_filter"}]})).unwrap();
    assert!(filtered.finish("").is_err());
}

#[test]
fn calls_count_only_when_the_answer_ended_in_order() {
    let call = json!([{"index": 0, "id": "x", "function": {"name": "a", "arguments": "{}"}}]);
    let ended = |finish: Value| {
        let chunk = json!({"choices": [{"delta": {"content": "t", "tool_calls": call}, "finish_reason": finish}]});
        let answer = assembled(&[chunk]);
        assert_eq!(answer.text, "t");
        (answer.calls.len(), answer.stop)
    };
    for finish in [json!("tool_calls"), json!("function_call"), json!("stop"), json!("STOP"), json!(""), json!(null)] {
        assert_eq!(ended(finish.clone()), (1, StopReason::ToolUse), "{finish}");
    }
    for (finish, stop) in [
        ("length", StopReason::Length),
        ("max_tokens", StopReason::Length),
        ("content_filter", StopReason::Stop),
        ("refusal", StopReason::Stop),
        ("error", StopReason::Stop),
    ] {
        assert_eq!(ended(json!(finish)), (0, stop), "{finish}");
    }
}

#[test]
fn reasoning_in_tags_is_taken_out_of_the_text_and_told_once() {
    let parts = |pieces: &[Value]| {
        let mut assembly = Assembly::default();
        let mut shown: Vec<Delta> =
            pieces.iter().flat_map(|piece| assembly.take(&delta(piece.clone())).unwrap()).collect();
        shown.extend(assembly.flush().unwrap());
        let text: String =
            shown.iter().filter_map(|delta| if let Delta::Text(text) = delta { Some(&**text) } else { None }).collect();
        let answer = assembly.finish("").unwrap();
        assert_eq!(text, answer.text, "what was shown is the answer");
        (answer.text, answer.reasoning)
    };
    let content = |text: &str| json!({"content": text});
    let is = |text: &str, reasoning: Option<&str>| (text.to_owned(), reasoning.map(str::to_owned));
    assert_eq!(
        parts(&[content("<thi"), content("nk>h"), content("m</think"), content(">\n\nyes <")]),
        is("yes <", Some("hm"))
    );
    assert_eq!(parts(&[json!({"reasoning_content": "hm"}), content("<think>hm</think>yes")]), is("yes", Some("hm")));
    assert_eq!(parts(&[content("<thought>never ends")]), is("", Some("never ends")));
    assert_eq!(parts(&[content("<thin")]), is("<thin", None));
}

#[test]
fn a_call_written_as_text_is_a_call_only_where_that_is_allowed() {
    let text = r#"I look. <tool_call>{"name":"a","arguments":{"k":1}}</tool_call>"#;
    let (first, second) = text.split_at(30);
    let ended = |allowed| {
        let mut assembly = Assembly::new(allowed);
        for piece in [first, second] {
            assembly.take(&delta(json!({"content": piece}))).unwrap();
        }
        assembly.take(&json!({"choices": [{"delta": {}, "finish_reason": "stop"}]})).unwrap();
        assembly.finish("made_").unwrap()
    };
    let silent = ended(false);
    assert_eq!((silent.text.as_str(), silent.calls.len(), silent.stop), (text, 0, StopReason::Stop));
    let Answer { text, calls, stop, .. } = ended(true);
    assert_eq!((text.as_str(), stop), ("I look. ", StopReason::ToolUse));
    let arguments = Arguments::Object(json!({"k": 1}).as_object().unwrap().clone());
    assert_eq!(calls, [ToolCall { id: ToolCallId("made_0".into()), name: "a".to_owned(), arguments }]);
}

#[test]
fn usage_may_be_partial() {
    let usage = |usage: Value| {
        let usage = assembled(&[json!({"choices": [], "usage": usage})]).usage;
        (usage.input_tokens, usage.output_tokens, usage.cached_tokens)
    };
    assert_eq!(usage(json!({"prompt_tokens": 7})), (7, 0, 0));
    assert_eq!(usage(json!({"prompt_tokens": 7.0, "completion_tokens": "8", "total_tokens": null})), (7, 8, 0));
    assert_eq!(usage(json!({"prompt_tokens_details": {"cached_tokens": 3}})), (0, 0, 3));
    assert_eq!(usage(json!({"prompt_cache_hit_tokens": 3, "prompt_tokens_details": null})), (0, 0, 3));
    assert_eq!(usage(json!({"prompt_tokens": -1})), (0, 0, 0));
}

#[test]
fn an_error_inside_a_stream_ends_it() {
    for (error, status, codes, message) in [
        (json!({"message": "m", "code": 502}), 502, &[][..], "m"),
        (json!({"message": "m", "code": "rate_limit_exceeded", "type": null}), 200, &["rate_limit_exceeded"], "m"),
        (json!("text"), 200, &[], "text"),
        (json!({"type": "Overloaded_Error"}), 200, &["overloaded_error"], ""),
    ] {
        let Err(CallError::Answered(answer)) = Assembly::default().take(&json!({"error": error})) else {
            panic!("{error} was no error")
        };
        assert_eq!((answer.status, answer.message.as_str()), (status, message));
        assert_eq!(answer.codes, codes);
    }
}

#[test]
fn an_answer_is_cut_where_it_gets_too_long_whatever_it_is_made_of() {
    let piece = "\u{1}".repeat(1 << 16);
    for (delta_of, name) in [
        (json!({"content": piece}), "text"),
        (json!({"reasoning": piece}), "reasoning"),
        (json!({"tool_calls": [{"index": 0, "id": "a", "function": {"name": "n", "arguments": piece}}]}), "arguments"),
    ] {
        let mut assembly = Assembly::default();
        let chunk = delta(delta_of);
        let taken = (0..320).take_while(|_| assembly.take(&chunk).is_ok()).count();
        assert!((31..=32).contains(&taken), "{name}: {taken}");
        assert_eq!(assembly.take(&chunk), Err(CallError::TooLarge("an answer of more than 2 MiB")), "{name}");
    }
}

#[test]
fn the_longest_answer_fits_into_a_line_of_the_journal() {
    let half = "\u{1}".repeat(ANSWER_BYTES_MAX / 2);
    let answer = assembled(&[delta(json!({"reasoning": half})), delta(json!({"content": half}))]);
    let message = domain::chat::AssistantMessage {
        reasoning: answer.reasoning,
        stop: answer.stop,
        usage: answer.usage,
        ..domain::chat::AssistantMessage::new(answer.text, "p", "m")
    };
    let entry =
        domain::transcript::AssistantEntry { message: message.into(), turn: None, end: None, transcript_only: false };
    let head = domain::transcript::Head { id: "1".into(), parent: None, timestamp_ms: 0 };
    let line = domain::transcript::assistant_line(&head, &entry);
    assert!(line.len() > 6 * (ANSWER_BYTES_MAX - 1) && line.len() < 13 << 20, "{}", line.len());
}

#[test]
fn ids_and_names_that_come_with_every_piece_are_counted_once() {
    let name = "n".repeat(1 << 10);
    let part = delta(json!({"tool_calls": [{"index": 0, "id": name, "function": {"name": name, "arguments": "x"}}]}));
    let mut assembly = Assembly::default();
    assert!((0..5000).all(|_| assembly.take(&part).is_ok()));
}
