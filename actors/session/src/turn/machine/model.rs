//! The rounds with the model: permit, answer, failure.

use domain::chat::AssistantMessage;
use domain::history::Trim;
use domain::prompt::{Nudge, goal_rests_notice};
use protocol::provider::Delta;
use protocol::turn::TurnProgress;

use super::Machine;
use crate::inbox::Cancelled;
use crate::turn::calls::{self, Calls};
use crate::turn::pursuit::Onward;
use crate::turn::runner::{Next, Runner, Terms};
use crate::turn::running::{Phase, Why};
use crate::turn::{Call, Effect, Now, Record, Tools};

// === impl Machine ===

impl Machine {
    pub(super) fn ask_permit(&mut self, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut() else { return };
        if turn.is_spent() {
            turn.stop = Some(Why::Cancelled(Cancelled::Spent));
            self.wind_up(out);
            return;
        }
        turn.round += 1;
        turn.boundary = false;
        turn.phase = Phase::WaitingForPermit;
        turn.partial = String::new();
        out.push(Effect::AskPermit(turn.round));
    }

    pub(super) fn permitted(&mut self, now: Now, out: &mut Vec<Effect>) {
        let rules = &self.rules;
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::WaitingForPermit) else {
            out.push(Effect::Stale);
            return;
        };
        turn.phase = Phase::Thinking;
        turn.progress = now.mono;
        let last = turn.round > turn.rounds(rules);
        let circles = turn.guard.withholds_tools().then_some(Nudge::Words);
        let nudge = turn
            .runner
            .take_nudge()
            .or(circles)
            .or(turn.pursuit.take_nudge())
            .filter(|nudge| !last || matches!(nudge, Nudge::GoOn { .. }));
        turn.withheld = last || nudge == Some(Nudge::Words) || turn.guard.withholds_tools();
        turn.told.clone_from(&nudge);
        let tools = if turn.withheld { Tools::Withheld } else { Tools::Offered };
        let trim = if turn.overflowed { Trim::Hard } else { Trim::Usual };
        out.push(Effect::CallModel(Call { round: turn.round, tools, nudge, trim }));
    }

    pub(super) fn delta(&mut self, delta: Delta, now: Now, out: &mut Vec<Effect>) {
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::Thinking) else {
            out.push(Effect::Stale);
            return;
        };
        turn.progress = now.mono;
        let what = match delta {
            Delta::Text(text) => {
                turn.partial.push_str(&text);
                TurnProgress::Delta(text)
            }
            Delta::Reasoning(text) => TurnProgress::Reasoning(text),
        };
        out.push(Effect::Emit(turn.show(what)));
    }

    pub(super) fn completed(&mut self, mut message: Box<AssistantMessage>, now: Now, out: &mut Vec<Effect>) {
        let (rules, others_wait) = (&self.rules, self.waiting() > 0);
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| turn.phase == Phase::Thinking) else {
            out.push(Effect::Stale);
            return;
        };
        turn.progress = now.mono;
        turn.usage = turn.usage.plus(message.usage);
        let rounds = turn.rounds(rules);
        let used_up = (turn.round > rounds).then_some(rounds);
        turn.used_up = used_up;
        let blank = message.text.trim().is_empty();
        let terms = Terms { withheld: turn.withheld, used_up, reader: turn.body.reader() };
        let next = turn.runner.judge(&mut message, terms);
        // Whoever goes round in circles, has nothing to say or comes to no end is sent no further.
        let says_something = (!blank || used_up.is_some()) && !message.is_cut();
        let may_go_on = next == Next::Answer && says_something && !turn.guard.withholds_tools();
        let onward = if may_go_on { turn.pursuit.judge(&message, others_wait) } else { Onward::No };
        if onward == Onward::Rests {
            message.text.push_str(&goal_rests_notice());
        }
        let text = message.text.as_str().into();
        let (more, merge) = (next != Next::Answer || onward == Onward::Yes, next == Next::Part);
        out.push(Effect::Emit(turn.show(TurnProgress::StreamEnd { text, more, merge })));
        let batch = match next {
            Next::Calls => {
                calls::make_ids_unique(&mut message);
                turn.calls = Calls::new(&message.calls);
                let mut batch = turn.batch();
                batch.records.push(Record::Assistant(message, None));
                turn.begin_calls(&rules.tools, &mut batch);
                batch
            }
            Next::Answer if onward != Onward::Yes => {
                let mut batch = turn.answer(message);
                if let Onward::Ends(goal) = onward {
                    batch.records.push(Record::Goal(goal));
                }
                batch
            }
            Next::Answer | Next::Part => {
                if next == Next::Answer {
                    // What comes next is an answer of its own.
                    turn.runner = Runner::default();
                }
                let mut batch = turn.batch();
                batch.records.push(Record::Assistant(message, None));
                batch
            }
            Next::Again => {
                self.ask_permit(out);
                return;
            }
        };
        self.save(batch, out);
    }

    pub(super) fn failed(&mut self, why: &'static str, text: String, now: Now, out: &mut Vec<Effect>) {
        let calling = |phase| matches!(phase, Phase::Thinking | Phase::WaitingForPermit);
        let Some(turn) = self.turn.as_deref_mut().filter(|turn| calling(turn.phase)) else {
            out.push(Effect::Stale);
            return;
        };
        turn.progress = now.mono;
        let batch = turn.failure(why, text, &self.rules);
        self.save(batch, out);
    }
}
