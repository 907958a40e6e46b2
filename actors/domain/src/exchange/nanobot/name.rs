//! File names: URL-safe base64 of the key, without padding.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use crate::ids::SessionKey;

/// The longest stem that file systems take, with room for `.jsonl` and a temporary name.
const STEM_BYTES_MAX: usize = 220;

/// The stem of a key's file: `telegram:123` is `dGVsZWdyYW06MTIz`. `None` if it would be too long for a file name.
pub fn stem(key: &SessionKey) -> Option<String> {
    Some(URL_SAFE_NO_PAD.encode(key.as_str())).filter(|stem| stem.len() <= STEM_BYTES_MAX)
}

/// The key of a stem, if it is one that nanobot makes.
pub fn key_of(stem: &str) -> Option<SessionKey> {
    let text = String::from_utf8(URL_SAFE_NO_PAD.decode(stem).ok()?).ok()?;
    SessionKey::new(&text).ok().filter(|_| URL_SAFE_NO_PAD.encode(&text) == stem)
}

/// The key that the older name of a file suggests, when the file itself has none: `telegram_123` was `telegram:123`.
pub fn key_of_lossy(stem: &str) -> Option<SessionKey> {
    let (channel, chat) = stem.split_once('_')?;
    SessionKey::new(&format!("{channel}:{chat}")).ok()
}
