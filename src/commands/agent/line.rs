//! What somebody typed, piped or gave with `-m`: a message, or a command, which never reaches the model. Pure.

use domain::command::{Control, Parsed, Refused, parse};

/// A line, understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// White space.
    Empty,
    /// What every door understands.
    Control(Control),
    /// Leave.
    Quit,
    /// A command that cannot be followed.
    Refused(Refused),
    /// A message for the agent, or a command that its session follows.
    Message(&'a str),
}

/// Understands a line.
pub(super) fn understand(text: &str) -> Line<'_> {
    let text = text.trim();
    if text.is_empty() {
        return Line::Empty;
    }
    if matches!(text, "/quit" | "/exit") {
        return Line::Quit;
    }
    match parse(text) {
        Parsed::Text | Parsed::Turn(_) => Line::Message(text),
        Parsed::Control(control) => Line::Control(control),
        Parsed::Refused(refused) => Line::Refused(refused),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_told_from_messages() {
        for (text, line) in [
            (" \n", Line::Empty),
            ("hello /help", Line::Message("hello /help")),
            (" /usr/bin is what? ", Line::Message("/usr/bin is what?")),
            ("// no comment", Line::Message("// no comment")),
            ("/help", Line::Control(Control::Help)),
            (" /STOP all ", Line::Control(Control::Stop { all: true })),
            ("/status\n", Line::Control(Control::Status)),
            ("/quit", Line::Quit),
            ("/exit ", Line::Quit),
            ("/quit now", Line::Refused(Refused::Unknown { word: "/quit".to_owned(), nearest: None })),
            ("/new what?", Line::Message("/new what?")),
            ("/stop it", Line::Refused(Refused::Malformed { usage: "/stop [all]" })),
        ] {
            assert_eq!(understand(text), line, "{text:?}");
        }
    }
}
