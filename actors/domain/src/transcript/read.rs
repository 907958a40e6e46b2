//! Reads transcript files as they are, not as they should be.
//!
//! A line that is no JSON is counted and skipped. Raw control characters, halves of surrogate pairs and bytes that are
//! no UTF-8 are mended for reading. Records that were written without a line end between them are all read. A record
//! of an unknown kind is opaque.
//!
//! Old forms are read as if they had been migrated: in version 1 there are no ids, each record follows the one before,
//! and a compaction counts records, the header included. Such a record's id is its number, as 8 hex digits, so that it
//! is the same at each reading and what is appended later can name it.

mod line;
mod message;

use std::ops::Range;
use std::sync::Arc;

use super::copy::FORKED;
use super::{Entry, EntryKind, Header, Kind, Position, Problem, ProblemKind, RawParent, Transcript, TreeIndex};
use crate::ids::TurnId;
use line::{Found, Quirks, ReadLine, opaque, read_line};

pub(super) use line::value;

/// How many messages [`recent_ids`] gives.
pub const RECENT_MAX: usize = 1000;

/// The longest line that is read, in bytes; one of ours has less than a quarter of it.
pub const LINE_BYTES_MAX: usize = 64 << 20;

/// One entry of a file.
#[derive(Debug, Clone, PartialEq)]
pub struct Record {
    /// What it says. Its parent is that of the tree, which is not known here.
    pub entry: Entry,
    /// What its line says of its parent.
    pub parent: RawParent,
    /// What kind of line it is.
    pub kind: Kind,
    /// Where it lies in the file.
    pub place: Range<u64>,
}

/// Reads a file piece by piece. Holds no more of it than one line.
#[derive(Debug, Clone, Default)]
pub struct Reader {
    header: Option<Header>,
    problems: Vec<Problem>,
    problems_total: usize,
    /// Begin of a line whose end has not come.
    begun: Vec<u8>,
    /// Whether more of that line has come than is read.
    too_long: bool,
    /// Where the line that comes next begins.
    at: u64,
    /// How much of it has come.
    come: u64,
    lines: usize,
    records: u64,
    /// The last record, in a file of version 1.
    previous: Option<Arc<str>>,
}

/// What a whole file has besides its entries.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Findings {
    /// The first header, wherever it stands.
    pub header: Option<Header>,
    /// What could not be read; the first [`Transcript::PROBLEMS_MAX`] of them.
    pub problems: Vec<Problem>,
    /// How many there were.
    pub problems_total: usize,
}

/// One user message of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecentMessage {
    /// `<source>:<message id>`.
    pub idempotency_key: String,
    /// Its turn.
    pub turn: TurnId,
    /// Hash of its body.
    pub body_hash: u64,
}

/// Reads a whole file.
pub fn read_lines(bytes: &[u8]) -> Transcript {
    let mut transcript = Transcript::default();
    let mut reader = Reader::default();
    reader.push(bytes, |record| transcript.insert(record));
    let Findings { header, problems, problems_total } = reader.finish(|record| transcript.insert(record));
    Transcript { header, problems, problems_total, ..transcript }
}

/// The contents of the entry at `at`, of which `bytes` are those at its place in the file; `None` if they are no longer
/// what they were.
pub fn read_entry(tree: &TreeIndex, at: Position, bytes: &[u8]) -> Option<Entry> {
    let id = tree.id(at);
    if tree.kind(at) == Kind::Opaque {
        let mut entry = opaque(Some(id), tree.timestamp_ms(at), RawParent::Absent, 0..0).entry;
        tree.complete(at, &mut entry);
        return ((at.0 as usize) < tree.len()).then_some(entry);
    }
    let mut records = read_line(bytes, 0).found.into_iter().filter_map(|found| match found {
        Found::Entry(record, _) => Some(record),
        Found::Header(..) => None,
    });
    // Only records of version 1 lack an id.
    let is_it = |record: &Record| record.kind == tree.kind(at) && [id, ""].contains(&&*record.entry.id);
    let mut entry = records.next().filter(is_it)?.entry;
    entry.id = id.into();
    tree.complete(at, &mut entry);
    Some(entry)
}

/// Whether it is the entry that ends what a fork was copied from.
fn ends_copy(found: &Found) -> bool {
    let Found::Entry(record, _) = found else { return false };
    record.entry.custom(FORKED).is_some()
}

/// The last [`RECENT_MAX`] marked user messages in the end of a file, oldest first; none from before it became a fork. Unless it is the whole file, the
/// first line is taken for cut and left out.
pub fn recent_ids(tail: &[u8], is_whole_file: bool) -> Vec<RecentMessage> {
    let mut recent = Vec::new();
    let whole_lines = match tail.iter().position(|byte| *byte == b'\n') {
        _ if is_whole_file => tail,
        Some(end) => tail.get(end + 1..).unwrap_or(&[]),
        None => &[],
    };
    for line in whole_lines.rsplit(|byte| *byte == b'\n') {
        if recent.len() >= RECENT_MAX {
            break;
        }
        let text = String::from_utf8_lossy(line);
        let may_fork = text.contains(FORKED);
        if !may_fork && !text.contains("\"idempotencyKey\"") {
            continue;
        }
        let found = read_line(line, 0).found;
        if may_fork && found.iter().any(ends_copy) {
            break;
        }
        for found in found.into_iter().rev() {
            if let Found::Entry(record, _) = found
                && let EntryKind::User(user) = record.entry.kind
                && let Some(mark) = user.mark
            {
                let idempotency_key = mark.idempotency_key.as_ref().to_owned();
                recent.push(RecentMessage { idempotency_key, turn: mark.turn, body_hash: mark.body_hash });
            }
        }
    }
    recent.truncate(RECENT_MAX);
    recent.reverse();
    recent
}

/// The id of a record in a file of version 1, by its number; the header's is 0.
fn numbered_id(number: u64) -> Arc<str> {
    format!("{number:08x}").into()
}

// === impl Reader ===

impl Reader {
    /// The header, once it was read.
    pub fn header(&self) -> Option<&Header> {
        self.header.as_ref()
    }

    /// What could not be read; the first [`Transcript::PROBLEMS_MAX`] of them.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// How many there were.
    pub fn problems_total(&self) -> usize {
        self.problems_total
    }

    /// Where the last whole line ends that was read, in bytes from the start of the file.
    pub fn at(&self) -> u64 {
        self.at
    }

    /// Takes the next bytes of the file, and gives the entries on the lines that they end.
    pub fn push(&mut self, bytes: &[u8], mut take: impl FnMut(Record)) {
        let mut rest = bytes;
        while let Some(end) = rest.iter().position(|byte| *byte == b'\n') {
            let (line, behind) = rest.split_at(end);
            rest = behind.get(1..).unwrap_or(&[]);
            let length = self.come + line.len() as u64;
            if self.come == 0 && line.len() <= LINE_BYTES_MAX {
                self.line(line, &mut take);
            } else {
                self.begin(line);
                self.end_line(&mut take);
            }
            self.at += length + 1;
            self.come = 0;
        }
        self.begin(rest);
    }

    /// The end of the file was reached: reads a last line that is not ended.
    pub fn finish(mut self, mut take: impl FnMut(Record)) -> Findings {
        if self.come > 0 {
            self.end_line(&mut take);
        }
        Findings { header: self.header, problems: self.problems, problems_total: self.problems_total }
    }

    fn begin(&mut self, part: &[u8]) {
        self.come += part.len() as u64;
        self.too_long |= self.begun.len() + part.len() > LINE_BYTES_MAX;
        if self.too_long {
            self.begun = Vec::new();
        } else {
            self.begun.extend_from_slice(part);
        }
    }

    fn end_line(&mut self, take: &mut impl FnMut(Record)) {
        if std::mem::take(&mut self.too_long) {
            self.lines += 1;
            self.problem(ProblemKind::TooLong);
        } else {
            let line = std::mem::take(&mut self.begun);
            self.line(&line, take);
        }
    }

    fn line(&mut self, line: &[u8], take: &mut impl FnMut(Record)) {
        self.lines += 1;
        if line.trim_ascii().is_empty() {
            return;
        }
        let ReadLine { found, complete } = read_line(line, self.at);
        if !complete {
            self.problem(ProblemKind::NotJson);
        }
        for found in found {
            if self.records == 0 && !matches!(found, Found::Header(..)) {
                self.problem(ProblemKind::HeaderMissing);
            }
            match found {
                Found::Header(header, _) if self.header.is_none() => self.header = Some(header),
                Found::Header(_, place) => take(opaque(None, 0, RawParent::Absent, place)),
                Found::Entry(record, quirks) => take(self.migrated(record, &quirks)),
            }
            self.records += 1;
        }
    }

    fn migrated(&mut self, mut record: Record, quirks: &Quirks) -> Record {
        if self.header.as_ref().is_none_or(|header| header.version >= 2) {
            if record.entry.id.is_empty() && record.kind != Kind::Opaque {
                return opaque(None, record.entry.timestamp_ms, record.parent, record.place);
            }
            return record;
        }
        if quirks.lacks_id {
            record.entry.id = numbered_id(self.records);
            record.parent = self.previous.clone().map_or(RawParent::Root, RawParent::Id);
        }
        if let EntryKind::Compaction { first_kept, .. } = &mut record.entry.kind
            && let Some(number) = quirks.first_kept
        {
            *first_kept = Some(numbered_id(number));
        }
        if !record.entry.id.is_empty() {
            self.previous = Some(Arc::clone(&record.entry.id));
        }
        record
    }

    fn problem(&mut self, what: ProblemKind) {
        self.problems_total += 1;
        if self.problems.len() < Transcript::PROBLEMS_MAX {
            self.problems.push(Problem { line: self.lines, what });
        }
    }
}

#[cfg(test)]
mod tests;
