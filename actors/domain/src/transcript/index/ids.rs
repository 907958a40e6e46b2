//! Texts that are stored once and named by small numbers.

use std::hash::{BuildHasher, RandomState};

use hashbrown::HashTable;

/// The number of a text; [`NONE`] for no text.
pub(super) type Name = u32;

/// No text.
pub(super) const NONE: Name = Name::MAX;

/// A full list grows by this part of itself.
const GROWTH: usize = 16;

/// Each text once. About 14 bytes for each, and its own.
#[derive(Debug, Clone, Default)]
pub(super) struct Texts {
    text: String,
    /// Where each ends in `text`.
    ends: Vec<u32>,
    numbers: HashTable<Name>,
    hasher: RandomState,
}

// === impl Texts ===

impl Texts {
    /// The number of `text`, which is stored if it is new.
    pub fn intern(&mut self, text: &str) -> Name {
        if let Some(name) = self.find(text) {
            return name;
        }
        let length = u32::try_from(self.text.len() + text.len());
        let (Ok(end), Ok(name)) = (length, Name::try_from(self.ends.len())) else { return NONE };
        if self.text.capacity() < end as usize {
            self.text.reserve_exact(text.len() + self.text.len() / GROWTH);
        }
        self.text.push_str(text);
        push(&mut self.ends, end);
        let Self { text: all, ends, numbers, hasher } = self;
        let hash = hasher.hash_one(text);
        numbers.insert_unique(hash, name, |name| hasher.hash_one(text_of(all, ends, *name)));
        name
    }

    /// The number of `text`, if it is stored.
    pub fn find(&self, text: &str) -> Option<Name> {
        let same = |name: &Name| self.get(*name) == text;
        self.numbers.find(self.hasher.hash_one(text), same).copied()
    }

    /// What they take in memory, in bytes.
    pub fn bytes(&self) -> usize {
        self.text.capacity() + self.ends.capacity() * size_of::<u32>() + self.numbers.allocation_size()
    }

    /// The text of a number; empty for [`NONE`].
    pub fn get(&self, name: Name) -> &str {
        text_of(&self.text, &self.ends, name)
    }
}

fn text_of<'t>(text: &'t str, ends: &[u32], name: Name) -> &'t str {
    let at = name as usize;
    let Some(end) = ends.get(at) else { return "" };
    let start = at.checked_sub(1).and_then(|before| ends.get(before)).copied().unwrap_or(0);
    text.get(start as usize..*end as usize).unwrap_or("")
}

/// Adds to a list that stays long: what it has in reserve is a small part of it.
pub(super) fn push<T>(list: &mut Vec<T>, item: T) {
    if list.len() == list.capacity() {
        list.reserve_exact(1 + list.len() / GROWTH);
    }
    list.push(item);
}
