//! A rough count of tokens, the same on every machine: no tokeniser, no tables.

use crate::chat::{Arguments, Content, Message, ToolCall};
use crate::request::ToolSpec;

/// What each message costs besides its text.
pub const MESSAGE_TOKENS: u64 = 4;
/// What a picture costs, whatever its size.
pub const IMAGE_TOKENS: u64 = 1200;

/// Tokens of a text: four ASCII bytes make one, three other bytes make one. Rounded up.
pub fn text_tokens(text: &str) -> u64 {
    // Most texts are ASCII, and to know that is many times faster than to count.
    let other = if text.is_ascii() { 0 } else { text.bytes().filter(|byte| !byte.is_ascii()).count() };
    let ascii = text.len() - other;
    (ascii.div_ceil(4) + other.div_ceil(3)) as u64
}

/// Tokens of pieces of content.
pub fn content_tokens(content: &[Content]) -> u64 {
    content
        .iter()
        .map(|piece| match piece {
            Content::Text { text } => text_tokens(text),
            Content::Image { .. } => IMAGE_TOKENS,
        })
        .sum()
}

/// Tokens of a message.
pub fn message_tokens(message: &Message) -> u64 {
    MESSAGE_TOKENS
        + match message {
            Message::User(content) => content_tokens(content),
            Message::Assistant(message) => {
                let reasoning = message.reasoning.as_deref().map_or(0, text_tokens);
                text_tokens(&message.text) + reasoning + message.calls.iter().map(call_tokens).sum::<u64>()
            }
            Message::ToolResult(result) => text_tokens(&result.name) + content_tokens(&result.content),
        }
}

/// Tokens of the tools on offer.
pub fn tools_tokens(tools: &[ToolSpec]) -> u64 {
    let one = |tool: &ToolSpec| {
        MESSAGE_TOKENS
            + text_tokens(&tool.name)
            + text_tokens(&tool.description)
            + text_tokens(&tool.parameters.to_string())
    };
    tools.iter().map(one).sum()
}

fn call_tokens(call: &ToolCall) -> u64 {
    let arguments = match &call.arguments {
        Arguments::Object(arguments) if arguments.is_empty() => 1,
        Arguments::Object(arguments) => text_tokens(&serde_json::to_string(arguments).unwrap_or_default()),
        Arguments::Malformed { text, .. } => text_tokens(text),
    };
    MESSAGE_TOKENS + text_tokens(&call.name) + arguments
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_rounded_up_and_other_scripts_cost_more() {
        for (text, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("你好", 2), ("é", 1), ("abcd你", 2)] {
            assert_eq!(text_tokens(text), tokens, "{text}");
        }
        let image = Content::Image { data: "AAAA".into(), mime: "image/png".to_owned() };
        assert_eq!(message_tokens(&Message::User([Content::text("hi"), image].into())), 4 + 1 + IMAGE_TOKENS);
    }
}
