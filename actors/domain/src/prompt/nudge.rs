//! What the model is told for one call, behind the conversation: no part of the transcript.

/// How much of an answer that was cut is quoted, in characters.
const QUOTED_CHARS: usize = 64;
/// How the text begins that asks for the rest of an answer.
const GO_ON: &str = "Your answer was cut off at the length limit. It ended with:";

/// Why the model is asked once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nudge {
    /// It called tools without naming them.
    Nameless,
    /// It has to answer now, without tools.
    Words,
    /// It is to go on with the session's goal.
    Goal,
    /// Its answer was cut.
    GoOn {
        /// Its last characters.
        tail: String,
    },
}

// === impl Nudge ===

impl Nudge {
    /// Asks for the rest of an answer of which this is the beginning.
    pub fn go_on(begun: &str) -> Self {
        let from = begun.char_indices().rev().nth(QUOTED_CHARS - 1).map_or(0, |(at, _)| at);
        Self::GoOn { tail: begun.get(from..).unwrap_or_default().to_owned() }
    }

    /// Whether that text asks for the rest of an answer.
    pub fn asks_to_go_on(text: &str) -> bool {
        text.starts_with(GO_ON)
    }

    /// As the model reads it.
    pub fn text(&self) -> String {
        match self {
            Self::Nameless => {
                "Your tool call had no name, so it was not run. Call a tool by one of the names that are \
                offered, or just answer."
                    .to_owned()
            }
            Self::GoOn { tail } => {
                format!("{GO_ON} \"{tail}\". Go on exactly there; do not repeat anything.")
            }
            Self::Goal => {
                "The goal is not reached yet, as you have not said so. Go on with it, or end your answer with a \
                line that says that it is completed or blocked."
                    .to_owned()
            }
            Self::Words => "Please give the answer to the person now, in words.".to_owned(),
        }
    }
}
