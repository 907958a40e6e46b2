//! Tool calls that a model writes into its text, as `<tool_call>{"name": ..., "arguments": {...}}</tool_call>`: pure.
//!
//! Only where the configuration says so: what a model quotes must not run. What stands between the tags and is no call
//! stays text.

use serde_json::Value;

use super::think::overlap;

const BEGIN: &str = "<tool_call>";
const END: &str = "</tool_call>";

/// The text so far.
#[derive(Debug, Default)]
pub struct TextCalls {
    /// What is or may be the beginning of a call.
    held: String,
    inside: bool,
}

/// A call as it was written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TextCall {
    /// Of the tool.
    pub name: String,
    /// JSON, or what stands in its place.
    pub arguments: String,
}

// === impl TextCalls ===

impl TextCalls {
    /// Takes the next piece of text; what is visible of it, and the calls that it completed.
    pub fn push(&mut self, piece: &str) -> (String, Vec<TextCall>) {
        self.held.push_str(piece);
        let held = std::mem::take(&mut self.held);
        let (mut visible, mut calls) = (String::new(), Vec::new());
        let mut left = held.as_str();
        loop {
            let tag = if self.inside { END } else { BEGIN };
            let Some((before, rest)) = left.split_once(tag) else { break };
            match (self.inside, read(before)) {
                (false, _) => visible.push_str(before),
                (true, Some(call)) => calls.push(call),
                (true, None) => visible.extend([BEGIN, before, END]),
            }
            self.inside = !self.inside;
            left = rest;
        }
        if self.inside {
            left.clone_into(&mut self.held);
        } else {
            let (shown, tail) = left.split_at(left.len() - overlap(left, BEGIN));
            visible.push_str(shown);
            tail.clone_into(&mut self.held);
        }
        (visible, calls)
    }

    /// What was held back when nothing more comes: a call may lack its last tag.
    pub fn finish(&mut self) -> (String, Vec<TextCall>) {
        let Self { held, inside } = std::mem::take(self);
        match read(&held).filter(|_| inside) {
            Some(call) => (String::new(), vec![call]),
            None if inside => (format!("{BEGIN}{held}"), Vec::new()),
            None => (held, Vec::new()),
        }
    }
}

fn read(text: &str) -> Option<TextCall> {
    let call: Value = serde_json::from_str(text.trim()).ok()?;
    let name = call.get("name").and_then(Value::as_str).filter(|name| !name.trim().is_empty())?.to_owned();
    let arguments = match call.get("arguments").or_else(|| call.get("parameters")) {
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
        None => String::new(),
    };
    Some(TextCall { name, arguments })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, Vec<TextCall>) {
        let mut text = TextCalls::default();
        let mut parts: Vec<_> = pieces.into_iter().map(|piece| text.push(piece)).collect();
        parts.push(text.finish());
        let visible = parts.iter().map(|(visible, _)| visible.as_str()).collect();
        (visible, parts.into_iter().flat_map(|(_, calls)| calls).collect())
    }

    #[test]
    fn calls_leave_the_text_and_nothing_else_does() {
        let call = |arguments: &str| TextCall { name: "a".to_owned(), arguments: arguments.to_owned() };
        for (text, visible, calls) in [
            ("plain <tool", "plain <tool", vec![]),
            (r#"x <tool_call>{"name":"a","arguments":{"k":1}}</tool_call> y"#, "x  y", vec![call(r#"{"k":1}"#)]),
            ("<tool_call>\n{\"name\":\"a\",\"parameters\":\"{}\"}\n</tool_call>", "", vec![call("{}")]),
            (r#"<tool_call>{"name":"a"}"#, "", vec![call("")]),
            (
                r#"<tool_call>{"name":"a"}</tool_call><tool_call>{"name":"a","arguments":[]}</tool_call>"#,
                "",
                vec![call(""), call("[]")],
            ),
            ("<tool_call>no</tool_call>.", "<tool_call>no</tool_call>.", vec![]),
            (r#"<tool_call>{"name":" "}</tool_call>"#, r#"<tool_call>{"name":" "}</tool_call>"#, vec![]),
            ("<tool_call>{\"na", "<tool_call>{\"na", vec![]),
        ] {
            assert_eq!(whole([text]), (visible.to_owned(), calls), "{text}");
        }
    }

    proptest! {
        #[test]
        fn however_it_is_cut_it_means_the_same(
            words in proptest::collection::vec(
                prop_oneof!["[aé< ]{0,3}", Just(BEGIN.to_owned()), Just(END.to_owned()), Just(r#"{"name":"a"}"#.to_owned())],
                0..12,
            ),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text = words.concat();
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&places)).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|cut| text.get(cut[0]..cut[1]).unwrap()).collect();
            prop_assert_eq!(whole(pieces), whole([text.as_str()]));
        }
    }
}
