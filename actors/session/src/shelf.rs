//! Transcripts that are no session's any more.
//!
//! | file | what |
//! |---|---|
//! | `archive/<stem>.jsonl.archived.<time>` | an archived session; the newest one of a key can be taken back |
//! | `archive/<stem>.jsonl` | a stateless request |
//! | `<stem>.jsonl.deleted.<time>` | a tombstone |
//!
//! `<time>` is `2026-11-29T20-53-29.123Z`, as in file names of OpenClaw. None of these is listed as a session. The ids of
//! messages that were handled in them stay known for as long as they are there. Everything here blocks, but for the pure
//! naming.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use domain::chat::{StopReason, Usage};
use domain::ids::{SessionKey, TurnId};
use domain::prompt::CANCELLED_NOTICE;
use domain::retention::PutAway;
use domain::stem::stem;
use domain::time::{iso_ms, parse_iso_ms};
use protocol::journal::{Move, Moving, Shelf};
use protocol::session::{NotRestored, Restored, TurnRecord};
use protocol::transcripts::{Ended, EndedPage};
use protocol::turn::TurnResult;
use supervision::ports::{Disk, Open};

use crate::context::record;
use crate::transcripts::Transcripts;
use crate::{file, reading};

/// The directory of archived transcripts, below that of the sessions.
pub const ARCHIVE: &str = "archive";

/// Closed transcripts of one key that are looked through for a message id.
const CLOSED_FILES_MAX: usize = 100;

/// What is remembered of the files that were put away.
#[derive(Debug, Default)]
pub(crate) struct Known {
    /// Those of ended sessions, once the directories were read.
    closed: Mutex<Option<Closed>>,
    /// When the last transcript was closed: no two have the same time in their names.
    last_ms: AtomicU64,
    /// Whether the names of all files are on the device. The process before may have left some that are not.
    synced: Mutex<bool>,
}

/// The files of ended sessions below the directory of the sessions, by stem, each stem's oldest first; about 150 bytes for
/// each.
#[derive(Debug, Default)]
pub struct Closed(BTreeMap<String, Vec<(u64, String)>>);

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

// === impl Closed ===

impl Closed {
    /// Reads the directories. Blocks.
    pub fn read(disk: &dyn Disk, dir: &Path) -> io::Result<Self> {
        let mut closed = Self::default();
        for (path, of) in [(dir.to_owned(), Shelf::Deleted), (dir.join(ARCHIVE), Shelf::Archive)] {
            for path in names_in(disk, &path)? {
                if let Some(name) = path.file_name().and_then(|name| name.to_str())
                    && let Some(Name { stem, shelf, at_ms }) = parse(name)
                    && shelf == of
                {
                    closed.add(stem, at_ms, below(shelf, name));
                }
            }
        }
        Ok(closed)
    }

    fn add(&mut self, stem: &str, at_ms: u64, file: String) {
        let files = self.0.entry(stem.to_owned()).or_default();
        files.insert(files.partition_point(|(at, _)| *at <= at_ms), (at_ms, file));
    }

    /// How the sessions of a stem ended, and where their files lie below the directory of the sessions, the last one first.
    pub fn of(&self, stem: &str) -> impl Iterator<Item = (Shelf, &str)> {
        self.files(stem).iter().rev().map(|(_, file)| {
            let shelf = if file.starts_with("archive/") { Shelf::Archive } else { Shelf::Deleted };
            (shelf, &**file)
        })
    }

    /// Those of a stem, oldest first.
    fn files(&self, stem: &str) -> &[(u64, String)] {
        self.0.get(stem).map(Vec::as_slice).unwrap_or_default()
    }

    /// The name of the newest one in the archive, without its directory.
    fn newest_archived(&self, stem: &str) -> Option<String> {
        let archived = |(_, file): &(u64, String)| Some(file.strip_prefix("archive/")?.to_owned());
        self.files(stem).iter().rev().find_map(archived)
    }
}

/// Where a file that was put away lies, below the directory of the sessions.
fn below(shelf: Shelf, name: &str) -> String {
    match shelf {
        Shelf::Archive => format!("{ARCHIVE}/{name}"),
        Shelf::Deleted => name.to_owned(),
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

    /// Completes the file of an ended transcript and puts it where it belongs, unless that was done before; the answer is
    /// its name below the directory of the sessions, `None` when there was no file.
    pub(crate) fn shelve(&self, moving: &Moving) -> io::Result<Option<String>> {
        self.put_in_place(moving).map_err(|error| {
            let to = match moving.place.to {
                Shelf::Archive => self.dir.join(ARCHIVE),
                Shelf::Deleted => self.dir.clone(),
            };
            io::Error::new(error.kind(), format!("{}: {error}", to.display()))
        })
    }

    fn put_in_place(&self, moving: &Moving) -> io::Result<Option<String>> {
        let (from, stem) = (self.file_of(&moving.key), stem(&moving.key));
        let file = below(moving.place.to, &name(&stem, moving.place));
        let to = self.dir.join(&file);
        if is_there(&*self.disk, &to)? {
            // What lies at its old place then is the next transcript of its key. Whether the move reached the device
            // nobody knows.
            self.sync_move(&to)?;
            return Ok(Some(file));
        }
        if moving.lines.is_empty() && !is_there(&*self.disk, &from)? {
            return Ok(None);
        }
        // Afterwards nobody has its lines but the file.
        file::open(&*self.disk, &from, moving.view.length, &moving.lines, moving.place.at_ms)?;
        self.disk.open(&from, Open::Write)?.sync_data()?;
        let into = to.parent().unwrap_or(&self.dir);
        self.disk.create_dir_all(into)?;
        // Whoever finds no file any more finds it among the closed ones.
        self.with_closed(|closed| {
            self.disk.rename_new(&from, &to)?;
            closed.add(&stem, moving.place.at_ms, file.clone());
            self.sync_move(&to)
        })??;
        self.index().ended(&moving.key);
        Ok(Some(file))
    }

    /// The files of ended sessions of `key`, oldest first, with the times of their ends.
    pub(crate) fn closed_files(&self, key: &SessionKey) -> io::Result<Vec<(u64, PathBuf)>> {
        self.with_closed(|closed| {
            let all = closed.files(&stem(key));
            let last = all.get(all.len().saturating_sub(CLOSED_FILES_MAX)..).unwrap_or(all);
            last.iter().map(|(at_ms, file)| (*at_ms, self.dir.join(file))).collect()
        })
    }

    /// What the ended session of `key` to which `turn` belonged says of it.
    pub(crate) fn closed_turn(&self, key: &SessionKey, turn: TurnId) -> io::Result<Option<TurnRecord>> {
        let accepted_ms =
            turn.0.get_timestamp().map_or(0, |at| at.to_unix().0 * 1000 + u64::from(at.to_unix().1) / 1_000_000);
        let ended = |(at_ms, _): &(u64, PathBuf)| *at_ms >= accepted_ms;
        let Some((_, path)) = self.closed_files(key)?.into_iter().find(ended) else { return Ok(None) };
        let (_, source) = file::peek(&*self.disk, &path, 0, &[])?;
        Ok(match record(&reading::read_turn(&source, turn)?, turn) {
            // What waited when its session was deleted ended with it, without an entry of its own.
            None if shelf_of(&path) == Some(Shelf::Deleted) => Some(TurnRecord::Ended {
                result: TurnResult::Cancelled,
                into: None,
                text: CANCELLED_NOTICE.to_owned(),
                stop: StopReason::Aborted,
                usage: Usage::default(),
                model: String::new(),
            }),
            None | Some(TurnRecord::Open) => None,
            ended @ Some(TurnRecord::Ended { .. }) => ended,
        })
    }

    /// Makes durable that a file was moved to or from its place on a shelf.
    fn sync_move(&self, shelved: &Path) -> io::Result<()> {
        if let Some(into) = shelved.parent().filter(|into| *into != self.dir) {
            self.disk.sync_dir(into)?;
        }
        self.disk.sync_dir(&self.dir)
    }

    /// Makes durable what the files are called, if that is not certain. A conversation must not go on in a file whose name
    /// a power cut may undo: what is added to it would then stand alone.
    pub(crate) fn sync_names(&self) -> io::Result<()> {
        let mut synced = self.shelf.synced.lock().unwrap_or_else(PoisonError::into_inner);
        if *synced {
            return Ok(());
        }
        for dir in [&self.dir, &self.dir.join(ARCHIVE)] {
            match self.disk.sync_dir(dir) {
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                done => done?,
            }
        }
        *synced = true;
        Ok(())
    }

    /// Takes the newest archived transcript of `key` back, whose place must be free. It is durable after [`sync_names`].
    ///
    /// [`sync_names`]: Self::sync_names
    pub(crate) fn restore(&self, key: &SessionKey) -> Result<Restored, NotRestored> {
        let failed = |error: io::Error| NotRestored::Failed(error.to_string());
        let to = self.file_of(key);
        let there = match self.disk.stat(&to) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => None,
            there => Some(there.map_err(failed)?),
        };
        if there.is_some_and(|there| there.directory || there.length > 0) {
            return Err(NotRestored::InUse);
        }
        let name = self.with_closed(|closed| closed.newest_archived(&stem(key))).map_err(failed)?;
        let name = name.ok_or(NotRestored::Nothing)?;
        let archive = self.dir.join(ARCHIVE);
        if there.is_some() {
            // An empty file is no session, and nothing is lost with it.
            self.disk.remove(&to).map_err(failed)?;
        }
        let mut synced = self.shelf.synced.lock().unwrap_or_else(PoisonError::into_inner);
        self.disk.rename_new(&archive.join(&name), &to).map_err(|error| {
            if error.kind() == io::ErrorKind::AlreadyExists { NotRestored::InUse } else { failed(error) }
        })?;
        *synced = false;
        drop(synced);
        self.forget_closed();
        Ok(Restored { file: format!("{ARCHIVE}/{name}") })
    }

    /// The newest archived transcript of `key`, as the header of the one after it names it.
    pub(crate) fn newest_archive(&self, key: &SessionKey) -> io::Result<Option<Arc<str>>> {
        let name = self.with_closed(|closed| closed.newest_archived(&stem(key)))?;
        Ok(name.map(|name| self.dir.join(ARCHIVE).join(name).to_string_lossy().into()))
    }

    /// The file in the archive that shows what `key` was.
    pub(crate) fn archived_file(&self, key: &SessionKey) -> io::Result<Option<PathBuf>> {
        let stem = stem(key);
        let name = self.with_closed(|closed| closed.newest_archived(&stem))?;
        Ok(Some(self.dir.join(ARCHIVE).join(name.unwrap_or_else(|| format!("{stem}.jsonl")))))
    }

    /// Files were taken out: the directories are read again when it is needed.
    pub(crate) fn forget_closed(&self) {
        *self.shelf.closed.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    /// Looks at the files of ended sessions; reads the directories the first time.
    fn with_closed<T>(&self, look: impl FnOnce(&mut Closed) -> T) -> io::Result<T> {
        let mut known = self.shelf.closed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(closed) = known.as_mut() {
            return Ok(look(closed));
        }
        Ok(look(known.insert(Closed::read(&*self.disk, &self.dir)?)))
    }

    pub(crate) fn ended_page(&self, shelf: Shelf, after: Option<&str>, limit: usize) -> io::Result<EndedPage> {
        let dir = match shelf {
            Shelf::Archive => self.dir.join(ARCHIVE),
            Shelf::Deleted => self.dir.clone(),
        };
        let mut page = EndedPage::default();
        for path in names_in(&*self.disk, &dir)? {
            let Some(file) = path.file_name().and_then(|name| name.to_str()) else { continue };
            if after.is_some_and(|after| file <= after) {
                continue;
            }
            let parsed = parse(file).filter(|name| name.shelf == shelf);
            let request = || file.strip_suffix(".jsonl").filter(|_| shelf == Shelf::Archive);
            let Some(stem) = parsed.map(|name| name.stem).or_else(request) else { continue };
            let Some((key, row)) = self.row_of_stem(&path, stem) else { continue };
            if page.items.len() == limit {
                page.next = page.items.last().map(|last| last.file.clone());
                break;
            }
            let at_ms = |of: Shelf| parsed.filter(|_| shelf == of).map(|name| name.at_ms);
            let (archived_ms, deleted_ms) = (at_ms(Shelf::Archive), at_ms(Shelf::Deleted));
            page.items.push(Ended { summary: row.summary(&key), file: file.to_owned(), archived_ms, deleted_ms });
        }
        Ok(page)
    }

    /// Makes a tombstone of the newest archived transcript of `key`; its name.
    pub(crate) fn entomb_archived(&self, key: &SessionKey, now_ms: u64) -> io::Result<Option<String>> {
        let Some(path) = self.archived_file(key)?.filter(|path| self.disk.stat(path).is_ok()) else { return Ok(None) };
        let place = Move { to: Shelf::Deleted, at_ms: self.closing_at(now_ms) };
        let name = name(&stem(key), place);
        self.disk.rename_new(&path, &self.dir.join(&name))?;
        self.forget_closed();
        self.sync_move(&path)?;
        Ok(Some(name))
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
        self.forget_closed();
        Ok(())
    }
}

fn shelf_of(path: &Path) -> Option<Shelf> {
    Some(parse(path.file_name()?.to_str()?)?.shelf)
}

fn is_there(disk: &dyn Disk, path: &Path) -> io::Result<bool> {
    match disk.stat(path) {
        Ok(_) => Ok(true),
        // A directory on the way may be missing, or be none.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(false),
        Err(error) => Err(error),
    }
}

fn names_in(disk: &dyn Disk, dir: &Path) -> io::Result<Vec<PathBuf>> {
    match disk.list(dir) {
        // A file in place of the archive is told when something is to be put there.
        Err(error) if matches!(error.kind(), io::ErrorKind::NotFound | io::ErrorKind::NotADirectory) => Ok(Vec::new()),
        listed => listed,
    }
}

#[cfg(test)]
mod tests {
    use supervision::memory::{Fault, PowerCutDisk, TestClock, memory_ports};

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

    #[test]
    fn a_name_that_a_failed_sync_left_unsure_is_synced_before_the_conversation_goes_on() {
        let disk = PowerCutDisk::new();
        let ports = memory_ports(disk.clone(), TestClock::new(), 1);
        let transcripts = Transcripts::new(ports, PathBuf::from("/s"));
        let key = SessionKey::new("cli:direct").unwrap();
        let put_away = name(&stem(&key), Move { to: Shelf::Archive, at_ms: 1_764_449_609_123 });
        disk.create_dir_all(Path::new("/s/archive")).unwrap();
        let file = disk.open(&Path::new("/s/archive").join(&put_away), Open::CreateNew).unwrap();
        file.write_at(b"{}\n", 0).unwrap();
        disk.sync_fs(Path::new("/s")).unwrap();
        transcripts.sync_names().unwrap();

        transcripts.restore(&key).unwrap();
        disk.fail_next(Fault::SyncEio);
        assert!(transcripts.sync_names().is_err());
        let is_back = |seed| disk.cut(seed).stat(&transcripts.file_of(&key)).is_ok();
        assert!(!(0..32).all(is_back), "a power cut may undo a move that is not synced");
        transcripts.sync_names().unwrap();
        assert!((0..32).all(is_back));
    }
}
