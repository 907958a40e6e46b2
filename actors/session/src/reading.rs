//! Reads a transcript piece by piece, and keeps of it what the model can see. Everything here blocks: it runs on the
//! blocking pool.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::sync::Arc;

use domain::budget::reach;
use domain::history::{entry_tokens, newest, suffices};
use domain::ids::TurnId;
use domain::reset::Times;
use domain::tally::Tally;
use domain::transcript::{Entry, Findings, Header, Position, Reader, Record, Transcript, TreeIndex, read_entry};
use supervision::ports::DiskFile;

use crate::index::preview;

/// Bytes that are read at a time.
pub const PIECE_BYTES: u64 = 256 << 10;
/// Bytes of lines for each token of the model's window, at first: its text, and what stands around that.
const BYTES_PER_TOKEN: u64 = 8;

/// A transcript as it is, or will be: the begin of a file, then what is still to be written.
pub struct Source {
    /// None when there is no file.
    pub file: Option<Box<dyn DiskFile>>,
    /// How much of it counts.
    pub keep: u64,
    /// What follows.
    pub rest: Vec<u8>,
}

/// What the model can see of a conversation, or more.
#[derive(Debug, Default)]
pub struct Window {
    /// The entries, oldest first.
    pub transcript: Transcript,
    /// Whether there are no others in the file.
    pub is_all: bool,
    /// About how many bytes their lines have.
    pub bytes: u64,
    /// With so many bytes it was found that the model can see most of them.
    tight_at: u64,
}

// === impl Window ===

impl Window {
    /// The entries that the model is shown.
    pub fn shown(&self) -> impl Iterator<Item = &Entry> {
        let tree = self.transcript.tree();
        let shown = tree.shown(&tree.path());
        shown.into_iter().filter_map(|at| self.transcript.entries().get(at.0 as usize))
    }
}

/// What was read.
#[derive(Default)]
pub struct Reading {
    /// Line 1, if it is one.
    pub header: Option<Header>,
    /// How everything hangs together.
    pub tree: TreeIndex,
    /// What the model can see.
    pub window: Window,
    /// The first words of the first message.
    pub preview: Option<Arc<str>>,
    /// Since when the conversation is what it is.
    pub times: Times,
    /// What it was set to, and how far it is.
    pub tally: Tally,
    /// Length of the transcript.
    pub length: u64,
    /// What is wrong with its lines.
    pub faults: Option<Faults>,
}

/// Lines that cannot be read, or that are not what they should be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Faults {
    /// How many; at least one.
    pub count: usize,
    /// The line of the first one, from 1.
    pub first_line: usize,
}

/// Reads all of it. `turn` may need more than the model's window, of that many tokens.
pub fn read(source: &Source, window_tokens: u64, turn: Option<TurnId>) -> io::Result<Reading> {
    let (mut reader, mut tree) = (Reader::default(), TreeIndex::default());
    let mut recent = Recent { bytes_max: reach(window_tokens).saturating_mul(BYTES_PER_TOKEN), ..Recent::default() };
    let (mut first, mut times, mut tally) = (None, Times::default(), Tally::default());
    let mut take = |Record { entry, parent, kind, place }: Record| {
        if first.is_none() {
            first = entry.user().and_then(preview);
        }
        times.see(&entry);
        tally.see(&entry);
        let bytes = place.end.saturating_sub(place.start);
        let at = tree.insert(&entry, &parent, kind, place);
        recent.push(at, entry, bytes);
    };
    source.each_piece(|piece| reader.push(piece, &mut take))?;
    let Findings { header, problems, problems_total } = reader.finish(take);
    let faults = problems.first().map(|first| Faults { count: problems_total, first_line: first.line });
    if times.started_ms == 0 {
        let begun = tree.positions().next().map(|at| tree.timestamp_ms(at));
        times.started_ms = header.as_ref().map(|header| header.timestamp_ms).or(begun).unwrap_or(0);
    }
    let window = window(source, &tree, &recent, window_tokens, turn)?;
    let length = source.length();
    Ok(Reading { header, tree, window, preview: first, times, tally, length, faults })
}

/// The entries of `turn`, in whichever branch; if another turn took it up, also those of that one behind it.
pub fn read_turn(source: &Source, turn: TurnId) -> io::Result<Transcript> {
    let (mut reader, mut own) = (Reader::default(), Transcript::default());
    // What another turn answers stands behind the message that it took up.
    let mut into = None;
    let mut take = |record: Record| {
        let of = record.entry.turn();
        if of == Some(turn) {
            into = record.entry.joined().or(into);
            own.insert(record);
        } else if of.is_some() && of == into {
            own.insert(record);
        }
    };
    source.each_piece(|piece| reader.push(piece, &mut take))?;
    reader.finish(take);
    Ok(own)
}

fn window(
    source: &Source,
    tree: &TreeIndex,
    recent: &Recent,
    window_tokens: u64,
    turn: Option<TurnId>,
) -> io::Result<Window> {
    let shown = tree.shown(&tree.path());
    let length = |at: Position| {
        let place = tree.place(at);
        place.end - place.start
    };
    let mut limit = recent.bytes_max;
    loop {
        let chosen = newest(tree, &shown, length, limit, turn);
        let mut entries = Vec::with_capacity(chosen.len());
        for at in &chosen {
            entries.extend(match recent.entries.get(at) {
                Some((entry, _)) => Some(entry.clone()),
                None => read_entry(tree, *at, &source.range(tree.place(*at))?),
            });
        }
        let transcript = Transcript::part(entries);
        if chosen.len() == shown.len() || suffices(&transcript.path_to_leaf(), turn, reach(window_tokens)) {
            let bytes = chosen.iter().copied().map(length).sum();
            return Ok(Window { transcript, is_all: chosen.len() == tree.len(), bytes, tight_at: 0 });
        }
        limit = limit.saturating_mul(2).max(1);
    }
}

// === impl Window ===

impl Window {
    /// Lets go what a model with a window of that many tokens cannot see, once it is most of what there is. Whether it
    /// did. What it costs to find out is paid once for each time that the bytes double.
    pub fn trim(&mut self, window_tokens: u64) -> bool {
        let enough = reach(window_tokens).saturating_mul(BYTES_PER_TOKEN * 2).max(self.tight_at.saturating_mul(2));
        if self.bytes <= enough {
            return false;
        }
        self.tight_at = self.bytes;
        let tree = self.transcript.tree();
        let entry = |at: Position| self.transcript.entries().get(at.0 as usize);
        let tokens = |at: Position| entry(at).map_or(0, entry_tokens);
        let shown = tree.shown(&tree.path());
        let chosen = newest(tree, &shown, tokens, reach(window_tokens).saturating_mul(5) / 4, None);
        let part = Transcript::part(chosen.iter().filter_map(|at| entry(*at).cloned()));
        if !suffices(&part.path_to_leaf(), None, reach(window_tokens)) {
            return false;
        }
        let share = |tokens: u64, of: u64| (u128::from(self.bytes) * u128::from(tokens) / u128::from(of.max(1))) as u64;
        let sum = |some: &[Position]| some.iter().map(|at| tokens(*at)).sum::<u64>();
        let bytes = share(sum(&chosen), sum(&shown));
        *self = Self { transcript: part, is_all: false, bytes, tight_at: bytes };
        true
    }
}

// === impl Reading ===

impl Reading {
    /// Time of the latest entry, or of the header.
    pub fn last_ms(&self) -> u64 {
        self.header.as_ref().map_or(0, |header| header.timestamp_ms).max(self.tree.last_ms())
    }
}

/// The entries that were read last: nearly always those that the model can see.
#[derive(Default)]
struct Recent {
    entries: BTreeMap<Position, (Entry, u64)>,
    bytes: u64,
    bytes_max: u64,
}

// === impl Recent ===

impl Recent {
    fn push(&mut self, at: Position, entry: Entry, bytes: u64) {
        self.bytes += bytes;
        self.entries.insert(at, (entry, bytes));
        while self.bytes > self.bytes_max
            && let Some((_, (_, bytes))) = self.entries.pop_first()
        {
            self.bytes -= bytes;
        }
    }
}

// === impl Source ===

impl Source {
    /// How long the transcript is.
    pub fn length(&self) -> u64 {
        self.keep + self.rest.len() as u64
    }

    /// Whether the file goes on behind what counts of it.
    pub fn has_more(&self) -> bool {
        self.file.as_ref().is_some_and(|file| file.opened().length > self.keep)
    }

    /// Gives all of it, in order.
    pub fn each_piece(&self, mut take: impl FnMut(&[u8])) -> io::Result<()> {
        let mut piece = Vec::new();
        let mut at = 0;
        while let Some(file) = self.file.as_ref().filter(|_| at < self.keep) {
            let want = PIECE_BYTES.min(self.keep - at);
            piece.resize(usize::try_from(want).map_err(io::Error::other)?, 0);
            let got = file.read_at(&mut piece, at)?;
            take(piece.get(..got).unwrap_or_default());
            at += got as u64;
            if (got as u64) < want {
                break;
            }
        }
        take(&self.rest);
        Ok(())
    }

    /// The bytes at `place`.
    pub fn range(&self, place: Range<u64>) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(place.end - place.start).map_err(io::Error::other)?];
        let in_rest = place.start.checked_sub(self.keep).and_then(|start| usize::try_from(start).ok());
        let got = match (in_rest, &self.file) {
            (Some(start), _) => {
                let rest = self.rest.get(start..start + bytes.len()).unwrap_or_default();
                bytes.get_mut(..rest.len()).unwrap_or_default().copy_from_slice(rest);
                rest.len()
            }
            (None, Some(file)) => file.read_at(&mut bytes, place.start)?,
            (None, None) => 0,
        };
        bytes.truncate(got);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests;
