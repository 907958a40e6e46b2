//! `write_file`: the whole contents of a file, all or nothing.

use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::sync::{Arc, PoisonError};

use domain::ids::SessionKey;
use domain::policy::Access;
use domain::request::ToolSpec;
use domain::text::counted;
use futures::FutureExt;
use futures::future::BoxFuture;
use protocol::turn::FileEdit;
use rustix::fs::{AtFlags, FileType, Mode, OFlags};
use rustix::io::Errno;
use serde_json::json;

use crate::edited::{COMPARED_BYTES_MAX, edited};
use crate::place::{Fence, PathError};
use crate::seen::Version;
use crate::tool::{Call, Outcome, Tool};

/// Of a directory on the way.
const DIRECTORY_MODE: u32 = 0o755;
/// Of a new file.
const FILE_MODE: u32 = 0o644;
/// Permission bits that a rewritten file keeps.
const KEPT_MODE: u32 = 0o777;

/// Writes files.
pub(crate) struct WriteFile {
    fence: Arc<Fence>,
}

// === impl WriteFile ===

impl WriteFile {
    /// Writes within `fence`.
    pub(crate) fn new(fence: Arc<Fence>) -> Self {
        Self { fence }
    }
}

impl Tool for WriteFile {
    fn spec(&self) -> ToolSpec {
        ToolSpec {
            name: "write_file".to_owned(),
            description: "Writes a file of the workspace, replacing it when it exists. Directories on the way are \
                          made. A reader sees the old or the new contents, nothing in between."
                .to_owned(),
            parameters: json!({
                "type": "object",
                "properties": {
                    "path": {"type": "string", "description": "Path of the file, relative to the workspace"},
                    "content": {"type": "string", "description": "The whole new contents"}
                },
                "required": ["path", "content"],
                "additionalProperties": false
            }),
            parallel: false,
            idempotent: true,
        }
    }

    fn call(&self, call: Call) -> BoxFuture<'static, Outcome> {
        let fence = self.fence.within(&call, Access::Write);
        async move {
            let path = call.text("path").unwrap_or_default().to_owned();
            let content = call.text("content").unwrap_or_default().to_owned();
            let nonce = call.ports.ids.random();
            // Who may write only a few files writes none over what it has not seen.
            let careful = call.policy.writes.map(|_| call.key.clone());
            match call.blocking(move || write(&*fence?, &path, content.as_bytes(), careful.as_ref(), nonce)).await {
                Ok((text, edit)) => Outcome { edit: Some(Arc::new(edit)), ..Outcome::text(text) },
                Err(error) => Outcome::error(format!("Error: {error}. Nothing was written.")),
            }
        }
        .boxed()
    }
}

fn write(
    fence: &Fence,
    path: &str,
    content: &[u8],
    careful: Option<&SessionKey>,
    nonce: u64,
) -> Result<(String, FileEdit), PathError> {
    if path.ends_with('/') {
        return Err(PathError::IsDirectory(path.to_owned()));
    }
    let target = fence.locate(path)?;
    let (parent, name) = target.open_parent(DIRECTORY_MODE)?;
    let shared = careful.is_some() || fence.is_dreamt(&target.path);
    let _alone = shared.then(|| fence.seen.writing.lock().unwrap_or_else(PoisonError::into_inner));
    let old = match rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(stat) => Some(stat),
        Err(Errno::NOENT) => None,
        Err(errno) => return Err(target.error(errno)),
    };
    let mode = match old.map(|stat| (FileType::from_raw_mode(stat.st_mode), stat.st_mode)) {
        None => FILE_MODE,
        Some((FileType::RegularFile, mode)) => mode & KEPT_MODE,
        Some((FileType::Directory, _)) => return Err(PathError::IsDirectory(target.shown)),
        Some((FileType::Symlink, _)) => return Err(PathError::Unsteady(target.shown)),
        Some(_) => return Err(PathError::Special(target.shown)),
    };
    if let (Some(key), Some(old)) = (careful, &old)
        && !fence.seen.knows(key, &target.path, Version::from(old))
    {
        return Err(PathError::Unread(target.shown));
    }
    let before = old.map(|_| contents(&parent, name));
    let replaced = replace(&parent, name, content, mode, nonce);
    replaced.map_err(|source| PathError::Io { shown: target.shown.clone(), source })?;
    if let Some(key) = careful {
        let new = rustix::fs::statat(&parent, name, AtFlags::SYMLINK_NOFOLLOW).map_err(|errno| target.error(errno))?;
        fence.seen.note(key, &target.path, Version::from(&new));
    }
    let verb = if old.is_some() { "Rewrote" } else { "Wrote" };
    let text = format!("{verb} `{}` ({})", target.shown, counted(content.len(), "byte"));
    let before = before.as_ref().map_or(Some(""), |before| before.as_deref());
    Ok((text, edited(target.shown, before, std::str::from_utf8(content).ok())))
}

/// What a file holds, to compare with; `None` unless that is a text that is not too long.
fn contents(parent: &OwnedFd, name: &OsStr) -> Option<String> {
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::openat(parent, name, flags, Mode::empty()).ok()?);
    let mut bytes = Vec::new();
    file.take(COMPARED_BYTES_MAX as u64 + 1).read_to_end(&mut bytes).ok()?;
    String::from_utf8(bytes).ok()
}

/// Puts a file with those contents in the place of `name`: whole or not at all.
pub(crate) fn replace(parent: &OwnedFd, name: &OsStr, content: &[u8], mode: u32, nonce: u64) -> io::Result<()> {
    // In the same directory, so that the rename is atomic.
    let temporary = format!(".greenroom-{nonce:016x}.tmp");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut new = File::from(rustix::fs::openat(parent, &temporary, flags, Mode::from_raw_mode(0o600))?);
    let written =
        fill(&mut new, content, mode).and_then(|()| Ok(rustix::fs::renameat(parent, &temporary, parent, name)?));
    if written.is_err() {
        // Whatever was wrong with the write, the old contents stand and the rest is litter.
        let _ = rustix::fs::unlinkat(parent, &temporary, AtFlags::empty());
    }
    written
}

fn fill(file: &mut File, content: &[u8], mode: u32) -> io::Result<()> {
    file.write_all(content)?;
    rustix::fs::fchmod(&*file, Mode::from_raw_mode(mode))?;
    file.sync_data()
}
