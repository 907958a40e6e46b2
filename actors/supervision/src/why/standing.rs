//! How a session or a turn stands now.

use domain::ids::{Attempt, DeliveryId, SessionKey, TurnId};
use protocol::supervision::{Event, EventName};

use super::Subject;
use super::sentence::{duration, moment};

/// Replies that wait to be delivered and are told one by one.
const UNDELIVERED_TOLD: usize = 5;

/// How far a turn is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum TurnState {
    /// Neither journal nor transcript know it.
    #[default]
    Unknown,
    /// It waits for the turns before it, or for its session.
    Waiting,
    /// It is being worked on, or had begun when the process ended.
    Begun,
    /// It was answered.
    Done,
    /// It ended with a failure that its user was told.
    Failed,
    /// It was cancelled.
    Cancelled,
    /// It was given up.
    Dead,
}

/// How a session stands.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Standing {
    /// What a live session does; `None` when it is not in memory.
    pub state: Option<String>,
    /// Its running turn, with the attempt and for how long.
    pub running: Option<(TurnId, Option<Attempt>, Option<u64>)>,
    /// Open turns that the journal has for it, the running one included.
    pub open: u32,
    /// Until when it is held back, ms since 1970.
    pub quarantined_until_ms: Option<u64>,
}

/// A dead letter.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Letter {
    /// Its id, as `deadletters` takes it.
    pub id: String,
    /// Its turn.
    pub turn: TurnId,
    /// Whether it is a reply that could not be delivered; else the turn itself was given up.
    pub delivery: bool,
}

/// A reply that its channel does not have yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undelivered {
    /// The delivery.
    pub id: DeliveryId,
    /// Where to.
    pub channel: String,
    /// What the running gateway has tried; `None` when it has not failed with it, or none runs.
    pub tried: Option<Tried>,
}

/// Attempts that failed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tried {
    /// How many.
    pub tries: u32,
    /// Why the last one did.
    pub error: String,
    /// When it is tried again, ms since 1970; `None` without a gateway.
    pub next_ms: Option<u64>,
}

/// What is known of the present.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Facts {
    /// Whether a gateway runs.
    pub serving: bool,
    /// The session; for a turn, the one that it belongs to.
    pub key: Option<SessionKey>,
    /// Whether the session has a transcript.
    pub transcript: bool,
    /// How the session stands; `None` when the journal could not be asked.
    pub standing: Option<Standing>,
    /// For a turn: how far it is.
    pub turn: TurnState,
    /// For a turn: when it was accepted, in the log's form.
    pub accepted: Option<String>,
    /// For a turn: when it ended, in the log's form, where that is known.
    pub ended: Option<String>,
    /// Dead letters of the subject.
    pub letters: Vec<Letter>,
    /// Replies of the subject that are not delivered yet, oldest first.
    pub undelivered: Vec<Undelivered>,
    /// Session keys and turn ids that could have been meant.
    pub names: Vec<String>,
}

impl Facts {
    /// Whether journal or transcripts know the subject.
    pub(super) fn is_known(&self) -> bool {
        let open = self.standing.as_ref().is_some_and(|standing| standing.open > 0 || standing.state.is_some());
        let known_turn = self.turn != TurnState::Unknown;
        known_turn || (self.accepted.is_none() && (self.transcript || open)) || !self.letters.is_empty()
    }

    /// Whether more can happen to the subject by itself.
    pub(super) fn is_open(&self) -> bool {
        match self.turn {
            TurnState::Waiting | TurnState::Begun => true,
            TurnState::Done | TurnState::Failed | TurnState::Cancelled | TurnState::Dead => false,
            TurnState::Unknown => self.standing.as_ref().is_some_and(|standing| standing.open > 0),
        }
    }

    /// What is kept of the subject all the same.
    pub(super) fn kept(&self) -> Option<&'static str> {
        match self.turn {
            TurnState::Done => Some("its answer stands in the transcript"),
            TurnState::Failed => Some("what its user was told stands in the transcript"),
            TurnState::Cancelled => Some("the message stands in the transcript as cancelled"),
            TurnState::Dead => Some("the message is kept as a dead letter"),
            TurnState::Waiting | TurnState::Begun => Some("the message is in the journal"),
            TurnState::Unknown => None,
        }
    }

    /// How it stands now, in words; `events` tell of deliveries that a gateway before tried.
    pub(super) fn now(&self, subject: &Subject, events: &[Event]) -> String {
        format!("{}{}", self.stands(subject), self.undelivered_now(events))
    }

    fn undelivered_now(&self, events: &[Event]) -> String {
        let count = self.undelivered.len();
        let mut text = match count {
            0 => return String::new(),
            1 => "; 1 reply is not delivered yet".to_owned(),
            _ => format!("; {count} replies are not delivered yet"),
        };
        for (at, one) in self.undelivered.iter().take(UNDELIVERED_TOLD).enumerate() {
            let before = if at == 0 { ": " } else { "; " };
            let part = if one.id.n > 1 { format!(" (part {})", one.id.n) } else { String::new() };
            text.push_str(&format!("{before}that of turn {}{part} to {}", one.id.turn, one.channel));
            match one.tried.clone().or_else(|| logged(events, one.id)) {
                None => text.push_str(", not tried yet"),
                Some(Tried { tries, error, next_ms }) => {
                    let times = if tries == 1 { "once".to_owned() } else { format!("{tries} times") };
                    text.push_str(&format!(", tried {times}, the last time: {error}"));
                    match next_ms {
                        Some(next_ms) => text.push_str(&format!(", next at {}", moment(next_ms))),
                        None if self.serving => {}
                        None => text.push_str(", next when a gateway starts"),
                    }
                }
            }
        }
        if count > UNDELIVERED_TOLD {
            text.push_str(&format!("; and {} more", count - UNDELIVERED_TOLD));
        }
        text
    }

    fn stands(&self, subject: &Subject) -> String {
        match subject {
            Subject::Session(_) => self.session_now(),
            Subject::Turn(_) => match self.turn {
                TurnState::Unknown => "the journal has no open turn of this id, and no transcript its end".to_owned(),
                TurnState::Waiting => format!("it waits; {}", self.session_now()),
                TurnState::Begun if self.serving => format!("it has begun; {}", self.session_now()),
                TurnState::Begun => "it had begun when the process ended".to_owned(),
                TurnState::Done => "it is answered".to_owned(),
                TurnState::Failed => "it ended with a failure, and its user was told".to_owned(),
                TurnState::Cancelled => "it was cancelled".to_owned(),
                TurnState::Dead => "it was given up, and its user was told".to_owned(),
            },
        }
    }

    fn session_now(&self) -> String {
        let Some(standing) = &self.standing else { return "the journal cannot be asked".to_owned() };
        let mut text = match (&standing.state, standing.quarantined_until_ms) {
            (_, Some(until_ms)) => format!("the session is quarantined until {}", moment(until_ms)),
            (Some(state), None) => format!("the session is {}", state.replace('_', " ")),
            (None, None) if self.serving => "the session is not in memory; a message wakes it".to_owned(),
            (None, None) => "no gateway runs".to_owned(),
        };
        if let Some((turn, attempt, running_ms)) = standing.running {
            text.push_str(&format!(", turn {turn}"));
            if let Some(attempt) = attempt {
                text.push_str(&format!(", attempt {attempt}"));
            }
            if let Some(ms) = running_ms {
                text.push_str(&format!(", for {}", duration(ms)));
            }
        }
        match standing.open {
            0 => text.push_str(", no turn is open"),
            1 => text.push_str(", 1 turn is open"),
            open => text.push_str(&format!(", {open} turns are open")),
        }
        text
    }

    /// What runs again, and when, in words.
    pub(super) fn runs_again(&self, subject: &Subject) -> String {
        let retry = |delivery: bool| -> Vec<String> {
            let letters = self.letters.iter().filter(|letter| letter.delivery == delivery);
            letters.map(|letter| format!("`greenroom deadletters retry {}`", letter.id)).collect()
        };
        let (undelivered, retry) = (retry(true), retry(false));
        let mut text = self.turns_run_again(subject, &retry);
        if !self.undelivered.is_empty() {
            let when = if self.serving { "by themselves" } else { "when a gateway starts" };
            text.push_str(&format!("; replies that are not delivered yet are tried again {when}"));
        }
        if !undelivered.is_empty() {
            text.push_str(&format!("; what could not be delivered is sent again by {}", undelivered.join(", ")));
        }
        text
    }

    fn turns_run_again(&self, subject: &Subject, retry: &[String]) -> String {
        let when = self.when();
        match (subject, self.turn) {
            (Subject::Turn(_), TurnState::Done | TurnState::Failed | TurnState::Cancelled) => {
                "nothing: the turn has ended".to_owned()
            }
            (Subject::Turn(_), TurnState::Dead) => match retry.first() {
                Some(retry) => format!("nothing by itself; {retry} runs it as a new turn"),
                None => "nothing: it was given up".to_owned(),
            },
            (Subject::Turn(_), TurnState::Waiting | TurnState::Begun) => format!("this turn, {when}"),
            (Subject::Turn(_), TurnState::Unknown) => "nothing: it was not accepted, or has ended".to_owned(),
            (Subject::Session(_), _) => {
                let mut text = match self.standing.as_ref().map(|standing| standing.open) {
                    None => "unknown: the journal cannot be asked".to_owned(),
                    Some(0) => "nothing: no turn is open".to_owned(),
                    Some(1) => format!("1 turn, {when}"),
                    Some(open) => format!("{open} turns, one after the other, {when}"),
                };
                if !retry.is_empty() {
                    text.push_str(&format!("; given up, and run anew only by {}", retry.join(", ")));
                }
                text
            }
        }
    }

    fn when(&self) -> String {
        let standing = self.standing.as_ref();
        match standing.and_then(|standing| standing.quarantined_until_ms) {
            Some(until_ms) => {
                let key = self.key.as_ref().map(|key| key.as_str().to_owned()).unwrap_or_default();
                let process = if self.serving { "" } else { " and a gateway runs" };
                let until = moment(until_ms);
                format!(
                    "when the quarantine ends at {until}{process}, or at once with `greenroom sessions release {key}`"
                )
            }
            None if !self.serving => "when a gateway starts".to_owned(),
            None if standing.is_some_and(|standing| standing.running.is_some()) => "now".to_owned(),
            None => "as soon as its session is loaded".to_owned(),
        }
    }
}

/// What the log tells of the attempts at a delivery.
fn logged(events: &[Event], id: DeliveryId) -> Option<Tried> {
    let of_it = |event: &&Event| event.event == EventName::DeliveryFailed && event.delivery == Some(id);
    let last = events.iter().rev().find(of_it)?;
    Some(Tried {
        tries: last.attempt.map_or(1, |attempt| attempt.0),
        error: last.reason.clone().unwrap_or_default(),
        next_ms: None,
    })
}
