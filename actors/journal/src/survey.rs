//! Reading a log from its files: which segments there are, which batches are sound, where it ends, what is damaged.
//! Writes nothing; recovery and `greenroom journal check` both begin here.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};

use domain::text::counted;
use supervision::ports::{Disk, Open};

use crate::batch;
use crate::options::OpenError;
use crate::record::{BadRecord, Record};
use crate::segment::{self, Durability, HEADER_BYTES, Head, Name, SegmentHeader};

/// A place that is not as it must be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Damage {
    /// Segment file.
    pub segment: PathBuf,
    /// Offset in it.
    pub offset: u64,
    /// What is wrong.
    pub why: String,
}

/// One segment of the log.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Surveyed {
    /// What its head says.
    pub header: SegmentHeader,
    /// Where each sound batch lies.
    pub batches: Vec<u64>,
    /// Offset after the last sound batch.
    pub end: u64,
    /// Bytes of a batch that was begun after that.
    pub torn_bytes: u64,
}

/// A whole log.
#[derive(Debug, Default)]
pub struct Survey {
    /// Segments without a hole between them, ending with the newest.
    pub segments: Vec<Surveyed>,
    /// Segment files that belong to no log any more.
    pub unused: Vec<PathBuf>,
    /// Files of segments that were being made.
    pub unfinished: Vec<PathBuf>,
    /// Segment files without a head of their own.
    headless: Vec<(u64, PathBuf)>,
    /// Damage that forbids to go on.
    pub damage: Option<Damage>,
    /// Damage wherever, with the number of its segment.
    damages: Vec<(u64, Damage)>,
    /// Holes in a log without sync, which are to be expected after a power cut.
    pub gaps: Vec<Damage>,
    /// Segments below this one are not needed.
    pub oldest: u64,
    /// Number of the next batch.
    pub next_batch: u64,
}

/// Surveys the log in `dir`.
pub fn survey(disk: &dyn Disk, dir: &Path) -> Result<Survey, OpenError> {
    let mut survey = Survey { oldest: 1, next_batch: 1, ..Survey::default() };
    let heads = heads(disk, dir, &mut survey)?;
    if let Some(newest) = heads.last_key_value().map(|(number, _)| *number) {
        walk_all(disk, dir, &heads, newest, &mut survey)?;
    }
    // What is not needed any more may be damaged.
    let oldest = survey.oldest;
    let needed = std::mem::take(&mut survey.damages).into_iter().find(|(number, _)| *number >= oldest);
    survey.damage = survey.damage.take().or(needed.map(|(_, damage)| damage));
    for (number, path) in std::mem::take(&mut survey.headless) {
        if number >= survey.oldest && survey.damage.is_none() && holds_batch(disk, &path, number)? {
            let why = "its head is damaged, but it holds batches".to_owned();
            survey.damage = Some(Damage { segment: path.clone(), offset: 0, why });
        }
        survey.unused.push(path);
    }
    let needed = survey.segments.iter().take_while(|segment| segment.header.number < survey.oldest).count();
    survey.unused.extend(survey.segments.drain(..needed).map(|segment| segment::path(dir, segment.header.number)));
    Ok(survey)
}

fn walk_all(
    disk: &dyn Disk,
    dir: &Path,
    heads: &BTreeMap<u64, SegmentHeader>,
    newest: u64,
    survey: &mut Survey,
) -> Result<(), OpenError> {
    // The newest segments without a hole; what is before a hole was retired, or is lost (which `oldest` tells).
    let mut first = newest;
    while first.checked_sub(1).is_some_and(|before| heads.contains_key(&before)) {
        first -= 1;
    }
    survey.unused.extend(heads.range(..first).map(|(number, _)| segment::path(dir, *number)));
    let mut expected = None;
    for header in heads.range(first..).map(|(_, header)| *header) {
        let path = segment::path(dir, header.number);
        let bytes = disk.read(&path).map_err(|source| OpenError::Io { path: path.clone(), source })?;
        walk(&path, &bytes, header, &mut expected, survey)?;
    }
    survey.next_batch = expected.unwrap_or(1);
    if first > survey.oldest {
        survey.damage = Some(Damage {
            segment: segment::path(dir, survey.oldest),
            offset: 0,
            why: format!("the segment is missing or has no sound head; {} is the first there is", segment_name(first)),
        });
    }
    Ok(())
}

fn holds_batch(disk: &dyn Disk, path: &Path, number: u64) -> Result<bool, OpenError> {
    let bytes = disk.read(path).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    Ok(next_sound(&bytes, HEADER_BYTES as usize, number, None).is_some())
}

fn segment_name(number: u64) -> String {
    segment::path(Path::new(""), number).display().to_string()
}

fn heads(disk: &dyn Disk, dir: &Path, survey: &mut Survey) -> Result<BTreeMap<u64, SegmentHeader>, OpenError> {
    let io = |path: &Path, source: io::Error| OpenError::Io { path: path.to_owned(), source };
    let mut heads = BTreeMap::new();
    for path in disk.list(dir).map_err(|source| io(dir, source))? {
        let number = match segment::name(&path) {
            Name::Segment(number) => number,
            Name::New => {
                survey.unfinished.push(path);
                continue;
            }
            Name::Foreign => continue,
        };
        let file = disk.open(&path, Open::Read).map_err(|source| io(&path, source))?;
        let mut head = vec![0; HEADER_BYTES as usize];
        let got = file.read_at(&mut head, 0).map_err(|source| io(&path, source))?;
        match segment::decode(&head[..got]) {
            Head::Segment(header) if header.number == number => {
                heads.insert(number, header);
            }
            Head::Newer(format) => return Err(OpenError::NewerFormat { segment: path, format }),
            // A spare whose new head was being written, or a segment that lost its head: then it is missing below.
            Head::Segment(_) | Head::Unsound => survey.headless.push((number, path)),
        }
    }
    Ok(heads)
}

/// Finds the sound batches of one segment. `expected` is the number of the next batch of the log.
fn walk(
    path: &Path,
    bytes: &[u8],
    header: SegmentHeader,
    expected: &mut Option<u64>,
    survey: &mut Survey,
) -> Result<(), OpenError> {
    if let Some(why) = cut_short(header, bytes.len() as u64) {
        note(header, Damage { segment: path.to_owned(), offset: bytes.len() as u64, why }, survey);
    }
    let limit = usize::try_from(header.length).unwrap_or(usize::MAX).min(bytes.len());
    let bytes = &bytes[..limit];
    let mut found = Surveyed { header, batches: Vec::new(), end: HEADER_BYTES, torn_bytes: 0 };
    let mut at = HEADER_BYTES as usize;
    while let Some(place) = next_sound(bytes, at, header.number, *expected) {
        let Some(batch) = batch::open(&bytes[place..], header.number) else { break };
        let hole = place != at || expected.is_some_and(|expected| expected != batch.number);
        if hole {
            note_hole(path, header, found.end, *expected, batch.number, survey);
        }
        match checkpoints(path, place as u64, &batch, header.number) {
            Ok(oldest) => survey.oldest = survey.oldest.max(oldest),
            Err(damage) => survey.damages.push((header.number, damage)),
        }
        found.batches.push(place as u64);
        at = place + batch::space(&batch) as usize;
        found.end = at as u64;
        *expected = Some(batch.number + 1);
    }
    found.torn_bytes = begun(bytes, at, header.number);
    if let Some(before) =
        survey.segments.last().filter(|before| before.header.base + before.header.length != header.base)
    {
        let why =
            format!("it begins at position {}, not where {} ends", header.base, segment_name(before.header.number));
        survey.damages.push((header.number, Damage { segment: path.to_owned(), offset: 0, why }));
    }
    survey.segments.push(found);
    Ok(())
}

/// What is wrong with a segment whose file has only `length` bytes. It has its whole length before it has its name, so no
/// crash leaves a shorter one: what is missing may have been acknowledged.
pub fn cut_short(header: SegmentHeader, length: u64) -> Option<String> {
    let missing = header.length.checked_sub(length).filter(|missing| *missing > 0)?;
    Some(format!("the file was cut short: it ends {} before its segment does", counted(missing, "byte")))
}

fn note_hole(path: &Path, header: SegmentHeader, offset: u64, expected: Option<u64>, number: u64, survey: &mut Survey) {
    let expected = expected.map_or("the first batch".to_owned(), |expected| format!("batch {expected}"));
    let damage = Damage {
        segment: path.to_owned(),
        offset,
        why: format!("{expected} is not readable, but batch {number} after it is"),
    };
    note(header, damage, survey);
}

/// Without sync a hole is to be expected after a power cut.
fn note(header: SegmentHeader, damage: Damage, survey: &mut Survey) {
    match header.durability {
        Durability::Full => survey.damages.push((header.number, damage)),
        Durability::Os => survey.gaps.push(damage),
    }
}

/// The next sound batch at or after `at` that is not older than `expected`. In an undamaged log it is at `at`, or
/// there is none.
pub fn next_sound(bytes: &[u8], at: usize, segment: u64, expected: Option<u64>) -> Option<usize> {
    let sound = |place: usize| {
        let rest = bytes.get(place..).filter(|rest| batch::may_begin(rest))?;
        let batch = batch::open(rest, segment)?;
        expected.is_none_or(|expected| batch.number >= expected).then_some(place)
    };
    if let Some(place) = sound(at) {
        return Some(place);
    }
    (at..bytes.len()).step_by(batch::ALIGN as usize).skip(1).find_map(sound)
}

/// The highest segment that a checkpoint of this batch asks for; 0 without one.
fn checkpoints(path: &Path, offset: u64, batch: &batch::Batch<'_>, segment: u64) -> Result<u64, Damage> {
    let mut highest = 0;
    let damage = |why: String| Damage { segment: path.to_owned(), offset, why };
    let raw = batch::records(batch).map_err(|why| damage(format!("batch {} {why}", batch.number)))?;
    for raw in raw.into_iter().filter(|raw| raw.kind == CHECKPOINT) {
        let record = Record::decode(raw.kind, raw.payload).map_err(|why| damage(format!("a checkpoint {why}")))?;
        if let Record::Checkpoint { oldest, .. } = record {
            highest = highest.max(believed(oldest, segment));
        }
    }
    Ok(highest)
}

/// What a checkpoint in this segment may ask for: when it was written there was no later one.
pub fn believed(oldest: u64, segment: u64) -> u64 {
    if oldest > segment { 0 } else { oldest }
}

const CHECKPOINT: u8 = 12;

/// Bytes of a batch of this segment that was begun at `at` and is not whole.
fn begun(bytes: &[u8], at: usize, segment: u64) -> u64 {
    let Some(head) = bytes.get(at..).and_then(|rest| rest.first_chunk::<{ batch::HEADER_BYTES }>()) else { return 0 };
    let ours = batch::may_begin(head) && head[8..16] == segment.to_le_bytes();
    let [_, _, _, _, a, b, c, d, ..] = *head;
    let length = u64::from(u32::from_le_bytes([a, b, c, d])) + batch::HEADER_BYTES as u64;
    if ours { length.min((bytes.len() - at) as u64) } else { 0 }
}

/// The records of a batch at `offset` of `path`.
pub fn records<'a>(path: &Path, offset: u64, batch: &batch::Batch<'a>) -> Result<Vec<batch::RawRecord<'a>>, OpenError> {
    batch::records(batch).map_err(|why| OpenError::Damaged {
        segment: path.to_owned(),
        offset,
        why: format!("batch {} {why}", batch.number),
    })
}

/// Decodes one of them.
pub fn decode(path: &Path, offset: u64, kind: u8, payload: &[u8]) -> Result<Record, OpenError> {
    Record::decode(kind, payload).map_err(|bad| match bad {
        BadRecord::UnknownKind(kind) => OpenError::UnknownRecord { segment: path.to_owned(), kind },
        BadRecord::Malformed(why) => {
            OpenError::Damaged { segment: path.to_owned(), offset, why: format!("a record of type {kind} {why}") }
        }
    })
}
