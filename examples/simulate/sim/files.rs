//! The files of the sessions: what was promised of them, and what must be true of them in the end.
//!
//! - What a file had when a change of its session was answered, it still begins with: nothing is ever cut out of it.
//! - An edit that was answered stands in one transcript of its session; no entry stands in two of them.
//! - A transcript whose end was answered lies where it was to go, with no line more than it had then, and nothing of
//!   it stands in a later one; one that was taken back lies in its place with all its bytes.
//! - A copy that was answered is there as it was; its source is like any other file.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use domain::ids::SessionKey;
use protocol::journal::Shelf;
use supervision::memory::PowerCutDisk;
use supervision::ports::Disk;

use super::drive::{HOME, transcript};

/// Where a transcript lies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Its session can go on with it.
    Live,
    /// It has ended.
    Shelf(Shelf),
}

/// A transcript file.
#[derive(Debug)]
pub struct File {
    /// Where it lies.
    pub place: Place,
    /// What is in it.
    pub bytes: Vec<u8>,
}

/// What is known of one transcript, by its first line.
#[derive(Debug, Default)]
struct Known {
    /// The longest that was seen of it.
    seen: Vec<u8>,
    /// Where it was put, and after how many wishes of its session.
    put: Option<(Place, usize)>,
    /// Whether nothing may be added to what was seen.
    ended: bool,
}

/// A wish to end a transcript or to have one back.
#[derive(Debug)]
struct Wish {
    /// Where the transcript is to go.
    to: Place,
    /// Nothing came of it.
    refused: bool,
    open: bool,
}

/// What is known of the files of one session.
#[derive(Debug, Default)]
pub struct Files {
    transcripts: BTreeMap<Vec<u8>, Known>,
    wishes: Vec<Wish>,
    edits: Vec<String>,
}

/// The files of a session on a disk.
pub fn files_of(disk: &PowerCutDisk, key: &SessionKey) -> Vec<File> {
    let live = transcript(key);
    let name = live.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let sessions = Path::new(HOME).join("workspace/sessions");
    let mut files = Vec::new();
    for (dir, word, place) in [
        (sessions.clone(), "deleted", Place::Shelf(Shelf::Deleted)),
        (sessions.join("archive"), "archived", Place::Shelf(Shelf::Archive)),
    ] {
        let prefix = format!("{name}.{word}.");
        for path in disk.list(&dir).unwrap_or_default() {
            if path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(&prefix))
                && let Ok(bytes) = disk.read(&path)
            {
                files.push(File { place, bytes });
            }
        }
    }
    if let Ok(bytes) = disk.read(&live) {
        files.push(File { place: Place::Live, bytes });
    }
    files
}

/// The first line, which no two transcripts share.
fn header(bytes: &[u8]) -> Vec<u8> {
    bytes.split(|byte| *byte == b'\n').next().unwrap_or_default().to_vec()
}

/// The lines up to the first that is not whole: the rest may still be mended. Rows that only say where the conversation
/// stands are left out: those that a repair has put there are in no journal, and a power cut may take them.
fn promised(bytes: &[u8]) -> Vec<u8> {
    let lines = bytes.split_inclusive(|byte| *byte == b'\n');
    let whole = |line: &&[u8]| line.ends_with(b"\n") && serde_json::from_slice::<serde::de::IgnoredAny>(line).is_ok();
    lines.take_while(whole).filter(|line| !line.starts_with(b"{\"type\":\"leaf\"")).flatten().copied().collect()
}

// === impl Files ===

impl Files {
    /// Wishes that may have ended a transcript so far.
    pub fn closes(&self) -> usize {
        self.wishes.iter().filter(|wish| wish.to != Place::Live && !wish.refused).count()
    }

    /// Whether the end of a transcript is wished for and not answered.
    pub fn is_closing(&self) -> bool {
        self.wishes.iter().any(|wish| wish.open && wish.to != Place::Live)
    }

    /// Somebody wants a transcript to go somewhere. The answer is the wish's number.
    pub fn wish(&mut self, to: Place) -> usize {
        self.wishes.push(Wish { to, refused: false, open: true });
        self.wishes.len() - 1
    }

    /// Nothing came of a wish, and nothing will.
    pub fn refused(&mut self, wish: usize) {
        self.wishes[wish].open = false;
        self.wishes[wish].refused = true;
    }

    /// Nobody will learn what came of a wish.
    pub fn lost(&mut self, wish: usize) {
        self.wishes[wish].open = false;
    }

    /// The process ended: what was wished for has happened or never will.
    pub fn process_ended(&mut self) {
        self.wishes.iter_mut().for_each(|wish| wish.open = false);
    }

    /// A transcript went where it was wished; `now` is what the files are, `name` what its first line has in it. `None`
    /// is whatever lies there.
    pub fn put(&mut self, wish: usize, name: Option<&str>, now: &[File]) -> Result<(), String> {
        self.wishes[wish].open = false;
        let to = self.wishes[wish].to;
        // What a wish that is not answered makes of it is not known.
        let alone = !self.wishes.iter().any(|wish| wish.open);
        self.see(now)?;
        let named = |file: &&File| {
            let header = header(&file.bytes);
            name.is_none_or(|name| String::from_utf8_lossy(&header).contains(name))
        };
        let mut of_place = now.iter().filter(|file| name.is_some() || file.place == to);
        let Some(file) = of_place.rfind(named) else { return Ok(()) };
        let known = self.transcripts.entry(header(&file.bytes)).or_default();
        if alone || to == Place::Shelf(Shelf::Deleted) {
            known.put = Some((to, wish));
            known.ended = file.place == to && to != Place::Live;
        }
        Ok(())
    }

    /// An edit was answered with these entries.
    pub fn edited(&mut self, entries: impl IntoIterator<Item = String>, now: &[File]) -> Result<(), String> {
        self.edits.extend(entries);
        self.see(now)
    }

    /// The files are like this; those that were seen longer before may be written again after a power cut.
    fn see(&mut self, now: &[File]) -> Result<(), String> {
        for file in now {
            let bytes = promised(&file.bytes);
            if bytes.is_empty() {
                continue;
            }
            let known = self.transcripts.entry(header(&bytes)).or_default();
            if bytes.starts_with(&known.seen) {
                known.seen = bytes;
            } else if !known.seen.starts_with(&bytes) {
                let same = bytes.iter().zip(&known.seen).take_while(|(now, before)| now == before).count();
                let rest = |of: &[u8]| String::from_utf8_lossy(of.get(same..).unwrap_or_default()).into_owned();
                let (before, now) = (rest(&known.seen), rest(&bytes));
                return Err(format!("a transcript was changed at {same}: {before:?} is now {now:?}"));
            }
        }
        Ok(())
    }

    /// What must be true in the end. `ids` are those of all entries, file by file.
    pub fn check(&self, now: &[File], ids: &[Vec<String>]) -> Result<(), String> {
        let mut found = BTreeMap::new();
        for file in now {
            if found.insert(header(&file.bytes), file).is_some() {
                let header = String::from_utf8_lossy(&header(&file.bytes)).into_owned();
                return Err(format!("a transcript lies at two places, one is {:?}: {header}", file.place));
            }
        }
        for (header, known) in &self.transcripts {
            let Some(file) = found.get(header) else { return Err("a transcript is gone".to_owned()) };
            let bytes = promised(&file.bytes);
            if !bytes.starts_with(&known.seen) {
                return Err(format!("a transcript, now {:?}, has lost bytes that it had", file.place));
            }
            let Some((place, wish)) = known.put else { continue };
            let later = self.wishes.get(wish + 1..).unwrap_or_default();
            let leaves = |wish: &Wish| !wish.refused && (wish.to == Place::Live) != (place == Place::Live);
            if later.iter().any(leaves) && place != Place::Shelf(Shelf::Deleted) {
                continue;
            }
            if file.place != place {
                let header = String::from_utf8_lossy(header);
                return Err(format!("a transcript that was put at {place:?} is at {:?}: {header}", file.place));
            }
            if known.ended && bytes.len() != known.seen.len() {
                return Err(format!("a transcript at {place:?} was written to after its end"));
            }
        }
        let mut all = BTreeSet::new();
        if let Some(twice) = ids.iter().flatten().find(|id| !all.insert(id.as_str())) {
            return Err(format!("entry {twice} stands twice"));
        }
        match self.edits.iter().find(|edit| !all.contains(edit.as_str())) {
            Some(lost) => Err(format!("an edit was answered, and its entry {lost} is nowhere")),
            None => Ok(()),
        }
    }
}
