//! JSON as Python writes and reads it.
//!
//! Written: `, ` and `: ` between things, characters as they are. Read: also `NaN`, `Infinity` and halves of surrogate
//! pairs, which Python takes for granted and nobody else does.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::io;

use serde::Serialize;
use serde_json::ser::{Formatter, Serializer};
use serde_json::value::RawValue;
use serde_json::{Map, Value};

use crate::text::without_lone_surrogates;

/// Numbers that JSON does not have.
const NO_NUMBERS: [&str; 3] = ["-Infinity", "Infinity", "NaN"];

/// One line of Python's `json.dumps(value, ensure_ascii=False)`.
pub fn python_line<T: Serialize>(value: &T) -> String {
    struct Spaced;
    impl Formatter for Spaced {
        fn begin_array_value<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
            if first { Ok(()) } else { to.write_all(b", ") }
        }
        fn begin_object_key<W: ?Sized + io::Write>(&mut self, to: &mut W, first: bool) -> io::Result<()> {
            if first { Ok(()) } else { to.write_all(b", ") }
        }
        fn begin_object_value<W: ?Sized + io::Write>(&mut self, to: &mut W) -> io::Result<()> {
            to.write_all(b": ")
        }
    }
    let mut out = Vec::new();
    let written = value.serialize(&mut Serializer::with_formatter(&mut out, Spaced));
    written.expect("values have only string keys, so they always serialise");
    String::from_utf8_lossy(&out).into_owned()
}

/// An object that was read.
#[derive(Debug, Clone, PartialEq)]
pub struct Read {
    /// What it says.
    pub object: Map<String, Value>,
    /// Whether the text is JSON as it stands, and was not mended.
    pub exact: bool,
}

/// Reads a text that is one object. Numbers that are none become `null`, halves of pairs a replacement character.
pub fn read_object(text: &str) -> Option<Read> {
    if let Ok(object) = serde_json::from_str(text) {
        return Some(Read { object, exact: true });
    }
    let mended = without_lone_surrogates(text);
    let mended = without_no_numbers(&mended);
    let object = serde_json::from_str(&mended).ok().or_else(|| field_by_field(&mended))?;
    Some(Read { object, exact: false })
}

/// An odd field, such as a number out of range, does not make the others unreadable.
fn field_by_field(text: &str) -> Option<Map<String, Value>> {
    let fields: BTreeMap<String, &RawValue> = serde_json::from_str(text).ok()?;
    let read = |value: &RawValue| serde_json::from_str(value.get()).unwrap_or_default();
    Some(fields.into_iter().map(|(name, value)| (name, read(value))).collect())
}

/// `null` in place of numbers that JSON does not have; texts stay as they are.
fn without_no_numbers(text: &str) -> Cow<'_, str> {
    if !NO_NUMBERS.iter().any(|word| text.contains(word)) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let Some(next) = rest.chars().next() {
        if let Some(behind) = NO_NUMBERS.iter().find_map(|word| rest.strip_prefix(word)).filter(|_| !in_string) {
            out.push_str("null");
            rest = behind;
            continue;
        }
        let mut chars = rest.chars();
        chars.next();
        out.push(next);
        match next {
            '"' => in_string = !in_string,
            '\\' if in_string => out.extend(chars.next()),
            _ => {}
        }
        rest = chars.as_str();
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn lines_are_spaced_as_python_does_it() {
        let value = json!({"a": [1, 2.0, "é\n"], "b": {}, "c": [], "d": {"e": null, "f": true}});
        assert_eq!(python_line(&value), r#"{"a": [1, 2.0, "é\n"], "b": {}, "c": [], "d": {"e": null, "f": true}}"#);
    }

    #[test]
    fn what_only_python_reads_is_mended() {
        for (text, said, exact) in [
            (r#"{"a":1}"#, Some(json!({"a": 1})), true),
            (r#"{"a":NaN,"b":[-Infinity,Infinity]}"#, Some(json!({"a": null, "b": [null, null]})), false),
            (r#"{"a":"NaN \" NaN","b":NaN}"#, Some(json!({"a": "NaN \" NaN", "b": null})), false),
            (r#"{"a":"\ud800"}"#, Some(json!({"a": "\u{fffd}"})), false),
            (r#"[1]"#, None, false),
            (r#"{"a":1} {"b":2}"#, None, false),
            ("", None, false),
        ] {
            let read = read_object(text);
            assert_eq!(read.clone().map(|read| Value::Object(read.object)), said, "{text}");
            assert_eq!(read.is_some_and(|read| read.exact), exact, "{text}");
        }
    }
}
