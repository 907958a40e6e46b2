//! The transcript file: appends, the repair at an activation, and reading. Everything here blocks: it runs on the
//! blocking pool, one job per session at a time.

use std::io;
use std::path::{Path, PathBuf};

use domain::ids::EntryId;
use domain::text::counted;
use domain::transcript::{Head, leaf_line};
use protocol::journal::Line;
use supervision::ports::{Disk, DiskFile, Open};

use crate::repair::{Cut, decide, text_of};

/// Copies of damaged bytes that one moment can have.
const COPIES_MAX: u64 = 1000;

/// Tells a file from a changed one.
pub type Stamp = (u64, u64, i128, i128);

/// What a leaf row needs, should one be written, and the name of a copy of damaged bytes.
#[derive(Debug, Clone, Copy)]
pub struct Spare {
    /// A fresh entry id.
    pub id: EntryId,
    /// Time, in milliseconds since 1970.
    pub now_ms: u64,
}

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
pub fn append(disk: &dyn Disk, path: &Path, known: Known, lines: &[Line], spare: &Spare) -> io::Result<Standing> {
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
    let mut bytes = Vec::new();
    settle(disk, path, &*file, &mut bytes, at, lines, spare)
}

/// Brings the file up to the journal's lines: `at` bytes are known to be good, `lines` follow. Returns its bytes too.
/// A file that nothing is known of was brought along, and is taken as it is.
pub fn open(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line], spare: &Spare) -> io::Result<(Standing, Vec<u8>)> {
    if at == 0 && lines.is_empty() {
        let (bytes, stamp) = whole(disk, path)?;
        let end = after_last_line(&bytes);
        let (bytes, standing) = foresee(bytes, stamp, end, lines);
        return Ok((standing, bytes));
    }
    let mut bytes = Vec::new();
    let file = create(disk, path)?;
    let standing = settle(disk, path, &*file, &mut bytes, at, lines, spare)?;
    Ok((standing, bytes))
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
    let mut tail = vec![0; usize::try_from(length - at).map_err(io::Error::other)?];
    let got = file.read_at(&mut tail, at)?;
    tail.truncate(got);
    let repair = decide(&tail, lines);
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
pub fn peek(disk: &dyn Disk, path: &Path, at: u64, lines: &[Line]) -> io::Result<(Vec<u8>, Standing)> {
    let (bytes, stamp) = whole(disk, path)?;
    Ok(foresee(bytes, stamp, at, lines))
}

fn foresee(mut bytes: Vec<u8>, stamp: Option<Stamp>, at: u64, lines: &[Line]) -> (Vec<u8>, Standing) {
    let had = bytes.len() as u64;
    let base = base_of(&bytes, at);
    let behind = base.is_none();
    let base = base.unwrap_or(0);
    let repair = decide(bytes.get(base..).unwrap_or(&[]), lines);
    bytes.truncate(base + repair.keep);
    let length = if lines.is_empty() { after_last_line(&bytes) } else { at };
    if repair.unended {
        bytes.push(b'\n');
    }
    bytes.extend(text_of(lines.get(repair.have..).unwrap_or(&[])));
    let found = behind.then(|| Found { changed: Some((at, had)), ..Found::default() });
    (bytes, Standing { length, stamp, found, behind })
}

fn whole(disk: &dyn Disk, path: &Path) -> io::Result<(Vec<u8>, Option<Stamp>)> {
    // The identity is taken first: a change in between is seen the next time.
    match stamp(disk, path)? {
        Some(stamp) => Ok((disk.read(path)?, Some(stamp))),
        None => Ok((Vec::new(), None)),
    }
}

/// `at`, if a line ends there; `None` if that part of the file is not what it was.
fn base_of(bytes: &[u8], at: u64) -> Option<usize> {
    let at = usize::try_from(at).ok()?;
    (at == 0 || bytes.get(at - 1) == Some(&b'\n')).then_some(at)
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
    let length = file.opened().length;
    bytes.resize(usize::try_from(length).map_err(io::Error::other)?, 0);
    let got = file.read_at(bytes, 0)?;
    bytes.truncate(got);
    // A file that lost bytes which were on the device is compared from its start: our lines are found wherever they are.
    let base = base_of(bytes, at);
    let repair = decide(bytes.get(base.unwrap_or(0)..).unwrap_or(&[]), lines);
    let keep = base.unwrap_or(0) + repair.keep;
    // A file of which the journal knows nothing was brought along; that is no change.
    let known = at > 0 && base.is_some();
    let mut found = Found { foreign_lines: if known { repair.foreign } else { 0 }, ..Found::default() };
    let mut lost = Vec::new();
    if base.is_none() {
        found.changed = Some((at, length));
        lost.push(format!("of the transcript's first {at} bytes, which the journal no longer has, some are gone"));
    }
    if repair.cut == Cut::Damaged {
        let rest = bytes.get(keep..).unwrap_or(&[]);
        move_aside(disk, path, rest, spare.now_ms)?;
        lost.push(format!("moved aside: {} of the transcript that nobody can read", counted(rest.len(), "byte")));
    }
    found.lost = (!lost.is_empty()).then(|| lost.join("; "));
    let mut added = if repair.unended { b"\n".to_vec() } else { Vec::new() };
    added.extend(text_of(lines.get(repair.have..).unwrap_or(&[])));
    if let Some(last) = lines.last()
        && repair.needs_leaf
    {
        let head = Head { id: spare.id.to_string().into(), parent: Some(last.id.clone()), timestamp_ms: spare.now_ms };
        added.extend_from_slice(leaf_line(&head, Some(&last.id), None).as_bytes());
        added.push(b'\n');
    }
    if keep < bytes.len() {
        file.set_length(keep as u64)?;
        bytes.truncate(keep);
    }
    bytes.append(&mut added);
    // Also what agrees is written: after a failed sync the system takes for clean what never reached the device.
    let from = if repair.have > 0 { base.unwrap_or(0) } else { keep };
    if let Some(ours) = bytes.get(from..).filter(|ours| !ours.is_empty()) {
        file.write_at(ours, from as u64)?;
    }
    let noteworthy = found != Found::default();
    standing(file, bytes.len() as u64, noteworthy.then_some(found))
}

/// Keeps bytes that are about to be cut off, in a new file that is on the device when this returns.
fn move_aside(disk: &dyn Disk, path: &Path, bytes: &[u8], now_ms: u64) -> io::Result<()> {
    for number in now_ms..now_ms + COPIES_MAX {
        match disk.open(&damaged_path(path, number), Open::CreateNew) {
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
            Ok(copy) => {
                copy.write_at(bytes, 0)?;
                copy.sync_data()?;
                return disk.sync_dir(path.parent().unwrap_or(Path::new(".")));
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
mod tests {
    use std::sync::Arc;

    use supervision::memory::PowerCutDisk;

    use super::*;

    fn line(id: &str) -> Line {
        Line { id: id.into(), text: format!(r#"{{"type":"message","id":"{id}"}}"#).into() }
    }

    fn known(length: u64) -> Known {
        Known { length, stamp: None, rest_is_all: false }
    }

    fn spare() -> Spare {
        Spare { id: EntryId(0x5a5a), now_ms: 7 }
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
        let first = append(&*disk, &path, known(0), &[line("a")], &spare()).unwrap();
        let second = append(&*disk, &path, known(first.length), &[line("b")], &spare()).unwrap();
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
            let standing = append(&*disk, &path, known(before.len() as u64), &lines, &spare()).unwrap();
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
    fn each_damage_has_its_own_copy() {
        let (disk, path) = disk();
        let mut at = 0;
        for junk in [&b"first"[..], b"second"] {
            at = append(&*disk, &path, known(at), &[line("a")], &spare()).unwrap().length;
            disk.open(&path, Open::Write).unwrap().write_at(junk, at).unwrap();
        }
        append(&*disk, &path, known(at), &[line("a")], &spare()).unwrap();
        assert_eq!(disk.read(&path).unwrap(), text_of(&[line("a"), line("a"), line("a")]));
        for (copy, junk) in [("7", &b"first"[..]), ("8", b"second")] {
            assert_eq!(disk.read(Path::new(&format!("/s/a.jsonl.damaged-{copy}"))).unwrap(), junk);
        }
    }

    #[test]
    fn nothing_is_written_to_a_file_that_lost_lines_unless_all_of_them_are_at_hand() {
        let (a, b) = (line("a"), line("b"));
        let at = text_of(&[a.clone(), b.clone()]).len() as u64;
        // Cut, emptied, or replaced by something longer.
        for left in [text_of(std::slice::from_ref(&a)), Vec::new(), vec![b'x'; 500]] {
            let (disk, path) = disk();
            put(&*disk, &path, &left);
            let standing = append(&*disk, &path, known(at), &[line("c")], &spare()).unwrap();
            assert!(standing.behind);
            assert_eq!(standing.found.unwrap().changed, Some((at, left.len() as u64)));
            assert_eq!(disk.read(&path).unwrap(), left);
            let all = Known { rest_is_all: true, ..known(at) };
            let standing = append(&*disk, &path, all, &[line("c")], &spare()).unwrap();
            assert!(!standing.behind && standing.found.unwrap().lost.is_some());
            let text = String::from_utf8(disk.read(&path).unwrap()).unwrap();
            assert!(text.contains(&*line("c").text) && text.ends_with('\n'), "{text}");
        }
    }

    #[test]
    fn a_file_that_was_brought_along_is_left_as_it_is() {
        let brought = b"{\"type\":\"session\"}\nno json\n{\"type\":\"custom\"}\n{\"type\":\"cu";
        let (disk, path) = disk();
        put(&*disk, &path, brought);
        let (standing, bytes) = open(&*disk, &path, 0, &[], &spare()).unwrap();
        let whole_lines = &brought[..brought.len() - 11];
        assert_eq!((standing.length, standing.found, &*bytes), (whole_lines.len() as u64, None, whole_lines));
        assert_eq!(disk.read(&path).unwrap(), brought);
        append(&*disk, &path, known(standing.length), &[line("a")], &spare()).unwrap();
        assert_eq!(disk.read(&path).unwrap(), [whole_lines, &text_of(&[line("a")])].concat());
        assert_eq!(disk.read(Path::new("/s/a.jsonl.damaged-7")).unwrap(), b"{\"type\":\"cu");
    }

    #[test]
    fn foreign_lines_stay_and_a_leaf_row_points_at_ours() {
        let (disk, path) = disk();
        let mut bytes = text_of(&[line("a")]);
        let at = bytes.len() as u64;
        bytes.extend(text_of(&[line("foreign")]));
        put(&*disk, &path, &bytes);
        let standing = append(&*disk, &path, known(at), &[line("b")], &spare()).unwrap();
        assert_eq!(standing.found, Some(Found { foreign_lines: 1, ..Found::default() }));
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
                at = append(&*disk, &path, known(at), std::slice::from_ref(line), &spare()).unwrap().length;
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

    #[test]
    fn a_file_is_completed_only_if_all_of_it_is_ours() {
        let ours = vec![line("a"), line("b"), line("c")];
        let (whole, head) = (text_of(&ours), text_of(&[line("head")]));
        let foreign = b"{\"id\":\"f\",\"type\":\"custom\"}\n".as_slice();
        for (name, tail, complete) in [
            ("nothing", Vec::new(), true),
            ("all", whole.clone(), true),
            ("a part of a line", whole[..whole.len() - 5].to_vec(), true),
            ("zeros", vec![0; 7], true),
            ("somebody else's", [&whole, foreign].concat(), false),
            ("what nobody can read", b"junk".to_vec(), false),
        ] {
            let disk = PowerCutDisk::new();
            let path = Path::new("/s.jsonl");
            let before = [head.clone(), tail].concat();
            disk.open(path, Open::Create).unwrap().write_at(&before, 0).unwrap();
            let length = super::complete(&*disk, path, head.len() as u64, &ours).unwrap();
            let expected = if complete { [head.clone(), whole.clone()].concat() } else { before };
            assert_eq!(length, complete.then_some(expected.len() as u64), "{name}");
            assert_eq!(disk.read(path).unwrap(), expected, "{name}");
            assert_eq!(super::complete(&*disk, path, 10_000, &ours).unwrap(), None, "{name}: it lost its beginning");
        }
        let disk = PowerCutDisk::new();
        assert_eq!(super::complete(&*disk, Path::new("/gone.jsonl"), 5, &ours).unwrap(), None);
        assert!(disk.stat(Path::new("/gone.jsonl")).is_err());
        assert_eq!(super::complete(&*disk, Path::new("/new.jsonl"), 0, &ours).unwrap(), Some(whole.len() as u64));
    }
}
