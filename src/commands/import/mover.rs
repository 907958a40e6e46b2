//! Puts files in place, or only says what it would do.
//!
//! **Invariant:** the source is only read. What is there already is never overwritten, unless it is a template or a first
//! configuration that nobody wrote in. A file appears whole, under its
//! name, or not at all; so a run that was killed is simply run again.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::exchange::{self, Remark, Transcribed};
use domain::ids::SessionKey;
use domain::prompt::TEMPLATES;
use domain::stem::stem;
use protocol::journal::{Move, Shelf};
use session::shelf::{self, ARCHIVE, Closed};
use sha2::{Digest, Sha256};
use supervision::ports::{Disk, Open, is_space};

use super::trial;
use crate::commands::report::{Outcome, Report};

/// The largest file that is moved, in bytes.
const FILE_BYTES_MAX: u64 = 2 << 30;
/// The longest file name that gets something added, in bytes: file systems take 255.
const NAME_BYTES_MAX: usize = 240;
/// The most files of one tree.
const FILES_MAX: usize = 1_000_000;

/// When two files are the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Same {
    /// Byte for byte.
    Bytes,
    /// Or the session that is here holds what came: it was talked to since.
    Session,
    /// Or both are the same JSON.
    Json,
}

/// Where things go, and what became of them.
pub struct Mover {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// Where conflicting copies go.
    pub aside: PathBuf,
    /// What a path is shown relative to.
    pub source: PathBuf,
    /// The directory of the sessions.
    pub sessions: PathBuf,
    /// The sessions that ended here.
    pub closed: Closed,
    /// Whether nothing is written.
    pub dry_run: bool,
    /// What a dry run would have written: digests by path.
    pub planned: BTreeMap<PathBuf, [u8; 32]>,
    /// Sessions that were here and gave way.
    pub away: BTreeSet<SessionKey>,
    /// The configuration as it is made first.
    pub first_config: Vec<u8>,
    /// Where something of the source is.
    pub own: BTreeSet<PathBuf>,
    /// What became of all.
    pub report: Report,
}

/// What is at a path.
enum There {
    Nothing,
    Bytes(Vec<u8>),
    /// Would be, in a dry run.
    Digest([u8; 32]),
}

/// One file of the source.
#[derive(Debug, Clone)]
pub struct Found {
    /// Its path.
    pub path: PathBuf,
    /// Its path below the directory that was searched.
    pub below: PathBuf,
    /// Whether it may be executed.
    pub executable: bool,
}

// === impl Mover ===

impl Mover {
    /// Puts `bytes` at `to`.
    pub fn put(&mut self, kind: &'static str, name: &str, to: &Path, bytes: &[u8], same: Same, remarks: Vec<Remark>) {
        let outcome = self.place(to, bytes, same, false).unwrap_or_else(|why| Outcome::Failed { why });
        self.report.add(kind, name, outcome, remarks);
    }

    /// Puts the session `key` in its place, unless it ended here: then it stays ended.
    pub fn session(&mut self, key: &SessionKey, name: &str, mut made: Transcribed) {
        let outcome = self.place_session(key, &made.bytes).unwrap_or_else(|why| Outcome::Failed { why });
        if self.away.contains(key) && matches!(outcome, Outcome::Moved { .. }) {
            made.remarks.push(trial::remark(key));
        }
        self.report.add("session", name, outcome, made.remarks);
    }

    fn place_session(&mut self, key: &SessionKey, bytes: &[u8]) -> Result<Outcome, String> {
        let stem = stem(key);
        let to = self.sessions.join(format!("{stem}.jsonl"));
        if let Some(shelf) = self.ended(&stem, bytes)?
            && !matches!(self.there(&to)?, There::Bytes(there) if is_same(&there, bytes, Same::Session))
        {
            let why = match shelf {
                Shelf::Archive => format!("archived here; `greenroom sessions unarchive {key}` takes it back"),
                Shelf::Deleted => "deleted here; `greenroom sessions import FILE --key KEY` brings its file in as a \
                                   session with a key of its own"
                    .to_owned(),
            };
            return Ok(Outcome::Skipped { why });
        }
        if self.dry_run && matches!(self.there(&to)?, There::Bytes(there) if self.gives_way(&to, &there, bytes)) {
            self.report.trials.push(key.clone());
            self.away.insert(key.clone());
            self.write(&to, bytes, false)?;
            self.own.insert(to.clone());
            return Ok(Outcome::Moved { to });
        }
        let mut outcome = self.place(&to, bytes, Same::Session, false)?;
        if let Outcome::Conflict { how: Some(how), .. } = &mut outcome {
            *how = format!("`greenroom sessions archive {key}` and this import again bring it");
        }
        Ok(outcome)
    }

    /// Whether the session that is here is another one, and only tried the program out.
    fn gives_way(&self, to: &Path, there: &[u8], came: &[u8]) -> bool {
        !is_same(there, came, Same::Session) && trial::is_one(&*self.disk, to)
    }

    /// Puts a transcript that ended as the session `key` into the archive, unless it is here already, also as a session
    /// that was taken back.
    pub fn archive(&mut self, key: &SessionKey, at_ms: u64, name: &str, made: Transcribed) {
        let outcome = self.place_archived(key, at_ms, &made.bytes).unwrap_or_else(|why| Outcome::Failed { why });
        self.report.add("archive", name, outcome, made.remarks);
    }

    fn place_archived(&mut self, key: &SessionKey, at_ms: u64, bytes: &[u8]) -> Result<Outcome, String> {
        let stem = stem(key);
        let live = format!("{stem}.jsonl");
        for file in self.closed.of(&stem).map(|(_, file)| file).chain([&*live]) {
            let path = self.sessions.join(file);
            if matches!(self.there(&path)?, There::Bytes(there) if is_same(&there, bytes, Same::Session)) {
                return Ok(Outcome::AlreadyHere { to: path });
            }
        }
        let to = self.sessions.join(ARCHIVE).join(shelf::name(&stem, Move { to: Shelf::Archive, at_ms }));
        self.place(&to, bytes, Same::Session, false)
    }

    /// How the session that came ended here, if it did: the last time.
    fn ended(&self, stem: &str, bytes: &[u8]) -> Result<Option<Shelf>, String> {
        for (shelf, file) in self.closed.of(stem) {
            let path = self.sessions.join(file);
            let there = self.disk.read(&path).map_err(|error| format!("{} cannot be read: {error}", path.display()))?;
            if exchange::is_one_session(&there, bytes) {
                return Ok(Some(shelf));
            }
        }
        Ok(None)
    }

    /// Copies a file as it is.
    pub fn copy(&mut self, kind: &'static str, found: &Found, to: &Path) {
        let name = self.shown(&found.path);
        match self.read(&found.path) {
            Ok(bytes) => {
                let outcome = self.place(to, &bytes, Same::Bytes, found.executable);
                let outcome = outcome.unwrap_or_else(|why| Outcome::Failed { why });
                self.report.add(kind, name, outcome, Vec::new());
            }
            Err(why) => self.report.fail(kind, name, why),
        }
    }

    /// A whole file of the source.
    pub fn read(&self, path: &Path) -> Result<Vec<u8>, String> {
        let length = self.disk.stat(path).map_err(|error| error.to_string())?.length;
        if length > FILE_BYTES_MAX {
            return Err(format!("has {length} bytes, more than {FILE_BYTES_MAX}"));
        }
        self.disk.read(path).map_err(|error| format!("cannot be read: {error}"))
    }

    /// A path as it is shown.
    pub fn shown(&self, path: &Path) -> String {
        path.strip_prefix(&self.source).unwrap_or(path).display().to_string()
    }

    /// What is directly in a directory: names and whether they are directories. Links are told and left out.
    pub fn list(&mut self, directory: &Path) -> Vec<(PathBuf, bool)> {
        let mut found = Vec::new();
        let names = match self.disk.list(directory) {
            Ok(names) => names,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return found,
            Err(error) => {
                let name = self.shown(directory);
                self.report.fail("directory", name, format!("cannot be read: {error}"));
                return found;
            }
        };
        for path in names {
            // The port follows links, and a link may lead anywhere, also in a circle.
            match std::fs::symlink_metadata(&path) {
                Ok(meta) if meta.is_dir() || meta.is_file() => found.push((path, meta.is_dir())),
                Ok(_) => {
                    let name = self.shown(&path);
                    self.report.skip("other", name, "neither a file nor a directory (a symbolic link is not followed)");
                }
                Err(error) => {
                    let name = self.shown(&path);
                    self.report.fail("other", name, error);
                }
            }
        }
        found
    }

    /// All files in a directory and below; `enter` decides about each directory and file by its path below it.
    pub fn walk(&mut self, root: &Path, take: impl Fn(&Path) -> bool) -> Vec<Found> {
        let (mut files, mut open) = (Vec::new(), vec![root.to_owned()]);
        while let Some(directory) = open.pop() {
            for (path, is_directory) in self.list(&directory) {
                let below = path.strip_prefix(root).unwrap_or(&path).to_owned();
                if !take(&below) {
                    continue;
                }
                if is_directory {
                    open.push(path);
                } else if files.len() < FILES_MAX {
                    let executable = std::fs::metadata(&path).is_ok_and(|meta| meta.permissions().mode() & 0o100 != 0);
                    files.push(Found { path, below, executable });
                } else {
                    self.report.fail("directory", self.shown(root), format!("has more than {FILES_MAX} files"));
                    return files;
                }
            }
        }
        files.sort_by(|one, other| one.path.cmp(&other.path));
        files
    }

    fn place(&mut self, to: &Path, bytes: &[u8], same: Same, executable: bool) -> Result<Outcome, String> {
        let outcome = self.place_or_keep(to, bytes, same, executable)?;
        if matches!(outcome, Outcome::Moved { .. } | Outcome::AlreadyHere { .. }) {
            self.own.insert(to.to_owned());
        }
        Ok(outcome)
    }

    fn place_or_keep(&mut self, to: &Path, bytes: &[u8], same: Same, executable: bool) -> Result<Outcome, String> {
        match self.there(to)? {
            There::Nothing => {
                self.write(to, bytes, executable)?;
                return Ok(Outcome::Moved { to: to.to_owned() });
            }
            There::Bytes(there) if is_same(&there, bytes, same) => {
                return Ok(Outcome::AlreadyHere { to: to.to_owned() });
            }
            There::Digest(there) if there == digest(bytes) => return Ok(Outcome::AlreadyHere { to: to.to_owned() }),
            There::Bytes(there) if is_template(to, &there) || there == self.first_config => {
                self.write(to, bytes, executable)?;
                return Ok(Outcome::Moved { to: to.to_owned() });
            }
            There::Bytes(_) | There::Digest(_) => {}
        }
        let copy = self.copy_of(to, bytes, same)?;
        if matches!(self.there(&copy)?, There::Nothing) {
            self.write(&copy, bytes, executable)?;
        }
        let how = (!self.own.contains(to)).then(|| "to bring it, put that copy in its place".to_owned());
        Ok(Outcome::Conflict { to: to.to_owned(), copy, how })
    }

    /// Where the copy goes: another name if another copy is there.
    fn copy_of(&self, to: &Path, bytes: &[u8], same: Same) -> Result<PathBuf, String> {
        let name = to.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let parent = to.parent().and_then(Path::file_name).unwrap_or_default();
        let first = self.aside.join(parent).join(&name);
        let is_free = match self.there(&first)? {
            There::Nothing => true,
            There::Bytes(there) => is_same(&there, bytes, same),
            There::Digest(there) => there == digest(bytes),
        };
        if is_free {
            return Ok(first);
        }
        let digest: String = digest(bytes).iter().take(8).map(|byte| format!("{byte:02x}")).collect();
        Ok(first.with_file_name(format!("{name}.{digest}")))
    }

    fn there(&self, path: &Path) -> Result<There, String> {
        if let Some(digest) = self.planned.get(path) {
            return Ok(There::Digest(*digest));
        }
        match self.disk.read(path) {
            Ok(bytes) => Ok(There::Bytes(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(There::Nothing),
            Err(error) => Err(format!("{} cannot be read: {error}", path.display())),
        }
    }

    fn write(&mut self, to: &Path, bytes: &[u8], executable: bool) -> Result<(), String> {
        if self.dry_run {
            self.planned.insert(to.to_owned(), digest(bytes));
            return Ok(());
        }
        let written = write_whole(&*self.disk, to, bytes, executable);
        written.map_err(|error| {
            self.report.no_space |= is_space(&error);
            format!("{} cannot be written: {error}", to.display())
        })
    }
}

/// Whether a file is one that a fresh workspace gets, as it was written: nobody's work.
fn is_template(path: &Path, bytes: &[u8]) -> bool {
    TEMPLATES.iter().any(|(name, text)| path.ends_with(name) && bytes == text.as_bytes())
}

fn digest(bytes: &[u8]) -> [u8; 32] {
    Sha256::digest(bytes).into()
}

/// Writes a file beside its name, syncs it, then gives it the name.
pub fn write_whole(disk: &dyn Disk, to: &Path, bytes: &[u8], executable: bool) -> io::Result<()> {
    let parent = to.parent().unwrap_or(Path::new("."));
    disk.create_dir_all(parent)?;
    let beside = parent.join(format!(".{}.moving", short(&to.file_name().unwrap_or_default().to_string_lossy())));
    {
        let file = disk.open(&beside, Open::Create)?;
        file.set_length(0)?;
        file.write_at(bytes, 0)?;
        file.sync_data()?;
    }
    if executable {
        std::fs::set_permissions(&beside, std::fs::Permissions::from_mode(0o700))?;
    }
    disk.rename(&beside, to)?;
    disk.sync_dir(parent)
}

/// The name, or a digest of one with which a longer name would be too long for a file system.
fn short(name: &str) -> Cow<'_, str> {
    if name.len() <= NAME_BYTES_MAX {
        return Cow::Borrowed(name);
    }
    digest(name.as_bytes()).iter().take(8).map(|byte| format!("{byte:02x}")).collect::<String>().into()
}

fn is_same(there: &[u8], came: &[u8], same: Same) -> bool {
    let json = |bytes: &[u8]| serde_json::from_slice::<serde_json::Value>(bytes).ok();
    match same {
        Same::Bytes => there == came,
        Same::Session => exchange::holds(there, came),
        Same::Json => there == came || json(there).is_some_and(|value| Some(value) == json(came)),
    }
}

#[cfg(test)]
mod tests;
