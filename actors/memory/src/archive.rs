//! The archive of conversations: `memory/history.jsonl` in the workspace, one JSON object a line, only ever appended to.
//!
//! ```json
//! {"cursor":7,"timestamp":"2026-11-30 14:19","content":"...","session_key":"cli:direct","part":"00c0….a41f…"}
//! ```
//!
//! `part` names the messages of the session that the line is about, by the ids of the first and the last one; lines of
//! others have none. Cursors grow by one. `memory/.cursor` has the last one as decimal text; it may be missing or late. A line that a cut
//! write left unfinished stays as it is, alone on its line: readers leave it out. No part of the way is followed where
//! it is a link, since tools may write in the workspace. All functions block.
//!
//! **Source:** nanobot's `MemoryStore`.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::sync::{Mutex, PoisonError};

use domain::ids::SessionKey;
use domain::memory::Line;
use domain::text::ellipsis;
use jiff::tz::TimeZone;
use jiff::{Timestamp, Zoned};
use protocol::edit::Part;
use supervision::ports::{Disk, DiskFile, Open};

use crate::files::{each_line, read_text, replace};

mod kept;

pub(crate) const DIRECTORY: &str = "memory";
pub(crate) const HISTORY_FILE: &str = "memory/history.jsonl";
const CURSOR_FILE: &str = "memory/.cursor";
/// Characters of one line's content, whatever asks for it.
pub const CONTENT_CHARS_MAX: usize = 64_000;
/// Bytes at the end of the file in which the last line is looked for: more than the longest line has.
const TAIL_BYTES: u64 = 512 * 1024;
/// Bytes of a file that has a cursor.
const CURSOR_BYTES_MAX: u64 = 64;

/// The file, which one job at a time writes.
pub struct Archive {
    pub(crate) workspace: PathBuf,
    pub(crate) zone: TimeZone,
    pub(crate) writing: Mutex<()>,
    /// Whether it was said that lines of another form are left out.
    warned: AtomicBool,
}

// === impl Archive ===

impl Archive {
    /// In that workspace, with times of that zone.
    pub fn new(workspace: PathBuf, zone: TimeZone) -> Self {
        Self { workspace, zone, writing: Mutex::new(()), warned: AtomicBool::new(false) }
    }

    /// Appends what is kept of a part of a session, and gives its cursor. On the device when this returns; after an error
    /// nothing of it, or a piece that readers leave out. A part of which the end of the file has a line already gets no
    /// second one: a kill before the conversation was changed has it summarised again.
    pub fn append(
        &self,
        disk: &dyn Disk,
        (key, part): (&SessionKey, &Part),
        content: &str,
        now_ms: u64,
    ) -> io::Result<u64> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let directory = self.workspace.join(DIRECTORY);
        disk.create_dir_all(&directory)?;
        let file = disk.open_inside(&self.workspace, Path::new(HISTORY_FILE), Open::Create)?;
        let length = file.length()?;
        let content = ellipsis(content, CONTENT_CHARS_MAX);
        let tail = read(&*file, length.saturating_sub(TAIL_BYTES), length)?;
        let part = format!("{}.{}", part.first, part.last);
        if let Some(cursor) = kept(&tail, key, &part) {
            return Ok(cursor);
        }
        let known = match last_line(&tail) {
            Some(last) => last.cursor,
            None => newest(&*file)?,
        };
        let cursor = known.max(self.number(disk, CURSOR_FILE)) + 1;
        let line = Line {
            cursor,
            timestamp: self.time(now_ms),
            content: content.into_owned(),
            session_key: Some(key.as_str().to_owned()),
            part: Some(part),
        };
        let lead = if length > 0 && tail.last() != Some(&b'\n') { "\n" } else { "" };
        let text = format!("{lead}{}\n", serde_json::to_string(&line).map_err(io::Error::other)?);
        if let Err(error) = file.write_at(text.as_bytes(), length).and_then(|()| file.sync_data()) {
            // What cannot be taken back stays as a line that nobody reads.
            let _ = file.set_length(length);
            return Err(error);
        }
        if length == 0 {
            disk.sync_dir(&directory)?;
        }
        // The line itself says it too.
        if let Err(error) = self.keep_cursor(disk, cursor) {
            tracing::warn!(%error, "the cursor of the archive of conversations cannot be written");
        }
        Ok(cursor)
    }

    /// The number in a file of one; 0 when there is none.
    pub(crate) fn number(&self, disk: &dyn Disk, path: &str) -> u64 {
        let text = read_text(disk, &self.workspace, path, CURSOR_BYTES_MAX);
        text.ok().flatten().and_then(|text| text.trim().parse().ok()).unwrap_or(0)
    }

    fn keep_cursor(&self, disk: &dyn Disk, cursor: u64) -> io::Result<()> {
        replace(disk, &self.workspace, CURSOR_FILE, cursor.to_string().as_bytes())
    }

    /// Like [`time`](Self::time), to the second and without anything but digits and a dash.
    pub(crate) fn stamp(&self, now_ms: u64) -> String {
        self.zoned(now_ms).strftime("%Y%m%d-%H%M%S").to_string()
    }

    pub(crate) fn time(&self, now_ms: u64) -> String {
        self.zoned(now_ms).strftime("%Y-%m-%d %H:%M").to_string()
    }

    fn zoned(&self, now_ms: u64) -> Zoned {
        let at = Timestamp::from_millisecond(i64::try_from(now_ms).unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
        at.to_zoned(self.zone.clone())
    }
}

/// The bytes from one place to another.
fn read(file: &dyn DiskFile, from: u64, to: u64) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
    let got = file.read_at(&mut bytes, from)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// The last line, unless it is none.
fn last_line(tail: &[u8]) -> Option<Line> {
    let lines = tail.split(|byte| *byte == b'\n');
    let last = lines.rev().find(|line| !line.trim_ascii().is_empty())?;
    Line::parse(last)
}

/// The highest cursor.
fn newest(file: &dyn DiskFile) -> io::Result<u64> {
    let mut newest = 0;
    each_line(file, |line| {
        newest = newest.max(Line::parse(line).map_or(0, |line| line.cursor));
        Ok(())
    })?;
    Ok(newest)
}

/// The cursor of the line about that part.
fn kept(tail: &[u8], key: &SessionKey, part: &str) -> Option<u64> {
    let is_it = |line: &Line| line.part.as_deref() == Some(part) && line.session_key.as_deref() == Some(key.as_str());
    tail.split(|byte| *byte == b'\n').filter_map(Line::parse).find(is_it).map(|line| line.cursor)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use supervision::memory::PowerCutDisk;

    use super::*;

    const AT_MS: u64 = 1_796_048_340_000;

    fn key() -> SessionKey {
        SessionKey::new("cli:direct").unwrap()
    }

    fn part(last: &str) -> Part {
        Part { first: "f".to_owned(), last: last.to_owned() }
    }

    fn archive() -> (Arc<PowerCutDisk>, Archive) {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w")).unwrap();
        (disk, Archive::new("/w".into(), TimeZone::get("Europe/Berlin").unwrap()))
    }

    fn text(disk: &PowerCutDisk, path: &str) -> String {
        String::from_utf8(disk.read(&Path::new("/w").join(path)).unwrap_or_default()).unwrap()
    }

    fn put(disk: &PowerCutDisk, path: &str, text: &str) {
        disk.create_dir_all(Path::new("/w/memory")).unwrap();
        let file = disk.open(&Path::new("/w").join(path), Open::Create).unwrap();
        file.set_length(0).unwrap();
        file.write_at(text.as_bytes(), 0).unwrap();
    }

    #[test]
    fn lines_are_of_the_form_that_others_read() {
        let (disk, archive) = archive();
        assert_eq!(archive.append(&*disk, (&key(), &part("1")), "one \"two\"", AT_MS).unwrap(), 1);
        assert_eq!(archive.append(&*disk, (&key(), &part("2")), "three", AT_MS).unwrap(), 2);
        assert_eq!(
            text(&disk, HISTORY_FILE),
            "{\"cursor\":1,\"timestamp\":\"2026-11-30 15:19\",\"content\":\"one \\\"two\\\"\",\"session_key\":\"cli:direct\",\"part\":\"f.1\"}\n\
             {\"cursor\":2,\"timestamp\":\"2026-11-30 15:19\",\"content\":\"three\",\"session_key\":\"cli:direct\",\"part\":\"f.2\"}\n"
        );
        assert_eq!(text(&disk, CURSOR_FILE), "2");
        assert_eq!(domain::prompt::read_past(&text(&disk, HISTORY_FILE), 1).len(), 1);
        let long = "é".repeat(CONTENT_CHARS_MAX + 1);
        archive.append(&*disk, (&key(), &part("3")), &long, AT_MS).unwrap();
        let past = domain::prompt::read_past(&text(&disk, HISTORY_FILE), 2);
        assert_eq!(past[0].text.chars().count(), CONTENT_CHARS_MAX);
    }

    #[test]
    fn cursors_go_on_behind_the_higher_of_file_and_note_and_torn_lines_stay_alone() {
        let line = |cursor: u64| format!("{{\"cursor\":{cursor},\"timestamp\":\"t\",\"content\":\"c\"}}");
        for (history, note, cursor) in [
            (String::new(), "41", 42),
            (format!("{}\n{}\n", line(3), line(9)), "", 10),
            (format!("{}\n", line(3)), "7", 8),
            (format!("{}\n", line(8)), "12torn", 9),
            // The end was cut: what is whole before it counts.
            (format!("{}\n{}\n{{\"cursor\":10,\"ti", line(4), line(9)), "", 10),
            // The last line only lacks its end.
            (line(5), "", 6),
        ] {
            let (disk, archive) = archive();
            put(&disk, HISTORY_FILE, &history);
            if !note.is_empty() {
                put(&disk, CURSOR_FILE, note);
            }
            assert_eq!(archive.append(&*disk, (&key(), &part("1")), "new", AT_MS).unwrap(), cursor, "{history} {note}");
            let after = text(&disk, HISTORY_FILE);
            assert!(after.starts_with(&history), "nothing is taken away");
            let whole = domain::prompt::read_past(&after, cursor - 1);
            assert_eq!(whole.len(), 1, "{after}");
        }
    }

    #[test]
    fn a_part_has_one_line_whatever_is_said_of_it_and_a_full_disk_leaves_no_half_line() {
        let (disk, archive) = archive();
        let other = SessionKey::new("cli:other").unwrap();
        let append = |key: &SessionKey, last: &str, content: &str| {
            archive.append(&*disk, (key, &part(last)), content, AT_MS).map_err(|error| error.kind())
        };
        for (key, last, content, cursor) in [
            (&key(), "1", "once", 1),
            (&key(), "1", "in other words", 1),
            (&other, "1", "once", 2),
            (&key(), "2", "once", 3),
            // Lines of others came behind it meanwhile.
            (&key(), "1", "and again", 1),
        ] {
            assert_eq!(append(key, last, content), Ok(cursor), "{last} {content}");
        }
        let before = text(&disk, HISTORY_FILE);
        assert_eq!(before.lines().count(), 3, "{before}");
        disk.set_full(true);
        assert!(append(&key(), "3", "more").is_err());
        disk.set_full(false);
        assert_eq!(text(&disk, HISTORY_FILE), before);
        assert_eq!(append(&key(), "3", "more"), Ok(4));
    }
}
