//! Commands that the door answers itself, at once, whatever the session is doing, and those that it refuses. Never
//! journalled.

mod runs;

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::Duration;

use domain::chat::Usage;
use domain::command::{Control, NOTHING_SAID, Parsed, help, parse};
use domain::ids::{SessionKey, Source};
use domain::queue::QueueAsk;
use domain::text::{counted, ellipsis, one_line};
use protocol::session::{About, Mail, State, Status, Stopped};
use supervision::ports::offload;
use tokio::sync::oneshot;

use crate::doors::{Door, Doors, source};

/// How long a live session may take to answer before the user is told that it does not.
pub(crate) const ANSWER_MAX: Duration = Duration::from_secs(5);
/// How long a live session may take to answer before it is looked whether it can.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How often it is looked whether a session that was woken can tell.
const LOAD_LOOK: Duration = Duration::from_millis(20);
/// Characters of a goal that a status shows.
const GOAL_CHARS_SHOWN: usize = 100;
/// After so many looks the user is told that it does not answer.
const LOOKS_MAX: u32 = 50;

/// What a door answers itself, without the model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum AtOnce {
    /// A control message.
    Control(Control),
    /// A command that cannot be followed: what its sender is told.
    Refused(String),
    /// A question about what was said, where nothing was.
    NothingSaid,
}

impl AtOnce {
    /// Recognizes it; anything else is a message for the session. A question about what was said is none where nothing was,
    /// so that asking leaves nothing behind.
    pub(crate) async fn of(parsed: Parsed, doors: &Doors, key: &SessionKey) -> Option<Self> {
        match parsed {
            Parsed::Turn(command) if command.is_about_what_was_said() => {
                is_new(doors, key).await.then_some(Self::NothingSaid)
            }
            Parsed::Text | Parsed::Turn(_) | Parsed::Control(_) | Parsed::Refused(_) => Self::of_any(parsed),
        }
    }

    /// Likewise, without a look at the session.
    pub(crate) fn of_any(parsed: Parsed) -> Option<Self> {
        match parsed {
            Parsed::Text | Parsed::Turn(_) => None,
            Parsed::Control(control) => Some(Self::Control(control)),
            Parsed::Refused(refused) => Some(Self::Refused(refused.to_string())),
        }
    }

    /// Does it and says what came of it.
    pub(crate) async fn perform(self, doors: &Doors, (door, source): (Door, &Source), key: &SessionKey) -> String {
        match self {
            Self::Refused(text) => {
                doors.rejected(door, "bad_command");
                text
            }
            Self::NothingSaid => NOTHING_SAID.to_owned(),
            Self::Control(Control::Help) => help(),
            Self::Control(Control::Restart) => restart(doors, door, key),
            Self::Control(Control::Stop { all }) => match stop(doors, key, all).await {
                Asked::Answer(stopped) => stopped_text(&stopped),
                Asked::Asleep => "Nothing is running here.".to_owned(),
                Asked::Silent => SILENT.to_owned(),
            },
            Self::Control(Control::Subagents(ask)) => runs::follow(doors, door.strangers(source), key, ask).await,
            Self::Control(Control::Queue(ask)) => queue(doors, key, ask).await,
            Self::Control(Control::Status) => {
                let is_new = is_new(doors, key).await;
                let asked = awake(doors, key).await;
                if is_new {
                    // It was woken to tell of its settings alone. One that has something to do by now stays.
                    let _ = doors.sessions.tell_live(key, Mail::Passivate);
                }
                match asked {
                    Asked::Answer(status) => format!("{}\n{}", status_text(&status), process_text(doors)),
                    Asked::Asleep => format!("Idle.\n{}", process_text(doors)),
                    Asked::Silent => SILENT.to_owned(),
                }
            }
        }
    }
}

/// Does what is asked of `key` at once, from this process's own terminal, and says what came of it.
pub async fn perform(doors: &Doors, key: &SessionKey, control: Control) -> String {
    AtOnce::Control(control).perform(doors, (Door::Admin, &source("cli")), key).await
}

/// What is answered to `text` at once, in this process's own terminal, as it asks about what was said in `key`, and nothing
/// was.
pub async fn nothing_said(doors: &Doors, key: &SessionKey, text: &str) -> Option<&'static str> {
    let Parsed::Turn(command) = parse(text) else { return None };
    (command.is_about_what_was_said() && is_new(doors, key).await).then_some(NOTHING_SAID)
}

/// Whether nothing was ever said in a session, or nothing since it was put away. Where that cannot be found out, it is not.
pub(crate) async fn is_new(doors: &Doors, key: &SessionKey) -> bool {
    if doors.sessions.state(key).is_some() {
        return false;
    }
    let (transcripts, name) = (Arc::clone(&doors.transcripts), key.clone());
    let is_there = offload(&*doors.ports.offload, move || transcripts.is_there(&name)).await;
    // A message that was taken, but whose session does not run yet, is one.
    let open = doors.journal.open_of(key.clone()).await;
    matches!(is_there, Ok(Ok(false)))
        && open.is_ok_and(|open| open.turns.is_empty())
        && doors.sessions.state(key).is_none()
}

/// Whoever may write to a webhook need not be the owner.
fn restart(doors: &Doors, door: Door, key: &SessionKey) -> String {
    let no = match (door, &doors.restart) {
        (Door::Webhook | Door::Hook, _) => {
            "The gateway can be restarted from its WebSocket, its API and the terminal only."
        }
        (Door::WebSocket | Door::Api | Door::Admin, None) => "This process cannot restart itself.",
        (Door::WebSocket | Door::Api | Door::Admin, Some(restart)) => return restart.ask(key),
    };
    no.to_owned()
}

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
    let later = |status: Status| Stopped {
        cancelled: None,
        dropped: 0,
        waiting: status.inbox,
        goal_paused: false,
        later: true,
    };
    ask(doors, key, |reply| Mail::Stop { all, reply }, later).await
}

/// Asks a live session what it does.
pub(crate) async fn status(doors: &Doors, key: &SessionKey) -> Asked<Status> {
    ask(doors, key, |reply| Mail::Status { reply }, |status| status).await
}

/// Like [`status`], of a session that is woken if it sleeps, so that it can tell of its conversation.
async fn awake(doors: &Doors, key: &SessionKey) -> Asked<Status> {
    let asked = status(doors, key).await;
    if !matches!(asked, Asked::Asleep) {
        return asked;
    }
    for _ in 0..LOOKS_MAX {
        let (reply, answer) = oneshot::channel();
        if doors.sessions.tell(key, Mail::Status { reply }).is_err() {
            break;
        }
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(Ok(status)) if status.state == State::Loading => tokio::time::sleep(LOAD_LOOK).await,
            Ok(Ok(status)) => return Asked::Answer(status),
            Ok(Err(_)) | Err(_) => break,
        }
    }
    Asked::Asleep
}

/// Shows or sets the rules of a session's queue. One that sleeps is woken: it alone knows them.
async fn queue(doors: &Doors, key: &SessionKey, ask: QueueAsk) -> String {
    // It may go away with the question in hand; then its next incarnation is asked.
    for _ in 0..LOOKS_MAX {
        let (reply, answer) = oneshot::channel();
        if doors.sessions.tell(key, Mail::Queue { ask, reply }).is_err() {
            break;
        }
        match tokio::time::timeout(ANSWER_MAX, answer).await {
            Ok(Ok(state)) => return state.to_string(),
            Ok(Err(_)) => tokio::time::sleep(LOOK_EVERY).await,
            Err(_) => break,
        }
    }
    SILENT.to_owned()
}

/// Asks, and asks again when the session went away with the question in hand. When it crashed before it came to the
/// question, which then waits in its mailbox for its restart, `instead` is answered.
async fn ask<T>(
    doors: &Doors,
    key: &SessionKey,
    mail: impl Fn(oneshot::Sender<T>) -> Mail,
    instead: impl Fn(Status) -> T,
) -> Asked<T> {
    let send = || {
        let (reply, answer) = oneshot::channel();
        doors.sessions.tell_live(key, mail(reply)).is_ok().then_some(answer)
    };
    let Some(mut answer) = send() else { return Asked::Asleep };
    for _ in 0..LOOKS_MAX {
        match tokio::time::timeout(LOOK_EVERY, &mut answer).await {
            Ok(Ok(answer)) => return Asked::Answer(answer),
            Ok(Err(_)) => match send() {
                Some(again) => answer = again,
                None => return Asked::Asleep,
            },
            Err(_) => {
                if let Some(status) = restarting(doors, key) {
                    return Asked::Answer(instead(status));
                }
            }
        }
    }
    Asked::Silent
}

/// What the registry says at once of a session that waits for its restart.
fn restarting(doors: &Doors, key: &SessionKey) -> Option<Status> {
    let (reply, mut status) = oneshot::channel();
    doors.sessions.tell_live(key, Mail::Status { reply }).ok()?;
    status.try_recv().ok().filter(|status| status.state == State::Restarting)
}

fn stopped_text(stopped: &Stopped) -> String {
    if stopped.later {
        let waiting = stopped.waiting;
        return format!(
            "Not running just now; stopped as soon as it would run, unless the gateway restarts before. {waiting} waiting."
        );
    }
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
    if stopped.goal_paused {
        text.push_str(" The goal is paused: `/goal resume` goes on with it.");
    }
    text
}

fn status_text(status: &Status) -> String {
    let state = match status.state {
        State::Loading => "Loading",
        State::Held => "Waiting until the conversation before it can be put away",
        State::Restarting => "Restarting after a crash",
        State::Quarantined => "Held back after repeated crashes",
        State::Idle => "Idle",
        State::Waiting => "Waiting for other conversations",
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
    if let Some(about) = &status.about {
        about_text(about, &mut text);
        if let Some(goal) = &about.goal {
            let rests = status.state == State::Idle && status.inbox == 0;
            let rests = match (about.goal_paused, rests) {
                (true, _) => " Paused: `/goal resume` goes on with it.",
                (false, true) => " Paused: the next message goes on with it.",
                (false, false) => "",
            };
            write!(text, "\nGoal: {}.{rests}", ellipsis(&one_line(goal), GOAL_CHARS_SHOWN)).unwrap_or_default();
        }
    }
    text
}

fn about_text(about: &About, text: &mut String) {
    let About { model, preset, effort, context_window_tokens, last, fill, messages, .. } = about;
    let preset = preset.as_ref().map(|preset| format!(" (preset {preset})")).unwrap_or_default();
    let effort = effort.as_ref().map(|effort| format!(", thinking: {effort}")).unwrap_or_default();
    write!(text, "\nModel: {model}{preset}{effort}.").unwrap_or_default();
    let messages = counted(u64::from(*messages), "message");
    let fill = fill.map(|fill| format!(", {}", fill.told(*context_window_tokens))).unwrap_or_default();
    write!(text, "\nConversation: {messages}{fill}.").unwrap_or_default();
    let Some(Usage { input_tokens, output_tokens, cached_tokens }) = last else { return };
    let cached = cached_tokens.saturating_mul(100) / (*input_tokens).max(1);
    write!(text, "\nLast model call: {input_tokens} tokens read ({cached} % from its cache), {output_tokens} written.")
        .unwrap_or_default();
}

fn process_text(doors: &Doors) -> String {
    let running = u64::try_from(doors.metrics.turns_running.get()).unwrap_or(0);
    let (version, up) = (env!("CARGO_PKG_VERSION"), uptime(doors.uptime()));
    format!("Greenroom {version}, up {up}, {} running.", counted(running, "turn"))
}

fn uptime(up: Duration) -> String {
    let minutes = up.as_secs() / 60;
    match (minutes / (24 * 60), minutes / 60 % 24, minutes % 60) {
        (0, 0, 0) => format!("{} s", up.as_secs()),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use domain::tally::Fill;

    use super::*;

    #[test]
    fn answers_are_sentences() {
        let later = Stopped { cancelled: None, dropped: 0, waiting: 2, goal_paused: false, later: true };
        let text =
            "Not running just now; stopped as soon as it would run, unless the gateway restarts before. 2 waiting.";
        assert_eq!(stopped_text(&later), text);
        let stopped = |cancelled: bool, dropped, waiting| {
            let cancelled = cancelled.then(|| "01890a5d-ac96-774b-bcce-b302099a8057".parse().unwrap());
            stopped_text(&Stopped { cancelled, dropped, waiting, goal_paused: false, later: false })
        };
        assert_eq!(stopped(true, 0, 0), "Stopped the running turn.");
        assert_eq!(stopped(true, 0, 3), "Stopped the running turn. 3 waiting.");
        assert_eq!(stopped(false, 2, 0), "Nothing was running. Dropped 2 waiting.");
        let paused = Stopped { cancelled: None, dropped: 0, waiting: 0, goal_paused: true, later: false };
        assert!(stopped_text(&paused).ends_with(" The goal is paused: `/goal resume` goes on with it."));
    }

    #[test]
    fn a_status_tells_of_model_and_conversation() {
        let text = |preset: Option<&str>, effort: Option<&str>, last: Option<Usage>, fill| {
            let about = About {
                model: "big".into(),
                preset: preset.map(Into::into),
                effort: effort.map(Into::into),
                context_window_tokens: 1000,
                last,
                fill,
                goal: None,
                goal_paused: false,
                messages: 3,
                unwritten: Vec::new(),
            };
            let mut text = String::new();
            about_text(&about, &mut text);
            text
        };
        assert_eq!(text(None, None, None, None), "\nModel: big.\nConversation: 3 messages.");
        let last = Usage { input_tokens: 200, output_tokens: 50, cached_tokens: 50 };
        assert_eq!(
            text(Some("fast"), Some("high"), Some(last), Some(Fill::Counted(250))),
            "\nModel: big (preset fast), thinking: high.\nConversation: 3 messages, 250 of 1000 tokens (25 %).\n\
             Last model call: 200 tokens read (25 % from its cache), 50 written."
        );
        let told = text(None, None, Some(last), None);
        assert!(told.contains("\nConversation: 3 messages.\nLast model call: 200"), "summarised since: {told}");
        for (seconds, told) in [(7, "7 s"), (61, "1 min"), (3 * 3600 + 60, "3 h 1 min"), (50 * 3600, "2 d 2 h")] {
            assert_eq!(uptime(Duration::from_secs(seconds)), told);
        }
    }
}
