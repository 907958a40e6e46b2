//! Configuration: where things are, what is set, and who answers.
//!
//! [`load`] and [`survey`] are called once, by the command line, before any actor exists; they are the only part that
//! reads files. `load` is for what runs agents and refuses what cannot be used; `survey` is for what looks after them and
//! goes on without it.
//! Everything below it is pure: the text of the file and the environment are arguments.
//!
//! ```text
//! file ─▶ JSON ─▶ ${NAME} filled in ─▶ checked against the key table ┐
//! NANOBOT_…  (only where the file is silent) ────────────────────────┼─▶ Config ─▶ rules across keys
//! GREENROOM_… (over the file) ───────────────────────────────────────┘
//! ```
//!
//! **Invariant:** no error and no warning repeats a value that may be a secret, and the user's file is never written.

#[macro_use]
mod section;

mod assemble;
mod check;
mod dream;
mod environment;
mod error;
mod found;
mod heartbeat;
mod hooks;
mod json;
mod key;
mod locations;
mod position;
mod presets;
mod providers;
mod queue;
mod rules;
mod schema;
mod secret;
mod sessions;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use error::{ConfigError, Origin, Problem, Warning};
pub use heartbeat::{HeartbeatConfig, HoursConfig};
pub use hooks::HookConfig;
pub use locations::Paths;
pub use presets::{ModelPreset, PresetChoice, dream_name as dream_preset};
pub use providers::{ProviderChoice, ProviderSettings};
pub use schema::{
    Admin, AgentDefaults, Agents, Api, Channels, Config, Durability, Exec, Gateway, Journal, Provider, RestartMode,
    Runtime, Sandbox, Supervision, Tools, WebSocket, Webhook,
};
pub use secret::Secret;
pub use sessions::{
    BindingConfig, BindingMatch, BindingPeer, DmScopeWord, MaintenanceMode, PeerKindWord, PolicyConfig, ResetConfig,
    ResetMode, SandboxWord, Session, ToolProfile, WorkspaceWord,
};

/// Largest file that is read as a configuration.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

/// The key of the workspace.
const WORKSPACE: &str = "agents.defaults.workspace";

/// What the command line and the environment say about the configuration.
#[derive(Debug, Clone, Default)]
pub struct LoadRequest {
    /// `--config`.
    pub config: Option<PathBuf>,
    /// `--workspace`.
    pub workspace: Option<PathBuf>,
    /// The environment of the process.
    pub env: BTreeMap<String, String>,
}

/// What became of the file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileState {
    /// Its settings are used, as far as they can be.
    Used,
    /// There is none, and nobody named one.
    Absent,
    /// There is none where one was named.
    Missing,
    /// It is there but no configuration at all.
    Unusable,
}

/// A configuration, and where everything is.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings; what cannot be used has its default.
    pub config: Config,
    /// Who answers.
    pub provider: ProviderChoice,
    /// What of `modelPresets` it can serve.
    pub presets: BTreeMap<String, PresetChoice>,
    /// Where everything is.
    pub paths: Paths,
    /// What cannot be used; nothing, after [`load`].
    pub problems: Vec<Problem>,
    /// What the user should hear about.
    pub warnings: Vec<Warning>,
    /// What became of the file; without one, the settings are the built-in ones and the environment's.
    pub file: FileState,
    /// Whether the workspace is certain: the file may name another one in what cannot be used of it.
    pub workspace_known: bool,
}

impl Loaded {
    /// Fails when anything cannot be used.
    pub fn require_valid(&self) -> Result<(), ConfigError> {
        if self.problems.is_empty() { Ok(()) } else { Err(ConfigError::Invalid(self.problems.clone())) }
    }

    /// Fails when the workspace is not certain.
    pub fn require_workspace(&self) -> Result<(), ConfigError> {
        if self.workspace_known { Ok(()) } else { self.require_valid() }
    }
}

/// Finds, reads and checks the configuration. Blocks: for start-up only.
pub fn load(request: &LoadRequest) -> Result<Loaded, ConfigError> {
    let loaded = survey(request)?;
    loaded.require_valid()?;
    Ok(loaded)
}

/// Like [`load`], but only lists what cannot be used. Fails when not even the data directory is known.
pub fn survey(request: &LoadRequest) -> Result<Loaded, ConfigError> {
    let place = locations::locate(request)?;
    let (text, unread) = match read(&place.config) {
        Ok(text) => (text, None),
        Err(unread) => (None, Some(unread)),
    };
    let mut assembled = assemble::assemble(&place.config, text.as_deref(), &request.env);
    let file = match (&text, unread) {
        (_, Some(unread)) => {
            assembled.problems.insert(0, unread);
            FileState::Unusable
        }
        (Some(_), None) if assembled.readable => FileState::Used,
        (Some(_), None) => FileState::Unusable,
        (None, None) if place.explicit => {
            assembled.problems.insert(0, Problem::of_file(&place.config, None, "is not there"));
            FileState::Missing
        }
        (None, None) => FileState::Absent,
    };
    let given = place.workspace_given(request);
    let over_workspace = |path: &str| !path.is_empty() && WORKSPACE.starts_with(path);
    let unusable = assembled.problems.iter().any(|problem| over_workspace(&problem.path));
    let workspace_known = given.is_some() || (file != FileState::Unusable && !unusable);
    let configured = assembled.config.agents.defaults.workspace.as_deref();
    let paths = place.paths(request, configured)?;
    let mut loaded = Loaded {
        config: assembled.config,
        provider: assembled.provider,
        presets: assembled.presets,
        paths,
        problems: assembled.problems,
        warnings: assembled.warnings,
        file,
        workspace_known,
    };
    loaded.check_workspace(given.unwrap_or(assembled.workspace), &place);
    Ok(loaded)
}

impl Loaded {
    /// Of a workspace and a data directory that are not apart.
    fn check_workspace(&mut self, origin: Origin, place: &locations::Place) {
        let path = WORKSPACE.to_owned();
        if self.paths.workspace == self.paths.data {
            let what = "is the data directory itself; tools would reach the configuration and the journal".to_owned();
            self.problems.push(Problem { origin, path, what });
            self.workspace_known = false;
            self.paths = place.usual_paths();
        } else if self.paths.data.starts_with(&self.paths.workspace) {
            let what =
                "contains the data directory; a workspace of its own keeps configuration and journal apart".into();
            self.warnings.push(Warning::Doubtful { origin, path, what });
        }
    }
}

/// What this version makes nothing of in the text of a configuration, and what it cannot use.
pub fn remarks(file: &Path, text: &str, env: &BTreeMap<String, String>) -> Vec<String> {
    let assembled = assemble::assemble(file, Some(text), env);
    let problems = assembled.problems.iter().map(|problem| format!("{} {}", problem.path, problem.what));
    problems.chain(assembled.warnings.iter().map(Warning::what)).collect()
}

/// The file's text without a byte order mark; `None` when it is not there.
fn read(file: &Path) -> Result<Option<String>, Problem> {
    let unreadable = |source: io::Error| Problem::of_file(file, None, format!("cannot be read: {source}"));
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(unreadable(source)),
    };
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let bytes = file.metadata().map_or(FILE_BYTES_MAX + 1, |stat| stat.len());
        let what = format!("has {bytes} bytes; a configuration has at most {FILE_BYTES_MAX}");
        return Err(Problem::of_file(file, None, what));
    }
    let text = String::from_utf8(bytes).map_err(|bad| {
        let good = bad.utf8_error().valid_up_to();
        let before = String::from_utf8_lossy(bad.as_bytes().get(..good).unwrap_or_default());
        Problem::of_file(file, Some(position::after(&before)), "is not UTF-8 text")
    })?;
    Ok(Some(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text)))
}

#[cfg(test)]
mod tests;
