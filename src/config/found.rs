//! What stands where something else was expected, in words. Pure.

use serde_json::Value;

/// Whether a message may show a text.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Texts {
    /// It was written in the file: its beginning may be shown.
    Shown,
    /// It came from the environment, where secrets are.
    #[default]
    Hidden,
}

/// Longest text that is shown whole; of a longer one, so many characters are.
const SHOWN_CHARS_MAX: usize = 16;
const SHOWN_CHARS_LONG: usize = 8;

/// The kind of a value, without the value.
pub fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

/// A value that is no text, with what it is.
pub fn bare(value: &Value) -> String {
    match value {
        Value::Bool(flag) => flag.to_string(),
        Value::Number(number) => format!("the number {number}"),
        Value::Null | Value::String(_) | Value::Array(_) | Value::Object(_) => kind_of(value).into(),
    }
}

/// Like [`bare`], with the beginning of a text that may be shown. A number in quotes is a number.
pub fn found(value: &Value, texts: Texts) -> String {
    let Value::String(text) = value else { return bare(value) };
    if text.trim().parse().is_ok_and(|number: f64| number.is_finite()) {
        return format!("the number {}", shortened(text.trim()));
    }
    match texts {
        Texts::Shown => format!("the text \"{}\"", shortened(text)),
        Texts::Hidden => kind_of(value).into(),
    }
}

fn shortened(text: &str) -> String {
    let whole = text.chars().count() <= SHOWN_CHARS_MAX;
    let shown = text.chars().take(if whole { SHOWN_CHARS_MAX } else { SHOWN_CHARS_LONG });
    let shown: String = shown.flat_map(char::escape_debug).collect();
    if whole { shown } else { format!("{shown}…") }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn values_are_shown_short_and_those_of_the_environment_not_at_all() {
        for (value, shown, hidden) in [
            (json!(70000), "the number 70000", "the number 70000"),
            (json!(" 1.5"), "the number 1.5", "the number 1.5"),
            (json!(true), "true", "true"),
            (json!("many\n"), "the text \"many\\n\"", "text"),
            (json!("inf"), "the text \"inf\"", "text"),
            (json!("sk-or-v1-0123456789abcdef"), "the text \"sk-or-v1…\"", "text"),
            (json!(["x"]), "a list", "a list"),
            (json!({"x": 1}), "an object", "an object"),
            (json!(null), "null", "null"),
        ] {
            assert_eq!(found(&value, Texts::Shown), shown);
            assert_eq!(found(&value, Texts::Hidden), hidden);
        }
    }
}
