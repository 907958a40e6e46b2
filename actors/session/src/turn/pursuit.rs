//! The goal of a session, while a turn works on it: after each answer the model is sent on, until it says that the goal is
//! reached, or that it needs the person, or was sent on often enough. Pure.

use std::sync::Arc;

use domain::chat::{AssistantMessage, Message};
use domain::goal::{CONTINUATIONS_MAX, Goal, Status, declared};
use domain::prompt::Nudge;

use super::recover::Written;

/// How a turn stands to the session's goal.
#[derive(Debug, Default)]
pub struct Pursuit {
    goal: Option<Arc<Goal>>,
    /// The one that the turn sets, until the transcript has it.
    new: Option<Goal>,
    /// How often the model was sent on.
    continuations: u32,
    /// Whether it is to be told so with the next call.
    told: bool,
    /// Whether people are to be told of the goal, once what changed of it is durable.
    news: bool,
}

/// What follows from an answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Onward {
    /// Nothing: it is the answer.
    No,
    /// It is kept, and the model goes on.
    Yes,
    /// It is the answer, and the goal ended with it.
    Ends(Goal),
    /// It is the answer: the model was sent on often enough, and the goal waits for the next message.
    Rests,
}

// === impl Pursuit ===

impl Pursuit {
    /// The turn sets this goal.
    pub fn set(&mut self, objective: &str) {
        let goal = Goal::new(objective);
        self.goal = Some(Arc::new(goal.clone()));
        self.new = Some(goal);
    }

    /// The transcript has this goal, as far as it is known.
    pub fn follow(&mut self, goal: Option<&Arc<Goal>>) {
        if self.new.is_none() {
            self.goal = goal.cloned();
        }
    }

    /// The goal that is to be written down with the user's line.
    pub fn take_new(&mut self) -> Option<Goal> {
        let new = self.new.take();
        self.news |= new.is_some();
        new
    }

    /// It is not written down after all.
    pub fn give_back(&mut self) {
        self.news = false;
        if let Some(objective) = self.goal.as_ref().map(|goal| Arc::clone(&goal.objective)) {
            self.set(&objective);
        }
    }

    /// A person stops the work on it.
    pub fn pause(&mut self) {
        if let Some(paused) = self.active().map(|goal| goal.ended(Status::Paused, None)) {
            self.goal = Some(Arc::new(paused));
            self.news = true;
        }
    }

    /// What people are to be told of the goal; to be asked when all that was written of it is durable.
    pub fn take_news(&mut self) -> Option<Arc<Goal>> {
        let news = std::mem::take(&mut self.news);
        self.goal.clone().filter(|_| news)
    }

    /// The goal, while it is worked on.
    pub fn active(&self) -> Option<&Goal> {
        self.goal.as_deref().filter(|goal| goal.is_active())
    }

    /// Judges an answer of the model. While other messages wait it is sent no further: their turns go on with the goal.
    pub fn judge(&mut self, answer: &AssistantMessage, others_wait: bool) -> Onward {
        let Some(goal) = self.active() else { return Onward::No };
        if let Some((status, recap)) = declared(&answer.text) {
            let ended = goal.ended(status, recap);
            self.goal = Some(Arc::new(ended.clone()));
            self.news = true;
            return Onward::Ends(ended);
        }
        if others_wait {
            return Onward::No;
        }
        if self.continuations >= CONTINUATIONS_MAX {
            return Onward::Rests;
        }
        self.continuations += 1;
        self.told = true;
        Onward::Yes
    }

    /// Takes over what the transcript has of a turn that was cut.
    pub fn go_on_from(&mut self, written: &Written) {
        let sent_on = |message: &&Message| match message {
            Message::Assistant(answer) => answer.calls.is_empty() && !answer.is_cut(),
            Message::ToolResult(_) | Message::User(_) => false,
        };
        self.continuations = u32::try_from(written.messages.iter().filter(sent_on).count()).unwrap_or(u32::MAX);
        self.told = written.messages.last().as_ref().is_some_and(sent_on);
        self.new.take_if(|_| written.user);
    }

    /// How many rounds with tools the turn has, of which each continuation has `max`.
    pub fn rounds(&self, max: u32) -> u32 {
        max.saturating_mul(self.continuations.saturating_add(1))
    }

    /// What the next call tells the model.
    pub fn take_nudge(&mut self) -> Option<Nudge> {
        std::mem::take(&mut self.told).then_some(Nudge::Goal)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn said(text: &str) -> AssistantMessage {
        AssistantMessage::new(text, "p", "m")
    }

    #[test]
    fn without_a_goal_an_answer_is_the_answer() {
        let mut pursuit = Pursuit::default();
        pursuit.follow(None);
        assert_eq!(
            (pursuit.judge(&said("x"), false), pursuit.take_nudge(), pursuit.take_new()),
            (Onward::No, None, None)
        );
        pursuit.follow(Some(&Arc::new(Goal::new("a").ended(Status::Cancelled, None))));
        assert_eq!((pursuit.judge(&said("x"), false), pursuit.rounds(7)), (Onward::No, 7));
    }

    #[test]
    fn a_goal_that_the_turn_sets_goes_before_what_the_transcript_says_and_is_written_once() {
        let mut pursuit = Pursuit::default();
        pursuit.set("a site");
        pursuit.follow(Some(&Arc::new(Goal::new("old"))));
        assert_eq!(pursuit.take_new(), Some(Goal::new("a site")));
        assert_eq!(pursuit.take_new(), None);
        assert_eq!((pursuit.take_news(), pursuit.take_news()), (Some(Arc::new(Goal::new("a site"))), None));
        assert_eq!(pursuit.judge(&said("begun"), false), Onward::Yes);
        assert_eq!(pursuit.judge(&said("begun"), true), Onward::No, "others wait");
        assert_eq!((pursuit.take_nudge(), pursuit.take_nudge(), pursuit.rounds(7)), (Some(Nudge::Goal), None, 14));
        let ended = Goal::new("a site").ended(Status::Completed, Some("it is up".into()));
        assert_eq!(pursuit.judge(&said("GOAL: completed it is up"), false), Onward::Ends(ended.clone()));
        assert_eq!((pursuit.take_news(), pursuit.take_news()), (Some(Arc::new(ended)), None));
        assert_eq!(pursuit.judge(&said("more"), false), Onward::No, "it has ended");
    }

    proptest! {
        #[test]
        fn the_model_is_sent_on_so_often_and_no_more_also_over_cuts(cut_after in 0_usize..20) {
            let goal = Arc::new(Goal::new("never"));
            let (mut pursuit, mut written) = (Pursuit::default(), Written::default());
            for round in 0..20 {
                if round == cut_after {
                    pursuit = Pursuit::default();
                    pursuit.go_on_from(&written);
                    prop_assert_eq!(pursuit.take_nudge().is_some(), round > 0);
                }
                pursuit.follow(Some(&goal));
                let answer = said("not yet");
                match pursuit.judge(&answer, false) {
                    Onward::Yes => written.messages.push(Message::Assistant(Arc::new(answer))),
                    other @ (Onward::No | Onward::Rests | Onward::Ends(_)) => {
                        prop_assert_eq!((other, round), (Onward::Rests, 12));
                        return Ok(());
                    }
                }
            }
            prop_assert!(false, "it was sent on for ever");
        }
    }
}
