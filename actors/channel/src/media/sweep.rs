//! Attachments that nothing names: those of a process that was killed between keeping a file and accepting its message,
//! and of messages that were refused after that. Everything here blocks, but for the pure decisions.
//!
//! A file goes only if all of this holds:
//!
//! * it was written at least [`AGE_MIN`] ago;
//! * the hash in its name stands in no file of the journal, which has what waiting turns and dead letters say, and what is
//!   on its way into a transcript;
//! * read after that, it stands in no file below the directory of the sessions: these are also the transcripts of archived
//!   and deleted sessions, and of forks, which name the files of the session that they were made of;
//! * nobody attached the same contents lately, as [`Attached`] knows: that message may have been accepted after the files
//!   were read.
//!
//! Names wander from the journal to transcripts, and never back, so what is read in this order is missed nowhere. Files
//! that are moved while they are read are found under their new names: it is listed until there is nothing new, twice.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use supervision::ports::{Disk, Open, Stat};

use super::MEDIA;
use super::attached::{Attached, Contents, DIGITS};

/// How long ago a file must have been written.
pub const AGE_MIN: Duration = Duration::from_secs(7 * 24 * 3600);
/// Files that one run looks at; the next one goes on behind them. A directory is looked through as a whole.
const LOOKED_MAX: usize = 50_000;
/// Bytes of the journal and of transcripts that one run reads; where there are more, it removes nothing.
const READ_BYTES_MAX: u64 = 64 << 30;
/// Read at once.
const CHUNK_BYTES: usize = 1 << 20;
/// How often one run lists the files of a place.
const LISTED_MAX: usize = 100;
/// Directories below that of the sessions that are looked into.
const DEPTH: u8 = 2;

/// Where files lie and where they are named.
#[derive(Debug, Clone)]
pub struct Places {
    /// Attachments of all doors.
    pub media: PathBuf,
    /// The journal's files.
    pub journal: PathBuf,
    /// Transcripts.
    pub sessions: PathBuf,
}

/// A file that may go, if it is still so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Aged {
    path: PathBuf,
    stat: Stat,
}

/// What one look at the directories found.
#[derive(Debug, Default)]
pub struct Looked {
    /// Files and their bytes together.
    pub all: (usize, u64),
    /// Those that are old enough.
    pub aged: BTreeMap<Contents, Vec<Aged>>,
    /// What a write left that was cut off, likewise: nobody can name it.
    litter: Vec<Aged>,
    /// The directory behind which the next run goes on; `None` at the end.
    pub next: Option<PathBuf>,
}

/// Why reading is stopped.
pub type Stop<'a> = &'a dyn Fn() -> bool;

/// What was removed, or would be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Sum {
    /// Files.
    pub files: usize,
    /// Bytes.
    pub bytes: u64,
}

impl Sum {
    fn add(&mut self, bytes: u64) {
        self.files += 1;
        self.bytes += bytes;
    }
}

impl Looked {
    /// What nobody names, without removing it.
    pub fn sum(&self) -> Sum {
        let mut sum = Sum::default();
        self.aged.values().flatten().chain(&self.litter).for_each(|file| sum.add(file.stat.length));
        sum
    }
}

/// The attachments that are old enough, of the directories behind `after`.
pub fn look(disk: &dyn Disk, media: &Path, now_ms: u64, after: Option<&Path>) -> io::Result<Looked> {
    let mut looked = Looked::default();
    let mut directories = Vec::new();
    for place in MEDIA.map(|door| media.join(door)) {
        directories.extend(list(disk, &place)?);
    }
    directories.sort();
    let behind = directories.into_iter().filter(|directory| after.is_none_or(|after| **directory > *after));
    for directory in behind {
        if looked.all.0 >= LOOKED_MAX {
            return Ok(looked);
        }
        if stat(disk, &directory)?.is_some_and(|stat| stat.directory) {
            for path in list(disk, &directory)? {
                looked.add(path.clone(), stat(disk, &path)?, now_ms);
            }
        }
        looked.next = Some(directory);
    }
    looked.next = None;
    Ok(looked)
}

impl Looked {
    fn add(&mut self, path: PathBuf, stat: Option<Stat>, now_ms: u64) {
        let Some(stat) = stat.filter(|stat| !stat.directory) else { return };
        self.all.0 += 1;
        self.all.1 += stat.length;
        if !is_old(&stat, now_ms) {
            return;
        }
        match Contents::of_file(&path) {
            Some(contents) => self.aged.entry(contents).or_default().push(Aged { path, stat }),
            None if super::is_temporary(&path) => self.litter.push(Aged { path, stat }),
            // Somebody else put it there.
            None => {}
        }
    }
}

/// Whether nobody wrote it for long enough. Pure.
fn is_old(stat: &Stat, now_ms: u64) -> bool {
    let age_ns = i128::from(now_ms) * 1_000_000 - stat.stamp.2;
    age_ns >= AGE_MIN.as_nanos().cast_signed()
}

/// Leaves only what nothing names.
pub fn without_named(disk: &dyn Disk, places: &Places, looked: &mut Looked, stop: Stop<'_>) -> io::Result<()> {
    let mut names: BTreeSet<Contents> = looked.aged.keys().copied().collect();
    let mut reading = Reading { disk, stop, room: READ_BYTES_MAX, chunk_bytes: CHUNK_BYTES };
    // Most files are named where they came, and then nothing else is read.
    let stems = looked.aged.values().flatten().filter_map(|file| file.path.parent()?.file_name()?.to_str());
    for stem in stems.collect::<BTreeSet<_>>() {
        reading.strike_file(&places.sessions.join(format!("{stem}.jsonl")), &mut names)?;
    }
    for place in [&places.journal, &places.sessions] {
        reading.strike_all(place, &mut names)?;
    }
    looked.aged.retain(|contents, _| names.contains(contents));
    Ok(())
}

/// Removes what is still as it was when it was chosen.
pub(crate) fn remove(disk: &dyn Disk, attached: &Attached, looked: Looked) -> Sum {
    let mut removed = Sum::default();
    let mut gone = |file: &Aged| match remove_one(disk, file) {
        Ok(true) => removed.add(file.stat.length),
        Ok(false) => {}
        Err(error) => tracing::warn!(%error, "an old attachment cannot be removed"),
    };
    for (contents, files) in &looked.aged {
        for file in files {
            attached.unless_attached(*contents, || gone(file));
        }
    }
    looked.litter.iter().for_each(gone);
    removed
}

fn remove_one(disk: &dyn Disk, file: &Aged) -> io::Result<bool> {
    if stat(disk, &file.path)? != Some(file.stat) {
        return Ok(false);
    }
    disk.remove(&file.path).map(|()| true)
}

/// Reads files for names.
struct Reading<'a> {
    disk: &'a dyn Disk,
    stop: Stop<'a>,
    /// Bytes that may still be read.
    room: u64,
    /// Bytes that are read at once.
    chunk_bytes: usize,
}

impl Reading<'_> {
    /// Takes away the names that stand in any file below `place`.
    fn strike_all(&mut self, place: &Path, names: &mut BTreeSet<Contents>) -> io::Result<()> {
        let (mut read, mut nothing_new) = (BTreeSet::new(), 0);
        for _ in 0..LISTED_MAX {
            if names.is_empty() || nothing_new == 2 {
                return Ok(());
            }
            let mut files = Vec::new();
            below(self.disk, place, DEPTH, &mut files)?;
            // What has the name now may be another file than the one that was read.
            files.retain(|(file, stat)| read.insert((file.clone(), stat.stamp.0, stat.stamp.1)));
            nothing_new = if files.is_empty() { nothing_new + 1 } else { 0 };
            for (file, _) in &files {
                self.strike_file(file, names)?;
            }
        }
        Err(io::Error::other("the files that may name attachments are moved all the time"))
    }

    /// Takes away the names that stand in a file. One that is not there was moved, and is found again where it is.
    fn strike_file(&mut self, path: &Path, names: &mut BTreeSet<Contents>) -> io::Result<()> {
        let file = match self.disk.open(path, Open::Read) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
            file => file?,
        };
        let (mut chunk, mut at) = (vec![0; self.chunk_bytes], 0);
        while !names.is_empty() {
            if (self.stop)() {
                return Err(io::ErrorKind::Interrupted.into());
            }
            let count = file.read_at(&mut chunk, at)?;
            Contents::each_in(chunk.get(..count).unwrap_or_default(), |contents| {
                names.remove(&contents);
            });
            let too_many = || io::Error::other("there are more transcripts than one run reads");
            self.room = self.room.checked_sub(count as u64).ok_or_else(too_many)?;
            if count < chunk.len() {
                break;
            }
            // A name may stand across two chunks.
            at += (chunk.len() - DIGITS) as u64;
        }
        Ok(())
    }
}

fn below(disk: &dyn Disk, place: &Path, depth: u8, files: &mut Vec<(PathBuf, Stat)>) -> io::Result<()> {
    for path in list(disk, place)? {
        match stat(disk, &path)? {
            Some(stat) if stat.directory && depth > 0 => below(disk, &path, depth - 1, files)?,
            Some(stat) if !stat.directory => files.push((path, stat)),
            Some(_) | None => {}
        }
    }
    Ok(())
}

fn list(disk: &dyn Disk, place: &Path) -> io::Result<Vec<PathBuf>> {
    match disk.list(place) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

fn stat(disk: &dyn Disk, path: &Path) -> io::Result<Option<Stat>> {
    match disk.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        stat => stat.map(Some),
    }
}

#[cfg(test)]
mod tests;
