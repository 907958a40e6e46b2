//! What a message says of a file that came with it, other than a picture: a line behind its text.
//!
//! **Source of the line:** nanobot 0.3.5.

const BEGIN: &str = "[Attachment: ";
const END: char = ']';

/// The line of a file at `path`, which its sender calls `name`.
pub fn line(name: Option<&str>, path: &str) -> String {
    let name = name.map(|name| format!("{name}, at ")).unwrap_or_default();
    format!("{BEGIN}{name}{path}{END}")
}

/// The text, and the lines of files behind it.
pub fn split(text: &str) -> (&str, &str) {
    let mut said = text;
    loop {
        let (before, last) = said.rsplit_once('\n').unwrap_or(("", said));
        if !(last.starts_with(BEGIN) && last.ends_with(END)) {
            break;
        }
        said = before;
    }
    (said, text.strip_prefix(said).unwrap_or_default().trim_start_matches('\n'))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_of_files_are_told_from_what_was_said() {
        let (one, two) = (line(Some("a.txt"), "/m/1.txt"), line(None, "/m/2.csv"));
        assert_eq!((one.as_str(), two.as_str()), ("[Attachment: a.txt, at /m/1.txt]", "[Attachment: /m/2.csv]"));
        for (text, said, files) in [
            ("hello", "hello", ""),
            ("", "", ""),
            ("[Attachment: /m/2.csv]", "", "[Attachment: /m/2.csv]"),
            ("a\n[Attachment: x]\nb", "a\n[Attachment: x]\nb", ""),
            ("a\n\nb\n[Attachment: x]\n[Attachment: y]", "a\n\nb", "[Attachment: x]\n[Attachment: y]"),
            ("a [Attachment: x]", "a [Attachment: x]", ""),
        ] {
            assert_eq!(split(text), (said, files), "{text:?}");
        }
    }

    proptest! {
        #[test]
        fn nothing_gets_lost(text in "[a\n\\[\\]]{0,9}", files in proptest::collection::vec("[a-z/]{1,5}", 0..3)) {
            let files = files.iter().map(|file| line(None, file)).collect::<Vec<_>>().join("\n");
            let all = if files.is_empty() { text.clone() } else { format!("{text}\n{files}") };
            prop_assert_eq!(split(&all), (text.as_str(), files.as_str()));
        }
    }
}
