//! Event after event, oldest file first, and on into what is written meanwhile.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::supervision::Event;

use crate::log::file_number;
use crate::ports::{Disk, DiskFile, Open};

/// Bytes that are read at once; a line is shorter.
const CHUNK_BYTES: usize = 256 * 1024;
/// How often the names of the files are looked at until two looks agree: between them a rotation may rename.
const LOOKS_MAX: u32 = 16;

/// Device and inode.
type Identity = (u64, u64);

/// Reads events in the order in which they were written. At the present end of the log it gives `None`; asked again
/// later, it goes on with what was written since, also over rotations. Lines that are no events (a line that a crash has
/// torn) are left out and counted.
pub struct Events {
    disk: Arc<dyn Disk>,
    dir: PathBuf,
    file: Option<Reading>,
    ready: VecDeque<Event>,
    unreadable: u64,
}

/// A file is held open while it is read: it may be renamed or removed meanwhile.
struct Reading {
    identity: Identity,
    file: Box<dyn DiskFile>,
    offset: u64,
}

impl Events {
    /// Begins at the oldest event; no log at all is an empty one.
    pub fn open(disk: Arc<dyn Disk>, dir: &Path) -> io::Result<Self> {
        let mut this = Self { disk, dir: dir.to_owned(), file: None, ready: VecDeque::new(), unreadable: 0 };
        this.next_file()?;
        Ok(this)
    }

    /// Lines left out so far.
    pub fn unreadable(&self) -> u64 {
        self.unreadable
    }

    /// The next event; `None` when there is none for now.
    pub fn read(&mut self) -> io::Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                return Ok(Some(event));
            }
            if !self.read_chunk()? && !self.next_file()? {
                return Ok(None);
            }
        }
    }

    /// Reads on in the present file; false at its end.
    fn read_chunk(&mut self) -> io::Result<bool> {
        let Some(reading) = &mut self.file else { return Ok(false) };
        let mut bytes = vec![0; CHUNK_BYTES];
        let got = reading.file.read_at(&mut bytes, reading.offset)?;
        bytes.truncate(got);
        let whole = match bytes.iter().rposition(|byte| *byte == b'\n') {
            Some(end) => end + 1,
            // No line of ours is that long.
            None if got == CHUNK_BYTES => got,
            None => return Ok(false),
        };
        reading.offset += whole as u64;
        bytes.truncate(whole);
        for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
            match serde_json::from_slice(line) {
                Ok(event) => self.ready.push_back(event),
                Err(_) => self.unreadable += 1,
            }
        }
        Ok(true)
    }

    /// Goes on to the file after the present one; false when that is the newest.
    fn next_file(&mut self) -> io::Result<bool> {
        let files = self.files()?;
        let next = match &self.file {
            None => files.last(),
            Some(reading) => match files.iter().position(|(identity, _)| *identity == reading.identity) {
                Some(0) => return Ok(false),
                Some(at) => files.get(at - 1),
                // It was removed for its age; what follows is the oldest that is left.
                None => files.last(),
            },
        };
        let Some((identity, path)) = next else { return Ok(false) };
        if self.file.is_some() && self.read_chunk()? {
            // Written between the last read and the rotation.
            return Ok(true);
        }
        let file = match self.disk.open(path, Open::Read) {
            Ok(file) => file,
            // Rotated again: the next look finds it.
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(true),
            Err(error) => return Err(error),
        };
        // Another file may have got the name by now.
        if self.disk.stat(path).is_ok_and(|stat| (stat.stamp.0, stat.stamp.1) == *identity) {
            self.file = Some(Reading { identity: *identity, file, offset: 0 });
        }
        Ok(true)
    }

    /// The files of the log, the newest first.
    fn files(&self) -> io::Result<Vec<(Identity, PathBuf)>> {
        let mut before = self.look()?;
        for _ in 0..LOOKS_MAX {
            let now = self.look()?;
            if now == before {
                return Ok(now);
            }
            before = now;
        }
        Err(io::Error::other("the files of the log are renamed all the time"))
    }

    fn look(&self) -> io::Result<Vec<(Identity, PathBuf)>> {
        let names = match self.disk.list(&self.dir) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        let mut files = Vec::new();
        for path in names {
            let Some(number) = path.file_name().and_then(|name| file_number(name.to_str()?)) else { continue };
            match self.disk.stat(&path) {
                Ok(stat) => files.push((number, (stat.stamp.0, stat.stamp.1), path)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
        files.sort();
        Ok(files.into_iter().map(|(_, identity, path)| (identity, path)).collect())
    }
}

impl Iterator for Events {
    type Item = io::Result<Event>;

    fn next(&mut self) -> Option<Self::Item> {
        self.read().transpose()
    }
}
