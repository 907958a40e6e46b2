//! What the model is told for one call, behind the conversation: no part of the transcript.

/// Why the model is asked once more.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Nudge {
    /// It called tools without naming them.
    Nameless,
    /// It has to answer now, without tools.
    Words,
}

// === impl Nudge ===

impl Nudge {
    /// As the model reads it.
    pub fn text(&self) -> String {
        match self {
            Self::Nameless => {
                "Your tool call had no name, so it was not run. Call a tool by one of the names that are \
                offered, or just answer."
                    .to_owned()
            }
            Self::Words => "Please give the answer to the person now, in words.".to_owned(),
        }
    }
}
