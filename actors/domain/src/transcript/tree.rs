//! Where a conversation stands in its tree of entries, and the path that leads there.
//!
//! The *leaf* is the end of the conversation, the *cursor* is the entry that the next line names as its parent. They
//! are the same unless a side entry, an unknown linked record or a leaf row came last.

use std::collections::HashMap;
use std::sync::Arc;

use super::{Entry, EntryKind, Transcript};

/// What a line says about its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum RawParent {
    /// Nothing: it follows the leaf.
    Absent,
    /// `null`: it is a root.
    Root,
    /// An id, known or not.
    Id(Arc<str>),
}

/// Where the conversation stands.
#[derive(Debug, Clone, Default)]
pub(super) struct Tree {
    leaf: Option<Arc<str>>,
    cursor: Option<Arc<str>>,
    /// Position of each id, the later one of two that are equal. Absent while every entry simply follows the one before.
    index: Option<HashMap<Arc<str>, usize>>,
}

// === impl Transcript ===

impl Transcript {
    /// The last entry of the conversation.
    pub fn leaf(&self) -> Option<&Arc<str>> {
        self.tree.leaf.as_ref()
    }

    /// The parent of the next line.
    pub fn append_parent(&self) -> Option<&Arc<str>> {
        self.tree.cursor.as_ref()
    }

    /// Adds an entry whose line was, or will be, appended to the file.
    pub fn push(&mut self, entry: Entry) {
        let raw = match &entry.parent {
            Some(parent) => RawParent::Id(parent.clone()),
            None => RawParent::Root,
        };
        self.insert(entry, raw);
    }

    /// The conversation: all nodes from the root to the leaf. Ends early where a parent is unknown or a cycle closes.
    pub fn path_to_leaf(&self) -> Vec<&Entry> {
        let Some(index) = &self.tree.index else {
            return self.entries.iter().filter(|entry| entry.is_node()).collect();
        };
        let mut path = Vec::new();
        let mut seen = vec![false; self.entries.len()];
        let mut next = self.tree.leaf.as_deref();
        while let Some(&at) = next.and_then(|id| index.get(id)) {
            if std::mem::replace(&mut seen[at], true) {
                break;
            }
            let entry = &self.entries[at];
            next = match &entry.kind {
                EntryKind::Leaf { target, valid: true, .. } => target.as_deref(),
                EntryKind::Leaf { valid: false, .. } | EntryKind::Opaque { .. } => entry.parent.as_deref(),
                EntryKind::User(_)
                | EntryKind::Assistant(_)
                | EntryKind::ToolResult(_)
                | EntryKind::Shown(_)
                | EntryKind::Compaction { .. }
                | EntryKind::BranchSummary(_)
                | EntryKind::Reset { .. }
                | EntryKind::Silent => {
                    path.push(entry);
                    entry.parent.as_deref()
                }
            };
        }
        path.reverse();
        path
    }

    /// The entries from `at` on, while all of them simply follow one another; then the nodes among them are the path.
    pub fn chain_from(&self, at: usize) -> Option<&[Entry]> {
        if self.tree.index.is_some() { None } else { self.entries.get(at..) }
    }

    pub(super) fn insert(&mut self, mut entry: Entry, raw: RawParent) {
        if entry.is_node() && !entry.side {
            entry.parent = self.logical_parent(raw);
            if entry.parent != self.tree.leaf {
                self.index();
            }
            self.tree.leaf = Some(entry.id.clone());
            self.tree.cursor = Some(entry.id.clone());
        } else if let EntryKind::Leaf { .. } = entry.kind {
            entry.parent = raw.id();
            self.follow_leaf_row(&mut entry.kind);
        } else {
            let linked = !entry.id.is_empty() && raw != RawParent::Absent;
            entry.parent = raw.id();
            if linked {
                self.index();
                self.tree.cursor = Some(entry.id.clone());
            }
        }
        if let Some(index) = &mut self.tree.index
            && !entry.id.is_empty()
        {
            index.insert(entry.id.clone(), self.entries.len());
        }
        self.entries.push(entry);
    }

    /// A leaf row moves leaf and cursor, unless it points at something unknown or at a row that does.
    fn follow_leaf_row(&mut self, row: &mut EntryKind) {
        self.index();
        let EntryKind::Leaf { target, append_parent, valid } = row else { return };
        *valid = *valid && self.is_known(target.as_ref()) && self.is_known(append_parent.as_ref());
        if *valid {
            self.tree.leaf.clone_from(target);
            self.tree.cursor = append_parent.clone().or_else(|| target.clone());
        }
    }

    fn is_known(&self, id: Option<&Arc<str>>) -> bool {
        let (Some(id), Some(index)) = (id, &self.tree.index) else { return true };
        index.get(id).is_some_and(|at| !matches!(self.entries[*at].kind, EntryKind::Leaf { valid: false, .. }))
    }

    /// From now on positions of ids are kept: the entries are no plain chain.
    fn index(&mut self) {
        if self.tree.index.is_none() {
            self.tree.index = Some(index_of(&self.entries));
        }
    }

    /// A node that hangs off the cursor while the leaf is elsewhere belongs to the leaf, and so does one that does not
    /// say where it belongs.
    fn logical_parent(&self, raw: RawParent) -> Option<Arc<str>> {
        match raw {
            RawParent::Absent => self.tree.leaf.clone(),
            RawParent::Root => None,
            RawParent::Id(id) if Some(&id) == self.tree.cursor.as_ref() => self.tree.leaf.clone(),
            RawParent::Id(id) => Some(id),
        }
    }
}

impl RawParent {
    fn id(self) -> Option<Arc<str>> {
        match self {
            Self::Absent | Self::Root => None,
            Self::Id(id) => Some(id),
        }
    }
}

fn index_of(entries: &[Entry]) -> HashMap<Arc<str>, usize> {
    let named = entries.iter().enumerate().filter(|(_, entry)| !entry.id.is_empty());
    named.map(|(at, entry)| (entry.id.clone(), at)).collect()
}
