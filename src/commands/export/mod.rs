//! `greenroom export --to nanobot|openclaw DIR`: writes sessions as files that these programs load.
//!
//! It only adds: where another file has a name that is needed, nothing at all is written. What only the journal has of a
//! session is written into its transcript first.

mod nanobot;
mod openclaw;

use std::collections::BTreeSet;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use domain::exchange::Remark;
use domain::ids::{SessionKey, TurnId};
use domain::stem;
use domain::transcript::read_lines;
use protocol::session::Mail;
use supervision::ports::{Disk, Ids, offload};
use tokio::sync::oneshot;

use super::import::write_whole;
use super::report::{Outcome, Report, Wording};
use crate::app::{App, Hold, Options};
use crate::cli::{ExportArgs, Target};
use crate::config::Loaded;
use crate::exit::{Exit, ExitCode};

/// How long a session may take to be loaded.
const WAKE_MAX: Duration = Duration::from_secs(60);

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
    Hold::refuse_gateway(&loaded.paths)?;
    let (from, output) = (loaded.paths.sessions.clone(), arguments.output);
    let app = App::start(Options::at_rest(loaded)).await?;
    let report = written(&app, arguments, &from, &dir).await;
    app.stop().await;
    let (report, words) = (report?, Wording { moved: "exported", already: "already there", dry_run: false });
    report.print(&from, &dir, words, output)?;
    match report.failed() {
        0 => Ok(()),
        _ => Err(Exit::new(ExitCode::Failed, "not every session could be exported; all others were").printed().into()),
    }
}

async fn written(app: &App, arguments: ExportArgs, from: &Path, to: &Path) -> anyhow::Result<Report> {
    let behind = asleep(app, app.caught_up().await?).await;
    let ports = app.ports();
    let (disk, ids, from, to) = (Arc::clone(&ports.disk), Arc::clone(&ports.ids), from.to_owned(), to.to_owned());
    let work = move || -> anyhow::Result<Report> {
        let mut report = Report::default();
        let sessions = chosen(&*disk, &from, (&arguments.sessions, &behind), &mut report)?;
        let maker = Maker { disk: &*disk, ids: &*ids, dir: &to, report };
        match arguments.to {
            Target::Nanobot => nanobot::export(maker, &sessions),
            Target::Openclaw => openclaw::export(maker, &sessions),
        }
    };
    offload(&*ports.offload, work).await?
}

/// Wakes sessions that sort out themselves what others wrote into their files; gives back those that cannot be loaded.
async fn asleep(app: &App, keys: Vec<SessionKey>) -> Vec<SessionKey> {
    let mut asleep = Vec::new();
    for key in keys {
        let (reply, answer) = oneshot::channel();
        let told = app.sessions().tell(&key, Mail::ReadTurn { turn: TurnId(app.ports().ids.uuid_v7()), reply });
        let woke = told.is_ok() && matches!(tokio::time::timeout(WAKE_MAX, answer).await, Ok(Ok(_)));
        asleep.extend((!woke).then_some(key));
    }
    asleep
}

/// The sessions that are asked for, or all. Those of which the journal has more than their files, `behind`, and files that
/// do not say whose they are, are told as failed.
fn chosen(
    disk: &dyn Disk,
    dir: &Path,
    (wanted, behind): (&[SessionKey], &[SessionKey]),
    report: &mut Report,
) -> anyhow::Result<Vec<Session>> {
    let is_wanted = |key: &SessionKey| wanted.is_empty() || wanted.contains(key);
    for key in behind.iter().filter(|key| is_wanted(key)) {
        let why = format!(
            "some of it is only in the journal, and its file cannot be written; `greenroom sessions check {key}` says \
             more"
        );
        report.fail("session", key.as_str(), why);
    }
    let paths = match disk.list(dir) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
        listed => listed?,
    };
    let mut sessions = Vec::new();
    for path in paths {
        let Some(name) = path.file_name().and_then(|name| name.to_str()) else { continue };
        let Some(name) = name.strip_suffix(".jsonl").filter(|name| !name.starts_with('.')) else { continue };
        let by_name = stem::key_of(name).or_else(|| wanted.iter().find(|key| stem::stem(key) == name).cloned());
        match by_name.map_or_else(|| key_in(disk, &path), |key| Ok(Some(key))) {
            Ok(key) => sessions.extend(key.map(|key| Session { key, path })),
            Err(why) if wanted.is_empty() => report.fail("session", path.display().to_string(), why),
            // It is none of those that are asked for: their names are known.
            Err(_) => {}
        }
    }
    let is_known = |key: &SessionKey| behind.contains(key) || sessions.iter().any(|session| session.key == *key);
    let missing = wanted.iter().find(|key| !is_known(key));
    if let Some(key) = missing {
        return Err(Exit::new(ExitCode::Failed, format!("there is no session {key}")).named("not_found").into());
    }
    sessions.retain(|session| is_wanted(&session.key) && !behind.contains(&session.key));
    Ok(sessions)
}

/// The key that a file's header names: a long key is cut in the file's name.
fn key_in(disk: &dyn Disk, path: &Path) -> Result<Option<SessionKey>, String> {
    let bytes = disk.read(path).map_err(|error| format!("cannot be read: {error}"))?;
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
