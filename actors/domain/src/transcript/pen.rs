//! What is appended to change a tree: labels, names, branches, boundaries. Nothing is ever rewritten: to leave a branch
//! is to write where the conversation goes on.

use std::sync::Arc;

use serde_json::Value;

use super::write::{
    CompactionLine, CustomMessageLine, branch_summary_line, compaction_line, custom_message_line, label_line,
    model_change_line, reset_line, session_info_line, thinking_level_change_line,
};
use super::{Entry, EntryKind, Head, Note, Position, TreeIndex, custom_line, leaf_line};
use crate::chat::Content;
use crate::ids::EntryId;
use crate::time::later;

/// How often an id that is in use already is drawn anew.
const DRAWS_MAX: usize = 100;

/// A line that is to be appended.
#[derive(Debug, Clone, PartialEq)]
pub struct Addition {
    /// The line, without its end.
    pub line: String,
    /// The entry that it stands for, as [`super::Transcript::push`] takes it.
    pub entry: Entry,
}

/// Why a tree is not changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum EditError {
    /// No entry has the id that was given.
    #[error("no entry of this session has that id")]
    UnknownEntry,
    /// A boundary can keep only what the conversation has before it.
    #[error("the entry that is to be the first one kept is not part of the conversation")]
    NotOnPath,
    /// There is nothing to make a file of.
    #[error("the session has no entry")]
    Empty,
}

/// Where ids come from.
pub type NewIds<'a> = &'a mut dyn FnMut() -> EntryId;

/// What a compaction says.
#[derive(Debug, Clone, Copy, Default)]
pub struct CompactionFields<'a> {
    /// In place of what was before.
    pub summary: &'a str,
    /// The first entry that the model is still shown; `None` for none.
    pub first_kept: Option<&'a str>,
    /// How much there was, in tokens.
    pub tokens_before: u64,
    /// How much is left, in tokens.
    pub tokens_after: Option<u64>,
    /// More, for programs.
    pub details: Option<&'a Value>,
}

/// Writes behind what a tree has. What a call gives has to be in the tree before the next one.
pub struct Pen<'a> {
    tree: &'a TreeIndex,
    ids: NewIds<'a>,
    now_ms: u64,
}

// === impl Pen ===

impl<'a> Pen<'a> {
    /// Behind all that `tree` has, at the time `now_ms` or that of its last line, whichever is later.
    pub fn new(tree: &'a TreeIndex, ids: NewIds<'a>, now_ms: u64) -> Self {
        Self { tree, ids, now_ms }
    }

    /// Gives an entry a name, in place of the one that it has; an empty name, or none, takes it away.
    pub fn label(&mut self, target: &str, label: Option<&str>) -> Result<Addition, EditError> {
        self.known(target)?;
        let label = label.filter(|label| !label.is_empty());
        let note = Note::Label { target: target.into(), label: label.map(Arc::from) };
        Ok(self.write(EntryKind::Silent(note), |head| label_line(head, target, label)))
    }

    /// Gives the session a name; an empty one takes it away.
    pub fn rename(&mut self, name: &str) -> Addition {
        let name = name.trim();
        let note = Note::Name(Some(name).filter(|name| !name.is_empty()).map(Arc::from));
        self.write(EntryKind::Silent(note), |head| session_info_line(head, name))
    }

    /// Another model from here on.
    pub fn model(&mut self, provider: &str, model: &str) -> Addition {
        let note = Note::Model { provider: provider.into(), model: model.into() };
        self.write(EntryKind::Silent(note), |head| model_change_line(head, provider, model))
    }

    /// Another level of thinking from here on.
    pub fn thinking_level(&mut self, level: &str) -> Addition {
        self.write(EntryKind::Silent(Note::Thinking(level.into())), |head| thinking_level_change_line(head, level))
    }

    /// Data that the model is never shown.
    pub fn custom(&mut self, custom_type: &str, data: Option<&Value>) -> Addition {
        let data: Option<Arc<str>> = data.map(|data| data.to_string().into());
        let note = Note::Custom { kind: custom_type.into(), data: data.clone() };
        self.write(EntryKind::Silent(note), |head| custom_line(head, custom_type, data.as_deref()))
    }

    /// A message of a program, which the model takes for a user's. People are shown it only with `display`.
    pub fn custom_message(
        &mut self,
        custom_type: &str,
        content: &[Content],
        display: bool,
        details: Option<&Value>,
    ) -> Addition {
        let message = CustomMessageLine { custom_type, content, display, details };
        self.write(EntryKind::Shown(content.into()), |head| custom_message_line(head, &message))
    }

    /// The conversation goes on from `target`, or before its first entry. What is after it stays, as a branch.
    /// Gives nothing if that is where it stands.
    pub fn branch(&mut self, target: Option<&str>) -> Result<Option<Addition>, EditError> {
        let target = self.resolved(target)?;
        let stands = self.tree.leaf() == target.as_deref() && self.tree.append_parent() == target.as_deref();
        Ok((!stands).then(|| self.move_to(target)))
    }

    /// Branches, and tells the model what happened in the branch that is left.
    pub fn branch_with_summary(
        &mut self,
        target: Option<&str>,
        summary: &str,
        details: Option<&Value>,
    ) -> Result<Vec<Addition>, EditError> {
        let target = self.resolved(target)?;
        let mut additions = Vec::new();
        // A line that names the cursor would follow the leaf, where these two are not the same.
        if target.is_some() && self.tree.append_parent() == target.as_deref() && self.tree.leaf() != target.as_deref() {
            additions.push(self.move_to(target.clone()));
        }
        let head = Head { parent: target, ..self.head() };
        let line = branch_summary_line(&head, head.parent.as_deref(), summary, details);
        additions.push(Addition { line, entry: Entry::new(head, EntryKind::BranchSummary(summary.to_owned())) });
        Ok(additions)
    }

    /// From here on, the model is shown a summary in place of what comes before the first entry that is kept.
    pub fn compact(&mut self, compaction: &CompactionFields<'_>) -> Result<Addition, EditError> {
        let kept = self.on_path(compaction.first_kept)?;
        let head = self.head();
        let first_kept = kept.unwrap_or_else(|| Arc::clone(&head.id));
        let line = CompactionLine {
            summary: compaction.summary,
            first_kept_entry_id: &first_kept,
            tokens_before: compaction.tokens_before,
            tokens_after: compaction.tokens_after,
            details: compaction.details,
        };
        let line = compaction_line(&head, &line);
        let kind = EntryKind::Compaction { summary: compaction.summary.to_owned(), first_kept: Some(first_kept) };
        Ok(Addition { line, entry: Entry::new(head, kind) })
    }

    /// From here on, the model is shown nothing of what comes before the first entry that is kept. Reasons that other
    /// programs know: `new`, `reset`, `idle`, `daily`, `cron-stale`.
    pub fn reset(&mut self, reason: &str, first_kept: Option<&str>) -> Result<Addition, EditError> {
        let first_kept = self.on_path(first_kept)?;
        let kind = EntryKind::Reset { first_kept: first_kept.clone() };
        Ok(self.write(kind, |head| reset_line(head, reason, first_kept.as_deref())))
    }

    fn move_to(&mut self, target: Option<Arc<str>>) -> Addition {
        let kind = EntryKind::Leaf { target: target.clone(), append_parent: None, valid: true };
        self.write(kind, |head| leaf_line(head, target.as_deref(), None))
    }

    fn write(&mut self, kind: EntryKind, line: impl FnOnce(&Head) -> String) -> Addition {
        let head = self.head();
        Addition { line: line(&head), entry: Entry::new(head, kind) }
    }

    fn head(&mut self) -> Head {
        let timestamp_ms = later(self.tree.last_ms(), self.now_ms);
        Head { id: unused(self.tree, self.ids), parent: self.tree.append_parent().map(Arc::from), timestamp_ms }
    }

    fn known(&self, id: &str) -> Result<Position, EditError> {
        let known = self.tree.position(id).filter(|at| self.tree.kind(*at).is_node());
        known.ok_or(EditError::UnknownEntry)
    }

    /// The node that an id stands for.
    fn resolved(&self, id: Option<&str>) -> Result<Option<Arc<str>>, EditError> {
        let Some(id) = id else { return Ok(None) };
        let node = self.tree.node_of(id).ok_or(EditError::UnknownEntry)?;
        Ok(Some(self.tree.id(node).into()))
    }

    fn on_path(&self, id: Option<&str>) -> Result<Option<Arc<str>>, EditError> {
        let Some(id) = id else { return Ok(None) };
        let at = self.known(id)?;
        if self.tree.path().contains(&at) { Ok(Some(id.into())) } else { Err(EditError::NotOnPath) }
    }
}

/// An id that no line of `tree` has or names.
pub(super) fn unused(tree: &TreeIndex, ids: NewIds<'_>) -> Arc<str> {
    let mut id: Arc<str> = ids().to_string().into();
    for _ in 0..DRAWS_MAX {
        if !tree.mentions(&id) {
            break;
        }
        id = ids().to_string().into();
    }
    id
}

#[cfg(test)]
mod tests;
