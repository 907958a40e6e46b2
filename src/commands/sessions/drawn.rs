//! The tree of a conversation, drawn. A conversation is as deep as it is long: what simply follows stays in its column,
//! and only branches move to the right.
//!
//! ```text
//! ● 1f03a7c2 2026-11-29 20:53 user       hello
//! ● 22c0d1b8 2026-11-29 20:53 assistant  Hello! [the greeting]
//! ├─○ 31aa90fe 2026-11-29 20:54 user       go left
//! │ ○ 40bb12aa 2026-11-29 20:54 assistant  Gone.
//! └─● 53cc77e0 2026-11-29 20:55 user       go right
//! ```

use std::collections::HashMap;

use domain::text::one_line;
use domain::transcript::view;
use serde_json::Value;

/// One line for each entry, behind one for the session's name.
pub fn tree(body: &Value, zone: &str) -> Vec<String> {
    let items = body["items"].as_array().map(Vec::as_slice).unwrap_or_default();
    let mut lines: Vec<String> = body["name"].as_str().map(one_line).into_iter().collect();
    if items.is_empty() {
        lines.push("no entries yet".to_owned());
        return lines;
    }
    let chars = view::id_chars(items.iter().map(|item| text(item, "id")));
    let mut siblings: HashMap<&str, usize> = HashMap::new();
    for item in items {
        *siblings.entry(parent(item)).or_default() += 1;
    }
    let mut left = siblings.clone();
    // What stands before the marks of each entry and of those that follow it.
    let mut columns: HashMap<&str, String> = HashMap::new();
    for item in items {
        let column = columns.get(parent(item)).cloned().unwrap_or_default();
        let more = left.get_mut(parent(item)).map_or(0, |left| {
            *left -= 1;
            *left
        });
        let branches = siblings.get(parent(item)).is_some_and(|count| *count > 1) && !parent(item).is_empty();
        let (mark, below) = match (branches, more) {
            (false, _) => ("", ""),
            (true, 0) => ("└─", "  "),
            (true, _) => ("├─", "│ "),
        };
        lines.push(format!("{column}{mark}{}", entry(item, chars, zone)));
        columns.insert(text(item, "id"), format!("{column}{below}"));
    }
    lines
}

fn text<'a>(item: &'a Value, name: &str) -> &'a str {
    item[name].as_str().unwrap_or_default()
}

fn parent(item: &Value) -> &str {
    text(item, "parent")
}

fn entry(item: &Value, chars: usize, zone: &str) -> String {
    let mark = view::mark_of(item["on_path"] == true, item["side"] == true);
    let id: String = text(item, "id").chars().take(chars).collect();
    let at =
        item["timestamp_ms"].as_i64().filter(|ms| *ms > 0).and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    let at = at.and_then(|at| at.in_tz(zone).ok()).map(|at| at.strftime("%Y-%m-%d %H:%M").to_string());
    let who = item["role"].as_str().unwrap_or(text(item, "kind"));
    let label = item["label"].as_str().map(|label| format!(" [{}]", one_line(label))).unwrap_or_default();
    let at = at.unwrap_or_default();
    format!("{mark} {id} {at:16} {who:10} {}{label}", text(item, "preview")).trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn branches_move_to_the_right_and_what_follows_stays() {
        let item = |id: &str, parent: Option<&str>, on_path: bool| {
            json!({"id": id, "parent": parent, "kind": "message", "role": "user", "preview": "hi", "on_path": on_path,
                "timestamp_ms": 1000})
        };
        let mut items = vec![
            item("a", None, true),
            item("b", Some("a"), true),
            item("c", Some("b"), false),
            item("d", Some("c"), false),
            item("e", Some("b"), true),
            item("f", Some("e"), true),
            item("g", None, false),
        ];
        items[1]["label"] = json!("start");
        let lines = tree(&json!({"name": "Taxes", "items": items}), "UTC");
        let line = |mark: &str, id: &str| format!("{mark} {id} 1970-01-01 00:00 user       hi");
        assert_eq!(
            lines,
            [
                "Taxes".to_owned(),
                line("●", "a"),
                format!("{} [start]", line("●", "b")),
                line("├─○", "c"),
                line("│ ○", "d"),
                line("└─●", "e"),
                line("  ●", "f"),
                line("○", "g"),
            ]
        );
        assert_eq!(tree(&json!({"name": null, "items": []}), "UTC"), ["no entries yet"]);
    }
}
