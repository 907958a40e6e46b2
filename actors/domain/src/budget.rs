//! A rough count of tokens, the same on every machine: no tokeniser, no tables. What providers say that they counted
//! corrects it: see [`Ratio`].

use crate::chat::{Arguments, AssistantMessage, Content, Message, ToolCall};
use crate::request::ToolSpec;

/// What each message costs besides its text.
pub const MESSAGE_TOKENS: u64 = 4;
/// What a picture costs, whatever its size.
pub const IMAGE_TOKENS: u64 = 1200;
/// Tokens of a window that are kept free because token counts are estimates.
pub const RESERVE_TOKENS: u64 = 1024;

/// How many replies correct the estimate.
const REPLIES: usize = 8;
/// The least and the most that a provider is believed to count for 1000 estimated tokens.
const PER_MILLE: (u64, u64) = (800, 4000);

/// How many tokens a provider counts where a thousand are estimated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ratio(u64);

// === impl Ratio ===

impl Ratio {
    /// What the newest replies that say both numbers say together; `replies` are given newest first.
    pub fn of<'m>(replies: impl Iterator<Item = &'m AssistantMessage>) -> Self {
        let both = |reply: &&AssistantMessage| reply.asked_tokens > 0 && reply.usage.input_tokens > 0;
        let (counted, asked) = replies.filter(both).take(REPLIES).fold((0_u64, 0_u64), |(counted, asked), reply| {
            (counted.saturating_add(reply.usage.input_tokens), asked.saturating_add(reply.asked_tokens))
        });
        let per_mille = match asked {
            0 => 1000,
            asked => u64::try_from(u128::from(counted) * 1000 / u128::from(asked)).unwrap_or(u64::MAX),
        };
        Self(per_mille.clamp(PER_MILLE.0, PER_MILLE.1))
    }

    /// How many tokens may be estimated where the provider is to count `counted` at most.
    pub fn estimated(self, counted: u64) -> u64 {
        u64::try_from(u128::from(counted) * 1000 / u128::from(self.0)).unwrap_or(u64::MAX)
    }
}

/// The most tokens that a request may have, as the provider counts: the window without the answer and a reserve, half
/// of it if that leaves nothing, and never more than `block_limit`.
pub fn budget(window_tokens: u64, max_tokens: u32, block_limit: Option<u64>) -> u64 {
    let room = window_tokens.saturating_sub(u64::from(max_tokens.max(1)) + RESERVE_TOKENS);
    let room = if room == 0 { (window_tokens / 2).max(128) } else { room };
    block_limit.map_or(room, |limit| limit.min(room))
}

/// The most tokens that can be estimated for what a request to a model with that window shows.
pub fn reach(window_tokens: u64) -> u64 {
    Ratio(PER_MILLE.0).estimated(window_tokens.max(128))
}

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
    use crate::chat::Usage;

    #[test]
    fn what_providers_count_corrects_the_estimate_within_bounds() {
        let reply = |asked_tokens, input_tokens| AssistantMessage {
            usage: Usage { input_tokens, ..Usage::default() },
            asked_tokens,
            ..AssistantMessage::new("", "p", "m")
        };
        let ratio = |pairs: &[(u64, u64)]| {
            let replies: Vec<_> = pairs.iter().map(|(asked, counted)| reply(*asked, *counted)).collect();
            Ratio::of(replies.iter())
        };
        for (pairs, estimated) in [
            (&[][..], 6000),
            (&[(0, 900), (900, 0)], 6000),
            (&[(100, 150)], 4000),
            (&[(100, 100), (100, 200)], 4000),
            (&[(100, 10)], 7500),
            (&[(100, 9000)], 1500),
            (&[(1, u64::MAX), (1, u64::MAX)], 1500),
        ] {
            assert_eq!(ratio(pairs).estimated(6000), estimated, "{pairs:?}");
        }
        let mut pairs = vec![(100, 200); REPLIES];
        pairs.push((1_000_000, 1));
        assert_eq!(ratio(&pairs).estimated(6000), 3000, "only the newest count");
    }

    #[test]
    fn a_window_without_room_is_halved_and_a_limit_only_lowers() {
        for (window, max_tokens, limit, expected) in [
            (10_000, 1000, None, 7976),
            (10_000, 1000, Some(5000), 5000),
            (10_000, 1000, Some(9000), 7976),
            (2024, 1000, None, 1012),
            (2025, 1000, None, 1),
            (100, 1000, None, 128),
            (0, 0, Some(7), 7),
        ] {
            assert_eq!(budget(window, max_tokens, limit), expected, "{window} {max_tokens} {limit:?}");
            assert!(Ratio(PER_MILLE.0).estimated(budget(window, max_tokens, limit)) <= reach(window));
        }
    }

    #[test]
    fn counts_are_rounded_up_and_other_scripts_cost_more() {
        for (text, tokens) in [("", 0), ("a", 1), ("abcd", 1), ("abcde", 2), ("你好", 2), ("é", 1), ("abcd你", 2)] {
            assert_eq!(text_tokens(text), tokens, "{text}");
        }
        let image = Content::Image { data: "AAAA".into(), mime: "image/png".to_owned(), path: None };
        assert_eq!(message_tokens(&Message::User([Content::text("hi"), image].into())), 4 + 1 + IMAGE_TOKENS);
    }
}
