//! Trees and lists for people.

use std::sync::Arc;

use super::{Entry, EntryKind, Note, Position, Transcript, TreeIndex};
use crate::chat::plain_text;
use crate::text::ellipsis;

/// Characters of a preview.
pub const PREVIEW_CHARS_MAX: usize = 80;

/// Characters of an id that are shown at least; more when others begin so.
const ID_CHARS: usize = 8;

/// One node, as a tree is drawn of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TreeNode {
    /// Where it stands in its file.
    pub at: Position,
    /// Its id.
    pub id: String,
    /// The node that it follows; `None` for a root or an orphan.
    pub parent: Option<String>,
    /// Its `type`.
    pub kind: &'static str,
    /// The role of a message.
    pub role: Option<&'static str>,
    /// The first words of what it says.
    pub preview: String,
    /// When it was written; 0 when the file does not say.
    pub timestamp_ms: u64,
    /// Its name.
    pub label: Option<Arc<str>>,
    /// When it got this name.
    pub label_ms: Option<u64>,
    /// How many nodes are before it on the way from its root.
    pub depth: usize,
    /// The nodes that follow it, oldest first.
    pub children: Vec<String>,
    /// Whether it belongs to the conversation as it stands.
    pub on_path: bool,
    /// Whether it hangs off the conversation without being part of it.
    pub side: bool,
}

/// All nodes, each behind the one that it follows, its branches oldest first. `preview` gives the first words of one.
///
/// It is a list and not nested, because a conversation is as deep as it is long. In a cycle, the entry that comes first
/// in the file is taken for the root.
pub fn tree(tree: &TreeIndex, mut preview: impl FnMut(Position) -> String) -> Vec<TreeNode> {
    let (children, roots) = children_of(tree);
    let mut on_path = vec![false; tree.len()];
    for at in tree.path() {
        mark(&mut on_path, at);
    }
    let mut seen = vec![false; tree.len()];
    let mut nodes = Vec::new();
    let in_cycles = tree.positions().filter(|at| tree.kind(*at).is_node());
    for root in roots.into_iter().chain(in_cycles) {
        let mut open = vec![(root, 0)];
        while let Some((at, depth)) = open.pop() {
            if mark(&mut seen, at) {
                continue;
            }
            let follow = children.get(at.0 as usize).map_or(&[][..], Vec::as_slice);
            open.extend(follow.iter().rev().map(|child| (*child, depth + 1)));
            let label = tree.label(tree.id(at)).filter(|_| tree.position(tree.id(at)) == Some(at));
            nodes.push(TreeNode {
                at,
                id: tree.id(at).to_owned(),
                // One of those that follow each other in a circle has to be the first.
                parent: tree.parent(at).filter(|_| depth > 0).map(|parent| tree.id(parent).to_owned()),
                kind: tree.kind(at).name(),
                role: tree.kind(at).role(),
                preview: preview(at),
                timestamp_ms: tree.timestamp_ms(at),
                label: label.map(|label| Arc::clone(&label.text)),
                label_ms: label.map(|label| label.timestamp_ms),
                depth,
                children: follow.iter().map(|child| tree.id(*child).to_owned()).collect(),
                on_path: on_path.get(at.0 as usize).copied().unwrap_or(false),
                side: tree.is_side(at),
            });
        }
    }
    nodes
}

/// How many characters of their ids tell entries apart that are shown together: at least `ID_CHARS`.
pub fn id_chars<'a>(ids: impl Iterator<Item = &'a str>) -> usize {
    let mut ids: Vec<&str> = ids.collect();
    ids.sort_unstable();
    ids.dedup();
    let common = |(one, other): (&&str, &&str)| one.chars().zip(other.chars()).take_while(|(a, b)| a == b).count();
    let longest = ids.iter().zip(ids.iter().skip(1)).map(common).max().unwrap_or(0);
    ID_CHARS.max(longest + 1)
}

/// The mark of an entry: part of the conversation as it stands, of another branch, or hanging off it.
pub fn mark_of(on_path: bool, side: bool) -> char {
    match (on_path, side) {
        (true, _) => '●',
        (false, true) => '·',
        (false, false) => '○',
    }
}

/// The tree of a transcript whose contents are at hand.
pub fn tree_of(transcript: &Transcript) -> Vec<TreeNode> {
    tree(transcript.tree(), |at| transcript.entries().get(at.0 as usize).map(preview).unwrap_or_default())
}

/// The first words of what an entry says, on one line.
pub fn preview(entry: &Entry) -> String {
    let said = match &entry.kind {
        EntryKind::User(user) => plain_text(&user.content),
        EntryKind::Assistant(assistant) if assistant.message.text.trim().is_empty() => {
            let names: Vec<&str> = assistant.message.calls.iter().map(|call| call.name.as_str()).collect();
            names.join(", ")
        }
        EntryKind::Assistant(assistant) => assistant.message.text.clone(),
        EntryKind::ToolResult(result) => plain_text(&result.result.content),
        EntryKind::Shown(content) => plain_text(content),
        EntryKind::Compaction { summary, .. } | EntryKind::BranchSummary(summary) => summary.clone(),
        EntryKind::Silent(Note::Label { label, .. }) => label.as_deref().unwrap_or_default().to_owned(),
        EntryKind::Silent(Note::Name(name)) => name.as_deref().unwrap_or_default().to_owned(),
        EntryKind::Silent(Note::Model { provider, model }) => format!("{provider}/{model}"),
        EntryKind::Silent(Note::Thinking(level)) => level.as_ref().to_owned(),
        EntryKind::Silent(Note::Custom { kind, .. }) => kind.as_ref().to_owned(),
        EntryKind::Silent(Note::Withheld) | EntryKind::Reset { .. } | EntryKind::Leaf { .. } | EntryKind::Opaque => {
            String::new()
        }
    };
    let line = said.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("");
    ellipsis(line, PREVIEW_CHARS_MAX).into_owned()
}

/// Whether it would stand below the line that counts of those with its id.
fn is_below_itself(tree: &TreeIndex, at: Position) -> bool {
    let Some(other) = tree.position(tree.id(at)).filter(|other| *other != at) else { return false };
    // A circle has no more entries than the file.
    let mut above = std::iter::successors(tree.parent(at), |above| tree.parent(*above)).take(tree.len());
    above.any(|above| above == other)
}

/// For each position its children, and the roots. Children are in the order of [`TreeIndex::children`], roots in that
/// of the file.
fn children_of(tree: &TreeIndex) -> (Vec<Vec<Position>>, Vec<Position>) {
    let mut children: Vec<Vec<Position>> = vec![Vec::new(); tree.len()];
    let mut roots = Vec::new();
    for at in tree.positions().filter(|at| tree.kind(*at).is_node()) {
        let parent = tree.parent(at).filter(|_| !is_below_itself(tree, at));
        match parent.and_then(|parent| children.get_mut(parent.0 as usize)) {
            Some(siblings) => siblings.push(at),
            None => roots.push(at),
        }
    }
    for siblings in &mut children {
        siblings.sort_by_key(|at| (tree.timestamp_ms(*at), *at));
    }
    (children, roots)
}

/// Marks a position; whether it was marked before.
fn mark(marks: &mut [bool], at: Position) -> bool {
    marks.get_mut(at.0 as usize).is_none_or(|mark| std::mem::replace(mark, true))
}

#[cfg(test)]
mod tests;
