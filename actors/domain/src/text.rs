//! The one place where text is cut, and where things are counted in words. Limits are clamped, cuts fall between characters, nothing here panics.

mod split;

use std::borrow::Cow;

pub use split::{TextLimit, TextUnit, split};

/// So many of something: `1 segment`, `2 segments`.
pub fn counted(count: impl Into<Count>, one: &str) -> String {
    let Count(count) = count.into();
    let ending = if count == 1 { "" } else { "s" };
    format!("{count} {one}{ending}")
}

/// A number of tokens for people: `950`, `12k`, `1.5M`.
pub fn short_tokens(tokens: u64) -> String {
    match tokens {
        0..1000 => tokens.to_string(),
        1000..1_000_000 => format!("{}k", tokens / 1000),
        _ => format!("{}.{}M", tokens / 1_000_000, tokens % 1_000_000 / 100_000),
    }
}

/// The text without what a terminal takes for a command: control characters other than line ends and tabs become `\u{fffd}`.
pub fn harmless(text: &str) -> Cow<'_, str> {
    let harms = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if text.contains(harms) { Cow::Owned(text.replace(harms, "\u{fffd}")) } else { Cow::Borrowed(text) }
}

/// The same, on one line.
pub fn one_line(text: &str) -> String {
    harmless(text).replace(['\n', '\t'], " ")
}

/// How many there are.
#[derive(Debug, Clone, Copy)]
pub struct Count(u64);

impl From<u64> for Count {
    fn from(count: u64) -> Self {
        Self(count)
    }
}

impl From<usize> for Count {
    fn from(count: usize) -> Self {
        Self(u64::try_from(count).unwrap_or(u64::MAX))
    }
}

/// A name in any of the spellings that a configuration takes for one.
pub fn folded(name: &str) -> String {
    name.chars().filter(|letter| !matches!(letter, '-' | '_')).flat_map(char::to_lowercase).collect()
}

/// The first `chars_max` characters of `text`.
pub fn first_chars(text: &str, chars_max: usize) -> &str {
    match text.char_indices().nth(chars_max) {
        Some((end, _)) => text.get(..end).unwrap_or(text),
        None => text,
    }
}

/// The longest start of `text` that has at most `bytes_max` bytes and ends between characters.
pub fn first_bytes(text: &str, bytes_max: usize) -> &str {
    let end = floor_boundary(text, bytes_max);
    text.get(..end).unwrap_or(text)
}

/// The longest end of `text` that has at most `bytes_max` bytes and begins between characters.
pub fn last_bytes(text: &str, bytes_max: usize) -> &str {
    let mut start = text.len().saturating_sub(bytes_max);
    while !text.is_char_boundary(start) {
        start += 1;
    }
    text.get(start..).unwrap_or("")
}

/// The largest character boundary that is not above `at`.
pub fn floor_boundary(text: &str, at: usize) -> usize {
    let mut at = at.min(text.len());
    while !text.is_char_boundary(at) {
        at -= 1;
    }
    at
}

/// At most `chars_max` characters of `text`, the last of them `…` when something was cut.
pub fn ellipsis(text: &str, chars_max: usize) -> Cow<'_, str> {
    if text.char_indices().nth(chars_max).is_none() {
        return Cow::Borrowed(text);
    }
    match chars_max.checked_sub(1) {
        None => Cow::Borrowed(""),
        Some(kept) => Cow::Owned(format!("{}…", first_chars(text, kept))),
    }
}

/// Start and end of `text` with a note between them that says how many characters were left out.
/// Start and end together have at most `chars_max` characters; two thirds of them belong to the start.
pub fn head_and_tail(text: &str, chars_max: usize) -> Cow<'_, str> {
    if text.len() <= chars_max {
        return Cow::Borrowed(text);
    }
    let chars = text.chars().count();
    if chars <= chars_max {
        return Cow::Borrowed(text);
    }
    let tail_chars = chars_max / 3;
    let head = first_chars(text, chars_max - tail_chars);
    let tail = match text.char_indices().nth(chars - tail_chars) {
        Some((start, _)) => text.get(start..).unwrap_or(""),
        None => "",
    };
    Cow::Owned(format!("{head}\n[... {} characters left out ...]\n{tail}", chars - chars_max))
}

/// Length in UTF-16 code units, the unit of several chat services.
pub fn utf16_len(text: &str) -> usize {
    text.chars().map(char::len_utf16).sum()
}

/// The first characters of `text` that fit in `units_max` UTF-16 code units.
pub fn first_utf16(text: &str, units_max: usize) -> &str {
    let mut units = 0;
    for (at, letter) in text.char_indices() {
        units += letter.len_utf16();
        if units > units_max {
            return text.get(..at).unwrap_or(text);
        }
    }
    text
}

/// `text` without control characters other than tab and line feed; `\r\n` and lone `\r` become `\n`.
pub fn without_controls(text: &str) -> Cow<'_, str> {
    let unwanted = |letter: char| letter.is_control() && letter != '\n' && letter != '\t';
    if !text.contains(unwanted) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        match letter {
            '\r' => {
                if letters.peek() != Some(&'\n') {
                    out.push('\n');
                }
            }
            _ if unwanted(letter) => {}
            _ => out.push(letter),
        }
    }
    Cow::Owned(out)
}

/// JSON text in which every `\uD800`-`\uDFFF` escape without its other half is replaced by `\uFFFD`, so that a strict
/// parser takes it.
pub fn without_lone_surrogates(json: &str) -> Cow<'_, str> {
    if !json.contains("\\ud") && !json.contains("\\uD") {
        return Cow::Borrowed(json);
    }
    let mut out = String::with_capacity(json.len());
    let mut left = json;
    while let Some(at) = left.find('\\') {
        let (before, escape) = left.split_at(at);
        out.push_str(before);
        let (unit, used) = match (unicode_escape(escape), escape.get(6..).and_then(unicode_escape)) {
            (Some(0xd800..=0xdbff), Some(0xdc00..=0xdfff)) => (escape.get(..12), 12),
            (Some(0xd800..=0xdfff), _) => (Some("\\ufffd"), 6),
            (Some(_), _) => (escape.get(..6), 6),
            (None, _) => {
                let next = escape.chars().nth(1).map_or(1, |letter| 1 + letter.len_utf8());
                (escape.get(..next), next)
            }
        };
        out.push_str(unit.unwrap_or(""));
        left = escape.get(used..).unwrap_or("");
    }
    out.push_str(left);
    Cow::Owned(out)
}

/// The code unit of a `\uXXXX` at the start of `text`.
fn unicode_escape(text: &str) -> Option<u32> {
    let digits = text.strip_prefix("\\u")?.get(..4)?;
    if !digits.bytes().all(|byte| byte.is_ascii_hexdigit()) {
        return None;
    }
    u32::from_str_radix(digits, 16).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nothing_that_is_printed_commands_the_terminal() {
        for (text, harmless_text, line) in [
            ("a\tb\nc", "a\tb\nc", "a b c"),
            ("\u{1b}[2J\u{7}\r\u{9b}x", "\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}x", "\u{fffd}[2J\u{fffd}\u{fffd}\u{fffd}x"),
            ("é 你", "é 你", "é 你"),
        ] {
            assert_eq!((&*harmless(text), one_line(text).as_str()), (harmless_text, line));
        }
    }

    #[test]
    fn one_is_singular_and_all_else_is_plural() {
        let said = [0u64, 1, 2].map(|count| counted(count, "open turn"));
        assert_eq!(said, ["0 open turns", "1 open turn", "2 open turns"]);
    }

    #[test]
    fn cuts_fall_between_characters() {
        assert_eq!(first_bytes("aé", 2), "a");
        assert_eq!(first_bytes("aé", 3), "aé");
        assert_eq!(last_bytes("éa", 2), "a");
        assert_eq!(first_chars("äöü", 2), "äö");
        assert_eq!(ellipsis("hello", 5), "hello");
        assert_eq!(ellipsis("hello!", 5), "hell…");
        assert_eq!(ellipsis("hello", 0), "");
    }

    #[test]
    fn utf16_counts_pairs_as_two() {
        assert_eq!(utf16_len("a😀"), 3);
        assert_eq!(first_utf16("a😀b", 2), "a");
        assert_eq!(first_utf16("a😀b", 3), "a😀");
    }

    #[test]
    fn the_middle_is_left_out_and_counted() {
        assert_eq!(head_and_tail("abcdefghij", 6), "abcd\n[... 4 characters left out ...]\nij");
        assert_eq!(head_and_tail("äöü", 3), "äöü");
        assert_eq!(head_and_tail("abc", 0), "\n[... 3 characters left out ...]\n");
    }

    #[test]
    fn controls_and_lone_surrogates_go() {
        assert_eq!(without_controls("a\u{0}b\r\nc\rd\te\u{1b}[0m"), "ab\nc\nd\te[0m");
        assert!(matches!(without_controls("plain\n"), Cow::Borrowed(_)));
        assert_eq!(
            without_lone_surrogates(r#""\ud83d\ude00 \ud83d x \\ud83d \udE00""#),
            r#""\ud83d\ude00 \ufffd x \\ud83d \ufffd""#
        );
    }

    proptest! {
        #[test]
        fn no_text_and_no_limit_panics(text in "\\PC{0,40}|[\\x00-\\x7f\\\\u dD89]{0,40}", limit in 0usize..60) {
            prop_assert!(first_bytes(&text, limit).len() <= limit);
            prop_assert!(last_bytes(&text, limit).len() <= limit);
            prop_assert!(first_chars(&text, limit).chars().count() <= limit);
            prop_assert!(ellipsis(&text, limit).chars().count() <= limit);
            prop_assert!(utf16_len(first_utf16(&text, limit)) <= limit);
            let _ = head_and_tail(&text, limit);
            let _ = without_lone_surrogates(&text);
            prop_assert!(!without_controls(&text).contains(|letter: char| letter.is_control() && letter != '\n' && letter != '\t'));
        }
    }
}
