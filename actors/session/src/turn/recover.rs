//! What becomes of a turn that was cut: again, or given up.

use std::collections::HashSet;

use domain::chat::{Message, ToolCall, Usage};
use domain::ids::{ToolCallId, TurnId};
use domain::queue::QueueSet;
use protocol::journal::{CutTurn, LeftBy, Started};
use supervision::planted::{Bug, planted};

use super::Rules;

/// From how many process deaths on a turn is run alone.
pub const SUSPECT_DEATHS: u32 = 2;

/// A cut turn, as journal and transcript have it.
#[derive(Debug, Clone)]
pub struct Cut {
    /// The journal's side.
    pub turn: CutTurn,
    /// Whether a crash that happened while this turn was worked on is still to be counted.
    pub blamed: bool,
    /// Whether it is run alone now, should it be a suspect.
    pub alone: bool,
    /// The transcript's side.
    pub written: Written,
}

/// What journal and transcript say about the turns of a session that is loaded.
#[derive(Debug, Default)]
pub struct Standing {
    /// The turn that had begun.
    pub cut: Option<Cut>,
    /// Turns whose end stands in the transcript.
    pub answered: HashSet<TurnId>,
    /// What the session sets of its queue's rules.
    pub queue: QueueSet,
    /// What messages said that were dropped, and that no turn was told of.
    pub dropped: Vec<String>,
}

/// How far a turn stands in the transcript.
#[derive(Debug, Clone, Default)]
pub struct Written {
    /// Whether the user's message is there.
    pub user: bool,
    /// What follows it.
    pub messages: Vec<Message>,
    /// How often it took up other messages between its calls.
    pub steered: u32,
}

/// The decision over a cut turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    /// It runs again under this start.
    Again(Started),
    /// It is given up; the counts are those that condemned it.
    GiveUp(Started),
}

/// Where a turn goes on.
#[derive(Debug, Default)]
pub struct Progress {
    /// Model rounds that are complete.
    pub rounds: u32,
    /// Tokens used so far.
    pub usage: Usage,
    /// Calls of the last round.
    pub calls: Vec<ToolCall>,
    /// Those of them that have a result.
    pub results: Vec<ToolCallId>,
}

/// Counts the cut and decides.
pub fn decide(cut: &Cut, rules: &Rules) -> Decision {
    let mut next = cut.turn.started;
    if planted(Bug::ForgottenCrashes) && cut.turn.left_by != LeftBy::Crash {
        next.crashes = 0;
    }
    next.crashes += u32::from(cut.blamed);
    match cut.turn.left_by {
        LeftBy::Death => {
            next.deaths += 1;
            next.crashes += u32::from(next.alone);
        }
        LeftBy::Crash | LeftBy::Interrupted => {}
    }
    if next.crashes >= rules.poison_attempts || next.deaths >= rules.process_deaths {
        return Decision::GiveUp(next);
    }
    next.attempt = next.attempt.next();
    next.alone = cut.alone && next.deaths >= SUSPECT_DEATHS;
    Decision::Again(next)
}

/// Of the crashes that condemned a turn, those that its session or task had itself. The others are deaths of the process
/// that were counted against it, as it ran alone: from the one on that made it a suspect.
pub fn own_crashes(counts: &Started) -> u32 {
    counts.crashes.saturating_sub(counts.deaths.saturating_sub(SUSPECT_DEATHS))
}

/// Reads a turn's progress from its messages.
pub fn progress(written: &Written) -> Progress {
    let mut progress = Progress::default();
    for message in &written.messages {
        match message {
            Message::Assistant(assistant) => {
                progress.rounds += 1;
                progress.usage = progress.usage.plus(assistant.usage);
                progress.calls.clone_from(&assistant.calls);
                progress.results.clear();
            }
            Message::ToolResult(result) => progress.results.push(result.call.clone()),
            Message::User(_) => {}
        }
    }
    progress
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use domain::ids::{Attempt, TurnId};
    use uuid::Uuid;

    use super::*;

    fn rules() -> Rules {
        Rules {
            max_tool_iterations: 3,
            max_tool_result_chars: 100,
            poison_attempts: 3,
            process_deaths: 20,
            stall: Duration::from_secs(300),
            tools: [].into(),
            provider: "p".into(),
            model: "m".into(),
            push_limits: Default::default(),
            queue: Default::default(),
        }
    }

    fn cut(started: Started, left_by: LeftBy, blamed: bool, alone: bool) -> Cut {
        let turn = CutTurn { started, left_by, blamed: false, tools_started: Vec::new() };
        Cut { turn, blamed, alone, written: Written::default() }
    }

    /// Lives through `left_by` until the turn is given up; how many cuts that takes.
    fn cuts_until_given_up(left_by: LeftBy, blamed: bool, alone: bool) -> Option<u32> {
        let turn = TurnId(Uuid::nil());
        let mut started = Started { turn, attempt: Attempt::FIRST, crashes: 0, deaths: 0, alone: false };
        for count in 1..=100 {
            match decide(&cut(started, left_by, blamed, alone), &rules()) {
                Decision::Again(next) => {
                    assert_eq!(next.attempt, started.attempt.next());
                    started = next;
                }
                Decision::GiveUp(_) => return Some(count),
            }
        }
        None
    }

    #[test]
    fn crashes_and_deaths_are_told_apart() {
        for (crashes, deaths, own) in [(3, 0, 3), (3, 5, 0), (3, 3, 2), (3, 2, 3), (0, 20, 0), (1, 1, 1)] {
            let turn = TurnId(Uuid::nil());
            let counts = Started { turn, attempt: Attempt::FIRST, crashes, deaths, alone: true };
            assert_eq!(own_crashes(&counts), own, "{crashes} {deaths}");
        }
    }

    #[test]
    fn only_its_own_crashes_and_lonely_deaths_condemn_a_turn() {
        assert_eq!(cuts_until_given_up(LeftBy::Crash, true, false), Some(3));
        assert_eq!(cuts_until_given_up(LeftBy::Crash, false, false), None);
        assert_eq!(cuts_until_given_up(LeftBy::Interrupted, false, true), None);
        // Two deaths make it a suspect; three more, alone, condemn it.
        assert_eq!(cuts_until_given_up(LeftBy::Death, false, true), Some(5));
        // In company only the hard limit does.
        assert_eq!(cuts_until_given_up(LeftBy::Death, false, false), Some(20));
        // A death before the crash before it was counted hides nothing.
        assert_eq!(cuts_until_given_up(LeftBy::Death, true, false), Some(3));
    }
}
