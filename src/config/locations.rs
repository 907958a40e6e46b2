//! Where things are. Only the current directory is read, to make relative paths absolute.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use super::LoadRequest;
use super::error::{ConfigError, Origin};

const WORKSPACE_VARIABLE: &str = "GREENROOM_WORKSPACE";

/// The directories and files of one installation; all absolute.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Paths {
    /// The data directory.
    pub data: PathBuf,
    /// `config.json`.
    pub config: PathBuf,
    /// What the agent works in.
    pub workspace: PathBuf,
    /// The write-ahead log.
    pub journal: PathBuf,
    /// Log files.
    pub logs: PathBuf,
    /// Uploaded files.
    pub media: PathBuf,
    /// Locks and the description of the running gateway.
    pub run: PathBuf,
    /// Transcripts, in the workspace.
    pub sessions: PathBuf,
}

/// Data directory and file, before the file is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Place {
    /// The data directory.
    pub data: PathBuf,
    /// The file.
    pub config: PathBuf,
    /// Whether the file was asked for by name, so that it has to exist.
    pub explicit: bool,
}

/// Decides data directory and file: `GREENROOM_HOME`, else the directory of the named file, else `~/.greenroom`.
pub fn locate(request: &LoadRequest) -> Result<Place, ConfigError> {
    let env = &request.env;
    let named = request.config.clone().or_else(|| variable(env, "GREENROOM_CONFIG"));
    let named = named.map(|path| absolute(&path, env)).transpose()?;
    let data = match (variable(env, "GREENROOM_HOME"), named.as_deref().and_then(Path::parent)) {
        (Some(data), _) => absolute(&data, env)?,
        (None, Some(beside)) => beside.to_path_buf(),
        (None, None) => home(env).ok_or(ConfigError::NoHome)?.join(".greenroom"),
    };
    let explicit = named.is_some();
    let config = named.unwrap_or_else(|| data.join("config.json"));
    Ok(Place { data, config, explicit })
}

impl Place {
    /// Who named a workspace that goes before the configured one.
    pub fn workspace_given(&self, request: &LoadRequest) -> Option<Origin> {
        match &request.workspace {
            Some(_) => Some(Origin::Option("--workspace")),
            None => variable(&request.env, WORKSPACE_VARIABLE).map(|_| Origin::Variable(WORKSPACE_VARIABLE.into())),
        }
    }

    /// Everything, once `agents.defaults.workspace` is known.
    pub fn paths(&self, request: &LoadRequest, configured: Option<&str>) -> Result<Paths, ConfigError> {
        let env = &request.env;
        let given = request.workspace.clone().or_else(|| variable(env, WORKSPACE_VARIABLE));
        Ok(match (given, configured) {
            (Some(given), _) => self.paths_with(absolute(&given, env)?),
            (None, Some(configured)) => {
                let beside = self.config.parent().unwrap_or(&self.data);
                self.paths_with(absolute(&beside.join(expand(Path::new(configured), env)), env)?)
            }
            (None, None) => self.usual_paths(),
        })
    }

    /// Everything, with the workspace where it is when nobody says otherwise.
    pub fn usual_paths(&self) -> Paths {
        self.paths_with(self.data.join("workspace"))
    }

    fn paths_with(&self, workspace: PathBuf) -> Paths {
        Paths {
            config: self.config.clone(),
            journal: self.data.join("journal"),
            logs: self.data.join("logs"),
            media: self.data.join("media"),
            run: self.data.join("run"),
            sessions: workspace.join("sessions"),
            data: self.data.clone(),
            workspace,
        }
    }
}

fn variable(env: &BTreeMap<String, String>, name: &str) -> Option<PathBuf> {
    env.get(name).filter(|value| !value.is_empty()).map(PathBuf::from)
}

fn home(env: &BTreeMap<String, String>) -> Option<PathBuf> {
    variable(env, "HOME").or_else(|| variable(env, "USERPROFILE"))
}

/// Replaces a leading `~`.
fn expand(path: &Path, env: &BTreeMap<String, String>) -> PathBuf {
    match (path.strip_prefix("~"), home(env)) {
        (Ok(rest), Some(home)) => home.join(rest),
        (Ok(_) | Err(_), _) => path.to_path_buf(),
    }
}

/// Absolute, without `.` and a trailing slash.
fn absolute(path: &Path, env: &BTreeMap<String, String>) -> Result<PathBuf, ConfigError> {
    let path = expand(path, env);
    let absolute = std::path::absolute(&path).map_err(|source| ConfigError::BadPath { path, source })?;
    Ok(absolute.components().collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn request(config: Option<&str>, workspace: Option<&str>, env: &[(&str, &str)]) -> LoadRequest {
        LoadRequest {
            config: config.map(PathBuf::from),
            workspace: workspace.map(PathBuf::from),
            env: env.iter().map(|(name, value)| (name.to_string(), value.to_string())).collect(),
        }
    }

    #[test]
    fn data_directory_and_file_follow_the_table() {
        let home = ("HOME", "/home/u");
        for (config, env, data, file, explicit) in [
            (None, vec![home], "/home/u/.greenroom", "/home/u/.greenroom/config.json", false),
            (None, vec![home, ("GREENROOM_HOME", "/srv/g/")], "/srv/g", "/srv/g/config.json", false),
            (None, vec![home, ("GREENROOM_HOME", "")], "/home/u/.greenroom", "/home/u/.greenroom/config.json", false),
            (None, vec![home, ("GREENROOM_HOME", "~/g")], "/home/u/g", "/home/u/g/config.json", false),
            (Some("/etc/g/main.json"), vec![home], "/etc/g", "/etc/g/main.json", true),
            (Some("/etc/g/main.json"), vec![("GREENROOM_HOME", "/srv/g")], "/srv/g", "/etc/g/main.json", true),
            (None, vec![("GREENROOM_CONFIG", "/etc/g/c.json")], "/etc/g", "/etc/g/c.json", true),
            (Some("/a/b.json"), vec![("GREENROOM_CONFIG", "/etc/g/c.json")], "/a", "/a/b.json", true),
        ] {
            let place = locate(&request(config, None, &env)).unwrap();
            assert_eq!(place, Place { data: data.into(), config: file.into(), explicit }, "{config:?} {env:?}");
        }
        assert!(matches!(locate(&request(None, None, &[])), Err(ConfigError::NoHome)));
    }

    #[test]
    fn the_workspace_follows_the_table() {
        for (given, variable, configured, expect) in [
            (None, "", None, "/d/workspace"),
            (None, "", Some("~/garden"), "/home/u/garden"),
            (None, "", Some("garden"), "/d/garden"),
            (None, "/v", Some("~/garden"), "/v"),
            (Some("/w"), "/v", Some("~/garden"), "/w"),
            (Some("~/w"), "", None, "/home/u/w"),
        ] {
            let request =
                request(Some("/d/config.json"), given, &[("HOME", "/home/u"), ("GREENROOM_WORKSPACE", variable)]);
            let paths = locate(&request).unwrap().paths(&request, configured).unwrap();
            assert_eq!(paths.workspace, Path::new(expect), "{given:?} {variable} {configured:?}");
            assert_eq!(paths.sessions, Path::new(expect).join("sessions"));
            assert_eq!(paths.journal, Path::new("/d/journal"));
        }
    }
}
