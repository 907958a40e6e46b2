//! The system prompt, made of files of the workspace and kept for all sessions of the process.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::prompt::{BOOTSTRAP_FILES, BootstrapFile, Frame, SystemParts, system_prompt};
use domain::request::ToolSpec;
use supervision::ports::{Disk, Ports};

/// How long it is used before its files are looked at again.
const FRESH_FOR: Duration = Duration::from_secs(2);
/// Bytes of one file that are read.
const FILE_BYTES_MAX: u64 = 256 * 1024;

/// The one copy of the process.
#[derive(Debug)]
pub struct SystemPrompt {
    workspace: PathBuf,
    tools: Arc<[ToolSpec]>,
    made: Mutex<Option<Made>>,
}

#[derive(Debug, Clone)]
struct Made {
    frame: Arc<Frame>,
    looked_at: Duration,
}

// === impl SystemPrompt ===

impl SystemPrompt {
    /// Not yet made.
    pub fn new(workspace: &Path, tools: Arc<[ToolSpec]>) -> Self {
        Self { workspace: workspace.to_owned(), tools, made: Mutex::new(None) }
    }

    /// As it was last made.
    pub fn frame(&self) -> Arc<Frame> {
        let made = self.made().as_ref().map(|made| Arc::clone(&made.frame));
        made.unwrap_or_else(|| Arc::new(Frame::new("", Arc::clone(&self.tools))))
    }

    /// Makes it anew if its files may have changed. Blocks: for the blocking pool.
    pub fn refresh(&self, ports: &Ports) {
        let now = ports.clock.mono();
        if self.made().as_ref().is_some_and(|made| now.saturating_sub(made.looked_at) < FRESH_FOR) {
            return;
        }
        let bootstrap: Vec<BootstrapFile> =
            BOOTSTRAP_FILES.iter().filter_map(|name| read(&*ports.disk, &self.workspace, name)).collect();
        let workspace = self.workspace.to_string_lossy();
        let parts = SystemParts { workspace: &workspace, tools: &self.tools, bootstrap: &bootstrap };
        let frame = Arc::new(Frame::new(system_prompt(&parts), Arc::clone(&self.tools)));
        *self.made() = Some(Made { frame, looked_at: now });
    }

    fn made(&self) -> MutexGuard<'_, Option<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A file that cannot be read is left out, as one that does not exist. The disk opens plain files only: a link would show
/// the model what its tools may not read, and a pipe would never answer.
fn read(disk: &dyn Disk, workspace: &Path, name: &str) -> Option<BootstrapFile> {
    let path = workspace.join(name);
    let stat = disk.stat(&path).ok()?;
    if stat.directory || stat.length > FILE_BYTES_MAX {
        return None;
    }
    let content = String::from_utf8_lossy(&disk.read(&path).ok()?).into_owned();
    Some(BootstrapFile { name: name.to_owned(), content })
}
