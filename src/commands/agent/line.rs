//! What somebody typed, piped or gave with `-m`: a message, or a command, which never reaches the model. Pure.

use channel::control::Control;

/// A line, understood.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line<'a> {
    /// White space.
    Empty,
    /// What every door understands.
    Control(Control),
    /// Leave.
    Quit,
    /// A command that is none.
    Unknown(&'a str),
    /// A message for the agent.
    Message(&'a str),
}

/// Understands a line. A first word like `/word` is a command; `/usr/bin` is not.
pub(super) fn understand(text: &str) -> Line<'_> {
    let text = text.trim();
    if let Some(control) = Control::parse(text) {
        return Line::Control(control);
    }
    let Some(first) = text.split_whitespace().next() else { return Line::Empty };
    if matches!(text, "/quit" | "/exit") {
        return Line::Quit;
    }
    let word = |rest: &str| rest.chars().all(|letter| letter.is_ascii_alphanumeric() || "-_".contains(letter));
    match first.strip_prefix('/') {
        Some(rest) if word(rest) => Line::Unknown(first),
        Some(_) | None => Line::Message(text),
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
            ("/quit now", Line::Unknown("/quit")),
            ("/stop it", Line::Unknown("/stop")),
            ("/new", Line::Unknown("/new")),
            ("/", Line::Unknown("/")),
        ] {
            assert_eq!(understand(text), line, "{text:?}");
        }
    }
}
