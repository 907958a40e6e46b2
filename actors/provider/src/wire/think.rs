//! Takes reasoning that stands in the text as `<think> ... </think>` out of it, however the text is cut into pieces: pure.
//!
//! A tag counts at the beginning of the text and of a line, outside of code between fences: elsewhere it is something
//! that the model writes about. Reasoning that nothing ends goes to the end of the text.

/// What begins and ends reasoning.
const TAGS: [(&str, &str); 3] = [("<think>", "</think>"), ("<thinking>", "</thinking>"), ("<thought>", "</thought>")];
/// Around code.
const FENCE: &str = "```";

/// The text so far.
#[derive(Debug, Default)]
pub struct Think {
    /// What may be the beginning of a tag.
    held: String,
    /// The end of the reasoning that the text is in.
    end: Option<&'static str>,
    /// Whether something other than blanks stands on the line already.
    midline: bool,
    fenced: bool,
    /// Whether something was visible already, or what blanks were.
    begun: bool,
    blank: String,
    /// Whether there was reasoning: blanks between it and the text are none of the text.
    thought: bool,
}

/// What of a text is visible, and what is reasoning.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// For the reader.
    pub visible: String,
    /// Not part of the answer.
    pub reasoning: String,
}

// === impl Think ===

impl Think {
    /// Takes the next piece.
    pub fn push(&mut self, piece: &str) -> Parts {
        let mut parts = Parts::default();
        self.held.push_str(piece);
        let held = std::mem::take(&mut self.held);
        let mut left = held.as_str();
        while !left.is_empty() {
            let rest = match self.end {
                Some(end) => self.reason(left, end, &mut parts),
                None if self.midline => self.go_on(left, &mut parts),
                None => self.begin_line(left, &mut parts),
            };
            match rest {
                Some(rest) => left = rest,
                None => break,
            }
        }
        parts
    }

    /// What was held back when nothing more comes. The next piece begins a new text.
    pub fn finish(&mut self) -> Parts {
        let mut parts = Parts::default();
        let held = std::mem::take(&mut self.held);
        match self.end {
            Some(_) => parts.reasoning = held,
            None => self.show(&held, &mut parts),
        }
        if !self.begun && !self.thought {
            parts.visible.insert_str(0, &self.blank);
        }
        *self = Self::default();
        parts
    }

    /// Within reasoning; what follows it, if that has come.
    fn reason<'a>(&mut self, text: &'a str, end: &str, parts: &mut Parts) -> Option<&'a str> {
        if let Some((inside, rest)) = text.split_once(end) {
            parts.reasoning.push_str(inside);
            self.end = None;
            return Some(rest);
        }
        let (inside, tail) = text.split_at(text.len() - overlap(text, end));
        parts.reasoning.push_str(inside);
        tail.clone_into(&mut self.held);
        None
    }

    /// Within a line.
    fn go_on<'a>(&mut self, text: &'a str, parts: &mut Parts) -> Option<&'a str> {
        let Some((line, rest)) = text.split_once('\n') else {
            self.show(text, parts);
            return None;
        };
        self.show(line, parts);
        self.show("\n", parts);
        self.midline = false;
        Some(rest)
    }

    /// Where a line begins.
    fn begin_line<'a>(&mut self, text: &'a str, parts: &mut Parts) -> Option<&'a str> {
        let word = text.trim_start();
        let (blank, word) = text.split_at(text.len() - word.len());
        let opens = TAGS.iter().find_map(|(begin, end)| Some((word.strip_prefix(begin)?, *end)));
        if let Some((rest, end)) = opens.filter(|_| !self.fenced) {
            self.show(blank, parts);
            (self.end, self.thought) = (Some(end), true);
            return Some(rest);
        }
        self.show(blank, parts);
        let begins = |whole: &str| whole.len() > word.len() && whole.starts_with(word);
        if begins(FENCE) || (!self.fenced && TAGS.iter().any(|(begin, _)| begins(begin))) {
            word.clone_into(&mut self.held);
            return None;
        }
        self.fenced ^= word.starts_with(FENCE);
        self.midline = true;
        Some(word)
    }

    /// Makes visible, but no blanks before the first word.
    fn show(&mut self, text: &str, parts: &mut Parts) {
        if !self.begun {
            let word = text.trim_start();
            let (blank, word) = text.split_at(text.len() - word.len());
            self.blank.push_str(blank);
            if word.is_empty() {
                return;
            }
            if !self.thought {
                parts.visible.push_str(&self.blank);
            }
            self.blank.clear();
            self.begun = true;
            parts.visible.push_str(word);
            return;
        }
        parts.visible.push_str(text);
    }
}

/// How many bytes at the end of `text` may be the beginning of `tag`.
pub(super) fn overlap(text: &str, tag: &str) -> usize {
    let starts = tag.char_indices().map(|(at, _)| tag.split_at(at).0).rev();
    starts.map(|start| if text.ends_with(start) { start.len() } else { 0 }).find(|length| *length > 0).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn whole<'a>(pieces: impl IntoIterator<Item = &'a str>) -> (String, String) {
        let mut think = Think::default();
        let mut parts: Vec<Parts> = pieces.into_iter().map(|piece| think.push(piece)).collect();
        parts.push(think.finish());
        let visible = parts.iter().map(|part| part.visible.as_str()).collect();
        (visible, parts.iter().map(|part| part.reasoning.as_str()).collect())
    }

    #[test]
    fn reasoning_leaves_the_text() {
        for (text, visible, reasoning) in [
            ("plain", "plain", ""),
            ("  plain\n", "  plain\n", ""),
            ("\n \n", "\n \n", ""),
            ("<think>hm</think>\n\nyes", "yes", "hm"),
            ("\n <thinking>h\nm</thinking>yes", "yes", "h\nm"),
            ("<thought>a</thought><think>b</think>c", "c", "ab"),
            ("one\n<think>hm</think>\ntwo", "one\n\ntwo", "hm"),
            ("<think>never ended", "", "never ended"),
            ("<think>a</thinking></think>b", "b", "a</thinking>"),
            ("say <think>x</think>", "say <think>x</think>", ""),
            ("```\n<think>x</think>\n```\n<think>y</think>z", "```\n<think>x</think>\n```\nz", "y"),
            ("<thin", "<thin", ""),
            ("<think>a</thi", "", "a</thi"),
            ("<b>bold</b>", "<b>bold</b>", ""),
            ("``", "``", ""),
        ] {
            assert_eq!(whole([text]), (visible.to_owned(), reasoning.to_owned()), "{text:?}");
        }
    }

    #[test]
    fn what_cannot_be_a_tag_is_shown_at_once() {
        let mut think = Think::default();
        let shown = ["Hi", " <", "think> \n", "<t", "a", "<think>", "x</"].map(|piece| think.push(piece).visible);
        assert_eq!(shown, ["Hi", " <", "think> \n", "", "<ta", "<think>", "x</"]);
    }

    proptest! {
        #[test]
        fn however_it_is_cut_it_means_the_same(
            words in proptest::collection::vec(
                prop_oneof!["[a-cé ]{0,3}", "[ \n]{0,2}", Just("<think>".to_owned()), Just("</think>".to_owned()),
                    Just("</thought>".to_owned()), Just("<thought>".to_owned()), Just("```".to_owned()), "<t?h?i?"],
                0..16,
            ),
            cuts in proptest::collection::vec(any::<prop::sample::Index>(), 0..8),
        ) {
            let text = words.concat();
            let places: Vec<usize> = text.char_indices().map(|(at, _)| at).chain([text.len()]).collect();
            let mut cuts: Vec<usize> = cuts.iter().map(|cut| *cut.get(&places)).chain([0, text.len()]).collect();
            cuts.sort_unstable();
            let pieces: Vec<&str> = cuts.windows(2).map(|cut| text.get(cut[0]..cut[1]).unwrap()).collect();
            prop_assert_eq!(whole(pieces), whole([text.as_str()]));
            let (visible, reasoning) = whole([text.as_str()]);
            prop_assert!(visible.len() + reasoning.len() <= text.len());
        }
    }
}
