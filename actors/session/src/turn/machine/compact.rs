//! Turns whose conversation has become too long: its beginning is summarised, and a `compaction` entry stands in its place.
//!
//! Before a model call when the request is over its budget, a few times at most; and once when the model itself says that
//! it is too long. Where the model gives no summary, the turn goes on with what fits; with the third such failure in a row,
//! or where less has to be sent now, the beginning is archived as it is. The user's line need not stand there yet: the entry then stands before it.

use domain::body::HistorySource;
use domain::text::short_tokens;
use protocol::edit::{FAILED_WORD, RAW_WORD};
use protocol::turn::TurnProgress;

use super::Machine;
use crate::turn::running::{Phase, Running};
use crate::turn::{Batch, Drawn, Effect, Now};

/// How often the beginning of a conversation is summarised in one turn.
pub const COMPACTIONS_MAX: u8 = 5;

// === impl Running ===

impl Running {
    /// Whether it has a conversation of which a part can be summarised.
    fn has_history(&self) -> bool {
        self.is_of_session() && (self.anew.is_none() || self.user_written)
    }

    /// Whether the conversation of its session is what it goes on with.
    pub fn is_of_session(&self) -> bool {
        self.body.history == HistorySource::Session && !self.body.ephemeral
    }

    fn compact(&mut self, out: &mut Vec<Effect>) {
        self.phase = Phase::Compacting;
        // The round has yet to come.
        self.round = self.round.saturating_sub(1);
        let told = self.told.take();
        self.runner.put_back(told);
        out.push(Effect::Compact);
    }
}

// === impl Machine ===

impl Machine {
    /// Whether the running turn has its conversation summarised before it calls the model with more than its budget.
    pub fn may_compact(&self) -> bool {
        self.turn.as_deref().is_some_and(|turn| turn.has_history() && turn.compactions > 0)
    }

    /// Whether only a shorter conversation helps the running turn: the model has refused it as too long.
    pub fn has_overflowed(&self) -> bool {
        self.turn.as_deref().is_some_and(|turn| turn.overflowed)
    }

    /// Says whether earlier messages were summarised outside of turns and nothing was said since: the next turn tells it.
    pub fn set_condensed(&mut self, condensed: bool) {
        self.condensed = condensed;
    }

    pub(super) fn over_budget(&mut self, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::Thinking) else {
            out.push(Effect::Stale);
            return;
        };
        turn.progress = now.mono;
        turn.compact(out);
    }

    pub(super) fn too_long(&mut self, text: String, now: Now, out: &mut Vec<Effect>) {
        let helps = |turn: &&mut Running| {
            turn.phase == Phase::Thinking && !turn.overflowed && turn.partial.is_empty() && turn.has_history()
        };
        let Some(turn) = self.turn.as_deref_mut().filter(helps) else {
            self.failed("context_too_long", text, now, out);
            return;
        };
        turn.progress = now.mono;
        turn.overflowed = true;
        turn.compact(out);
    }

    pub(super) fn compacted(&mut self, drawn: Option<Box<Drawn>>, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::Compacting) else {
            out.push(Effect::Stale);
            return;
        };
        turn.progress = now.mono;
        let Some(drawn) = drawn else {
            turn.compactions = 0;
            self.ask_permit(out);
            return;
        };
        // What could not be summarised once is not tried again in the same turn.
        let has_failed = drawn.word == RAW_WORD || drawn.word == FAILED_WORD;
        turn.compactions = if has_failed { 0 } else { turn.compactions.saturating_sub(1) };
        out.push(Effect::Emit(turn.show(TurnProgress::Notice(notice(&drawn).into()))));
        let batch = Batch { turn: Some(turn.id()), edit: Some(drawn), ..Batch::default() };
        self.save(batch, out);
    }
}

/// What people are told of it.
fn notice(drawn: &Drawn) -> String {
    let size = drawn.compacted.as_ref().map_or_else(String::new, |compacted| {
        format!(" (about {} → {} tokens)", short_tokens(compacted.tokens_before), short_tokens(compacted.tokens_after))
    });
    if drawn.word == FAILED_WORD {
        return "Earlier messages could not be summarised by the model this time. What of them does not fit is left out of \
                this turn's requests."
            .to_owned();
    }
    if drawn.word == RAW_WORD {
        return format!("Earlier messages could not be summarised by the model and were archived as they are{size}.");
    }
    format!("Earlier messages were summarised to make room{size}.")
}
