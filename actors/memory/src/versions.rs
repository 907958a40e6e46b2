//! The store of versions of the memory: `memory/versions.jsonl`. All functions block.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::PoisonError;

use domain::memory::FILES;
use domain::memory::versions::{BYTES_MAX, By, Contents, VERSIONS_MAX, Version, before};
use supervision::ports::{Disk, Open};

use crate::archive::{Archive, DIRECTORY};
use crate::files::{read_text, replace};

const VERSIONS_FILE: &str = "memory/versions.jsonl";
/// Bytes of one of the files: no more is shown to any model.
pub(crate) const FILE_BYTES_MAX: u64 = 256 * 1024;

/// Of a version that is made.
pub(crate) struct Mark {
    /// Who makes it.
    pub(crate) by: By,
    /// The session, or what is undone.
    pub(crate) note: Option<String>,
    /// Now, ms since 1970.
    pub(crate) now_ms: u64,
    /// For its id.
    pub(crate) random: u64,
}

// === impl Archive ===

impl Archive {
    /// All versions, the oldest first. What cannot be read is left out.
    pub fn versions(&self, disk: &dyn Disk) -> io::Result<Vec<Version>> {
        let text = read_text(disk, &self.workspace, VERSIONS_FILE, 2 * BYTES_MAX)?.unwrap_or_default();
        Ok(text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect())
    }

    /// What the files say now.
    pub fn contents(&self, disk: &dyn Disk) -> io::Result<Contents> {
        let read = |path: &str| Ok((path.to_owned(), read_text(disk, &self.workspace, path, FILE_BYTES_MAX)?));
        FILES.into_iter().map(read).collect()
    }

    /// Keeps what the files say, unless the newest version says the same. On the device when this returns.
    pub(crate) fn keep_version(&self, disk: &dyn Disk, mark: Mark) -> io::Result<Option<Version>> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let files = self.contents(disk)?;
        self.add_version(disk, files, mark)
    }

    /// Undoes a version: the files say again what they said before it. Also that is a version, and so is what they said
    /// until now.
    pub(crate) fn undo(&self, disk: &dyn Disk, id: &str, (now_ms, randoms): (u64, [u64; 2])) -> io::Result<String> {
        let _alone = self.writing.lock().unwrap_or_else(PoisonError::into_inner);
        let [first, second] = randoms;
        let edited = Mark { by: By::Edit, note: None, now_ms, random: first };
        self.add_version(disk, self.contents(disk)?, edited)?;
        let versions = self.versions(disk)?;
        let wanted = before(&versions, id).map_err(io::Error::other)?;
        let Some(wanted) = versions.get(wanted) else { return Ok(String::new()) };
        for path in FILES {
            match wanted.files.get(path) {
                Some(Some(text)) => replace(disk, &self.workspace, path, text.as_bytes())?,
                Some(None) => remove(disk, &self.workspace, path)?,
                None => {}
            }
        }
        let mark = Mark { by: By::Restore, note: Some(id.trim().to_owned()), now_ms, random: second };
        let made = self.add_version(disk, self.contents(disk)?, mark)?;
        Ok(match made {
            Some(made) => {
                format!("The memory says again what it said before version {}. This is version {}.", id.trim(), made.id)
            }
            None => "The memory says that already. Nothing was changed.".to_owned(),
        })
    }

    fn add_version(&self, disk: &dyn Disk, files: Contents, mark: Mark) -> io::Result<Option<Version>> {
        let mut versions: VecDeque<Version> = self.versions(disk)?.into();
        if versions.back().is_some_and(|newest| newest.files == files) {
            return Ok(None);
        }
        let version = Version {
            id: format!("{:08x}", mark.random & 0xffff_ffff),
            timestamp: self.time(mark.now_ms),
            by: mark.by,
            note: mark.note,
            files,
        };
        versions.push_back(version.clone());
        let mut lines: VecDeque<String> =
            versions.iter().map(serde_json::to_string).collect::<Result<_, _>>().map_err(io::Error::other)?;
        let bytes = |lines: &VecDeque<String>| lines.iter().map(|line| line.len() as u64 + 1).sum::<u64>();
        while lines.len() > 1 && (lines.len() > VERSIONS_MAX || bytes(&lines) > BYTES_MAX) {
            lines.pop_front();
        }
        let text: String = lines.iter().flat_map(|line| [line.as_str(), "\n"]).collect();
        replace(disk, &self.workspace, VERSIONS_FILE, text.as_bytes())?;
        Ok(Some(version))
    }
}

/// Takes a file away, if it is there and no link.
fn remove(disk: &dyn Disk, root: &Path, path: &str) -> io::Result<()> {
    match disk.open_inside(root, Path::new(path), Open::Read) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
        Ok(_) => {}
    }
    disk.remove(&root.join(path))?;
    disk.sync_dir(&if path.contains('/') { root.join(DIRECTORY) } else { root.to_owned() })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use jiff::tz::TimeZone;
    use supervision::memory::PowerCutDisk;

    use super::*;

    fn archive() -> (Arc<PowerCutDisk>, Archive) {
        let disk = PowerCutDisk::new();
        disk.create_dir_all(Path::new("/w")).unwrap();
        (disk, Archive::new("/w".into(), TimeZone::UTC))
    }

    fn mark(random: u64) -> Mark {
        Mark { by: By::Dream, note: None, now_ms: 0, random }
    }

    fn write(disk: &dyn Disk, text: &str) {
        replace(disk, Path::new("/w"), "memory/MEMORY.md", text.as_bytes()).unwrap();
    }

    fn memory(disk: &dyn Disk) -> Option<String> {
        read_text(disk, Path::new("/w"), "memory/MEMORY.md", 100).unwrap()
    }

    #[test]
    fn what_was_said_before_comes_back_and_nothing_of_it_is_lost() {
        let (disk, archive) = archive();
        assert!(archive.keep_version(&*disk, mark(0xaaaa_0001)).unwrap().is_some());
        write(&*disk, "one");
        assert!(archive.keep_version(&*disk, mark(0xaaaa_0002)).unwrap().is_some());
        assert_eq!(archive.keep_version(&*disk, mark(0xaaaa_0003)).unwrap(), None, "it says the same");
        write(&*disk, "two, by hand");
        archive.undo(&*disk, "aaaa0002", (0, [0xbbbb_0001, 0xbbbb_0002])).unwrap();
        assert_eq!(memory(&*disk), None, "there was none before");
        let versions = archive.versions(&*disk).unwrap();
        let ids: Vec<(&str, By)> = versions.iter().map(|version| (version.id.as_str(), version.by)).collect();
        assert_eq!(
            ids,
            [("aaaa0001", By::Dream), ("aaaa0002", By::Dream), ("bbbb0001", By::Edit), ("bbbb0002", By::Restore)]
        );
        archive.undo(&*disk, "bbbb0002", (0, [1, 2])).unwrap();
        assert_eq!(memory(&*disk).as_deref(), Some("two, by hand"), "the undoing is undone");
        let refused = archive.undo(&*disk, "aaaa0001", (0, [3, 4])).unwrap_err().to_string();
        assert!(refused.contains("oldest"), "{refused}");
    }

    #[test]
    fn the_newest_hundred_stay() {
        let (disk, archive) = archive();
        for number in 0..u64::try_from(VERSIONS_MAX).unwrap() + 5 {
            write(&*disk, &number.to_string());
            archive.keep_version(&*disk, mark(number)).unwrap();
        }
        let versions = archive.versions(&*disk).unwrap();
        assert_eq!((versions.len(), versions[0].id.as_str()), (VERSIONS_MAX, "00000005"));
    }
}
