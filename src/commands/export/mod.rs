//! `greenroom export --to nanobot|openclaw DIR`: writes sessions as files that these programs load.
//!
//! It only adds: where another file has a name that is needed, nothing at all is written.

mod nanobot;
mod openclaw;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::exchange::Remark;
use domain::ids::SessionKey;
use domain::stem;
use domain::transcript::read_lines;
use supervision::ports::{Disk, Ids, offload};
use supervision::real::real_ports;

use super::import::write_whole;
use super::report::{Outcome, Report, Wording};
use crate::app::Hold;
use crate::cli::{ExportArgs, Target};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// One session of ours.
struct Session {
    key: SessionKey,
    path: PathBuf,
}

/// A file to write.
struct File {
    /// Where.
    path: PathBuf,
    bytes: Vec<u8>,
    /// For a file that holds a session: its line in the report.
    session: Option<(SessionKey, Vec<Remark>)>,
}

/// What a system's files are made with.
struct Maker<'a> {
    disk: &'a dyn Disk,
    ids: &'a dyn Ids,
    /// The directory that is written to.
    dir: &'a Path,
    report: Report,
}

/// Runs the command.
pub async fn run(loaded: Loaded, arguments: ExportArgs) -> anyhow::Result<()> {
    loaded.require_workspace().map_err(Exit::from)?;
    let dir = std::path::absolute(&arguments.dir)?;
    let _held = Hold::take(&loaded.paths).await?;
    let ports = real_ports(1)?;
    let (disk, ids, to) = (Arc::clone(&ports.disk), Arc::clone(&ports.ids), dir.clone());
    let (from, wanted, target) = (loaded.paths.sessions.clone(), arguments.sessions, arguments.to);
    let work = move || -> anyhow::Result<Report> {
        let sessions = chosen(&*disk, &from, &wanted)?;
        let maker = Maker { disk: &*disk, ids: &*ids, dir: &to, report: Report::default() };
        match target {
            Target::Nanobot => nanobot::export(maker, &sessions),
            Target::Openclaw => openclaw::export(maker, &sessions),
        }
    };
    let report = offload(&*ports.offload, work).await??;
    let words = Wording { moved: "exported", already: "already there", dry_run: false };
    report.print(&loaded.paths.sessions, &dir, words, arguments.output)?;
    match report.failed() {
        0 => Ok(()),
        _ => Err(Exit::new(ExitCode::Failed, "not every session could be exported; all others were").printed().into()),
    }
}

/// The sessions that are asked for, or all.
fn chosen(disk: &dyn Disk, dir: &Path, wanted: &[SessionKey]) -> anyhow::Result<Vec<Session>> {
    let paths = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    let mut sessions = Vec::new();
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(name) = name.strip_suffix(".jsonl").filter(|name| !name.starts_with('.')) else { continue };
        let key = stem::key_of(name).map_or_else(|| key_in(disk, &path), |key| Ok(Some(key)))?;
        sessions.extend(key.map(|key| Session { key, path }));
    }
    let missing = wanted.iter().find(|key| !sessions.iter().any(|session| session.key == **key));
    if let Some(key) = missing {
        return Err(Exit::new(ExitCode::Failed, format!("there is no session {key}")).named("not_found").into());
    }
    sessions.retain(|session| wanted.is_empty() || wanted.contains(&session.key));
    Ok(sessions)
}

/// The key that a file's header names: a long key is cut in the file's name.
fn key_in(disk: &dyn Disk, path: &Path) -> anyhow::Result<Option<SessionKey>> {
    let bytes = disk.read(path).map_err(|error| {
        Exit::new(ExitCode::Failed, format!("{} cannot be read: {error}", path.display())).named("unreadable")
    })?;
    let header = read_lines(&bytes).header;
    Ok(header.and_then(|header| header.session_key).and_then(|key| SessionKey::new(&key).ok()))
}

/// The file of one session, or why there is none.
fn made(
    disk: &dyn Disk,
    session: &Session,
    make: &mut impl FnMut(&Session, &[u8]) -> Result<File, String>,
) -> Result<File, String> {
    let bytes = disk.read(&session.path);
    make(session, &bytes.map_err(|error| format!("{} cannot be read: {error}", session.path.display()))?)
}

// === impl Maker ===

impl Maker<'_> {
    /// Writes all files of a plan, unless one of them would take the place of another file. `make` gives the file of one
    /// session; it is asked twice, so that not all have to be held at once.
    fn write(
        mut self,
        sessions: &[Session],
        mut make: impl FnMut(&Session, &[u8]) -> Result<File, String>,
        last: Vec<File>,
    ) -> anyhow::Result<Report> {
        let mut paths = BTreeSet::new();
        for session in sessions {
            // What cannot be made is told when it is its turn.
            if let Ok(file) = made(self.disk, session, &mut make) {
                self.refuse_another(&file)?;
                if !paths.insert(file.path.clone()) {
                    let message = format!("two sessions would be {}; name the ones to export", file.path.display());
                    return Err(Exit::new(ExitCode::Failed, message).into());
                }
            }
        }
        for session in sessions {
            match made(self.disk, session, &mut make) {
                Ok(file) => self.put(file)?,
                Err(why) => self.report.fail("session", session.key.as_str(), why),
            }
        }
        for file in last {
            self.put(file)?;
        }
        Ok(self.report)
    }

    fn refuse_another(&self, file: &File) -> anyhow::Result<()> {
        match self.there(&file.path)? {
            Some(there) if there != file.bytes => {
                let message = format!(
                    "{} is there and differs; nothing was written. Export into another directory",
                    file.path.display()
                );
                Err(Exit::new(ExitCode::Failed, message).into())
            }
            Some(_) | None => Ok(()),
        }
    }

    fn put(&mut self, file: File) -> anyhow::Result<()> {
        let File { path, bytes, session } = file;
        let outcome = match self.there(&path)? {
            Some(there) if there == bytes => Outcome::AlreadyHere { to: path },
            Some(_) | None => {
                write_whole(self.disk, &path, &bytes, false).map_err(|error| {
                    Exit::new(ExitCode::Disk, format!("{} cannot be written: {error}", path.display()))
                })?;
                Outcome::Moved { to: path }
            }
        };
        if let Some((key, remarks)) = session {
            self.report.add("session", key.as_str(), outcome, remarks);
        }
        Ok(())
    }

    fn there(&self, path: &Path) -> anyhow::Result<Option<Vec<u8>>> {
        match self.disk.read(path) {
            Ok(bytes) => Ok(Some(bytes)),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => {
                Err(Exit::new(ExitCode::Failed, format!("{} cannot be read: {error}", path.display())).into())
            }
        }
    }
}
