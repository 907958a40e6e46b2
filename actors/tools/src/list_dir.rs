//! `list_dir`: names of a directory, or of the tree below it.

use std::collections::VecDeque;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::policy::Access;
use domain::request::ToolSpec;
use futures::FutureExt;
use futures::future::BoxFuture;
use rustix::fs::{AtFlags, Dir, FileType};
use serde_json::json;

use crate::place::{Fence, PathError, Target};
use crate::tool::{Call, Outcome, Tool};

/// Entries shown, when the model names no number.
const ENTRIES: u64 = 200;
/// The most that a model can ask for.
const ENTRIES_MAX: u64 = 2000;
/// Entries looked at before the count is given up.
const SCAN_MAX: usize = 100_000;
/// Directories that hold nothing anybody wrote.
const IGNORED: [&str; 13] = [
    ".git",
    "node_modules",
    "__pycache__",
    ".venv",
    "venv",
    "dist",
    "build",
    ".tox",
    ".mypy_cache",
    ".pytest_cache",
    ".ruff_cache",
    ".coverage",
    "htmlcov",
];

/// Lists directories.
pub(crate) struct ListDir {
    fence: Arc<Fence>,
}

// === impl ListDir ===

impl ListDir {
    /// Lists within `fence`.
    pub(crate) fn new(fence: Arc<Fence>) -> Self {
        Self { fence }
    }
}

impl Tool for ListDir {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "list_dir".to_owned(),
            description: "Lists a directory of the workspace, sorted by name; directories end with `/`, links with \
                          `@`. Directories such as .git and node_modules are left out."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Path of the directory, relative to the workspace; `.` is the workspace"},
                    "recursive": {"type": "boolean", "description": "Whether to go into directories (default false)"},
                    "max_entries": {"type": "integer", "minimum": 1, "maximum": ENTRIES_MAX, "description": "How many entries to show (default 200)"}
                },
                "required": ["path"],
                "additionalProperties": false
            }),
            parallel: true,
            idempotent: true,
        }
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let fence = self.fence.within(&call, Access::Read);
        async move {
            let path = call.text("path").unwrap_or(".").to_owned();
            let recursive = call.flag("recursive");
            let max = usize::try_from(call.number("max_entries").unwrap_or(ENTRIES).min(ENTRIES_MAX));
            let max = max.unwrap_or(usize::MAX);
            match call.blocking(move || list(&*fence?, &path, recursive, max)).await {
                Ok(text) => Outcome::text(text),
                Err(error) => Outcome::error(format!("Error: {error}")),
            }
        }
        .boxed()
    }
}

/// One name, relative to the listed directory.
struct Entry {
    name: PathBuf,
    kind: FileType,
}

fn list(fence: &Fence, path: &str, recursive: bool, max: usize) -> Result<String, PathError> {
    let target = fence.locate(path)?;
    target.open_dir()?;
    let mut shown = String::new();
    let mut total = 0_usize;
    let mut scanned = 0_usize;
    // Depth first in order of names: each directory's entries go in front of what is still to be shown.
    let mut waiting: VecDeque<Entry> = entries(&target, Path::new(""), &mut scanned)?.into();
    while let Some(entry) = waiting.pop_front() {
        total += 1;
        let is_dir = entry.kind == FileType::Directory;
        if total <= max {
            let mark = match entry.kind {
                FileType::Directory => "/",
                FileType::Symlink => "@",
                FileType::RegularFile
                | FileType::Fifo
                | FileType::Socket
                | FileType::CharacterDevice
                | FileType::BlockDevice
                | FileType::Unknown => "",
            };
            shown.push_str(&format!("{}{mark}\n", entry.name.display()));
        }
        if recursive && is_dir && scanned < SCAN_MAX {
            // A directory that cannot be read or has just gone is shown, without entries.
            let below = entries(&target, &entry.name, &mut scanned).unwrap_or_default();
            for entry in below.into_iter().rev() {
                waiting.push_front(entry);
            }
        }
    }
    if total == 0 {
        return Ok(format!("(`{}` is empty)", target.shown));
    }
    if total > max {
        let more = if scanned >= SCAN_MAX { " or more" } else { "" };
        shown.push_str(&format!("\n(The first {max} of {total}{more} entries)"));
    }
    Ok(shown)
}

/// What lies directly in the directory `below` the target, sorted.
fn entries(target: &Target, below: &Path, scanned: &mut usize) -> Result<Vec<Entry>, PathError> {
    let directory = target.open_below(below)?;
    let mut found = Vec::new();
    for entry in Dir::read_from(&directory).map_err(|errno| target.error(errno))? {
        let entry = entry.map_err(|errno| target.error(errno))?;
        let bytes = entry.file_name().to_bytes();
        let name = OsStr::from_bytes(bytes);
        if bytes == b"." || bytes == b".." || IGNORED.iter().any(|ignored| name == *ignored) {
            continue;
        }
        let path = below.join(name);
        if !target.shows(&path) {
            continue;
        }
        *scanned += 1;
        if *scanned > SCAN_MAX {
            break;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown
            && let Ok(stat) = rustix::fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)
        {
            kind = FileType::from_raw_mode(stat.st_mode);
        }
        found.push(Entry { name: path, kind });
    }
    found.sort_by(|a, b| a.name.cmp(&b.name));
    Ok(found)
}
