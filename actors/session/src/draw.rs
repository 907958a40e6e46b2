//! Draws up an edit: from a transcript to the lines that change it. Everything here blocks: it runs on the blocking
//! pool, alone with the transcript file.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::compaction::{self, CompactError, Plan, failed};
use domain::exchange::single::{self, Format};
use domain::ids::{EntryId, SessionId, SessionKey};
use domain::scope;
use domain::transcript::{
    Addition, CompactionFields, Entry, HeaderFields, Kind, Pen, Position, RawParent, Reader, TreeIndex, copy,
    header_line, read_entry,
};
use jiff::tz::TimeZone;
use protocol::edit::{Compacted, Edit, EditError, Edited, Keep};
use protocol::memory::Summary;
use serde_json::json;
use supervision::ports::{DiskFile, Ports};

use crate::attachments::Carrier;
use crate::new_file;
use crate::reading::{Reading, Source};
use crate::turn::Drawn;

/// The reason that a `reset` by hand has.
const RESET_REASON: &str = "reset";
/// The `customType` of the entry that a repair leaves.
const REPAIRED: &str = "greenroom.repair";
const DAY_MS: u64 = 24 * 60 * 60 * 1000;
/// Bytes of a new file that are written at a time.
const WRITE_BYTES: usize = 256 << 10;

/// A new session.
#[derive(Debug, Clone, Copy)]
pub struct NewSession<'a> {
    /// Its key.
    pub key: &'a SessionKey,
    /// Its file.
    pub path: &'a Path,
    /// The session that it is copied from.
    pub from: &'a SessionKey,
    /// The file of that one.
    pub from_path: &'a Path,
    /// Working directory.
    pub cwd: &'a str,
    /// Where doors keep what was attached, each session's in a directory of its own.
    pub attachments: &'a [PathBuf],
}

/// What a fork is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forked {
    /// Lines that were copied.
    pub copied: usize,
    /// Attachments that they name and that cannot be read.
    pub missing: usize,
}

/// The lines of `edit`, which writes no other file, behind what was `read`.
pub fn draw(read: Reading, source: &Source, edit: &Edit, ports: &Ports) -> Result<Drawn, EditError> {
    if read.tree.is_empty() {
        return Err(EditError::NoSession);
    }
    draw_first(read, source, edit, ports)
}

/// Like [`draw`], also for a session that has no entry yet.
pub fn draw_first(read: Reading, source: &Source, edit: &Edit, ports: &Ports) -> Result<Drawn, EditError> {
    let Reading { header, mut tree, tally, .. } = read;
    let now_ms = ports.clock.wall_ms();
    let mut ids = || EntryId(ports.ids.random());
    let mut pen = Pen::new(&tree, &mut ids, now_ms);
    let mut compacted = None;
    let additions = match edit {
        Edit::Label { entry, text } => {
            let target = named(&tree, entry)?;
            vec![pen.label(&target, text.as_deref()).map_err(|_| EditError::UnknownEntry(entry.clone()))?]
        }
        Edit::Rename { name } => vec![pen.rename(name)],
        Edit::Branch { to, summary } => {
            let target = to.as_deref().map(|to| ending(&tree, to)).transpose()?;
            let unknown = |_| EditError::UnknownEntry(to.clone().unwrap_or_default());
            match summary.as_deref().map(str::trim).filter(|summary| !summary.is_empty()) {
                Some(summary) => pen.branch_with_summary(target.as_deref(), summary, None).map_err(unknown)?,
                None => pen.branch(target.as_deref()).map_err(unknown)?.into_iter().collect(),
            }
        }
        Edit::Reset => vec![pen.reset(RESET_REASON, None).map_err(|error| EditError::Io(error.to_string()))?],
        Edit::Apply { part, summary: Summary::Failed(why), .. } => {
            if !compaction::begins_with(&tree, &part.first) {
                return Err(EditError::NotCompacted(CompactError::<io::Error>::Changed.to_string()));
            }
            vec![pen.custom(failed::NOTE, Some(&failed::note(why)))]
        }
        Edit::Compact { .. } | Edit::Apply { .. } => {
            let plan = plan(&tree, source, edit, now_ms)?;
            let fields = CompactionFields {
                summary: &plan.summary,
                first_kept: plan.first_kept.as_deref(),
                tokens_before: plan.tokens_before,
                tokens_after: Some(plan.tokens_after),
                details: None,
            };
            let addition = pen.compact(&fields).map_err(|error| EditError::Io(error.to_string()))?;
            let Plan { first_kept, tokens_before, tokens_after, .. } = plan;
            compacted = Some(Compacted { first_kept, tokens_before, tokens_after });
            vec![addition]
        }
        Edit::Scope { scope, .. } if scope.as_ref() == tally.scope.as_deref() => Vec::new(),
        Edit::Scope { scope, only_less: true } if !scope::is_less(scope.as_ref(), tally.scope.as_deref()) => {
            return Err(EditError::OpensMore);
        }
        Edit::Scope { scope, .. } => {
            let data = scope.as_ref().map(serde_json::to_value).transpose();
            let data = data.map_err(|_| EditError::Io("the path of the project is no Unicode text".to_owned()))?;
            vec![pen.custom(scope::SCOPE, data.as_ref())]
        }
        // Whatever is written next has the file mended first.
        Edit::Repair if header.is_none() || source.has_more() => vec![pen.custom(REPAIRED, None)],
        Edit::Repair | Edit::Fork { .. } | Edit::Export { .. } => Vec::new(),
    };
    Ok(behind(&mut tree, edit.word(), additions, compacted))
}

/// One line that sets something, behind what was `read`.
pub fn set(read: Reading, word: &'static str, ports: &Ports, write: impl FnOnce(&mut Pen<'_>) -> Addition) -> Drawn {
    let mut tree = read.tree;
    let mut ids = || EntryId(ports.ids.random());
    let addition = write(&mut Pen::new(&tree, &mut ids, ports.clock.wall_ms()));
    behind(&mut tree, word, vec![addition], None)
}

fn behind(tree: &mut TreeIndex, word: &'static str, additions: Vec<Addition>, compacted: Option<Compacted>) -> Drawn {
    for Addition { entry, .. } in &additions {
        let parent = entry.parent.clone().map_or(RawParent::Root, RawParent::Id);
        tree.insert(entry, &parent, Kind::of(&entry.kind), 0..0);
    }
    let [append_parent, leaf] = [tree.append_parent(), tree.leaf()].map(|id| id.map(Arc::from));
    Drawn { word, additions, append_parent, leaf, compacted }
}

fn plan(tree: &TreeIndex, source: &Source, edit: &Edit, now_ms: u64) -> Result<Plan, EditError> {
    let since = |days: u32| now_ms.saturating_sub(DAY_MS.saturating_mul(days.into()));
    let (keep, summary) = match edit {
        Edit::Compact { keep: Keep::Important, summary } => (compaction::Keep::Nothing, summary.as_deref()),
        Edit::Compact { keep: Keep::Messages(count), summary } => {
            (compaction::Keep::Messages(*count), summary.as_deref())
        }
        Edit::Compact { keep: Keep::Days(days), summary } => {
            (compaction::Keep::Since(since(*days)), summary.as_deref())
        }
        Edit::Apply { part, summary, .. } => {
            let summary = match summary {
                Summary::Text(text) => Some(&**text),
                Summary::Nothing | Summary::Failed(_) | Summary::Raw(_) => None,
            };
            (compaction::Keep::Behind(&part.first, &part.last), summary)
        }
        Edit::Label { .. }
        | Edit::Rename { .. }
        | Edit::Branch { .. }
        | Edit::Reset
        | Edit::Scope { .. }
        | Edit::Repair
        | Edit::Fork { .. }
        | Edit::Export { .. } => (compaction::Keep::Messages(u32::MAX), None),
    };
    let entry =
        |at: Position| -> io::Result<Option<Entry>> { Ok(read_entry(tree, at, &source.range(tree.place(at))?)) };
    compaction::plan(tree, keep, summary, entry).map_err(|error| match error {
        CompactError::Read(error) => unreadable(&error),
        CompactError::NothingToLeaveOut | CompactError::NotShorter { .. } | CompactError::Changed => {
            EditError::NotCompacted(error.to_string())
        }
    })
}

/// The id that `name` is, that has it as its label, or that alone begins so.
fn named(tree: &TreeIndex, name: &str) -> Result<Arc<str>, EditError> {
    if name.is_empty() {
        return Err(EditError::UnknownEntry("\"\"".to_owned()));
    }
    if tree.node_of(name).is_some() {
        return Ok(name.into());
    }
    let labels = tree.labels();
    let labelled = labels.iter().filter(|(_, label)| *label.text == *name).map(|(at, _)| tree.id(*at));
    if let Some(id) = only(labelled, name)? {
        return Ok(id.into());
    }
    let nodes = tree.positions().filter(|at| tree.kind(*at).is_node());
    let begin_so = nodes.map(|at| tree.id(at)).filter(|id| id.starts_with(name));
    only(begin_so, name)?.map(Arc::from).ok_or_else(|| EditError::UnknownEntry(name.to_owned()))
}

/// The one id that `name` stands for, if it stands for any.
fn only<'a>(mut ids: impl Iterator<Item = &'a str>, name: &str) -> Result<Option<&'a str>, EditError> {
    let first = ids.next();
    if ids.any(|other| Some(other) != first) { Err(EditError::Ambiguous(name.to_owned())) } else { Ok(first) }
}

/// Like [`named`], for an entry with which a conversation is to end: between a call and its results it cannot.
fn ending(tree: &TreeIndex, name: &str) -> Result<Arc<str>, EditError> {
    let id = named(tree, name)?;
    let node = tree.node_of(&id);
    let mut next = node.map(|node| tree.children(Some(node))).unwrap_or_default();
    // Results may hang behind what the model is not shown; a file that has a circle there ends somewhere else.
    for _ in 0..tree.len() {
        let silent = match next.as_slice() {
            some if some.iter().any(|at| tree.kind(*at) == Kind::ToolResult) => {
                return Err(EditError::CutPair(id.as_ref().to_owned()));
            }
            [only] if is_silent(tree.kind(*only)) => *only,
            _ => break,
        };
        next = tree.children(Some(silent));
    }
    Ok(id)
}

fn is_silent(kind: Kind) -> bool {
    matches!(kind, Kind::Label | Kind::SessionInfo | Kind::ModelChange | Kind::ThinkingLevelChange | Kind::Custom)
}

/// Makes a new session of all entries, or of the branch that ends with `entry`. It stands there whole and durable, or
/// not at all; what its lines name of attachments is its own then, and durable before it.
pub fn fork(
    tree: &TreeIndex,
    version: u64,
    source: &Source,
    entry: Option<&str>,
    new: &NewSession<'_>,
    ports: &Ports,
) -> Result<Forked, EditError> {
    let end = entry.map(|entry| ending(tree, entry)).transpose()?;
    let mut ids = || EntryId(ports.ids.random());
    let steps = match &end {
        Some(end) => copy::extract(tree, end, version, &mut ids),
        None => copy::fork(tree, version),
    };
    let steps = steps.map_err(|_| EditError::NoSession)?;
    let write = |file: &dyn DiskFile| write_fork(file, &steps, source, end.as_deref(), new, ports);
    new_file::make_transcript(&*ports.disk, &*ports.ids, new.path, write).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            EditError::Exists(new.key.clone())
        } else {
            new_file::unwritten(&error, "the new transcript")
        }
    })
}

fn write_fork(
    file: &dyn DiskFile,
    steps: &[copy::Step],
    source: &Source,
    end: Option<&str>,
    new: &NewSession<'_>,
    ports: &Ports,
) -> io::Result<Forked> {
    let session = SessionId(ports.ids.uuid_v7());
    let now_ms = ports.clock.wall_ms();
    let from = new.from_path.display().to_string();
    let header =
        HeaderFields { session, key: new.key, timestamp_ms: now_ms, cwd: new.cwd, parent_session: Some(&from) };
    let (mut reader, mut tree) = (Reader::default(), TreeIndex::default());
    let insert = |tree: &mut TreeIndex, record: domain::transcript::Record| {
        tree.insert(&record.entry, &record.parent, record.kind, record.place);
    };
    let mut bytes = header_line(&header).into_bytes();
    bytes.push(b'\n');
    let mut carrier = Carrier::new(ports, new.attachments, new.from, new.key);
    let (mut at, mut copied) = (0, 0);
    for step in steps {
        let Some(line) = step.line(|place| source.range(place.clone()))? else { continue };
        let line = carrier.take(line)?;
        copied += 1;
        bytes.extend_from_slice(line.as_bytes());
        bytes.push(b'\n');
        if bytes.len() >= WRITE_BYTES {
            reader.push(&bytes, |record| insert(&mut tree, record));
            file.write_at(&bytes, at)?;
            at += bytes.len() as u64;
            bytes.clear();
        }
    }
    reader.push(&bytes, |record| insert(&mut tree, record));
    reader.finish(|record| insert(&mut tree, record));
    // From here on message ids are the new session's own.
    let mut ids = || EntryId(ports.ids.random());
    let origin = json!({"key": new.from, "entry": end});
    let mark = Pen::new(&tree, &mut ids, now_ms).custom(copy::FORKED, Some(&origin));
    bytes.extend_from_slice(mark.line.as_bytes());
    bytes.push(b'\n');
    file.write_at(&bytes, at)?;
    Ok(Forked { copied, missing: carrier.finish()? })
}

/// Writes the file that `format` makes of everything in `source`.
pub fn export(
    source: &Source,
    key: &SessionKey,
    path: &Path,
    format: Format,
    ports: &Ports,
) -> Result<Edited, EditError> {
    let mut bytes = Vec::new();
    source.each_piece(|piece| bytes.extend_from_slice(piece)).map_err(|error| unreadable(&error))?;
    if bytes.is_empty() {
        return Err(EditError::NoSession);
    }
    let (bytes, remarks) = single::export(bytes, key, format, &TimeZone::system());
    let write = |file: &dyn DiskFile| file.write_at(&bytes, 0);
    new_file::make(&*ports.disk, &*ports.ids, path, write).map_err(|error| {
        if error.kind() == io::ErrorKind::AlreadyExists {
            EditError::FileExists(path.to_owned())
        } else {
            new_file::unwritten(&error, &path.display().to_string())
        }
    })?;
    Ok(Edited::Exported { key: key.clone(), file: path.to_owned(), bytes: bytes.len(), remarks })
}

/// What a transcript that cannot be read is told as.
pub fn unreadable(error: &io::Error) -> EditError {
    EditError::Io(format!("the transcript cannot be read: {error}"))
}
