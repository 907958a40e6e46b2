//! What a call made of a file, as people are shown it. Pure.

use domain::text::first_bytes;
use protocol::turn::FileEdit;
use similar::{ChangeTag, TextDiff};

/// Contents above this many bytes are not compared: that takes time, and nobody reads it.
pub(crate) const COMPARED_BYTES_MAX: usize = 128 * 1024;

/// The longest diff.
const DIFF_BYTES_MAX: usize = 8 * 1024;

/// Compares the contents before and after; `None` is what is no text, or is not known to be one.
pub(crate) fn edited(path: String, before: Option<&str>, after: Option<&str>) -> FileEdit {
    let fits = |text: &&str| text.len() <= COMPARED_BYTES_MAX;
    let (Some(old), Some(new)) = (before.filter(fits), after.filter(fits)) else {
        // All of it was replaced: that is true, if not the shortest way to say it.
        let lines = |text: Option<&str>| text.map_or(0, |text| text.lines().count());
        return FileEdit { path, added: lines(after), removed: lines(before), diff: String::new() };
    };
    let compared = TextDiff::from_lines(old, new);
    let (mut added, mut removed) = (0, 0);
    for change in compared.iter_all_changes() {
        match change.tag() {
            ChangeTag::Equal => {}
            ChangeTag::Insert => added += 1,
            ChangeTag::Delete => removed += 1,
        }
    }
    let diff = shortened(compared.unified_diff().context_radius(3).to_string());
    FileEdit { path, added, removed, diff }
}

/// Cuts a diff behind a whole line.
fn shortened(mut diff: String) -> String {
    if diff.len() > DIFF_BYTES_MAX {
        let kept = first_bytes(&diff, DIFF_BYTES_MAX);
        diff.truncate(kept.rfind('\n').map_or(kept.len(), |at| at + 1));
        diff.push_str("…\n");
    }
    diff
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edits_are_counted_by_lines() {
        let long = "x\n".repeat(COMPARED_BYTES_MAX);
        for (before, after, added, removed, diff) in [
            (Some(""), Some("a\nb\n"), 2, 0, "@@ -0,0 +1,2 @@\n+a\n+b\n"),
            (Some("a\nb\nc\n"), Some("a\nB\nc\n"), 1, 1, "@@ -1,3 +1,3 @@\n a\n-b\n+B\n c\n"),
            (Some("a\n"), Some("a\n"), 0, 0, ""),
            (None, Some("a\n"), 1, 0, ""),
            (Some("a\n"), None, 0, 1, ""),
            (Some("a\n"), Some(long.as_str()), COMPARED_BYTES_MAX, 1, ""),
        ] {
            let path = "f".to_owned();
            let expected = FileEdit { path: path.clone(), added, removed, diff: diff.to_owned() };
            assert_eq!(edited(path, before, after), expected);
        }
    }

    #[test]
    fn a_long_diff_ends_behind_a_line() {
        let edit = edited("f".to_owned(), Some(""), Some(&"äöü äöü\n".repeat(2000)));
        assert_eq!(edit.added, 2000);
        assert!(edit.diff.len() <= DIFF_BYTES_MAX + 4 && edit.diff.ends_with("+äöü äöü\n…\n"));
    }
}
