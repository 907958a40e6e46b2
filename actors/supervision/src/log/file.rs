//! The log's files: appended, rotated by size, removed by number and by age.

use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use protocol::supervision::Event;

use super::{COMMAND_BOOT, LogOf, LogOptions, timestamp};
use crate::ports::{Clock, Disk, DiskFile, Open, is_space};

/// How much of a file's end is looked at first for its last line; longer than any line.
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
    /// `None` as long as there was none to be had.
    pub file: Option<Box<dyn DiskFile>>,
    /// Where the next line begins.
    pub length: u64,
    /// Whether a part of a line may follow there, left by a write that failed.
    pub torn: bool,
    /// When files were last looked at for their age.
    pub aged: Duration,
}

impl LogFile {
    /// Opens it; leaves that to the first write for a command, or if the disk cannot be written now.
    pub fn open(options: LogOptions, disk: Arc<dyn Disk>, clock: Arc<dyn Clock>) -> io::Result<Self> {
        let aged = clock.mono();
        let mut this = Self { options, disk, clock, file: None, length: 0, torn: false, aged };
        match this.options.writer {
            LogOf::Process => {}
            LogOf::Command => return Ok(this),
        }
        match this.begin() {
            Err(error) if is_space(&error) => {
                tracing::error!(target: "supervision", %error, "supervision log cannot be written yet");
            }
            begun => begun?,
        }
        Ok(this)
    }

    fn begin(&mut self) -> io::Result<()> {
        self.disk.create_dir_all(&self.options.dir)?;
        let file = self.disk.open(&self.options.file(0), Open::Create)?;
        self.length = end_torn_line(&*file)?;
        self.remove_aged()?;
        self.remove_surplus()?;
        self.file = Some(file);
        Ok(())
    }

    /// The last event in the log that no command wrote.
    pub fn last_of_process(&self) -> Option<Event> {
        let of_process = |event: &Event| !event.id.starts_with(COMMAND_BOOT);
        let last = |n| last_event(&*self.disk, &self.options.file(n), of_process);
        (0..self.options.files).find_map(|n| last(n).ok().flatten())
    }

    pub fn append(&mut self, lines: &[u8]) -> Result<(), Unwritten> {
        if lines.is_empty() {
            return Ok(());
        }
        let nothing = |error| Unwritten { kept: 0, error };
        if self.file.is_none() {
            self.begin().map_err(nothing)?;
        }
        self.make_room(lines.len()).map_err(nothing)?;
        let Some(file) = &self.file else { return Err(nothing(io::ErrorKind::NotFound.into())) };
        // What cannot be cut off is written over.
        self.torn = self.torn && file.set_length(self.length).is_err();
        match file.write_at(lines, self.length) {
            Ok(()) => {
                self.length += lines.len() as u64;
                Ok(())
            }
            Err(error) => {
                let kept = whole_lines(&**file, lines, self.length);
                self.length += kept as u64;
                self.torn = file.set_length(self.length).is_err();
                Err(Unwritten { kept, error })
            }
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

    fn rotate(&mut self) -> io::Result<()> {
        // Without a current file the last rotation got stuck when it made the new one.
        if self.exists(0)? {
            self.shift()?;
        }
        self.file = Some(self.disk.open(&self.options.file(0), Open::Create)?);
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
            if last_event(&*self.disk, &path, |_| true)?.is_none_or(|event| event.ts >= oldest_kept) {
                break;
            }
            self.disk.remove(&path)?;
        }
        Ok(())
    }
}

/// A line that a crash of the process cut must not run into the next one. Returns where that begins.
fn end_torn_line(file: &dyn DiskFile) -> io::Result<u64> {
    let (length, mut last) = (file.length()?, [b'\n']);
    if length > 0 {
        file.read_at(&mut last, length - 1)?;
    }
    if last == *b"\n" {
        return Ok(length);
    }
    file.write_at(b"\n", length)?;
    Ok(length + 1)
}

/// After a write of `lines` at `from` that failed: the bytes of the whole ones that are in the file. They stay, the part
/// of one is cut off, which needs no space.
fn whole_lines(file: &dyn DiskFile, lines: &[u8], from: u64) -> usize {
    let added = file.length().map_or(0, |end| end.saturating_sub(from));
    let written = lines.get(..usize::try_from(added).unwrap_or(usize::MAX)).unwrap_or(lines);
    written.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1)
}

fn ignore_missing(result: io::Result<()>) -> io::Result<()> {
    match result {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

/// The last event of a file that is wanted; `None` when it has none, or is not there.
fn last_event(disk: &dyn Disk, path: &Path, wanted: impl Fn(&Event) -> bool) -> io::Result<Option<Event>> {
    let file = match disk.open(path, Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.length()?;
    let near = length.saturating_sub(TAIL_BYTES);
    // All of it only where the end has none.
    for from in [near, 0].into_iter().take(if near > 0 { 2 } else { 1 }) {
        let mut tail = vec![0; usize::try_from(length - from).map_err(io::Error::other)?];
        let got = file.read_at(&mut tail, from)?;
        tail.truncate(got);
        let mut events = tail.rsplit(|byte| *byte == b'\n').filter_map(|line| serde_json::from_slice(line).ok());
        if let Some(event) = events.find(&wanted) {
            return Ok(Some(event));
        }
    }
    Ok(None)
}
