//! What is remembered, for who looks. All functions block.

use std::io;

use domain::memory::{FILES, LINES_MAX, Line};
use protocol::memory::{Lines, Shown, ShownFile, ShownVersion, WhichLines};
use supervision::ports::Disk;

use crate::archive::Archive;

// === impl Archive ===

impl Archive {
    /// The files, and how it stands with what is worked into them. `memory_bytes_max` is what the largest may have.
    pub fn shown(&self, disk: &dyn Disk, memory_bytes_max: u64) -> io::Result<Shown> {
        let mut texts = self.contents(disk)?;
        let dream = self.dream_cursor(disk);
        let versions = self.versions(disk)?;
        let newest = versions.last().map(|version| ShownVersion {
            id: version.id.clone(),
            timestamp: version.timestamp.clone(),
            by: version.by,
        });
        let file = |path: &'static str| {
            let text = texts.remove(path).flatten();
            ShownFile { path, bytes: text.as_ref().map(String::len), text }
        };
        Ok(Shown {
            files: FILES.into_iter().map(file).collect(),
            memory_bytes_max,
            not_worked_in: self.recall(disk, usize::MAX, |line| line.cursor > dream)?.len(),
            worked_in_up_to: dream,
            versions: versions.len(),
            newest_version: newest,
        })
    }

    /// The newest lines of that kind, at most as many as are kept.
    pub fn lines(&self, disk: &dyn Disk, which: &WhichLines) -> io::Result<Lines> {
        let of = |line: &Line| which.session.as_deref().is_none_or(|key| line.session_key.as_deref() == Some(key));
        let limit = which.limit.min(LINES_MAX);
        // One more tells whether there are more.
        let mut items = self.recall(disk, limit + 1, |line| of(line) && line.has(&which.words))?;
        let more = items.len() > limit;
        if more {
            items.remove(0);
        }
        Ok(Lines { items, next: None, more })
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use jiff::tz::TimeZone;
    use supervision::memory::PowerCutDisk;

    use super::*;
    use crate::files::replace;

    #[track_caller]
    fn check(words: &str, session: Option<&str>, limit: usize, cursors: &[u64], more: bool) {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w/memory")).unwrap();
        let line = |cursor: u64, key: &str, content: &str| {
            format!("{{\"cursor\":{cursor},\"timestamp\":\"t\",\"content\":\"{content}\",\"session_key\":\"{key}\"}}\n")
        };
        let lines = [line(1, "api:1", "the bed"), line(2, "api:2", "The tomato bed"), line(3, "api:1", "tomatoes")];
        replace(&*disk, Path::new("/w"), "memory/history.jsonl", lines.concat().as_bytes()).unwrap();
        let which = WhichLines { words: words.to_owned(), session: session.map(str::to_owned), limit };
        let found = Archive::new("/w".into(), TimeZone::UTC).lines(&*disk, &which).unwrap();
        let found_cursors: Vec<u64> = found.items.iter().map(|line| line.cursor).collect();
        assert_eq!((found_cursors.as_slice(), found.more), (cursors, more), "{which:?}");
    }

    #[test]
    fn the_newest_lines_with_all_words_of_a_session_are_found() {
        check("", None, 20, &[1, 2, 3], false);
        check("", None, 2, &[2, 3], true);
        check("BED tomato", None, 20, &[2], false);
        check("tomato", Some("api:1"), 20, &[3], false);
        check("", Some("api:9"), 20, &[], false);
        check("", None, usize::MAX, &[1, 2, 3], false);
        check("", None, 0, &[], true);
    }
}
