//! The system prompts, made of files of the workspace and kept for all sessions of the process: one for each set of tools
//! that some kind of session may use.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::keys::SessionKind;
use domain::policy::{ActiveTools, Policies};
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
    /// What is offered, without repetition.
    offers: Vec<Arc<[ToolSpec]>>,
    /// Which of them a kind of session is offered.
    by_kind: BTreeMap<SessionKind, usize>,
    made: Mutex<Option<Made>>,
}

#[derive(Debug, Clone)]
struct Made {
    /// For each offer.
    frames: Vec<Arc<Frame>>,
    looked_at: Duration,
}

// === impl SystemPrompt ===

impl SystemPrompt {
    /// Not yet made.
    pub fn new(workspace: &Path, tools: &[ToolSpec], policies: &Policies) -> Self {
        let mut offers: Vec<Arc<[ToolSpec]>> = Vec::new();
        let by_kind = SessionKind::ALL.map(|kind| {
            let offer = offered(tools, policies, kind);
            let at = offers.iter().position(|known| known[..] == offer[..]).unwrap_or(offers.len());
            if at == offers.len() {
                offers.push(offer);
            }
            (kind, at)
        });
        Self { workspace: workspace.to_owned(), offers, by_kind: by_kind.into(), made: Mutex::new(None) }
    }

    /// That of a kind of session, as it was last made.
    pub fn frame(&self, kind: SessionKind) -> Arc<Frame> {
        let at = self.by_kind.get(&kind).copied().unwrap_or_default();
        let made = self.made().as_ref().and_then(|made| made.frames.get(at).cloned());
        made.unwrap_or_else(|| Arc::new(Frame::new("", self.offers.get(at).cloned().unwrap_or_default())))
    }

    /// Makes all anew if their files may have changed. Blocks: for the blocking pool.
    pub fn refresh(&self, ports: &Ports) {
        let now = ports.clock.mono();
        if self.made().as_ref().is_some_and(|made| now.saturating_sub(made.looked_at) < FRESH_FOR) {
            return;
        }
        let bootstrap: Vec<BootstrapFile> =
            BOOTSTRAP_FILES.iter().filter_map(|name| read(&*ports.disk, &self.workspace, name)).collect();
        let workspace = self.workspace.to_string_lossy();
        let frames = self.offers.iter().map(|tools| {
            let parts = SystemParts { workspace: &workspace, tools, bootstrap: &bootstrap };
            Arc::new(Frame::new(system_prompt(&parts), Arc::clone(tools)))
        });
        let made = Made { frames: frames.collect(), looked_at: now };
        *self.made() = Some(made);
    }

    fn made(&self) -> MutexGuard<'_, Option<Made>> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tools that sessions of that kind may use.
fn offered(tools: &[ToolSpec], policies: &Policies, kind: SessionKind) -> Arc<[ToolSpec]> {
    let mut active = ActiveTools::default();
    active.update(tools.iter().map(|tool| tool.name.as_str()), |name| policies.of(kind).permits(name).is_ok());
    tools.iter().filter(|tool| active.has(&tool.name)).cloned().collect()
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
