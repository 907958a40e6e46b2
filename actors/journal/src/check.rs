//! `greenroom journal check`: what a log holds and whether it is sound. Writes nothing.

use std::path::{Path, PathBuf};

use supervision::ports::Disk;

use crate::options::OpenError;
use crate::recovery;
use crate::segment::{self, Durability, FORMAT};
use crate::survey;

/// One segment.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct SegmentReport {
    /// Its file.
    pub file: PathBuf,
    /// Journal format.
    pub format: u16,
    /// `full` or `os`.
    pub durability: &'static str,
    /// Log position of its first byte.
    pub base: u64,
    /// Length in bytes.
    pub length: u64,
    /// Sound batches.
    pub batches: usize,
    /// Offset after the last of them.
    pub end: u64,
    /// Bytes of a last batch that never became whole; nothing in it was acknowledged.
    pub torn_bytes: u64,
}

/// A place that is damaged.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct DamageReport {
    /// Segment file.
    pub file: PathBuf,
    /// Offset in it.
    pub offset: u64,
    /// What is wrong.
    pub why: String,
}

/// What was found.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct CheckReport {
    /// Segments, oldest first.
    pub segments: Vec<SegmentReport>,
    /// Segment files waiting for reuse.
    pub unused: usize,
    /// Records.
    pub records: u64,
    /// Session keys.
    pub keys: usize,
    /// Turns that wait or were cut.
    pub open_turns: u64,
    /// Dead letters kept.
    pub dead_letters: usize,
    /// Holes that durability `os` allows.
    pub gaps: Vec<DamageReport>,
    /// Damage of acknowledged data. The counts are then of what is readable.
    pub damage: Option<DamageReport>,
}

/// Checks the log in `dir`. Blocks.
pub fn check(dir: &Path, disk: &dyn Disk) -> Result<CheckReport, OpenError> {
    let survey = survey::survey(disk, dir)?;
    let place = |damage: &survey::Damage| DamageReport {
        file: damage.segment.clone(),
        offset: damage.offset,
        why: damage.why.clone(),
    };
    let segments = survey.segments.iter().map(|segment| SegmentReport {
        file: segment::path(dir, segment.header.number),
        format: FORMAT,
        durability: match segment.header.durability {
            Durability::Full => "full",
            Durability::Os => "os",
        },
        base: segment.header.base,
        length: segment.header.length,
        batches: segment.batches.len(),
        end: segment.end,
        torn_bytes: segment.torn_bytes,
    });
    let mut report = CheckReport {
        segments: segments.collect(),
        unused: survey.unused.len(),
        gaps: survey.gaps.iter().map(place).collect(),
        damage: survey.damage.as_ref().map(place),
        ..CheckReport::default()
    };
    let (_, found) = recovery::rebuild(disk, dir, &survey)?;
    report.records = found.records;
    report.keys = found.keys;
    report.open_turns = found.open_turns;
    report.dead_letters = found.dead_letters;
    Ok(report)
}
