//! Arguments of a call, from what the model wrote to what a tool gets. Pure.

use domain::chat::Arguments;
use domain::schema::{cast_and_check, unpack};
use serde_json::{Map, Value};

/// The arguments as a map that fits `schema`, or what is wrong with them, for the model.
pub(crate) fn prepare(
    tool: &str,
    schema: &Value,
    aliases: &[(&str, &str)],
    arguments: Arguments,
) -> Result<Map<String, Value>, String> {
    let mut map = unpack(schema, arguments)
        .map_err(|problem| format!("the arguments of {tool} are not a JSON object: {problem}. Nothing was run."))?;
    for (other, real) in aliases {
        if !map.contains_key(*real)
            && let Some(value) = map.remove(*other)
        {
            map.insert((*real).to_owned(), value);
        }
    }
    cast_and_check(schema, map)
        .map_err(|problems| format!("the arguments of {tool} do not fit: {}. Nothing was run.", problems.join("; ")))
}
