//! What is known of runs over restarts: notes in `run/subagents.jsonl` of the data directory, one JSON object a line.
//!
//! ```text
//!  {"note":"began","spec":{"run":"0193…",…},"turn":"0194…","sinceMs":1795985609123,"waits":false}
//!  {"note":"ended","run":"0193…","result":"done","text":"5 toads","usage":{…}}
//!  {"note":"reported","run":"0193…"}
//! ```
//!
//! It is there for people and models who ask, and holds no truth: what is open is known from the journal, and how a turn
//! ended from its transcript. A note that was lost with its process is made again from these. So nothing is synced, and a
//! line that says nothing is passed over. The file is written anew when it has many notes of runs that are not kept.

use std::collections::BTreeMap;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use domain::chat::Usage;
use domain::ids::{RunId, TurnId};
use domain::run::RunSpec;
use protocol::turn::TurnResult;
use serde::{Deserialize, Serialize};
use supervision::ports::{Disk, Open};

use crate::machine::{ENDED_KEPT, End, OPEN_MAX};

/// Notes in the file, at least, before it is written anew: a run has three.
pub const NOTES_MAX: usize = 8 * (ENDED_KEPT + OPEN_MAX);
/// The largest file that is read.
const BYTES_MAX: u64 = 256 << 20;

/// One line.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "note", rename_all = "snake_case", rename_all_fields = "camelCase")]
pub enum Note {
    /// The journal has it.
    Began { spec: Arc<RunSpec>, turn: TurnId, since_ms: u64, waits: bool },
    /// Its turn ended.
    Ended { run: RunId, result: String, text: Arc<str>, usage: Usage },
    /// Its report waits for the parent.
    Reported { run: RunId },
}

/// A run, as the notes have it.
#[derive(Debug, Clone, PartialEq)]
pub struct Past {
    pub spec: Arc<RunSpec>,
    pub turn: TurnId,
    pub since_ms: u64,
    pub waits: bool,
    pub end: Option<End>,
    pub told: bool,
}

/// All that the file says.
#[derive(Debug, Default, PartialEq)]
pub struct Found {
    /// Those that have ended in the order of that, then the others.
    pub runs: Vec<Past>,
    /// Lines.
    pub notes: usize,
    /// Of these, such that say nothing.
    pub bad: usize,
}

// === impl Note ===

impl Note {
    /// That a run ended.
    pub fn ended(run: RunId, end: &End) -> Self {
        let End { result, text, usage } = end;
        Self::Ended { run, result: result.word().to_owned(), text: Arc::clone(text), usage: *usage }
    }
}

fn result(word: &str) -> Option<TurnResult> {
    use TurnResult::{Cancelled, DeadLettered, Done, Failed, Joined};
    [Done, Failed, DeadLettered, Cancelled, Joined].into_iter().find(|result| result.word() == word)
}

/// The lines of notes. A note that cannot be written down is left out: a run is found again without it.
pub fn lines(notes: &[Note]) -> String {
    let lines = notes.iter().filter_map(|note| serde_json::to_string(note).ok());
    lines.map(|line| line + "\n").collect()
}

/// What lines say, whatever they are.
pub fn found(bytes: &[u8]) -> Found {
    let mut found = Found::default();
    let mut runs: BTreeMap<RunId, Past> = BTreeMap::new();
    let mut ended = Vec::new();
    for line in bytes.split(|byte| *byte == b'\n').filter(|line| !line.is_empty()) {
        found.notes += 1;
        match serde_json::from_slice(line) {
            Ok(Note::Began { spec, turn, since_ms, waits }) => {
                let past = runs.entry(spec.run).or_insert_with(|| Past {
                    spec,
                    turn,
                    since_ms,
                    waits,
                    end: None,
                    told: false,
                });
                // Who finds it after a restart knows neither when it began nor who waits.
                past.since_ms = past.since_ms.min(since_ms);
                past.waits |= waits;
            }
            Ok(Note::Ended { run, result: word, text, usage }) => match (runs.get_mut(&run), result(&word)) {
                (Some(past), Some(result)) => {
                    // It was told something after its end: whoever waited for that knows nothing of this one.
                    past.waits &= past.end.is_none();
                    past.told = false;
                    ended.retain(|ended| *ended != run);
                    ended.push(run);
                    past.end = Some(End { result, text, usage });
                }
                // It is not kept any more.
                (None, Some(_)) => {}
                (_, None) => found.bad += 1,
            },
            Ok(Note::Reported { run }) => {
                runs.entry(run).and_modify(|past| past.told = true);
            }
            Err(_) => found.bad += 1,
        }
    }
    let first = ended.len().saturating_sub(ENDED_KEPT);
    let kept: Vec<Past> = ended.split_off(first).iter().filter_map(|run| runs.remove(run)).collect();
    let open = runs.into_values().filter(|past| past.end.is_none());
    found.runs = kept.into_iter().chain(open).collect();
    found
}

/// Reads the file. Blocks.
pub fn read(disk: &dyn Disk, path: &Path) -> io::Result<Found> {
    match disk.stat(path) {
        Ok(stat) if stat.length > BYTES_MAX => {
            Err(io::Error::other(format!("it has {} bytes; at most {BYTES_MAX} are read", stat.length)))
        }
        Ok(_) => Ok(found(&disk.read(path)?)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(Found::default()),
        Err(error) => Err(error),
    }
}

/// Writes lines behind what is there; they stand on lines of their own whatever that ends with. Blocks.
pub fn append(disk: &dyn Disk, path: &Path, lines: &str) -> io::Result<()> {
    let file = disk.open(path, Open::Create)?;
    let length = file.length()?;
    let mut last = [b'\n'];
    if let Some(at) = length.checked_sub(1) {
        file.read_at(&mut last, at)?;
    }
    let torn = if last == [b'\n'] { "" } else { "\n" };
    file.write_at(format!("{torn}{lines}").as_bytes(), length)
}

/// Writes lines in place of all that is there. Blocks.
pub fn replace(disk: &dyn Disk, path: &Path, lines: &str) -> io::Result<()> {
    let new = PathBuf::from(format!("{}.new", path.display()));
    let file = disk.open(&new, Open::Create)?;
    file.set_length(0)?;
    file.write_at(lines.as_bytes(), 0)?;
    file.sync_data()?;
    disk.rename(&new, path)
}

#[cfg(test)]
mod tests;
