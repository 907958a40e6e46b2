//! What a hook says to its session. Pure.

use std::fmt;

use domain::text::first_chars;
use serde_json::Value;

const BEGIN: &str = "{{";
const END: &str = "}}";
/// The whole body.
const BODY: &str = "body";
/// Characters of a message; places in a template may repeat a long body.
const CHARS_MAX: usize = 512 * 1024;

/// A text with places: `{{body}}` is the body as it is, `{{/a/0/b}}` what stands there in a body of JSON (RFC 6901): a text
/// as it is, anything else as JSON, nothing where it is missing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Template(Vec<Piece>);

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(String),
    Body,
    At(String),
}

/// What is wrong with a template.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BadTemplate {
    /// A place does not end.
    #[error("has {{{{ without }}}}")]
    Open,
    /// A place names nothing.
    #[error("may have {{{{body}}}} and JSON pointers like {{{{/repository/name}}}} in double braces, and nothing else")]
    Place,
}

// === impl Template ===

impl Template {
    /// Reads one.
    pub fn parse(text: &str) -> Result<Self, BadTemplate> {
        let mut pieces = Vec::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once(BEGIN) {
            let (place, behind) = after.split_once(END).ok_or(BadTemplate::Open)?;
            pieces.push(Piece::Text(before.to_owned()));
            pieces.push(match place.trim() {
                BODY => Piece::Body,
                pointer if pointer.starts_with('/') => Piece::At(pointer.to_owned()),
                _ => return Err(BadTemplate::Place),
            });
            rest = behind;
        }
        pieces.push(Piece::Text(rest.to_owned()));
        Ok(Self(pieces))
    }

    /// Says it of a body.
    pub(super) fn say(&self, body: &str) -> String {
        let json: Value = match self.0.iter().any(|piece| matches!(piece, Piece::At(_))) {
            true => serde_json::from_str(body).unwrap_or_default(),
            false => Value::Null,
        };
        let mut said = String::new();
        for piece in &self.0 {
            match piece {
                Piece::Text(text) => said.push_str(text),
                Piece::Body => said.push_str(body),
                Piece::At(pointer) => match json.pointer(pointer) {
                    Some(Value::String(text)) => said.push_str(text),
                    Some(Value::Null) | None => {}
                    Some(other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_))) => {
                        said.push_str(&other.to_string());
                    }
                },
            }
            if said.len() > CHARS_MAX {
                break;
            }
        }
        first_chars(&said, CHARS_MAX).to_owned()
    }
}

/// As it was written.
impl fmt::Display for Template {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|piece| match piece {
            Piece::Text(text) => out.write_str(text),
            Piece::Body => write!(out, "{BEGIN}{BODY}{END}"),
            Piece::At(pointer) => write!(out, "{BEGIN}{pointer}{END}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn check(template: &str, body: &str, expect: &str) {
        let template = Template::parse(template).unwrap();
        assert_eq!(template.say(body), expect);
        assert_eq!(Template::parse(&template.to_string()).unwrap(), template);
    }

    #[test]
    fn places_are_filled_from_the_body() {
        check("{{body}}", "as it is\n", "as it is\n");
        check("nothing of it", "x", "nothing of it");
        let body = r#"{"a":{"b":["x","{{body}}"],"n":7,"no":null,"o":{"k":true}}}"#;
        check("{{ /a/b/0 }} and {{/a/n}}: {{/a/o}}", body, "x and 7: {\"k\":true}");
        check("[{{/a/no}}{{/nowhere}}{{/a/b/9}}]", body, "[]");
        check("{{/a/b/1}}", body, "{{body}}");
        check("{{/a}}{{body}}", "no json", "no json");
        check("a } b { c", "x", "a } b { c");
    }

    #[test]
    fn what_is_no_place_is_told() {
        assert_eq!(Template::parse("{{body"), Err(BadTemplate::Open));
        for text in ["{{}}", "{{ }}", "{{a}}", "{{body.x}}", "{{a/b}}"] {
            assert_eq!(Template::parse(text), Err(BadTemplate::Place), "{text}");
        }
        assert!(BadTemplate::Place.to_string().contains("{{body}}"));
    }

    #[test]
    fn a_body_that_is_repeated_has_an_end() {
        let template = Template::parse(&"{{body}}".repeat(50)).unwrap();
        assert_eq!(template.say(&"ü".repeat(100_000)).chars().count(), 300_000);
        assert_eq!(template.say(&"x".repeat(100_000)).len(), CHARS_MAX);
    }
}
