//! What kind of picture something is, by its first bytes: what a sender says of it may be wrong, and a model that is shown
//! something else than it was told refuses the whole request.
//!
//! **Source of the marks:** the PNG (ISO/IEC 15948), JPEG (ITU-T T.81), GIF 89a and WebP container specifications.

use base64::Engine;
use base64::alphabet;
use base64::engine::DecodePaddingMode;
use base64::engine::general_purpose::{GeneralPurpose, GeneralPurposeConfig};

/// The kinds that are taken, in words.
pub(crate) const KINDS: &str = "png, jpeg, gif or webp";

/// Takes base64 with or without the padding at the end.
pub(crate) const LENIENT: GeneralPurpose = GeneralPurpose::new(
    &alphabet::STANDARD,
    GeneralPurposeConfig::new()
        .with_decode_padding_mode(DecodePaddingMode::Indifferent)
        .with_decode_allow_trailing_bits(true),
);

/// Digits of base64 that hold the longest mark, of 12 bytes.
const DIGITS: usize = 16;

/// The type of the picture that is there as base64; `None` when it is none that is taken. Only its beginning is looked at.
pub(crate) fn of_base64(data: &str) -> Option<&'static str> {
    let (begin, _) = data.split_at_checked(DIGITS).unwrap_or((data, ""));
    of_bytes(&LENIENT.decode(begin).ok()?)
}

fn of_bytes(bytes: &[u8]) -> Option<&'static str> {
    match bytes {
        [0x89, b'P', b'N', b'G', b'\r', b'\n', 0x1a, b'\n', ..] => Some("image/png"),
        [0xff, 0xd8, 0xff, ..] => Some("image/jpeg"),
        [b'G', b'I', b'F', b'8', b'7' | b'9', b'a', ..] => Some("image/gif"),
        [b'R', b'I', b'F', b'F', _, _, _, _, b'W', b'E', b'B', b'P', ..] => Some("image/webp"),
        [..] => None,
    }
}

#[cfg(test)]
mod tests {
    use base64::engine::general_purpose::STANDARD;
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn pictures_are_told_by_their_first_bytes() {
        let cases: [(&[u8], Option<&str>); 9] = [
            (b"\x89PNG\r\n\x1a\n and so on", Some("image/png")),
            (b"\xff\xd8\xff\xe0\0\x10JFIF", Some("image/jpeg")),
            (b"GIF87a", Some("image/gif")),
            (b"GIF89a and so on", Some("image/gif")),
            (b"RIFF\0\0\0\0WEBPVP8 ", Some("image/webp")),
            (b"RIFF\0\0\0\0WAVEfmt ", None),
            (b"\x89PNG\n\x1a\n", None),
            (b"BM and so on", None),
            (b"", None),
        ];
        for (bytes, expected) in cases {
            let text = STANDARD.encode(bytes);
            assert_eq!(of_base64(&text), expected, "{text}");
            assert_eq!(of_base64(text.trim_end_matches('=')), expected, "{text} without its padding");
        }
    }

    proptest! {
        #[test]
        fn any_text_is_looked_at(text in "[a-zA-Z0-9+/=]{0,40}|.{0,40}") {
            of_base64(&text);
        }
    }
}
