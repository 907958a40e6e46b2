//! The transcript file: appends, the repair at an activation, and reading. Everything here blocks: it runs on the
//! blocking pool, one job per session at a time.

use std::io;
use std::path::{Path, PathBuf};

use domain::transcript::{Head, leaf_line};
use protocol::journal::Line;
use supervision::ports::{Disk, DiskFile, Open};

use crate::repair::{Cut, decide, text_of};

/// Tells a file from a changed one.
pub type Stamp = (u64, u64, i128, i128);

/// What a leaf row needs, should one be written, and the name of a copy of damaged bytes.
#[derive(Debug, Clone)]
pub struct Spare {
    /// A fresh entry id.
    pub id: String,
    /// Time, in milliseconds since 1970.
    pub now_ms: u64,
}

/// How a file stands after a write.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Standing {
    /// Its length.
    pub length: u64,
    /// Its identity; `None` when there is no file.
    pub stamp: Option<Stamp>,
    /// What was found that did not belong there.
    pub found: Option<Found>,
}

/// What was found in a file that its writer did not put there.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Found {
    /// Complete lines of somebody else; they stay.
    pub foreign_lines: usize,
    /// What could not be kept in the file.
    pub lost: Option<String>,
}

/// Appends lines to a file that is `at` bytes long as far as we know; repairs it if it is not.
pub fn append(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line], spare: &Spare) -> io::Result<Standing> {
    let file = create(disk, path)?;
    let length = file.length()?;
    if length == at {
        let bytes = text_of(lines);
        file.write_at(&bytes, at)?;
        return standing(disk, path, at + bytes.len() as u64, None);
    }
    let mut bytes = Vec::new();
    settle(disk, path, &*file, &mut bytes, at, lines, spare)
}

/// Brings the file up to the journal's lines: `at` bytes are known to be good, `lines` follow. Returns its bytes too.
pub fn open(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line], spare: &Spare) -> io::Result<(Standing, Vec<u8>)> {
    let mut bytes = Vec::new();
    let file = match disk.open(path, Open::Write) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            if lines.is_empty() && at == 0 {
                return Ok((Standing::default(), bytes));
            }
            create(disk, path)?
        }
        Err(error) => return Err(error),
    };
    let standing = settle(disk, path, &*file, &mut bytes, at, lines, spare)?;
    Ok((standing, bytes))
}

/// What [`open`] would give, without writing anything.
pub fn peek(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line]) -> io::Result<(Vec<u8>, Standing)> {
    let (mut bytes, standing) = read(disk, path, &[])?;
    let base = usize::try_from(at).ok().filter(|base| *base <= bytes.len()).unwrap_or(0);
    let repair = decide(bytes.get(base..).unwrap_or(&[]), lines);
    bytes.truncate(base + repair.keep);
    bytes.extend(text_of(lines.get(repair.have..).unwrap_or(&[])));
    Ok((bytes, standing))
}

/// The whole file, followed by `pending`, with its identity before it was read.
pub fn read(disk: &dyn Disk, path: &Path, pending: &[Line]) -> io::Result<(Vec<u8>, Standing)> {
    let (mut bytes, stamp) = match disk.stat(path) {
        Ok(stat) => (disk.read(path)?, Some(stat.stamp)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => (Vec::new(), None),
        Err(error) => return Err(error),
    };
    let length = bytes.len() as u64;
    bytes.extend(text_of(pending));
    Ok((bytes, Standing { length, stamp, found: None }))
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
    match disk.rename(path, &archive.join(name)) {
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

/// Reads the whole file, compares what is behind `at` with `lines`, and makes it right. `bytes` is the file afterwards.
fn settle(
    disk: &dyn Disk,
    path: &Path,
    file: &dyn DiskFile,
    bytes: &mut Vec<u8>,
    at: u64,
    lines: &[Line],
    spare: &Spare,
) -> io::Result<Standing> {
    let length = file.length()?;
    bytes.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
    let got = file.read_at(bytes, 0)?;
    bytes.truncate(got);
    // A file that lost bytes which were on the device is compared from its start: our lines are found wherever they are.
    let base = usize::try_from(at).ok().filter(|base| *base <= bytes.len()).unwrap_or(0);
    let short = (base as u64) < at;
    let repair = decide(bytes.get(base..).unwrap_or(&[]), lines);
    let keep = base + repair.keep;
    // A file of which the journal knows nothing was brought along; that is no change.
    let known = at > 0 && !short;
    let mut found = Found { foreign_lines: if known { repair.foreign } else { 0 }, lost: None };
    if short {
        found.lost = Some(format!("the transcript had {at} bytes and was found with {length}"));
    }
    if repair.cut == Cut::Damaged {
        let rest = bytes.get(keep..).unwrap_or(&[]);
        let copy = damaged_path(path, spare.now_ms);
        let kept = disk.open(&copy, Open::Create)?;
        kept.set_length(0)?;
        kept.write_at(rest, 0)?;
        kept.sync_data()?;
        found.lost = Some(format!("{} bytes of the transcript that nobody can read were moved aside", rest.len()));
    }
    let mut added = text_of(lines.get(repair.have..).unwrap_or(&[]));
    if let Some(last) = lines.last()
        && repair.needs_leaf
    {
        let head = Head { id: spare.id.as_str().into(), parent: Some(last.id.clone()), timestamp_ms: spare.now_ms };
        added.extend_from_slice(leaf_line(&head, Some(&last.id), None).as_bytes());
        added.push(b'\n');
    }
    if keep < bytes.len() {
        file.set_length(keep as u64)?;
        bytes.truncate(keep);
    }
    if !added.is_empty() {
        file.write_at(&added, keep as u64)?;
        bytes.append(&mut added);
    }
    let noteworthy = found.foreign_lines > 0 || found.lost.is_some();
    standing(disk, path, bytes.len() as u64, noteworthy.then_some(found))
}

fn standing(disk: &dyn Disk, path: &Path, length: u64, found: Option<Found>) -> io::Result<Standing> {
    Ok(Standing { length, stamp: stamp(disk, path)?, found })
}

fn damaged_path(path: &Path, now_ms: u64) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_owned();
    name.push(format!(".damaged-{now_ms}"));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use supervision::memory::PowerCutDisk;

    use super::*;

    fn line(id: &str) -> Line {
        Line { id: id.into(), text: format!(r#"{{"type":"message","id":"{id}"}}"#).into() }
    }

    fn spare() -> Spare {
        Spare { id: "5a5a".to_owned(), now_ms: 7 }
    }

    fn disk() -> (Arc<PowerCutDisk>, PathBuf) {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/s")).unwrap();
        (disk, PathBuf::from("/s/a.jsonl"))
    }

    fn put(disk: &dyn Disk, path: &Path, bytes: &[u8]) {
        let file = disk.open(path, Open::Create).unwrap();
        file.set_length(0).unwrap();
        file.write_at(bytes, 0).unwrap();
    }

    #[test]
    fn appends_make_the_file_and_its_directory() {
        let disk = PowerCutDisk::new();
        let path = PathBuf::from("/new/dir/a.jsonl");
        let first = append(&*disk, &path, 0, &[line("a")], &spare()).unwrap();
        let second = append(&*disk, &path, first.length, &[line("b")], &spare()).unwrap();
        assert_eq!(second.found, None);
        assert_eq!(disk.read(&path).unwrap(), text_of(&[line("a"), line("b")]));
    }

    #[test]
    fn an_append_that_is_repeated_after_any_byte_is_complete_once() {
        let lines = [line("b"), line("c")];
        let before = text_of(&[line("a")]);
        let whole = text_of(&[line("a"), line("b"), line("c")]);
        for length in before.len()..=whole.len() {
            let (disk, path) = disk();
            put(&*disk, &path, &whole[..length]);
            let standing = append(&*disk, &path, before.len() as u64, &lines, &spare()).unwrap();
            assert_eq!((standing.length, standing.found), (whole.len() as u64, None));
            assert_eq!(disk.read(&path).unwrap(), whole);
        }
    }

    #[test]
    fn a_missing_file_is_told_and_written_again() {
        let (disk, path) = disk();
        let (standing, bytes) = open(&*disk, &path, 500, &[line("a")], &spare()).unwrap();
        assert!(standing.found.unwrap().lost.unwrap().contains("500"));
        assert_eq!(bytes, text_of(&[line("a")]));
        assert_eq!(disk.read(&path).unwrap(), bytes);
    }

    #[test]
    fn no_file_and_no_lines_is_a_new_session() {
        let (disk, path) = disk();
        let (standing, bytes) = open(&*disk, &path, 0, &[], &spare()).unwrap();
        assert_eq!((standing, bytes), (Standing::default(), Vec::new()));
        assert!(disk.stat(&path).is_err());
    }

    #[test]
    fn unknown_bytes_are_kept_in_a_copy() {
        let (disk, path) = disk();
        let mut bytes = text_of(&[line("a")]);
        let at = bytes.len() as u64;
        bytes.extend_from_slice(b"\xffjunk");
        put(&*disk, &path, &bytes);
        let (standing, bytes) = open(&*disk, &path, at, &[line("b")], &spare()).unwrap();
        assert_eq!(bytes, text_of(&[line("a"), line("b")]));
        assert!(standing.found.unwrap().lost.is_some());
        assert_eq!(disk.read(Path::new("/s/a.jsonl.damaged-7")).unwrap(), b"\xffjunk");
    }

    #[test]
    fn foreign_lines_stay_and_a_leaf_row_points_at_ours() {
        let (disk, path) = disk();
        let mut bytes = text_of(&[line("a")]);
        let at = bytes.len() as u64;
        bytes.extend(text_of(&[line("foreign")]));
        put(&*disk, &path, &bytes);
        let standing = append(&*disk, &path, at, &[line("b")], &spare()).unwrap();
        assert_eq!(standing.found, Some(Found { foreign_lines: 1, lost: None }));
        let text = String::from_utf8(disk.read(&path).unwrap()).unwrap();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 4);
        assert!(lines[3].contains(r#""type":"leaf""#) && lines[3].contains(r#""targetId":"b""#), "{}", lines[3]);
    }

    #[test]
    fn a_power_cut_at_any_moment_is_repaired_from_the_journal() {
        let lines: Vec<Line> = (0..12)
            .map(|number| Line { text: line(&"x".repeat(100 * number)).text, id: number.to_string().into() })
            .collect();
        for seed in 0..200 {
            let (disk, path) = disk();
            disk.sync_fs(Path::new("/s")).unwrap();
            let (mut at, mut synced) = (0, 0);
            let written = usize::try_from(seed % 13).unwrap();
            for (number, line) in lines.iter().enumerate().take(written) {
                at = append(&*disk, &path, at, std::slice::from_ref(line), &spare()).unwrap().length;
                if u64::try_from(number).unwrap() == seed % 7 {
                    disk.sync_fs(Path::new("/s")).unwrap();
                    synced = number + 1;
                }
            }
            let after = disk.cut(seed);
            let mark = text_of(&lines[..synced]).len() as u64;
            let (standing, bytes) = open(&*after, &path, mark, &lines[synced..], &spare()).unwrap();
            assert_eq!(bytes, text_of(&lines), "seed {seed}");
            assert_eq!(standing.found, None, "seed {seed}");
            assert_eq!(after.read(&path).unwrap(), bytes);
        }
    }
}
