//! Files that appear whole, under a name that nobody has, or not at all.

use std::io;
use std::path::Path;

use protocol::edit::EditError;
use supervision::ports::{Disk, DiskFile, Ids, Open, is_space};

/// The same as [`make`] for a transcript: an empty one is no session, and nothing is lost with it.
pub fn make_transcript<T>(
    disk: &dyn Disk,
    ids: &dyn Ids,
    path: &Path,
    write: impl FnOnce(&dyn DiskFile) -> io::Result<T>,
) -> io::Result<T> {
    if disk.stat(path).is_ok_and(|there| !there.directory && there.length == 0) {
        disk.remove(path)?;
    }
    make(disk, ids, path, write)
}

/// What `what` that cannot be written is told as.
pub fn unwritten(error: &io::Error, what: &str) -> EditError {
    let why = format!("{what} cannot be written: {error}");
    if is_space(error) { EditError::Disk(why) } else { EditError::Io(why) }
}

/// Has `write` fill a file that gets the name `path` once everything is on the device. `AlreadyExists` when the name is
/// taken.
pub fn make<T>(
    disk: &dyn Disk,
    ids: &dyn Ids,
    path: &Path,
    write: impl FnOnce(&dyn DiskFile) -> io::Result<T>,
) -> io::Result<T> {
    // Spares the work when it is known to be for nothing; what counts is the claim at the end.
    match disk.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
    }
    // No name of a transcript, so that it counts as none until it is whole.
    let half = path.with_extension(format!("jsonl.new-{}", ids.uuid_v7()));
    let written = fill(disk, &half, write).and_then(|made| disk.rename_new(&half, path).map(|()| made));
    if written.is_err() {
        // Whoever tidies up finds it by its name should this fail too.
        let _ = disk.remove(&half);
    }
    let made = written?;
    disk.sync_dir(path.parent().unwrap_or(Path::new(".")))?;
    Ok(made)
}

fn fill<T>(disk: &dyn Disk, half: &Path, write: impl FnOnce(&dyn DiskFile) -> io::Result<T>) -> io::Result<T> {
    let file = disk.open(half, Open::CreateNew)?;
    let made = write(&*file)?;
    file.sync_data()?;
    Ok(made)
}

#[cfg(test)]
mod tests {
    use supervision::memory::{PowerCutDisk, SeededIds};

    use super::*;

    #[test]
    fn of_two_that_are_written_at_once_the_first_has_the_name_and_keeps_it() {
        let (disk, ids, path) = (PowerCutDisk::new(), SeededIds::new(1), Path::new("/a.jsonl"));
        let late = make(&*disk, &ids, path, |file| {
            make(&*disk, &ids, path, |file| file.write_at(b"first", 0)).unwrap();
            file.write_at(b"late", 0)
        });
        assert_eq!(late.unwrap_err().kind(), io::ErrorKind::AlreadyExists);
        assert_eq!(disk.read(path).unwrap(), b"first");
        assert_eq!(disk.list(Path::new("/")).unwrap(), [path], "no half file stays");
    }
}
