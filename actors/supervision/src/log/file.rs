//! The log's files: appended, rotated by size, removed by number and by age.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::supervision::Event;

use super::{LogOptions, timestamp};
use crate::ports::{Clock, Disk, DiskFile, Open};

/// How much of a file's end is looked at for its last line; longer than any line.
const TAIL_BYTES: u64 = 64 * 1024;
/// How often files are looked at for their age.
const AGE_EVERY: Duration = Duration::from_secs(60 * 60);

/// A write that failed, and how many bytes of its lines are in the file all the same.
pub(super) struct Unwritten {
    pub kept: usize,
    pub error: io::Error,
}

pub(super) struct LogFile {
    pub options: LogOptions,
    pub disk: Arc<dyn Disk>,
    pub clock: Arc<dyn Clock>,
    pub file: Box<dyn DiskFile>,
    /// Where the next line begins.
    pub length: u64,
    /// Whether a part of a line may follow there, left by a write that failed.
    pub torn: bool,
    /// When files were last looked at for their age.
    pub aged: Duration,
}

impl LogFile {
    pub fn open(options: LogOptions, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        disk.create_dir_all(&options.dir)?;
        let file = disk.open(&options.file(0), Open::Create)?;
        let length = file.length()?;
        let aged = clock.mono();
        let mut this = Self { options, disk, clock, file, length, torn: false, aged };
        this.end_torn_line()?;
        this.remove_aged()?;
        this.remove_surplus()?;
        Ok(this)
    }

    /// The last event that is in the log.
    pub fn last_event(&self) -> Option<Event> {
        (0..self.options.files).find_map(|n| last_event(&*self.disk, &self.options.file(n)).ok().flatten())
    }

    /// A line that a crash of the process cut must not run into the next one.
    fn end_torn_line(&mut self) -> io::Result<()> {
        let mut last = [b'\n'];
        if self.length > 0 {
            self.file.read_at(&mut last, self.length - 1)?;
        }
        if last == *b"\n" { Ok(()) } else { self.append(b"\n").map_err(|failed| failed.error) }
    }

    pub fn append(&mut self, lines: &[u8]) -> Result<(), Unwritten> {
        if lines.is_empty() {
            return Ok(());
        }
        self.make_room(lines.len()).map_err(|error| Unwritten { kept: 0, error })?;
        // What cannot be cut off is written over.
        self.torn = self.torn && self.file.set_length(self.length).is_err();
        match self.file.write_at(lines, self.length) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => Err(Unwritten { kept: self.keep_whole_lines(lines), error }),
        }
    }

    /// Rotates when the file is full, and removes what is too old.
    fn make_room(&mut self, bytes: usize) -> io::Result<()> {
        if self.length > 0 && self.length + bytes as u64 > self.options.file_bytes {
            self.rotate()?;
        }
        let now = self.clock.mono();
        if now.saturating_sub(self.aged) >= AGE_EVERY {
            self.aged = now;
            self.remove_aged()?;
        }
        Ok(())
    }

    /// After a write that failed: the whole lines that are in the file stay, the part of one is cut off, which needs no
    /// space. Returns the bytes that stay.
    fn keep_whole_lines(&mut self, lines: &[u8]) -> usize {
        let added = self.file.length().map_or(0, |end| end.saturating_sub(self.length));
        let written = lines.get(..usize::try_from(added).unwrap_or(usize::MAX)).unwrap_or(lines);
        let kept = written.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
        self.length += kept as u64;
        self.torn = self.file.set_length(self.length).is_err();
        kept
    }

    fn rotate(&mut self) -> io::Result<()> {
        // Without a current file the last rotation got stuck when it made the new one.
        if self.exists(0)? {
            self.shift()?;
        }
        self.file = self.disk.open(&self.options.file(0), Open::Create)?;
        self.length = 0;
        self.torn = false;
        Ok(())
    }

    fn exists(&self, n: u32) -> io::Result<bool> {
        match self.disk.stat(&self.options.file(n)) {
            Ok(_) => Ok(true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(error),
        }
    }

    fn shift(&self) -> io::Result<()> {
        let oldest = self.options.files.max(1) - 1;
        for n in (0..oldest).rev() {
            ignore_missing(self.disk.rename(&self.options.file(n), &self.options.file(n + 1)))?;
        }
        if oldest == 0 {
            ignore_missing(self.disk.remove(&self.options.file(0)))?;
        }
        Ok(())
    }

    /// Files above the number that is kept: there was a larger one once.
    fn remove_surplus(&self) -> io::Result<()> {
        let mut n = self.options.files.max(1);
        while self.exists(n)? {
            self.disk.remove(&self.options.file(n))?;
            n += 1;
        }
        Ok(())
    }

    /// Removes rotated files, the oldest first, whose newest event is older than what is kept.
    fn remove_aged(&self) -> io::Result<()> {
        let age_us = u64::try_from(self.options.age.as_micros()).unwrap_or(u64::MAX);
        let oldest_kept = timestamp(self.clock.wall_us().saturating_sub(age_us));
        let mut n = 1;
        while self.exists(n)? {
            n += 1;
        }
        for path in (1..n).rev().map(|n| self.options.file(n)) {
            // A file of which no line can be read is left for a person to look at.
            if last_event(&*self.disk, &path)?.is_none_or(|event| event.ts >= oldest_kept) {
                break;
            }
            self.disk.remove(&path)?;
        }
        Ok(())
    }
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The last whole event of a file; `None` when it has none, or is not there.
fn last_event(disk: &dyn Disk, path: &Path) -> io::Result<Option<Event>> {
    let file = match disk.open(path, Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.length()?;
    let from = length.saturating_sub(TAIL_BYTES);
    let mut tail = vec![0; usize::try_from(length - from).map_err(io::Error::other)?];
    let got = file.read_at(&mut tail, from)?;
    tail.truncate(got);
    Ok(tail.rsplit(|byte| *byte == b'\n').find_map(|line| serde_json::from_slice(line).ok()))
}
