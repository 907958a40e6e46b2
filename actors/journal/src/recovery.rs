//! From the files to a running log: read, cut the torn tail, rebuild the state. Repeating it changes nothing.

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use protocol::journal::LogPosition;
use supervision::ports::{Disk, Open, Ports};

use crate::batch;
use crate::log::{self, Log, SPARES_MAX, Segment, is_space};
use crate::options::{OpenError, Options};
use crate::segment::{self, HEADER_BYTES, SegmentHeader};
use crate::state::State;
use crate::survey::{self, Damage, Survey, Surveyed};

/// What recovery found, for the log and the start-up message.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RecoveryReport {
    /// Segments read.
    pub segments: usize,
    /// Batches read.
    pub batches: u64,
    /// Records applied.
    pub records: u64,
    /// Session keys known.
    pub keys: usize,
    /// Turns that wait or were cut.
    pub open_turns: u64,
    /// Dead letters kept.
    pub dead_letters: usize,
    /// Commits whose lines no transcript file is known to have.
    pub unsynced_commits: usize,
    /// Bytes of a last batch that never became whole; nothing in it was acknowledged.
    pub torn_bytes: u64,
    /// Holes, only after a power cut with durability `os`: what was acknowledged there may be lost.
    pub gaps: Vec<String>,
}

/// A log ready to be written, and the state that it describes.
pub struct Recovered {
    /// The log.
    pub log: Log,
    /// The state.
    pub state: State,
    /// What was found.
    pub report: RecoveryReport,
    /// Why nothing can be written until there is space again.
    pub no_space: Option<String>,
}

/// Recovers the log that `options` names; makes an empty one when there is none.
pub fn recover(options: &Options, ports: &Ports) -> Result<Recovered, OpenError> {
    check(options)?;
    let disk = ports.disk.clone();
    let io = |source: io::Error| OpenError::Io { path: options.dir.clone(), source };
    disk.create_dir_all(&options.dir).map_err(io)?;
    let survey = survey::survey(disk.as_ref(), &options.dir)?;
    if let Some(Damage { segment, offset, why }) = survey.damage {
        return Err(OpenError::Damaged { segment, offset, why });
    }
    let (state, report) = rebuild(disk.as_ref(), &options.dir, &survey)?;
    let (log, no_space) = resume(options, disk, &survey)?;
    Ok(Recovered { log, state, report, no_space })
}

fn check(options: &Options) -> Result<(), OpenError> {
    if options.segment_bytes < 2 * HEADER_BYTES || options.segment_bytes > 1 << 31 {
        return Err(OpenError::BadOptions("a segment has 8 KiB to 2 GiB"));
    }
    if options.max_bytes < 6 * options.segment_bytes {
        return Err(OpenError::BadOptions("journal.maxBytes holds at least six segments"));
    }
    Ok(())
}

/// Applies every record of the survey, in order.
pub fn rebuild(disk: &dyn Disk, dir: &Path, survey: &Survey) -> Result<(State, RecoveryReport), OpenError> {
    let mut state = State::default();
    let mut report = RecoveryReport {
        segments: survey.segments.len(),
        gaps: survey
            .gaps
            .iter()
            .map(|gap| format!("{} offset {}: {}", gap.segment.display(), gap.offset, gap.why))
            .collect(),
        ..RecoveryReport::default()
    };
    for segment in survey.segments.iter().filter(|segment| !segment.batches.is_empty()) {
        let path = segment::path(dir, segment.header.number);
        let bytes = disk.read(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
        for place in &segment.batches {
            let batch = bytes.get(*place as usize..).and_then(|rest| batch::open(rest, segment.header.number));
            let batch = batch.ok_or_else(|| changed(&path, *place))?;
            for raw in survey::records(&path, *place, &batch)? {
                let at = LogPosition(segment.header.base + place + u64::from(raw.offset));
                let record = survey::decode(&path, *place, raw.kind, raw.payload)?;
                state.apply(at, raw.payload.len() as u32, record);
                report.records += 1;
            }
        }
        report.batches += segment.batches.len() as u64;
        report.torn_bytes += segment.torn_bytes;
    }
    state.finish_recovery();
    report.keys = state.keys.len();
    report.open_turns = state.totals.open;
    report.dead_letters = state.letters.len();
    report.unsynced_commits = state.keys.values().map(|key| key.lines.len()).sum();
    Ok((state, report))
}

fn changed(path: &Path, offset: u64) -> OpenError {
    let why = "it changed while it was read".to_owned();
    OpenError::Damaged { segment: path.to_owned(), offset, why }
}

fn resume(options: &Options, disk: Arc<dyn Disk>, survey: &Survey) -> Result<(Log, Option<String>), OpenError> {
    let dir = &options.dir;
    let at_dir = |source: io::Error| OpenError::Io { path: dir.clone(), source };
    for path in &survey.unfinished {
        disk.remove(path).map_err(at_dir)?;
    }
    let mut spares = survey.unused.clone();
    let last = survey.segments.iter().rposition(|segment| !segment.batches.is_empty()).unwrap_or(0);
    let mut older = VecDeque::new();
    let mut no_space = None;
    for segment in survey.segments.iter().take(last) {
        older.push_back(open(disk.as_ref(), dir, segment.header)?);
    }
    let (active, offset) = match survey.segments.get(last) {
        None => match first(options, disk.as_ref(), &mut spares) {
            Ok(segment) => (segment, HEADER_BYTES),
            Err(error) if is_space(&error) => {
                no_space = Some(error.to_string());
                (Segment::nowhere(), 0)
            }
            Err(source) => return Err(OpenError::Io { path: segment::path(dir, 1), source }),
        },
        Some(tail) => {
            let segment = open(disk.as_ref(), dir, tail.header)?;
            settle(&segment, tail).map_err(at_dir)?;
            (segment, tail.end)
        }
    };
    // One empty segment after the active one is the prepared next; more are left of an earlier life.
    let mut after = survey.segments.iter().skip(last + 1).peekable();
    let next = after.next_if(|next| next.header.length == options.segment_bytes);
    let next = next.map(|next| open(disk.as_ref(), dir, next.header)).transpose()?;
    spares.extend(after.map(|segment| segment::path(dir, segment.header.number)));
    let reusable = |path: &PathBuf| disk.stat(path).is_ok_and(|stat| stat.length == options.segment_bytes);
    let (mut spares, mut removed): (Vec<_>, Vec<_>) = spares.into_iter().partition(reusable);
    removed.extend(spares.split_off(spares.len().min(SPARES_MAX)));
    for path in removed {
        disk.remove(&path).map_err(at_dir)?;
    }
    disk.sync_dir(dir).map_err(at_dir)?;
    let mut log = Log {
        disk,
        dir: dir.clone(),
        segment_bytes: options.segment_bytes,
        max_bytes: options.max_bytes,
        durability: options.durability,
        older,
        active,
        offset,
        batch: survey.next_batch,
        next,
        preparing: false,
        spares,
    };
    if no_space.is_none() && log.active.header.durability != options.durability {
        match switch_durability(&mut log) {
            Ok(()) => {}
            Err(error) if is_space(&error) => {
                no_space = Some(error.to_string());
                // What comes belongs into a segment of the other kind.
                log.offset = log.active.header.length;
            }
            Err(error) => return Err(at_dir(error)),
        }
    }
    Ok((log, no_space))
}

fn first(options: &Options, disk: &dyn Disk, spares: &mut Vec<PathBuf>) -> io::Result<Segment> {
    let header = SegmentHeader { durability: options.durability, number: 1, base: 0, length: options.segment_bytes };
    let made = log::make(disk, &options.dir, header, spares.last().cloned())?;
    spares.retain(|path| Some(path) != made.used.as_ref());
    Ok(made.segment)
}

fn open(disk: &dyn Disk, dir: &Path, header: SegmentHeader) -> Result<Segment, OpenError> {
    let path = segment::path(dir, header.number);
    let file = disk.open(&path, Open::Write).map_err(|source| OpenError::Io { path, source })?;
    Ok(Segment { header, file: Arc::from(file) })
}

/// Makes the last batch durable: the process may have ended between its write and its sync. It is written again,
/// since after a failed sync the system may take the cached bytes for clean.
fn settle(segment: &Segment, tail: &Surveyed) -> io::Result<()> {
    if let Some(place) = tail.batches.last() {
        let length = usize::try_from(tail.end - place).map_err(io::Error::other)?;
        let mut bytes = vec![0; length];
        let got = segment.file.read_at(&mut bytes, *place)?;
        segment.file.write_at(&bytes[..got], *place)?;
    }
    segment.file.sync_data()
}

/// A segment says how it was written, because that decides what a hole in it means: so a new one begins.
fn switch_durability(log: &mut Log) -> io::Result<()> {
    log.next = None;
    for segment in log.older.iter().chain(std::iter::once(&log.active)) {
        segment.file.sync_data()?;
    }
    let made = log.prepare()();
    log.preparing = false;
    log.prepared(made?);
    log.roll();
    Ok(())
}
