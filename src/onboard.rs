//! The first configuration and workspace.
//!
//! **Invariant:** whatever is there already stays as it is, byte for byte; what is written appears whole or not at all.

use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde_json::{Value, json};

use crate::config::{self, ConfigError, LoadRequest, Paths};

/// What [`onboard`] did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// Where everything is.
    pub paths: Paths,
    /// Files and directories that were made, in order.
    pub created: Vec<PathBuf>,
    /// Files and directories that were there already.
    pub kept: Vec<PathBuf>,
}

/// Why there is no workspace. The command ends with exit code 3.
#[derive(Debug, thiserror::Error)]
pub enum OnboardError {
    /// The configuration that is there cannot be used.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// A file or directory cannot be made.
    #[error("{path}: cannot be created: {source}")]
    Create {
        /// Which one.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Files of a fresh workspace.
const FILES: &[(&str, &str)] = &[
    (
        "AGENTS.md",
        "# Working rules\n\n\
         - Answer briefly; go into detail when asked.\n\
         - Look before changing: read a file before writing to it.\n\
         - Say what you did and what you could not do.\n\
         - Ask before anything that cannot be undone.\n",
    ),
    (
        "SOUL.md",
        "# Character\n\n\
         Calm, precise and friendly. Admits not knowing. Prefers the simple way.\n",
    ),
    (
        "USER.md",
        "# The person you work for\n\n\
         Fill in what the agent should know about you:\n\n\
         - Name:\n\
         - Language:\n\
         - Time zone:\n\
         - What you usually need:\n",
    ),
    (
        "TOOLS.md",
        "# Notes on tools\n\n\
         Facts about this machine that help when using tools: where projects are, which commands to prefer, \
         what to leave alone.\n",
    ),
];

/// Directories of a fresh workspace.
const DIRECTORIES: &[&str] = &["memory", "skills", "sessions"];

/// Makes what is missing of configuration and workspace. Blocks: for the command line only.
pub fn onboard(request: &LoadRequest) -> Result<Report, OnboardError> {
    let paths = config::locate_for_onboard(request)?;
    let mut work = Work { created: Vec::new(), kept: Vec::new() };
    work.directory(&paths.data)?;
    if let Some(beside) = paths.config.parent().filter(|beside| *beside != paths.data) {
        work.directory(beside)?;
    }
    let first = first_config(request.workspace.as_ref().map(|_| paths.workspace.as_path()));
    work.file(&paths.config, &format!("{first:#}\n"))?;
    work.directory(&paths.workspace)?;
    for name in DIRECTORIES {
        work.directory(&paths.workspace.join(name))?;
    }
    for (name, text) in FILES {
        work.file(&paths.workspace.join(name), text)?;
    }
    Ok(Report { paths, created: work.created, kept: work.kept })
}

/// Where to put a key, which model, and the three doors. With an empty key the offline model answers.
fn first_config(workspace: Option<&Path>) -> Value {
    let zone = jiff::tz::TimeZone::system();
    let mut defaults = json!({
        "model": "anthropic/claude-opus-4-5",
        "provider": "auto",
        "timezone": zone.iana_name().unwrap_or("UTC"),
    });
    if let (Some(workspace), Value::Object(defaults)) = (workspace.and_then(Path::to_str), &mut defaults) {
        defaults.insert("workspace".into(), workspace.into());
    }
    json!({
        "agents": { "defaults": defaults },
        "providers": { "openrouter": { "apiKey": "" } },
        "channels": { "websocket": { "enabled": true, "host": "127.0.0.1", "port": 8765 } },
        "api": { "host": "127.0.0.1", "port": 8900, "apiKey": "" },
        "gateway": { "host": "127.0.0.1", "port": 18790 },
    })
}

struct Work {
    created: Vec<PathBuf>,
    kept: Vec<PathBuf>,
}

impl Work {
    fn directory(&mut self, path: &Path) -> Result<(), OnboardError> {
        if path.is_dir() {
            self.kept.push(path.into());
            return Ok(());
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path).map_err(|source| OnboardError::Create { path: path.into(), source })?;
        self.created.push(path.into());
        Ok(())
    }

    /// Written beside, synced, then given its name unless the name is taken. Mode 0600.
    fn file(&mut self, path: &Path, text: &str) -> Result<(), OnboardError> {
        if fs::symlink_metadata(path).is_ok() {
            self.kept.push(path.into());
            return Ok(());
        }
        match write_new(path, text) {
            Ok(()) => self.created.push(path.into()),
            Err(taken) if taken.kind() == io::ErrorKind::AlreadyExists => self.kept.push(path.into()),
            Err(source) => return Err(OnboardError::Create { path: path.into(), source }),
        }
        Ok(())
    }
}

fn write_new(path: &Path, text: &str) -> io::Result<()> {
    let directory = path.parent().unwrap_or(Path::new("."));
    let mut beside = tempfile::NamedTempFile::new_in(directory)?;
    beside.write_all(text.as_bytes())?;
    beside.as_file().sync_all()?;
    beside.persist_noclobber(path).map_err(|failed| failed.error)?;
    fs::File::open(directory)?.sync_all()
}
