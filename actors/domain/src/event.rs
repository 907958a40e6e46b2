//! Events: messages that no person said, such as the report of a sub-agent or a reminder.
//!
//! ```text
//!  body of a turn   {"content":[...],"event":{"kind":"subagent","id":"0199...","name":"weather","status":"done"}}
//!  transcript line  {"type":"custom_message","customType":"greenroom.event","content":[...],"display":true,"details":
//!                   {"event":{...},"turnId":"0199...","idempotencyKey":"run:run:0199...","bodyHash":"00f1...",
//!                   "acceptedMs":1795985609123},"id":...,"parentId":...,"timestamp":...}
//! ```
//!
//! An event is queued, deduplicated and answered as any message. It is no command, whatever it says, and no instruction
//! either: a model is shown it in a fence that says so.

use std::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::text::{first_chars, one_line};

/// The `customType` of an event's line.
pub const EVENT: &str = "greenroom.event";

/// Characters of a name that are shown.
const NAME_CHARS_MAX: usize = 100;

/// Who sends it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EventKind {
    /// A sub-agent that has ended.
    Subagent,
    /// A scheduled job.
    Cron,
    /// The look at what there is to do, from time to time.
    Heartbeat,
    /// A trigger of another program.
    Trigger,
    /// A hook that another program called.
    Webhook,
}

/// What a message that no person said says of itself.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Event {
    /// Who sends it.
    pub kind: EventKind,
    /// The sender's own name of what it tells of: a run, a job.
    pub id: Arc<str>,
    /// The same for people.
    pub name: Arc<str>,
    /// How that went, in the sender's word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<Arc<str>>,
}

// === impl EventKind ===

impl EventKind {
    const ALL: [Self; 5] = [Self::Subagent, Self::Cron, Self::Heartbeat, Self::Trigger, Self::Webhook];

    /// The source under which such events are enqueued, and nothing that a person says.
    pub fn source(self) -> &'static str {
        match self {
            Self::Subagent => "run",
            Self::Cron => "cron",
            Self::Heartbeat => "heartbeat",
            Self::Trigger => "trigger",
            Self::Webhook => "hook",
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Subagent => "sub-agent",
            Self::Cron => "scheduled job",
            Self::Heartbeat => "heartbeat",
            Self::Trigger => "trigger",
            Self::Webhook => "webhook",
        }
    }
}

// === impl Event ===

/// As people are told: `sub-agent "weather": done`.
impl fmt::Display for Event {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = one_line(first_chars(&self.name, NAME_CHARS_MAX));
        write!(out, "{} \"{name}\"", self.kind.words())?;
        match &self.status {
            Some(status) => write!(out, ": {}", one_line(first_chars(status, NAME_CHARS_MAX))),
            None => Ok(()),
        }
    }
}

/// Whether what comes from that source is an event. No door that people write to has such a source.
pub fn is_source(source: &str) -> bool {
    EventKind::ALL.iter().any(|kind| kind.source() == source)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::{TurnBody, body_hash};

    fn event(kind: EventKind, status: Option<&str>) -> Event {
        Event { kind, id: "7".into(), name: "a\nb".into(), status: status.map(Arc::from) }
    }

    #[test]
    fn people_are_told_who_it_is_and_how_it_went() {
        assert_eq!(event(EventKind::Subagent, Some("timed out")).to_string(), "sub-agent \"a b\": timed out");
        assert_eq!(event(EventKind::Cron, None).to_string(), "scheduled job \"a b\"");
    }

    #[test]
    fn only_events_have_the_sources_of_events() {
        assert!(EventKind::ALL.iter().all(|kind| is_source(kind.source())));
        assert!(["ws", "api", "cli", "webhook", "telegram:bot", "run:1", ""].iter().all(|source| !is_source(source)));
    }

    #[test]
    fn a_body_says_it_and_one_without_is_what_it_was() {
        let plain = TurnBody::text("hi");
        let old = br#"{"content":[{"type":"text","text":"hi"}],"history":"session","ephemeral":false}"#;
        assert_eq!(plain.encode(), old);
        assert_eq!(TurnBody::decode(old).unwrap(), plain);
        let told = TurnBody { event: Some(event(EventKind::Trigger, None).into()), ..plain.clone() };
        let bytes = told.encode();
        assert_eq!(TurnBody::decode(&bytes).unwrap(), told);
        assert_ne!(body_hash(&bytes), body_hash(old));
    }
}
