//! What a nanobot directory holds, and where it goes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use domain::exchange::Remark;
use domain::exchange::nanobot::{SessionFile, Source, name, transcribe};
use domain::ids::SessionKey;
use jiff::tz::TimeZone;
use serde_json::Value;

use super::mover::{Mover, Same};
use super::{expand, place, workspace};
use crate::commands::report::Report;
use crate::config::Paths;

/// Files of the data directory that have no place here.
const LEFT: &[(&str, &str)] = &[
    ("pairing.json", "pairings are made anew"),
    ("auth", "sign in again"),
    ("webui", "the web interface's own files"),
    ("run", "about a running process"),
    ("logs", "logs"),
    ("history", "the prompt's history"),
];

const JOBS: &str = "cron/jobs.json";

/// Brings over everything in `dir`.
pub fn import(mut mover: Mover, dir: &Path, paths: &Paths) -> Report {
    let config = config(&mut mover, dir, paths);
    let workspace = workspace_of(dir, config.as_ref());
    let leave = |below: &Path| {
        let own = ["sessions", "cron.lock", ".nanobot/workspace-id"];
        own.iter().any(|name| below == Path::new(name))
    };
    workspace::import(&mut mover, &workspace, paths, &leave);
    jobs(&mut mover, dir, &workspace, paths);
    for found in mover.walk(&dir.join("media"), |_| true) {
        let to = paths.media.join(&found.below);
        mover.copy("media", &found, &to);
    }
    sessions(&mut mover, dir, &workspace, paths);
    for (name, why) in LEFT {
        if dir.join(name).exists() {
            mover.report.skip("other", *name, *why);
        }
    }
    mover.report
}

/// Jobs once lay in the data directory. nanobot follows those only while the workspace has none.
fn jobs(mover: &mut Mover, dir: &Path, workspace: &Path, paths: &Paths) {
    let own = workspace.join(JOBS).exists();
    for found in mover.walk(&dir.join("cron"), |_| true) {
        let below = Path::new("cron").join(&found.below);
        if own && below == Path::new(JOBS) {
            let name = mover.shown(&found.path);
            mover.report.skip("cron", name, "the workspace has jobs of its own, and nanobot follows only those");
        } else {
            mover.copy("cron", &found, &place(paths, &below));
        }
    }
}

/// The configuration is taken as it is, but for the workspace: ours is another directory.
fn config(mover: &mut Mover, dir: &Path, paths: &Paths) -> Option<Value> {
    let path = dir.join("config.json");
    if !path.exists() {
        return None;
    }
    let bytes = match mover.read(&path) {
        Ok(bytes) => bytes,
        Err(why) => {
            mover.report.fail("config", "config.json", why);
            return None;
        }
    };
    let text = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(&bytes);
    let original: Value = match serde_json::from_slice(text) {
        Ok(value) => value,
        Err(error) => {
            // The library's message may quote a value; the place says enough.
            let why = format!("line {}, column {}: not JSON", error.line(), error.column());
            mover.report.fail("config", "config.json", why);
            return None;
        }
    };
    let mut ours = original.clone();
    let defaults = ours.pointer_mut("/agents/defaults").and_then(Value::as_object_mut);
    let mut remarks = Vec::new();
    let bytes = if defaults.and_then(|defaults| defaults.shift_remove("workspace")).is_some() {
        remarks.push(Remark::of(format!(
            "agents.defaults.workspace is left out: it is {} here",
            paths.workspace.display()
        )));
        format!("{ours:#}\n").into_bytes()
    } else {
        text.to_vec()
    };
    let unused = crate::config::remarks(&path, &String::from_utf8_lossy(&bytes), &crate::commands::environment());
    remarks.extend(unused.into_iter().map(Remark::of));
    mover.put("config", "config.json", &paths.config, &bytes, Same::Json, remarks);
    Some(original)
}

fn workspace_of(dir: &Path, config: Option<&Value>) -> PathBuf {
    let usual = dir.join("workspace");
    let named = config.and_then(|config| config.pointer("/agents/defaults/workspace")).and_then(Value::as_str);
    match named.filter(|named| *named != "~/.nanobot/workspace") {
        Some(named) => Some(expand(named, dir)).filter(|named| named.is_dir()).unwrap_or(usual),
        None => usual,
    }
}

/// One file that may be a session.
struct Candidate {
    path: PathBuf,
    key: SessionKey,
    file: SessionFile,
}

/// All sessions of this workspace. Of several with one key, the one that changed last is taken, as nanobot does it; the
/// others are kept aside.
fn sessions(mover: &mut Mover, dir: &Path, workspace: &Path, paths: &Paths) {
    let zone = TimeZone::system();
    let cwd = paths.workspace.display().to_string();
    let mut found = Vec::new();
    for directory in namespaces(mover, dir, workspace) {
        found.extend(candidates(mover, &directory, Some(paths)));
    }
    // Older releases had neither namespaces nor a place outside the workspace.
    for directory in [dir.join("sessions"), workspace.join("sessions")] {
        if directory != paths.sessions {
            found.extend(candidates(mover, &directory, None));
        }
    }
    let mut by_key: BTreeMap<String, Vec<Candidate>> = BTreeMap::new();
    for candidate in found {
        by_key.entry(candidate.key.as_str().to_owned()).or_default().push(candidate);
    }
    for mut candidates in by_key.into_values() {
        let changed = |candidate: &Candidate| {
            candidate.file.head.get("updated_at").and_then(Value::as_str).unwrap_or_default().to_owned()
        };
        candidates.sort_by_key(|candidate| std::cmp::Reverse(changed(candidate)));
        for candidate in candidates {
            let checkpoint = mover.read(&candidate.path.with_extension("checkpoint.json")).ok();
            let source = Source {
                file: &candidate.file,
                key: &candidate.key,
                checkpoint: checkpoint.as_deref(),
                zone: &zone,
                cwd: &cwd,
            };
            let made = transcribe(&source);
            let name = format!("{} ({})", candidate.key, mover.shown(&candidate.path));
            mover.session(&candidate.key, &name, made);
        }
    }
}

/// The directories of this workspace's sessions. Without its id, those that name the workspace, or the only one.
fn namespaces(mover: &mut Mover, dir: &Path, workspace: &Path) -> Vec<PathBuf> {
    let read = |mover: &Mover, path: &Path| {
        mover.read(path).ok().map(|bytes| String::from_utf8_lossy(&bytes).trim().to_owned())
    };
    let id = read(mover, &workspace.join(".nanobot/workspace-id"));
    let all: Vec<PathBuf> = mover
        .list(&dir.join("sessions"))
        .into_iter()
        .filter(|(_, directory)| *directory)
        .map(|(path, _)| path)
        .collect();
    let is_named = |mover: &Mover, path: &PathBuf| {
        read(mover, &path.join(".workspace")).is_some_and(|named| Path::new(&named) == workspace)
    };
    let by_id = |path: &PathBuf| id.as_ref().is_some_and(|id| path.file_name().is_some_and(|name| *name == **id));
    let mut ours: Vec<PathBuf> = all.iter().filter(|path| by_id(path)).cloned().collect();
    if ours.is_empty() {
        ours = all.iter().filter(|path| is_named(mover, path)).cloned().collect();
    }
    if ours.is_empty() && all.len() == 1 {
        ours.clone_from(&all);
    }
    for path in all.iter().filter(|path| !ours.contains(path)) {
        let name = mover.shown(path);
        mover.report.skip(
            "session",
            name,
            "sessions of another workspace; import that one into a directory of its own",
        );
    }
    ours
}

/// The sessions in one directory; what is none is told. Directories in it are kept as archives in `archives`' sessions.
fn candidates(mover: &mut Mover, directory: &Path, archives: Option<&Paths>) -> Vec<Candidate> {
    let mut found = Vec::new();
    for (path, is_directory) in mover.list(directory) {
        let file_name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default().to_owned();
        if is_directory {
            let archive = archives.map(|paths| paths.sessions.join("archive/nanobot").join(&file_name));
            if let Some(archive) = archive {
                for archived in mover.walk(&path, |_| true) {
                    mover.copy("archive", &archived, &archive.join(&archived.below));
                }
            }
        } else if let Some(stem) = file_name.strip_suffix(".jsonl") {
            found.extend(candidate(mover, path.clone(), stem));
        } else if !file_name.starts_with('.')
            && !file_name.ends_with(".lock")
            && !file_name.ends_with(".checkpoint.json")
        {
            let shown = mover.shown(&path);
            mover.report.skip("other", shown, "not a session file");
        }
    }
    found
}

fn candidate(mover: &mut Mover, path: PathBuf, stem: &str) -> Option<Candidate> {
    let shown = mover.shown(&path);
    let bytes = match mover.read(&path) {
        Ok(bytes) => bytes,
        Err(why) => {
            mover.report.fail("session", shown, why);
            return None;
        }
    };
    let file = SessionFile::read(&bytes);
    let is_tree = file.rows.first().is_some_and(|row| row.text_of("type") == Some("session"));
    if file.is_empty() || is_tree {
        let why = match (is_tree, file.remarks.is_empty()) {
            (true, _) => "it is no session of nanobot's",
            (false, true) => "it is empty",
            (false, false) => "no line of it is a message or metadata",
        };
        mover.report.skip("session", shown, why);
        return None;
    }
    let key = key_of(stem, &file);
    if key.is_none() {
        mover.report.fail("session", shown, "line 1 names no session key, and neither does the file's name");
    }
    Some(Candidate { path, key: key?, file })
}

/// The key: by the name of the file, as nanobot does it; for older names by what the file says.
fn key_of(stem: &str, file: &SessionFile) -> Option<SessionKey> {
    let said = file.key().and_then(|key| SessionKey::new(key).ok());
    name::key_of(stem).or(said).or_else(|| name::key_of_lossy(stem))
}
