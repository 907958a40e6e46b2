//! Summaries that the model did not give: how often in a row, and when a part is archived without one.
//!
//! Each failure is an entry of the conversation, so that it is counted across restarts. A compaction, or a new
//! conversation, ends the row.

use serde_json::{Value, json};

use crate::transcript::{Entry, EntryKind};

/// The `customType` of the entry of a failure; its data say why: `{"why":"length"}`.
pub const NOTE: &str = "greenroom.summary_failed";
/// With so many failures in a row, the part is archived as it is.
pub const FAILURES_MAX: u8 = 3;

/// Failures in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Failures(u8);

// === impl Failures ===

impl Failures {
    /// Goes on with the next entry of the file.
    pub fn see(&mut self, entry: &Entry) {
        match &entry.kind {
            EntryKind::Compaction { .. } | EntryKind::Reset { .. } => self.0 = 0,
            EntryKind::Silent(_) if entry.custom(NOTE).is_some() => self.0 = self.0.saturating_add(1),
            EntryKind::User(_)
            | EntryKind::Assistant(_)
            | EntryKind::ToolResult(_)
            | EntryKind::Shown(_)
            | EntryKind::BranchSummary(_)
            | EntryKind::Silent(_)
            | EntryKind::Leaf { .. }
            | EntryKind::Opaque => {}
        }
    }

    /// Whether one more is the last that is waited for.
    pub fn is_next_last(self) -> bool {
        self.0.saturating_add(1) >= FAILURES_MAX
    }
}

/// Data of a [`NOTE`].
pub fn note(why: &str) -> Value {
    json!({ "why": why })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::chat::StopReason;
    use crate::history::tests::{assistant, compaction, user};
    use crate::transcript::{Head, Note};

    fn entry(kind: EntryKind) -> Entry {
        Entry::new(Head { id: "1".into(), parent: None, timestamp_ms: 0 }, kind)
    }

    fn failure() -> Entry {
        entry(EntryKind::Silent(Note::Custom { kind: NOTE.into(), data: Some(note("length").to_string().into()) }))
    }

    fn after(entries: &[Entry]) -> Failures {
        let mut failures = Failures::default();
        entries.iter().for_each(|entry| failures.see(entry));
        failures
    }

    #[track_caller]
    fn check(entries: &[Entry], is_next_last: bool) {
        assert_eq!(after(entries).is_next_last(), is_next_last, "{entries:?}");
    }

    #[test]
    fn the_third_failure_in_a_row_is_the_last() {
        let said = || [entry(user("hi")), entry(assistant("hello", StopReason::Stop, &[]))];
        let [one, two] = said();
        check(&[], false);
        check(&[failure()], false);
        check(&[failure(), failure()], true);
        check(&[failure(), one, failure(), two], true);
        check(&[failure(), failure(), entry(compaction("s", None))], false);
        check(&[failure(), failure(), entry(EntryKind::Reset { first_kept: None })], false);
        let other = entry(EntryKind::Silent(Note::Custom { kind: "greenroom.goal".into(), data: None }));
        check(&[failure(), other], false);
    }

    proptest! {
        /// Whatever the model does, no part waits for more than that many tries, and none is given up earlier.
        #[test]
        fn a_part_is_given_up_with_the_third_failure_and_not_before(answers in prop::collection::vec(any::<bool>(), 0..40)) {
            let (mut failures, mut row) = (Failures::default(), 0);
            for answered in answers {
                let gives_up = !answered && failures.is_next_last();
                row = if answered { 0 } else { row + 1 };
                prop_assert_eq!(gives_up, row == FAILURES_MAX);
                let ends = answered || gives_up;
                failures.see(&if ends { entry(compaction("s", None)) } else { failure() });
                row = if ends { 0 } else { row };
            }
        }
    }
}
