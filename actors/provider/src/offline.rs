//! The built-in model: deterministic, without network, and honest about what it is.
//!
//! It repeats what the user said, and does what directives in that text ask for ([`domain::script`]): call tools
//! (`[[tool=NAME {JSON}]]`), wait (`[[delay=MS]]`), answer in pieces (`[[tokens=N]]`), say something else
//! (`[[say=TEXT]]`), show the last tool result (`[[show_results]]`). It is used when no provider is configured, in
//! examples, and to measure everything but a model. Pure.

use std::borrow::Cow;
use std::fmt::Write;
use std::time::Duration;

use domain::chat::{AssistantMessage, Content, Message, StopReason, ToolCall, Usage, plain_text};
use domain::ids::ToolCallId;
use domain::request::{ChatRequest, ToolChoice};
use domain::script::{Line, Script, ScriptedTurn, turn_of};
use domain::text::first_bytes;
use protocol::provider::Delta;

use crate::arguments;

/// Its name as a provider.
pub const NAME: &str = "offline";
/// Longest text that is repeated, in bytes.
const ECHO_BYTES_MAX: usize = 4_000;
/// How every answer that is not scripted begins.
const GREETING: &str = "This is the built-in offline model; no provider is configured. You said: ";

/// An answer and when its parts are due.
#[derive(Debug, Clone, PartialEq)]
pub struct Reply {
    /// Before the first piece.
    pub delay: Duration,
    /// Between two pieces.
    pub piece_delay: Duration,
    /// The pieces, in order.
    pub deltas: Vec<Delta>,
    /// The whole.
    pub message: AssistantMessage,
}

/// Answers. Tool calls get ids that begin with `id_prefix`.
pub fn answer(request: &ChatRequest, id_prefix: &str) -> Reply {
    let turn = turn_of(request.messages.iter().rev().map(line));
    let script = Script::parse(&turn.text);
    let asked = script.calls_of(turn.round).into_iter().filter(|_| request.choice == ToolChoice::Auto);
    let calls = asked.enumerate().map(|(place, (name, text))| ToolCall {
        id: ToolCallId(format!("{id_prefix}{place}").into()),
        name: name.to_owned(),
        arguments: arguments::read(&text).0,
    });
    let calls: Vec<ToolCall> = calls.collect();
    let reasoning = script.reasoning.clone();
    let mut deltas: Vec<Delta> = reasoning.iter().cloned().map(Delta::Reasoning).collect();
    let mut text = String::new();
    if calls.is_empty() && !script.empty {
        text = first_piece(&turn, &script);
        deltas.push(Delta::Text(text.clone()));
        for place in 1..script.tokens.unwrap_or(1) {
            let piece = format!(" t{place}");
            text.push_str(&piece);
            deltas.push(Delta::Text(piece));
        }
    }
    let usage = Usage { input_tokens: request.tokens, output_tokens: tokens(text.len()), cached_tokens: 0 };
    let stop = if calls.is_empty() { StopReason::Stop } else { StopReason::ToolUse };
    Reply {
        delay: delay(&script, &turn),
        piece_delay: Duration::from_millis(script.piece_delay_ms.unwrap_or(0)),
        deltas,
        message: AssistantMessage {
            reasoning,
            calls,
            stop,
            usage,
            ..AssistantMessage::new(text, NAME, request.model.clone())
        },
    }
}

fn line(message: &Message) -> Line<'_> {
    match message {
        Message::User(content) => Line::User(text_of(content)),
        Message::Assistant(answer) if answer.calls.is_empty() => Line::Answer,
        Message::Assistant(_) => Line::Calls,
        Message::ToolResult(result) => Line::Result(text_of(&result.content)),
    }
}

fn text_of(content: &[Content]) -> Cow<'_, str> {
    match content {
        [Content::Text { text }] => Cow::Borrowed(text),
        pieces => Cow::Owned(plain_text(pieces)),
    }
}

fn first_piece(turn: &ScriptedTurn, script: &Script) -> String {
    let mut text = match (&script.say, &script.echo) {
        (Some(say), _) => say.clone(),
        (None, Some(echo)) => format!("{GREETING}{echo}"),
        (None, None) => format!("{GREETING}{}", first_bytes(&script.rest, ECHO_BYTES_MAX)),
    };
    if turn.results > 0 {
        // Writing to a string cannot fail.
        let _ = write!(text, " results={}", turn.results);
        if script.show_results {
            let _ = write!(text, " last_result={}", first_bytes(&turn.last_result, ECHO_BYTES_MAX));
        }
    }
    text
}

/// Within the bounds that the script gives, fixed by the request.
fn delay(script: &Script, turn: &ScriptedTurn) -> Duration {
    let (low, high) = script.delay_ms.unwrap_or((0, 0));
    let width = high.saturating_sub(low).saturating_add(1);
    let place = (turn.text.len() + turn.round) as u64 % width;
    Duration::from_millis(low + place)
}

/// Tokens as a rule of thumb: four bytes each.
fn tokens(bytes: usize) -> u64 {
    bytes.div_ceil(4) as u64
}

#[cfg(test)]
mod tests {
    use domain::chat::{Arguments, ToolResult};
    use serde_json::json;

    use super::*;

    fn user(text: &str) -> Message {
        Message::User([Content::text(text)].into())
    }

    fn asked(messages: Vec<Message>) -> ChatRequest {
        ChatRequest {
            model: "m".into(),
            system: "sys".into(),
            system_tail: None,
            messages: messages.into(),
            tools: [].into(),
            choice: ToolChoice::Auto,
            effort: None,
            tokens: 2,
            max_tokens: 1,
            temperature: 0.0,
        }
    }

    fn ask(messages: Vec<Message>) -> Reply {
        let request = asked(messages);
        let reply = answer(&request, "c");
        assert_eq!(reply, answer(&request, "c"), "it must be deterministic");
        reply
    }

    #[test]
    fn it_says_what_it_is_and_repeats() {
        let reply = ask(vec![user("hello")]);
        assert!(reply.message.text.contains("offline") && reply.message.text.ends_with("hello"));
        assert_eq!(reply.deltas, [Delta::Text(reply.message.text.clone())]);
        assert_eq!((reply.delay, reply.message.stop), (Duration::ZERO, StopReason::Stop));
        assert_eq!(reply.message.usage.input_tokens, 2);
    }

    #[test]
    fn it_does_what_the_text_asks_for() {
        let reply = ask(vec![user("[[say=hi]][[tokens=3;delay=40;itd=5]]")]);
        assert_eq!(reply.message.text, "hi t1 t2");
        assert_eq!(reply.deltas.len(), 3);
        assert_eq!((reply.delay.as_millis(), reply.piece_delay.as_millis()), (40, 5));
        let spread = ask(vec![user("[[delay=10..20]]")]).delay.as_millis();
        assert!((10..=20).contains(&spread));
    }

    #[test]
    fn it_calls_tools_and_shows_their_results() {
        let script = r#"[[tool=a {"x":1}]][[tool=b]][[tool@2=c]][[say=ok]][[show_results]]"#;
        let first = ask(vec![user(script)]);
        let names: Vec<_> = first.message.calls.iter().map(|call| (call.name.as_str(), &*call.id.0)).collect();
        assert_eq!(names, [("a", "c0"), ("b", "c1")]);
        let Arguments::Object(arguments) = &first.message.calls[0].arguments else { panic!("no object") };
        assert_eq!(arguments["x"], json!(1));
        assert_eq!((first.message.stop, first.deltas.len()), (StopReason::ToolUse, 0));
        let result = |text: &str| {
            let content = vec![Content::text(text)];
            let (call, name) = (ToolCallId("c".into()), "a".to_owned());
            Message::ToolResult(ToolResult { call, name, content, is_error: false }.into())
        };
        let mut messages = vec![user(script), Message::Assistant(first.message.into()), result("r1"), result("r2")];
        let second = ask(messages.clone());
        assert_eq!(second.message.calls.len(), 1);
        messages.extend([Message::Assistant(second.message.into()), result("r3")]);
        assert_eq!(ask(messages).message.text, "ok results=3 last_result=r3");
    }

    #[test]
    fn it_calls_no_tool_that_it_may_only_see() {
        let mut request = asked(vec![user("[[tool=a]][[say=ok]]")]);
        assert_eq!(answer(&request, "c").message.stop, StopReason::ToolUse);
        request.choice = ToolChoice::None;
        let message = answer(&request, "c").message;
        assert_eq!((message.text.as_str(), message.stop, message.calls.len()), ("ok", StopReason::Stop, 0));
    }
}
