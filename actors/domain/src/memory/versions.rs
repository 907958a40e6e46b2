//! Versions of the files that Dream keeps up to date: one JSON object a line, each with the whole contents.
//!
//! ```json
//! {"id":"3f9c0a1b","timestamp":"2026-11-30 14:19","by":"dream","note":"dream:20261130-141900","files":{"SOUL.md":"...","USER.md":null,"memory/MEMORY.md":"..."}}
//! ```
//!
//! `by` is `dream`, `restore`, or `edit` for what was found changed before a Dream; `null` is a file that is not there.
//! The newest [`VERSIONS_MAX`] are kept, as far as they fit in [`BYTES_MAX`].

use std::collections::BTreeMap;
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use similar::TextDiff;

use crate::text::{ellipsis, one_line};

/// Versions that are kept.
pub const VERSIONS_MAX: usize = 100;
/// Bytes of all of them together.
pub const BYTES_MAX: u64 = 16 * 1024 * 1024;
/// Versions that `/dream-restore` lists.
pub const LISTED_MAX: usize = 10;
/// Characters of a diff that is shown.
const DIFF_CHARS_MAX: usize = 6000;
/// Letters of an id that are enough to name it.
const PREFIX_MIN: usize = 4;

/// What the files say, by their paths; `None` is one that is not there.
pub type Contents = BTreeMap<String, Option<String>>;

/// Who made a version.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum By {
    /// Dream.
    Dream,
    /// Somebody else, before.
    Edit,
    /// Who wanted an older one back.
    Restore,
}

/// One version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Version {
    /// Eight hex digits.
    pub id: String,
    /// When, as `2026-11-30 14:19` in the configured zone.
    pub timestamp: String,
    /// Who made it.
    pub by: By,
    /// The session of the Dream, or the id of what was undone.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub note: Option<String>,
    /// What the files say.
    pub files: Contents,
}

/// Why a version is not found.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NoVersion {
    /// There is none of that id.
    #[error("There is no version {0}. /dream-restore lists the newest.")]
    Unknown(String),
    /// Several begin so.
    #[error("Several versions begin with {0}; please give more of it.")]
    Several(String),
    /// Nothing is known of what was before it.
    #[error("{0} is the oldest version that is kept: what was before it is not known.")]
    Oldest(String),
}

// === impl By ===

impl By {
    fn word(self) -> &'static str {
        match self {
            Self::Dream => "dream",
            Self::Edit => "edit",
            Self::Restore => "restore",
        }
    }
}

/// The place of the version whose id is `id`, or begins so.
pub fn find(versions: &[Version], id: &str) -> Result<usize, NoVersion> {
    let shown = || ellipsis(&one_line(id), 40).into_owned();
    let id = id.trim().to_lowercase();
    if id.chars().count() < PREFIX_MIN {
        return Err(NoVersion::Unknown(shown()));
    }
    let mut fitting = versions.iter().enumerate().filter(|(_, version)| version.id.starts_with(&id));
    match (fitting.next(), fitting.next()) {
        (None, _) => Err(NoVersion::Unknown(shown())),
        (Some((at, _)), None) => Ok(at),
        (Some(_), Some(_)) => Err(NoVersion::Several(shown())),
    }
}

/// The place of the version before the one that is named: what its undoing brings back.
pub fn before(versions: &[Version], id: &str) -> Result<usize, NoVersion> {
    let at = find(versions, id)?;
    let oldest = || versions.get(at).map(|version| version.id.clone()).unwrap_or_default();
    at.checked_sub(1).ok_or_else(|| NoVersion::Oldest(oldest()))
}

/// One line about each of the newest, the newest first.
pub fn list(versions: &[Version]) -> String {
    let mut text = String::new();
    for (at, version) in versions.iter().enumerate().rev().take(LISTED_MAX) {
        let older = at.checked_sub(1).and_then(|at| versions.get(at));
        let newline = if text.is_empty() { "" } else { "\n" };
        // Writing to a string cannot fail.
        write!(text, "{newline}{}", headline(version, older)).unwrap_or_default();
    }
    text
}

/// What a version changed, with its headline.
pub fn told(versions: &[Version], at: usize) -> String {
    let Some(version) = versions.get(at) else { return String::new() };
    let older = at.checked_sub(1).and_then(|at| versions.get(at));
    let diff = older.map(|older| diff(&older.files, &version.files)).unwrap_or_default();
    let diff = ellipsis(&diff, DIFF_CHARS_MAX);
    format!(
        "{}\n\n{}",
        headline(version, older),
        if diff.is_empty() { "Nothing that was before it is known." } else { &diff }
    )
}

fn headline(version: &Version, older: Option<&Version>) -> String {
    let changed = older.map(|older| summary(&older.files, &version.files)).unwrap_or_default();
    let changed = if changed.is_empty() { "first version".to_owned() } else { changed };
    let note = version.note.as_ref().map(|note| format!(" ({note})")).unwrap_or_default();
    format!("{}  {}  {}{note}: {changed}", version.id, version.timestamp, version.by.word())
}

/// `SOUL.md +1 -0, …` for each file that differs.
pub fn summary(old: &Contents, new: &Contents) -> String {
    let parts = changed(old, new).into_iter().map(|(path, old, new)| {
        let compared = TextDiff::from_lines(old, new);
        let ratio =
            compared.iter_all_changes().fold((0_usize, 0_usize), |(added, removed), change| match change.tag() {
                similar::ChangeTag::Equal => (added, removed),
                similar::ChangeTag::Insert => (added + 1, removed),
                similar::ChangeTag::Delete => (added, removed + 1),
            });
        format!("{path} +{} -{}", ratio.0, ratio.1)
    });
    parts.collect::<Vec<_>>().join(", ")
}

/// Both as unified diffs, file by file.
fn diff(old: &Contents, new: &Contents) -> String {
    let parts = changed(old, new).into_iter().map(|(path, old, new)| {
        TextDiff::from_lines(old, new).unified_diff().context_radius(3).header(path, path).to_string()
    });
    parts.collect::<Vec<_>>().join("\n")
}

/// The files that differ, with both texts.
fn changed<'a>(old: &'a Contents, new: &'a Contents) -> Vec<(&'a str, &'a str, &'a str)> {
    let text = |contents: &'a Contents, path: &str| contents.get(path).and_then(Option::as_deref).unwrap_or_default();
    let paths = new.keys().chain(old.keys().filter(|path| !new.contains_key(*path)));
    let both = paths.map(|path| (path.as_str(), text(old, path), text(new, path)));
    both.filter(|(_, old, new)| old != new).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn version(id: &str, memory: Option<&str>) -> Version {
        let files = [
            ("SOUL.md".to_owned(), Some("I am.\n".to_owned())),
            ("memory/MEMORY.md".to_owned(), memory.map(str::to_owned)),
        ];
        Version {
            id: id.to_owned(),
            timestamp: "2026-11-30 14:19".to_owned(),
            by: By::Dream,
            note: Some("dream:20261130-141900".to_owned()),
            files: files.into(),
        }
    }

    #[test]
    fn a_version_is_found_by_how_its_id_begins() {
        let versions = [version("3f9c0a1b", None), version("3f9c77aa", None), version("00112233", None)];
        let unknown = |id: &str| Err(NoVersion::Unknown(id.to_owned()));
        for (id, expected) in [
            ("3f9c0a1b", Ok(0)),
            (" 3F9C77 ", Ok(1)),
            ("3f9c", Err(NoVersion::Several("3f9c".to_owned()))),
            ("0011", Ok(2)),
            ("001", unknown("001")),
            ("", unknown("")),
            ("ffff", unknown("ffff")),
        ] {
            assert_eq!(find(&versions, id), expected, "{id}");
        }
        assert_eq!(before(&versions, "0011"), Ok(1));
        assert_eq!(before(&versions, "3f9c0a1b"), Err(NoVersion::Oldest("3f9c0a1b".to_owned())));
    }

    #[test]
    fn what_a_version_changed_is_told() {
        let versions =
            [version("aaaaaaaa", None), version("bbbbbbbb", Some("one\n")), version("cccccccc", Some("one\ntwo\n"))];
        assert_eq!(
            list(&versions),
            "cccccccc  2026-11-30 14:19  dream (dream:20261130-141900): memory/MEMORY.md +1 -0\n\
             bbbbbbbb  2026-11-30 14:19  dream (dream:20261130-141900): memory/MEMORY.md +1 -0\n\
             aaaaaaaa  2026-11-30 14:19  dream (dream:20261130-141900): first version"
        );
        let text = told(&versions, 2);
        assert!(text.ends_with("--- memory/MEMORY.md\n+++ memory/MEMORY.md\n@@ -1 +1,2 @@\n one\n+two\n"), "{text}");
        assert!(told(&versions, 0).ends_with("is known."));
        let text = serde_json::to_string(&versions[0]).unwrap();
        assert_eq!(serde_json::from_str::<Version>(&text).unwrap(), versions[0]);
    }
}
