//! The log on the disk: a row of segments, the last of which is written to, and the files that are waiting for reuse.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::journal::{LogPosition, Space};
use supervision::planted::{Bug, planted};
use supervision::ports::{Disk, DiskFile, Open, Stat};

use crate::options::Options;
use crate::resume::Unsettled;
use crate::segment::{self, Durability, HEADER_BYTES, SegmentHeader};

/// Retired segments that are kept for reuse.
pub const SPARES_MAX: usize = 2;
/// New segments are filled with zeros in pieces of this size.
const FILL_BYTES: usize = 1 << 20;

/// One segment.
#[derive(Clone)]
pub struct Segment {
    /// What its head says.
    pub header: SegmentHeader,
    /// The open file.
    pub file: Arc<dyn DiskFile>,
}

impl Segment {
    /// Stands before the first segment when there was no space for that one: takes nothing, is no file.
    pub fn nowhere() -> Self {
        let header = SegmentHeader { durability: Durability::Full, number: 0, base: 0, length: 0 };
        Self { header, file: Arc::new(Nowhere) }
    }

    /// Log position of the first byte after it.
    pub fn end(&self) -> u64 {
        self.header.base + self.header.length
    }
}

/// The file of [`Segment::nowhere`].
struct Nowhere;

impl DiskFile for Nowhere {
    fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<usize> {
        Ok(0)
    }
    fn write_at(&self, _: &[u8], _: u64) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
    fn set_length(&self, _: u64) -> io::Result<()> {
        Err(io::ErrorKind::StorageFull.into())
    }
    fn length(&self) -> io::Result<u64> {
        Ok(0)
    }
    fn opened(&self) -> Stat {
        Stat { length: 0, directory: false, stamp: (0, 0, 0, 0) }
    }
    fn stat(&self) -> io::Result<Stat> {
        Ok(self.opened())
    }
    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }
}

/// A segment that was made, and the spare file it was made from.
pub struct Prepared {
    /// The segment.
    pub segment: Segment,
    /// The file that is no spare any more.
    pub used: Option<PathBuf>,
}

/// Why there is no next segment.
pub struct NoSegment {
    /// What went wrong.
    pub error: io::Error,
    /// What the disk lacks, if it is full.
    pub space: Option<Space>,
}

impl NoSegment {
    /// Looks how much the disk lacks of a segment of `needed_bytes`.
    pub fn new(error: io::Error, disk: &dyn Disk, dir: &Path, needed_bytes: u64) -> Self {
        let full = matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded);
        let free_bytes = full.then(|| disk.free_bytes(dir).ok()).flatten();
        let space = free_bytes.map(|free_bytes| Space { needed_bytes, free_bytes });
        Self { error, space }
    }

    /// In words.
    pub fn reason(&self) -> String {
        match self.space {
            Some(space) => format!("{}: {space}", self.error),
            None => self.error.to_string(),
        }
    }
}

/// The row of segments.
pub struct Log {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// The directory.
    pub dir: PathBuf,
    /// Size of new segments.
    pub segment_bytes: u64,
    /// All files together are not to exceed this.
    pub max_bytes: u64,
    /// Whether a batch is synced.
    pub durability: Durability,
    /// Full segments, oldest first.
    pub older: VecDeque<Segment>,
    /// The one that is written to.
    pub active: Segment,
    /// Offset of the next batch in it.
    pub offset: u64,
    /// Number of the next batch.
    pub batch: u64,
    /// The one after it, ready for use.
    pub next: Option<Segment>,
    /// Whether the next one is being made.
    pub preparing: bool,
    /// Files to be reused.
    pub spares: Vec<PathBuf>,
    /// What has to be done before the next segment is made.
    pub unsettled: Option<Unsettled>,
}

impl Log {
    /// Goes on in `active` at that offset, with `batch`. No next segment is ready yet.
    pub fn new(
        options: &Options,
        disk: Arc<dyn Disk>,
        older: VecDeque<Segment>,
        (active, offset): (Segment, u64),
        batch: u64,
    ) -> Self {
        Self {
            disk,
            dir: options.dir.clone(),
            segment_bytes: options.segment_bytes,
            max_bytes: options.max_bytes,
            durability: options.durability,
            older,
            active,
            offset,
            batch,
            next: None,
            preparing: false,
            spares: Vec::new(),
            unsettled: None,
        }
    }

    /// Bytes that the active segment still takes.
    pub fn room(&self) -> u64 {
        self.active.header.length.saturating_sub(self.offset)
    }

    /// Bytes that an empty new segment takes.
    pub fn capacity(&self) -> u64 {
        self.segment_bytes - HEADER_BYTES
    }

    /// Where the next batch will lie.
    pub fn here(&self) -> u64 {
        self.active.header.base + self.offset
    }

    /// Segments that hold records.
    pub fn live_segments(&self) -> usize {
        self.older.len() + 1
    }

    /// Bytes of segments that hold records.
    pub fn live_bytes(&self) -> u64 {
        self.older.iter().map(|segment| segment.header.length).sum::<u64>() + self.active.header.length
    }

    /// Bytes of all files.
    pub fn total_bytes(&self) -> u64 {
        let next = self.next.as_ref().map_or(0, |segment| segment.header.length);
        self.live_bytes() + next + self.spares.len() as u64 * self.segment_bytes
    }

    /// Writes one sealed batch where the next batch belongs, and syncs it.
    pub fn write(&mut self, batch: &[u8]) -> io::Result<()> {
        self.active.file.write_at(batch, self.offset)?;
        if self.durability == Durability::Full && !planted(Bug::NoFsync) {
            self.active.file.sync_data()?;
        }
        self.offset += batch.len() as u64;
        self.batch += 1;
        Ok(())
    }

    /// Goes on in the next segment; `false` when there is none yet.
    pub fn roll(&mut self) -> bool {
        let Some(next) = self.next.take() else { return false };
        let full = std::mem::replace(&mut self.active, next);
        if full.header.length > 0 {
            self.older.push_back(full);
        }
        self.offset = HEADER_BYTES;
        true
    }

    /// Whether it is time to make the next segment.
    pub fn wants_next(&self) -> bool {
        self.next.is_none() && !self.preparing && self.room() <= self.active.header.length / 4 * 3
    }

    /// The work of making the next segment, to be done elsewhere.
    pub fn prepare(&mut self) -> impl FnOnce() -> Result<Prepared, NoSegment> + Send + 'static {
        self.preparing = true;
        let (disk, dir) = (self.disk.clone(), self.dir.clone());
        let header = SegmentHeader {
            durability: self.durability,
            number: self.active.header.number + 1,
            base: self.active.end(),
            length: self.segment_bytes,
        };
        let (spare, unsettled) = (self.spares.last().cloned(), self.unsettled.clone());
        let full = spare.is_none() && self.total_bytes() + self.segment_bytes > self.max_bytes;
        move || {
            if full {
                let error = io::Error::new(io::ErrorKind::StorageFull, "the log has reached journal.maxBytes");
                return Err(NoSegment { error, space: None });
            }
            let settled = unsettled.map_or(Ok(()), |unsettled| unsettled.settle(&*disk));
            let made = settled.and_then(|()| make(disk.as_ref(), &dir, header, spare));
            made.map_err(|error| NoSegment::new(error, &*disk, &dir, header.length))
        }
    }

    /// Takes a segment that was made.
    pub fn prepared(&mut self, prepared: Prepared) {
        self.spares.retain(|path| Some(path) != prepared.used.as_ref());
        self.next = Some(prepared.segment);
        self.unsettled = None;
    }

    /// Lets go of the segments below `oldest`. The files beyond what is kept for reuse are to be removed.
    pub fn retire(&mut self, oldest: u64) -> Vec<PathBuf> {
        let mut removed = Vec::new();
        while self.older.front().is_some_and(|segment| segment.header.number < oldest) {
            let Some(segment) = self.older.pop_front() else { break };
            let path = segment::path(&self.dir, segment.header.number);
            // Somebody still reads it: its bytes must stay as they are.
            let read = Arc::strong_count(&segment.file) > 1;
            if read || self.spares.len() == SPARES_MAX || segment.header.length != self.segment_bytes {
                removed.push(path);
            } else {
                self.spares.push(path);
            }
        }
        removed
    }

    /// The file and the offset of a position.
    pub fn locate(&self, at: LogPosition) -> Option<(Arc<dyn DiskFile>, u64)> {
        let holds = |segment: &&Segment| segment.header.base <= at.0 && at.0 < segment.end();
        let place = self.older.partition_point(|segment| segment.end() <= at.0);
        let segment = self.older.get(place).filter(holds).or_else(|| Some(&self.active).filter(holds))?;
        Some((segment.file.clone(), at.0 - segment.header.base))
    }
}

/// Makes a segment: head and zeros (or, in a spare file, whatever batches of its former life) synced first, then the
/// name. A spare keeps its name until its new head is durable, so no name ever promises more than the file holds.
pub fn make(disk: &dyn Disk, dir: &Path, header: SegmentHeader, spare: Option<PathBuf>) -> io::Result<Prepared> {
    let path = segment::path(dir, header.number);
    let fresh = segment::new_path(dir, header.number);
    let reusable = |spare: &PathBuf| disk.stat(spare).is_ok_and(|stat| stat.length == header.length);
    let from = spare.clone().filter(reusable);
    let file = match &from {
        Some(spare) => disk.open(spare, Open::Write)?,
        None => match fill(disk, &fresh, header.length) {
            Ok(file) => file,
            Err(error) => {
                // Half a segment is of no use, and what it takes may be what the rest of the machine lacks.
                let _ = disk.remove(&fresh);
                return Err(error);
            }
        },
    };
    file.write_at(&segment::encode(&header), 0)?;
    file.sync_data()?;
    disk.rename(from.as_deref().unwrap_or(&fresh), &path)?;
    if !planted(Bug::NoDirSync) {
        disk.sync_dir(dir)?;
    }
    let used = spare.filter(|_| from.is_some());
    Ok(Prepared { segment: Segment { header, file: Arc::from(file) }, used })
}

fn fill(disk: &dyn Disk, path: &Path, length: u64) -> io::Result<Box<dyn DiskFile>> {
    let file = disk.open(path, Open::Create)?;
    file.set_length(0)?;
    let zeros = vec![0; FILL_BYTES];
    let mut offset = 0;
    while offset < length {
        let count = (length - offset).min(FILL_BYTES as u64);
        file.write_at(&zeros[..count as usize], offset)?;
        offset += count;
    }
    Ok(file)
}
