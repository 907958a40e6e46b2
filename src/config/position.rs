//! Finds the line and column of a setting in JSON text that is known to be well formed.

use super::key::canonical;

/// Line and column (in characters), both from 1, of the value at `steps`.
/// Names are compared in their canonical spelling; a step into a list is its index in decimal.
/// When the last step is missing, the place of the deepest value found.
pub fn find(text: &str, steps: &[String]) -> Option<(usize, usize)> {
    let mut scan = Scan { bytes: text.as_bytes(), at: 0 };
    let mut found = scan.space()?;
    for step in steps {
        match scan.enter(step) {
            Some(at) => found = at,
            None => break,
        }
    }
    Some(after(text.get(..found)?))
}

/// Line and column (in characters), both from 1, of what follows `before`.
pub fn after(before: &str) -> (usize, usize) {
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    (line, column)
}

struct Scan<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Scan<'_> {
    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    /// Skips white space; returns where the next token starts.
    fn space(&mut self) -> Option<usize> {
        while self.peek()?.is_ascii_whitespace() {
            self.at += 1;
        }
        Some(self.at)
    }

    /// From the start of a value into its member `step`; returns where that starts.
    fn enter(&mut self, step: &str) -> Option<usize> {
        let open = self.peek()?;
        self.at += 1;
        let mut index = 0usize;
        loop {
            self.space()?;
            if matches!(self.peek()?, b'}' | b']') {
                return None;
            }
            let hit = match open {
                b'{' => {
                    let name = self.name()?;
                    self.space()?;
                    self.at += 1;
                    canonical(&name) == canonical(step)
                }
                b'[' => step.parse() == Ok(index),
                _ => return None,
            };
            let start = self.space()?;
            if hit {
                return Some(start);
            }
            self.skip()?;
            self.space()?;
            if self.peek()? == b',' {
                self.at += 1;
            }
            index += 1;
        }
    }

    /// Reads a name with its escapes.
    fn name(&mut self) -> Option<String> {
        let start = self.at;
        self.string()?;
        serde_json::from_slice(self.bytes.get(start..self.at)?).ok()
    }

    /// Skips a string.
    fn string(&mut self) -> Option<()> {
        self.at += 1;
        loop {
            match self.peek()? {
                b'"' => break,
                b'\\' => self.at += 2,
                _ => self.at += 1,
            }
        }
        self.at += 1;
        Some(())
    }

    /// Skips one value.
    fn skip(&mut self) -> Option<()> {
        let mut depth = 0usize;
        loop {
            self.space()?;
            match self.peek()? {
                b'"' => self.string()?,
                b'{' | b'[' => {
                    depth += 1;
                    self.at += 1;
                }
                b'}' | b']' => {
                    depth = depth.saturating_sub(1);
                    self.at += 1;
                }
                b',' | b':' => self.at += 1,
                _ => {
                    while self.peek().is_some_and(|byte| !b",:]}".contains(&byte) && !byte.is_ascii_whitespace()) {
                        self.at += 1;
                    }
                }
            }
            if depth == 0 {
                return Some(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn steps(path: &str) -> Vec<String> {
        path.split('.').filter(|step| !step.is_empty()).map(str::to_string).collect()
    }

    #[test]
    fn values_are_found_in_either_spelling() {
        let text =
            "{\n  \"a\": [1, {\"x\\\"}\": \"}\"}],\n  \"größe\": \"ü\", \"apiKey\": {\n\"deep\" : [ true , null ]}}";
        for (path, expect) in [
            ("", (1, 1)),
            ("a", (2, 8)),
            ("a.1", (2, 12)),
            ("a.1.x\"}", (2, 21)),
            ("größe", (3, 12)),
            ("api_key", (3, 27)),
            ("api_key.deep", (4, 10)),
            ("api_key.deep.1", (4, 19)),
            ("api_key.missing", (3, 27)),
        ] {
            assert_eq!(find(text, &steps(path)), Some(expect), "{path}");
        }
        assert_eq!(find("", &[]), None);
    }

    proptest! {
        #[test]
        fn any_text_is_survived(text in "[\\[\\]{}\",:\\\\a0 \n]{0,60}") {
            find(&text, &steps("a.0.a"));
        }
    }
}
