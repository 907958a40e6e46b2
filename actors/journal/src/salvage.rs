//! Everything of a log that is readable, also when it is damaged. Writes nothing.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use protocol::journal::LogPosition;
use supervision::ports::Disk;

use crate::batch::{self, RECORD_HEADER_BYTES};
use crate::options::OpenError;
use crate::record::{BadRecord, Record};
use crate::segment::{self, Durability, HEADER_BYTES, Head, Name, SegmentHeader};
use crate::survey;

/// A place where something that was acknowledged cannot be read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hole {
    /// Segment file.
    pub file: PathBuf,
    /// From this byte.
    pub from: u64,
    /// To before this one.
    pub to: u64,
    /// What is wrong.
    pub why: String,
}

/// One segment.
#[derive(Debug, Clone)]
pub struct Part {
    /// Its file.
    pub file: PathBuf,
    /// What its head says, or must have said.
    pub header: SegmentHeader,
    /// Sound batches: where, and which number.
    pub batches: Vec<(u64, u64)>,
}

/// Where a record lies.
#[derive(Debug, Clone, Copy)]
pub struct Place {
    /// Log position.
    pub at: LogPosition,
    /// Number of its batch.
    pub batch: u64,
    /// Bytes of its payload.
    pub bytes: u32,
}

/// What there is.
#[derive(Debug, Default)]
pub struct Salvage {
    /// Segments that are needed, in order.
    pub parts: Vec<Part>,
    /// Damage.
    pub holes: Vec<Hole>,
    /// Number of the newest segment file.
    pub newest: u64,
    /// First log position after all of them.
    pub end: u64,
    /// Number of the next batch.
    pub next_batch: u64,
}

/// Reads the log in `dir`. Fails when it cannot be read at all, or a newer version wrote it.
pub fn salvage(disk: &dyn Disk, dir: &Path) -> Result<Salvage, OpenError> {
    let mut salvage = Salvage { next_batch: 1, ..Salvage::default() };
    let mut files = BTreeMap::new();
    for path in disk.list(dir).map_err(|source| OpenError::Io { path: dir.to_owned(), source })? {
        if let Name::Segment(number) = segment::name(&path) {
            files.insert(number, path);
        }
    }
    let mut oldest = 1;
    let mut holes: Vec<(u64, Hole)> = Vec::new();
    let mut before: Option<(u64, Hole)> = None;
    for (number, file) in files {
        let bytes = disk.read(&file).map_err(|source| OpenError::Io { path: file.clone(), source })?;
        let (header, headless) = head(&file, &bytes, number, salvage.end)?;
        let mut part = Part { file: file.clone(), header, batches: Vec::new() };
        let end = walk(&mut part, &bytes, &mut salvage.next_batch, &mut before, &mut holes);
        if headless && !part.batches.is_empty() {
            let why = "its head is damaged".to_owned();
            holes.push((number, Hole { file: file.clone(), from: 0, to: HEADER_BYTES, why }));
        }
        if headless && part.batches.is_empty() {
            continue;
        }
        if header.durability == Durability::Full
            && let Some(why) = survey::cut_short(header, bytes.len() as u64)
        {
            holes.push((number, Hole { file: file.clone(), from: end, to: bytes.len() as u64, why }));
        }
        oldest = checkpoints(&part, &bytes).map(|oldest| survey::believed(oldest, number)).fold(oldest, u64::max);
        // Where batches that are missing before the next sound one must have been.
        let torn = bytes.len() as u64 - end;
        before = Some((number, Hole { file, from: end, to: end + torn, why: String::new() }));
        (salvage.newest, salvage.end) = (number, salvage.end.max(header.base + header.length));
        salvage.parts.push(part);
    }
    salvage.parts.retain(|part| part.header.number >= oldest);
    let needed = holes.into_iter().filter(|(number, _)| *number >= oldest);
    salvage.holes = needed.map(|(_, hole)| hole).collect();
    missing(dir, oldest, &mut salvage);
    Ok(salvage)
}

fn head(file: &Path, bytes: &[u8], number: u64, end: u64) -> Result<(SegmentHeader, bool), OpenError> {
    match segment::decode(bytes) {
        Head::Segment(header) if header.number == number => Ok((header, false)),
        Head::Newer(format) => Err(OpenError::NewerFormat { segment: file.to_owned(), format }),
        Head::Segment(_) | Head::Unsound => {
            let length = bytes.len() as u64;
            Ok((SegmentHeader { durability: Durability::Full, number, base: end, length }, true))
        }
    }
}

fn walk(
    part: &mut Part,
    bytes: &[u8],
    next_batch: &mut u64,
    before: &mut Option<(u64, Hole)>,
    holes: &mut Vec<(u64, Hole)>,
) -> u64 {
    let number = part.header.number;
    let (mut at, mut first) = (HEADER_BYTES as usize, before.is_none());
    while let Some(place) = survey::next_sound(bytes, at, number, Some(*next_batch)) {
        let Some(batch) = bytes.get(place..).and_then(|rest| batch::open(rest, number)) else { break };
        // The oldest segment there is may begin anywhere.
        let missing = if first { 0 } else { batch.number - *next_batch };
        // Without sync a hole is to be expected.
        if (place != at || missing > 0) && part.header.durability == Durability::Full {
            let which = match missing {
                0 => "bytes between two batches are damaged".to_owned(),
                1 => format!("batch {next_batch} is not readable"),
                _ => format!("batches {next_batch} to {} are not readable", batch.number - 1),
            };
            let own = Hole { file: part.file.clone(), from: at as u64, to: place as u64, why: String::new() };
            let (at, hole) = if place == at { before.take().unwrap_or((number, own)) } else { (number, own) };
            holes.push((at, Hole { why: which, ..hole }));
        }
        part.batches.push((place as u64, batch.number));
        at = place + batch::space(&batch) as usize;
        *next_batch = batch.number + 1;
        (first, *before) = (false, None);
    }
    at as u64
}

fn checkpoints<'a>(part: &'a Part, bytes: &'a [u8]) -> impl Iterator<Item = u64> + 'a {
    let batches = part.batches.iter().filter_map(|(place, _)| {
        let batch = batch::open(bytes.get(*place as usize..)?, part.header.number)?;
        batch::records(&batch).ok()
    });
    batches.flatten().filter_map(|raw| {
        let Ok(Record::Checkpoint { oldest, .. }) = Record::decode(raw.kind, raw.payload) else { return None };
        Some(oldest)
    })
}

fn missing(dir: &Path, oldest: u64, salvage: &mut Salvage) {
    let there: Vec<u64> = salvage.parts.iter().map(|part| part.header.number).collect();
    let Some(newest) = there.last() else { return };
    for number in (oldest..*newest).filter(|number| there.binary_search(number).is_err()) {
        let file = segment::path(dir, number);
        salvage.holes.push(Hole {
            file,
            from: 0,
            to: 0,
            why: "the segment is missing or has no sound head".to_owned(),
        });
    }
}

impl Salvage {
    /// Gives every readable record with its place and the number of its batch to `take`, in order. A record that is not
    /// what its type says is given as that.
    pub fn records<E: From<OpenError>>(
        &self,
        disk: &dyn Disk,
        take: &mut dyn FnMut(Place, Result<Record, BadRecord>) -> Result<(), E>,
    ) -> Result<(), E> {
        for part in self.parts.iter().filter(|part| !part.batches.is_empty()) {
            let bytes = disk.read(&part.file).map_err(|source| OpenError::Io { path: part.file.clone(), source })?;
            for (place, number) in &part.batches {
                let batch = bytes.get(*place as usize..).and_then(|rest| batch::open(rest, part.header.number));
                let Some(raw) = batch.and_then(|batch| batch::records(&batch).ok()) else { continue };
                for raw in raw {
                    let at = LogPosition(part.header.base + place + u64::from(raw.offset));
                    let bytes = u32::try_from(raw.payload.len()).unwrap_or(u32::MAX);
                    let record = Record::decode(raw.kind, raw.payload);
                    if let Err(BadRecord::UnknownKind(kind)) = record {
                        return Err(OpenError::UnknownRecord { segment: part.file.clone(), kind }.into());
                    }
                    take(Place { at, batch: *number, bytes }, record)?;
                }
            }
        }
        Ok(())
    }
}

/// Records that damaged bytes still seem to hold. Nothing vouches for them: they are told, never taken.
pub fn hints(bytes: &[u8]) -> Vec<Record> {
    let mut found = Vec::new();
    let starts = (0..bytes.len()).step_by(batch::ALIGN as usize);
    for start in starts.filter(|start| bytes.get(*start..).is_some_and(batch::may_begin)) {
        let mut rest = bytes.get(start + batch::HEADER_BYTES..).unwrap_or_default();
        while let Some((head, tail)) = rest.split_first_chunk::<RECORD_HEADER_BYTES>() {
            let [a, b, c, d, kind] = *head;
            let length = u32::from_le_bytes([a, b, c, d]) as usize;
            let Some((payload, next)) = tail.split_at_checked(length).filter(|_| length > 0) else { break };
            found.extend(Record::decode(kind, payload).ok());
            rest = next;
        }
    }
    found
}
