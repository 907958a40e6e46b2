//! What a tool call does, in a few words for people: `read notes.md`, `$ cargo test`. Pure.

use domain::text::{ellipsis, one_line};
use serde_json::{Map, Value};

/// Tools with words of their own: what stands before the argument, which argument that is, what stands behind.
const HINTS: [(&str, &str, &str, &str); 9] = [
    ("read_file", "read ", "path", ""),
    ("write_file", "write ", "path", ""),
    ("edit_file", "edit ", "path", ""),
    ("list_dir", "ls ", "path", ""),
    ("exec", "$ ", "command", ""),
    ("grep", "grep \"", "pattern", "\""),
    ("find_files", "find ", "pattern", ""),
    ("web_search", "search \"", "query", "\""),
    ("web_fetch", "fetch ", "url", ""),
];

/// The hint for a call with these arguments (JSON text), on one line of at most `chars_max` characters. A tool that has
/// no words of its own, and a call without what it needs, is its name.
pub fn of(name: &str, arguments: &str, chars_max: usize) -> String {
    let arguments: Map<String, Value> = serde_json::from_str(arguments).unwrap_or_default();
    let hint = HINTS.iter().find(|hint| hint.0 == name).and_then(|(_, before, argument, behind)| {
        let argument = one_line(arguments.get(*argument)?.as_str()?);
        let room = chars_max.saturating_sub(before.chars().count() + behind.len());
        Some(format!("{before}{}{behind}", ellipsis(argument.trim(), room)))
    });
    ellipsis(&hint.unwrap_or_else(|| one_line(name)), chars_max).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_told_in_a_few_words() {
        for (name, arguments, hint) in [
            ("read_file", r#"{"path":"notes.md","limit":3}"#, "read notes.md"),
            ("exec", r#"{"command":"cargo test\n--all"}"#, "$ cargo test --all"),
            ("grep", r#"{"pattern":"fn main"}"#, r#"grep "fn main""#),
            ("grep", r#"{"pattern":"a pattern that is far too long"}"#, r#"grep "a pattern that…""#),
            ("exec", "not JSON", "exec"),
            ("exec", r#"{"command":7}"#, "exec"),
            ("my_tool", r#"{"path":"x"}"#, "my_tool"),
        ] {
            let shown = of(name, arguments, 22);
            assert_eq!(shown, hint);
            assert!(shown.chars().count() <= 22);
        }
    }
}
