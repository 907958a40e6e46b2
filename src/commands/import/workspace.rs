//! The files of a workspace: instructions, memory, skills, jobs, and all else that lies there.

use std::path::{Component, Path};

use super::mover::{Found, Mover};
use super::place;
use crate::config::Paths;

/// Instruction files at the top of a workspace.
const INSTRUCTIONS: &[&str] =
    &["AGENTS.md", "SOUL.md", "USER.md", "TOOLS.md", "HEARTBEAT.md", "IDENTITY.md", "BOOTSTRAP.md", "BOOT.md"];

/// Brings over everything in `workspace` but what `leave` names.
pub fn import(mover: &mut Mover, workspace: &Path, paths: &Paths, leave: &dyn Fn(&Path) -> bool) {
    // A workspace of theirs that is also ours has nothing to bring.
    if workspace == paths.workspace {
        let name = mover.shown(workspace);
        mover.report.skip("workspace", name, "it is this workspace already");
        return;
    }
    let ours = |below: &Path| {
        let path = workspace.join(below);
        path == paths.data || path == paths.workspace
    };
    if paths.data.starts_with(workspace) || paths.workspace.starts_with(workspace) {
        let why = "this program's own directory lies in it, and is left out";
        let name = mover.shown(workspace);
        mover.report.skip("workspace", name, why);
    }
    for found in mover.walk(workspace, |below| !leave(below) && !ours(below)) {
        let to = place(paths, &target(&found));
        mover.copy(kind(&found.below), &found, &to);
    }
}

/// Where a file goes: as it lies, but for memory that lies at the top.
fn target(found: &Found) -> std::path::PathBuf {
    match found.below.to_str() {
        Some("MEMORY.md") => Path::new("memory").join("MEMORY.md"),
        Some(_) | None => found.below.clone(),
    }
}

/// What a file is, by its path in the workspace.
fn kind(below: &Path) -> &'static str {
    let mut parts = below.components().filter_map(|part| match part {
        Component::Normal(name) => name.to_str(),
        Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => None,
    });
    match (parts.next(), parts.next()) {
        (Some(name), None) if INSTRUCTIONS.contains(&name) => "workspace",
        (Some("MEMORY.md"), None) | (Some("memory"), Some(_)) => "memory",
        (Some("skills"), Some(_)) => "skill",
        (Some("cron"), Some(_)) => "cron",
        (Some(_) | None, _) => "file",
    }
}
