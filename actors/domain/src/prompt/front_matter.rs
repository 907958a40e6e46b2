//! The front matter of a Markdown file: what stands between two lines of `---` at its beginning.
//!
//! Read is what such files have: `key: value`, blocks below a key, texts over several lines (`|`, `>`), lists, and flow
//! objects over several lines, as JSON or with bare words and a comma too many. What cannot be read is left out.

use serde_json::{Map, Value};

/// Levels that are read.
const DEPTH_MAX: usize = 8;

/// The front matter, and the text below it. A text without front matter has an empty one.
pub fn front_matter(text: &str) -> (Map<String, Value>, &str) {
    let text = text.trim_start_matches('\u{feff}');
    let inside = text.strip_prefix("---\n").or_else(|| text.strip_prefix("---\r\n"));
    let Some(inside) = inside else { return (Map::new(), text) };
    let mut at = 0;
    for line in inside.split_inclusive('\n') {
        let after = at + line.len();
        if line.trim_end() == "---" {
            let lines: Vec<&str> = inside.get(..at).unwrap_or("").lines().collect();
            return (mapping(&lines, 0), inside.get(after..).unwrap_or(""));
        }
        at = after;
    }
    (Map::new(), text)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

fn mapping(lines: &[&str], depth: usize) -> Map<String, Value> {
    let mut found = Map::new();
    let is_void = |line: &str| line.trim().is_empty() || line.trim_start().starts_with('#');
    let Some(own) = lines.iter().find(|line| !is_void(line)).map(|line| indent(line)) else { return found };
    let mut rest = lines;
    while let Some((line, after)) = rest.split_first() {
        // What belongs to a key stands deeper than it; items of a list may stand beside it.
        let deeper = |line: &&&str| line.trim().is_empty() || indent(line) > own || line.trim_start().starts_with("- ");
        let below = after.iter().take_while(deeper).count();
        let (children, next) = after.split_at_checked(below).unwrap_or((after, &[]));
        rest = next;
        let Some((key, value)) = line.split_once(':').filter(|_| !is_void(line) && depth < DEPTH_MAX) else { continue };
        found.insert(unquoted(key.trim()), of_key(value.trim(), children, depth));
    }
    found
}

/// What stands behind a key, and below it.
fn of_key(value: &str, children: &[&str], depth: usize) -> Value {
    let words = |between: &str| {
        let lines: Vec<&str> = children.iter().map(|line| line.trim()).collect();
        lines.join(between).trim().to_owned()
    };
    match value.chars().next() {
        Some('|') => Value::String(words("\n")),
        Some('>') => Value::String(words(" ")),
        Some('{' | '[') => Flow::read(&format!("{value}\n{}", words("\n"))),
        Some(_) => Value::String(unquoted(format!("{value} {}", words(" ")).trim())),
        None => match children.iter().map(|line| line.trim()).find(|line| !line.is_empty()) {
            None => Value::Null,
            Some(first) if first.starts_with(['{', '[']) => Flow::read(&words("\n")),
            Some(first) if first.starts_with("- ") => {
                let items = children.iter().filter_map(|line| line.trim().strip_prefix("- "));
                Value::Array(items.map(|item| Value::String(unquoted(item.trim()))).collect())
            }
            Some(_) => Value::Object(mapping(children, depth + 1)),
        },
    }
}

/// Without the quotes around it, or without the remark behind it.
fn unquoted(text: &str) -> String {
    for quote in ['"', '\''] {
        if let Some(inside) = text.strip_prefix(quote).and_then(|text| text.strip_suffix(quote)) {
            return if quote == '"' { inside.replace("\\\"", "\"") } else { inside.replace("''", "'") };
        }
    }
    text.split(" #").next().unwrap_or(text).trim().to_owned()
}

/// Reads a flow value; everything but brackets is a text.
struct Flow<'a> {
    rest: &'a str,
}

// === impl Flow ===

impl Flow<'_> {
    fn read(text: &str) -> Value {
        serde_json::from_str(text).unwrap_or_else(|_| Flow { rest: text }.value(0).unwrap_or_default())
    }

    fn next(&mut self) -> Option<char> {
        self.rest = self.rest.trim_start();
        self.rest.chars().next()
    }

    fn eat(&mut self, wanted: char) -> bool {
        let found = self.next() == Some(wanted);
        if found {
            self.rest = self.rest.strip_prefix(wanted).unwrap_or("");
        }
        found
    }

    fn value(&mut self, depth: usize) -> Option<Value> {
        if depth > DEPTH_MAX {
            return None;
        }
        if self.eat('[') {
            let mut items = Vec::new();
            while !self.eat(']') {
                items.push(self.value(depth + 1)?);
                if !self.eat(',') && self.next() != Some(']') {
                    return None;
                }
            }
            return Some(Value::Array(items));
        }
        if !self.eat('{') {
            return self.word().map(Value::String);
        }
        let mut found = Map::new();
        while !self.eat('}') {
            let key = self.word()?;
            if !self.eat(':') {
                return None;
            }
            found.insert(key, self.value(depth + 1)?);
            if !self.eat(',') && self.next() != Some('}') {
                return None;
            }
        }
        Some(Value::Object(found))
    }

    /// A text in quotes, or up to what ends it.
    fn word(&mut self) -> Option<String> {
        let quote = self.next().filter(|first| matches!(first, '"' | '\''));
        let mut escaped = false;
        let ends = |letter: char| match quote {
            Some(_) if std::mem::take(&mut escaped) => false,
            Some('"') if letter == '\\' => {
                escaped = true;
                false
            }
            Some(quote) => letter == quote,
            None => matches!(letter, ',' | ':' | '{' | '}' | '[' | ']' | '\n'),
        };
        let inside = quote.map_or(self.rest, |quote| self.rest.strip_prefix(quote).unwrap_or(""));
        let (word, rest) = inside.split_at_checked(inside.find(ends)?)?;
        self.rest = quote.map_or(rest, |quote| rest.strip_prefix(quote).unwrap_or(""));
        let word = if quote.is_some() { word.replace("\\\"", "\"") } else { word.trim().to_owned() };
        (quote.is_some() || !word.is_empty()).then_some(word)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    #[test]
    fn front_matter_is_read_as_such_files_have_it() {
        let json = json!({"nanobot": {"always": "true", "requires": {"bins": ["gh", "git"], "env": ["A"]}}});
        for metadata in [
            r#"metadata: {"nanobot": {"always": "true", "requires": {"bins": ["gh", "git"], "env": ["A"]}}}"#,
            "metadata:\n  {\n    \"nanobot\":\n      {\n        \"always\": \"true\",\n        \"requires\": { \"bins\": \
             [\"gh\", \"git\",], \"env\": ['A'] },\n      },\n  }",
            "metadata: {nanobot: {always: true, requires: {bins: [gh, git], env: [A]}}}",
            "metadata:\n  nanobot:\n    always: true # so\n    requires:\n      bins: [gh, git]\n      env:\n      - A",
        ] {
            let text = format!(
                "---\nname: x\ndescription: \"says: \\\"so\\\"\"\n{metadata}\nlast: 'it''s'\n---\n\nBody\n---\n"
            );
            let (found, body) = front_matter(&text);
            assert_eq!(body, "\nBody\n---\n");
            assert_eq!(
                Value::Object(found),
                json!({"name": "x", "description": "says: \"so\"", "metadata": json, "last": "it's"})
            );
        }
        let (found, _) = front_matter(
            "---\r\na: >-\r\n  one\r\n  two\r\nb: |\r\n  x\r\n  y\r\nc: plain\r\n  goes on\r\n# no\r\nd:\r\n---\r\n",
        );
        assert_eq!(Value::Object(found), json!({"a": "one two", "b": "x\ny", "c": "plain goes on", "d": null}));
        for (text, body) in [("# No\n", "# No\n"), ("---\na: 1\n", "---\na: 1\n"), ("", ""), ("---\n---\nx", "x")] {
            assert_eq!(front_matter(text), (Map::new(), body), "{text}");
        }
        assert!(front_matter("---\nmetadata: {a: [b\n---\n").0["metadata"].is_null());
    }

    proptest! {
        #[test]
        fn any_text_is_read(text in "(---\n)?([a-z:{}\\[\\],'\"# \n\\\\|>-]|\u{e4}){0,80}(\n---\n)?") {
            let (_, body) = front_matter(&text);
            prop_assert!(text.ends_with(body));
        }

        #[test]
        fn depth_is_bounded(depth in 0_usize..3000) {
            let (open, shut) = ("[".repeat(depth), "]".repeat(depth));
            front_matter(&format!("---\na: {open}b,{shut}\n---\n"));
        }
    }
}
