//! From the files to a running log: read, cut the torn tail, rebuild the state. Repeating it changes nothing.

use std::io;
use std::path::Path;

use protocol::journal::LogPosition;
use supervision::ports::{Disk, Ports};

use crate::batch;
use crate::log::{Log, NoSegment};
use crate::options::{OpenError, Options};
use crate::resume::resume;
use crate::segment::{self, HEADER_BYTES};
use crate::state::State;
use crate::survey::{self, Damage, Survey};

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
    pub no_space: Option<NoSegment>,
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
