//! A transcript with its contents is a tree whose nodes are at hand.

use std::sync::Arc;

use super::{Entry, EntryKind, Kind, Position, RawParent, Record, Transcript, TreeIndex};

// === impl Transcript ===

impl Transcript {
    /// How the entries hang together.
    pub fn tree(&self) -> &TreeIndex {
        &self.tree
    }

    /// The last entry of the conversation.
    pub fn leaf(&self) -> Option<&str> {
        self.tree.leaf()
    }

    /// The parent of the next line.
    pub fn append_parent(&self) -> Option<&str> {
        self.tree.append_parent()
    }

    /// Adds an entry whose line was, or will be, appended to the file.
    pub fn push(&mut self, entry: Entry) {
        let parent = match &entry.parent {
            Some(parent) => RawParent::Id(Arc::clone(parent)),
            None => RawParent::Root,
        };
        self.insert(Record { kind: Kind::of(&entry.kind), entry, parent, place: 0..0 });
    }

    /// The part of a conversation that a model is shown: `entries` are of those that [`TreeIndex::shown`] named, in that
    /// order, so what stands before a boundary is what it keeps. It grows by [`follow`](Self::follow).
    pub fn part(entries: impl IntoIterator<Item = Entry>) -> Self {
        let mut part = Self::default();
        for mut entry in entries {
            if let EntryKind::Compaction { first_kept, .. } | EntryKind::Reset { first_kept } = &mut entry.kind {
                *first_kept = part.entries.first().map(|first| Arc::clone(&first.id));
            }
            part.follow(entry);
        }
        part
    }

    /// Adds an entry behind the leaf, whatever it names as its parent.
    pub fn follow(&mut self, mut entry: Entry) {
        entry.side = false;
        self.insert(Record { kind: Kind::of(&entry.kind), entry, parent: RawParent::Absent, place: 0..0 });
    }

    /// Adds what was read.
    pub fn insert(&mut self, record: Record) {
        let Record { mut entry, parent, kind, place } = record;
        let at = self.tree.insert(&entry, &parent, kind, place);
        self.tree.complete(at, &mut entry);
        self.entries.push(entry);
    }

    /// The conversation: all nodes from the root to the leaf. Begins where a parent is unknown or a cycle closes.
    pub fn path_to_leaf(&self) -> Vec<&Entry> {
        self.tree.path().into_iter().filter_map(|at| self.entries.get(at.0 as usize)).collect()
    }

    /// The entries from `at` on, while all of them simply follow one another; then the nodes among them are the path.
    pub fn chain_from(&self, at: usize) -> Option<&[Entry]> {
        if self.tree.is_plain() { self.entries.get(at..) } else { None }
    }
}

// === impl TreeIndex ===

impl TreeIndex {
    /// Fills in what only the tree knows of the entry at `at`: its parent, whether a leaf row counts, and the node that
    /// a boundary keeps from.
    pub(super) fn complete(&self, at: Position, entry: &mut Entry) {
        let parent = if self.kind(at).is_node() { self.parent_id(at) } else { self.raw_parent(at) };
        entry.parent = parent.map(Arc::from);
        match &mut entry.kind {
            EntryKind::Leaf { valid, .. } => *valid = self.is_valid_leaf_row(at),
            EntryKind::Compaction { first_kept, .. } | EntryKind::Reset { first_kept } => {
                // In version 1 it is a number; and what is shown goes by the path, where unknown records are not.
                *first_kept = self.kept_id(at).map(|id| match self.position(id) {
                    Some(kept) if !self.kind(kept).is_node() => {
                        let node = self.node_of(id).or_else(|| self.first_kept(at));
                        node.map_or(id, |node| self.id(node)).into()
                    }
                    Some(_) | None => id.into(),
                });
            }
            EntryKind::User(_)
            | EntryKind::Assistant(_)
            | EntryKind::ToolResult(_)
            | EntryKind::Shown(_)
            | EntryKind::BranchSummary(_)
            | EntryKind::Silent(_)
            | EntryKind::Opaque => {}
        }
    }
}
