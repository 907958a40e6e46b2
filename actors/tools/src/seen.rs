//! What Dream has read of the files that it may write: it writes none anew that somebody else has changed since, also if
//! that was between its reading and its writing.
//!
//! Other sessions write as they like. One Dream runs at a time, so that what one before has read is forgotten; one that a
//! restart of the process has cut reads anew.

use std::collections::BTreeMap;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use domain::ids::SessionKey;
use rustix::fs::Stat;

/// Files of which that is known; of another, an older one is forgotten, which is to be read again then.
const FILES_MAX: usize = 64;

/// The table, shared by all arbiters of a process.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    read: Mutex<Option<(SessionKey, BTreeMap<PathBuf, Version>)>>,
    /// Held while one of the files is written: of two that write, one comes first.
    pub(crate) writing: Mutex<()>,
}

/// What tells a file from what it was before: device, inode, length, time of the last change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Version(u64, u64, i64, (i64, u64));

// === impl Seen ===

impl Seen {
    /// Notes that the session knows that version of a file.
    pub(crate) fn note(&self, key: &SessionKey, path: &Path, version: Version) {
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        let files = match &mut *read {
            Some((own, files)) if own == key => files,
            other => &mut other.insert((key.clone(), BTreeMap::new())).1,
        };
        if files.len() >= FILES_MAX && !files.contains_key(path) {
            files.pop_first();
        }
        files.insert(path.to_owned(), version);
    }

    /// Whether it does.
    pub(crate) fn knows(&self, key: &SessionKey, path: &Path, version: Version) -> bool {
        let read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        read.as_ref().is_some_and(|(own, files)| own == key && files.get(path) == Some(&version))
    }
}

// === impl Version ===

impl Version {
    /// Of an open file.
    pub(crate) fn of(file: impl AsFd) -> std::io::Result<Self> {
        Ok(Self::from(&rustix::fs::fstat(file)?))
    }
}

impl From<&Stat> for Version {
    fn from(stat: &Stat) -> Self {
        Self(stat.st_dev, stat.st_ino, stat.st_size, (stat.st_mtime, stat.st_mtime_nsec))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_version_is_known_to_the_session_that_read_it_until_another_dreams() {
        let key = |name: &str| SessionKey::new(name).unwrap();
        let (one, two) = (Version(1, 1, 1, (1, 1)), Version(1, 2, 1, (1, 1)));
        let (seen, path) = (Seen::default(), Path::new("/w/memory/MEMORY.md"));
        seen.note(&key("dream:1"), path, one);
        assert!(seen.knows(&key("dream:1"), path, one));
        assert!(!seen.knows(&key("dream:1"), path, two), "it was changed");
        assert!(!seen.knows(&key("dream:2"), path, one), "somebody else read it");
        for number in 0..FILES_MAX {
            seen.note(&key("dream:2"), Path::new(&format!("/w/{number:03}")), two);
        }
        assert!(!seen.knows(&key("dream:1"), path, one));
        assert!(seen.knows(&key("dream:2"), Path::new("/w/000"), two));
        seen.note(&key("dream:2"), path, one);
        assert!(!seen.knows(&key("dream:2"), Path::new("/w/000"), two) && seen.knows(&key("dream:2"), path, one));
    }
}
