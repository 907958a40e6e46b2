//! What is special about a server, and about a model on it, as far as requests and answers go.

use std::borrow::Cow;
use std::fmt::Write;

use serde_json::{Map, Value};
use sha2::{Digest, Sha256};

/// Longest id of a tool call that servers take back; some refuse 41 characters.
const ID_CHARS_MAX: usize = 40;
/// Of an id where exactly so many letters and digits are asked for.
const SHORT_ID_CHARS: usize = 9;
/// Digits of such an id.
const DIGITS: &[u8; 36] = b"0123456789abcdefghijklmnopqrstuvwxyz";

/// What is special about a server.
#[derive(Debug, Clone, Default)]
pub struct Quirks {
    /// Whether it is OpenAI's own, which calls the answer's bound `max_completion_tokens`.
    pub openai: bool,
    /// Whether it takes markers of what it is to cache, for the models that want them.
    pub cache_markers: bool,
    /// Whether it wants the reasoning of messages with tool calls back, and refuses such a message without any.
    pub resend_reasoning: bool,
    /// How it wants ids of tool calls.
    pub id_form: IdForm,
    /// Whether its models may write tool calls as text.
    pub text_calls: bool,
    /// Further fields; they overrule ours, and null removes a field.
    pub extra_body: Map<String, Value>,
}

/// How ids of tool calls look.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum IdForm {
    /// Up to 40 letters, digits, `_` and `-`.
    #[default]
    Usual,
    /// Exactly nine letters and digits.
    Nine,
}

// === impl Quirks ===

impl Quirks {
    /// Those that are known of the provider of that name, or of the host that it is reached at.
    pub fn of(name: &str, host: &str) -> Self {
        let below = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
        let is = |provider: &str, domains: &[&str]| name == provider || domains.iter().any(|domain| below(domain));
        let thinks = is("deepseek", &["deepseek.com"]) || is("moonshot", &["moonshot.ai", "moonshot.cn"]);
        Self {
            openai: host == "api.openai.com",
            cache_markers: is("openrouter", &["openrouter.ai"]),
            resend_reasoning: thinks,
            id_form: if is("mistral", &["mistral.ai"]) { IdForm::Nine } else { IdForm::Usual },
            ..Self::default()
        }
    }

    /// Whether what is to be cached is marked in requests to that model.
    pub fn marks_cache(&self, model: &str) -> bool {
        self.cache_markers && (model.starts_with("anthropic/") || model.to_ascii_lowercase().contains("claude"))
    }

    /// What the bound of an answer of that model is called.
    pub fn bound(&self, model: &str) -> &'static str {
        let newer = self.openai || is_fixed(model) || bare(model).starts_with("kimi-k3");
        if newer { "max_completion_tokens" } else { "max_tokens" }
    }

    /// Whether that model takes a temperature.
    pub fn has_temperature(&self, model: &str) -> bool {
        !is_fixed(model)
    }
}

/// Models of OpenAI that reason, and refuse a temperature.
fn is_fixed(model: &str) -> bool {
    let model = bare(model);
    let series = |name: &str| model.strip_prefix(name).is_some_and(|rest| rest.is_empty() || rest.starts_with('-'));
    model.starts_with("gpt-5") || ["o1", "o3", "o4"].into_iter().any(series)
}

/// The name without that of its maker.
fn bare(model: &str) -> &str {
    model.rsplit('/').next().unwrap_or(model)
}

/// The id as a server of that form takes it: the same for a call and its result, whoever made it up.
pub fn wire_id(id: &str, form: IdForm) -> Cow<'_, str> {
    let digest = || Sha256::digest(id);
    match form {
        IdForm::Usual => {
            let legal = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
            if (1..=ID_CHARS_MAX).contains(&id.len()) && id.bytes().all(legal) {
                return Cow::Borrowed(id);
            }
            let mut made = "call_".to_owned();
            for byte in digest().iter().take(16) {
                write!(made, "{byte:02x}").expect("writing to a string cannot fail");
            }
            Cow::Owned(made)
        }
        IdForm::Nine => {
            if id.len() == SHORT_ID_CHARS && id.bytes().all(|byte| byte.is_ascii_alphanumeric()) {
                return Cow::Borrowed(id);
            }
            let mut number = digest().iter().take(8).fold(0_u64, |number, byte| number << 8 | u64::from(*byte));
            let digits = (0..SHORT_ID_CHARS).map(|_| {
                let digit = usize::try_from(number % 36).ok().and_then(|at| DIGITS.get(at)).copied();
                number /= 36;
                char::from(digit.unwrap_or(b'0'))
            });
            Cow::Owned(digits.collect())
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn servers_are_known_by_name_or_by_host() {
        let shown = |name: &str, host: &str| {
            let Quirks { openai, cache_markers, resend_reasoning, id_form, .. } = Quirks::of(name, host);
            (openai, cache_markers, resend_reasoning, id_form == IdForm::Nine)
        };
        for (name, host, expected) in [
            ("openai", "api.openai.com", (true, false, false, false)),
            ("openrouter", "proxy.example", (false, true, false, false)),
            ("custom", "openrouter.ai", (false, true, false, false)),
            ("deepseek", "api.deepseek.com", (false, false, true, false)),
            ("custom", "api.moonshot.cn", (false, false, true, false)),
            ("custom", "notmoonshot.cn", (false, false, false, false)),
            ("mistral", "api.mistral.ai", (false, false, false, true)),
        ] {
            assert_eq!(shown(name, host), expected, "{name} {host}");
        }
    }

    #[test]
    fn models_are_known_by_their_name() {
        let (plain, markers) = (Quirks::default(), Quirks { cache_markers: true, ..Quirks::default() });
        for (model, bound, temperature, marked) in [
            ("gpt-4o", "max_tokens", true, false),
            ("openai/gpt-5-mini", "max_completion_tokens", false, false),
            ("o3", "max_completion_tokens", false, false),
            ("o4-mini", "max_completion_tokens", false, false),
            ("o365", "max_tokens", true, false),
            ("moonshotai/kimi-k3", "max_completion_tokens", true, false),
            ("anthropic/opus", "max_tokens", true, true),
            ("x/Claude-4", "max_tokens", true, true),
        ] {
            assert_eq!((plain.bound(model), plain.has_temperature(model)), (bound, temperature), "{model}");
            assert_eq!((markers.marks_cache(model), plain.marks_cache(model)), (marked, false), "{model}");
        }
    }

    #[test]
    fn ids_that_a_server_takes_stay() {
        let forty = "x".repeat(40);
        for id in ["call_1", "a-B_9", forty.as_str()] {
            assert_eq!(wire_id(id, IdForm::Usual), id);
        }
        assert_eq!(wire_id("aB3dE6gH9", IdForm::Nine), "aB3dE6gH9");
    }

    proptest! {
        #[test]
        fn every_id_gets_a_legal_form_that_keeps_ids_apart(a in "\\PC{0,60}|[a-zA-Z0-9_-]{0,60}", b in "\\PC{0,60}|[a-z0-9]{9}") {
            for form in [IdForm::Usual, IdForm::Nine] {
                let (one, other) = (wire_id(&a, form), wire_id(&b, form));
                prop_assert_eq!(a == b, one == other);
                prop_assert_eq!(&wire_id(&a, form), &one);
                let legal = |letter: char| letter.is_ascii_alphanumeric() || (form == IdForm::Usual && "_-".contains(letter));
                prop_assert!(one.chars().all(legal));
                match form {
                    IdForm::Usual => prop_assert!((1..=40).contains(&one.len())),
                    IdForm::Nine => prop_assert_eq!(one.len(), 9),
                }
            }
        }
    }
}
