//! The tree of a transcript without its contents: small enough to stay in memory for a file that is not.
//!
//! The *leaf* is the end of the conversation, the *cursor* is the entry that the next line names as its parent. They
//! are the same unless a side entry, an unknown linked record or a leaf row came last. What a line says of its parent
//! is its *raw* parent; the *logical* parent is the node that it really follows:
//!
//! | raw parent | logical parent |
//! |---|---|
//! | none is named | the leaf of that moment |
//! | `null` | none: a root |
//! | the cursor of that moment | the leaf of that moment |
//! | an unknown record, or an invalid leaf row | what that one names, and so on |
//! | a leaf row | its target |
//! | an id that no line has | none: an orphan, shown as a root |
//!
//! Entries are named by [`Position`]; ids are stored once. Of two lines with one id a node counts before anything else,
//! then the later one. A parent may come after its children. About 60 bytes for each entry, and its id.

mod ids;
mod kind;
mod shown;

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use super::{Entry, EntryKind, Note};
use crate::ids::TurnId;
use ids::{NONE, Name, Texts, push};

pub use kind::Kind;
pub use shown::Settings;

/// How many unknown records in a row are looked through, in files that have them in an order that no program writes.
const HOPS_MAX: usize = 256;

/// An entry's place among all of its file's, from 0, in file order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position(pub u32);

/// What a line says about its parent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RawParent {
    /// Nothing: it follows the leaf.
    Absent,
    /// `null`: it is a root.
    Root,
    /// An id, known or not.
    Id(Arc<str>),
}

/// The name that an entry has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Label {
    /// The name.
    pub text: Arc<str>,
    /// When it was given.
    pub timestamp_ms: u64,
    /// Since when the entry has had a name, this or another.
    since: Position,
}

/// Where everything in a transcript lies and how it hangs together.
#[derive(Debug, Clone)]
pub struct TreeIndex {
    rows: Vec<Row>,
    ids: Texts,
    /// Position of each id; [`NONE`] while it was only mentioned.
    latest: Vec<u32>,
    /// Models and thinking levels.
    words: Texts,
    leaf: Name,
    cursor: Name,
    labels: BTreeMap<Name, Label>,
    name: Option<Arc<str>>,
    /// Where entries begin to belong to another turn.
    turns: Vec<(Position, Option<TurnId>)>,
    last_ms: u64,
    /// Whether each node simply follows the one before.
    plain: bool,
}

#[derive(Debug, Clone, Copy)]
struct Row {
    start: u64,
    timestamp_ms: u64,
    bytes: u32,
    id: Name,
    raw: Name,
    /// The logical parent, or on the way to it.
    link: Name,
    /// Assistant, model change: the model. Thinking: the level. Compaction, reset: the first entry that is kept.
    detail: Name,
    kind: Kind,
    flags: u8,
}

/// It hangs off the conversation without being part of it.
const SIDE: u8 = 1;
/// A leaf row that counts.
const VALID: u8 = 2;
/// The model may be shown it.
const SHOWN: u8 = 4;
/// The last message of its turn, or that by which it joined another.
const ENDS: u8 = 8;

// === impl TreeIndex ===

impl Default for TreeIndex {
    fn default() -> Self {
        Self {
            rows: Vec::new(),
            ids: Texts::default(),
            latest: Vec::new(),
            words: Texts::default(),
            leaf: NONE,
            cursor: NONE,
            labels: BTreeMap::new(),
            name: None,
            turns: Vec::new(),
            last_ms: 0,
            plain: true,
        }
    }
}

impl TreeIndex {
    /// Takes in the next line of the file, which lies at `place`.
    pub fn insert(&mut self, entry: &Entry, parent: &RawParent, kind: Kind, place: Range<u64>) -> Position {
        let at = Position(u32::try_from(self.rows.len()).unwrap_or(NONE));
        let id = if entry.id.is_empty() { NONE } else { self.intern(&entry.id) };
        let raw = if let RawParent::Id(parent) = parent { self.intern(parent) } else { NONE };
        let mut row = Row {
            start: place.start,
            timestamp_ms: entry.timestamp_ms,
            bytes: u32::try_from(place.end.saturating_sub(place.start)).unwrap_or(u32::MAX),
            id,
            raw,
            link: NONE,
            detail: NONE,
            kind,
            flags: if entry.side { SIDE } else { 0 },
        };
        if let EntryKind::Leaf { target, append_parent, valid } = &entry.kind {
            self.plain = false;
            let (target, append) = (self.mentioned(target.as_ref()), self.mentioned(append_parent.as_ref()));
            self.follow_leaf_row(&mut row, target, append, *valid);
        } else if kind.is_node() && !entry.side {
            row.link = match parent {
                RawParent::Absent => self.leaf,
                RawParent::Root => NONE,
                RawParent::Id(_) if raw == self.cursor => self.leaf,
                RawParent::Id(_) => self.looked_through(raw),
            };
            self.plain &= row.link == self.leaf && self.latest(id).is_none();
            (self.leaf, self.cursor) = (id, id);
        } else {
            let follows = kind.is_node() && *parent == RawParent::Absent;
            row.link = if follows { self.cursor } else { self.looked_through(raw) };
            if id != NONE && (kind.is_node() || *parent != RawParent::Absent) {
                self.plain = false;
                self.cursor = id;
            }
        }
        self.note(entry, at, &mut row);
        let is_taken = !kind.is_node() && self.latest(id).is_some_and(|at| self.kind(at).is_node());
        if let Some(latest) = self.latest.get_mut(id as usize).filter(|_| !is_taken) {
            *latest = at.0;
        }
        if row.timestamp_ms > 0 {
            self.last_ms = row.timestamp_ms;
        }
        push(&mut self.rows, row);
        at
    }

    /// How many entries there are, of all kinds.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// What it takes in memory, in bytes; names and labels not counted.
    pub fn bytes(&self) -> usize {
        self.rows.capacity() * size_of::<Row>()
            + self.latest.capacity() * size_of::<u32>()
            + self.turns.capacity() * size_of::<(Position, Option<TurnId>)>()
            + self.ids.bytes()
            + self.words.bytes()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// All positions, in file order.
    pub fn positions(&self) -> impl DoubleEndedIterator<Item = Position> + use<> {
        (0..u32::try_from(self.rows.len()).unwrap_or(NONE)).map(Position)
    }

    /// Where the line with this id is, of any kind.
    pub fn position(&self, id: &str) -> Option<Position> {
        self.ids.find(id).and_then(|id| self.latest(id))
    }

    /// Whether any line has this id, or names it.
    pub fn mentions(&self, id: &str) -> bool {
        self.ids.find(id).is_some()
    }

    /// The id of an entry; empty for an opaque line without one.
    pub fn id(&self, at: Position) -> &str {
        self.ids.get(self.row(at).map_or(NONE, |row| row.id))
    }

    /// What kind of line it is.
    pub fn kind(&self, at: Position) -> Kind {
        self.row(at).map_or(Kind::Opaque, |row| row.kind)
    }

    /// Where it lies in the file, without its line end.
    pub fn place(&self, at: Position) -> Range<u64> {
        self.row(at).map_or(0..0, |row| row.start..row.start + u64::from(row.bytes))
    }

    /// When it was written; 0 when the file does not say.
    pub fn timestamp_ms(&self, at: Position) -> u64 {
        self.row(at).map_or(0, |row| row.timestamp_ms)
    }

    /// Whether it hangs off the conversation without being part of it.
    pub fn is_side(&self, at: Position) -> bool {
        self.has(at, SIDE)
    }

    /// Whether it is a leaf row that counts.
    pub fn is_valid_leaf_row(&self, at: Position) -> bool {
        self.has(at, VALID)
    }

    /// Whether it is the last message of its turn.
    pub fn ends_turn(&self, at: Position) -> bool {
        self.has(at, ENDS)
    }

    /// The turn that it belongs to.
    pub fn turn(&self, at: Position) -> Option<TurnId> {
        let behind = self.turns.partition_point(|(from, _)| *from <= at);
        self.turns.get(behind.checked_sub(1)?)?.1
    }

    /// The parent that its line names.
    pub fn raw_parent(&self, at: Position) -> Option<&str> {
        self.row(at).map(|row| row.raw).filter(|raw| *raw != NONE).map(|raw| self.ids.get(raw))
    }

    /// The node that it follows; `None` for a root or an orphan.
    pub fn parent(&self, at: Position) -> Option<Position> {
        self.node(self.row(at)?.link)
    }

    /// The id of the node that it follows, even if there is none with that id (yet).
    pub fn parent_id(&self, at: Position) -> Option<&str> {
        let link = self.row(at)?.link;
        if link == NONE {
            return None;
        }
        match self.node(link) {
            Some(node) => Some(self.id(node)),
            None if self.latest(link).is_none() => Some(self.ids.get(link)),
            None => None,
        }
    }

    /// The node that `id` stands for: itself, or what an unknown record or a leaf row with that id hangs on.
    pub fn node_of(&self, id: &str) -> Option<Position> {
        self.node(self.ids.find(id)?)
    }

    /// The last entry of the conversation; `None` before the first one.
    pub fn leaf(&self) -> Option<&str> {
        (self.leaf != NONE).then(|| self.ids.get(self.leaf))
    }

    /// The parent of the next line.
    pub fn append_parent(&self) -> Option<&str> {
        (self.cursor != NONE).then(|| self.ids.get(self.cursor))
    }

    /// Time of the latest line that has one.
    pub fn last_ms(&self) -> u64 {
        self.last_ms
    }

    /// Whether each node follows the one before, so that all of them are the conversation.
    pub fn is_plain(&self) -> bool {
        self.plain
    }

    /// The name of the session.
    pub fn name(&self) -> Option<&Arc<str>> {
        self.name.as_ref()
    }

    /// The name of an entry.
    pub fn label(&self, id: &str) -> Option<&Label> {
        self.labels.get(&self.ids.find(id)?)
    }

    /// All names of entries that exist, in the order in which the entries were first named.
    pub fn labels(&self) -> Vec<(Position, &Label)> {
        let named = self.labels.iter().filter_map(|(target, label)| Some((self.latest(*target)?, label)));
        let mut labels: Vec<_> = named.collect();
        labels.sort_by_key(|(_, label)| label.since);
        labels
    }

    /// The conversation: all nodes from the root to the leaf.
    pub fn path(&self) -> Vec<Position> {
        if self.plain {
            return self.positions().filter(|at| self.kind(*at).is_node()).collect();
        }
        self.latest(self.leaf).map(|leaf| self.path_to(leaf)).unwrap_or_default()
    }

    /// All nodes from the root to `end`. Begins where a parent is unknown or a cycle closes.
    pub fn path_to(&self, end: Position) -> Vec<Position> {
        let mut path = Vec::new();
        let mut seen = vec![false; self.rows.len()];
        let mut next = if self.kind(end).is_node() { Some(end) } else { self.parent(end) };
        while let Some(at) = next {
            match seen.get_mut(at.0 as usize) {
                Some(seen) if !*seen => *seen = true,
                Some(_) | None => break,
            }
            path.push(at);
            next = self.parent(at);
        }
        path.reverse();
        path
    }

    /// The nodes that follow `parent`, or the roots: oldest first, of two with one time the earlier in the file.
    pub fn children(&self, parent: Option<Position>) -> Vec<Position> {
        let nodes = self.positions().filter(|at| self.kind(*at).is_node());
        let mut children: Vec<_> = nodes.filter(|at| self.parent(*at) == parent).collect();
        children.sort_by_key(|at| (self.timestamp_ms(*at), *at));
        children
    }

    fn intern(&mut self, id: &str) -> Name {
        let name = self.ids.intern(id);
        if name != NONE && name as usize >= self.latest.len() {
            push(&mut self.latest, NONE);
        }
        name
    }

    fn mentioned(&mut self, id: Option<&Arc<str>>) -> Name {
        id.map_or(NONE, |id| self.intern(id))
    }

    /// A leaf row moves leaf and cursor, unless it points at something unknown or at a row that does.
    fn follow_leaf_row(&mut self, row: &mut Row, target: Name, append: Name, well_formed: bool) {
        if !well_formed || !self.can_be_pointed_at(target) || !self.can_be_pointed_at(append) {
            row.link = self.looked_through(row.raw);
            return;
        }
        row.flags |= VALID;
        row.link = self.node(target).and_then(|node| self.row(node)).map_or(NONE, |node| node.id);
        self.leaf = row.link;
        self.cursor = if append == NONE { self.leaf } else { append };
    }

    fn can_be_pointed_at(&self, name: Name) -> bool {
        name == NONE || self.latest(name).is_some_and(|at| self.kind(at) != Kind::Leaf || self.has(at, VALID))
    }

    /// What is known besides how it hangs together.
    fn note(&mut self, entry: &Entry, at: Position, row: &mut Row) {
        let turn = entry.turn();
        if turn != self.turns.last().and_then(|(_, turn)| *turn) {
            self.turns.push((at, turn));
        }
        match &entry.kind {
            EntryKind::User(user) => {
                row.flags |= if user.is_command() { 0 } else { SHOWN };
                row.flags |= if entry.joined().is_some() { ENDS } else { 0 };
            }
            EntryKind::ToolResult(_) | EntryKind::Shown(_) => row.flags |= SHOWN,
            EntryKind::BranchSummary(summary) => row.flags |= if summary.trim().is_empty() { 0 } else { SHOWN },
            EntryKind::Assistant(assistant) => {
                row.flags |= if assistant.end.is_some() { ENDS } else { 0 };
                if !assistant.transcript_only {
                    row.flags |= SHOWN;
                    row.detail = self.model(&assistant.message.provider, &assistant.message.model);
                }
            }
            EntryKind::Compaction { first_kept, .. } | EntryKind::Reset { first_kept } => {
                row.detail = self.mentioned(first_kept.as_ref());
            }
            EntryKind::Silent(Note::Label { target, label }) => self.set_label(target, label.as_ref(), at, row),
            EntryKind::Silent(Note::Name(name)) => self.name.clone_from(name),
            EntryKind::Silent(Note::Model { provider, model }) => row.detail = self.model(provider, model),
            EntryKind::Silent(Note::Thinking(level)) => row.detail = self.words.intern(level),
            EntryKind::Silent(Note::Custom { .. } | Note::Withheld) | EntryKind::Leaf { .. } | EntryKind::Opaque => {}
        }
    }

    fn set_label(&mut self, target: &str, label: Option<&Arc<str>>, at: Position, row: &Row) {
        let target = self.intern(target);
        match label {
            Some(text) => {
                let since = self.labels.get(&target).map_or(at, |label| label.since);
                self.labels.insert(target, Label { text: Arc::clone(text), timestamp_ms: row.timestamp_ms, since });
            }
            None => {
                self.labels.remove(&target);
            }
        }
    }

    fn row(&self, at: Position) -> Option<&Row> {
        self.rows.get(at.0 as usize)
    }

    fn has(&self, at: Position, flag: u8) -> bool {
        self.row(at).is_some_and(|row| row.flags & flag != 0)
    }

    fn latest(&self, name: Name) -> Option<Position> {
        self.latest.get(name as usize).copied().filter(|at| *at != NONE).map(Position)
    }

    /// One step on the way from an id to the node that it stands for.
    fn looked_through(&self, name: Name) -> Name {
        let row = self.latest(name).and_then(|at| self.row(at));
        row.filter(|row| !row.kind.is_node()).map_or(name, |row| row.link)
    }

    fn node(&self, name: Name) -> Option<Position> {
        let mut name = name;
        for _ in 0..HOPS_MAX {
            let at = self.latest(name)?;
            if self.kind(at).is_node() {
                return Some(at);
            }
            name = self.row(at)?.link;
        }
        None
    }
}

#[cfg(test)]
mod tests;
