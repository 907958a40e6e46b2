//! One sentence for one event.

use protocol::supervision::{Event, EventName, Kind, LOST_NOTHING};

use super::{Subject, is_session};
use crate::log::COMMAND_BOOT;

/// The sentence for `event`; `cause` is the event that led to it, if it is told too.
pub(super) fn of(event: &Event, cause: Option<&Event>, subject: &Subject) -> String {
    let mut text = plain(event, subject);
    if let Some(after) = cause.and_then(after) {
        text.push_str(&after);
    }
    if event.lost != LOST_NOTHING {
        text.push_str(&format!("; lost: {}", event.lost));
    }
    text.push('.');
    text
}

fn plain(event: &Event, subject: &Subject) -> String {
    let who = who(event);
    let reason = event.reason.as_deref().unwrap_or("no reason given");
    match event.event {
        EventName::Started => format!("{who} was started"),
        EventName::Exited => exited(event, &who, reason),
        EventName::Restarted => crashed(event, &who, subject),
        EventName::GaveUp if event.verdict.as_deref() == Some("left") => {
            format!("{}; it was leaving, so it was not started again", panicked(event, &who, subject))
        }
        EventName::GaveUp => {
            let count = event.restarts_in_window.unwrap_or_default();
            format!(
                "{}; this was crash {count} in a short time, so it was not started again",
                panicked(event, &who, subject)
            )
        }
        EventName::Quarantined => quarantined(event, reason),
        EventName::Released => format!("The quarantine ended: {reason}"),
        EventName::DeadLettered => dead_lettered(event, reason, subject),
        EventName::Escalated => format!("Too many sessions of its shard crashed: {reason}{}", so(event)),
        EventName::Resumed => "Its shard started sessions again".to_owned(),
        EventName::ProviderOpened => format!("The model provider was left alone for a while: {reason}{}", so(event)),
        EventName::ProviderClosed => format!("The model provider was asked again: {reason}"),
        EventName::ArbiterBlocked => format!("Its thread was blocked: {reason}{}", so(event)),
        EventName::ArbiterFreed => "Its thread ran on".to_owned(),
        EventName::MemoryHigh => format!("Memory was short: {reason}{}", so(event)),
        EventName::MemoryCalm => format!("There was enough memory again: {reason}"),
        EventName::Activated => format!("The session was loaded{}", waiting(event)),
        EventName::Passivated => format!("The session left memory because {}", left(reason)),
        EventName::Refused => format!("A message was refused and not accepted: {reason}"),
        EventName::TurnRecovered => {
            format!("{} was taken up again{} because {reason}", turn(event, subject), attempt(event))
        }
        EventName::TurnStuck if event.turn.is_some() => stuck(event, &turn(event, subject), reason),
        EventName::TurnStuck => stuck(event, &who, reason),
        EventName::TurnFailed => turn_failed(event, reason, subject),
        EventName::TurnCancelled => format!("{} was cancelled: {reason}", turn(event, subject)),
        EventName::DeliveryFailed => delivery_failed(event, reason, subject),
        EventName::DeliveryRepeated => {
            format!("{} was sent again though it may have been delivered before: {reason}", reply(event, subject))
        }
        EventName::Undeliverable => undeliverable(event, reason, subject),
        EventName::LetterRetried => format!("Its dead letter was opened again: {reason}"),
        EventName::LetterDropped => format!("Its dead letter was dropped: {reason}"),
        EventName::LetterShed => format!("Its dead letter is not kept any more: {reason}"),
        EventName::Recovered => format!("What the process before had left was taken up: {reason}"),
        EventName::JournalReadOnly => format!("The journal could not write and took no more messages: {reason}"),
        EventName::JournalWritable => format!("The journal could write again: {reason}"),
        EventName::JournalRepaired => format!("The journal was repaired after damage: {reason}"),
        EventName::ViewRepaired => format!("The transcript file was repaired: {reason}"),
        EventName::ViewDamaged => format!("The transcript file was read around its damage: {reason}"),
        EventName::SessionDeleted => format!("The session was deleted: {reason}"),
        EventName::SessionArchived => format!("The session was archived: {reason}"),
        EventName::SessionRestored => "The session was taken back from the archive".to_owned(),
        EventName::SessionEdited => format!("{}{}", edited(reason), so(event)),
        EventName::SessionsPruned => format!("Old sessions were looked through: {reason}"),
        EventName::AttachmentsRemoved => format!("Old attachments were removed: {reason}"),
        EventName::ProcessStarted => format!("A process started ({reason})"),
        EventName::ProcessStopped => "The process ended in order".to_owned(),
        EventName::GatewayStarted => "The gateway opened its doors".to_owned(),
        EventName::GatewayStopping => "The gateway began to stop".to_owned(),
        EventName::GatewayStopped => format!("The sessions ended for the stop: {reason}"),
        EventName::CronSkipped => format!("It was due and did not run: {reason}"),
        EventName::CronFailed => format!("It did not end well: {reason}"),
        EventName::CronDamaged => format!("The file of the jobs was damaged: {reason}"),
        EventName::CronUnsaved => format!("The file of the jobs could not be written: {reason}"),
        EventName::CronSaved => format!("The file of the jobs could be written again: {reason}"),
        EventName::ConfigRejected => format!("A start failed, as its configuration was refused: {reason}"),
        EventName::EventsLost => "Events are missing here: more came than could be written".to_owned(),
    }
}

/// What was decided.
fn so(event: &Event) -> String {
    event.verdict.as_ref().map(|verdict| format!("; {verdict}")).unwrap_or_default()
}

fn who(event: &Event) -> String {
    if is_session(event) {
        return "The session".to_owned();
    }
    let name = event.path.0.trim_start_matches('/');
    match event.kind {
        Kind::ToolCall => format!("The tool {}", name.rsplit('/').next().unwrap_or(name)),
        Kind::Channel => format!("The door {}", name.trim_start_matches("channels/")),
        Kind::Process => "The process".to_owned(),
        Kind::Outbox => "The deliverer".to_owned(),
        Kind::Memory => "The memory".to_owned(),
        Kind::Cron => "The scheduler".to_owned(),
        Kind::Subagent => "The keeper of sub-agents".to_owned(),
        Kind::Log | Kind::Journal | Kind::Registry | Kind::Session | Kind::Provider | Kind::Tools => {
            format!("The actor {name}")
        }
    }
}

fn exited(event: &Event, who: &str, reason: &str) -> String {
    if event.panic.is_some() {
        return format!("{who} {}", panic_text(event));
    }
    match reason {
        "normal" => format!("{who} ended"),
        "passivated" => format!("{who} ended, as it had left memory"),
        "shutdown" if event.id.starts_with(COMMAND_BOOT) => format!("{who} ended with the command that had loaded it"),
        "shutdown" => format!("{who} ended with the process"),
        "intensity_exceeded" => format!("{who} ended after its last crash"),
        "killed" => format!("{who} ended because its runtime did"),
        other => format!("{who} ended: {other}"),
    }
}

fn stuck(event: &Event, who: &str, reason: &str) -> String {
    match event.verdict.as_deref() {
        None | Some("cancelled") => format!("{who} made no progress and was cancelled: {reason}"),
        Some(verdict) => format!("{who} made no progress: {reason}; {verdict}"),
    }
}

/// Why a session left memory, from the word in the log.
fn left(reason: &str) -> &str {
    match reason {
        "idle" => "it was idle",
        "deleted" => "it was deleted",
        "archived" => "it was archived",
        "ended" => "its only turn had ended",
        other => other,
    }
}

/// What an edit did, from the word in the log.
fn edited(reason: &str) -> &str {
    match reason {
        "label" => "An entry of the conversation got a label, or lost it",
        "rename" => "The conversation got a name, or lost it",
        "branch" => "The conversation was led on from another entry",
        "reset" => "The conversation was begun anew by hand",
        "reset: daily" => "The conversation began anew because its hour of the day had come",
        "reset: idle" => "The conversation began anew because nobody had written for long enough",
        "reset: new" => "The conversation began anew because somebody asked for it",
        "compact" => "The conversation was compacted by hand",
        "compact: idle" => "All but the last messages were summarised because nothing was said for long",
        "compact: idle, raw" => {
            "All but the last messages were archived because nothing was said for long, and the model could not sum them up"
        }
        "repair" => "The transcript was mended by hand",
        "fork" => "The conversation was copied",
        "export" => "The conversation was written to a file",
        "import" => "The conversation was brought in from a file",
        other => other,
    }
}

fn crashed(event: &Event, who: &str, subject: &Subject) -> String {
    let mut text = panicked(event, who, subject);
    let count = event.restarts_in_window.unwrap_or(1);
    text.push_str(&format!("; it was crash {count} in a short time"));
    if let Some(ms) = event.backoff_ms {
        text.push_str(&format!(", and it was started again after {}", duration(ms)));
    }
    text
}

fn panicked(event: &Event, who: &str, subject: &Subject) -> String {
    let mut text = format!("{who} {}", panic_text(event));
    if event.turn.is_some() {
        text.push_str(&format!(" while it worked on {}{}", lower(&turn(event, subject)), attempt(event)));
    }
    text
}

fn panic_text(event: &Event) -> String {
    let mut text = match &event.panic {
        Some(panic) => format!("crashed with \"{}\" at {}", panic.text, panic.at),
        None => "crashed".to_owned(),
    };
    if let Some(hash) = &event.backtrace {
        text.push_str(&format!(" (all of it: logs/crash/{hash}.txt)"));
    }
    text
}

fn dead_lettered(event: &Event, reason: &str, subject: &Subject) -> String {
    let why = match reason {
        "crashes" => "it crashed its session, or ended the process, too often",
        "unreadable" => "its message could not be read back",
        other => other,
    };
    format!("{} was given up because {why}; its user was told, and it is kept as a dead letter", turn(event, subject))
}

fn quarantined(event: &Event, reason: &str) -> String {
    let held = event.verdict.as_deref().unwrap_or("held back");
    let why = match reason {
        "load" => "it could not be loaded",
        "crashes" => "it crashed too often",
        other => other,
    };
    format!("The session was quarantined because {why}: {held}{}", waiting(event))
}

fn turn_failed(event: &Event, reason: &str, subject: &Subject) -> String {
    let (turn, attempt, why) = (turn(event, subject), attempt(event), failure(reason));
    format!("{turn}{attempt} failed, and its user was told: {why}")
}

/// Why a turn failed, from the word in the log.
fn failure(reason: &str) -> &str {
    match reason {
        "transient" => "the model could not be reached, or broke off",
        "rate_limited" => "the model's provider had too many requests",
        "overloaded" => "the model's provider was overloaded",
        "unauthorized" => "the model's provider did not take the key",
        "billing" => "the account at the model's provider had no credit",
        "context_too_long" => "the conversation was too long for the model",
        "refused" => "the model's provider refused the request",
        "stuck" => "it made no progress",
        "too_large" => "its answer was too large to be kept",
        "malformed" => "its message could not be understood",
        "transcript" => "the conversation so far could not be read",
        "stopping" => "the gateway was stopping",
        other => other,
    }
}

fn delivery_failed(event: &Event, reason: &str, subject: &Subject) -> String {
    let mut text = format!("{} could not be delivered{}: {reason}", reply(event, subject), attempt(event));
    if let Some(ms) = event.backoff_ms {
        text.push_str(&format!("; it is tried again after {}", duration(ms)));
    }
    text
}

/// The turn of an event: by name only where the story is not its own.
fn turn(event: &Event, subject: &Subject) -> String {
    match (event.turn, subject) {
        (Some(turn), Subject::Turn(own)) if turn == *own => "The turn".to_owned(),
        (Some(turn), Subject::Turn(_) | Subject::Session(_)) => format!("Turn {turn}"),
        (None, _) => "A turn".to_owned(),
    }
}

/// The message of an event that was on its way out.
fn reply(event: &Event, subject: &Subject) -> String {
    let part = event.delivery.map(|id| id.n).filter(|n| *n > 1).map(|n| format!(" (part {n})")).unwrap_or_default();
    format!("The reply of {}{part}", lower(&turn(event, subject)))
}

fn undeliverable(event: &Event, reason: &str, subject: &Subject) -> String {
    if event.delivery.is_none() {
        return format!("A result came too late and stands nowhere: {reason}");
    }
    format!("{} could not be delivered and is kept as a dead letter: {reason}", reply(event, subject))
}

fn lower(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map(|first| first.to_lowercase().chain(chars).collect()).unwrap_or_default()
}

fn attempt(event: &Event) -> String {
    event.attempt.map(|attempt| format!(" (attempt {attempt})")).unwrap_or_default()
}

fn waiting(event: &Event) -> String {
    match event.inbox {
        None | Some(0) => String::new(),
        Some(1) => " with 1 turn waiting".to_owned(),
        Some(count) => format!(" with {count} turns waiting"),
    }
}

/// What led to it, when saying so says something new.
fn after(cause: &Event) -> Option<String> {
    let what = match cause.event {
        EventName::Restarted | EventName::GaveUp => "crash",
        EventName::Quarantined => "quarantine",
        EventName::Released => "end of the quarantine",
        EventName::ProcessStarted => "start of the process",
        EventName::GatewayStopping => "stop",
        EventName::MemoryHigh => "want of memory",
        EventName::ProviderOpened => "failures of the provider",
        EventName::ArbiterBlocked => "blocked thread",
        EventName::JournalReadOnly => "failure to write",
        EventName::Escalated => "crashes of its shard",
        EventName::TurnStuck => "standstill",
        EventName::DeadLettered => "dead letter",
        EventName::JournalRepaired => "repair of the journal",
        EventName::ConfigRejected
        | EventName::Started
        | EventName::Exited
        | EventName::Activated
        | EventName::Passivated
        | EventName::Refused
        | EventName::TurnRecovered
        | EventName::TurnFailed
        | EventName::TurnCancelled
        | EventName::DeliveryRepeated
        | EventName::DeliveryFailed
        | EventName::Undeliverable
        | EventName::LetterRetried
        | EventName::LetterDropped
        | EventName::LetterShed
        | EventName::Recovered
        | EventName::JournalWritable
        | EventName::ViewRepaired
        | EventName::ViewDamaged
        | EventName::SessionDeleted
        | EventName::SessionArchived
        | EventName::SessionRestored
        | EventName::SessionEdited
        | EventName::SessionsPruned
        | EventName::CronSkipped
        | EventName::CronFailed
        | EventName::CronDamaged
        | EventName::CronUnsaved
        | EventName::CronSaved
        | EventName::AttachmentsRemoved
        | EventName::ProcessStopped
        | EventName::GatewayStarted
        | EventName::GatewayStopped
        | EventName::Resumed
        | EventName::ProviderClosed
        | EventName::ArbiterFreed
        | EventName::MemoryCalm
        | EventName::EventsLost => return None,
    };
    Some(format!(", after the {what} of {}", clock(&cause.ts)))
}

/// The time of day of a log time.
pub(super) fn clock(ts: &str) -> String {
    let time = ts.split('T').nth(1).unwrap_or(ts);
    let (seconds, micros) = time.trim_end_matches('Z').split_once('.').unwrap_or((time, ""));
    format!("{seconds}.{}Z", micros.chars().take(3).collect::<String>())
}

/// A point in time, from ms since 1970.
pub(super) fn moment(ms: u64) -> String {
    let at = i64::try_from(ms).ok().and_then(|ms| jiff::Timestamp::from_millisecond(ms).ok());
    format!("{:.0}", at.unwrap_or(jiff::Timestamp::MAX))
}

/// A length of time, for people.
pub(super) fn duration(ms: u64) -> String {
    match ms {
        0..1_000 => format!("{ms} ms"),
        1_000..60_000 => format!("{}.{} s", ms / 1_000, ms % 1_000 / 100),
        60_000..3_600_000 => format!("{} min {} s", ms / 60_000, ms % 60_000 / 1_000),
        _ => format!("{} h {} min", ms / 3_600_000, ms % 3_600_000 / 60_000),
    }
}

#[cfg(test)]
mod tests {
    use domain::ids::SessionKey;
    use protocol::supervision::ActorPath;

    use super::*;

    #[test]
    fn what_changed_a_conversation_and_why_it_left_memory_is_told() {
        let key = SessionKey::new("api:7").unwrap();
        for (name, reason, verdict, text) in [
            (EventName::SessionEdited, "label", None, "An entry of the conversation got a label, or lost it."),
            (
                EventName::SessionEdited,
                "reset: daily",
                None,
                "The conversation began anew because its hour of the day had come.",
            ),
            (
                EventName::SessionEdited,
                "reset: idle",
                None,
                "The conversation began anew because nobody had written for long enough.",
            ),
            (
                EventName::SessionEdited,
                "fork",
                Some("api:8 has the copy"),
                "The conversation was copied; api:8 has the copy.",
            ),
            (EventName::Passivated, "idle", None, "The session left memory because it was idle."),
            (EventName::Passivated, "archived", None, "The session left memory because it was archived."),
            (EventName::Passivated, "deleted", None, "The session left memory because it was deleted."),
        ] {
            let mut event = Event::new(name, ActorPath::session(0, &key), Kind::Session);
            (event.reason, event.verdict) = (Some(reason.to_owned()), verdict.map(str::to_owned));
            assert_eq!(of(&event, None, &Subject::Session(key.clone())), text);
        }
    }
}
