//! Casts and checks the arguments of a tool call against the subset of JSON Schema that tools use: `type` (one or
//! several), `properties`, `required`, `additionalProperties: false`, `items`, `enum`, `minimum`, `maximum`.
//!
//! Models write `"5"` for 5 and wrap arguments once too often. What can be made right without a guess is; everything
//! else is reported at once, each error with its path. Values are not repeated in errors.

use serde_json::{Map, Number, Value};

use crate::chat::Arguments;

/// How many errors of one call are reported.
pub const ERRORS_MAX: usize = 20;

/// The object among the arguments of a call: one that was packed into a text, or into a lone `{"arguments": ...}`, is
/// taken out. Fails with what is wrong.
pub fn unpack(schema: &Value, arguments: Arguments) -> Result<Map<String, Value>, String> {
    let object = match arguments {
        Arguments::Object(object) => object,
        Arguments::Malformed { text, problem } => unpacked(&text).ok_or(problem)?,
    };
    Ok(unwrapped(schema, object))
}

/// Makes arguments fit `schema` where that loses nothing, then checks them.
pub fn cast_and_check(schema: &Value, arguments: Map<String, Value>) -> Result<Map<String, Value>, Vec<String>> {
    let mut errors = Vec::new();
    let arguments = object(schema, arguments, "", &mut errors);
    if errors.is_empty() {
        return Ok(arguments);
    }
    errors.truncate(ERRORS_MAX);
    Err(errors)
}

/// An object inside a JSON string.
fn unpacked(text: &str) -> Option<Map<String, Value>> {
    match serde_json::from_str(text).ok()? {
        Value::Object(object) => Some(object),
        Value::String(inner) => serde_json::from_str(&inner).ok(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_) => None,
    }
}

/// The inner object of a lone `{"arguments": ...}`, unless the tool has an argument of that name.
fn unwrapped(schema: &Value, object: Map<String, Value>) -> Map<String, Value> {
    let takes_it = schema.get("properties").and_then(|known| known.get("arguments")).is_some();
    if takes_it || object.len() != 1 {
        return object;
    }
    match object.get("arguments") {
        Some(Value::Object(inner)) => inner.clone(),
        Some(Value::String(inner)) => unpacked(inner).unwrap_or(object),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Array(_)) | None => object,
    }
}

fn object(schema: &Value, given: Map<String, Value>, path: &str, errors: &mut Vec<String>) -> Map<String, Value> {
    let none = Map::new();
    let known = schema.get("properties").and_then(Value::as_object).unwrap_or(&none);
    let required: Vec<&str> =
        schema.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str).collect();
    let closed = schema.get("additionalProperties") == Some(&Value::Bool(false));
    let mut out = Map::new();
    for (name, value) in given {
        let inner_path = if path.is_empty() { name.clone() } else { format!("{path}.{name}") };
        match known.get(&name) {
            // Null for an optional argument means that it is absent.
            Some(inner) if value.is_null() && !allows(inner, "null") && !required.contains(&name.as_str()) => {}
            Some(inner) => {
                let value = checked(inner, value, &inner_path, errors);
                out.insert(name, value);
            }
            None if closed => {
                let names: Vec<&str> = known.keys().map(String::as_str).collect();
                errors.push(format!("{inner_path}: unknown argument; known are {}", names.join(", ")));
            }
            None => {
                out.insert(name, value);
            }
        }
    }
    for name in required {
        if !out.contains_key(name) {
            let inner_path = if path.is_empty() { name.to_owned() } else { format!("{path}.{name}") };
            errors.push(format!("{inner_path}: required, but missing"));
        }
    }
    out
}

fn checked(schema: &Value, value: Value, path: &str, errors: &mut Vec<String>) -> Value {
    let value = cast(schema, value);
    let types = types(schema);
    if !types.is_empty() && !types.iter().any(|wanted| fits(wanted, &value)) {
        errors.push(format!("{path}: must be {}, not {}", types.join(" or "), name_of(&value)));
        return value;
    }
    if let Some(options) = schema.get("enum").and_then(Value::as_array)
        && !options.contains(&value)
    {
        let options: Vec<String> = options.iter().map(Value::to_string).collect();
        errors.push(format!("{path}: must be one of {}", options.join(", ")));
    }
    if let Some(number) = value.as_f64() {
        let bound = |name: &str| schema.get(name).and_then(Value::as_f64);
        if let Some(least) = bound("minimum").filter(|least| number < *least) {
            errors.push(format!("{path}: must be at least {least}"));
        }
        if let Some(most) = bound("maximum").filter(|most| number > *most) {
            errors.push(format!("{path}: must be at most {most}"));
        }
    }
    match value {
        Value::Object(inner) => Value::Object(object(schema, inner, path, errors)),
        Value::Array(items) => match schema.get("items") {
            Some(inner) => {
                let items = items.into_iter().enumerate();
                items.map(|(at, item)| checked(inner, item, &format!("{path}[{at}]"), errors)).collect()
            }
            None => Value::Array(items),
        },
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value,
    }
}

/// The value in the first of the schema's types that it fits or can be read as.
fn cast(schema: &Value, value: Value) -> Value {
    let types = types(schema);
    if types.is_empty() || types.iter().any(|wanted| fits(wanted, &value)) {
        return match value.as_f64() {
            Some(number) if types.contains(&"integer") && !value.is_i64() && !value.is_u64() => whole(number),
            _ => value,
        };
    }
    if value.as_str() == Some("") && types.contains(&"null") {
        return Value::Null;
    }
    types.iter().find_map(|wanted| read_as(wanted, &value)).unwrap_or(value)
}

fn read_as(wanted: &str, value: &Value) -> Option<Value> {
    match (wanted, value) {
        ("string", Value::Number(_) | Value::Bool(_)) => Some(Value::String(value.to_string())),
        ("boolean", Value::String(text)) => match text.trim().to_ascii_lowercase().as_str() {
            "true" => Some(Value::Bool(true)),
            "false" => Some(Value::Bool(false)),
            _ => None,
        },
        ("integer" | "number" | "array" | "object", Value::String(text)) => {
            let inner: Value = serde_json::from_str(text.trim()).ok()?;
            let inner = match inner.as_f64() {
                Some(number) if wanted == "integer" && inner.is_f64() => whole(number),
                _ => inner,
            };
            fits(wanted, &inner).then_some(inner)
        }
        _ => None,
    }
}

/// 5 for 5.0.
#[expect(clippy::cast_possible_truncation, reason = "only whole numbers in the exact range of f64 get there")]
fn whole(number: f64) -> Value {
    const EXACT_MAX: f64 = 9_007_199_254_740_992.0;
    if number.fract() == 0.0 && number.abs() <= EXACT_MAX {
        return Value::from(number as i64);
    }
    Number::from_f64(number).map_or(Value::Null, Value::Number)
}

fn types(schema: &Value) -> Vec<&str> {
    let mut types: Vec<&str> = match schema.get("type") {
        Some(Value::String(one)) => vec![one],
        Some(Value::Array(several)) => several.iter().filter_map(Value::as_str).collect(),
        Some(Value::Null | Value::Bool(_) | Value::Number(_) | Value::Object(_)) | None => Vec::new(),
    };
    if schema.get("nullable") == Some(&Value::Bool(true)) && !types.is_empty() {
        types.push("null");
    }
    types
}

fn allows(schema: &Value, wanted: &str) -> bool {
    let types = types(schema);
    types.is_empty() || types.contains(&wanted)
}

fn fits(wanted: &str, value: &Value) -> bool {
    match wanted {
        "integer" => value.is_i64() || value.is_u64() || value.as_f64().is_some_and(|number| number.fract() == 0.0),
        "number" => value.is_number(),
        _ => name_of(value) == wanted,
    }
}

fn name_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "boolean",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({
            "type": "object",
            "properties": {
                "path": {"type": "string"},
                "lines": {"type": "integer", "minimum": 1, "maximum": 10},
                "ratio": {"type": "number"},
                "deep": {"type": "boolean"},
                "mode": {"type": "string", "enum": ["a", "b"]},
                "limit": {"type": ["integer", "null"]},
                "edits": {"type": "array", "items": {"type": "object", "properties": {"at": {"type": "integer"}}, "required": ["at"]}}
            },
            "required": ["path"],
            "additionalProperties": false
        })
    }

    fn fit(arguments: Arguments) -> Result<Map<String, Value>, Vec<String>> {
        cast_and_check(&schema(), unpack(&schema(), arguments).unwrap())
    }

    #[track_caller]
    fn check(given: Value, expected: Value) {
        let Value::Object(given) = given else { panic!("the case is no object") };
        assert_eq!(fit(Arguments::Object(given)).map(Value::Object), Ok(expected));
    }

    #[track_caller]
    fn check_errors(given: Value, expected: &[&str]) {
        let Value::Object(given) = given else { panic!("the case is no object") };
        assert_eq!(fit(Arguments::Object(given)).unwrap_err(), expected);
    }

    #[test]
    fn what_is_meant_is_made_right() {
        check(json!({"path": "x", "lines": "5"}), json!({"path": "x", "lines": 5}));
        check(json!({"path": 5, "lines": 5.0}), json!({"path": "5", "lines": 5}));
        check(json!({"path": "x", "deep": "True", "ratio": "1.5"}), json!({"path": "x", "deep": true, "ratio": 1.5}));
        check(json!({"path": "x", "limit": "", "mode": null}), json!({"path": "x", "limit": null}));
        check(json!({"path": "x", "edits": "[{\"at\":\"3\"}]"}), json!({"path": "x", "edits": [{"at": 3}]}));
        check(json!({"arguments": {"path": "x"}}), json!({"path": "x"}));
        check(json!({"arguments": "{\"path\":\"x\"}"}), json!({"path": "x"}));
        let packed = Arguments::Malformed { text: "\"{\\\"path\\\":\\\"x\\\"}\"".to_owned(), problem: "no".to_owned() };
        assert_eq!(fit(packed).map(Value::Object), Ok(json!({"path": "x"})));
    }

    #[test]
    fn all_errors_are_told_with_their_paths() {
        check_errors(
            json!({"lines": 0, "deep": "maybe", "mode": "c", "edits": [{"at": 1}, {"at": "x"}, {}], "other": 1}),
            &[
                "lines: must be at least 1",
                "deep: must be boolean, not string",
                "mode: must be one of \"a\", \"b\"",
                "edits[1].at: must be integer, not string",
                "edits[2].at: required, but missing",
                "other: unknown argument; known are path, lines, ratio, deep, mode, limit, edits",
                "path: required, but missing",
            ],
        );
        check_errors(json!({"path": null}), &["path: must be string, not null"]);
        check_errors(json!({"path": "x", "lines": 11.5}), &["lines: must be integer, not number"]);
        let broken = Arguments::Malformed { text: "{".to_owned(), problem: "it ends too early".to_owned() };
        assert_eq!(unpack(&schema(), broken), Err("it ends too early".to_owned()));
    }

    proptest! {
        #[test]
        fn what_passed_passes_again_unchanged(path in "[0-9a-z]{0,3}", lines in "-?[0-9]{1,2}(\\.[05])?", deep in "true|FALSE|x") {
            let given = json!({"path": path, "lines": lines, "deep": deep});
            if let Ok(fit) = cast_and_check(&schema(), given.as_object().unwrap().clone()) {
                prop_assert_eq!(cast_and_check(&schema(), fit.clone()), Ok(fit));
            }
        }
    }
}
