//! Files of a workspace. All functions block. No part of the way is followed where it is a link, since tools may write in
//! the workspace.

use std::io;
use std::path::{Path, PathBuf};

use serde_json::{Map, Value};
use supervision::ports::{Disk, Open};

/// The largest record that is read, in bytes.
pub const RECORD_BYTES_MAX: u64 = 1 << 20;

/// The whole file, none when there is none. One of more than `bytes_max` bytes is not read.
pub fn read(disk: &dyn Disk, workspace: &Path, below: &Path, bytes_max: u64) -> io::Result<Option<Vec<u8>>> {
    let file = match disk.open_inside(workspace, below, Open::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error),
    };
    let length = file.length()?;
    if length > bytes_max {
        let name = below.display();
        let text = format!("{name} has {length} bytes; at most {bytes_max} are read");
        return Err(io::Error::new(io::ErrorKind::FileTooLarge, text));
    }
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let got = file.read_at(&mut bytes, 0)?;
    bytes.truncate(got);
    Ok(Some(bytes))
}

/// Whether what should be read is a directory, a link or a pipe, or too large, so that it never can be.
pub fn is_unfit(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::InvalidInput | io::ErrorKind::FileTooLarge)
}

/// Writes a file whole or not at all; it is on the device then.
pub fn write(disk: &dyn Disk, workspace: &Path, directory: &Path, name: &str, bytes: &[u8]) -> io::Result<()> {
    let place = workspace.join(directory);
    disk.create_dir_all(&place)?;
    let new = directory.join(format!(".{name}.new"));
    let file = disk.open_inside(workspace, &new, Open::Create)?;
    file.set_length(0)?;
    file.write_at(bytes, 0)?;
    file.sync_data()?;
    disk.rename(&workspace.join(new), &place.join(name))?;
    disk.sync_dir(&place)
}

/// Writes fields of a JSON object down; those that it has already stay as they are unless `over`. A file that is damaged is
/// made anew. Whoever calls sees to it that nobody else changes the file meanwhile.
pub fn merge(
    disk: &dyn Disk,
    workspace: &Path,
    directory: &Path,
    name: &str,
    fields: Map<String, Value>,
    over: bool,
) -> io::Result<()> {
    let before = read(disk, workspace, &directory.join(name), RECORD_BYTES_MAX)?;
    let mut record: Map<String, Value> =
        before.and_then(|bytes| serde_json::from_slice(&bytes).ok()).unwrap_or_default();
    for (key, value) in fields {
        if over || !record.contains_key(&key) {
            record.insert(key, value);
        }
    }
    let bytes = serde_json::to_vec_pretty(&record).map_err(io::Error::other)?;
    write(disk, workspace, directory, name, &bytes)
}

/// The names of the JSON files in a directory, sorted.
pub fn names(disk: &dyn Disk, place: &Path) -> io::Result<Vec<String>> {
    let paths = match disk.list(place) {
        Ok(paths) => paths,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    let name = |path: &PathBuf| path.file_name().and_then(|name| name.to_str()).map(str::to_owned);
    Ok(paths.iter().filter_map(name).filter(|name| name.ends_with(".json") && !name.starts_with('.')).collect())
}

/// Keeps the last `kept` JSON files of a directory, by their names.
pub fn prune(disk: &dyn Disk, place: &Path, kept: usize) -> io::Result<()> {
    let names = names(disk, place)?;
    let over = names.len().saturating_sub(kept);
    names.iter().take(over).try_for_each(|name| disk.remove(&place.join(name)))
}
