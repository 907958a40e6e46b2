//! Dead letters, oldest first. What they are about stays in the log; here is where. **Invariant:** pure.

use std::collections::{BTreeMap, HashMap};

use domain::ids::LetterId;
use protocol::journal::{DeadLetter, LogPosition};

/// One letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Kept {
    /// The letter.
    pub letter: DeadLetter,
    /// The record that says so.
    pub at: LogPosition,
    /// The record that has its content.
    pub content: Option<LogPosition>,
    /// About how many bytes the content has.
    pub bytes: u32,
}

impl Kept {
    /// Where the log has to be kept from for its sake.
    pub fn first(&self) -> LogPosition {
        self.content.map_or(self.at, |content| content.min(self.at))
    }
}

/// All of them.
#[derive(Debug, Default)]
pub struct Letters {
    by_age: BTreeMap<(u64, LetterId), Kept>,
    ages: HashMap<LetterId, u64>,
    bytes: u64,
}

impl Letters {
    /// Takes a letter in; one of the same name leaves.
    pub fn bury(&mut self, kept: Kept) {
        self.close(kept.letter.id);
        self.bytes += u64::from(kept.bytes);
        self.ages.insert(kept.letter.id, kept.letter.at_ms);
        self.by_age.insert((kept.letter.at_ms, kept.letter.id), kept);
    }

    /// Takes one out.
    pub fn close(&mut self, id: LetterId) -> Option<Kept> {
        let kept = self.by_age.remove(&(self.ages.remove(&id)?, id))?;
        self.bytes -= u64::from(kept.bytes);
        Some(kept)
    }

    /// One of them.
    pub fn get(&self, id: LetterId) -> Option<&Kept> {
        self.by_age.get(&(*self.ages.get(&id)?, id))
    }

    /// Oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &Kept> {
        self.by_age.values()
    }

    /// How many.
    pub fn len(&self) -> usize {
        self.by_age.len()
    }

    /// Bytes of their contents.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}
