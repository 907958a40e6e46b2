//! Whether a person is told: asked of the model in a second call, with one tool.

use std::sync::Arc;

use serde_json::json;

use crate::budget::text_tokens;
use crate::chat::{Arguments, AssistantMessage, Content, Message, StopReason};
use crate::request::{ChatRequest, ToolChoice, ToolSpec};
use crate::text::{first_chars, head_and_tail};

const TOOL: &str = "evaluate_notification";
/// The file of the workspace that takes the place of [`EVALUATOR`], unless it has no words.
pub const EVALUATOR_FILE: &str = "prompts/evaluator.md";
/// Bytes that it may have.
pub const EVALUATOR_BYTES_MAX: u64 = 256 * 1024;
/// What the model is told.
pub const EVALUATOR: &str = "You decide whether a person is told of what an agent did on its own. You are shown what it was \
    asked to look after, and its report. Tell the person of what they would want to know now: something done that \
    matters, something wrong, something that needs them. Do not tell them that all is well, that nothing is to be done, or \
    of routine. Call the tool evaluate_notification with your decision, and say nothing else.";
/// Characters of the tasks and of the report that are shown.
const CHARS_MAX: usize = 16_000;
const REASON_CHARS_MAX: usize = 200;
const ANSWER_TOKENS: u32 = 1024;

/// The decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Verdict {
    /// Whether the person is told.
    pub notify: bool,
    /// Why, or why not.
    pub reason: String,
}

/// There is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum NotEvaluated {
    /// The answer was cut, or the call ended otherwise.
    #[error("the answer was not whole")]
    Cut,
    /// The tool was not called.
    #[error("it did not call evaluate_notification")]
    NotCalled,
    /// It was called with something else.
    #[error("it called evaluate_notification without a usable should_notify")]
    Malformed,
}

/// Asks for it. `evaluator` is the system prompt.
pub fn request(model: Arc<str>, max_tokens: u32, evaluator: &str, tasks: &str, report: &str) -> ChatRequest {
    let text = format!(
        "## What it was asked to look after\n\n{}\n\n## Its report\n\n{}",
        head_and_tail(tasks, CHARS_MAX),
        head_and_tail(report, CHARS_MAX)
    );
    let tool = ToolSpec {
        name: TOOL.to_owned(),
        description: "Decides whether the person is told of the report.".to_owned(),
        parameters: json!({
            "type": "object",
            "properties": {
                "should_notify": {"type": "boolean", "description": "Whether the person is told."},
                "reason": {"type": "string", "description": "Why, in one sentence."},
            },
            "required": ["should_notify"],
        }),
        parallel: false,
        idempotent: true,
    };
    let tokens = text_tokens(&text) + text_tokens(evaluator);
    ChatRequest {
        model,
        system: evaluator.into(),
        system_tail: None,
        messages: vec![Message::User([Content::text(text)].into())].into(),
        tools: [tool].into(),
        choice: ToolChoice::Auto,
        effort: None,
        tokens,
        max_tokens: ANSWER_TOKENS.min(max_tokens),
        temperature: 0.0,
    }
}

/// What the model decided.
pub fn judge(answer: &AssistantMessage) -> Result<Verdict, NotEvaluated> {
    if !matches!(answer.stop, StopReason::Stop | StopReason::ToolUse) {
        return Err(NotEvaluated::Cut);
    }
    let call = answer.calls.iter().find(|call| call.name == TOOL).ok_or(NotEvaluated::NotCalled)?;
    let Arguments::Object(arguments) = &call.arguments else { return Err(NotEvaluated::Malformed) };
    let notify = arguments.get("should_notify").and_then(|value| match value.as_str() {
        None => value.as_bool(),
        Some(text) => text.trim().to_lowercase().parse().ok(),
    });
    let reason = arguments.get("reason").and_then(|reason| reason.as_str()).unwrap_or_default();
    let reason = first_chars(reason.trim(), REASON_CHARS_MAX).to_owned();
    Ok(Verdict { notify: notify.ok_or(NotEvaluated::Malformed)?, reason })
}

#[cfg(test)]
mod tests {
    use serde_json::Value;

    use super::*;
    use crate::chat::ToolCall;
    use crate::ids::ToolCallId;

    fn answer(name: &str, arguments: Value) -> AssistantMessage {
        let arguments = match arguments {
            Value::Object(object) => Arguments::Object(object),
            other @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
                Arguments::Malformed { text: other.to_string(), problem: "no object".to_owned() }
            }
        };
        let call = ToolCall { id: ToolCallId("c".into()), name: name.to_owned(), arguments };
        AssistantMessage { calls: vec![call], stop: StopReason::ToolUse, ..AssistantMessage::new("", "p", "m") }
    }

    #[test]
    fn only_a_whole_call_of_the_tool_decides() {
        let told = |name, arguments| judge(&answer(name, arguments));
        let verdict = |notify, reason: &str| Ok(Verdict { notify, reason: reason.to_owned() });
        for (arguments, expect) in [
            (json!({"should_notify": true, "reason": " it burns "}), verdict(true, "it burns")),
            (json!({"should_notify": false}), verdict(false, "")),
            (json!({"should_notify": "True"}), verdict(true, "")),
            (json!({"should_notify": "maybe"}), Err(NotEvaluated::Malformed)),
            (json!({"should_notify": 1}), Err(NotEvaluated::Malformed)),
            (json!({}), Err(NotEvaluated::Malformed)),
            (json!("x"), Err(NotEvaluated::Malformed)),
        ] {
            assert_eq!(told(TOOL, arguments.clone()), expect, "{arguments}");
        }
        assert_eq!(told("other", json!({"should_notify": true})), Err(NotEvaluated::NotCalled));
        assert_eq!(judge(&AssistantMessage::new("should_notify: true", "p", "m")), Err(NotEvaluated::NotCalled));
        let cut = AssistantMessage { stop: StopReason::Length, ..answer(TOOL, json!({"should_notify": true})) };
        assert_eq!(judge(&cut), Err(NotEvaluated::Cut));
    }

    #[test]
    fn the_model_is_asked_coldly_and_with_one_tool() {
        let asked = request("m".into(), 8192, EVALUATOR, "- water", &"x".repeat(20_000));
        assert_eq!((asked.temperature, asked.tools.len(), asked.max_tokens), (0.0, 1, 1024));
        assert!(asked.system.contains(TOOL) && asked.tools[0].name == TOOL);
        let Some(Message::User(content)) = asked.messages.iter().next() else { panic!() };
        let text = crate::chat::plain_text(content);
        assert!(text.contains("- water") && text.chars().count() < 17_000);
        assert_eq!(request("m".into(), 100, "", "", "").max_tokens, 100);
    }
}
