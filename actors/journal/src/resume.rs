//! From surveyed files to a log that goes on. Repeating it changes nothing.
//!
//! A disk that cannot be written now does not keep the log from being read: it begins without space, as it does when space
//! runs out later, and what would have been done here is done before the next segment.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use supervision::ports::{Disk, DiskFile, Open, is_space};

use crate::log::{self, Log, NoSegment, SPARES_MAX, Segment};
use crate::options::{OpenError, Options};
use crate::segment::{self, Durability, HEADER_BYTES, SegmentHeader};
use crate::survey::{Survey, Surveyed};

/// What has to be durable before the log may go on in another segment.
#[derive(Clone)]
pub struct Unsettled {
    /// The segment with the last batch.
    path: PathBuf,
    /// Where that batch lies, from and to.
    batch: Option<(u64, u64)>,
    /// Segments that were written without sync.
    unsynced: Vec<Arc<dyn DiskFile>>,
}

/// Makes the log ready to go on, or says why it cannot be written yet.
pub fn resume(options: &Options, disk: Arc<dyn Disk>, survey: &Survey) -> Result<(Log, Option<NoSegment>), OpenError> {
    match go_on(options, disk.clone(), survey) {
        Err(OpenError::Io { source, .. }) if is_space(&source) => {
            let why = NoSegment::new(source, &*disk, &options.dir, options.segment_bytes);
            Ok((wait_for_space(options, disk, survey)?, Some(why)))
        }
        resumed => Ok((resumed?, None)),
    }
}

fn go_on(options: &Options, disk: Arc<dyn Disk>, survey: &Survey) -> Result<Log, OpenError> {
    let dir = &options.dir;
    let at_dir = |source: io::Error| OpenError::Io { path: dir.clone(), source };
    for path in &survey.unfinished {
        disk.remove(path).map_err(at_dir)?;
    }
    let mut spares = survey.unused.clone();
    let last = last_used(survey);
    let older = open_older(&*disk, dir, survey, Open::Write)?;
    let (active, offset) = match survey.segments.get(last) {
        None => {
            let first = first(options, &*disk, &mut spares);
            (first.map_err(|source| OpenError::Io { path: segment::path(dir, 1), source })?, HEADER_BYTES)
        }
        Some(tail) => {
            let segment = open(&*disk, dir, tail.header, Open::Write)?;
            settle(&*segment.file, last_batch(tail)).map_err(at_dir)?;
            (segment, tail.end)
        }
    };
    // One empty segment after the active one is the prepared next; more are left of an earlier life.
    let mut after = survey.segments.iter().skip(last + 1).peekable();
    let next = after.next_if(|next| next.header.length == options.segment_bytes);
    let next = next.map(|next| open(&*disk, dir, next.header, Open::Write)).transpose()?;
    spares.extend(after.map(|segment| segment::path(dir, segment.header.number)));
    let (mut spares, mut removed) = reusable(&*disk, options, spares);
    removed.extend(spares.split_off(spares.len().min(SPARES_MAX)));
    for path in removed {
        disk.remove(&path).map_err(at_dir)?;
    }
    disk.sync_dir(dir).map_err(at_dir)?;
    let mut log = Log { next, spares, ..Log::new(options, disk, older, (active, offset), survey.next_batch) };
    if log.active.header.durability != options.durability {
        switch_durability(&mut log).map_err(at_dir)?;
    }
    Ok(log)
}

/// Reads only. Nothing is added to the last segment any more, whose file cannot be written.
fn wait_for_space(options: &Options, disk: Arc<dyn Disk>, survey: &Survey) -> Result<Log, OpenError> {
    let dir = &options.dir;
    let last = last_used(survey);
    let older = open_older(&*disk, dir, survey, Open::Read)?;
    let tail = survey.segments.get(last);
    let active = match tail {
        None => Segment::nowhere(),
        Some(tail) => open(&*disk, dir, tail.header, Open::Read)?,
    };
    let unsettled = tail.map(|tail| Unsettled {
        path: segment::path(dir, tail.header.number),
        batch: last_batch(tail),
        unsynced: older
            .iter()
            .chain([&active])
            .filter(|segment| segment.header.durability == Durability::Os && options.durability == Durability::Full)
            .map(|segment| segment.file.clone())
            .collect(),
    });
    let after = survey.segments.iter().skip(last + 1).map(|segment| segment::path(dir, segment.header.number));
    let (mut spares, _) = reusable(&*disk, options, survey.unused.iter().cloned().chain(after));
    spares.truncate(SPARES_MAX);
    let full = active.header.length;
    Ok(Log { unsettled, spares, ..Log::new(options, disk, older, (active, full), survey.next_batch) })
}

/// The place of the segment with the last batch.
fn last_used(survey: &Survey) -> usize {
    survey.segments.iter().rposition(|segment| !segment.batches.is_empty()).unwrap_or(0)
}

fn open_older(disk: &dyn Disk, dir: &Path, survey: &Survey, how: Open) -> Result<VecDeque<Segment>, OpenError> {
    let older = survey.segments.iter().take(last_used(survey));
    older.map(|segment| open(disk, dir, segment.header, how)).collect()
}

fn open(disk: &dyn Disk, dir: &Path, header: SegmentHeader, how: Open) -> Result<Segment, OpenError> {
    let path = segment::path(dir, header.number);
    let file = disk.open(&path, how).map_err(|source| OpenError::Io { path, source })?;
    Ok(Segment { header, file: Arc::from(file) })
}

fn first(options: &Options, disk: &dyn Disk, spares: &mut Vec<PathBuf>) -> io::Result<Segment> {
    let header = SegmentHeader { durability: options.durability, number: 1, base: 0, length: options.segment_bytes };
    let made = log::make(disk, &options.dir, header, spares.last().cloned())?;
    spares.retain(|path| Some(path) != made.used.as_ref());
    Ok(made.segment)
}

/// Those that can be made into a new segment, and the others.
fn reusable(
    disk: &dyn Disk,
    options: &Options,
    files: impl IntoIterator<Item = PathBuf>,
) -> (Vec<PathBuf>, Vec<PathBuf>) {
    let fits = |path: &PathBuf| disk.stat(path).is_ok_and(|stat| stat.length == options.segment_bytes);
    files.into_iter().partition(fits)
}

fn last_batch(tail: &Surveyed) -> Option<(u64, u64)> {
    tail.batches.last().map(|place| (*place, tail.end))
}

/// Makes the last batch durable: the process may have ended between its write and its sync. It is written again,
/// since after a failed sync the system may take the cached bytes for clean.
fn settle(file: &dyn DiskFile, batch: Option<(u64, u64)>) -> io::Result<()> {
    if let Some((from, to)) = batch {
        let mut bytes = vec![0; usize::try_from(to - from).map_err(io::Error::other)?];
        let got = file.read_at(&mut bytes, from)?;
        file.write_at(&bytes[..got], from)?;
    }
    file.sync_data()
}

/// A segment says how it was written, because that decides what a hole in it means: so a new one begins.
fn switch_durability(log: &mut Log) -> io::Result<()> {
    log.next = None;
    for segment in log.older.iter().chain(std::iter::once(&log.active)) {
        segment.file.sync_data()?;
    }
    let made = log.prepare()();
    log.preparing = false;
    log.prepared(made.map_err(|none| none.error)?);
    log.roll();
    Ok(())
}

// === impl Unsettled ===

impl Unsettled {
    /// Does what could not be done at the start.
    pub fn settle(&self, disk: &dyn Disk) -> io::Result<()> {
        settle(&*disk.open(&self.path, Open::Write)?, self.batch)?;
        self.unsynced.iter().try_for_each(|file| file.sync_data())
    }
}
