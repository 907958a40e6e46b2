//! The archive beyond appending: what is not worked in yet, what has to go, and the form that it had before.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use domain::ids::SessionKey;
use domain::keys::{Base, Key};
use domain::memory::{LINES_MAX, Line, chunks, surplus};
use supervision::ports::{Disk, DiskFile, Open};

use super::{Archive, CONTENT_CHARS_MAX, HISTORY_FILE};
use crate::files::{each_line, read_text, replace, replace_with};

const DREAM_FILE: &str = "memory/.dream_cursor";
const LEGACY_FILE: &str = "memory/HISTORY.md";
/// Bytes of it that are taken over.
const LEGACY_BYTES_MAX: u64 = 64 * 1024 * 1024;
/// Names that it may get when it was taken over.
const BACKUPS_MAX: u32 = 1000;

/// What is not worked in yet.
#[derive(Debug, Default)]
pub(crate) struct Fresh {
    /// The oldest of it.
    pub(crate) lines: Vec<Line>,
    /// The last line that they stand for, with what between them is nothing to work in.
    pub(crate) upto: u64,
    /// How many lines there are.
    pub(crate) count: usize,
}

// === impl Archive ===

impl Archive {
    /// The last line that was worked in.
    pub fn dream_cursor(&self, disk: &dyn Disk) -> u64 {
        self.number(disk, DREAM_FILE)
    }

    /// Notes it; it never goes back.
    pub(crate) fn keep_dream_cursor(&self, disk: &dyn Disk, cursor: u64) -> io::Result<()> {
        if cursor <= self.dream_cursor(disk) {
            return Ok(());
        }
        replace(disk, &self.workspace, DREAM_FILE, cursor.to_string().as_bytes())
    }

    /// The newest lines that `wanted` takes, at most `last` of them, in their order.
    pub fn recall(&self, disk: &dyn Disk, last: usize, wanted: impl Fn(&Line) -> bool) -> io::Result<Vec<Line>> {
        let mut found = VecDeque::new();
        self.each(disk, |line, _| {
            if wanted(&line) {
                found.push_back(line);
            }
            if found.len() > last {
                found.pop_front();
            }
            Ok(())
        })?;
        Ok(found.into())
    }

    /// Hands each line to `take`. Lines of another form are left out, which is said once.
    pub(crate) fn each(&self, disk: &dyn Disk, mut take: impl FnMut(Line, &[u8]) -> io::Result<()>) -> io::Result<()> {
        let Some(file) = self.open(disk)? else { return Ok(()) };
        let mut others = 0_u64;
        each_line(&*file, |bytes| match Line::parse(bytes) {
            Some(line) => take(line, bytes),
            None => {
                others += 1;
                Ok(())
            }
        })?;
        if others > 0 && !self.warned.swap(true, Ordering::Relaxed) {
            tracing::warn!(lines = others, "{HISTORY_FILE} has lines of another form, which are left out");
        }
        Ok(())
    }

    /// The oldest lines beyond the cursor of Dream, at most `max`. What Dreams themselves said is none.
    pub(crate) fn fresh(&self, disk: &dyn Disk, max: usize) -> io::Result<Fresh> {
        let dream = self.dream_cursor(disk);
        let mut fresh = Fresh { upto: dream, ..Fresh::default() };
        self.each(disk, |line, _| {
            let counts = line.cursor > dream && !line.content.trim().is_empty() && !is_dreamt(&line);
            if counts {
                fresh.count += 1;
            }
            if counts && fresh.lines.len() < max {
                fresh.upto = fresh.upto.max(line.cursor);
                fresh.lines.push(line);
            }
            Ok(())
        })?;
        Ok(fresh)
    }

    /// Counts all that there is as worked in.
    pub(crate) fn skip_all(&self, disk: &dyn Disk) -> io::Result<()> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut last = 0;
        self.each(disk, |line, _| {
            last = last.max(line.cursor);
            Ok(())
        })?;
        self.keep_dream_cursor(disk, last)
    }

    /// Lets the oldest lines go that were worked in, if there are more than are kept.
    pub(crate) fn compact(&self, disk: &dyn Disk) -> io::Result<()> {
        self.compact_to(disk, LINES_MAX)
    }

    fn compact_to(&self, disk: &dyn Disk, max: usize) -> io::Result<()> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut cursors = Vec::new();
        self.each(disk, |line, _| {
            cursors.push(line.cursor);
            Ok(())
        })?;
        let mut gone = surplus(&cursors, self.dream_cursor(disk), max);
        if gone == 0 {
            return Ok(());
        }
        replace_with(disk, &self.workspace, HISTORY_FILE, |file| {
            let mut at = 0;
            self.each(disk, |_, bytes| {
                if gone > 0 {
                    gone -= 1;
                    return Ok(());
                }
                let line = [bytes, b"\n"].concat();
                file.write_at(&line, at)?;
                at += line.len() as u64;
                Ok(())
            })
        })
    }

    /// Takes over what nanobot kept before, unless there is an archive: it counts as worked in. What was taken over gets
    /// another name.
    pub(crate) fn migrate(&self, disk: &dyn Disk, now_ms: u64) -> io::Result<()> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        if self.open(disk)?.is_some_and(|file| file.opened().length > 0) {
            return Ok(());
        }
        let Some(text) = read_text(disk, &self.workspace, LEGACY_FILE, LEGACY_BYTES_MAX)? else { return Ok(()) };
        let (mut lines, mut cursor) = (String::new(), 0);
        for chunk in chunks(&text) {
            cursor += 1;
            let line = Line {
                cursor,
                timestamp: chunk.timestamp.unwrap_or_else(|| self.time(now_ms)),
                content: domain::text::ellipsis(&chunk.content, CONTENT_CHARS_MAX).into_owned(),
                session_key: None,
                part: None,
            };
            lines.push_str(&serde_json::to_string(&line).map_err(io::Error::other)?);
            lines.push('\n');
        }
        // The archive comes last: as long as there is none, all of this is done again.
        self.keep_cursor(disk, cursor)?;
        replace(disk, &self.workspace, DREAM_FILE, cursor.to_string().as_bytes())?;
        replace(disk, &self.workspace, HISTORY_FILE, lines.as_bytes())?;
        self.put_aside(disk)?;
        tracing::info!(lines = cursor, "{LEGACY_FILE} was taken over into {HISTORY_FILE}");
        Ok(())
    }

    fn put_aside(&self, disk: &dyn Disk) -> io::Result<()> {
        let from = self.workspace.join(LEGACY_FILE);
        let names = (2..BACKUPS_MAX).map(|number| format!("{LEGACY_FILE}.bak.{number}"));
        for name in [format!("{LEGACY_FILE}.bak")].into_iter().chain(names) {
            match disk.rename_new(&from, &self.workspace.join(name)) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                other => return other.and_then(|()| disk.sync_dir(&self.workspace.join(super::DIRECTORY))),
            }
        }
        Err(io::Error::other(format!("{LEGACY_FILE} has too many backups beside it")))
    }

    fn open(&self, disk: &dyn Disk) -> io::Result<Option<Box<dyn DiskFile>>> {
        match disk.open_inside(&self.workspace, Path::new(HISTORY_FILE), Open::Read) {
            Ok(file) => Ok(Some(file)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Whether that was said in a Dream.
fn is_dreamt(line: &Line) -> bool {
    let key = line.session_key.as_deref().and_then(|key| SessionKey::new(key).ok());
    key.is_some_and(|key| matches!(Key::from(&key).base, Base::Dream(_)))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::tz::TimeZone;
    use supervision::memory::PowerCutDisk;

    use super::*;

    use super::super::CURSOR_FILE;

    const AT_MS: u64 = 1_796_048_340_000;

    fn archive(files: &[(&str, &str)]) -> (Arc<PowerCutDisk>, Archive) {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w/memory")).unwrap();
        for (path, text) in files {
            replace(&*disk, Path::new("/w"), path, text.as_bytes()).unwrap();
        }
        (disk, Archive::new("/w".into(), TimeZone::UTC))
    }

    fn text(disk: &dyn Disk, path: &str) -> Option<String> {
        read_text(disk, Path::new("/w"), path, 1 << 20).unwrap()
    }

    fn line(cursor: u64, key: &str) -> String {
        format!("{{\"cursor\":{cursor},\"timestamp\":\"t\",\"content\":\"c{cursor}\",\"session_key\":\"{key}\"}}\n")
    }

    #[test]
    fn what_is_fresh_is_taken_in_order_and_bad_lines_and_dreams_are_passed_over() {
        let history = [
            line(1, "cli:direct"),
            "{torn\n".into(),
            line(2, "dream:20260301-010101"),
            line(3, "api:1"),
            line(4, "api:1"),
        ];
        let (disk, archive) = archive(&[(HISTORY_FILE, &history.concat()), (DREAM_FILE, "1")]);
        let fresh = archive.fresh(&*disk, 1).unwrap();
        let cursors: Vec<u64> = fresh.lines.iter().map(|line| line.cursor).collect();
        assert_eq!((cursors.as_slice(), fresh.upto, fresh.count), (&[3][..], 3, 2));
        archive.keep_dream_cursor(&*disk, 4).unwrap();
        archive.keep_dream_cursor(&*disk, 2).unwrap();
        assert_eq!(archive.dream_cursor(&*disk), 4, "it never goes back");
        assert_eq!(archive.fresh(&*disk, 20).unwrap().count, 0);
    }

    #[test]
    fn old_lines_go_once_they_are_worked_in() {
        let history: String = (1..=6).map(|cursor| line(cursor, "api:1")).collect();
        for (dream, max, first) in [("0", 2, 1), ("2", 2, 3), ("6", 2, 5), ("6", 6, 1), ("6", 0, 7)] {
            let (disk, archive) = archive(&[(HISTORY_FILE, &history), (DREAM_FILE, dream)]);
            archive.compact_to(&*disk, max).unwrap();
            let left: String = (first..=6).map(|cursor| line(cursor, "api:1")).collect();
            assert_eq!(text(&*disk, HISTORY_FILE), Some(left), "{dream} {max}");
        }
    }

    #[test]
    fn a_power_cut_never_loses_a_line_that_is_not_worked_in() {
        let history: String = (1..=6).map(|cursor| line(cursor, "api:1")).collect();
        let files = [(HISTORY_FILE, history.as_str()), (DREAM_FILE, "4")];
        let (whole, of_whole) = archive(&files);
        let before = whole.operations();
        of_whole.compact_to(&*whole, 1).unwrap();
        for at in 1..=whole.operations() - before {
            let (disk, archive) = archive(&files);
            disk.power_off_at(before + at);
            // It fails where the power does.
            let _ = archive.compact_to(&*disk, 1);
            let found = text(&*disk.cut(at), HISTORY_FILE).unwrap();
            assert!(found == history || found == [line(5, "api:1"), line(6, "api:1")].concat(), "cut at {at}: {found}");
        }
    }

    #[test]
    fn the_old_form_is_taken_over_once_and_counts_as_worked_in() {
        let old = "[2026-02-01 10:00] one\n\ntwo\n";
        let (disk, archive) = archive(&[(LEGACY_FILE, old), ("memory/HISTORY.md.bak", "older")]);
        archive.migrate(&*disk, AT_MS).unwrap();
        archive.migrate(&*disk, AT_MS).unwrap();
        assert_eq!(
            text(&*disk, HISTORY_FILE).unwrap(),
            "{\"cursor\":1,\"timestamp\":\"2026-02-01 10:00\",\"content\":\"one\"}\n\
             {\"cursor\":2,\"timestamp\":\"2026-11-30 14:19\",\"content\":\"two\"}\n"
        );
        for (path, expected) in [
            (LEGACY_FILE, None),
            ("memory/HISTORY.md.bak", Some("older")),
            ("memory/HISTORY.md.bak.2", Some(old)),
            (CURSOR_FILE, Some("2")),
            (DREAM_FILE, Some("2")),
        ] {
            assert_eq!(text(&*disk, path).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn beside_an_archive_the_old_form_stays() {
        let (disk, archive) = archive(&[(LEGACY_FILE, "old"), (HISTORY_FILE, &line(1, "api:1"))]);
        archive.migrate(&*disk, AT_MS).unwrap();
        assert_eq!(text(&*disk, LEGACY_FILE).as_deref(), Some("old"));
        assert_eq!(text(&*disk, HISTORY_FILE), Some(line(1, "api:1")));
    }

    #[test]
    fn who_does_not_dream_has_nothing_left_to_dream_of() {
        let (disk, archive) = archive(&[(HISTORY_FILE, &[line(1, "api:1"), line(7, "api:1")].concat())]);
        archive.skip_all(&*disk).unwrap();
        assert_eq!(text(&*disk, DREAM_FILE).as_deref(), Some("7"));
    }
}
