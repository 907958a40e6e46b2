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

    /// The part of a conversation that a model is shown: `entries` are those that [`TreeIndex::shown`] of `tree` named,
    /// in that order. It grows by [`follow`](Self::follow).
    pub fn part(tree: &TreeIndex, entries: impl IntoIterator<Item = (Position, Entry)>) -> Self {
        let mut part = Self::default();
        for (at, mut entry) in entries {
            if let EntryKind::Compaction { first_kept, .. } | EntryKind::Reset { first_kept } = &mut entry.kind {
                *first_kept = tree.first_kept(at).map(|kept| tree.id(kept).into());
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
        entry.parent = match kind {
            Kind::Leaf | Kind::Opaque => self.tree.raw_parent(at).map(Arc::from),
            Kind::User
            | Kind::Assistant
            | Kind::ToolResult
            | Kind::Bash
            | Kind::CustomRole
            | Kind::OtherRole
            | Kind::CustomMessage
            | Kind::Compaction
            | Kind::BranchSummary
            | Kind::Reset
            | Kind::Label
            | Kind::SessionInfo
            | Kind::ModelChange
            | Kind::ThinkingLevelChange
            | Kind::Custom => self.tree.parent_id(at).map(Arc::from),
        };
        match &mut entry.kind {
            EntryKind::Leaf { valid, .. } => *valid = self.tree.is_valid_leaf_row(at),
            EntryKind::Compaction { first_kept, .. } | EntryKind::Reset { first_kept } => {
                // Shown is by path, where unknown records are not.
                let is_opaque = |id: &Arc<str>| self.tree.position(id).is_some_and(|at| !self.tree.kind(at).is_node());
                if first_kept.as_ref().is_some_and(is_opaque) {
                    *first_kept = self.tree.first_kept(at).map(|kept| self.tree.id(kept).into());
                }
            }
            EntryKind::User(_)
            | EntryKind::Assistant(_)
            | EntryKind::ToolResult(_)
            | EntryKind::Shown(_)
            | EntryKind::BranchSummary(_)
            | EntryKind::Silent(_)
            | EntryKind::Opaque => {}
        }
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
