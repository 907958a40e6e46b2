//! The first configuration and workspace.
//!
//! **Invariant:** whatever is there already stays as it is, byte for byte; what is written appears whole or not at all.

use std::fmt;
use std::fs::{self, DirBuilder};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use domain::prompt::TEMPLATES;
use jiff::tz::TimeZone;
use serde_json::{Value, json};

use crate::config::Paths;

/// What [`onboard`] did.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    /// Files and directories that were made, in order.
    pub created: Vec<PathBuf>,
    /// Files and directories that were there already.
    pub kept: Vec<PathBuf>,
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let lines =
            self.created.iter().map(|path| ("created", path)).chain(self.kept.iter().map(|path| ("kept", path)));
        for (at, (what, path)) in lines.enumerate() {
            let line_break = if at == 0 { "" } else { "\n" };
            write!(f, "{line_break}{what:8} {}", path.display())?;
        }
        Ok(())
    }
}

/// A file or directory that cannot be made.
#[derive(Debug, thiserror::Error)]
#[error("{path}: cannot be created: {source}")]
pub struct OnboardError {
    /// Which one.
    pub path: PathBuf,
    /// Why.
    pub source: io::Error,
}

/// Directories of a fresh workspace.
const DIRECTORIES: &[&str] = &["memory", "skills", "sessions"];

/// Makes what is missing of configuration and workspace. Blocks: for the command line only.
/// A new file names the workspace when it is not at its usual place, so that the next start finds it.
pub fn onboard(paths: &Paths) -> Result<Report, OnboardError> {
    let mut work = Report { created: Vec::new(), kept: Vec::new() };
    work.directory(&paths.data)?;
    if let Some(beside) = paths.config.parent().filter(|beside| *beside != paths.data) {
        work.directory(beside)?;
    }
    let elsewhere = Some(paths.workspace.as_path()).filter(|workspace| *workspace != paths.data.join("workspace"));
    work.file(&paths.config, &first_config(elsewhere))?;
    work.directory(&paths.workspace)?;
    for name in DIRECTORIES {
        work.directory(&paths.workspace.join(name))?;
    }
    for (name, text) in TEMPLATES {
        work.file(&paths.workspace.join(name), text)?;
    }
    Ok(work)
}

/// The text of a configuration that nobody changed since it was made: with the workspace at its usual place.
pub fn untouched_config() -> String {
    first_config(None)
}

/// Where to put a key, which model, and the three doors. With an empty key the offline model answers.
fn first_config(workspace: Option<&Path>) -> String {
    let zone = TimeZone::system();
    let zone = zone.iana_name().filter(|name| TimeZone::get(name).is_ok()).unwrap_or("UTC");
    let mut defaults = json!({
        "model": "anthropic/claude-opus-4-5",
        "provider": "auto",
        "timezone": zone,
    });
    if let (Some(workspace), Value::Object(defaults)) = (workspace.and_then(Path::to_str), &mut defaults) {
        defaults.insert("workspace".into(), workspace.into());
    }
    let config = json!({
        "agents": { "defaults": defaults },
        "providers": { "openrouter": { "apiKey": "" } },
        "channels": { "websocket": { "enabled": true, "host": "127.0.0.1", "port": 8765 } },
        "api": { "host": "127.0.0.1", "port": 8900, "apiKey": "" },
        "gateway": { "host": "127.0.0.1", "port": 18790 },
    });
    format!("{config:#}\n")
}

impl Report {
    fn directory(&mut self, path: &Path) -> Result<(), OnboardError> {
        if path.is_dir() {
            self.kept.push(path.into());
            return Ok(());
        }
        let mut builder = DirBuilder::new();
        builder.recursive(true);
        #[cfg(unix)]
        std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
        builder.create(path).map_err(|source| OnboardError { path: path.into(), source })?;
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
            Err(source) => return Err(OnboardError { path: path.into(), source }),
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

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::config::{Config, LoadRequest, ProviderChoice, load, survey};

    fn run(request: &LoadRequest) -> Result<Report, OnboardError> {
        onboard(&survey(request).unwrap().paths)
    }

    fn request(home: &Path) -> LoadRequest {
        let env = [("GREENROOM_HOME".to_string(), home.to_str().unwrap().to_string())].into();
        LoadRequest { config: None, workspace: None, env }
    }

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn a_first_run_makes_everything_and_the_result_loads_clean() {
        let root = tempfile::tempdir().unwrap();
        let home = root.path().join("deep/home");
        let report = run(&request(&home)).unwrap();
        assert_eq!(report.kept, [] as [PathBuf; 0]);
        for name in ["config.json"].into_iter().chain(TEMPLATES.iter().map(|(name, _)| *name)) {
            let path = if name == "config.json" { home.join(name) } else { home.join("workspace").join(name) };
            assert!(report.created.contains(&path) && path.is_file(), "{name}");
        }
        for name in ["workspace/memory", "workspace/skills", "workspace/sessions"] {
            assert!(report.created.contains(&home.join(name)) && home.join(name).is_dir(), "{name}");
        }
        assert_eq!((mode(&home), mode(&home.join("config.json"))), (0o700, 0o600));
        let loaded = load(&request(&home)).unwrap();
        assert_eq!(loaded.warnings, []);
        assert!(matches!(loaded.provider, ProviderChoice::Offline { .. }));
        let defaults = Config::default();
        assert_eq!((loaded.config.api, loaded.config.gateway), (defaults.api, defaults.gateway));
        assert_eq!(loaded.config.channels, defaults.channels);
    }

    #[test]
    fn nothing_is_overwritten_and_a_second_run_only_fills_gaps() {
        let home = tempfile::tempdir().unwrap();
        let (config, soul) = (home.path().join("config.json"), home.path().join("garden/SOUL.md"));
        fs::write(&config, r#"{"agents":{"defaults":{"workspace":"garden"}}}"#).unwrap();
        fs::create_dir(home.path().join("garden")).unwrap();
        fs::write(&soul, "mine").unwrap();
        let report = run(&request(home.path())).unwrap();
        assert!(report.kept.contains(&config) && report.kept.contains(&soul));
        assert_eq!(fs::read_to_string(&soul).unwrap(), "mine");
        assert!(fs::read_to_string(&config).unwrap().contains("garden"));
        fs::remove_file(home.path().join("garden/USER.md")).unwrap();
        let again = run(&request(home.path())).unwrap();
        assert!(again.to_string().starts_with("created  /") && again.to_string().contains("\nkept     /"), "{again}");
        assert_eq!(again.created, [home.path().join("garden/USER.md")]);
    }

    #[test]
    fn a_given_workspace_is_remembered() {
        let root = tempfile::tempdir().unwrap();
        let mut request = request(&root.path().join("home"));
        request.workspace = Some(root.path().join("elsewhere"));
        run(&request).unwrap();
        request.workspace = None;
        assert_eq!(load(&request).unwrap().paths.workspace, root.path().join("elsewhere"));
    }

    #[test]
    fn a_place_that_cannot_be_made_is_named() {
        let root = tempfile::tempdir().unwrap();
        let file = root.path().join("file");
        fs::write(&file, "").unwrap();
        let said = survey(&request(&file)).unwrap().require_workspace().unwrap_err().to_string();
        assert!(said.starts_with(&file.display().to_string()), "{said}");
        let mut below = request(root.path());
        below.workspace = Some(file.join("workspace"));
        let said = run(&below).unwrap_err().to_string();
        assert!(said.starts_with(&format!("{}/workspace: cannot be created: ", file.display())), "{said}");
    }
}
