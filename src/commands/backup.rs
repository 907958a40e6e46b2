//! `greenroom backup` and `greenroom restore`.
//!
//! A backup holds `config.json`, `journal/` (a consistent copy of the log), `workspace/` and `backup.json`. The journal is
//! copied first: a transcript that is copied later may be ahead of it, which recovery recognises; never behind it.

use std::fs;
use std::io::ErrorKind;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use domain::text::counted;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::admin::Admin;
use super::{environment, print, print_json};
use crate::app::{App, Options};
use crate::cli::CopyArgs;
use crate::config::{LoadRequest, Loaded, Paths, survey};
use crate::exit::{Exit, ExitCode};

/// `backup.json`.
#[derive(Debug, Serialize, Deserialize)]
struct Manifest {
    version: String,
    made: String,
    from: PathBuf,
}

/// Copies everything into `dir`, which must not exist.
pub async fn backup(loaded: Loaded, arguments: &CopyArgs) -> anyhow::Result<()> {
    loaded.require_workspace().map_err(Exit::from)?;
    let target = std::path::absolute(&arguments.dir)?;
    if target.exists() {
        bail!(Exit::new(ExitCode::Failed, format!("{} exists; a backup needs a new directory", target.display())));
    }
    if !loaded.paths.journal.exists() {
        let message = format!("there is nothing to back up in {}", loaded.paths.data.display());
        bail!(Exit::new(ExitCode::Failed, message));
    }
    let mut private = fs::DirBuilder::new();
    private.mode(0o700).create(&target).with_context(|| format!("{} cannot be made", target.display()))?;
    let (paths, log) = (loaded.paths.clone(), target.join("journal"));
    match Admin::find(&paths).await? {
        Some(admin) => {
            admin.post("backup", &json!({"dir": log})).await?;
        }
        None => {
            let app = App::start(Options::at_rest(loaded)).await?;
            let copied = app.backup_journal(&log).await;
            app.stop().await;
            copied?;
        }
    }
    copy_if_there(&paths.config, &target.join("config.json"))?;
    let files = copy_tree(&paths.workspace, &target.join("workspace"), &[&paths.data.join("journal"), &target])?;
    let manifest = Manifest {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        made: jiff::Timestamp::now().to_string(),
        from: paths.data,
    };
    // Written last: a directory without it is no complete backup.
    fs::write(target.join("backup.json"), serde_json::to_vec_pretty(&manifest)?)?;
    if arguments.output.json {
        return print_json(&json!({"dir": target, "made": manifest.made, "workspace_files": files}));
    }
    print(&format!("{} holds the journal and {}", target.display(), counted(files, "workspace file")))
}

/// Puts a backup in place of an empty data directory.
pub fn restore(loaded: &Loaded, arguments: &CopyArgs) -> anyhow::Result<()> {
    let dir = &arguments.dir;
    loaded.require_workspace().map_err(Exit::from)?;
    let manifest = fs::read(dir.join("backup.json"))
        .with_context(|| format!("{} is no complete backup: backup.json cannot be read", dir.display()))?;
    let manifest: Manifest = serde_json::from_slice(&manifest).context("backup.json is damaged")?;
    refuse_if_used(&loaded.paths)?;
    if loaded.paths.config.exists() && dir.join("config.json").exists() {
        return Err(in_use(&loaded.paths.config).into());
    }
    fs::create_dir_all(&loaded.paths.data)?;
    let copied = dir.join("config.json").exists();
    copy_if_there(&dir.join("config.json"), &loaded.paths.config)?;
    // The restored configuration may put the workspace elsewhere.
    let request = LoadRequest { config: Some(loaded.paths.config.clone()), workspace: None, env: environment() };
    let paths = if loaded.paths.config.exists() { restored_paths(&request, copied)? } else { loaded.paths.clone() };
    refuse_if_used(&paths)?;
    copy_tree(&dir.join("journal"), &paths.journal, &[])?;
    let files = copy_tree(&dir.join("workspace"), &paths.workspace, &[])?;
    if arguments.output.json {
        let (data, workspace) = (&paths.data, &paths.workspace);
        let body = json!({"data": data, "workspace": workspace, "made": manifest.made, "workspace_files": files});
        return print_json(&body);
    }
    print(&format!(
        "restored the backup of {} into {}: journal and {}",
        manifest.made,
        paths.data.display(),
        counted(files, "workspace file")
    ))
}

/// Where the restored configuration puts things; one that does not say so is taken away again.
fn restored_paths(request: &LoadRequest, copied: bool) -> anyhow::Result<Paths> {
    let found = survey(request).map_err(Exit::from)?;
    if let Err(unsure) = found.require_workspace() {
        if copied {
            fs::remove_file(&found.paths.config)?;
        }
        return Err(Exit::from(unsure).into());
    }
    super::warn_of_problems(&found);
    Ok(found.paths)
}

fn refuse_if_used(paths: &Paths) -> Result<(), Exit> {
    let used = [&paths.journal, &paths.workspace].into_iter().find(|dir| holds_files(dir));
    used.map_or(Ok(()), |dir| Err(in_use(dir)))
}

fn in_use(path: &Path) -> Exit {
    let message = format!("{} is there already; restore into a data directory without any data", path.display());
    Exit::new(ExitCode::Failed, message)
}

/// Whether there is a file in `dir` or below, other than locks.
fn holds_files(dir: &Path) -> bool {
    let mut entries = fs::read_dir(dir).into_iter().flatten().flatten();
    entries.any(|entry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => holds_files(&entry.path()),
        Ok(_) | Err(_) => entry.file_name() != ".lock",
    })
}

fn copy_if_there(from: &Path, to: &Path) -> anyhow::Result<()> {
    match fs::copy(from, to) {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error).with_context(|| format!("{} cannot be copied", from.display())),
        Ok(_) => Ok(()),
    }
}

/// Copies files and directories with their modes; links are copied as links. Lock files stay behind. Returns how many
/// files there were.
fn copy_tree(from: &Path, to: &Path, skip: &[&Path]) -> anyhow::Result<u64> {
    let mut files = 0;
    let mut open = vec![(from.to_owned(), to.to_owned())];
    while let Some((from, to)) = open.pop() {
        if !from.is_dir() {
            continue;
        }
        fs::create_dir_all(&to).with_context(|| format!("{} cannot be made", to.display()))?;
        fs::set_permissions(&to, fs::metadata(&from)?.permissions())?;
        for entry in fs::read_dir(&from).with_context(|| format!("{} cannot be read", from.display()))? {
            let entry = entry?;
            let (path, target) = (entry.path(), to.join(entry.file_name()));
            if skip.iter().any(|skipped| path == **skipped) || entry.file_name() == ".lock" {
                continue;
            }
            let kind = entry.file_type()?;
            if kind.is_dir() {
                open.push((path, target));
            } else if kind.is_symlink() {
                std::os::unix::fs::symlink(fs::read_link(&path)?, &target)?;
            } else if kind.is_file() {
                copy_if_there(&path, &target)?;
                files += 1;
            }
        }
    }
    Ok(files)
}
