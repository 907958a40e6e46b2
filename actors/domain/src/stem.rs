//! The file name of a session, made from its key.
//!
//! Lower-case letters, digits and `-` stand for themselves, `:` becomes `.`, every other byte `_` and two lower-case hex
//! digits. So `websocket:Ab` is `websocket._41b`. Two keys never share a stem, not even on a file system that
//! ignores case. A stem over [`STEM_BYTES_MAX`] is cut and ends in `~` and a hash of the key. The names that Windows
//! keeps for devices (`con`, `nul`, `com1` ...) get their first letter escaped.

use std::fmt::Write;

use sha2::{Digest, Sha256};

use crate::ids::SessionKey;

/// Longest stem.
pub const STEM_BYTES_MAX: usize = 200;
/// How much of a longer stem stays readable.
const READABLE_BYTES_MAX: usize = 150;
/// Hex digits of the hash that ends a cut stem.
const HASH_DIGITS: usize = 32;

/// The stem of `key`.
pub fn stem(key: &SessionKey) -> String {
    stem_of(key.as_str())
}

/// The stem of any text, such as an id that a provider made up.
pub fn stem_of(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 8);
    for byte in text.bytes() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => out.push(char::from(byte)),
            b':' => out.push('.'),
            _ => push_escape(&mut out, byte),
        }
    }
    if out.len() > STEM_BYTES_MAX {
        out.truncate(cut_before_escape(&out));
        out.push('~');
        for byte in Sha256::digest(text).iter().take(HASH_DIGITS / 2) {
            push_hex(&mut out, *byte);
        }
    }
    if is_device(&out) {
        let mut escaped = String::with_capacity(out.len() + 2);
        let mut bytes = out.bytes();
        if let Some(first) = bytes.next() {
            push_escape(&mut escaped, first);
        }
        escaped.extend(bytes.map(char::from));
        out = escaped;
    }
    out
}

/// The key of a stem, if the stem is one that [`stem`] makes and was not cut. A cut one is named by its file's header.
pub fn key_of(stem: &str) -> Option<SessionKey> {
    let mut bytes = Vec::with_capacity(stem.len());
    let mut left = stem.bytes();
    while let Some(byte) = left.next() {
        match byte {
            b'a'..=b'z' | b'0'..=b'9' | b'-' => bytes.push(byte),
            b'.' => bytes.push(b':'),
            b'_' => bytes.push(hex(left.next()?)? << 4 | hex(left.next()?)?),
            _ => return None,
        }
    }
    let key = SessionKey::new(std::str::from_utf8(&bytes).ok()?).ok()?;
    (self::stem(&key) == stem).then_some(key)
}

fn push_escape(out: &mut String, byte: u8) {
    out.push('_');
    push_hex(out, byte);
}

fn push_hex(out: &mut String, byte: u8) {
    write!(out, "{byte:02x}").expect("writing to a string cannot fail");
}

fn hex(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

/// A place at or a little before [`READABLE_BYTES_MAX`] that is not inside an escape.
fn cut_before_escape(stem: &str) -> usize {
    let bytes = stem.as_bytes();
    for back in 1..=2 {
        if bytes.get(READABLE_BYTES_MAX - back) == Some(&b'_') {
            return READABLE_BYTES_MAX - back;
        }
    }
    READABLE_BYTES_MAX
}

/// Windows takes `nul.txt` for the device too, so what stands before the first point decides.
fn is_device(stem: &str) -> bool {
    let name = stem.split('.').next().unwrap_or("");
    match name {
        "con" | "prn" | "aux" | "nul" => true,
        _ => match name.strip_prefix("com").or_else(|| name.strip_prefix("lpt")) {
            Some(number) => matches!(number.as_bytes(), [b'0'..=b'9']),
            None => false,
        },
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn key(text: &str) -> SessionKey {
        SessionKey::new(text).unwrap()
    }

    #[test]
    fn stems_are_readable() {
        for (text, expected) in [
            ("cli:direct", "cli.direct"),
            ("agent:main:discord:group:9", "agent.main.discord.group.9"),
            ("websocket:Ab_c", "websocket._41b_5fc"),
            ("api:a/b.c", "api.a_2fb_2ec"),
            ("telegram:é", "telegram._c3_a9"),
            ("con", "_63on"),
            ("nul:x", "_6eul.x"),
            ("com1", "_63om1"),
            ("com12", "com12"),
            ("console", "console"),
        ] {
            assert_eq!(stem(&key(text)), expected);
            assert_eq!(key_of(expected), Some(key(text)));
        }
    }

    #[test]
    fn long_stems_are_cut_outside_an_escape() {
        for pad in 0..4 {
            let long = stem(&key(&format!("{}{}", "a".repeat(pad), "é".repeat(200))));
            let (readable, hash) = long.split_once('~').unwrap();
            assert!(long.len() <= STEM_BYTES_MAX && readable.len() <= READABLE_BYTES_MAX && hash.len() == HASH_DIGITS);
            assert!(readable.len() > READABLE_BYTES_MAX - 3 && (readable.len() - pad) % 3 == 0);
            assert_eq!(key_of(&long), None);
        }
        assert_eq!(stem(&key(&"a".repeat(200))).len(), 200);
    }

    #[test]
    fn texts_that_are_no_stem_have_no_key() {
        for text in ["", "A", "_4", "_4G", "_61", "a~b", "a b", "con", "_ff"] {
            assert_eq!(key_of(text), None, "{text}");
        }
    }

    fn keys() -> impl Strategy<Value = String> {
        prop_oneof!["[aA:._~-]{1,6}", "(con|nul|CON|com1)[:.]?[a-cA-C]{0,2}", "[a-bA-B_é]{190,203}", "[ -~]{1,30}"]
    }

    proptest! {
        #[test]
        fn distinct_keys_have_distinct_stems(a in keys(), b in keys()) {
            prop_assume!(a.len() <= 512 && b.len() <= 512);
            let (a, b) = (key(&a), key(&b));
            let (of_a, of_b) = (stem(&a), stem(&b));
            prop_assert_eq!(a == b, of_a.to_lowercase() == of_b.to_lowercase());
            prop_assert!(of_a.len() <= STEM_BYTES_MAX);
            if !of_a.contains('~') {
                prop_assert_eq!(key_of(&of_a), Some(a));
            }
        }
    }
}
