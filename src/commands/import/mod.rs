//! `greenroom import nanobot` and `greenroom import openclaw`: moves in from another system with one command.
//!
//! The source is only read. Whatever is here already stays, but for what only tried the program out; what differs from it
//! is kept beside it, and told. What is here and equal is told as such, so that a run that was cut short, or one after the source went on, is simply repeated.

mod mover;
mod nanobot;
mod openclaw;
mod trial;
mod workspace;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Context;
use domain::ids::SessionKey;
use session::shelf::Closed;
use supervision::ports::offload;
use supervision::real::real_ports;

pub use mover::write_whole;

use super::report::{Report, Wording};
use crate::app::Hold;
use crate::cli::{Import, ImportArgs};
use crate::config::{Loaded, Paths};
use crate::exit::{Exit, ExitCode};
use mover::Mover;

/// A system that can be moved from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum System {
    Nanobot,
    Openclaw,
}

/// Runs the command.
pub async fn run(loaded: Loaded, what: Import) -> anyhow::Result<()> {
    let (system, arguments) = match what {
        Import::Nanobot(arguments) => (System::Nanobot, arguments),
        Import::Openclaw(arguments) => (System::Openclaw, arguments),
    };
    loaded.require_workspace().map_err(Exit::from)?;
    let source = source_of(system, &arguments)?;
    if !arguments.dry_run {
        Hold::refuse_gateway(&loaded.paths)?;
    }
    let report = match arguments.dry_run {
        true => pass(&loaded, system, &source, BTreeSet::new(), true).await?,
        false => {
            let away = match trial::any(&loaded.paths.sessions) {
                true => pass(&loaded, system, &source, BTreeSet::new(), true).await?.trials,
                false => Vec::new(),
            };
            let away = trial::put_away(&loaded, away).await?;
            let _held = Hold::take(&loaded.paths).await?;
            pass(&loaded, system, &source, away, false).await?
        }
    };
    let words = Wording { moved: "imported", already: "already here", dry_run: arguments.dry_run };
    report.print(&source, &loaded.paths.data, words, arguments.output)?;
    finished(&report)
}

/// Looks at everything once, and brings it over unless that is to be seen only. `away`: sessions that gave way.
async fn pass(
    loaded: &Loaded,
    system: System,
    source: &Path,
    away: BTreeSet<SessionKey>,
    dry_run: bool,
) -> anyhow::Result<Report> {
    let ports = real_ports(1)?;
    let (disk, dir) = (Arc::clone(&ports.disk), loaded.paths.sessions.clone());
    let closed = offload(&*ports.offload, move || Closed::read(&*disk, &dir)).await?;
    let closed = closed.with_context(|| format!("{} cannot be read", loaded.paths.sessions.display()))?;
    let mover = Mover {
        disk: Arc::clone(&ports.disk),
        aside: loaded.paths.data.join("import").join(system.name()),
        source: source.to_owned(),
        sessions: loaded.paths.sessions.clone(),
        closed,
        dry_run,
        planned: BTreeMap::new(),
        away,
        first_config: crate::onboard::untouched_config().into_bytes(),
        own: BTreeSet::new(),
        report: Report::default(),
    };
    let (paths, from) = (loaded.paths.clone(), source.to_owned());
    let work = move || match system {
        System::Nanobot => nanobot::import(mover, &from, &paths),
        System::Openclaw => openclaw::import(mover, &from, &paths),
    };
    Ok(offload(&*ports.offload, work).await?)
}

/// What failed, and what did not come as something else is here, makes the command fail, after all else was done.
fn finished(report: &Report) -> anyhow::Result<()> {
    let (failed, left) = (report.failed(), report.left());
    let things = |count| domain::text::counted(count, "thing");
    let message = match (failed, left) {
        (0, 0) => return Ok(()),
        (0, left) => {
            format!("{} did not come, for others are here; the lines above say how to bring them", things(left))
        }
        (failed, 0) => format!("{} could not be imported; all else was", things(failed)),
        (failed, left) => format!(
            "{} could not be imported, and {} did not come, for others are here; the lines above say more",
            things(failed),
            things(left)
        ),
    };
    let code = if report.no_space { ExitCode::Disk } else { ExitCode::Failed };
    Err(Exit::new(code, message).printed().into())
}

/// The directory, which has to look like one of the system's.
fn source_of(system: System, arguments: &ImportArgs) -> anyhow::Result<PathBuf> {
    let home = || super::environment().get("HOME").map(|home| Path::new(home).join(format!(".{}", system.name())));
    let dir = arguments.dir.clone().or_else(home);
    let dir =
        dir.ok_or_else(|| Exit::new(ExitCode::Usage, "there is no home directory; name the directory to import"))?;
    let dir = std::path::absolute(dir)?;
    let marks: &[&str] = match system {
        System::Nanobot => &["config.json", "sessions", "workspace"],
        System::Openclaw => &["openclaw.json", "agents", "workspace"],
    };
    if !marks.iter().any(|mark| dir.join(mark).exists()) {
        let message =
            format!("{} is no {} directory: it has none of {}", dir.display(), system.name(), marks.join(", "));
        return Err(Exit::new(ExitCode::Failed, message).into());
    }
    Ok(dir)
}

/// Reads a configuration's path: `~` is the home directory, a relative path begins at `base`.
fn expand(path: &str, base: &Path) -> PathBuf {
    let home = super::environment().get("HOME").map(PathBuf::from);
    match (path.strip_prefix("~/"), home) {
        (Some(rest), Some(home)) => home.join(rest),
        (Some(_) | None, _) => base.join(path),
    }
}

/// Where the parts of a workspace go.
fn place(paths: &Paths, below: &Path) -> PathBuf {
    paths.workspace.join(below)
}

// === impl System ===

impl System {
    fn name(self) -> &'static str {
        match self {
            Self::Nanobot => "nanobot",
            Self::Openclaw => "openclaw",
        }
    }
}
