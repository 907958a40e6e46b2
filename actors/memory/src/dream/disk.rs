//! What of a Dream is on disk. All functions block.

use std::io;

use domain::command::{DreamAsk, Guide};
use domain::heartbeat::{EVALUATOR, EVALUATOR_BYTES_MAX, EVALUATOR_FILE};
use domain::ids::{SessionKey, TurnId};
use domain::memory::dream::{GUIDE, GUIDE_FILE, LINES_AT_ONCE, Running, Standing, request};
use domain::memory::versions::{By, find, list, told};
use domain::text::counted;
use supervision::ports::{Disk, Ports};

use crate::archive::Archive;
use crate::files::{read_text, replace};
use crate::versions::Mark;

const STANDING_FILE: &str = "memory/.dream.json";
const STANDING_BYTES_MAX: u64 = 64 * 1024;
const GUIDE_BYTES_MAX: u64 = 64 * 1024;
const MEMORY_FILE: &str = "memory/MEMORY.md";

/// How it stands, and what there is to do.
#[derive(Debug, Clone)]
pub(crate) struct Look {
    pub(crate) standing: Standing,
    /// Bytes of `memory/MEMORY.md`.
    pub(crate) memory_bytes: u64,
}

/// A Dream that can begin.
#[derive(Debug)]
pub(crate) struct Plan {
    pub(crate) running: Running,
    /// What the model is asked.
    pub(crate) text: String,
    /// Lines that it works in, and that wait behind them.
    pub(crate) lines: usize,
    pub(crate) waiting: usize,
}

// === impl Archive ===

impl Archive {
    /// Looks how it stands. The first time counts as the last Dream.
    pub(crate) fn look(&self, ports: &Ports) -> io::Result<Look> {
        let disk = &*ports.disk;
        let text = read_text(disk, &self.workspace, STANDING_FILE, STANDING_BYTES_MAX)?;
        let standing = match text.and_then(|text| serde_json::from_str(&text).ok()) {
            Some(standing) => standing,
            None => {
                let standing = Standing { last_ms: ports.clock.wall_ms(), ..Standing::default() };
                self.keep_standing(disk, &standing)?;
                standing
            }
        };
        Ok(Look { standing, memory_bytes: self.memory_bytes(disk) })
    }

    /// Makes ready what there is to work in; `None` when that is nothing, and `memory/MEMORY.md` is not too large.
    pub(crate) fn plan(&self, ports: &Ports, bytes_max: u64) -> io::Result<(Standing, Option<Plan>)> {
        let (disk, now_ms) = (&*ports.disk, ports.clock.wall_ms());
        let mut standing = self.look(ports)?.standing;
        standing.last_ms = now_ms;
        let fresh = self.fresh(disk, LINES_AT_ONCE)?;
        let too_large = (self.memory_bytes(disk) > bytes_max).then_some(bytes_max);
        if fresh.lines.is_empty() && too_large.is_none() {
            self.keep_standing(disk, &standing)?;
            return Ok((standing, None));
        }
        self.keep_version(disk, Mark { by: By::Edit, note: None, now_ms, random: ports.ids.random() })?;
        let guide = read_text(disk, &self.workspace, GUIDE_FILE, GUIDE_BYTES_MAX)?;
        let guide = guide.filter(|guide| !guide.trim().is_empty());
        let text = request(guide.as_deref().unwrap_or(GUIDE), &fresh.lines, &self.contents(disk)?, too_large);
        let key = format!("dream:{}", self.stamp(now_ms));
        let key = SessionKey::new(&key).map_err(io::Error::other)?;
        let running = Running { key, turn: TurnId(ports.ids.uuid_v7()), upto: fresh.upto };
        standing.running = Some(running.clone());
        self.keep_standing(disk, &standing)?;
        let waiting = fresh.count.saturating_sub(fresh.lines.len());
        Ok((standing, Some(Plan { running, text, lines: fresh.lines.len(), waiting })))
    }

    /// Its turn was not accepted.
    pub(crate) fn forget(&self, ports: &Ports) -> io::Result<Standing> {
        let mut standing = self.look(ports)?.standing;
        standing.running = None;
        self.keep_standing(&*ports.disk, &standing)?;
        Ok(standing)
    }

    /// Its turn has ended, answered or not: what it changed is a version, and what it worked in is passed. Gives its
    /// sessions that have to go.
    pub(crate) fn finish(
        &self,
        ports: &Ports,
        running: &Running,
        answered: bool,
    ) -> io::Result<(Look, Vec<SessionKey>)> {
        let (disk, now_ms) = (&*ports.disk, ports.clock.wall_ms());
        let note = Some(running.key.as_str().to_owned());
        self.keep_version(disk, Mark { by: By::Dream, note, now_ms, random: ports.ids.random() })?;
        if answered {
            self.keep_dream_cursor(disk, running.upto)?;
            self.compact(disk)?;
        }
        let mut standing = self.look(ports)?.standing;
        let gone = standing.ended(running.key.clone());
        self.keep_standing(disk, &standing)?;
        Ok((Look { standing, memory_bytes: self.memory_bytes(disk) }, gone))
    }

    /// What there is to say to people, without a Dream. What changes something is for whoever alone writes in the workspace.
    pub fn tell(&self, ports: &Ports, ask: &DreamAsk) -> io::Result<String> {
        let disk = &*ports.disk;
        let versions = self.versions(disk)?;
        let none = || "No version of the memory is kept yet: the first is kept before the first Dream.".to_owned();
        Ok(match ask {
            DreamAsk::Begin => String::new(),
            DreamAsk::Log(_) | DreamAsk::Restore(None) if versions.is_empty() => none(),
            DreamAsk::Log(None) => told(&versions, versions.len().saturating_sub(1)),
            DreamAsk::Log(Some(id)) => told(&versions, find(&versions, id).map_err(io::Error::other)?),
            DreamAsk::Restore(None) => {
                format!("{}\n/dream-restore with an id undoes that version and those after it.", list(&versions))
            }
            DreamAsk::Restore(Some(id)) => {
                let randoms = [ports.ids.random(), ports.ids.random()];
                self.undo(disk, id, (ports.clock.wall_ms(), randoms))?
            }
            DreamAsk::Prompt { of, init } => self.guide(disk, *of, *init)?,
        })
    }

    /// Says what is followed there. A file that is there is never written over.
    fn guide(&self, disk: &dyn Disk, of: Guide, init: bool) -> io::Result<String> {
        let (who, command, file, built_in, bytes_max) = match of {
            Guide::Dream => ("Dream", "/dream-prompt", GUIDE_FILE, GUIDE, GUIDE_BYTES_MAX),
            Guide::Evaluator => {
                let who = "What judges the heartbeat's reports";
                (who, "/evaluator-prompt", EVALUATOR_FILE, EVALUATOR, EVALUATOR_BYTES_MAX)
            }
        };
        Ok(match (read_text(disk, &self.workspace, file, bytes_max)?, init) {
            (Some(own), _) if own.trim().is_empty() => {
                format!("{who} follows what is built in, since {file} is empty. Nothing was changed.")
            }
            (Some(own), _) => {
                format!("{who} follows {file} ({}). Nothing was changed.", counted(own.chars().count(), "character"))
            }
            (None, true) => {
                replace(disk, &self.workspace, file, built_in.as_bytes())?;
                format!("{file} has what was followed until now. Change it as you like.")
            }
            (None, false) => {
                format!("{who} follows what is built in. `{command} init` writes that to {file}, to be changed.")
            }
        })
    }

    fn keep_standing(&self, disk: &dyn Disk, standing: &Standing) -> io::Result<()> {
        let text = serde_json::to_vec(standing).map_err(io::Error::other)?;
        replace(disk, &self.workspace, STANDING_FILE, &text)
    }

    fn memory_bytes(&self, disk: &dyn Disk) -> u64 {
        disk.stat(&self.workspace.join(MEMORY_FILE)).map_or(0, |stat| stat.length)
    }
}
