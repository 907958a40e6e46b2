//! What the model is told: the system prompt and the whole request of a model call; and what the user is told in place
//! of an answer.
//!
//! **Invariant:** no clock and no map order in here. The same parts give the same bytes, and a longer conversation only
//! adds to the end, which is what the prompt caches of providers live on. It does more only where it saves more: once
//! when a turn with pictures or failed calls has ended, when results of a long turn are left out, at a compaction.

mod front_matter;
mod hint;
mod notices;
mod nudge;
mod past;
mod request;
mod skills;
mod system;
mod templates;

pub use hint::Hint;
pub use notices::{
    CANCELLED_NOTICE, DROPPED_NOTICE, EMPTY_ANSWER, SPENT_NOTICE, TIMED_OUT_NOTICE, again, dead_letter_notice,
    failed_notice, goal_rests_notice, max_rounds_notice, stuck_notice, too_large_notice,
};
pub use nudge::Nudge;
pub use past::{Past, past_of, read_past};
pub use request::{Built, LAST_ROUND_INSTRUCTION, RequestParts, Round, chat_request};
pub use skills::{Need, Skill, read_skill};
pub use system::{
    AGENTS_FILE, BOOTSTRAP_CHARS_MAX, BOOTSTRAP_FILES, BootstrapFile, Frame, MEMORY_FILE, SystemParts, system_prompt,
};
pub use templates::{TEMPLATES, is_unmodified};

#[cfg(test)]
mod tests;
