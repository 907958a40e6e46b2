//! The tokens of a tree: of all runs that one turn sends off.
//!
//! A run is given its part when it begins, and keeps it to its end, whatever happens to this process; then what it has not
//! used is for those that come after it. So all of them together never use more than there is, but for the last call of each.

use std::sync::Arc;

use domain::chat::Usage;
use domain::run::RunSpec;
use protocol::subagent::NotSpawned;

use super::{Machine, OPEN_OF_SESSION_MAX, Run};

/// All that was read and written.
pub(super) fn tokens(usage: Usage) -> u64 {
    usage.input_tokens.saturating_add(usage.output_tokens)
}

// === impl Machine ===

impl Machine {
    /// The same with its part of the tokens: what it asks for, else as much as is left for each that may still come.
    pub(super) fn allotted(&self, spec: &Arc<RunSpec>) -> Result<Arc<RunSpec>, NotSpawned> {
        if self.tree_tokens == 0 {
            return Ok(Arc::clone(spec));
        }
        let of_turn = |run: &&Run| run.spec.parent == spec.parent && run.spec.turn == spec.turn;
        let tree = self.runs.values().filter(of_turn);
        let taken = tree.clone().map(Run::taken).fold(0, u64::saturating_add);
        let open = tree.filter(|run| run.works()).count();
        let left = self.tree_tokens.saturating_sub(taken);
        let slots = OPEN_OF_SESSION_MAX.saturating_sub(open).max(1);
        let share = left / u64::try_from(slots).unwrap_or(u64::MAX);
        let budget_tokens = if spec.budget_tokens == 0 { share } else { spec.budget_tokens };
        if budget_tokens == 0 || budget_tokens > left {
            return Err(NotSpawned::OverTree { left, of: self.tree_tokens });
        }
        Ok(Arc::new(RunSpec { budget_tokens, ..RunSpec::clone(spec) }))
    }
}

// === impl Run ===

impl Run {
    /// What it has left of its own tokens; nothing where it has no bound.
    pub(super) fn left(&self) -> u64 {
        self.spec.budget_tokens.saturating_sub(self.used)
    }

    /// What it has used, and may still use.
    fn taken(&self) -> u64 {
        if self.works() { self.used.saturating_add(self.left()) } else { self.used }
    }
}
