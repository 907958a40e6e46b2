//! JSON text to a value. Stricter than usual in one point: a name given twice in one object is an error,
//! because the first of the two would be dropped without a word. Pure.

use std::fmt;
use std::path::Path;

use serde::Deserialize;
use serde::de::{Deserializer, Error, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Value};

use super::check::printable;
use super::error::Problem;

/// The value of `text`, which is the content of `file`.
pub fn parse(file: &Path, text: &str) -> Result<Value, Problem> {
    if text.trim().is_empty() {
        let what = "is empty; the smallest configuration is {}, and `greenroom onboard` writes a first one";
        return Err(Problem::of_file(file, Some((1, 1)), what));
    }
    serde_json::from_str::<Strict>(text).map(|strict| strict.0).map_err(|bad| {
        let (line, column_bytes) = (bad.line(), bad.column());
        let said = bad.to_string();
        let suffix = format!(" at line {line} column {column_bytes}");
        let what = said.strip_suffix(&suffix).unwrap_or(&said).to_string();
        let before = text.lines().nth(line.saturating_sub(1)).unwrap_or_default().bytes().take(column_bytes);
        // Bytes that continue a character are no column of their own.
        let column = before.filter(|byte| byte & 0xC0 != 0x80).count().max(1);
        Problem::of_file(file, Some((line, column)), format!("invalid JSON: {what}"))
    })
}

struct Strict(Value);

impl<'de> Deserialize<'de> for Strict {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        from.deserialize_any(Reader).map(Self)
    }
}

struct Reader;

impl<'de> Visitor<'de> for Reader {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("JSON")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(value.into())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut items: A) -> Result<Value, A::Error> {
        let mut list = Vec::new();
        while let Some(Strict(item)) = items.next_element()? {
            list.push(item);
        }
        Ok(list.into())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut pairs: A) -> Result<Value, A::Error> {
        let mut object = Map::new();
        while let Some(name) = pairs.next_key::<String>()? {
            if object.contains_key(&name) {
                return Err(A::Error::custom(format!("the name {} is given twice in one object", printable(&name))));
            }
            let Strict(value) = pairs.next_value()?;
            object.insert(name, value);
        }
        Ok(object.into())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_accepted_is_read_as_everybody_reads_it(text in "[\\[\\]{}\",:\\\\a0.e\\-u \n]{0,40}") {
            if let Ok(strict) = parse("f".as_ref(), &text) {
                prop_assert_eq!(strict, serde_json::from_str::<Value>(&text).unwrap());
            }
        }
    }
}
