//! The arguments of a tool call, as real models write them: pure.

use std::borrow::Cow;

use domain::chat::Arguments;
use serde_json::{Map, Value};

/// How many strings around an object are unwrapped.
const UNWRAPPED_MAX: usize = 2;

/// What was odd about arguments that could be read all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Oddity {
    /// The object was the content of a JSON string.
    WrappedInString,
    /// Text followed the object; it was left out.
    TextAfterObject,
}

/// Reads the text of a call's arguments. Nothing, and `null`, are no arguments at all.
pub fn read(text: &str) -> (Arguments, Option<Oddity>) {
    let mut oddity = None;
    let mut layer = Cow::Borrowed(text);
    for _ in 0..=UNWRAPPED_MAX {
        if layer.trim().is_empty() {
            return (Arguments::Object(Map::new()), oddity);
        }
        let mut values = serde_json::Deserializer::from_str(&layer).into_iter::<Value>();
        let value = match values.next() {
            Some(Ok(value)) => value,
            Some(Err(error)) => return (malformed(text, format!("no JSON: {error}")), None),
            None => return (Arguments::Object(Map::new()), oddity),
        };
        let rest = layer.get(values.byte_offset()..).unwrap_or_default();
        if !rest.trim().is_empty() {
            oddity = Some(Oddity::TextAfterObject);
        }
        match value {
            Value::Object(map) => return (Arguments::Object(map), oddity),
            Value::Null => return (Arguments::Object(Map::new()), oddity),
            Value::String(inner) => {
                oddity = oddity.or(Some(Oddity::WrappedInString));
                layer = Cow::Owned(inner);
            }
            Value::Array(_) => return (malformed(text, "an array where an object is expected"), None),
            Value::Bool(_) => return (malformed(text, "true or false where an object is expected"), None),
            Value::Number(_) => return (malformed(text, "a number where an object is expected"), None),
        }
    }
    (malformed(text, "a string where an object is expected"), None)
}

fn malformed(text: &str, problem: impl Into<String>) -> Arguments {
    Arguments::Malformed { text: text.to_owned(), problem: problem.into() }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Arguments {
        match value {
            Value::Object(map) => Arguments::Object(map),
            other => panic!("{other} is no object"),
        }
    }

    #[test]
    fn odd_arguments_are_read_and_named() {
        use Oddity::{TextAfterObject, WrappedInString};
        let a = || object(json!({"a": 1}));
        for (text, expected, oddity) in [
            (r#"{"a":1}"#, a(), None),
            ("", object(json!({})), None),
            ("  \n", object(json!({})), None),
            ("null", object(json!({})), None),
            (r#""{\"a\":1}""#, a(), Some(WrappedInString)),
            (r#""\"{\\\"a\\\":1}\"""#, a(), Some(WrappedInString)),
            (r#""""#, object(json!({})), Some(WrappedInString)),
            (r#"{"a":1} and so on"#, a(), Some(TextAfterObject)),
            (r#"{"a":1}}"#, a(), Some(TextAfterObject)),
            (r#"{"a":1}{"b":2}"#, a(), Some(TextAfterObject)),
        ] {
            assert_eq!(read(text), (expected, oddity), "{text}");
        }
    }

    #[test]
    fn what_is_no_object_is_malformed_and_kept() {
        let three =
            serde_json::to_string(&serde_json::to_string(&serde_json::to_string("{}").unwrap()).unwrap()).unwrap();
        for (text, part) in [
            (r#"{"a":1"#, "no JSON"),
            ("a: 1", "no JSON"),
            ("[1]", "array"),
            ("3", "number"),
            ("true", "true or false"),
            (three.as_str(), "string"),
        ] {
            let (Arguments::Malformed { text: kept, problem }, None) = read(text) else { panic!("{text} was read") };
            assert_eq!(kept, text);
            assert!(problem.contains(part), "{problem}");
        }
    }

    proptest! {
        #[test]
        fn an_object_survives_up_to_two_strings_around_it(key in ".{0,9}", number: i64, layers in 0usize..=2) {
            let value = json!({key: number});
            let mut text = value.to_string();
            for _ in 0..layers {
                text = serde_json::to_string(&text).unwrap();
            }
            prop_assert_eq!(read(&text).0, object(value));
        }

        #[test]
        fn nothing_panics(text in ".{0,40}") {
            let _ = read(&text);
        }
    }
}
