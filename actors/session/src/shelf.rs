//! Transcripts that are no session's any more.
//!
//! | file | what |
//! |---|---|
//! | `archive/<stem>.jsonl.archived.<time>` | an archived session; the newest one of a key can be taken back |
//! | `archive/<stem>.jsonl` | a stateless request |
//! | `<stem>.jsonl.deleted.<time>` | a tombstone |
//!
//! `<time>` is `2026-11-29T20-53-29.123Z`, as in file names of OpenClaw. None of these is listed as a session. Everything
//! here blocks, but for the pure naming.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use domain::ids::SessionKey;
use domain::retention::PutAway;
use domain::stem::stem;
use domain::time::{iso_ms, parse_iso_ms};
use protocol::journal::{Move, Moving, Shelf};
use protocol::session::{NotRestored, Restored};
use protocol::transcripts::{Archived, ArchivedPage};
use supervision::ports::Disk;

use crate::transcripts::Transcripts;

/// The directory of archived transcripts, below that of the sessions.
pub const ARCHIVE: &str = "archive";

/// What is remembered of the archive.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// The newest file of each stem, once the directory was read; about 150 bytes for each archived session.
    newest: Mutex<Option<BTreeMap<String, String>>>,
    /// When the last transcript was closed: no two have the same time in their names.
    last_ms: AtomicU64,
}

/// What the name of a file that was put away says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Name<'a> {
    /// The stem of its key.
    pub stem: &'a str,
    /// Where it belongs.
    pub shelf: Shelf,
    /// When it was put away, ms since 1970.
    pub at_ms: u64,
}

/// The file name, without a directory, of the transcript of `stem` at `place`.
pub fn name(stem: &str, place: Move) -> String {
    format!("{stem}.jsonl.{}.{}", word(place.to), iso_ms(place.at_ms).replace(':', "-"))
}

/// Reads a name that [`name`] made.
pub fn parse(name: &str) -> Option<Name<'_>> {
    let (stem, rest) = name.rsplit_once(".jsonl.")?;
    let (kind, time) = rest.split_once('.')?;
    let shelf = [Shelf::Archive, Shelf::Deleted].into_iter().find(|shelf| word(*shelf) == kind)?;
    let (day, clock) = time.split_once('T')?;
    let at_ms = parse_iso_ms(&format!("{day}T{}", clock.replace('-', ":")))?;
    Some(Name { stem, shelf, at_ms })
}

fn word(shelf: Shelf) -> &'static str {
    match shelf {
        Shelf::Archive => "archived",
        Shelf::Deleted => "deleted",
    }
}

// === impl Transcripts ===

impl Transcripts {
    /// The time of a transcript that ends now.
    pub(crate) fn closing_at(&self, now_ms: u64) -> u64 {
        let next = |last: u64| Some(now_ms.max(last.saturating_add(1)));
        let last = self.shelf.last_ms.fetch_update(Ordering::Relaxed, Ordering::Relaxed, next);
        last.ok().and_then(next).unwrap_or(now_ms)
    }

    /// Puts the file of an ended transcript where it belongs, unless that was done before; the answer is its name below
    /// the directory of the sessions, `None` when there was no file.
    pub(crate) fn shelve(&self, moving: &Moving) -> io::Result<Option<String>> {
        let (from, stem) = (self.file_of(&moving.key), stem(&moving.key));
        let name = name(&stem, moving.place);
        let file = match moving.place.to {
            Shelf::Archive => format!("{ARCHIVE}/{name}"),
            Shelf::Deleted => name.clone(),
        };
        let to = self.dir.join(&file);
        // What lies at its old place then is the next transcript of its key.
        if is_there(&*self.disk, &to)? {
            return Ok(Some(file));
        }
        if !is_there(&*self.disk, &from)? {
            return Ok(None);
        }
        let into = to.parent().unwrap_or(&self.dir);
        self.disk.create_dir_all(into)?;
        self.disk.rename_new(&from, &to)?;
        if into != self.dir {
            self.disk.sync_dir(into)?;
        }
        self.disk.sync_dir(&self.dir)?;
        self.index().ended(&moving.key);
        if moving.place.to == Shelf::Archive {
            self.with_newest(|newest| newest.insert(stem, name))?;
        }
        Ok(Some(file))
    }

    /// Takes the newest archived transcript of `key` back, whose place must be free.
    pub(crate) fn restore(&self, key: &SessionKey) -> Result<Restored, NotRestored> {
        let failed = |error: io::Error| NotRestored::Failed(error.to_string());
        let to = self.file_of(key);
        if is_there(&*self.disk, &to).map_err(failed)? {
            return Err(NotRestored::InUse);
        }
        let name = self.with_newest(|newest| newest.get(&stem(key)).cloned()).map_err(failed)?;
        let name = name.ok_or(NotRestored::Nothing)?;
        let archive = self.dir.join(ARCHIVE);
        self.disk.rename_new(&archive.join(&name), &to).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists { NotRestored::InUse } else { failed(error) }
        })?;
        self.forget_archive();
        self.disk.sync_dir(&self.dir).and_then(|()| self.disk.sync_dir(&archive)).map_err(failed)?;
        Ok(Restored { file: format!("{ARCHIVE}/{name}") })
    }

    /// The newest archived transcript of `key`, as the header of the one after it names it.
    pub(crate) fn newest_archive(&self, key: &SessionKey) -> io::Result<Option<Arc<str>>> {
        let name = self.with_newest(|newest| newest.get(&stem(key)).cloned())?;
        Ok(name.map(|name| self.dir.join(ARCHIVE).join(name).to_string_lossy().into()))
    }

    /// The file in the archive that shows what `key` was.
    pub(crate) fn archived_file(&self, key: &SessionKey) -> io::Result<Option<PathBuf>> {
        let stem = stem(key);
        let name = self.with_newest(|newest| newest.get(&stem).cloned())?;
        Ok(Some(self.dir.join(ARCHIVE).join(name.unwrap_or_else(|| format!("{stem}.jsonl")))))
    }

    /// Files were taken out of the archive: its directory is read again when it is needed.
    pub(crate) fn forget_archive(&self) {
        *self.shelf.newest.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Looks at the newest archived file of each stem; reads the directory the first time.
    fn with_newest<T>(&self, look: impl FnOnce(&mut BTreeMap<String, String>) -> T) -> io::Result<T> {
        let mut known = self.shelf.newest.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(newest) = known.as_mut() {
            return Ok(look(newest));
        }
        let mut newest = BTreeMap::new();
        for path in names_in(&*self.disk, &self.dir.join(ARCHIVE))? {
            // In the order of their names those of one stem come by time.
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && let Some(Name { stem, shelf: Shelf::Archive, .. }) = parse(name)
            {
                newest.insert(stem.to_owned(), name.to_owned());
            }
        }
        Ok(look(known.insert(newest)))
    }

    pub(crate) fn archived_page(&self, after: Option<&str>, limit: usize) -> io::Result<ArchivedPage> {
        let mut page = ArchivedPage::default();
        for path in names_in(&*self.disk, &self.dir.join(ARCHIVE))? {
            let Some(file) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if after.is_some_and(|after| file <= after) {
                continue;
            }
            let parsed = parse(file);
            let Some(stem) = parsed.map(|name| name.stem).or_else(|| file.strip_suffix(".jsonl")) else { continue };
            let Some((key, row)) = self.row_of_stem(&path, stem) else { continue };
            if page.items.len() == limit {
                page.next = page.items.last().map(|last| last.file.clone());
                break;
            }
            let archived_ms = parsed.map(|name| name.at_ms);
            page.items.push(Archived { summary: row.summary(&key), file: file.to_owned(), archived_ms });
        }
        Ok(page)
    }

    /// All files that are no session's any more.
    pub(crate) fn shelved(&self) -> io::Result<Vec<PutAway>> {
        let mut shelved = Vec::new();
        for path in names_in(&*self.disk, &self.dir)? {
            if let Some(name) = path.file_name().and_then(|name| name.to_str())
                && let Some(Name { shelf: Shelf::Deleted, at_ms, .. }) = parse(name)
            {
                let bytes = self.disk.stat(&path)?.length;
                shelved.push(PutAway { file: name.to_owned(), at_ms, bytes });
            }
        }
        for path in names_in(&*self.disk, &self.dir.join(ARCHIVE))? {
            let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
            let parsed = parse(name).filter(|parsed| parsed.shelf == Shelf::Archive);
            if parsed.is_none() && !name.ends_with(".jsonl") {
                continue;
            }
            let stat = self.disk.stat(&path)?;
            let (_, _, modified_ns, _) = stat.stamp;
            let at_ms = parsed.map_or(u64::try_from(modified_ns / 1_000_000).unwrap_or(0), |name| name.at_ms);
            let file = format!("{ARCHIVE}/{name}");
            shelved.push(PutAway { file, at_ms, bytes: stat.length });
        }
        Ok(shelved)
    }

    /// Removes a file that [`shelved`](Self::shelved) named.
    pub(crate) fn remove_shelved(&self, file: &str) -> io::Result<()> {
        let name = file.strip_prefix("archive/").unwrap_or(file);
        let ours = parse(name).is_some() || (name != file && name.ends_with(".jsonl"));
        if !ours || name.contains('/') {
            return Err(io::ErrorKind::InvalidInput.into());
        }
        self.disk.remove(&self.dir.join(file))?;
        if name != file {
            self.forget_archive();
        }
        Ok(())
    }
}

fn is_there(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match disk.stat(path) {
        Ok(_) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(error) => Err(error),
    }
}

fn names_in(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<PathBuf>> {
    match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Vec::new()),
        listed => listed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_read_as_they_are_written() {
        let at_ms = 1_764_449_609_123;
        // The key `a:jsonl:b` has a stem with the words in it, too.
        for stem in ["api.7", "a.jsonl.b", "a.jsonl.deleted.b"] {
            for shelf in [Shelf::Archive, Shelf::Deleted] {
                let name = name(stem, Move { to: shelf, at_ms });
                assert_eq!(parse(&name), Some(Name { stem, shelf, at_ms }), "{name}");
            }
        }
        assert_eq!(name("api.7", Move { to: Shelf::Deleted, at_ms }), "api.7.jsonl.deleted.2025-11-29T20-53-29.123Z");
        for other in
            ["api.7.jsonl", "api.7.jsonl.damaged-1", "a.jsonl.deleted.today", "a.jsonl.reset.2025-11-29T20-53-29.123Z"]
        {
            assert_eq!(parse(other), None, "{other}");
        }
    }
}
