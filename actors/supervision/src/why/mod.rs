//! What happened to a session or a turn, in plain words: one sentence per event, in the order in which they happened (a
//! cause always stands before what it led to), and at the end what was lost and what runs again.
//!
//! Pure: [`tell`] gets the events and what is known of the present ([`Facts`]).

mod nearest;
mod sentence;
mod standing;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::fmt;

use domain::ids::{SessionKey, TurnId};
use protocol::supervision::{Event, EventName, Kind, LOST_NOTHING};
use serde::{Deserialize, Serialize};

pub use standing::{Facts, Letter, Standing, Tried, TurnState, Undelivered};

/// Sentences of a story when nothing is said about it: the last ones.
pub const SENTENCES_DEFAULT: usize = 100;

/// Which part of a story is told. What was lost is summed up over all of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window {
    /// Not before this time, in the log's form.
    pub since: Option<String>,
    /// Before this time.
    pub until: Option<String>,
    /// At most so many sentences, the last ones.
    pub tail: usize,
}

impl Default for Window {
    fn default() -> Self {
        Self { since: None, until: None, tail: SENTENCES_DEFAULT }
    }
}

/// Whose story.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A session's.
    Session(SessionKey),
    /// A turn's.
    Turn(TurnId),
}

impl Subject {
    /// A UUID is a turn, anything else a session key.
    pub fn parse(text: &str) -> Result<Self, domain::ids::BadId> {
        match text.parse() {
            Ok(turn) => Ok(Self::Turn(turn)),
            Err(_) => text.parse().map(Self::Session),
        }
    }
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Session(key) => fmt::Display::fmt(key, f),
            Self::Turn(turn) => fmt::Display::fmt(turn, f),
        }
    }
}

/// One sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sentence {
    /// When, UTC.
    pub ts: String,
    /// The event that it tells.
    pub id: String,
    /// The event that led to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// What happened.
    pub text: String,
}

/// The whole story.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Story {
    /// Session key or turn id.
    pub subject: String,
    /// Whether anything is known of it.
    pub known: bool,
    /// What happened, in order.
    pub sentences: Vec<Sentence>,
    /// Earlier events that are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out: u64,
    /// Later events that are left out.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub left_out_after: u64,
    /// How it stands now.
    pub now: String,
    /// What was lost.
    pub lost: String,
    /// What runs again, and when.
    pub runs_again: String,
    /// When nothing is known: what has a similar name.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub nearest: Vec<String>,
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

/// Tells the story of `subject`. `events` are in the order of the log; others than the subject's may be among them.
pub fn tell(subject: &Subject, events: &[Event], facts: &Facts, window: &Window) -> Story {
    let chosen = choose(subject, events, facts);
    let known = facts.is_known() || chosen.iter().any(|event| is_about(event, subject));
    if !known {
        return unknown(subject, facts);
    }
    let by_id: HashMap<&str, &Event> = chosen.iter().map(|event| (event.id.as_str(), *event)).collect();
    let told = |event: &&Event| Sentence {
        ts: event.ts.clone(),
        id: event.id.clone(),
        cause: event.cause.clone(),
        text: sentence::of(event, event.cause.as_deref().and_then(|cause| by_id.get(cause).copied()), subject),
    };
    let until = |event: &&Event| window.until.as_deref().is_none_or(|until| event.ts.as_str() < until);
    let since = |event: &&Event| window.since.as_deref().is_none_or(|since| event.ts.as_str() >= since);
    let before_end: Vec<&Event> = chosen.iter().copied().filter(until).collect();
    let inside: Vec<&Event> = before_end.iter().copied().filter(since).collect();
    let first = inside.len().saturating_sub(window.tail);
    let sentences: Vec<Sentence> = inside.iter().skip(first).map(told).collect();
    Story {
        subject: subject.to_string(),
        known: true,
        left_out: (before_end.len() - sentences.len()) as u64,
        left_out_after: (chosen.len() - before_end.len()) as u64,
        lost: lost(&chosen, facts, sentences.len()),
        sentences,
        now: facts.now(subject, events),
        runs_again: facts.runs_again(subject),
        nearest: Vec::new(),
    }
}

fn unknown(subject: &Subject, facts: &Facts) -> Story {
    let what = match subject {
        Subject::Session(_) => "no event, no transcript and no open turn has this session key",
        Subject::Turn(_) => "no event, no transcript, no open turn and no dead letter has this turn id",
    };
    let subject = subject.to_string();
    Story {
        known: false,
        sentences: Vec::new(),
        left_out: 0,
        left_out_after: 0,
        now: format!("unknown: {what}"),
        lost: "nothing that is known: it was never accepted here, or its records are no longer kept".to_owned(),
        runs_again: "nothing".to_owned(),
        nearest: nearest::of(&subject, &facts.names),
        subject,
    }
}

fn is_about(event: &Event, subject: &Subject) -> bool {
    match subject {
        Subject::Session(key) => event.session.as_ref() == Some(key),
        Subject::Turn(turn) => event.turn == Some(*turn),
    }
}

/// The events of the story: those about the subject, what led to them, what followed from them for the session, and what
/// happened to the whole process meanwhile.
fn choose<'a>(subject: &Subject, events: &'a [Event], facts: &Facts) -> Vec<&'a Event> {
    let mut chosen: HashSet<&str> = HashSet::new();
    for event in events.iter().filter(|event| is_about(event, subject)) {
        chosen.insert(&event.id);
    }
    let session = |event: &Event| event.session.is_some() && event.session == facts.key;
    let other_turn = |event: &Event| match subject {
        Subject::Turn(turn) => event.turn.is_some_and(|its| its != *turn),
        Subject::Session(_) => false,
    };
    // Effects stand after their causes, so one pass each way finds all of them.
    for event in events {
        let follows = event.cause.as_deref().is_some_and(|cause| chosen.contains(cause));
        if follows && session(event) && !other_turn(event) {
            chosen.insert(&event.id);
        }
    }
    for event in events.iter().rev() {
        if chosen.contains(event.id.as_str()) {
            chosen.extend(event.cause.as_deref());
        }
    }
    let (from, to) = span(subject, events, &chosen, facts);
    // A repair changes what is known of a session also when nothing happens to it any more.
    let ever = |event: &Event| event.event == EventName::JournalRepaired && matches!(subject, Subject::Session(_));
    for event in events {
        let meanwhile = from.is_some_and(|from| event.ts.as_str() >= from)
            && (facts.is_open() || ever(event) || to.is_some_and(|to| event.ts.as_str() <= to));
        if meanwhile && (concerns_all(event) || (session(event) && !other_turn(event))) {
            chosen.insert(&event.id);
        }
    }
    events.iter().filter(|event| chosen.contains(event.id.as_str())).collect()
}

/// From the first to the last event of the story so far; a turn's begins when it was accepted.
fn span<'a>(
    subject: &Subject,
    events: &'a [Event],
    chosen: &HashSet<&str>,
    facts: &'a Facts,
) -> (Option<&'a str>, Option<&'a str>) {
    let own = |event: &&Event| chosen.contains(event.id.as_str()) && (is_about(event, subject) || !concerns_all(event));
    let first = events.iter().find(own).map(|event| event.ts.as_str());
    let last = events.iter().rev().find(own).map(|event| event.ts.as_str());
    match subject {
        Subject::Session(_) => (first, last),
        Subject::Turn(_) => {
            let accepted = facts.accepted.as_deref();
            let from = accepted.into_iter().chain(first).min();
            (from, last.into_iter().chain(facts.ended.as_deref()).max())
        }
    }
}

/// Whether every session has a part in it.
fn concerns_all(event: &Event) -> bool {
    match event.event {
        EventName::ProcessStarted
        | EventName::ProcessStopped
        | EventName::GatewayStarted
        | EventName::GatewayStopping
        | EventName::GatewayStopped
        | EventName::JournalReadOnly
        | EventName::JournalWritable
        | EventName::JournalRepaired
        | EventName::ProviderOpened
        | EventName::ProviderClosed
        | EventName::MemoryHigh
        | EventName::MemoryCalm
        | EventName::SessionsPruned
        | EventName::AttachmentsRemoved
        | EventName::EventsLost => event.session.is_none(),
        EventName::Started
        | EventName::Exited
        | EventName::Restarted
        | EventName::GaveUp
        | EventName::Quarantined
        | EventName::Released
        | EventName::DeadLettered
        | EventName::Escalated
        | EventName::Resumed
        | EventName::ArbiterBlocked
        | EventName::ArbiterFreed
        | EventName::Activated
        | EventName::Passivated
        | EventName::Refused
        | EventName::TurnRecovered
        | EventName::TurnStuck
        | EventName::TurnFailed
        | EventName::TurnCancelled
        | EventName::DeliveryRepeated
        | EventName::DeliveryFailed
        | EventName::Undeliverable
        | EventName::LetterRetried
        | EventName::LetterDropped
        | EventName::LetterShed
        | EventName::Recovered
        | EventName::ViewRepaired
        | EventName::ViewDamaged
        | EventName::SessionDeleted
        | EventName::SessionArchived
        | EventName::SessionRestored
        | EventName::SessionEdited
        | EventName::CronSkipped
        | EventName::CronFailed
        | EventName::CronDamaged
        | EventName::CronUnsaved
        | EventName::CronSaved
        | EventName::ConfigRejected => false,
    }
}

/// Sums up what the events say, of which `told` are told, and what the present shows.
fn lost(events: &[&Event], facts: &Facts, told: usize) -> String {
    let parts: Vec<String> = events
        .iter()
        .filter(|event| event.event != EventName::EventsLost && event.lost != LOST_NOTHING)
        .map(|event| format!("{} ({})", event.lost, sentence::clock(&event.ts)))
        .collect();
    let missing: Vec<&&Event> = events.iter().filter(|event| event.event == EventName::EventsLost).collect();
    let mut text = if parts.is_empty() {
        match events.len() {
            0 => "nothing: no event tells of a loss".to_owned(),
            count if count != told => format!("nothing: none of the {count} events, told or not, tells of a loss"),
            1 => "nothing: the one event above says so".to_owned(),
            count => format!("nothing: each of the {count} events above says so"),
        }
    } else {
        format!("{}; nothing else", parts.join("; "))
    };
    if let Some(kept) = facts.kept() {
        text.push_str(&format!(", and {kept}"));
    }
    for event in missing {
        text.push_str(&format!("; {} are missing from this log (at {})", event.lost, sentence::clock(&event.ts)));
    }
    text
}

/// Whether the subject's actor is one of its own kind, for sentences.
fn is_session(event: &Event) -> bool {
    event.kind == Kind::Session
}
