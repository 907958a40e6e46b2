//! What the model of the journal keeps of a turn, and checks of it.

use domain::goal::CONTINUATIONS_MAX;

use super::*;

/// What the journal knows of a turn.
#[derive(Debug, Default)]
pub(super) struct Kept {
    pub(super) user: bool,
    /// Whether it says what a sub-agent was sent to do.
    pub(super) run: bool,
    /// How often it took up messages.
    pub(super) steered: u32,
    pub(super) messages: Vec<Message>,
    /// Answers behind which the model was sent on.
    pub(super) continued: u32,
    pub(super) started: BTreeSet<ToolCallId>,
    pub(super) end: Option<TurnEnd>,
}

impl Kept {
    /// What its last answer says, with the parts of it that were cut.
    pub(super) fn answer(&self) -> String {
        let mut texts = Vec::new();
        for message in self.messages.iter().rev() {
            match message {
                Message::Assistant(said) if texts.is_empty() || said.is_cut() => texts.push(said.text.as_str()),
                Message::Assistant(_) | Message::User(_) | Message::ToolResult(_) => break,
            }
        }
        texts.into_iter().rev().collect()
    }
}

pub(super) fn has_result(kept: &Kept, id: &ToolCallId) -> bool {
    kept.messages.iter().any(|message| matches!(message, Message::ToolResult(result) if result.call == *id))
}

pub(super) fn keep(kept: &mut Kept, record: Record) {
    match record {
        Record::Said(_) | Record::Queue(_) | Record::Goal(_) | Record::PauseGoal => panic!("not in these lives"),
        Record::Run(_) => assert!(!std::mem::replace(&mut kept.run, true) && !kept.user, "it is sent twice"),
        Record::Reset(_) => assert!(!kept.user, "a reset after the question"),
        Record::User => {
            assert!(!kept.user, "the user's line is there twice");
            kept.user = true;
        }
        Record::Assistant(message, close) => {
            assert!(kept.user, "an answer before the question");
            assert_eq!(open_calls(kept), 0, "a message while calls have no result");
            assert!(close.is_none() || message.calls.is_empty());
            assert!(message.calls.iter().all(|call| !call.name.is_empty()), "a call without a name is kept");
            let begun = matches!(kept.messages.last(), Some(Message::Assistant(begun)) if begun.is_cut());
            let said = begun || !message.text.trim().is_empty();
            assert!(close != Some(TurnClose::Done) || said, "an end without a word");
            kept.continued += u32::from(close.is_none() && message.calls.is_empty() && !message.is_cut());
            assert!(kept.continued <= CONTINUATIONS_MAX, "the model is sent on for ever");
            kept.messages.push(Message::Assistant(message.into()));
        }
        Record::Tool(result) => {
            assert!(!has_result(kept, &result.call), "two results");
            let before = open_calls(kept);
            kept.messages.push(Message::ToolResult(result.into()));
            assert_eq!(open_calls(kept) + 1, before, "a result without its call");
        }
    }
}

pub(super) fn open_calls(kept: &Kept) -> usize {
    let last = kept.messages.iter().rev().find_map(|message| match message {
        Message::Assistant(assistant) => Some(assistant),
        Message::User(_) | Message::ToolResult(_) => None,
    });
    last.map_or(0, |last| last.calls.iter().filter(|call| !has_result(kept, &call.id)).count())
}
