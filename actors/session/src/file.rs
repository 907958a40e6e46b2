//! The transcript file: appends, the repair at an activation, and reading. Everything here blocks: it runs on the
//! blocking pool, one job per session at a time.

use std::io;
use std::path::{Path, PathBuf};

use domain::text::counted;
use domain::transcript::LINE_BYTES_MAX;
use protocol::journal::Line;
use supervision::ports::{Disk, DiskFile, Open};

use crate::reading::{PIECE_BYTES, Source};
use crate::repair::{Cut, decide, is_record, leaf_after, text_of};

/// Copies of damaged bytes that one moment can have.
const COPIES_MAX: u64 = 1000;

/// Tells a file from a changed one.
pub type Stamp = (u64, u64, i128, i128);

/// How a file stands after a write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Its length up to the end of its last whole line.
    pub length: u64,
    /// Its identity; `None` when there is no file.
    pub stamp: Option<Stamp>,
    /// What was found that did not belong there.
    pub found: Option<Found>,
    /// Lines that were written before are gone: the journal has to be asked for them, nothing was written.
    pub behind: bool,
}

/// What was found in a file that its writer did not put there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Complete lines of somebody else; they stay.
    pub foreign_lines: usize,
    /// How long the file was, and how long it was found, when what was known of it no longer holds.
    pub changed: Option<(u64, u64)>,
    /// What could not be kept in the file.
    pub lost: Option<String>,
}

/// What is known of a file before a write.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Known {
    /// How far it has what it should, up to the end of a line.
    pub length: u64,
    /// Its identity then.
    pub stamp: Option<Stamp>,
    /// Whether the lines that are to be written are all that the journal has from there on.
    pub rest_is_all: bool,
}

/// Appends lines to a file as far as it is known; repairs it if it has changed. A file that has lost lines which may
/// be in the journal is left alone, unless `lines` are all of those.
pub fn append(disk: &dyn Disk, path: &Path, known: Known, lines: &[Line], now_ms: u64) -> io::Result<Standing> {
    let at = known.length;
    let file = create(disk, path)?;
    let was = file.opened();
    let untouched = known.stamp == Some(was.stamp);
    if !untouched && !line_ends_at(&*file, at)? && !known.rest_is_all {
        let found = Some(Found { changed: Some((at, was.length)), ..Found::default() });
        return Ok(Standing { length: at, stamp: None, found, behind: true });
    }
    if was.length == at {
        let bytes = text_of(lines);
        file.write_at(&bytes, at)?;
        return standing(&*file, at + bytes.len() as u64, None);
    }
    // A file that appeared where there was none is a change, too.
    settle(disk, path, &*file, at, lines, now_ms, at > 0 || !known.rest_is_all)
}

/// Brings the file up to the journal's lines: `at` bytes are known to be good, `lines` follow. A file that nothing is
/// known of was brought along, and is taken as it is, but for the end of its last line.
pub fn open(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line], now_ms: u64) -> io::Result<(Standing, Source)> {
    if at == 0 && lines.is_empty() {
        // What cannot be written now is no worse for it: the next write sorts it out.
        let _ = end_last_record(disk, path);
        return peek(disk, path, at, lines);
    }
    let file = create(disk, path)?;
    // A file of which the journal knows nothing was brought along; that is no change.
    let standing = settle(disk, path, &*file, at, lines, now_ms, at > 0)?;
    let source = Source { file: Some(file), keep: standing.length, rest: Vec::new() };
    Ok((standing, source))
}

/// Completes a file that nobody else writes meanwhile: `at` bytes are known to be good, `lines` are all that follow. The
/// length then; `None`, and nothing is changed, when there is anything in it that is not ours.
pub fn complete(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line]) -> io::Result<Option<u64>> {
    let file = match disk.open(path, Open::Write) {
        Err(error) if error.kind() == io::ErrorKind::NotFound && at == 0 => create(disk, path)?,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        opened => opened?,
    };
    let length = file.opened().length;
    if at > length || !line_ends_at(&*file, at)? {
        return Ok(None);
    }
    let repair = decide(&rest_of(&*file, at)?, lines, at == 0);
    if repair.foreign > 0 || repair.cut == Cut::Damaged {
        return Ok(None);
    }
    if repair.cut == Cut::Torn {
        file.set_length(at + repair.keep as u64)?;
    }
    // Also what agrees is written, as `settle` does.
    let bytes = text_of(lines);
    file.write_at(&bytes, at)?;
    Ok(Some(at + bytes.len() as u64))
}

/// What the file will hold once `lines` are written, without writing anything. Unless there are some, the length takes
/// in complete lines of somebody else. What is no complete line stays for the next write to sort out.
pub fn peek(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line]) -> io::Result<(Standing, Source)> {
    let file = match disk.open(path, Open::Read) {
        // An empty one is none.
        Ok(file) => Some(file).filter(|file| at > 0 || file.opened().length > 0),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(error),
    };
    let Some(file) = file else {
        let behind = at > 0;
        let found = behind.then(|| Found { changed: Some((at, 0)), ..Found::default() });
        let length = if lines.is_empty() { 0 } else { at };
        let source = Source { file: None, keep: 0, rest: text_of(lines) };
        return Ok((Standing { length, stamp: None, found, behind }, source));
    };
    let was = file.opened();
    let brought = at == 0 && lines.is_empty();
    let at = if brought { end_of_last_line(&*file, was.length)? } else { at };
    let behind = !line_ends_at(&*file, at)?;
    let base = if behind { 0 } else { at };
    let tail = if brought { Vec::new() } else { rest_of(&*file, base)? };
    let repair = decide(&tail, lines, at == 0);
    let keep = base + repair.keep as u64;
    let kept = tail.get(..repair.keep).unwrap_or(&[]);
    let length = if lines.is_empty() { base + after_last_line(kept) } else { at };
    let mut rest = if repair.unended { b"\n".to_vec() } else { Vec::new() };
    rest.extend(text_of(lines.get(repair.have..).unwrap_or(&[])));
    let found = behind.then(|| Found { changed: Some((at, was.length)), ..Found::default() });
    Ok((Standing { length, stamp: Some(was.stamp), found, behind }, Source { file: Some(file), keep, rest }))
}

/// Everything from `at` on.
fn rest_of(file: &dyn DiskFile, at: u64) -> io::Result<Vec<u8>> {
    let length = file.opened().length.saturating_sub(at);
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let got = file.read_at(&mut bytes, at)?;
    bytes.truncate(got);
    Ok(bytes)
}

/// Where the last line that is ended ends, in a file of `length` bytes.
fn end_of_last_line(file: &dyn DiskFile, length: u64) -> io::Result<u64> {
    let mut end = length;
    while end > 0 {
        let start = end.saturating_sub(PIECE_BYTES);
        let mut piece = vec![0; usize::try_from(end - start).map_err(io::Error::other)?];
        let got = file.read_at(&mut piece, start)?;
        piece.truncate(got);
        let found = after_last_line(&piece);
        if found > 0 {
            return Ok(start + found);
        }
        end = start;
    }
    Ok(0)
}

/// Ends the last line of a file that was brought along, if it is a record that lacks nothing else: it is a part of the
/// conversation like any other.
fn end_last_record(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let file = disk.open(path, Open::Write)?;
    let length = file.opened().length;
    let end = end_of_last_line(&*file, length)?;
    let bytes = length.saturating_sub(end);
    if bytes > 0 && bytes <= LINE_BYTES_MAX as u64 && is_record(&rest_of(&*file, end)?) {
        file.write_at(b"\n", length)?;
    }
    Ok(())
}

fn line_ends_at(file: &dyn DiskFile, at: u64) -> io::Result<bool> {
    let mut last = [0];
    Ok(at == 0 || (file.read_at(&mut last, at - 1)? == 1 && last == *b"\n"))
}

fn after_last_line(bytes: &[u8]) -> u64 {
    bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end as u64 + 1)
}

/// The identity of a file; `None` when there is none.
pub fn stamp(disk: &dyn Disk, path: &Path) -> io::Result<Option<Stamp>> {
    match disk.stat(path) {
        Ok(stat) => Ok(Some(stat.stamp)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// Moves a closed transcript to where nobody looks for live ones.
pub fn archive(disk: &dyn Disk, path: &Path) -> io::Result<()> {
    let (Some(dir), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    let archive = dir.join("archive");
    disk.create_dir_all(&archive)?;
    match disk.rename_new(path, &archive.join(name)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        other => other,
    }
}

fn create(disk: &dyn Disk, path: &Path) -> io::Result<Box<dyn DiskFile>> {
    match disk.open(path, Open::Create) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            disk.create_dir_all(path.parent().unwrap_or(Path::new(".")))?;
            disk.open(path, Open::Create)
        }
        other => other,
    }
}

/// Compares what is behind `at` with `lines`, and makes it right; damaged bytes are named after the time. Unless the file
/// is `known`, lines of somebody else in it are not worth a word.
fn settle(
    disk: &dyn Disk,
    path: &Path,
    file: &dyn DiskFile,
    at: u64,
    lines: &[Line],
    now_ms: u64,
    known: bool,
) -> io::Result<Standing> {
    let length = file.opened().length;
    // A file that lost bytes which were on the device is compared from its start: our lines are found wherever they are.
    let lost_some = !line_ends_at(file, at)?;
    let base = if lost_some { 0 } else { at };
    let tail = rest_of(file, base)?;
    let repair = decide(&tail, lines, at == 0);
    let (kept, cut) = tail.split_at_checked(repair.keep).unwrap_or((&tail, &[]));
    let mut found = Found { foreign_lines: if known && !lost_some { repair.foreign } else { 0 }, ..Found::default() };
    let mut lost = Vec::new();
    if lost_some {
        found.changed = Some((at, length));
        lost.push(format!("of the transcript's first {at} bytes, which the journal no longer has, some are gone"));
    }
    if repair.cut == Cut::Damaged {
        let copy = move_aside(disk, path, cut, now_ms)?;
        let bytes = counted(cut.len(), "byte");
        lost.push(format!("moved aside into {}: {bytes} of the transcript that nobody can read", copy.display()));
    }
    found.lost = (!lost.is_empty()).then(|| lost.join("; "));
    let mut added = if repair.unended { b"\n".to_vec() } else { Vec::new() };
    added.extend(text_of(lines.get(repair.have..).unwrap_or(&[])));
    if let Some(last) = lines.last()
        && repair.needs_leaf
    {
        added.extend_from_slice(leaf_after(last).as_bytes());
    }
    let keep = base + kept.len() as u64;
    if !cut.is_empty() {
        file.set_length(keep)?;
    }
    let end = keep + added.len() as u64;
    // Also what agrees is written: after a failed sync the system takes for clean what never reached the device.
    let agrees = if repair.have > 0 { kept } else { &[] };
    let ours = [agrees, &added].concat();
    if !ours.is_empty() {
        file.write_at(&ours, end - ours.len() as u64)?;
    }
    if repair.needs_leaf {
        // A power cut must not tear the row once further lines stand behind it: nobody could tell it from junk.
        file.sync_data()?;
    }
    let noteworthy = found != Found::default();
    standing(file, end, noteworthy.then_some(found))
}

/// Keeps bytes that are about to be cut off, in a new file that is on the device when this returns.
fn move_aside(disk: &dyn Disk, path: &Path, bytes: &[u8], now_ms: u64) -> io::Result<PathBuf> {
    for number in now_ms..now_ms + COPIES_MAX {
        let to = damaged_path(path, number);
        match disk.open(&to, Open::CreateNew) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(copy) => {
                copy.write_at(bytes, 0)?;
                copy.sync_data()?;
                disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
                return Ok(to);
            }
        }
    }
    Err(io::ErrorKind::AlreadyExists.into())
}

fn standing(file: &dyn DiskFile, length: u64, found: Option<Found>) -> io::Result<Standing> {
    Ok(Standing { length, stamp: Some(file.stat()?.stamp), found, behind: false })
}

fn damaged_path(path: &Path, now_ms: u64) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".damaged-{now_ms}"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests;
