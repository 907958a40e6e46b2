//! What an OpenClaw directory holds, and where it goes.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use domain::exchange::Remark;
use domain::exchange::openclaw::{
    FileKind, Source, Store, StoreEntry, ended_name, file_kind, map_config, map_jobs, orphan_key, transcribe,
};
use domain::ids::SessionKey;
use domain::stem::stem;
use serde_json::{Map, Value};

use super::mover::{Found, Mover, Same};
use super::{expand, place, workspace};
use crate::commands::report::Report;
use crate::config::Paths;

/// The agent whose workspace ours is.
const MAIN: &str = "main";
/// What is looked at in the state directory.
const KNOWN: &[&str] = &["openclaw.json", "agents", "workspace", "media", "cron", "skills"];

/// The most brackets that may be open at once in a configuration.
const DEPTH_MAX: usize = 100;

/// Brings over everything in `dir`.
pub fn import(mut mover: Mover, dir: &Path, paths: &Paths) -> Report {
    let config = config(&mut mover, dir, paths);
    let workspace = workspace_of(dir, config.as_ref());
    let leave = |below: &Path| below == Path::new("sessions") || below == Path::new(".openclaw");
    workspace::import(&mut mover, &workspace, paths, &leave);
    for (from, kind, to) in
        [("skills", "skill", place(paths, Path::new("skills"))), ("media", "media", paths.media.clone())]
    {
        for found in mover.walk(&dir.join(from), |_| true) {
            let to = to.join(&found.below);
            mover.copy(kind, &found, &to);
        }
    }
    jobs(&mut mover, dir, paths);
    for (agent, is_directory) in mover.list(&dir.join("agents")) {
        if is_directory {
            sessions(&mut mover, &agent, paths);
        }
    }
    for (path, _) in mover.list(dir) {
        let name = mover.shown(&path);
        if !KNOWN.contains(&&*name) && path != workspace {
            mover.report.skip("other", name, "has no place here");
        }
    }
    mover.report
}

fn config(mover: &mut Mover, dir: &Path, paths: &Paths) -> Option<Value> {
    let path = dir.join("openclaw.json");
    if !path.exists() {
        return None;
    }
    let read = mover.read(&path).and_then(|bytes| {
        String::from_utf8(bytes).map_err(|error| format!("not UTF-8 at byte {}", error.utf8_error().valid_up_to()))
    });
    let read = read.and_then(|text| match deepest(&text) {
        // The library calls itself for each level.
        depth if depth > DEPTH_MAX => Err(format!("more than {DEPTH_MAX} brackets are open at once")),
        _ => Ok(text),
    });
    let read = read.and_then(|text| {
        json5::from_str::<Value>(text.trim_start_matches('\u{feff}')).map_err(|error| {
            // The library's message may quote a value; the place says enough.
            error.position().map_or_else(
                || "not JSON5".to_owned(),
                |at| format!("line {}, column {}: not JSON5", at.line + 1, at.column + 1),
            )
        })
    });
    match read {
        Ok(theirs) => {
            let mapped = map_config(&theirs);
            let taken = mapped.taken.iter().map(|(theirs, ours)| Remark::of(format!("{theirs} is {ours} here")));
            let left = mapped.left.iter().map(|key| Remark::of(format!("{key} has no place here")));
            let remarks = taken.chain(left).collect();
            let bytes = format!("{:#}\n", mapped.config).into_bytes();
            mover.put("config", "openclaw.json", &paths.config, &bytes, Same::Json, remarks);
            Some(theirs)
        }
        Err(why) => {
            mover.report.fail("config", "openclaw.json", why);
            None
        }
    }
}

/// How many brackets are open at once, at most.
fn deepest(text: &str) -> usize {
    let (mut open, mut deepest) = (0_usize, 0);
    for letter in text.chars() {
        match letter {
            '[' | '{' => open += 1,
            ']' | '}' => open = open.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(open);
    }
    deepest
}

fn workspace_of(dir: &Path, config: Option<&Value>) -> PathBuf {
    let usual = dir.join("workspace");
    let text = |pointer: &str| config.and_then(|config| config.pointer(pointer)).and_then(Value::as_str);
    let named = text("/agents/defaults/workspace").or_else(|| text("/agent/workspace"));
    match named.filter(|named| *named != "~/.openclaw/workspace") {
        Some(named) => Some(expand(named, dir)).filter(|named| named.is_dir()).unwrap_or(usual),
        None => usual,
    }
}

fn jobs(mover: &mut Mover, dir: &Path, paths: &Paths) {
    for found in mover.walk(&dir.join("cron"), |_| true) {
        let name = mover.shown(&found.path);
        if found.below != Path::new("jobs.json") {
            let to = place(paths, &Path::new("cron").join("openclaw").join(&found.below));
            mover.copy("cron", &found, &to);
            continue;
        }
        let read = mover.read(&found.path).and_then(|bytes| {
            serde_json::from_slice::<Value>(&bytes)
                .map_err(|error| format!("line {}, column {}: not JSON", error.line(), error.column()))
        });
        match read {
            Ok(theirs) => {
                let (ours, remarks) = map_jobs(&theirs);
                let to = place(paths, Path::new("cron/jobs.json"));
                mover.put("cron", &name, &to, format!("{ours:#}\n").as_bytes(), Same::Json, remarks);
            }
            Err(why) => mover.report.fail("cron", name, why),
        }
    }
}

/// The sessions of one agent.
fn sessions(mover: &mut Mover, agent: &Path, paths: &Paths) {
    let agent_name = agent.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let directory = agent.join("sessions");
    let files = mover.list(&directory);
    let names: BTreeSet<String> =
        files.iter().filter_map(|(path, _)| path.file_name()?.to_str().map(str::to_owned)).collect();
    if agent.join("agent/openclaw-agent.sqlite").exists() {
        let name = mover.shown(&agent.join("agent/openclaw-agent.sqlite"));
        mover.report.skip("session", name, "sessions in a database (2026.7.2 and later) are not read");
    }
    let store = store(mover, &directory, &names);
    let mut told: BTreeSet<String> = BTreeSet::new();
    for entry in &store.entries {
        match entry.file_names().into_iter().find(|name| names.contains(name)) {
            Some(file) if told.insert(file.clone()) => {
                session(mover, &directory.join(&file), &entry.key, Some(&entry.fields));
            }
            Some(file) => only_entry(mover, entry, &format!("{file} is another session's too")),
            None => only_entry(mover, entry, "it has no transcript"),
        }
    }
    for (path, is_directory) in files {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let shown = mover.shown(&path);
        let archive = paths.sessions.join("archive/openclaw").join(&agent_name);
        let executable = false;
        match file_kind(&name) {
            FileKind::Store => {}
            FileKind::Passing(what) => mover.report.skip("other", shown, what),
            FileKind::Archive | FileKind::Transcript if is_directory => {
                for found in mover.walk(&path, |_| true) {
                    let to = archive.join(&name).join(&found.below);
                    mover.copy("archive", &found, &to);
                }
            }
            FileKind::Archive if archived(mover, &path, &name, &agent_name) => {}
            FileKind::Archive => {
                mover.copy("archive", &Found { below: PathBuf::from(&name), path, executable }, &archive.join(&name));
            }
            FileKind::Transcript if told.contains(&name) => {}
            FileKind::Transcript => match orphan_key(&agent_name, name.trim_end_matches(".jsonl")) {
                Some(key) => session(mover, &path, &key, None),
                None => mover.report.fail("session", shown, "its name cannot be part of a session key"),
            },
        }
    }
    if agent_name != MAIN {
        let why = "the sessions came; files of this agent's own workspace are not brought into this one";
        mover.report.skip("workspace", format!("agent {agent_name}"), why);
    }
}

fn store(mover: &mut Mover, directory: &Path, names: &BTreeSet<String>) -> Store {
    if !names.contains("sessions.json") {
        return Store::default();
    }
    let path = directory.join("sessions.json");
    let name = mover.shown(&path);
    let read = mover.read(&path);
    let read = read
        .and_then(|bytes| Store::read(&bytes).map_err(|why| format!("line {}: {}", why.line.unwrap_or(1), why.what)));
    match read {
        Ok(store) => {
            for remark in &store.remarks {
                mover.report.skip("session", &name, &remark.what);
            }
            store
        }
        Err(why) => {
            mover.report.fail("session", format!("{name} (its transcripts come without their keys)"), why);
            Store::default()
        }
    }
}

fn session(mover: &mut Mover, path: &Path, key: &SessionKey, entry: Option<&Map<String, Value>>) {
    let name = format!("{key} ({})", mover.shown(path));
    let bytes = match mover.read(path) {
        Ok(bytes) => bytes,
        Err(why) => return mover.report.fail("session", name, why),
    };
    let id = path.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let made = transcribe(&Source { bytes: &bytes, key, id: &id, entry });
    mover.session(key, &name, made);
}

/// Puts a transcript from before a reset or a deletion into the archive; false when it is something else.
fn archived(mover: &mut Mover, path: &Path, name: &str, agent: &str) -> bool {
    let Some((id, at_ms)) = ended_name(name) else { return false };
    let Some(key) = orphan_key(agent, id) else { return false };
    let shown = format!("{key} ({})", mover.shown(path));
    match mover.read(path) {
        Ok(bytes) => {
            let made = transcribe(&Source { bytes: &bytes, key: &key, id, entry: None });
            mover.archive(&key, at_ms, &shown, made);
        }
        Err(why) => mover.report.fail("archive", shown, why),
    }
    true
}

/// An entry without a transcript is a session without messages: its name and settings are kept.
fn only_entry(mover: &mut Mover, entry: &StoreEntry, why: &str) {
    let id = entry.session_id().map_or_else(|| stem(&entry.key), str::to_owned);
    let source = Source { bytes: b"", key: &entry.key, id: &id, entry: Some(&entry.fields) };
    let mut made = transcribe(&source);
    made.remarks = vec![Remark::of(format!("{why}; the session is empty"))];
    mover.session(&entry.key, entry.key.as_str(), made);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn open_brackets_are_counted() {
        for (text, depth) in [("", 0), ("[]{}[[]]", 2), ("]]{", 1)] {
            assert_eq!(deepest(text), depth, "{text}");
        }
    }
}
