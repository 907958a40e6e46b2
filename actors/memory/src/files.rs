//! Reading and writing small files of the workspace. No part of the way is followed where it is a link, since tools may
//! write in the workspace. All functions block.

use std::io;
use std::path::Path;

use supervision::ports::{Disk, DiskFile, Open};

/// Bytes that are read at once.
const PIECE_BYTES: usize = 256 * 1024;
/// Bytes of the longest line that is taken for one.
const LINE_BYTES_MAX: usize = 1024 * 1024;

/// The text of a file; `None` when there is none. One that is longer than `bytes_max`, or no text, is an error.
pub(crate) fn read_text(disk: &dyn Disk, root: &Path, path: &str, bytes_max: u64) -> io::Result<Option<String>> {
    let file = match disk.open_inside(root, Path::new(path), Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(named(path, &error)),
    };
    let length = file.opened().length;
    if length > bytes_max {
        return Err(io::Error::other(format!("{path} has {length} bytes, and may have {bytes_max}")));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let got = file.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    String::from_utf8(bytes).map(Some).map_err(|_| io::Error::other(format!("{path} is no UTF-8 text")))
}

/// Puts `bytes` in place of what a file has, or makes it: a reader, and who comes after a power cut, finds the old or the
/// new contents. On the device when this returns.
pub(crate) fn replace(disk: &dyn Disk, root: &Path, path: &str, bytes: &[u8]) -> io::Result<()> {
    replace_with(disk, root, path, |file| file.write_at(bytes, 0))
}

/// The same, with contents that `fill` writes.
pub(crate) fn replace_with(
    disk: &dyn Disk,
    root: &Path,
    path: &str,
    fill: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
) -> io::Result<()> {
    let below = Path::new(path);
    let name = below.file_name().unwrap_or_default().to_string_lossy();
    let beside = below.with_file_name(format!(".{}.tmp", name.trim_start_matches('.')));
    let place = root.join(below.parent().unwrap_or(Path::new("")));
    disk.create_dir_all(&place)?;
    let file = disk.open_inside(root, &beside, Open::Create).map_err(|error| named(path, &error))?;
    let filled = file.set_length(0).and_then(|()| fill(&*file)).and_then(|()| file.sync_data());
    drop(file);
    if let Err(error) = filled {
        // What is left of it is overwritten the next time.
        let _ = disk.remove(&root.join(&beside));
        return Err(named(path, &error));
    }
    disk.rename(&root.join(&beside), &root.join(below))?;
    disk.sync_dir(&place)
}

/// Hands each line to `take`, without its end. Empty ones, and those that are longer than any line is, are passed over.
pub(crate) fn each_line(file: &dyn DiskFile, mut take: impl FnMut(&[u8]) -> io::Result<()>) -> io::Result<()> {
    let (mut at, mut piece, mut line, mut is_long) = (0_u64, vec![0; PIECE_BYTES], Vec::new(), false);
    loop {
        let got = file.read_at(&mut piece, at)?;
        let bytes = piece.get(..got).unwrap_or_default();
        at += got as u64;
        for part in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = part.strip_suffix(b"\n");
            if !is_long {
                line.extend_from_slice(text.unwrap_or(part));
            }
            is_long |= line.len() > LINE_BYTES_MAX;
            if text.is_some() {
                if !is_long && !line.trim_ascii().is_empty() {
                    take(&line)?;
                }
                line.clear();
                is_long = false;
            } else if is_long {
                line.clear();
            }
        }
        if got < PIECE_BYTES {
            break;
        }
    }
    if is_long || line.trim_ascii().is_empty() { Ok(()) } else { take(&line) }
}

fn named(path: &str, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{path}: {error}"))
}

#[cfg(test)]
mod tests {
    use supervision::memory::PowerCutDisk;

    use super::*;

    #[test]
    fn a_file_is_the_old_or_the_new_wherever_the_power_fails() {
        let root = Path::new("/w");
        let made = || {
            let disk = PowerCutDisk::new();
            disk.create_dir_all(root).unwrap();
            replace(&*disk, root, "memory/x", b"old").unwrap();
            disk
        };
        let whole = made();
        let before = whole.operations();
        replace(&*whole, root, "memory/x", b"new and longer").unwrap();
        for at in 1..=whole.operations() - before {
            let disk = made();
            disk.power_off_at(before + at);
            // It fails where the power does.
            let _ = replace(&*disk, root, "memory/x", b"new and longer");
            let found = read_text(&*disk.cut(at), root, "memory/x", 100).unwrap();
            assert!(matches!(found.as_deref(), Some("old" | "new and longer")), "cut at {at}: {found:?}");
        }
    }

    #[test]
    fn lines_are_whole_across_pieces_and_too_long_ones_are_none() {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w")).unwrap();
        let (wide, long) = ("x".repeat(PIECE_BYTES), "y".repeat(LINE_BYTES_MAX + 1));
        let text = format!("a\n\n  \n{wide}\n{long}\nb\nlast");
        replace(&*disk, Path::new("/w"), "f", text.as_bytes()).unwrap();
        let file = disk.open(Path::new("/w/f"), Open::Read).unwrap();
        let mut lines = Vec::new();
        each_line(&*file, |line| {
            lines.push(String::from_utf8(line.to_vec()).unwrap());
            Ok(())
        })
        .unwrap();
        assert_eq!(lines, ["a", &wide, "b", "last"]);
    }
}
