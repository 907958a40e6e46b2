//! Files that appear whole, under a name that nobody has, or not at all.

use std::io;
use std::path::Path;

use supervision::ports::{Disk, DiskFile, Ids, Open};

/// Has `write` fill a file that gets the name `path` once everything is on the device. `AlreadyExists` when the name is
/// taken.
pub fn make<T>(
    disk: &dyn Disk,
    ids: &dyn Ids,
    path: &Path,
    write: impl FnOnce(&dyn DiskFile) -> io::Result<T>,
) -> io::Result<T> {
    match disk.stat(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {}
        Err(error) => return Err(error),
        Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
    }
    // No name of a transcript, so that it counts as none until it is whole.
    let half = path.with_extension(format!("jsonl.new-{}", ids.uuid_v7()));
    let written = fill(disk, &half, write).and_then(|made| disk.rename(&half, path).map(|()| made));
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
