//! Commands that the door answers itself, at once, whatever the session is doing. Never journalled.

use std::fmt::Write as _;
use std::time::Duration;

use domain::ids::SessionKey;
use protocol::session::{Mail, State, Status, Stopped};
use tokio::sync::oneshot;

use crate::doors::Doors;

/// How long a live session may take to answer before the user is told that it does not.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);

/// A control message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// Cancel the running turn, and with `all` the waiting ones.
    Stop { all: bool },
    /// Say what the session does.
    Status,
    /// Say what commands there are.
    Help,
}

impl Control {
    /// Recognizes a control message; anything else is a message for the session.
    pub(crate) fn parse(text: &str) -> Option<Self> {
        let mut words = text.split_ascii_whitespace();
        let control = match (words.next()?.to_ascii_lowercase().as_str(), words.next()) {
            ("/stop", None) => Self::Stop { all: false },
            ("/stop", Some(all)) if all.eq_ignore_ascii_case("all") => Self::Stop { all: true },
            ("/status", None) => Self::Status,
            ("/help", None) => Self::Help,
            (_, _) => return None,
        };
        words.next().is_none().then_some(control)
    }

    /// Does it and says what came of it.
    pub(crate) async fn perform(self, doors: &Doors, key: &SessionKey) -> String {
        match self {
            Self::Help => HELP.to_owned(),
            Self::Stop { all } => match stop(doors, key, all).await {
                Asked::Answer(stopped) => stopped_text(&stopped),
                Asked::Asleep => "Nothing is running here.".to_owned(),
                Asked::Silent => SILENT.to_owned(),
            },
            Self::Status => match status(doors, key).await {
                Asked::Answer(status) => status_text(&status),
                Asked::Asleep => "Idle.".to_owned(),
                Asked::Silent => SILENT.to_owned(),
            },
        }
    }
}

const HELP: &str = "/stop – cancel the running turn; waiting messages stay\n/stop all – cancel it and clear the \
                    queue\n/status – what this session is doing\n/help – this list";

const SILENT: &str = "The session does not answer right now.";

/// What became of a question to a session.
pub(crate) enum Asked<T> {
    /// It answered.
    Answer(T),
    /// It is not in memory, so nothing runs.
    Asleep,
    /// It did not answer in time.
    Silent,
}

/// Stops the running turn of a live session.
pub(crate) async fn stop(doors: &Doors, key: &SessionKey, all: bool) -> Asked<Stopped> {
    ask(doors, key, |reply| Mail::Stop { all, reply }).await
}

/// Asks a live session what it does.
pub(crate) async fn status(doors: &Doors, key: &SessionKey) -> Asked<Status> {
    ask(doors, key, |reply| Mail::Status { reply }).await
}

async fn ask<T>(doors: &Doors, key: &SessionKey, mail: impl FnOnce(oneshot::Sender<T>) -> Mail) -> Asked<T> {
    let (reply, answer) = oneshot::channel();
    if doors.sessions.tell_live(key, mail(reply)).is_err() {
        return Asked::Asleep;
    }
    match tokio::time::timeout(ANSWER_MAX, answer).await {
        Ok(Ok(answer)) => Asked::Answer(answer),
        // It left memory meanwhile, so it was idle.
        Ok(Err(_)) => Asked::Asleep,
        Err(_) => Asked::Silent,
    }
}

fn stopped_text(stopped: &Stopped) -> String {
    let mut text = match stopped.cancelled {
        Some(_) => "Stopped the running turn.".to_owned(),
        None => "Nothing was running.".to_owned(),
    };
    // Writing to a string cannot fail.
    match (stopped.dropped, stopped.waiting) {
        (0, 0) => {}
        (0, waiting) => write!(text, " {waiting} waiting.").unwrap_or_default(),
        (dropped, _) => write!(text, " Dropped {dropped} waiting.").unwrap_or_default(),
    }
    text
}

fn status_text(status: &Status) -> String {
    let state = match status.state {
        State::Loading => "Loading",
        State::Idle => "Idle",
        State::Thinking => "Thinking",
        State::RunningTools => "Running tools",
        State::Saving => "Saving",
    };
    let mut text = state.to_owned();
    if let Some(ms) = status.running_ms {
        write!(text, " for {}.{} s", ms / 1000, ms % 1000 / 100).unwrap_or_default();
    }
    if let Some(attempt) = status.attempt.filter(|attempt| attempt.0 > 1) {
        write!(text, ", attempt {attempt}").unwrap_or_default();
    }
    if status.inbox > 0 {
        write!(text, ", {} waiting", status.inbox).unwrap_or_default();
    }
    text.push('.');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_commands_are_control() {
        for (text, control) in [
            ("/stop", Some(Control::Stop { all: false })),
            ("  /STOP  ", Some(Control::Stop { all: false })),
            ("/stop all", Some(Control::Stop { all: true })),
            ("/status", Some(Control::Status)),
            ("/help\n", Some(Control::Help)),
            ("/stop it", None),
            ("/stop all now", None),
            ("/stopped", None),
            ("please /stop", None),
            ("/new", None),
            ("", None),
        ] {
            assert_eq!(Control::parse(text), control, "{text:?}");
        }
    }

    #[test]
    fn answers_are_sentences() {
        let stopped = |cancelled: bool, dropped, waiting| {
            let cancelled = cancelled.then(|| "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap());
            stopped_text(&Stopped { cancelled, dropped, waiting })
        };
        assert_eq!(stopped(true, 0, 0), "Stopped the running turn.");
        assert_eq!(stopped(true, 0, 3), "Stopped the running turn. 3 waiting.");
        assert_eq!(stopped(false, 2, 0), "Nothing was running. Dropped 2 waiting.");
    }
}
