//! The system prompts, made of files of the workspace and kept for all sessions of the process: one for each set of tools
//! that some kind of session may use and each way in which answers are read.

mod files;

use std::collections::{BTreeMap, BTreeSet};
use std::env::consts::{ARCH, OS};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use domain::keys::{Key, SessionKind};
use domain::policy::{Access, ActiveTools, Policies, Policy};
use domain::prompt::{AGENTS_FILE, BootstrapFile, Frame, Hint, Need, Past, Skill, SystemParts, system_prompt};
use domain::request::{SYSTEM_SEPARATOR, ToolSpec};
use domain::run::RunSpec;
use supervision::ports::{Disk, Ports};

pub use files::FILE_BYTES_MAX;
use files::{Desk, Files, Seen, look_at};

/// How long its files are trusted before they are looked at again.
const FRESH_FOR: Duration = Duration::from_secs(2);

/// Files that sub-agents are shown.
const RUN_FILES: [&str; 2] = [AGENTS_FILE, "TOOLS.md"];

/// Projects whose files are kept; beyond it the one that was not looked at for longest is forgotten.
const PROJECTS_MAX: usize = 256;

/// What the system prompt tells besides the files of the workspace.
#[derive(Debug, Clone, Default)]
pub struct PromptConfig {
    /// What the agent calls itself.
    pub agent: Arc<str>,
    /// Skills that are left out, by their names or directories.
    pub disabled_skills: BTreeSet<String>,
    /// Where commands are looked for.
    pub search: Vec<PathBuf>,
    /// Variables that commands see.
    pub variables: BTreeSet<String>,
}

/// The one copy of the process.
#[derive(Debug)]
pub struct SystemPrompt {
    workspace: PathBuf,
    config: PromptConfig,
    /// What is offered, without repetition.
    offers: Vec<Arc<[ToolSpec]>>,
    by_kind: BTreeMap<SessionKind, Open>,
    made: Mutex<Made>,
}

/// What is open to a kind of session.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    /// The place among the offers.
    offer: usize,
    /// Whether it may read the workspace, and so hear of what is remembered of others.
    memory: bool,
}

/// What distinguishes one system prompt from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Shape {
    /// The place among the offers.
    offer: usize,
    hint: Hint,
    memory: bool,
}

#[derive(Debug, Default)]
struct Made {
    files: Files,
    /// Of these files, as they are asked for: at most one for each shape.
    frames: BTreeMap<Shape, Arc<Frame>>,
    looked_at: Option<Duration>,
    /// How often they were changed by the program itself.
    changes: u64,
    /// Whether they are all read at the next look, also those that seem to be as they were.
    distrusted: bool,
    projects: BTreeMap<PathBuf, Project>,
}

/// A project in which some session works.
#[derive(Debug, Default)]
struct Project {
    agents: Option<Seen>,
    frames: BTreeMap<Shape, Arc<Frame>>,
    looked_at: Duration,
}

// === impl SystemPrompt ===

impl SystemPrompt {
    /// Of no files yet.
    pub fn new(workspace: &Path, config: &PromptConfig, tools: &[ToolSpec], policies: &Policies) -> Self {
        let mut offers: Vec<Arc<[ToolSpec]>> = Vec::new();
        let by_kind = SessionKind::ALL.map(|kind| {
            let offer = offered(tools, policies, kind);
            let at = offers.iter().position(|known| known[..] == offer[..]).unwrap_or(offers.len());
            if at == offers.len() {
                offers.push(offer);
            }
            (kind, Open { offer: at, memory: policies.of(kind).workspace != Access::None })
        });
        Self {
            workspace: workspace.to_owned(),
            config: config.clone(),
            offers,
            by_kind: by_kind.into(),
            made: Mutex::default(),
        }
    }

    /// That of a session while it is of that kind and works in that project, as its files were last seen.
    pub fn frame(&self, kind: SessionKind, key: &Key, project: Option<&Path>) -> Arc<Frame> {
        let Open { offer, memory } = self.open_to(kind);
        // Nothing is remembered in a conversation that nothing outlives.
        let shape = Shape { offer, hint: Hint::of(key), memory: memory && !key.is_ephemeral() };
        let mut made = self.made();
        let Made { files, frames, projects, .. } = &mut *made;
        let Some(path) = project else {
            let frame = || Arc::new(self.make(shape, &files.bootstrap(), files, None));
            return Arc::clone(frames.entry(shape).or_insert_with(frame));
        };
        let of = projects.entry(path.to_owned()).or_default();
        let frame = || {
            let mut bootstrap = files.bootstrap();
            bootstrap.retain(|file| file.name != AGENTS_FILE);
            let agents = of.agents.as_ref().map(|seen| Arc::clone(&seen.text));
            bootstrap.splice(0..0, agents.map(|content| BootstrapFile { name: AGENTS_FILE, content }));
            Arc::new(self.make(shape, &bootstrap, files, Some(path)))
        };
        Arc::clone(of.frames.entry(shape).or_insert_with(frame))
    }

    /// That of a sub-agent: of the files only what is to be done how, and what it was sent for.
    pub fn frame_of_run(&self, run: &RunSpec, policy: &Policy, tools: &[ToolSpec], project: Option<&Path>) -> Frame {
        let tools: Arc<[ToolSpec]> = tools.iter().filter(|tool| policy.permits(&tool.name).is_ok()).cloned().collect();
        let made = self.made();
        let mut bootstrap = made.files.bootstrap();
        bootstrap.retain(|file| RUN_FILES.contains(&file.name));
        if let Some(path) = project {
            let agents = made.projects.get(path).and_then(|of| of.agents.as_ref()).map(|seen| Arc::clone(&seen.text));
            bootstrap.retain(|file| file.name != AGENTS_FILE);
            bootstrap.splice(0..0, agents.map(|content| BootstrapFile { name: AGENTS_FILE, content }));
        }
        let system = self.prompt(Hint::None, &tools, &bootstrap, None, &[], project);
        Frame::new(format!("{system}{SYSTEM_SEPARATOR}{}", run.instruction()), tools)
    }

    /// Looks at the files of a project again if they may have changed. Blocks: for the blocking pool.
    pub fn refresh_project(&self, path: &Path, ports: &Ports) {
        let now = ports.clock.mono();
        let known = {
            let made = self.made();
            let project = made.projects.get(path);
            if project.is_some_and(|project| now.saturating_sub(project.looked_at) < FRESH_FOR) {
                return;
            }
            project.and_then(|project| project.agents.clone())
        };
        let agents = look_at(&*ports.disk, path, AGENTS_FILE, known.as_ref());
        let mut made = self.made();
        let project = made.projects.entry(path.to_owned()).or_default();
        project.looked_at = now;
        if project.agents.as_ref().map(|seen| &seen.text) != agents.as_ref().map(|seen| &seen.text) {
            project.frames.clear();
        }
        project.agents = agents;
        if made.projects.len() > PROJECTS_MAX {
            let oldest = made.projects.iter().min_by_key(|(_, project)| project.looked_at);
            if let Some(oldest) = oldest.map(|(path, _)| path.clone()) {
                made.projects.remove(&oldest);
            }
        }
    }

    /// Has the files of the workspace read again at the next look, whatever they look like.
    pub fn distrust(&self) {
        let mut made = self.made();
        (made.looked_at, made.distrusted) = (None, true);
    }

    /// Has the files of the workspace looked at again: the program itself has changed one.
    pub fn outdate(&self) {
        let mut made = self.made();
        made.looked_at = None;
        made.changes += 1;
    }

    /// Looks at the files again if they may have changed. Blocks: for the blocking pool.
    pub fn refresh(&self, ports: &Ports) {
        let now = ports.clock.mono();
        let (known, changes) = {
            let mut made = self.made();
            if made.looked_at.is_some_and(|looked_at| now.saturating_sub(looked_at) < FRESH_FOR) {
                return;
            }
            let known = if std::mem::take(&mut made.distrusted) { Files::default() } else { made.files.clone() };
            (known, made.changes)
        };
        let desk = Desk {
            disk: &*ports.disk,
            workspace: &self.workspace,
            disabled: &self.config.disabled_skills,
            has: &|need| self.has(&*ports.disk, need),
        };
        let files = Files::look(desk, &known);
        let mut made = self.made();
        // What was changed meanwhile may not have been seen.
        made.looked_at = (made.changes == changes).then_some(now);
        if !made.files.shows_the_same(&files) {
            made.frames.clear();
            made.projects.values_mut().for_each(|project| project.frames.clear());
        }
        made.files = files;
    }

    /// What was kept of earlier conversations, of all sessions.
    pub fn past(&self) -> Arc<[Past]> {
        self.made().files.past()
    }

    /// By directory.
    pub fn skills(&self) -> Vec<Skill> {
        self.made().files.skills().to_vec()
    }

    /// Whether a session of that kind may hear of what is remembered of others.
    pub fn remembers(&self, kind: SessionKind) -> bool {
        self.open_to(kind).memory
    }

    fn open_to(&self, kind: SessionKind) -> Open {
        self.by_kind.get(&kind).copied().unwrap_or_default()
    }

    fn has(&self, disk: &dyn Disk, need: Need<'_>) -> bool {
        match need {
            Need::Command(name) => {
                let is_file = |directory: &PathBuf| disk.stat(&directory.join(name)).is_ok_and(|stat| !stat.directory);
                !name.is_empty() && !name.contains('/') && self.config.search.iter().any(is_file)
            }
            Need::Variable(name) => self.config.variables.contains(name),
        }
    }

    fn make(&self, shape: Shape, bootstrap: &[BootstrapFile], files: &Files, project: Option<&Path>) -> Frame {
        let tools = self.offers.get(shape.offer).cloned().unwrap_or_default();
        let memory = files.memory().filter(|_| shape.memory);
        Frame::new(self.prompt(shape.hint, &tools, bootstrap, memory, files.skills(), project), Arc::clone(&tools))
    }

    fn prompt(
        &self,
        hint: Hint,
        tools: &[ToolSpec],
        bootstrap: &[BootstrapFile],
        memory: Option<&str>,
        skills: &[Skill],
        project: Option<&Path>,
    ) -> String {
        let project = project.map(Path::to_string_lossy);
        system_prompt(&SystemParts {
            agent: &self.config.agent,
            version: env!("CARGO_PKG_VERSION"),
            os: OS,
            arch: ARCH,
            workspace: &self.workspace.to_string_lossy(),
            project: project.as_deref(),
            hint,
            tools,
            bootstrap,
            memory,
            skills,
        })
    }

    fn made(&self) -> MutexGuard<'_, Made> {
        self.made.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The tools that sessions of that kind may use.
fn offered(tools: &[ToolSpec], policies: &Policies, kind: SessionKind) -> Arc<[ToolSpec]> {
    let mut active = ActiveTools::default();
    active.update(tools.iter().map(|tool| tool.name.as_str()), |name| policies.of(kind).permits(name).is_ok());
    tools.iter().filter(|tool| active.has(&tool.name)).cloned().collect()
}

#[cfg(test)]
mod tests;
