//! The files of the workspace that the system prompt shows, as they were last seen.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::sync::Arc;

use domain::prompt::{BOOTSTRAP_FILES, BootstrapFile, MEMORY_FILE, Need, Past, Skill, read_past, read_skill};
use supervision::ports::{Disk, DiskFile, Open, Stat};

/// Bytes of one file that are read: its first ones; of the history its last ones.
pub const FILE_BYTES_MAX: u64 = 256 * 1024;
/// Skills that are looked at, by name.
const SKILLS_MAX: usize = 100;
const HISTORY_FILE: &str = "memory/history.jsonl";
/// Up to where the history was worked into the memory, as decimal text.
const DREAM_FILE: &str = "memory/.dream_cursor";

/// Those that could be read.
#[derive(Debug, Clone, Default)]
pub struct Files {
    /// By their paths in the workspace.
    texts: BTreeMap<String, Seen>,
    skills: Vec<Skill>,
    history: Option<History>,
}

/// A file as it was last seen.
#[derive(Debug, Clone)]
pub struct Seen {
    stat: Stat,
    pub text: Arc<str>,
}

#[derive(Debug, Clone)]
struct History {
    stat: Stat,
    dream: u64,
    past: Arc<[Past]>,
}

/// Where they lie.
#[derive(Clone, Copy)]
pub struct Desk<'a> {
    pub disk: &'a dyn Disk,
    pub workspace: &'a Path,
    /// Names of skills and their directories that are left out.
    pub disabled: &'a BTreeSet<String>,
    /// Whether there is what a skill needs.
    pub has: &'a dyn Fn(Need<'_>) -> bool,
}

// === impl Files ===

impl Files {
    /// Looks at all of them; what is `known` and was not touched is not read again.
    pub fn look(desk: Desk<'_>, known: &Self) -> Self {
        let mut texts = BTreeMap::new();
        let mut text = |path: &str| {
            let seen = desk.look_at(path, known.texts.get(path))?;
            let text = Arc::clone(&seen.text);
            texts.insert(path.to_owned(), seen);
            Some(text)
        };
        for name in BOOTSTRAP_FILES.into_iter().chain([MEMORY_FILE]) {
            text(name);
        }
        let skills = desk.skill_directories().into_iter().filter_map(|directory| {
            let text = text(&format!("skills/{directory}/SKILL.md"))?;
            Some(read_skill(&directory, &text, desk.has)).filter(|skill| !desk.disabled.contains(&skill.name))
        });
        let skills = skills.collect();
        let dream = text(DREAM_FILE).and_then(|text| text.trim().parse().ok()).unwrap_or(0);
        Self { texts, skills, history: desk.history(dream, known.history.as_ref()) }
    }

    /// Whether the system prompt shows the same of them.
    pub fn shows_the_same(&self, other: &Self) -> bool {
        self.bootstrap() == other.bootstrap() && self.memory() == other.memory() && self.skills == other.skills
    }

    /// Those of [`BOOTSTRAP_FILES`].
    pub fn bootstrap(&self) -> Vec<BootstrapFile> {
        let file = |name: &'static str| Some(BootstrapFile { name, content: Arc::clone(&self.texts.get(name)?.text) });
        BOOTSTRAP_FILES.into_iter().filter_map(file).collect()
    }

    /// The agent's memory.
    pub fn memory(&self) -> Option<&str> {
        self.texts.get(MEMORY_FILE).map(|seen| &*seen.text)
    }

    /// By directory.
    pub fn skills(&self) -> &[Skill] {
        &self.skills
    }

    /// Of all sessions.
    pub fn past(&self) -> Arc<[Past]> {
        self.history.as_ref().map(|history| Arc::clone(&history.past)).unwrap_or_default()
    }
}

// === impl Desk ===

impl Desk<'_> {
    fn look_at(&self, path: &str, known: Option<&Seen>) -> Option<Seen> {
        look_at(self.disk, self.workspace, path, known)
    }

    /// The first of them by name.
    fn skill_directories(&self) -> Vec<String> {
        let paths = self.disk.list(&self.workspace.join("skills")).unwrap_or_default();
        let names = paths.iter().filter_map(|path| path.file_name()?.to_str().map(str::to_owned));
        let wanted = |name: &String| !self.disabled.contains(name) && !name.contains(char::is_control);
        names.filter(wanted).take(SKILLS_MAX).collect()
    }

    fn history(&self, dream: u64, known: Option<&History>) -> Option<History> {
        let file = self.disk.open_inside(self.workspace, Path::new(HISTORY_FILE), Open::Read).ok()?;
        let stat = file.opened();
        if let Some(known) = known.filter(|known| known.stat == stat && known.dream == dream) {
            return Some(known.clone());
        }
        let from = stat.length.saturating_sub(FILE_BYTES_MAX);
        let text = read(&*file, from, stat.length - from).ok()?;
        let whole = if from == 0 { Some(&*text) } else { text.split_once('\n').map(|(_, whole)| whole) };
        Some(History { stat, dream, past: read_past(whole.unwrap_or(""), dream).into() })
    }
}

/// A file below `root`; what is `known` and was not touched is not read again. One that cannot be read is left out, as one
/// that does not exist, and so is what a link leads to: it would show the model what its tools may not read. A pipe, which
/// would never answer, is none.
pub fn look_at(disk: &dyn Disk, root: &Path, path: &str, known: Option<&Seen>) -> Option<Seen> {
    let file = disk.open_inside(root, Path::new(path), Open::Read).ok()?;
    let stat = file.opened();
    if let Some(known) = known.filter(|known| known.stat == stat) {
        return Some(known.clone());
    }
    let mut text = read(&*file, 0, stat.length.min(FILE_BYTES_MAX)).ok()?;
    if stat.length > FILE_BYTES_MAX {
        // A letter may have been cut in two.
        text.truncate(text.trim_end_matches('\u{fffd}').len());
        let (bytes, read_bytes) = (stat.length, FILE_BYTES_MAX);
        tracing::warn!(file = %root.join(path).display(), bytes, read_bytes, "a file of the prompt is too long: only its beginning is read");
    }
    Some(Seen { stat, text: text.into() })
}

/// What the file has of these bytes.
fn read(file: &dyn DiskFile, from: u64, length: u64) -> io::Result<String> {
    let mut bytes = vec![0; usize::try_from(length).map_err(io::Error::other)?];
    let got = file.read_at(&mut bytes, from)?;
    bytes.truncate(got);
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
