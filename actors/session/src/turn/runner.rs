//! What becomes of a model's answer that is none: asked again, with a word on why, and not for ever. Pure.

use domain::body::Reader;
use domain::chat::{AssistantMessage, Message};
use domain::prompt::{EMPTY_ANSWER, Nudge, max_rounds_notice};

use super::recover::Written;

/// How often an answer that was cut goes on.
const PARTS_MAX: u8 = 3;

/// What a turn has come through with its model since it last called a tool.
#[derive(Debug, Default)]
pub struct Runner {
    /// Answers without a word.
    blanks: u8,
    /// Answers that called nothing but tools without a name.
    nameless: u8,
    /// Parts of an answer that was cut, and what they say.
    parts: u8,
    begun: String,
    /// What the next call tells the model.
    nudge: Option<Nudge>,
}

/// What an answer may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Terms {
    /// Whether no tool could be called.
    pub withheld: bool,
    /// Rounds with tools, when those are used up.
    pub used_up: Option<u32>,
    /// Who reads the answer.
    pub reader: Reader,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Next {
    /// Its calls are run.
    Calls,
    /// It is the answer, or the last part of it.
    Answer,
    /// It is kept, and the answer goes on in the next round.
    Part,
    /// It is not kept, and the model is asked again.
    Again,
}

// === impl Runner ===

impl Runner {
    /// Judges a message: calls that are not obeyed are taken out, and an answer that is blank for good is replaced.
    pub fn judge(&mut self, message: &mut AssistantMessage, terms: Terms) -> Next {
        let called = !message.calls.is_empty();
        // Where tools are withheld, a model that calls one all the same is not obeyed.
        message.calls.retain(|call| !terms.withheld && !call.name.trim().is_empty());
        if !message.calls.is_empty() {
            *self = Self::default();
            return Next::Calls;
        }
        if called && !terms.withheld {
            self.nameless += 1;
            self.nudge = Some(if self.nameless == 1 { Nudge::Nameless } else { Nudge::Words });
            return Next::Again;
        }
        if !message.text.trim().is_empty() && message.is_cut() && self.parts < PARTS_MAX {
            self.take_part(&message.text);
            return Next::Part;
        }
        if !message.text.trim().is_empty() || self.parts > 0 {
            return Next::Answer;
        }
        if terms.withheld {
            let used_up = |rounds| max_rounds_notice(rounds, terms.reader);
            message.text = terms.used_up.map_or_else(|| EMPTY_ANSWER.to_owned(), used_up);
            return Next::Answer;
        }
        self.blanks += 1;
        self.nudge = (self.blanks > 1).then_some(Nudge::Words);
        Next::Again
    }

    /// Of a turn that was cut.
    pub fn rebuild(written: &Written) -> Self {
        let mut runner = Self::default();
        for message in &written.messages {
            match message {
                Message::Assistant(part) if part.is_cut() => runner.take_part(&part.text),
                Message::Assistant(_) => runner = Self::default(),
                Message::ToolResult(_) | Message::User(_) => {}
            }
        }
        runner
    }

    fn take_part(&mut self, text: &str) {
        self.parts += 1;
        self.begun.push_str(text);
        self.nudge = Some(Nudge::go_on(&self.begun));
    }

    /// What the parts say so far.
    pub fn begun(&self) -> &str {
        &self.begun
    }

    /// That call was not made, or came to nothing.
    pub fn put_back(&mut self, nudge: Option<Nudge>) {
        self.nudge = nudge;
    }

    /// What the next call tells the model.
    pub fn take_nudge(&mut self) -> Option<Nudge> {
        self.nudge.take()
    }
}

#[cfg(test)]
mod tests;
