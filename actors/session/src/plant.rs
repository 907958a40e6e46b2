//! Makes the files that a workspace has when nobody wrote them yet.
//!
//! **Invariant:** whatever is there stays as it is, byte for byte; what is made appears whole or not at all.

use std::io;
use std::path::Path;

use domain::prompt::TEMPLATES;
use supervision::ports::{Disk, Open};

/// Makes what is missing. What cannot be made is only warned of: nothing depends on it. Blocks.
pub fn plant(disk: &dyn Disk, workspace: &Path) {
    for (name, text) in TEMPLATES {
        let path = workspace.join(name);
        let missing = |error: &io::Error| error.kind() == io::ErrorKind::NotFound;
        if !disk.stat(&path).as_ref().is_err_and(missing) {
            continue;
        }
        if let Err(error) = make(disk, &path, text) {
            tracing::warn!(path = %path.display(), %error, "a file of the workspace cannot be made");
        }
    }
}

/// Written beside, synced, then given its name unless somebody has it, be it a link that leads nowhere.
fn make(disk: &dyn Disk, path: &Path, text: &str) -> io::Result<()> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
    disk.create_dir_all(parent)?;
    let beside = parent.join(format!(".{}.making", name.to_string_lossy()));
    let file = disk.open(&beside, Open::Create)?;
    file.set_length(0)?;
    file.write_at(text.as_bytes(), 0)?;
    file.sync_data()?;
    match disk.rename_new(&beside, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => disk.remove(&beside),
        other => other,
    }?;
    disk.sync_dir(parent)
}

#[cfg(test)]
mod tests {
    use supervision::memory::PowerCutDisk;

    use super::*;

    #[test]
    fn what_is_missing_is_made_and_what_is_there_stays() {
        let (disk, workspace) = (PowerCutDisk::new(), Path::new("/w"));
        disk.create_dir_all(workspace).unwrap();
        let soul = workspace.join("SOUL.md");
        disk.open(&soul, Open::CreateNew).unwrap().write_at(b"mine", 0).unwrap();
        plant(&*disk, workspace);
        for (name, text) in TEMPLATES {
            let expected = if *name == "SOUL.md" { "mine" } else { text };
            assert_eq!(disk.read(&workspace.join(name)).unwrap(), expected.as_bytes(), "{name}");
        }
        let before = disk.operations();
        plant(&*disk, workspace);
        assert_eq!(disk.operations(), before, "a second start writes nothing");
    }

    #[test]
    fn a_file_is_whole_or_not_there_wherever_the_power_fails() {
        let workspace = Path::new("/w");
        let made = || {
            let disk = PowerCutDisk::new();
            disk.create_dir_all(workspace).unwrap();
            disk
        };
        let whole = made();
        let before = whole.operations();
        plant(&*whole, workspace);
        for at in 1..=whole.operations() - before {
            let disk = made();
            disk.power_off_at(before + at);
            plant(&*disk, workspace);
            let found = disk.cut(at);
            for (name, text) in TEMPLATES {
                let read = found.read(&workspace.join(name));
                assert!(read.is_err() || read.unwrap() == text.as_bytes(), "{name}, cut at {at}");
            }
            plant(&*found, workspace);
            for (name, text) in TEMPLATES {
                assert_eq!(found.read(&workspace.join(name)).unwrap(), text.as_bytes(), "{name}, cut at {at}");
            }
        }
    }
}
