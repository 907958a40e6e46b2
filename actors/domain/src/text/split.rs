//! Long texts in pieces that a chat service takes.

use unicode_segmentation::GraphemeCursor;

/// What a chat service counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextUnit {
    /// Unicode scalar values.
    Chars,
    /// UTF-16 code units.
    Utf16,
    /// Bytes of UTF-8.
    Bytes,
}

/// The longest message of a chat service.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TextLimit {
    /// What is counted.
    pub unit: TextUnit,
    /// How many of them at most. Where not even one character fits, it is one character.
    pub max: usize,
}

// === impl TextUnit ===

impl TextUnit {
    /// What one character counts.
    fn of(self, letter: char) -> usize {
        match self {
            Self::Chars => 1,
            Self::Utf16 => letter.len_utf16(),
            Self::Bytes => letter.len_utf8(),
        }
    }
}

// === impl TextLimit ===

impl TextLimit {
    /// Length in bytes of the longest start of `text` that is one message.
    fn fits(self, text: &str) -> usize {
        let mut units = 0;
        for (at, letter) in text.char_indices() {
            units += self.unit.of(letter);
            if units > self.max {
                // Something must go on in any case.
                return if at == 0 { letter.len_utf8() } else { at };
            }
        }
        text.len()
    }
}

/// Cuts `text` into messages. Together they are the text again, and none is empty. A cut falls behind an empty line,
/// else behind a line, else behind a space, if one of them lies in the second half of what fits; else between two
/// characters as people see them; inside of one only when it alone is longer than a message.
pub fn split(text: &str, limit: TextLimit) -> Vec<&str> {
    let mut parts = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let fits = limit.fits(rest);
        let (part, left) = if fits == rest.len() { (rest, "") } else { rest.split_at(cut(rest, fits)) };
        parts.push(part);
        rest = left;
    }
    parts
}

/// Where to cut a text of which only the first `fits` bytes are one message.
fn cut(text: &str, fits: usize) -> usize {
    let (head, _) = text.split_at(fits);
    let behind = |sign: &str| head.rfind(sign).map(|at| at + sign.len());
    ["\n\n", "\n", " "]
        .into_iter()
        .filter_map(behind)
        .find(|at| *at > fits / 2 && is_boundary(text, *at))
        .or_else(|| last_boundary(text, fits))
        .unwrap_or(fits)
}

fn is_boundary(text: &str, at: usize) -> bool {
    GraphemeCursor::new(at, text.len(), true).is_boundary(text, 0).unwrap_or(true)
}

/// The last place up to `fits` that lies between two characters as people see them, if that is not the very start.
fn last_boundary(text: &str, fits: usize) -> Option<usize> {
    if is_boundary(text, fits) {
        return Some(fits);
    }
    let before = GraphemeCursor::new(fits, text.len(), true).prev_boundary(text, 0);
    before.ok().flatten().filter(|at| *at > 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use unicode_segmentation::UnicodeSegmentation;

    use super::*;

    const UNITS: [TextUnit; 3] = [TextUnit::Chars, TextUnit::Utf16, TextUnit::Bytes];

    fn chars(max: usize) -> TextLimit {
        TextLimit { unit: TextUnit::Chars, max }
    }

    #[test]
    fn cuts_fall_where_a_reader_expects_them() {
        let family = "👨‍👩‍👧";
        for (text, limit, parts) in [
            ("", chars(5), vec![]),
            ("short", chars(5), vec!["short"]),
            ("one\n\ntwo three", chars(9), vec!["one\n\n", "two three"]),
            ("one\ntwo three", chars(6), vec!["one\n", "two ", "three"]),
            // A break in the first half would make a part too small to be worth it.
            ("a\nbcdefghijkl", chars(8), vec!["a\nbcdefg", "hijkl"]),
            ("one two three", chars(8), vec!["one two ", "three"]),
            ("abcdefghij", chars(4), vec!["abcd", "efgh", "ij"]),
            ("ab\r\ncd", chars(3), vec!["ab", "\r\n", "cd"]),
            ("e\u{301}e\u{301}", chars(3), vec!["e\u{301}", "e\u{301}"]),
            (family, chars(2), vec!["👨‍", "👩‍", "👧"]),
            ("😀😀", TextLimit { unit: TextUnit::Utf16, max: 3 }, vec!["😀", "😀"]),
            ("äö", TextLimit { unit: TextUnit::Bytes, max: 3 }, vec!["ä", "ö"]),
            ("äö", TextLimit { unit: TextUnit::Bytes, max: 0 }, vec!["ä", "ö"]),
        ] {
            assert_eq!(split(text, limit), parts, "{text:?} in {limit:?}");
        }
    }

    proptest! {
        #[test]
        fn parts_are_the_text_fit_and_never_tear_what_is_seen_as_one(
            text in "([a-z ]{0,9}|\n|\n\n|\r\n|[äé😀\u{301}\u{200d}👨👩🇩🇪]){0,40}",
            max in 1usize..30,
            unit in 0usize..3,
        ) {
            let limit = TextLimit { unit: UNITS[unit], max };
            let parts = split(&text, limit);
            prop_assert_eq!(parts.concat(), text.as_str());
            let count = |part: &str| part.chars().map(|letter| limit.unit.of(letter)).sum::<usize>();
            for part in &parts {
                prop_assert!(!part.is_empty());
                prop_assert!(count(part) <= max || part.chars().count() == 1, "{:?}", part);
            }
            let seen: Vec<(usize, &str)> = text.grapheme_indices(true).collect();
            let mut at = 0;
            for part in &parts {
                let torn = seen.iter().find(|(start, letter)| *start < at && at < start + letter.len());
                if let Some((_, letter)) = torn {
                    prop_assert!(count(letter) > max, "{:?} was torn", letter);
                }
                at += part.len();
            }
        }
    }
}
