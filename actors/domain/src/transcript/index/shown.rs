//! What of a conversation the model is shown, and how it is asked.

use super::{Kind, NONE, Name, Position, SHOWN, TreeIndex};

/// Stands between the two parts of a model's name where both are one text.
const BETWEEN: char = '\0';

/// What the entries on a path set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Settings<'t> {
    /// Provider and model that were used or chosen last.
    pub model: Option<(&'t str, &'t str)>,
    /// The level of thinking that was chosen last.
    pub thinking: Option<&'t str>,
}

// === impl TreeIndex ===

impl TreeIndex {
    /// The entries on `path` whose contents make up what the model is shown, in their order: those that the latest
    /// boundary keeps, the first of them in any case; the boundary itself; those after it. Without a boundary, all.
    pub fn shown(&self, path: &[Position]) -> Vec<Position> {
        let is_shown = |at: &Position| self.has(*at, SHOWN);
        let Some(boundary) = path.iter().rposition(|at| self.kind(*at).is_boundary()) else {
            return path.iter().copied().filter(is_shown).collect();
        };
        let kept = self.kept_from(path, boundary).unwrap_or(boundary);
        let from_kept = path.iter().copied().enumerate().skip(kept);
        from_kept.filter(|(place, at)| *place == boundary || *place == kept || is_shown(at)).map(|(_, at)| at).collect()
    }

    /// The first entry before a compaction or a reset that it keeps, if it stands on the path to it. One that is an
    /// unknown record is replaced by the node that this hangs on, else by the first one that hangs on it.
    pub fn first_kept(&self, boundary: Position) -> Option<Position> {
        let path = self.path_to(boundary);
        let place = path.len().checked_sub(1)?;
        path.get(self.kept_from(&path, place)?).copied()
    }

    /// The id that a boundary names as the first one kept.
    pub(in crate::transcript) fn kept_id(&self, boundary: Position) -> Option<&str> {
        let row = self.row(boundary).filter(|row| row.kind.is_boundary() && row.detail != NONE)?;
        Some(self.ids.get(row.detail))
    }

    /// The model and the thinking level at the end of `path`.
    pub fn settings(&self, path: &[Position]) -> Settings<'_> {
        let word = |kinds: &[Kind]| {
            let rows = path.iter().rev().filter_map(|at| self.row(*at));
            let named = rows.filter(|row| row.detail != NONE && kinds.contains(&row.kind));
            named.map(|row| self.words.get(row.detail)).next()
        };
        Settings {
            model: word(&[Kind::Assistant, Kind::ModelChange]).and_then(|model| model.split_once(BETWEEN)),
            thinking: word(&[Kind::ThinkingLevelChange]),
        }
    }

    pub(super) fn model(&mut self, provider: &str, model: &str) -> Name {
        if provider.is_empty() && model.is_empty() {
            return NONE;
        }
        self.words.intern(&format!("{}{BETWEEN}{model}", provider.replace(BETWEEN, "")))
    }

    /// Where on `path` that begins what the boundary at `place` keeps.
    fn kept_from(&self, path: &[Position], place: usize) -> Option<usize> {
        let name = self.row(*path.get(place)?)?.detail;
        let before = path.get(..place)?;
        match self.node(name) {
            Some(node) => before.iter().position(|at| *at == node),
            None if self.latest(name).is_some() => before.iter().position(|at| self.hangs_on(*at, name)),
            None => None,
        }
    }

    /// Whether what a line names as its parent is the unknown record `name`, or hangs on it.
    fn hangs_on(&self, at: Position, name: Name) -> bool {
        let mut next = self.row(at).map_or(NONE, |row| row.raw);
        for _ in 0..super::HOPS_MAX {
            if next == name {
                return true;
            }
            match self.latest(next).and_then(|at| self.row(at)) {
                Some(row) if row.kind == Kind::Opaque => next = row.raw,
                Some(_) | None => return false,
            }
        }
        false
    }
}
