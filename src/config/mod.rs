//! Configuration: where things are, what is set, and who answers.
//!
//! [`load`] is called once, by the command line, before any actor exists; it is the only part that reads files.
//! Everything below it is pure: the text of the file and the environment are arguments.
//!
//! ```text
//! file ─▶ JSON ─▶ ${NAME} filled in ─▶ checked against the key table ┐
//! NANOBOT_…  (only where the file is silent) ────────────────────────┼─▶ Config ─▶ rules across keys
//! GREENROOM_… (over the file) ───────────────────────────────────────┘
//! ```
//!
//! **Invariant:** no error and no warning repeats a value, and the user's file is never written.

mod assemble;
mod check;
mod environment;
mod error;
mod json;
mod key;
mod locations;
mod position;
mod providers;
mod rules;
mod schema;
mod secret;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

pub use error::{ConfigError, Origin, Problem, Warning};
pub use locations::Paths;
pub use providers::{ProviderChoice, ProviderError, ProviderSettings, choose_provider};
pub use schema::{
    Admin, AgentDefaults, Agents, Api, Channels, Config, Durability, Exec, Gateway, Journal, Provider, Runtime,
    Sandbox, Supervision, Tools, WebSocket, Webhook,
};
pub use secret::Secret;

/// Largest file that is read as a configuration.
pub const FILE_BYTES_MAX: u64 = 4 * 1024 * 1024;

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

/// A configuration that can be used.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The settings.
    pub config: Config,
    /// Where everything is.
    pub paths: Paths,
    /// What the user should hear about.
    pub warnings: Vec<Warning>,
    /// Whether the file was there; without one, the settings are the built-in ones and the environment's.
    pub file_found: bool,
}

impl Loaded {
    /// [`choose_provider`], with the file's name in the error.
    pub fn provider(&self, env: &BTreeMap<String, String>) -> Result<ProviderChoice, ConfigError> {
        choose_provider(&self.config, env)
            .map_err(|source| ConfigError::Provider { file: self.paths.config.clone(), source })
    }
}

/// Finds, reads and checks the configuration. Blocks: for start-up only.
pub fn load(request: &LoadRequest) -> Result<Loaded, ConfigError> {
    let place = locations::locate(request)?;
    let text = read(&place.config, place.explicit)?;
    let assembled = assemble::assemble(&place.config, text.as_deref(), &request.env)?;
    let paths = place.paths(request, assembled.config.agents.defaults.workspace.as_deref())?;
    let mut warnings = assembled.warnings;
    if paths.data.starts_with(&paths.workspace) {
        warnings.push(Warning::Doubtful {
            path: "agents.defaults.workspace".into(),
            what: "contains the data directory; a workspace of its own keeps configuration and journal apart",
        });
    }
    Ok(Loaded { config: assembled.config, paths, warnings, file_found: text.is_some() })
}

/// Where a first configuration belongs: the file need not be there, but one that is there has to be usable.
pub fn locate_for_onboard(request: &LoadRequest) -> Result<Paths, ConfigError> {
    let place = locations::locate(request)?;
    let text = read(&place.config, false)?;
    let assembled = assemble::assemble(&place.config, text.as_deref(), &request.env)?;
    place.paths(request, assembled.config.agents.defaults.workspace.as_deref())
}

/// Where data is when the configuration cannot be read; the workspace is the usual one.
pub fn locate_data(request: &LoadRequest) -> Result<Paths, ConfigError> {
    locations::locate(request)?.paths(request, None)
}

/// The file's text without a byte order mark. A missing file is `None` unless it was asked for by name.
fn read(file: &Path, explicit: bool) -> Result<Option<String>, ConfigError> {
    let unreadable = |source| ConfigError::Unreadable { file: file.into(), source };
    let opened = match File::open(file) {
        Ok(opened) => opened,
        Err(missing) if missing.kind() == io::ErrorKind::NotFound && !explicit => return Ok(None),
        Err(source) => return Err(unreadable(source)),
    };
    let mut bytes = Vec::new();
    opened.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > FILE_BYTES_MAX {
        let bytes = file.metadata().map_or(FILE_BYTES_MAX + 1, |stat| stat.len());
        return Err(ConfigError::TooLarge { file: file.into(), bytes, max: FILE_BYTES_MAX });
    }
    let text = String::from_utf8(bytes)
        .map_err(|bad| ConfigError::NotUtf8 { file: file.into(), offset: bad.utf8_error().valid_up_to() })?;
    Ok(Some(text.strip_prefix('\u{feff}').map(str::to_string).unwrap_or(text)))
}

#[cfg(test)]
mod tests;
